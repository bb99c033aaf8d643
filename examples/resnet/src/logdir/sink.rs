//! The destination of an appender: a file, or a series of objects.

use shardstream::store::{ObjectUrl, Store};
use shardstream::{ErrorKind, Result};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

/// The destination of records. Keeps the records that [`put`](Sink::put) adds until a [`flush`](Sink::flush)
/// succeeds.
#[derive(Debug)]
pub(super) enum Sink {
    File(FileSink),
    Object(ObjectSink),
}

impl Sink {
    /// The sink at `url`: a file if `url` is a path, otherwise a series of objects. Each file or object
    /// begins with `header`. An object of `rotate` bytes is full.
    pub(super) fn new(store: &Store, url: &str, header: Vec<u8>, rotate: usize) -> Self {
        if !ObjectUrl::parse(url).is_path() {
            let (store, url) = (store.clone(), url.to_owned());
            Self::Object(ObjectSink {
                store,
                url,
                header,
                rotate,
                number: None,
                content: vec![],
                clean: true,
            })
        } else {
            Self::File(FileSink {
                path: url.into(),
                header,
                file: None,
                pending: vec![],
                max_pending: rotate,
            })
        }
    }

    /// Whether this is a file. A flush appends new records to a file, but writes a whole object again.
    pub(super) fn is_file(&self) -> bool {
        matches!(self, Self::File(_))
    }

    /// Whether more records may be added before a flush.
    pub(super) fn has_room(&self) -> bool {
        match self {
            Self::File(sink) => sink.pending.len() < sink.max_pending,
            Self::Object(sink) => sink.content.len() < sink.rotate,
        }
    }

    /// Adds a record.
    pub(super) fn put(&mut self, record: &[u8]) {
        match self {
            Self::File(sink) => sink.pending.extend_from_slice(record),
            Self::Object(sink) => {
                if sink.content.is_empty() {
                    sink.content.extend_from_slice(&sink.header);
                }
                sink.content.extend_from_slice(record);
                sink.clean = false;
            }
        }
    }

    /// Whether there is nothing to write.
    pub(super) fn is_clean(&self) -> bool {
        match self {
            Self::File(sink) => sink.pending.is_empty(),
            Self::Object(sink) => sink.clean,
        }
    }

    /// Writes the records that were added. Blocks.
    pub(super) fn flush(&mut self) -> Result<()> {
        match self {
            _ if self.is_clean() => Ok(()),
            Self::File(sink) => sink.flush(),
            Self::Object(sink) => sink.flush(),
        }
    }
}

#[derive(Debug)]
pub(super) struct FileSink {
    path: PathBuf,
    header: Vec<u8>,
    /// The file, and its length up to the last complete record.
    file: Option<(File, u64)>,
    pending: Vec<u8>,
    max_pending: usize,
}

impl FileSink {
    fn flush(&mut self) -> Result<()> {
        if self.file.is_none() {
            fs::create_dir_all(self.path.parent().unwrap_or(Path::new(".")))?;
            let file = File::options().append(true).create(true).open(&self.path)?;
            let length = file.metadata()?.len();
            if length == 0 {
                self.pending.splice(..0, std::mem::take(&mut self.header));
            }
            self.file = Some((file, length));
        }
        let Some((file, length)) = &mut self.file else { return Ok(()) };
        if let Err(error) = file.write_all(&self.pending).and_then(|()| file.flush()) {
            // Removes the part of the records that was written, since the next try writes all records again.
            let _ = file.set_len(*length);
            return Err(error.into());
        }
        *length += self.pending.len() as u64;
        self.pending.clear();
        Ok(())
    }
}

/// A series of objects. Objects cannot be appended to, so the last object is rewritten until it is large
/// enough.
#[derive(Debug)]
pub(super) struct ObjectSink {
    store: Store,
    /// The URL of the first object. The URLs of the later objects end in `.00001` and so on, so the objects
    /// sort by name.
    url: String,
    header: Vec<u8>,
    rotate: usize,
    /// The number of the current object; `None` until the objects of an earlier process are listed.
    number: Option<u64>,
    content: Vec<u8>,
    clean: bool,
}

impl ObjectSink {
    fn flush(&mut self) -> Result<()> {
        let number = match self.number {
            Some(number) => number,
            None => *self.number.insert(self.first_free()?),
        };
        let url = match number {
            0 => self.url.clone(),
            _ => format!("{}.{number:05}", self.url),
        };
        self.store.put(&url, &self.content)?;
        self.clean = true;
        if self.content.len() >= self.rotate {
            self.number = Some(number + 1);
            self.content.clear();
        }
        Ok(())
    }

    /// The first number after the numbers of all existing objects, so that objects of an earlier process are
    /// not overwritten.
    fn first_free(&self) -> Result<u64> {
        let directory = self.url.rsplit_once('/').map_or("", |(directory, _)| directory);
        let objects = match self.store.list(directory) {
            Err(error) if matches!(error.kind(), ErrorKind::NotFound(_)) => vec![],
            listed => listed?,
        };
        let number = |url: &str| match url.strip_prefix(&self.url)? {
            "" => Some(0),
            rest => rest.strip_prefix('.')?.parse::<u64>().ok(),
        };
        Ok(objects.iter().filter_map(|object| number(&object.url)).max().map_or(0, |last| last + 1))
    }
}
