//! `Store`: opens, lists and writes objects by URL.

mod write;

use super::body::ChunkSource;
use super::decompress::{Decompressor, Expansion};
use super::fetch::{FetchLimits, FetchTarget};
use super::listing::Listing;
use super::local::{FileChunks, FileMeter};
use super::meter::SourceMeter;
use super::recording::RequestRecording;
use super::source_registry::{ObjectLocation, SourceRegistry};
use crate::memory::Gauge;
use crate::secret_url::shown;
use crate::{
    Body, Budget, Cache, Error, ErrorKind, ObjectCell, ObjectInfo, ObjectSums, ObjectUrl, ObjectVersion,
    ReadQueue, RequestPhase, RequestReport, Result, StoreReport, fetch, local, runtime,
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
/// Cloning is cheap. Clones share the clients. There is one client for each bucket, made when it is first
/// needed.
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
    /// The counters of each bucket or host. The map's key is the URL of the bucket or host, without secrets.
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
    /// Sends no request before the first read. If the request fails, the first item of the body is its error.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::UnsupportedScheme`] and [`ErrorKind::UnsupportedCompression`], which name the missing
    /// feature, and errors for a bad URL or bad settings of its client.
    pub fn open(&self, url: &str) -> Result<Body> {
        self.open_in(&self.queue(&Gauge::default()), url)
    }

    /// As [`open`](Store::open), but in a queue: the object is read after all objects that were opened in the
    /// queue before.
    #[doc(hidden)]
    pub fn open_in(&self, queue: &ReadQueue, url: &str) -> Result<Body> {
        let open = || {
            let compression = Decompressor::of(url)?;
            Ok(self.stored(queue, url, 0..u64::MAX)?.compressed(compression, self.0.expansion))
        };
        open().map_err(|error: Error| error.in_shard(url))
    }

    /// Opens the bytes `range` of one version of the object at `url` for reading. If the object ends before
    /// the end of the range, the body ends there too, and may be empty.
    ///
    /// `version` is the version for which the range was chosen, such as the result of [`stat`](Store::stat)
    /// or of an earlier read: see [`Body::of_version`]. [`ObjectVersion::any`] accepts the current version.
    ///
    /// A range of at most [`range_size`](super::StoreBuilder::range_size) bytes is fetched with one request,
    /// unless the budget has little memory left: then with several requests, of at least 64 KiB each. An
    /// empty range needs no request. Offsets in errors count from the beginning of the object. A server that
    /// does not support ranges sends the whole object: the bytes before `range` are received and dropped.
    ///
    /// # Errors
    ///
    /// As for [`open`](Store::open), and [`ErrorKind::Unsupported`] for a compressed object: its decompressed
    /// offsets are unknown before it is read. The body returns [`ErrorKind::Changed`] if the object has
    /// another version by now.
    pub fn open_range(&self, url: &str, range: Range<u64>, version: &ObjectVersion) -> Result<Body> {
        let queue = self.queue(&Gauge::default());
        // It is unknown how many objects the caller opens later. If the queue knew that few follow, it would
        // split the range into smaller requests.
        queue.set_remaining(u64::MAX);
        Ok(self.open_range_in(&queue, url, range)?.of_version(version))
    }

    /// As [`open_range`](Store::open_range), but for any version and in a queue: the range is read after
    /// everything that was opened in the queue before.
    #[doc(hidden)]
    pub fn open_range_in(&self, queue: &ReadQueue, url: &str, range: Range<u64>) -> Result<Body> {
        let open = || match Decompressor::of(url)? {
            Some(_) => Err(ErrorKind::Unsupported("a range of a compressed object".into()).into()),
            None => self.stored(queue, url, range),
        };
        open().map_err(|error: Error| error.in_shard(url))
    }

    /// Opens the stored bytes of the object at `url`: they are never decompressed, even if its name says that
    /// it is compressed. For copying.
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

    /// As [`open`](Store::open), but bypasses the cache: for objects that are rewritten often.
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

    /// Makes a queue. Objects that are opened in it are requested and read in the order of opening. The gauge
    /// `owner` counts the memory of these objects.
    #[doc(hidden)]
    pub fn queue(&self, owner: &Gauge) -> ReadQueue {
        self.0.budget.queue(owner)
    }

    /// Reports the transfers since this store was made, for each bucket or host: bytes, requests, faults and
    /// waiting times.
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

    /// Lists the requests in flight, the requests that pause before a retry, and the current listings,
    /// uploads and deletions: to see why no data arrives.
    #[must_use]
    pub fn requests(&self) -> Vec<RequestReport> {
        let meters = self.0.meters.lock().unwrap_or_else(PoisonError::into_inner);
        meters.values().flat_map(|meter| meter.requests()).collect()
    }

    /// Whether this store and `other` are clones of one store.
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

    /// Opens the stored bytes `range` of the object.
    fn stored(&self, queue: &ReadQueue, url: &str, range: Range<u64>) -> Result<Body> {
        self.stored_from(self.0.cache.as_ref(), queue, url, range)
    }

    /// As [`stored`](Store::stored), but through `cache`; directly from the source if `cache` is `None`.
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

    /// Returns the stored size and the version of the object at `url`. Blocks.
    ///
    /// A local file is not opened. For any other object, one byte of it is read.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`] if there is no such object, and the errors of reading its first byte.
    pub fn stat(&self, url: &str) -> Result<ObjectVersion> {
        self.stat_in(self.0.cache.as_ref(), url).map(|(object, _)| object)
    }

    /// As [`stat`](Store::stat), but bypasses the cache, and also returns the checksums that the source
    /// stores for the object.
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

    /// Lists all objects under the directory `prefix`, at any depth, sorted by URL. Blocks.
    ///
    /// `prefix` is a directory whether it ends in `/` or not: `gs://bucket/train` does not list
    /// `gs://bucket/train-0.tar`.
    ///
    /// # Errors
    ///
    /// If the server cannot be reached or cannot list (web servers cannot), or lists an object twice;
    /// [`ErrorKind::TooLarge`] if the names take more than 512 MiB, which is about three million objects. A
    /// local directory must exist. A bucket has no directories: if it has no object under `prefix`, the list
    /// is empty.
    pub fn list(&self, prefix: &str) -> Result<Vec<ObjectInfo>> {
        self.list_within(prefix, usize::MAX)
    }

    /// As [`list`](Store::list), but may leave out directories deeper than `depth` below `prefix`. A listing
    /// of a bucket includes these directories anyway.
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
                // The crate's clients limit the time of each request, but not the number of empty pages.
                let limit =
                    self.source_timeout(prefix).or(Some(MAX_EMPTY.max(self.0.limits.retry_timeout * 2)));
                let mut objects = source.list(prefix);
                let _listing = self.meter(prefix).working(prefix, RequestPhase::Listing);
                runtime::run(async move {
                    let mut listing = Listing::default();
                    while let Some(object) = with_timeout(limit, objects.try_next()).await? {
                        listing.push(object)?;
                    }
                    Ok(listing.into_objects())
                })
            }
        }
    }

    /// Time limit for a custom source to list the next object or to delete an object; `None` for the crate's
    /// own clients, which limit the time of each request themselves.
    fn source_timeout(&self, url: &str) -> Option<Duration> {
        let FetchLimits { retry_timeout, stall, .. } = self.0.limits;
        self.0.sources.registered(url).map(|_| retry_timeout.max(stall))
    }
}

/// A listing of a bucket fails if no new object arrives for this long, or for twice the retry timeout if that
/// is longer. If many objects were deleted, pages may be empty.
const MAX_EMPTY: Duration = Duration::from_secs(600);

/// Waits for a response, at most for `limit`, if that is given.
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
