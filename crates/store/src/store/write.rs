//! Writing, copying and deleting objects.

use super::{Store, with_timeout};
use crate::decompress::Decompressor;
use crate::local::{self, LocalWriter};
use crate::source_registry::ObjectLocation;
use crate::upload::{UploadWriter, write_to};
use crate::{
    Error, ErrorKind, ObjectInfo, ObjectUrl, ObjectWriter, PutCondition, RequestPhase, Result, WriteOptions,
    runtime,
};
use std::sync::Arc;

/// Buffer size of a local writer, in bytes.
const WRITE_BUFFER: usize = 256 << 10;

impl Store {
    /// Begins to write an object at `url`. The object appears, or replaces an existing one, when the writer
    /// is [finished](ObjectWriter::finish). Missing local directories are created.
    ///
    /// # Errors
    ///
    /// As for [`open`](Store::open), and if a local file cannot be created.
    pub fn create(&self, url: &str) -> Result<Box<dyn ObjectWriter>> {
        self.create_with(url, WriteOptions::default(), WRITE_BUFFER)
    }

    /// As [`create`](Store::create), but writes the object only if a condition is met when the writer is
    /// finished.
    ///
    /// If possible, the store checks the condition and writes the object in one step, so that one of two
    /// processes that write the same object fails. An object of more than 16 MiB is uploaded in parts. Only
    /// S3 completes such an upload conditionally; elsewhere, the condition is checked right before the last
    /// request.
    ///
    /// # Errors
    ///
    /// As for [`create`](Store::create). [`finish`](ObjectWriter::finish) returns the errors of
    /// [`PutCondition`].
    pub fn create_if(&self, url: &str, condition: PutCondition) -> Result<Box<dyn ObjectWriter>> {
        self.create_with(url, WriteOptions { condition, ..WriteOptions::default() }, WRITE_BUFFER)
    }

    /// Writes an object whole: [`create`](Store::create), all of `bytes`, and
    /// [`finish`](ObjectWriter::finish). Blocks.
    ///
    /// ```
    /// # mod shardstream { pub use shardstream_base::*; pub mod store { pub use shardstream_store::*; } }
    /// use shardstream::store::Store;
    ///
    /// let directory = tempfile::tempdir()?;
    /// let path = format!("{}/note.txt", directory.path().display());
    /// let store = Store::default();
    /// store.put(&path, b"whole or not at all")?;
    /// assert_eq!(store.open(&path)?.read_all()?, "whole or not at all");
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If the object cannot be written. An earlier object at the URL then stays.
    pub fn put(&self, url: &str, bytes: &[u8]) -> Result<ObjectInfo> {
        self.put_with(url, bytes, WriteOptions::default())
    }

    /// [`put`](Store::put) with options.
    ///
    /// ```
    /// # mod shardstream { pub use shardstream_base::*; pub mod store { pub use shardstream_store::*; } }
    /// use shardstream::store::{PutCondition, Store, WriteOptions};
    ///
    /// let directory = tempfile::tempdir()?;
    /// let path = format!("{}/note.txt", directory.path().display());
    /// let store = Store::default();
    /// let new = || WriteOptions { condition: PutCondition::Absent, ..WriteOptions::default() };
    /// store.put_with(&path, b"first", new())?;
    /// assert!(store.put_with(&path, b"second", new()).is_err());
    /// assert_eq!(store.open(&path)?.read_all()?, "first");
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    #[doc(hidden)]
    pub fn put_with(&self, url: &str, bytes: &[u8], options: WriteOptions) -> Result<ObjectInfo> {
        // Needs no buffer: all bytes are written at once.
        let mut object = self.create_with(url, options, 0)?;
        let put = || write_to(&mut *object, bytes).and_then(|()| object.finish());
        put().map_err(|error| error.in_shard(url))
    }

    /// `buffer` is the buffer size of a local writer, in bytes.
    fn create_with(&self, url: &str, options: WriteOptions, buffer: usize) -> Result<Box<dyn ObjectWriter>> {
        let create = || -> Result<Box<dyn ObjectWriter>> {
            match self.0.sources.location(url)? {
                ObjectLocation::Local(path) => Ok(Box::new(LocalWriter::create(url, path, options, buffer)?)),
                ObjectLocation::Source(source) => {
                    let entry = self.meter(url).working(url, RequestPhase::Upload);
                    let writer = UploadWriter::create(&*source, url, options.condition)?;
                    Ok(Box::new(writer.with_entry(entry)))
                }
            }
        };
        create().map_err(|error| error.in_shard(url))
    }

    /// [`create`](Store::create) for content that is not compressed. Refuses a name that ends in the suffix
    /// of a compressed file: a reader would try to decompress the object and fail.
    #[doc(hidden)]
    pub fn create_plain(&self, url: &str, private: bool) -> Result<Box<dyn ObjectWriter>> {
        match Decompressor::of(url) {
            Ok(None) => {
                self.create_with(url, WriteOptions { private, ..WriteOptions::default() }, WRITE_BUFFER)
            }
            _ => {
                let why = "its name says that it is compressed, which it would not be; leave out the suffix";
                Err(Error::from(ErrorKind::Unsupported(why.into())).in_shard(url))
            }
        }
    }

    /// Whether `url` is served by the built-in client of web servers, which cannot write.
    #[doc(hidden)]
    pub fn is_web(&self, url: &str) -> bool {
        self.0.sources.registered(url).is_none() && ObjectUrl::parse(url).is_web()
    }

    /// Deletes the object at `url`. Blocks.
    ///
    /// Succeeds if there is no such object: some stores cannot tell, and a retry may find the object already
    /// deleted by the first try. For a symbolic link, the link is deleted and not its target. Directories are
    /// kept, even if they become empty.
    ///
    /// # Errors
    ///
    /// If the server cannot be reached or refuses; [`ErrorKind::Unsupported`] if it cannot delete, such as a
    /// web server; and an error for a local directory.
    pub fn delete(&self, url: &str) -> Result<()> {
        let delete = || match self.0.sources.location(url)? {
            ObjectLocation::Local(path) => local::delete(&path),
            ObjectLocation::Source(source) => {
                let _deleting = self.meter(url).working(url, RequestPhase::Deletion);
                runtime::run(with_timeout(self.source_timeout(url), source.delete(url)))
            }
        };
        match delete() {
            Err(error) if matches!(error.kind(), ErrorKind::NotFound(_)) => Ok(()),
            result => result.map_err(|error| error.in_shard(url)),
        }
    }

    /// Copies an object within its bucket, on the server. Returns `false` if `to` is not in the same bucket,
    /// or the store cannot copy. Blocks. The caller must compare the copy with the original.
    #[doc(hidden)]
    pub fn copy(&self, from: &str, to: &str, condition: PutCondition) -> Result<bool> {
        let copy = || match (self.0.sources.location(from)?, self.0.sources.location(to)?) {
            (ObjectLocation::Source(source), ObjectLocation::Source(target))
                if Arc::ptr_eq(&source, &target) =>
            {
                let _copying = self.meter(to).working(to, RequestPhase::Upload);
                match runtime::run(source.copy(from, to, condition)) {
                    Err(error) if matches!(error.kind(), ErrorKind::Unsupported(_)) => Ok(false),
                    copied => copied.map(|()| true),
                }
            }
            _ => Ok(false),
        };
        copy().map_err(|error: Error| error.in_shard(to))
    }
}
