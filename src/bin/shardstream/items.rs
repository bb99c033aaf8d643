//! Samples that are made of files and of values in a list.

use crate::context::Context;
use crate::failure::Failure;
use crate::making::{Samples, failed};
use crate::progress::Unit;
use crate::saved_plan::Hash;
use shardstream::prelude::*;
use shardstream::write::TarWriter;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How many bad files are listed.
const SHOWN: usize = 10;

/// A sample to be: its key, if it is not its number, and its fields.
#[derive(Debug, Clone)]
pub(crate) struct Item {
    pub(crate) key: Option<Box<str>>,
    pub(crate) fields: Vec<(Arc<str>, Content)>,
}

/// What is in a field.
#[derive(Debug, Clone)]
pub(crate) enum Content {
    /// A file below the root, with its size when it was looked at.
    File {
        path: Box<str>,
        size: u64,
    },
    Bytes(Box<[u8]>),
}

impl Content {
    /// A file that was not looked at yet.
    pub(crate) fn file(path: &str) -> Self {
        Content::File { path: path.into(), size: 0 }
    }

    fn size(&self) -> u64 {
        match self {
            Content::File { size, .. } => *size,
            Content::Bytes(bytes) => bytes.len() as u64,
        }
    }
}

/// A file that cannot be taken, and why.
#[derive(Debug)]
pub(crate) struct BadFile(String);

impl fmt::Display for BadFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Looks at the files of the items: their sizes, and whether images begin as their extension says. Items with
/// a bad file are left out, where that is allowed.
pub(crate) fn look_at(
    items: Vec<Item>,
    root: &Path,
    threads: usize,
    skip_bad: bool,
    context: &Context,
) -> Result<Vec<Item>, Failure> {
    let progress = context.progress("looking at files", Unit::Samples, Some(items.len() as u64));
    let (base, flag) = (root.to_owned(), context.interrupt.clone());
    let source = items.into_iter().take_while(move |_| !flag.is_set()).map(Ok);
    let looked = source.par_map(threads.max(8), move |mut item: Item| {
        let mut bad = None;
        for (field, content) in &mut item.fields {
            let Content::File { path, size } = content else { continue };
            match look(&base.join(&**path), field) {
                Ok(bytes) => *size = bytes,
                Err(why) => bad = bad.or(Some(BadFile(format!("{}: {why}", base.join(&**path).display())))),
            }
        }
        Ok(bad.map_or(Ok(item), Err))
    });
    let (mut good, mut bad) = (Vec::new(), Vec::new());
    for item in looked.ahead(1024) {
        context.interrupt.check()?;
        match item? {
            Ok(item) => good.push(item),
            Err(file) => bad.push(file),
        }
        progress.add(1);
    }
    context.interrupt.check()?;
    drop(progress);
    if bad.is_empty() {
        return Ok(good);
    }
    let mut lines: Vec<String> = bad.iter().take(SHOWN).map(BadFile::to_string).collect();
    if bad.len() > SHOWN {
        lines.push(format!("and {} more", bad.len() - SHOWN));
    }
    match skip_bad {
        true => {
            lines.iter().for_each(|line| note(format_args!("left out: {line}")));
            Ok(good)
        }
        false => Err(Failure::Failed(format!("{}; --skip-bad leaves them out", lines.join("\n")))),
    }
}

/// Says something on stderr that is no part of the output.
pub(crate) fn note(what: impl fmt::Display) {
    // stderr may be closed, and there is nowhere left to say so.
    drop(writeln!(io::stderr(), "shardstream: {what}"));
}

