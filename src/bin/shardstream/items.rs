//! Samples that are made of files and of values in a list.

use crate::failure::Failure;
use crate::making::{Samples, failed};
use crate::saved_plan::Hash;
use shardstream::prelude::*;
use shardstream::write::TarWriter;
use std::fmt;
use std::fs;
use std::io::{self, Write};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

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

    pub(crate) fn size(&self) -> u64 {
        match self {
            Content::File { size, .. } => *size,
            Content::Bytes(bytes) => bytes.len() as u64,
        }
    }
}

/// Says something on stderr that is no part of the output.
pub(crate) fn note(what: impl fmt::Display) {
    // stderr may be closed, and there is nowhere left to say so.
    drop(writeln!(io::stderr(), "shardstream: {what}"));
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// One sample of one file, which had five bytes when it was looked at.
    fn items(root: &Path) -> Items {
        let content = Content::File { path: "a.jpg".into(), size: 5 };
        Items::new(root.to_owned(), vec![Item { key: None, fields: vec![("jpg".into(), content)] }]).unwrap()
    }

    #[test]
    fn files_must_stay_as_they_were_planned() {
        let dir = tempfile::tempdir().unwrap();
        let items = items(dir.path());
        let read = || {
            let mut count = 0;
            let done = items.read(0..1, &mut |_| {
                count += 1;
                Ok(())
            });
            done.map(|()| count).map_err(|error| format!("{error:#}"))
        };
        assert!(read().unwrap_err().contains("a.jpg: "));
        fs::write(dir.path().join("a.jpg"), b"longer").unwrap();
        let error = read().unwrap_err();
        assert!(error.contains("a.jpg had 5 bytes when the shards were planned, and has 6 now"), "{error}");
        fs::write(dir.path().join("a.jpg"), b"as it").unwrap();
        assert_eq!(read(), Ok(1));
    }
}
