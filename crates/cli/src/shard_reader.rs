//! [`ShardReader`]: reads shards within the limits of `--limit`.

use bytes::Bytes;
use shardstream::formats::ReaderChunks;
use shardstream::index::IndexBuilder;
use shardstream::store::{Body, ObjectVersion, Store};
use shardstream::tar::{Limits, Read, SampleParser, read};
use shardstream::{Index, Result, SecretUrl};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The pattern for an archive on stdin.
pub(crate) const STDIN: &str = "-";

/// A store, and the limits on shards that the user has set. Clones add to the same count of stdin's bytes.
#[derive(Debug, Clone)]
pub(crate) struct ShardReader {
    pub(crate) store: Store,
    pub(crate) limits: Limits,
    /// Number of bytes that were read from stdin.
    stdin_bytes: Arc<AtomicU64>,
}

impl ShardReader {
    pub(crate) fn new(store: Store, limits: Limits) -> Self {
        ShardReader { store, limits, stdin_bytes: Arc::default() }
    }

    /// Reads the samples of a shard. After the error of a damaged sample, reading continues with the next
    /// sample.
    ///
    /// # Errors
    /// The errors of [`Store::open`].
    pub(crate) fn samples(&self, url: &SecretUrl) -> Result<Read<ShardBytes>> {
        Ok(read(self.open(url)?, self.parser(url)))
    }

    /// Reads the samples of a shard, which must have this version.
    ///
    /// # Errors
    /// The errors of [`Store::open`].
    pub(crate) fn samples_of(&self, url: &SecretUrl, object: &ObjectVersion) -> Result<Read<ShardBytes>> {
        let body = self.store.open(url.expose_secret())?.of_version(object);
        Ok(read(ShardBytes::Object(body), self.parser(url)))
    }

    fn open(&self, url: &SecretUrl) -> Result<ShardBytes> {
        if url.expose_secret() == STDIN {
            let stdin = CountedStdin(Arc::clone(&self.stdin_bytes));
            return Ok(ShardBytes::Stdin(ReaderChunks::new(stdin)));
        }
        Ok(ShardBytes::Object(self.store.open(url.expose_secret())?))
    }

    /// The size of a shard in bytes, or 0 if it is not known. For stdin, the samples must have been read
    /// before: this function reads the rest of stdin, and returns the number of all bytes read.
    ///
    /// # Errors
    /// The errors of [`Store::stat`], and the errors of reading stdin.
    pub(crate) fn size(&self, url: &SecretUrl) -> Result<u64> {
        if url.expose_secret() == STDIN {
            io::copy(&mut CountedStdin(Arc::clone(&self.stdin_bytes)), &mut io::sink())?;
            return Ok(self.stdin_bytes.load(Ordering::Relaxed));
        }
        Ok(self.store.stat(url.expose_secret())?.size.unwrap_or(0))
    }

    pub(crate) fn parser(&self, url: &SecretUrl) -> SampleParser {
        match url.expose_secret() {
            STDIN => SampleParser::new("stdin"),
            _ => SampleParser::new(url),
        }
        .with_limits(self.limits)
    }

    pub(crate) fn index_builder(&self) -> IndexBuilder {
        Index::builder().store(self.store.clone()).limits(self.limits)
    }
}

/// The bytes of a shard, in chunks.
#[derive(Debug)]
pub(crate) enum ShardBytes {
    Object(Body),
    Stdin(ReaderChunks<CountedStdin>),
}

impl Iterator for ShardBytes {
    type Item = Result<Bytes>;

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            ShardBytes::Object(body) => body.next(),
            ShardBytes::Stdin(chunks) => chunks.next(),
        }
    }
}

/// Stdin, with a count of the bytes that are read.
#[derive(Debug)]
pub(crate) struct CountedStdin(Arc<AtomicU64>);

impl io::Read for CountedStdin {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = io::stdin().read(buffer)?;
        self.0.fetch_add(length as u64, Ordering::Relaxed);
        Ok(length)
    }
}
