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

/// A sample to write. Without a key, its number becomes the key.
#[derive(Debug, Clone)]
pub(crate) struct PlannedSample {
    pub(crate) key: Option<Box<str>>,
    pub(crate) fields: Vec<(Arc<str>, FieldSource)>,
}

/// Where the bytes of a field come from.
#[derive(Debug, Clone)]
pub(crate) enum FieldSource {
    /// A file below the root, with its size at the time of the inspection.
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

    pub(crate) fn size(&self) -> u64 {
        match self {
            FieldSource::File { size, .. } => *size,
            FieldSource::Bytes(bytes) => bytes.len() as u64,
        }
    }
}

/// Samples in the order in which they are written.
#[derive(Debug)]
pub(crate) struct FileSamples {
    root: PathBuf,
    samples: Vec<PlannedSample>,
}

impl FileSamples {
    /// Checks the keys and fields of all samples.
    ///
    /// # Errors
    /// For a key or field that a shard cannot have, and for duplicate keys.
    pub(crate) fn new(root: PathBuf, samples: Vec<PlannedSample>) -> Result<Self, Failure> {
        let samples = FileSamples { root, samples };
        // The writer refuses what a reader would not read back. Find that before anything is written.
        let mut writer = TarWriter::new(io::sink());
        for number in 0..samples.len() {
            let fields = samples.samples[number].fields.iter();
            let sample = fields.fold(Sample::new(samples.key(number)), |sample, (field, _)| {
                sample.with(field.to_string(), Value::from(b""))
            });
            writer.write(&sample)?;
        }
        Ok(samples)
    }

    pub(crate) fn len(&self) -> usize {
        self.samples.len()
    }

    /// The key of a sample: the given one, or its number with nine digits.
    pub(crate) fn key(&self, number: usize) -> String {
        self.samples[number].key.as_ref().map_or_else(|| format!("{number:09}"), ToString::to_string)
    }

    /// The fields of a sample and their sizes.
    pub(crate) fn sizes(&self, number: usize) -> impl Iterator<Item = (&str, u64)> + Clone {
        self.samples[number].fields.iter().map(|(field, content)| (&**field, content.size()))
    }

    /// A hash of the keys, of the names, sizes and paths of the fields, and of values from a list.
    pub(crate) fn hash(&self) -> InputHash {
        let mut hash = InputHash::default();
        for (number, sample) in self.samples.iter().enumerate() {
            hash.text(&self.key(number));
            for (field, content) in &sample.fields {
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

    /// The bytes of a field. A file must still have the size that was planned.
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
                "{} had {planned} bytes when the shards were planned, and has {now} now",
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
            for (field, content) in &self.samples[number].fields {
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
        let content = FieldSource::File { path: "a.jpg".into(), size: 5 };
        FileSamples::new(
            root.to_owned(),
            vec![PlannedSample { key: None, fields: vec![("jpg".into(), content)] }],
        )
        .unwrap()
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
