//! Where appended bytes go: a file, or a row of objects.

use shardstream::store::{ObjectWriter, Store};
use shardstream::{ErrorKind, Result};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Takes records in order. What [`put`](Sink::put) was given stays until it is written, however often
/// [`flush`](Sink::flush) fails.
#[derive(Debug)]
pub(super) enum Sink {
    File(FileSink),
    Object(ObjectSink),
}

impl Sink {
    /// Each file or object begins with `header`.
    pub(super) fn new(store: &Store, url: &str, header: Vec<u8>, rotate: usize) -> Self {
        if url.contains("://") {
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
            Self::File(FileSink { path: url.into(), header, file: None, pending: vec![], most: rotate })
        }
    }

    /// Whether writing costs no more than what is new.
    pub(super) fn is_file(&self) -> bool {
        matches!(self, Self::File(_))
    }

    /// Whether it takes more before it is flushed.
    pub(super) fn has_room(&self) -> bool {
        match self {
            Self::File(sink) => sink.pending.len() < sink.most,
            Self::Object(sink) => sink.content.len() < sink.rotate,
        }
    }

    /// Takes a record.
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

    /// Writes what was taken. Blocks.
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
    /// With the length of what is whole in it.
    file: Option<(File, u64)>,
    pending: Vec<u8>,
    most: usize,
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
            // The next try writes all of it again.
            let _ = file.set_len(*length);
            return Err(error.into());
        }
        *length += self.pending.len() as u64;
        self.pending.clear();
        Ok(())
    }
}

/// Objects cannot be appended to: the last one of a row is written anew each time, until it is large enough.
#[derive(Debug)]
pub(super) struct ObjectSink {
    store: Store,
    /// Of the first one; `.00001` and so on follow it in the names of the others, so that they sort by name.
    url: String,
    header: Vec<u8>,
    rotate: usize,
    /// Of the one that is being written; unknown until it is seen what an earlier process has left.
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
        let mut object: Box<dyn ObjectWriter> = self.store.create(&url)?;
        object.write_all(&self.content)?;
        object.finish()?;
        self.clean = true;
        if self.content.len() >= self.rotate {
            self.number = Some(number + 1);
            self.content.clear();
        }
        Ok(())
    }

    /// After all that is there: what an earlier process has said stays.
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
