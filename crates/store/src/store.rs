//! `Store`: opens, lists and writes objects by URL.

use super::body::ChunkSource;
use super::decompress::{Decompressor, Expansion};
use super::fetch::{FetchLimits, FetchTarget};
use super::listing::Listing;
use super::local::{FileChunks, FileMeter, LocalWriter};
use super::meter::SourceMeter;
use super::recording::RequestRecording;
use super::source_registry::{ObjectLocation, SourceRegistry};
use super::upload::{UploadWriter, write_to};
use crate::memory::Gauge;
use crate::secret_url::shown;
use crate::{
    Body, Budget, Cache, Error, ErrorKind, ObjectCell, ObjectInfo, ObjectSums, ObjectUrl, ObjectVersion,
    ObjectWriter, PutCondition, ReadQueue, RequestPhase, RequestReport, Result, StoreReport, WriteOptions,
    fetch, local, runtime,
};
use futures::stream::TryStreamExt;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Opens, lists and writes objects by URL.
///
/// Cloning is cheap, and clones share their clients: one per bucket, made when it is first needed.
///
/// ```
/// # mod shardstream { pub use shardstream_base::*; pub mod store { pub use shardstream_store::*; } }
/// use shardstream::store::Store;
/// use std::io::Write;
///
/// let directory = tempfile::tempdir()?;
/// let path = format!("{}/note.txt", directory.path().display());
/// let store = Store::default();
/// let mut writer = store.create(&path)?;
/// writer.write_all(b"whole or not at all")?;
/// writer.finish()?;
/// assert_eq!(store.open(&path)?.read_all()?, "whole or not at all");
/// # Ok::<(), shardstream::Error>(())
/// ```
#[derive(Clone)]
pub struct Store(pub(super) Arc<StoreInner>);

pub(super) struct StoreInner {
    pub(super) limits: FetchLimits,
    pub(super) expansion: Expansion,
    pub(super) budget: Budget,
    /// Counters by bucket or host: the part of the URL before the key, without secrets.
    pub(super) meters: Mutex<BTreeMap<String, Arc<SourceMeter>>>,
    /// Counters of local files.
    pub(super) files: Arc<FileMeter>,
    pub(super) cache: Option<Cache>,
    pub(super) recording: Option<RequestRecording>,
    pub(super) sources: SourceRegistry,
}

impl Store {
    /// Opens the object at `url` for reading.
    ///
    /// Nothing is requested before the first read. An error of the request is the first item of the body.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::UnsupportedScheme`] and [`ErrorKind::UnsupportedCompression`], which name the missing
    /// feature, and errors in the URL or in the settings of its client.
    pub fn open(&self, url: &str) -> Result<Body> {
        self.open_in(&self.queue(&Gauge::default()), url)
    }

    /// [`open`](Store::open), for reading after everything that was opened in this queue before.
    #[doc(hidden)]
    pub fn open_in(&self, queue: &ReadQueue, url: &str) -> Result<Body> {
        let open = || {
            let compression = Decompressor::of(url)?;
            Ok(self.stored(queue, url, 0..u64::MAX)?.compressed(compression, self.0.expansion))
        };
        open().map_err(|error: Error| error.in_shard(url))
    }

    /// Opens the bytes `range` of one version of the object at `url` for reading. The body is shorter if the
    /// object ends before the range does, and empty if it ends before the range begins.
    ///
    /// `version` is what the range was chosen by, such as the result of [`stat`](Store::stat) or of an
    /// earlier read: see [`Body::of_version`]. [`ObjectVersion::any`] accepts the object as it is now.
    ///
    /// A range of at most [`range_size`](super::StoreBuilder::range_size) bytes is one request, unless the
    /// budget has little memory left: then it is several, of 64 KiB at least. An empty range is no request.
    /// Offsets in errors count from the beginning of the object. A server that knows no ranges sends the
    /// whole object: the bytes before `range` are received and dropped.
    ///
    /// # Errors
    ///
    /// As for [`open`](Store::open), and [`ErrorKind::Unsupported`] for an object that is decompressed while
    /// it is read: offsets in it are not known before. The body returns [`ErrorKind::Changed`] if the object
    /// is another one by now.
    pub fn open_range(&self, url: &str, range: Range<u64>, version: &ObjectVersion) -> Result<Body> {
        let queue = self.queue(&Gauge::default());
        // What is opened next is not known, so a range is one request, however little of the object is left
        // behind it.
        queue.set_remaining(u64::MAX);
        Ok(self.open_range_in(&queue, url, range)?.of_version(version))
    }

