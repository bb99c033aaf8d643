//! Samples whose fields are files, or values from a list.

use crate::failure::{Failure, other_error};
use crate::input_hash::InputHash;
use crate::write_job::SampleSource;
use shardstream::prelude::*;
use shardstream::write::TarWriter;
use std::fs;
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

/// A sample to write.
#[derive(Debug, Clone)]
pub(crate) struct PlannedSample {
    /// If `None`, the sample's number becomes the key.
    pub(crate) key: Option<Box<str>>,
    /// If a line of a list describes the sample: the number of that line, counted from 1.
    line: Option<u32>,
    /// Fields with different names.
    fields: Vec<(Arc<str>, FieldSource)>,
}

impl PlannedSample {
    /// A sample without fields. If a line of a list describes the sample, `line` is the number of that line.
    pub(crate) fn new(key: Option<Box<str>>, line: Option<u32>) -> Self {
        PlannedSample { key, line, fields: Vec::new() }
    }

    /// Adds a field.
    ///
    /// # Errors
    /// If the sample has a field of this name already. The error is the number of that field.
    pub(crate) fn push(&mut self, field: Arc<str>, source: FieldSource) -> Result<(), usize> {
        match self.fields.iter().position(|(other, _)| *other == field) {
            Some(first) => Err(first),
            None => {
                self.fields.push((field, source));
                Ok(())
            }
        }
    }

    pub(crate) fn fields(&self) -> impl Iterator<Item = (&str, &FieldSource)> + Clone {
        self.fields.iter().map(|(field, source)| (&**field, source))
    }

    /// The sample without its fields, and the fields.
    pub(crate) fn into_fields(self) -> (Self, Vec<(Arc<str>, FieldSource)>) {
        (PlannedSample { fields: Vec::new(), ..self }, self.fields)
    }

    /// The path of a field's file; `None` if the field is not a file.
    pub(crate) fn file(&self, field: usize) -> Option<&str> {
        match self.fields.get(field)? {
            (_, FieldSource::File { path, .. }) => Some(path),
            _ => None,
        }
    }

    /// The key, or `number` with nine digits for a sample without a key.
    fn key(&self, number: usize) -> String {
        self.key.as_ref().map_or_else(|| format!("{number:09}"), ToString::to_string)
    }

    /// The sample's line in the list and its first file, for messages.
    pub(crate) fn origin(&self, list: &str) -> String {
        let file = (0..self.fields.len()).find_map(|field| self.file(field));
        match (self.line, file) {
            (Some(line), Some(file)) => format!("{list}, line {line} ({file})"),
            (Some(line), None) => format!("{list}, line {line}"),
            (None, file) => file.unwrap_or_default().to_owned(),
        }
    }
}

/// Checks the keys and fields of all samples before anything is written. Errors name the `list` that the
/// samples come from, and end with `advice`, which says what to do about a key.
///
/// # Errors
/// For a key or field that a shard cannot have, and for duplicate keys.
pub(crate) fn check_samples(samples: &[PlannedSample], list: &str, advice: &str) -> Result<(), Failure> {
    // The writer refuses keys and fields that a reader would not read back.
    let mut writer = TarWriter::new(io::sink());
    for (number, planned) in samples.iter().enumerate() {
        let sample = planned.fields().fold(Sample::new(planned.key(number)), |sample, (field, _)| {
            sample.with(field.to_owned(), Value::from(b""))
        });
        let Err(error) = writer.write(&sample) else { continue };
        let has_same_key = |other: &&PlannedSample| planned.key.is_some() && other.key == planned.key;
        let duplicate = match samples[..number].iter().find(has_same_key) {
            Some(first) => format!("; {} has the same key", first.origin(list)),
            None => String::new(),
        };
        return Err(Failure::Failed(format!("{}: {error:#}{duplicate}{advice}", planned.origin(list))));
    }
    Ok(())
}

/// The key for the path of a file: the path without its extension. Each dot in the file's name becomes `_`,
/// because a reader ends the key at the first dot. Parts that a key cannot have (`/` at the beginning, `.`,
/// `..`) are left out.
///
/// The key depends only on the path, so it stays the same if other files are added or removed.
pub(crate) fn key_of_path(path: &str) -> String {
    let mut parts: Vec<&str> = path.split('/').filter(|part| !matches!(*part, "" | "." | "..")).collect();
    let name = parts.pop().unwrap_or_default();
    let stem = name.rsplit_once('.').map_or(name, |(stem, _)| stem).replace('.', "_");
    parts.push(&stem);
    parts.join("/")
}

