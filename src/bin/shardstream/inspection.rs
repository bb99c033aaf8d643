//! Looking at the files that samples are made of, before shards are planned.

use crate::context::Context;
use crate::failure::Failure;
use crate::field::Kind;
use crate::items::{Content, Item, note};
use crate::progress::Unit;
use shardstream::adapters::IteratorExt;
use shardstream::image::{Image, ImageMode};
use std::collections::HashSet;
use std::error::Error;
use std::fs::{self, File};
use std::io::{self, Read};
use std::iter;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How many files are listed of each kind.
const SHOWN: usize = 100;

/// How files are looked at.
#[derive(Debug, Clone)]
pub(crate) struct Inspection {
    /// The directory that the paths start from.
    pub(crate) root: PathBuf,
    pub(crate) threads: usize,
    /// Whether images are decoded.
    pub(crate) decode: bool,
    /// Whether items with a bad file are left out.
    pub(crate) skip_bad: bool,
}

/// The items that can be stored.
#[derive(Debug)]
pub(crate) struct Inspected {
    pub(crate) items: Vec<Item>,
    /// How many items were left out.
    pub(crate) left_out: u64,
    /// How many files are stored under the field of their content, which their extension does not name.
    pub(crate) renamed: u64,
}

impl Inspection {
    /// Looks at the files of the items: their sizes, and which images they begin as. An image that is not
    /// what its extension says becomes the field of what it is.
    ///
    /// # Errors
    /// All bad files, unless they are left out.
    pub(crate) fn run(self, items: Vec<Item>, context: &Context) -> Result<Inspected, Failure> {
        let what = if self.decode { "decoding images" } else { "looking at files" };
        let progress = context.progress(what, Unit::Samples, Some(items.len() as u64));
        // To look at a file is to wait for a disk; to decode it takes a core.
        let threads = if self.decode { self.threads } else { self.threads.max(8) };
        let (skip_bad, flag) = (self.skip_bad, context.interrupt.clone());
        let source = items.into_iter().take_while(move |_| !flag.is_set()).map(Ok);
        let looked = source.par_map(threads, move |item| Ok(self.look_at(item)));
        let (mut items, mut bad, mut renamed) = (Vec::new(), Vec::new(), Vec::new());
        for looked in looked.ahead(1024) {
            context.interrupt.check()?;
            match looked? {
                Ok((item, notes)) => {
                    items.push(item);
                    renamed.extend(notes);
                }
                Err(why) => bad.push(why),
            }
            progress.add(1);
        }
        context.interrupt.check()?;
        drop(progress);
        if !bad.is_empty() && !skip_bad {
            return Err(Failure::Failed(format!("{}; --skip-bad leaves them out", shown(&bad).join("\n"))));
        }
        shown(&bad).iter().for_each(|line| note(format_args!("left out: {line}")));
        shown(&renamed).iter().for_each(note);
        Ok(Inspected { items, left_out: bad.len() as u64, renamed: renamed.len() as u64 })
    }

    /// The item with the sizes of its files, and a note on each file that is not what its extension says; or
    /// what is wrong with one of its files.
    fn look_at(&self, mut item: Item) -> Result<(Item, Vec<String>), String> {
        let mut notes = Vec::new();
        for (field, content) in &mut item.fields {
            let Content::File { path, size } = content else { continue };
            let place = self.root.join(&**path);
            let bad = |why: String| format!("{}: {why}", place.display());
            let (bytes, found) = look(&place, field, self.decode).map_err(bad)?;
            *size = bytes;
            let (Some(is), Some(should_be)) = (found, named(field)) else { continue };
            if is == should_be {
                continue;
            }
            if named(path) != Some(should_be) {
                // The field was not named by the extension.
                return Err(bad(format!("this is a {is}, and the field is {field}: name another field")));
            }
            notes.push(format!("{}: this is a {is}, and stored as {is}", place.display()));
            *field = renamed(field, is);
        }
        let mut names = HashSet::new();
        match item.fields.iter().find(|(field, _)| !names.insert(field)) {
            Some((field, _)) if !notes.is_empty() => {
                Err(format!("{}, which another file of its sample is already ({field})", notes.join("; ")))
            }
            _ => Ok((item, notes)),
        }
    }
}

/// The first of many lines, and how many more there are.
fn shown(lines: &[String]) -> Vec<String> {
    let more = lines.len().saturating_sub(SHOWN);
    let last = (more > 0).then(|| format!("and {more} more"));
    lines.iter().take(SHOWN).cloned().chain(last).collect()
}

/// The image that a field, or a file, of this name should be.
fn named(name: &str) -> Option<&'static str> {
    match name.rsplit('.').next()?.to_ascii_lowercase().as_str() {
        "jpg" | "jpeg" | "jpe" | "jfif" => Some("jpg"),
        "png" => Some("png"),
        "webp" => Some("webp"),
        _ => None,
    }
}