/// The size of a file that begins as its field says, or why it cannot be taken.
fn look(path: &Path, field: &str) -> Result<u64, String> {
    let read = || -> io::Result<(u64, Vec<u8>)> {
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::other("this is no file"));
        }
        let mut head = Vec::with_capacity(12);
        file.take(12).read_to_end(&mut head)?;
        Ok((metadata.len(), head))
    };
    let (size, head) = read().map_err(|error| error.to_string())?;
    let named = match field.rsplit('.').next() {
        Some("jpg" | "jpeg") => "jpg",
        Some("png") => "png",
        Some("webp") => "webp",
        _ => return Ok(size),
    };
    match image(&head) {
        _ if size == 0 => Err("the file is empty".into()),
        Some(is) if is == named => Ok(size),
        Some(is) => Err(format!("this is a {is} and not a {named}: rename it")),
        None => Err(format!("this is no {named}")),
    }
}

/// Which image begins like this.
fn image(head: &[u8]) -> Option<&'static str> {
    match head {
        [0xff, 0xd8, 0xff, ..] => Some("jpg"),
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some("png"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P'] => Some("webp"),
        _ => None,
    }
}

/// Items in the order in which they are written.
#[derive(Debug)]
pub(crate) struct Items {
    root: PathBuf,
    items: Vec<Item>,
}

impl Items {
    /// # Errors
    /// For keys and fields that no shard can have, and keys that come twice.
    pub(crate) fn new(root: PathBuf, items: Vec<Item>) -> Result<Self, Failure> {
        let items = Items { root, items };
        // What a reader would not read back is refused by the writer: better before anything is written.
        let mut writer = TarWriter::new(io::sink());
        for number in 0..items.len() {
            let fields = items.items[number].fields.iter();
            let sample = fields.fold(Sample::new(items.key(number)), |sample, (field, _)| {
                sample.with(field.to_string(), Value::from(b""))
            });
            writer.write(&sample)?;
        }
        Ok(items)
    }

    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }

    /// The key of a sample: its number, unless it was given one.
    pub(crate) fn key(&self, number: usize) -> String {
        self.items[number].key.as_ref().map_or_else(|| format!("{number:09}"), ToString::to_string)
    }

    /// The fields of a sample and their sizes.
    pub(crate) fn sizes(&self, number: usize) -> impl Iterator<Item = (&str, u64)> + Clone {
        self.items[number].fields.iter().map(|(field, content)| (&**field, content.size()))
    }

    /// Takes in the keys, and the names and sizes of the fields, and short values.
    pub(crate) fn hash(&self) -> Hash {
        let mut hash = Hash::default();
        for (number, item) in self.items.iter().enumerate() {
            hash.text(&self.key(number));
            for (field, content) in &item.fields {
                hash.text(field);
                hash.number(content.size());
                match content {
                    Content::File { path, .. } => hash.text(path),
                    Content::Bytes(bytes) => hash.text(&String::from_utf8_lossy(bytes)),
                }
            }
        }
        hash
    }

    /// The content of a file that must be as long as it was.
    fn content(&self, content: &Content) -> shardstream::Result<Vec<u8>> {
        let (path, planned) = match content {
            Content::Bytes(bytes) => return Ok(bytes.to_vec()),
            Content::File { path, size } => (self.root.join(&**path), *size),
        };
        let bytes = fs::read(&path).map_err(|error| failed(format!("{}: {error}", path.display())))?;
        let now = bytes.len() as u64;
        match now == planned {
            true => Ok(bytes),
            false => Err(failed(format!(
                "{} had {planned} bytes when the shards were planned, and has {now} now",
                path.display()
            ))),
        }
    }
}

impl Samples for Items {
    fn read(
        &self,
        samples: Range<usize>,
        take: &mut dyn FnMut(Sample) -> shardstream::Result<()>,
    ) -> shardstream::Result<()> {
        for number in samples {
            let mut sample = Sample::new(self.key(number));
            for (field, content) in &self.items[number].fields {
                sample.set(field.to_string(), self.content(content)?);
            }
            take(sample)?;
        }
        Ok(())
    }

    fn fields(&self, sample: usize) -> Option<Vec<(String, u64)>> {
        Some(self.sizes(sample).map(|(field, size)| (field.to_owned(), size)).collect())
    }

    fn key(&self, sample: usize) -> Option<String> {
        Some(Items::key(self, sample))
    }
}