    /// [`open_range`](Store::open_range) of any version, for reading after everything that was opened in this
    /// queue before.
    #[doc(hidden)]
    pub fn open_range_in(&self, queue: &ReadQueue, url: &str, range: Range<u64>) -> Result<Body> {
        let open = || match Decompressor::of(url)? {
            Some(_) => Err(ErrorKind::Unsupported("a range of a compressed object".into()).into()),
            None => self.stored(queue, url, range),
        };
        open().map_err(|error: Error| error.in_shard(url))
    }

    /// Opens the object at `url` as it is stored, without decompression, whatever its name says. For copying.
    ///
    /// ```
    /// # mod shardstream { pub use shardstream_base::*; pub mod store { pub use shardstream_store::*; } }
    /// use shardstream::store::Store;
    ///
    /// let directory = tempfile::tempdir()?;
    /// let path = format!("{}/train-000000.tar.gz", directory.path().display());
    /// let store = Store::default();
    /// store.put(&path, &[0x1f, 0x8b, 8])?;
    /// assert_eq!(store.open_stored(&path)?.read_all()?[..2], [0x1f, 0x8b]);
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`open`](Store::open).
    pub fn open_stored(&self, url: &str) -> Result<Body> {
        let open = || self.stored(&self.queue(&Gauge::default()), url, 0..u64::MAX);
        open().map_err(|error: Error| error.in_shard(url))
    }

    /// [`open`](Store::open), from the source itself even if the store has a cache: for objects that are
    /// written again and again.
    #[doc(hidden)]
    pub fn open_uncached(&self, url: &str) -> Result<Body> {
        let open = || {
            let compression = Decompressor::of(url)?;
            let body = self.stored_from(None, &self.queue(&Gauge::default()), url, 0..u64::MAX)?;
            Ok(body.compressed(compression, self.0.expansion))
        };
        open().map_err(|error: Error| error.in_shard(url))
    }

    /// The budget that all readers of this store share.
    #[doc(hidden)]
    pub fn budget(&self) -> &Budget {
        &self.0.budget
    }

    /// Makes a queue: objects that are opened in it are read one after the other, and requested in this
    /// order. `owner` counts their memory.
    #[doc(hidden)]
    pub fn queue(&self, owner: &Gauge) -> ReadQueue {
        self.0.budget.queue(owner)
    }

    /// Reports what has been transferred since this store was made, for each bucket or host: bytes, requests,
    /// faults and waiting times.
    ///
    /// ```
    /// # mod shardstream { pub use shardstream_base::*; pub mod store { pub use shardstream_store::*; } }
    /// use shardstream::store::Store;
    ///
    /// let store = Store::default();
    /// let before = store.report();
    /// // … an epoch …
    /// println!("{}", store.report().since(&before));
    /// ```
    #[must_use]
    pub fn report(&self) -> StoreReport {
        let meters = self.0.meters.lock().unwrap_or_else(PoisonError::into_inner);
        let sources = meters.iter().map(|(base, meter)| meter.report(base.clone())).collect();
        let cache_warning = self.0.cache.as_ref().and_then(Cache::warning);
        StoreReport { sources, files: self.0.files.report(), cache_warning }
    }

    /// Lists the requests in flight, those that pause before a retry, and the listings, uploads and deletions
    /// that are under way: to see why nothing arrives.
    #[must_use]
    pub fn requests(&self) -> Vec<RequestReport> {
        let meters = self.0.meters.lock().unwrap_or_else(PoisonError::into_inner);
        meters.values().flat_map(|meter| meter.requests()).collect()
    }

    /// Whether one store is a clone of the other.
    #[doc(hidden)]
    pub fn is(&self, other: &Store) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The counters of the bucket or host of `url`.
    fn meter(&self, url: &str) -> Arc<SourceMeter> {
        let registered = self.0.sources.registered(url).map(|(base, _)| base.expose_secret());
        let base = shown(registered.unwrap_or_else(|| ObjectUrl::parse(url).base()));
        let mut meters = self.0.meters.lock().unwrap_or_else(PoisonError::into_inner);
        match meters.get(&*base) {
            Some(meter) => Arc::clone(meter),
            None => {
                let meter = Arc::new(SourceMeter::new(self.0.recording.clone()));
                Arc::clone(meters.entry(base.into_owned()).or_insert(meter))
            }
        }
    }

    /// Opens the bytes `range` of the object as they are stored.
    fn stored(&self, queue: &ReadQueue, url: &str, range: Range<u64>) -> Result<Body> {
        self.stored_from(self.0.cache.as_ref(), queue, url, range)
    }

    /// The same, through `cache` or from the source.
    fn stored_from(
        &self,
        cache: Option<&Cache>,
        queue: &ReadQueue,
        url: &str,
        range: Range<u64>,
    ) -> Result<Body> {
        let (object, start) = (ObjectCell::default(), range.start);
        let chunks = match self.0.sources.location(url)? {
            _ if range.is_empty() => ChunkSource::Blocking(Box::new(std::iter::empty())),
            ObjectLocation::Local(path) => {
                let chunks = FileChunks::new(path, range, object.clone());
                ChunkSource::Blocking(Box::new(chunks.with_meter(Arc::clone(&self.0.files))))
            }
            ObjectLocation::Source(source) => {
                let wanted = FetchTarget {
                    source,
                    url: url.into(),
                    wanted: range,
                    expected: None,
                    limits: self.0.limits,
                    object: object.clone(),
                    meter: self.meter(url),
                    queue: queue.clone(),
                    for_cache: false,
                    opens_connections: self.0.sources.registered(url).is_none(),
                };
                match cache {
                    Some(cache) => ChunkSource::Cached(Box::new(cache.read(wanted))),
                    None => ChunkSource::Fetch(Box::new(fetch::fetch(wanted))),
                }
            }
        };
        Ok(Body::new(chunks).part_of(object, start).named(url))
    }

    /// Returns the size, as stored, and version of the object at `url`. Blocks.
    ///
    /// A file is not opened for it; of any other object one byte is read.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`] if there is no such object, and the errors of reading its first byte.
    pub fn stat(&self, url: &str) -> Result<ObjectVersion> {
        self.stat_in(self.0.cache.as_ref(), url).map(|(object, _)| object)
    }

    /// [`stat`](Store::stat) from the source itself, with the checksums that it keeps of the object.
    #[doc(hidden)]
    pub fn stat_sums(&self, url: &str) -> Result<(ObjectVersion, ObjectSums)> {
        self.stat_in(None, url)
    }

    fn stat_in(&self, cache: Option<&Cache>, url: &str) -> Result<(ObjectVersion, ObjectSums)> {
        let stat = || match self.0.sources.location(url)? {
            ObjectLocation::Local(path) => Ok((local::stat(&path)?, ObjectSums::default())),
            ObjectLocation::Source(_) => {
                let mut body = self.stored_from(cache, &self.queue(&Gauge::default()), url, 0..1)?;
                body.try_for_each(|chunk| chunk.map(drop))?;
                let (cell, object) = (body.object_cell(), body.object().unwrap_or_default());
                let sums = ObjectSums::stored(url, &object, cell.checksum());
                Ok((object, sums))
            }
        };
        stat().map_err(|error: Error| error.in_shard(url))
    }

    /// Copies an object within its bucket: the bytes do not pass through this process. Returns `false` if
    /// `to` is not in the same bucket, or the store does not copy. Blocks. The copy is to be compared.
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

    /// Lists all objects under the directory `prefix`, at any depth, sorted by URL. Blocks.
    ///
    /// `prefix` is a directory whether it ends in `/` or not: `gs://bucket/train` does not list
    /// `gs://bucket/train-0.tar`.
    ///
    /// # Errors
    ///
    /// If the server cannot be reached or cannot list, as web servers cannot; if it repeats itself; and
    /// [`ErrorKind::TooLarge`] if the names take more than 512 MiB, which is some three million objects. A
    /// local directory must exist; a bucket has no directories, and a listing may be empty.
    pub fn list(&self, prefix: &str) -> Result<Vec<ObjectInfo>> {
        self.list_within(prefix, usize::MAX)
    }

    /// [`list`](Store::list), but may leave out directories deeper than `depth` below `prefix`. A bucket
    /// lists them anyway.
    #[doc(hidden)]
    pub fn list_within(&self, prefix: &str, depth: usize) -> Result<Vec<ObjectInfo>> {
        let mut objects = self.list_at(prefix, depth).map_err(|error| error.in_shard(prefix))?;
        objects.sort_unstable_by(|one, other| one.url.cmp(&other.url));
        Ok(objects)
    }

    fn list_at(&self, prefix: &str, depth: usize) -> Result<Vec<ObjectInfo>> {
        match self.0.sources.location(prefix)? {
            ObjectLocation::Local(path) => match ObjectUrl::parse(prefix).is_path() {
                true => local::list(&path, depth, path_text),
                false => local::list(&path, depth, file_url),
            },
            ObjectLocation::Source(source) => {
                // The crate's clients watch the time of each request, but not the number of empty pages.
                let limit =
                    self.source_timeout(prefix).or(Some(MAX_EMPTY.max(self.0.limits.retry_timeout * 2)));
                let mut found = source.list(prefix);
                let _listing = self.meter(prefix).working(prefix, RequestPhase::Listing);
                runtime::run(async move {
                    let mut listing = Listing::default();
                    while let Some(object) = with_timeout(limit, found.try_next()).await? {
                        listing.push(object)?;
                    }
                    Ok(listing.into_objects())
                })
            }
        }
    }

    /// Begins to write an object at `url`. It appears, or replaces an existing one, when it is
    /// [finished](ObjectWriter::finish). Missing local directories are created.
    ///
    /// # Errors
    ///
    /// As for [`open`](Store::open), and if a local file cannot be created.
    pub fn create(&self, url: &str) -> Result<Box<dyn ObjectWriter>> {
        self.create_with(url, WriteOptions::default(), WRITE_BUFFER)
    }

    /// [`create`](Store::create), if what is at the URL meets a condition when the object is finished.
    ///
    /// In one step with writing it, as far as the store can: of two processes that write one object, one
    /// fails. An object of more than 16 MiB is uploaded in parts, which S3 alone completes conditionally:
    /// elsewhere, the condition is checked right before the last request.
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
    /// If the object cannot be written; then an earlier one is kept.
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
        // Without a buffer: all is written at once.
        let mut object = self.create_with(url, options, 0)?;
        let put = || write_to(&mut *object, bytes).and_then(|()| object.finish());
        put().map_err(|error| error.in_shard(url))
    }

    /// `buffer` is the number of bytes of a local file that are written at once.
    fn create_with(&self, url: &str, options: WriteOptions, buffer: usize) -> Result<Box<dyn ObjectWriter>> {
        let create = || -> Result<Box<dyn ObjectWriter>> {
            match self.0.sources.location(url)? {
                ObjectLocation::Local(path) => Ok(Box::new(LocalWriter::create(url, path, options, buffer)?)),
                ObjectLocation::Source(source) => {
                    let entry = self.meter(url).working(url, RequestPhase::Upload);
                    let writer = UploadWriter::create(&*source, url, options.condition)?;
                    Ok(Box::new(writer.noted_in(entry)))
                }
            }
        };
        create().map_err(|error| error.in_shard(url))
    }

    /// [`create`](Store::create) for content that is not compressed. Refuses names that end as those of
    /// compressed objects, which would make it unreadable.
    #[doc(hidden)]
    pub fn create_plain(&self, url: &str, private: bool) -> Result<Box<dyn ObjectWriter>> {
        match Decompressor::of(url) {
            Ok(None) => {
                self.create_with(url, WriteOptions { private, ..WriteOptions::default() }, WRITE_BUFFER)
            }
            _ => {
                let why = "it would not be compressed as its name says; leave out the suffix";
                Err(Error::from(ErrorKind::Unsupported(why.into())).in_shard(url))
            }
        }
    }

    /// Whether `url` is of a web server that the built-in client reads, and to which it cannot write.
    #[doc(hidden)]
    pub fn is_web(&self, url: &str) -> bool {
        self.0.sources.registered(url).is_none() && ObjectUrl::parse(url).is_web()
    }

    /// Deletes the object at `url`. Blocks.
    ///
    /// Succeeds if there is no such object: some stores cannot tell, and a request that is repeated after a
    /// fault would find its own work done. A symbolic link is deleted, not the file that it leads to.
    /// Directories are kept, even if they become empty.
    ///
    /// # Errors
    ///
    /// If the server cannot be reached, refuses, or cannot delete, as web servers cannot
    /// ([`ErrorKind::Unsupported`]); and for local directories.
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

    /// Time limit for a caller's source to list an object or to delete one. The crate's clients have none:
    /// they watch the time of each request themselves.
    fn source_timeout(&self, url: &str) -> Option<Duration> {
        let FetchLimits { retry_timeout, stall, .. } = self.0.limits;
        self.0.sources.registered(url).map(|_| retry_timeout.max(stall))
    }
}

/// Number of bytes of a local file that are collected before they are written.
const WRITE_BUFFER: usize = 256 << 10;

/// Time without an object after which a listing of a bucket is given up. Pages may be empty where many
/// objects were deleted.
const MAX_EMPTY: Duration = Duration::from_secs(600);

/// Waits for a response, up to the limit if there is one.
async fn with_timeout<T>(limit: Option<Duration>, response: impl Future<Output = Result<T>>) -> Result<T> {
    match limit {
        Some(limit) => fetch::with_stall_timeout(limit, response).await,
        None => response.await,
    }
}

fn path_text(path: &Path) -> Result<String> {
    match path.to_str() {
        Some(path) => Ok(path.to_owned()),
        None => Err(ErrorKind::Config(format!("the file name {} is not UTF-8", path.display())).into()),
    }
}

fn file_url(path: &Path) -> Result<String> {
    let path = std::path::absolute(path)?;
    match url::Url::from_file_path(&path) {
        Ok(url) => Ok(url.into()),
        Err(()) => path_text(&path),
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store")
            .field("limits", &self.0.limits)
            .field("sources", &self.0.sources)
            .finish_non_exhaustive()
    }
}