/// The field with another extension.
fn renamed(field: &str, extension: &str) -> Arc<str> {
    match field.rsplit_once('.') {
        Some((before, _)) => format!("{before}.{extension}").into(),
        None => extension.into(),
    }
}

/// The size of a file, and which image it is if its field should be one; or why it cannot be stored.
fn look(path: &Path, field: &str, decode: bool) -> Result<(u64, Option<&'static str>), String> {
    let is_image = Kind::of(field) == Kind::Image && !field.to_ascii_lowercase().ends_with(".gz");
    let read = || -> io::Result<(u64, Vec<u8>)> {
        // Before it is opened: a pipe would wait for somebody who writes.
        let metadata = fs::metadata(path)?;
        if !metadata.is_file() {
            return Err(io::Error::other("this is no file"));
        }
        if decode && is_image {
            let bytes = fs::read(path)?;
            return Ok((bytes.len() as u64, bytes));
        }
        let mut head = Vec::with_capacity(12);
        File::open(path)?.take(12).read_to_end(&mut head)?;
        Ok((metadata.len(), head))
    };
    let (size, bytes) = read().map_err(|error| error.to_string())?;
    if !is_image {
        return Ok((size, None));
    }
    if size == 0 {
        return Err("the file is empty".into());
    }
    let found = image(&bytes);
    if let (Some(named), None) = (named(field), found) {
        return Err(format!("this is no {named}"));
    }
    if decode && let Err(error) = Image::decode(&bytes, ImageMode::Rgb8) {
        return Err(causes(&error));
    }
    Ok((size, found))
}

/// An error with its causes.
fn causes(error: &(dyn Error + 'static)) -> String {
    let causes = iter::successors(Some(error), |error| (**error).source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// Which image begins like this.
fn image(head: &[u8]) -> Option<&'static str> {
    match head {
        [0xff, 0xd8, 0xff, ..] => Some("jpg"),
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some("png"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some("webp"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PNG: &[u8] = b"\x89PNG\r\n\x1a\n....";
    const JPEG: &[u8] = b"\xff\xd8\xff\xe0....";

    /// Fields with their sizes.
    type Sizes = Vec<(String, u64)>;

    fn inspect(root: &Path, fields: &[(&str, &str)]) -> Result<(Sizes, Vec<String>), String> {
        let fields = fields.iter().map(|(field, path)| ((*field).into(), Content::file(path))).collect();
        let inspection = Inspection { root: root.to_owned(), threads: 1, decode: false, skip_bad: false };
        let (item, notes) = inspection.look_at(Item { key: None, fields })?;
        let sizes = item.fields.iter().map(|(field, content)| (field.to_string(), content.size()));
        Ok((sizes.collect(), notes))
    }

    #[test]
    fn images_become_the_field_of_their_content() {
        let dir = tempfile::tempdir().unwrap();
        let files = [("a.JPEG", PNG), ("b.jpg", JPEG), ("c.png", PNG), ("d.txt", b""), ("e.ppm", b"P6")];
        for (name, bytes) in files {
            fs::write(dir.path().join(name), bytes).unwrap();
        }
        let same =
            [("jpeg", "b.jpg"), ("jfif", "b.jpg"), ("txt", "d.txt"), ("ppm", "e.ppm"), ("pgm", "c.png")];
        let (fields, notes) = inspect(dir.path(), &same).unwrap();
        assert!(fields.iter().map(|(field, _)| &**field).eq(same.map(|(field, _)| field)), "{fields:?}");
        assert!(fields[0].1 == 8 && fields[2].1 == 0 && notes.is_empty(), "{fields:?} {notes:?}");
        let (fields, notes) = inspect(dir.path(), &[("left.jpg", "a.JPEG"), ("png", "c.png")]).unwrap();
        assert_eq!(fields, [("left.png".into(), 12), ("png".into(), 12)]);
        assert!(
            notes.len() == 1 && notes[0].ends_with("a.JPEG: this is a png, and stored as png"),
            "{notes:?}"
        );
        let both = inspect(dir.path(), &[("jpg", "a.JPEG"), ("png", "c.png")]).unwrap_err();
        assert!(both.ends_with("which another file of its sample is already (png)"), "{both}");
        let given = inspect(dir.path(), &[("jpg", "c.png")]).unwrap_err();
        assert!(given.ends_with("c.png: this is a png, and the field is jpg: name another field"), "{given}");
        assert!(inspect(dir.path(), &[("jpg", "none.jpg")]).is_err());
    }

    #[test]
    fn lists_have_an_end() {
        let lines = vec![String::new(); SHOWN + 3];
        assert_eq!((shown(&lines).len(), &*shown(&lines)[SHOWN]), (SHOWN + 1, "and 3 more"));
        assert_eq!(shown(&lines[..SHOWN]).len(), SHOWN);
    }
}
