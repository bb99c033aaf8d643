//! Inspects the files of samples before shards are planned.

use crate::context::Context;
use crate::empty_fields::EmptyFields;
use crate::failure::{Failure, causes};
use crate::field::{image_format, is_image_file};
use crate::file_samples::{FieldSource, PlannedSample};
use crate::output::note;
use crate::progress::Unit;
use crate::skip_bad::{SkipBad, check_skipped};
use shardstream::adapters::IteratorExt;
use shardstream::image::{Image, ImageMode};
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Maximum number of lines that a list of bad or renamed files has.
const MAX_LISTED: usize = 100;

/// How files are inspected.
#[derive(Debug, Clone)]
pub(crate) struct Inspection {
    /// The directory that the paths start from.
    pub(crate) root: PathBuf,
    pub(crate) threads: usize,
    /// Whether images are decoded, and not only recognised by their first bytes.
    pub(crate) decode: bool,
    /// How many bad samples may be left out; none if they are errors.
    pub(crate) skip_bad: SkipBad,
    pub(crate) empty: EmptyFields,
    /// The name of the list that the samples come from, for messages.
    pub(crate) list: String,
}

/// The reason why a sample cannot be stored.
#[derive(Debug)]
enum Fault {
    /// A file that is missing, empty or damaged.
    Bad(String),
    /// A failure of the disk or the system, such as a missing permission or too many open files. `--skip-bad`
    /// does not leave out the sample of such a file: the failure could affect every sample.
    System(String),
}

impl Fault {
    fn of(error: &io::Error) -> Self {
        let why = error.to_string();
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Fault::Bad(why),
            _ => Fault::System(why),
        }
    }

    /// Puts `place`, the file, before the message of the fault.
    fn at(self, place: impl fmt::Display) -> Self {
        match self {
            Fault::Bad(why) => Fault::Bad(format!("{place}: {why}")),
            Fault::System(why) => Fault::System(format!("{place}: {why}")),
        }
    }
}

/// The samples that can be stored.
#[derive(Debug)]
pub(crate) struct Inspected {
    pub(crate) samples: Vec<PlannedSample>,
    /// Number of samples that were left out.
    pub(crate) left_out: u64,
    /// Number of images with a wrong extension, which were stored under the field of their real format.
    pub(crate) renamed: u64,
}

impl Inspection {
    /// Inspects the files of the samples: their sizes, and the image formats that their first bytes show. An
    /// image whose extension is wrong gets the field of its real format.
    ///
    /// # Errors
    /// Without `skip_bad`: if any file is bad; the error lists the bad files. With `skip_bad`: if more
    /// samples are bad than it allows. A file that cannot be read because of the disk or the system is always
    /// an error.
    pub(crate) fn run(self, samples: Vec<PlannedSample>, context: &Context) -> Result<Inspected, Failure> {
        let what = if self.decode { "decoding images" } else { "looking at files" };
        let total = samples.len() as u64;
        let progress = context.progress(what, Unit::Samples, Some(total));
        // A thread that does not decode mostly waits for the disk, so more threads than cores are useful.
        let threads = if self.decode { self.threads } else { self.threads.max(8) };
        let (skip_bad, flag) = (self.skip_bad, context.interrupt.clone());
        let source = samples.into_iter().take_while(move |_| !flag.is_set()).map(Ok);
        let inspected = source.pipeline().par_map(threads, move |sample| Ok(self.inspect(sample)));
        let (mut samples, mut bad, mut renamed) = (Vec::new(), Vec::new(), Vec::new());
        for result in inspected.ahead(1024) {
            context.interrupt.check()?;
            match result? {
                Ok((sample, notes)) => {
                    samples.push(sample);
                    renamed.extend(notes);
                }
                Err(Fault::Bad(why)) => bad.push(why),
                Err(Fault::System(why)) => return Err(Failure::Failed(why)),
            }
            progress.add(1);
        }
        context.interrupt.check()?;
        drop(progress);
        if !bad.is_empty() && skip_bad.is_none() {
            return Err(Failure::Failed(format!("{}; --skip-bad leaves them out", limited(&bad).join("\n"))));
        }
        limited(&bad).iter().for_each(|line| note(format_args!("left out: {line}")));
        check_skipped(bad.len() as u64, total, skip_bad)?;
        limited(&renamed).iter().for_each(note);
        Ok(Inspected { samples, left_out: bad.len() as u64, renamed: renamed.len() as u64 })
    }