/// Where the bytes of a field come from.
#[derive(Debug, Clone)]
pub(crate) enum FieldSource {
    /// A file below the root, and its size when it was inspected.
    File {
        path: Box<str>,
        size: u64,
    },
    Bytes(Box<[u8]>),
}

impl FieldSource {
    /// A file that was not inspected yet.
    pub(crate) fn file(path: &str) -> Self {
        FieldSource::File { path: path.into(), size: 0 }
    }

    pub(crate) fn bytes(bytes: impl Into<Vec<u8>>) -> Self {
        FieldSource::Bytes(bytes.into().into())
    }

    pub(crate) fn size(&self) -> u64 {
        match self {
            FieldSource::File { size, .. } => *size,
            FieldSource::Bytes(bytes) => bytes.len() as u64,
        }
    }
}

/// The samples, in the order in which they are written into shards.
#[derive(Debug)]
pub(crate) struct FileSamples {
    root: PathBuf,
    samples: Vec<PlannedSample>,
}

impl FileSamples {
    /// The samples must have been [checked](check_samples) and inspected.
    pub(crate) fn new(root: PathBuf, samples: Vec<PlannedSample>) -> Self {
        FileSamples { root, samples }
    }

    pub(crate) fn len(&self) -> usize {
        self.samples.len()
    }

    pub(crate) fn key(&self, number: usize) -> String {
        self.samples[number].key(number)
    }

    /// The fields of a sample and their sizes.
    pub(crate) fn sizes(&self, number: usize) -> impl Iterator<Item = (&str, u64)> + Clone {
        self.samples[number].fields().map(|(field, content)| (field, content.size()))
    }

    /// A hash of each sample's key, and of each field's name, size and content. For a field whose content is
    /// a file, the path of the file is hashed in place of the content.
    pub(crate) fn hash(&self) -> InputHash {
        let mut hash = InputHash::default();
        for (number, sample) in self.samples.iter().enumerate() {
            hash.text(&self.key(number));
            for (field, content) in sample.fields() {
                hash.text(field);
                hash.number(content.size());
                match content {
                    FieldSource::File { path, .. } => hash.text(path),
                    FieldSource::Bytes(bytes) => hash.text(&String::from_utf8_lossy(bytes)),
                }
            }
        }
        hash
    }

    /// Reads the bytes of a field. A file must still have the size that was planned.
    fn content(&self, content: &FieldSource) -> shardstream::Result<Vec<u8>> {
        let (path, planned) = match content {
            FieldSource::Bytes(bytes) => return Ok(bytes.to_vec()),
            FieldSource::File { path, size } => (self.root.join(&**path), *size),
        };
        let bytes = fs::read(&path).map_err(|error| other_error(format!("{}: {error}", path.display())))?;
        let now = bytes.len() as u64;
        match now == planned {
            true => Ok(bytes),
            false => Err(other_error(format!(
                "{} had {planned} bytes when the shards were planned, and has {now} now: run the command \
                 again",
                path.display()
            ))),
        }
    }
}

impl SampleSource for FileSamples {
    fn read(
        &self,
        samples: Range<usize>,
        take: &mut dyn FnMut(Sample) -> shardstream::Result<()>,
    ) -> shardstream::Result<()> {
        for number in samples {
            let mut sample = Sample::new(self.key(number));
            for (field, content) in self.samples[number].fields() {
                sample.set(field.to_string(), self.content(content)?);
            }
            take(sample)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// One sample of one file, which had five bytes when it was inspected.
    fn items(root: &Path) -> FileSamples {
        let mut sample = PlannedSample::new(None, None);
        sample.push("jpg".into(), FieldSource::File { path: "a.jpg".into(), size: 5 }).unwrap();
        FileSamples::new(root.to_owned(), vec![sample])
    }

    #[test]
    fn the_key_of_a_path_has_no_dots_and_no_parent_folders() {
        for (path, key) in [
            ("cat/0.png", "cat/0"),
            ("./cat/image.0.v2.JPEG", "cat/image_0_v2"),
            ("/data/v1.2/a b.png", "data/v1.2/a b"),
            ("../x/.//y/é.jpg", "x/y/é"),
            ("a/.hidden.jpg", "a/_hidden"),
            ("none", "none"),
        ] {
            assert_eq!(key_of_path(path), key);
        }
    }

    #[test]
    fn a_file_whose_size_changed_is_an_error() {
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