    /// Inspects the files of a sample. Returns the sample with the sizes of its files, and a note for each
    /// image whose extension is wrong. If a file has a fault, returns the fault.
    fn inspect(&self, sample: PlannedSample) -> Result<(PlannedSample, Vec<String>), Fault> {
        let mut notes = Vec::new();
        let origin = sample.origin(&self.list);
        let (mut sample, fields) = sample.into_fields();
        for (mut field, mut content) in fields {
            let FieldSource::File { path, size } = &mut content else {
                if content.size() == 0 && !self.empty.allow(&field) {
                    return Err(Fault::Bad(format!("{origin}: the field {field} {}", empty(&field))));
                }
                if let Err(first) = sample.push(Arc::clone(&field), content) {
                    let first = sample.file(first).unwrap_or("another value");
                    let why = format!("both {first} and a value of the list are the field {field}");
                    return Err(Fault::Bad(format!("{origin}: {why}")));
                }
                continue;
            };
            let file = self.root.join(&**path);
            let place = file.display();
            let bad = |why: String| Err(Fault::Bad(format!("{place}: {why}")));
            let inspected = inspect_file(&file, &field, self.decode).map_err(|fault| fault.at(&place))?;
            if inspected.size == 0 && !self.empty.allow(&field) {
                return bad(format!("the file {}", empty(&field)));
            }
            *size = inspected.size;
            if let (Some(format), Some(expected)) = (inspected.format, named(&field))
                && format != expected
            {
                if named(path) != Some(expected) {
                    // The user has named the field with `--file`, so it is not renamed.
                    return bad(format!("this is a {format}, but the field is {field}: give another field"));
                }
                notes.push(format!("{place}: this is a {format}, and stored as {format}"));
                field = renamed(&field, format);
            }
            if let Err(first) = sample.push(Arc::clone(&field), content.clone()) {
                let first = sample.file(first).unwrap_or("a value of the list");
                return bad(format!("this is a {field}, and so is {first} of the same sample"));
            }
        }
        Ok((sample, notes))
    }
}

/// The message for an empty field.
fn empty(field: &str) -> String {
    match is_image_file(field) {
        true => "is empty".into(),
        false => format!("is empty: --may-be-empty {field} accepts it"),
    }
}

/// The first [`MAX_LISTED`] lines, and a line with the number of further lines.
fn limited(lines: &[String]) -> Vec<String> {
    let more = lines.len().saturating_sub(MAX_LISTED);
    let last = (more > 0).then(|| format!("and {more} more"));
    lines.iter().take(MAX_LISTED).cloned().chain(last).collect()
}

/// The image format that the extension of a field or file names.
fn named(name: &str) -> Option<&'static str> {
    match name.rsplit('.').next()?.to_ascii_lowercase().as_str() {
        "jpg" | "jpeg" | "jpe" | "jfif" => Some("jpg"),
        "png" => Some("png"),
        "webp" => Some("webp"),
        _ => None,
    }
}

/// The field with its last extension replaced.
fn renamed(field: &str, extension: &str) -> Arc<str> {
    match field.rsplit_once('.') {
        Some((before, _)) => format!("{before}.{extension}").into(),
        None => extension.into(),
    }
}

/// The size of a file, and the extension for its image format if it is an image.
struct InspectedFile {
    size: u64,
    format: Option<&'static str>,
}

/// Inspects a file that becomes the given field. Returns the reason if the file cannot be stored.
fn inspect_file(path: &Path, field: &str, decode: bool) -> Result<InspectedFile, Fault> {
    let is_image = is_image_file(field);
    // Checked before the file is opened: opening a named pipe blocks until the pipe has a writer.
    let metadata = fs::metadata(path).map_err(|error| Fault::of(&error))?;
    if !metadata.is_file() {
        return Err(Fault::Bad("this is not a file".into()));
    }
    let read = || -> io::Result<(u64, Vec<u8>)> {
        if decode && is_image {
            let bytes = fs::read(path)?;
            return Ok((bytes.len() as u64, bytes));
        }
        let mut head = Vec::with_capacity(12);
        File::open(path)?.take(12).read_to_end(&mut head)?;
        Ok((metadata.len(), head))
    };
    let (size, bytes) = read().map_err(|error| Fault::of(&error))?;
    if !is_image || size == 0 {
        return Ok(InspectedFile { size, format: None });
    }
    let format = extension_of(&bytes);
    if let (Some(named), None) = (named(field), format) {
        return Err(Fault::Bad(format!("this is not a {named}")));
    }
    if decode && let Err(error) = Image::decode(&bytes, ImageMode::Rgb8) {
        return Err(Fault::Bad(causes(&error)));
    }
    Ok(InspectedFile { size, format })
}

/// The extension for an image with these first bytes. `None` for PNM, which has several extensions.
fn extension_of(head: &[u8]) -> Option<&'static str> {
    match image_format(head)? {
        "jpeg" => Some("jpg"),
        "pnm" => None,
        format => Some(format),
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
        let mut sample = PlannedSample::new(None, None);
        fields
            .iter()
            .for_each(|(field, path)| sample.push((*field).into(), FieldSource::file(path)).unwrap());
        let inspection = Inspection {
            root: root.to_owned(),
            threads: 1,
            decode: false,
            skip_bad: None,
            empty: EmptyFields::default(),
            list: String::new(),
        };
        let (sample, notes) = inspection.inspect(sample).map_err(|fault| match fault {
            Fault::Bad(why) | Fault::System(why) => why,
        })?;
        let sizes = sample.fields().map(|(field, content)| (field.to_owned(), content.size()));
        Ok((sizes.collect(), notes))
    }

    #[test]
    fn an_image_with_a_wrong_extension_gets_the_field_of_its_format() {
        let dir = tempfile::tempdir().unwrap();
        let files = [("a.JPEG", PNG), ("b.jpg", JPEG), ("c.png", PNG), ("d.txt", b"d"), ("e.ppm", b"P6")];
        for (name, bytes) in files {
            fs::write(dir.path().join(name), bytes).unwrap();
        }
        let same =
            [("jpeg", "b.jpg"), ("jfif", "b.jpg"), ("txt", "d.txt"), ("ppm", "e.ppm"), ("pgm", "c.png")];
        let (fields, notes) = inspect(dir.path(), &same).unwrap();
        assert!(fields.iter().map(|(field, _)| &**field).eq(same.map(|(field, _)| field)), "{fields:?}");
        assert!(fields[0].1 == 8 && fields[2].1 == 1 && notes.is_empty(), "{fields:?} {notes:?}");
        let (fields, notes) = inspect(dir.path(), &[("left.jpg", "a.JPEG"), ("png", "c.png")]).unwrap();
        assert_eq!(fields, [("left.png".into(), 12), ("png".into(), 12)]);
        assert!(
            notes.len() == 1 && notes[0].ends_with("a.JPEG: this is a png, and stored as png"),
            "{notes:?}"
        );
        let both = inspect(dir.path(), &[("jpg", "a.JPEG"), ("png", "c.png")]).unwrap_err();
        assert!(both.ends_with("c.png: this is a png, and so is a.JPEG of the same sample"), "{both}");
        let given = inspect(dir.path(), &[("jpg", "c.png")]).unwrap_err();
        assert!(given.ends_with("c.png: this is a png, but the field is jpg: give another field"), "{given}");
        assert!(inspect(dir.path(), &[("jpg", "none.jpg")]).is_err());
    }

    #[test]
    fn long_lists_end_with_the_number_of_further_lines() {
        let lines = vec![String::new(); MAX_LISTED + 3];
        assert_eq!((limited(&lines).len(), &*limited(&lines)[MAX_LISTED]), (MAX_LISTED + 1, "and 3 more"));
        assert_eq!(limited(&lines[..MAX_LISTED]).len(), MAX_LISTED);
    }
}
