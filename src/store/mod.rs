//! Where bytes come from and go to: local files, object stores, web servers, sources of your own;
//! decompression.
//!
//! | URL | place | feature |
//! |---|---|---|
//! | a path, `file:` | local files | |
//! | `gs://bucket/key` | Google Cloud Storage | `gcs` |
//! | `s3://bucket/key` | Amazon S3 and its likes | `s3` |
//! | `az://container/key`, `abfss://container@account.dfs.core.windows.net/key` | Azure Blob Storage | `azure` |
//! | `http://`, `https://` | web servers, signed URLs | `http` |
//!
//! Keys are in URLs of buckets as they are, without percent-encoding, and may have `//` in them. Those that
//! begin with `/`, or have a part `.` or `..`, are listed, but cannot be read. Names that end in `.gz` or
//! `.zst` (`.tgz`, `.tzst`) are decompressed while they are read.
//!
//! Clients take their settings from the environment, with the names of `object_store`: `GOOGLE_…`, `AWS_…`
//! and `AZURE_…`, and `STORAGE_EMULATOR_HOST` for an emulator of Google Cloud Storage. Public buckets are
//! read without credentials if `GOOGLE_SKIP_SIGNATURE`, `AWS_SKIP_SIGNATURE` or `AZURE_SKIP_SIGNATURE` is
//! `true`. Where the requester pays, `AWS_REQUEST_PAYER=requester` and `GOOGLE_USER_PROJECT` (the project
//! that is billed) say who does.
//!
//! An object is read as bounded ranges of one pinned version, each checked for its length: what comes out is
//! the object as it was at one moment, or an error. No message shows passwords or the query of a signed URL.

mod body;
mod budget;
mod buffer;
mod builder;
mod cache;
mod checksum;
#[cfg(feature = "transport")]
mod client;
mod cloud;
#[cfg(feature = "cloud")]
mod connector;
mod decompress;
mod failure;
mod fetch;
#[cfg(feature = "http")]
mod http;
mod key;
mod local;
mod location;
mod meter;
mod multipart;
mod object;
mod object_cell;
mod offload;
mod report;
mod requests;
#[cfg(feature = "transport")]
mod response;
mod runtime;
mod source;
#[cfg(feature = "transport")]
mod transport;
mod upload;

pub use body::{Body, Stopper};
pub use budget::Budget;
pub(crate) use budget::{ReadAheadMemory, ReadQueue};
pub(crate) use buffer::{ReadBuffer, read_buffers};
pub use builder::StoreBuilder;
pub use cache::{Cache, CacheBuilder};
pub use checksum::Checksum;
pub(crate) use location::{file_name, is_local, is_same_place};
pub(crate) use object_cell::ObjectCell;
pub use object_store;
pub use report::{FileReport, SourceReport, StoreReport};
pub use requests::{RequestPhase, RequestReport};
pub use source::{GetOptions, GetResponse, ObjectInfo, ObjectVersion, Source};
pub use upload::ObjectWriter;
pub(crate) use upload::write_to;

use crate::memory::Gauge;
use crate::secret_url::{SecretUrl, shown};
use crate::{Error, ErrorKind, Result};
use body::Chunks;
use decompress::{Decompressor, Expansion};
use fetch::{FetchLimits, FetchTarget};
use futures::stream::TryStreamExt;
use local::{FileChunks, FileMeter, LocalWriter};
use meter::Meter;
use object::ObjectSource;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use upload::UploadWriter;

/// Opens, lists and writes objects by URL.
///
/// Cloning is cheap, and clones share their clients: one per bucket, made when it is first needed.
///
/// ```
/// use shardstream::store::Store;
/// use std::io::Write;
///
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("note.txt");
/// # let path = path.to_str().unwrap();
/// let store = Store::default();
/// let mut writer = store.create(path)?;
/// writer.write_all(b"whole or not at all")?;
/// writer.finish()?;
/// assert_eq!(store.open(path)?.read_all()?, "whole or not at all");
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Store(Arc<Inner>);

struct Inner {
    limits: FetchLimits,
    expansion: Expansion,
    budget: Budget,
    /// Counters, by what is shown of what is before the key in the URL.
    meters: Mutex<BTreeMap<String, Arc<Meter>>>,
    /// Counts what is read of local files.
    files: Arc<FileMeter>,
    cache: Option<Cache>,
    /// The caller's sources, with the beginnings of the URLs they serve, longest first.
    registered: Vec<(SecretUrl, Arc<dyn Source>)>,
    /// Clients made from the environment, by what is before the key in the URL.
    clients: Mutex<HashMap<SecretUrl, Arc<dyn Source>>>,
}

impl Store {
    /// Opens the object at `url` for reading.
    ///
    /// Nothing is requested before the first read, and what goes wrong then is the first item of the body.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::UnsupportedScheme`] and [`ErrorKind::UnsupportedCompression`], which name the feature
    /// that is missing, and errors in the URL or in the settings of its client.
    pub fn open(&self, url: &str) -> Result<Body> {
        self.open_in(&self.queue(&Gauge::default()), url)
    }

    /// [`open`](Store::open), after all that was opened in this queue before.
    pub(crate) fn open_in(&self, queue: &ReadQueue, url: &str) -> Result<Body> {
        let open = || {
            let compression = Decompressor::of(url)?;
            Ok(self.stored(queue, url, 0..u64::MAX)?.compressed(compression, self.0.expansion))
        };
        open().map_err(|error: Error| error.in_shard(url))
    }

    /// Opens the bytes `range` of the object at `url` for reading, of which there are fewer where the object
    /// ends before `range` does, and none where it ends before `range` begins.
    ///
    /// A range of no more than [`range_size`](StoreBuilder::range_size) bytes is one request, and an empty
    /// one is none. The offsets of errors count from the beginning of the object. A server that knows no
    /// ranges sends the whole object: what is before `range` is received and passed over.
    ///
    /// # Errors
    ///
    /// As for [`open`](Store::open), and [`ErrorKind::Unsupported`] for an object that is decompressed while
    /// it is read: its bytes have no place of their own.
    pub fn open_range(&self, url: &str, range: Range<u64>) -> Result<Body> {
        let queue = self.queue(&Gauge::default());
        // There is no telling what is opened next: a range is one request, however little is left beside it.
        queue.set_remaining(u64::MAX);
        self.open_range_in(&queue, url, range)
    }

    /// [`open_range`](Store::open_range), after all that was opened in this queue before.
    pub(crate) fn open_range_in(&self, queue: &ReadQueue, url: &str, range: Range<u64>) -> Result<Body> {
        let open = || match Decompressor::of(url)? {
            Some(_) => Err(ErrorKind::Unsupported("a range of a compressed object".into()).into()),
            None => self.stored(queue, url, range),
        };
        open().map_err(|error: Error| error.in_shard(url))
    }

    /// Opens the object at `url` as it is stored, without decompression whatever its name says: to copy it.
    ///
    /// ```
    /// # use shardstream::{Sample, write::ShardWriter};
    /// # let directory = tempfile::tempdir()?;
    /// # let pattern = format!("{}/%d.tar.gz", directory.path().display());
    /// # let mut writer = ShardWriter::builder(&pattern).build()?;
    /// # writer.write(&Sample::new("a").with("cls", 1))?;
    /// # let shards = writer.finish()?;
    /// # let url = &shards[0].url;
    /// let store = shardstream::store::Store::default();
    /// let bytes = store.open_stored(url)?.read_all()?; // such as "gs://bucket/train-000000.tar.gz"
    /// assert_eq!(bytes[..2], [0x1f, 0x8b]);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`open`](Store::open).
    pub fn open_stored(&self, url: &str) -> Result<Body> {
        let open = || self.stored(&self.queue(&Gauge::default()), url, 0..u64::MAX);
        open().map_err(|error: Error| error.in_shard(url))
    }

    /// The budget that its readers share.
    pub(crate) fn budget(&self) -> &Budget {
        &self.0.budget
    }

    /// Objects that are opened in a queue are read one after the other, and requested in this order. `owner`
    /// counts their memory.
    pub(crate) fn queue(&self, owner: &Gauge) -> ReadQueue {
        self.0.budget.queue(owner)
    }

    /// What has been transferred since this store was made, from each place: bytes, requests, faults and
    /// waiting times.
    ///
    /// ```
    /// # let store = shardstream::store::Store::default();
    /// let before = store.report();
    /// // … an epoch …
    /// println!("{}", store.report().since(&before));
    /// ```
    #[must_use]
    pub fn report(&self) -> StoreReport {
        let meters = self.0.meters.lock().unwrap_or_else(PoisonError::into_inner);
        let sources = meters.iter().map(|(base, meter)| meter.report(base.clone())).collect();
        StoreReport { sources, files: self.0.files.report() }
    }

    /// The requests that are under way, and those that pause before they are tried again: to see why nothing
    /// comes.
    #[must_use]
    pub fn requests(&self) -> Vec<RequestReport> {
        let meters = self.0.meters.lock().unwrap_or_else(PoisonError::into_inner);
        meters.values().flat_map(|meter| meter.requests()).collect()
    }

    /// Whether both are the same store: one is a clone of the other.
    pub(crate) fn is(&self, other: &Store) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The counters of the place that `url` lies in.
    fn meter(&self, url: &str) -> Arc<Meter> {
        let registered = self.registered(url).map(|(base, _)| base.expose_secret());
        let base = shown(registered.unwrap_or_else(|| location::authority(url)));
        let mut meters = self.0.meters.lock().unwrap_or_else(PoisonError::into_inner);
        match meters.get(&*base) {
            Some(meter) => Arc::clone(meter),
            None => Arc::clone(meters.entry(base.into_owned()).or_default()),
        }
    }

    /// The bytes `range` of the object as they are stored.
    fn stored(&self, queue: &ReadQueue, url: &str, range: Range<u64>) -> Result<Body> {
        let (object, start) = (ObjectCell::default(), range.start);
        let chunks = match self.place(url)? {
            _ if range.is_empty() => Chunks::Blocking(Box::new(std::iter::empty())),
            Place::Local(path) => {
                let chunks = FileChunks::new(path, range, object.clone());
                Chunks::Blocking(Box::new(chunks.with_meter(Arc::clone(&self.0.files))))
            }
            Place::Source(source) => {
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
                };
                match &self.0.cache {
                    Some(cache) => Chunks::Cached(Box::new(cache.read(wanted))),
                    None => Chunks::Fetch(Box::new(fetch::fetch(wanted))),
                }
            }
        };
        Ok(Body::new(chunks).part_of(object, start).named(url))
    }

    /// The size and version of the object at `url`, as stored: compressed objects are not looked into.
    /// Blocks.
    ///
    /// A file is not opened for it; of any other object one byte is read.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`] if there is no such object, and whatever else reading it would meet first.
    pub fn stat(&self, url: &str) -> Result<ObjectVersion> {
        let stat = || match self.place(url)? {
            Place::Local(path) => local::stat(&path),
            Place::Source(_) => {
                let mut body = self.stored(&self.queue(&Gauge::default()), url, 0..1)?;
                body.try_for_each(|chunk| chunk.map(drop))?;
                Ok(body.object().unwrap_or_default())
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
    /// If the place cannot be reached or cannot be listed, as web servers cannot. A local directory must
    /// exist; in a bucket there are no directories, and a listing may be empty.
    pub fn list(&self, prefix: &str) -> Result<Vec<ObjectInfo>> {
        self.list_within(prefix, usize::MAX)
    }

    /// [`list`](Store::list), but directories deeper than `depth` below `prefix` may be left out: a bucket
    /// lists them all the same.
    pub(crate) fn list_within(&self, prefix: &str, depth: usize) -> Result<Vec<ObjectInfo>> {
        let mut objects = self.list_at(prefix, depth).map_err(|error| error.in_shard(prefix))?;
        objects.sort_unstable();
        Ok(objects)
    }

    fn list_at(&self, prefix: &str, depth: usize) -> Result<Vec<ObjectInfo>> {
        match self.place(prefix)? {
            Place::Local(path) if prefix.starts_with("file:") => local::list(&path, depth, file_url),
            Place::Local(path) => local::list(&path, depth, path_text),
            Place::Source(source) => {
                let (limit, mut found) = (self.patience(prefix), source.list(prefix));
                runtime::run(async move {
                    let mut objects = Vec::new();
                    while let Some(object) = in_time(limit, found.try_next()).await? {
                        objects.push(object);
                    }
                    Ok(objects)
                })
            }
        }
    }

    /// Begins an object at `url`, which appears, or replaces the one that is there, when it is
    /// [finished](ObjectWriter::finish). Missing local directories are made.
    ///
    /// # Errors
    ///
    /// As for [`open`](Store::open), and if a local file cannot be made.
    pub fn create(&self, url: &str) -> Result<Box<dyn ObjectWriter>> {
        self.create_at(url, false)
    }

    /// [`create`](Store::create) of what other users of the machine may not read, if it is a local file.
    pub(crate) fn create_private(&self, url: &str) -> Result<Box<dyn ObjectWriter>> {
        self.create_at(url, true)
    }

    fn create_at(&self, url: &str, private: bool) -> Result<Box<dyn ObjectWriter>> {
        let create = || -> Result<Box<dyn ObjectWriter>> {
            match self.place(url)? {
                Place::Local(path) => Ok(Box::new(LocalWriter::create(url, path, private)?)),
                Place::Source(source) => Ok(Box::new(UploadWriter::create(&*source, url)?)),
            }
        };
        create().map_err(|error| error.in_shard(url))
    }

    /// [`create`](Store::create) of what is written as it is, which a name that says otherwise would make
    /// unreadable.
    pub(crate) fn create_plain(&self, url: &str, private: bool) -> Result<Box<dyn ObjectWriter>> {
        match Decompressor::of(url) {
            Ok(None) => self.create_at(url, private),
            _ => {
                let why = "it would not be compressed as its name says; leave out the suffix";
                Err(Error::from(ErrorKind::Unsupported(why.into())).in_shard(url))
            }
        }
    }

    /// Whether `url` is that of a web server that the crate reads by itself, and writes nothing to.
    pub(crate) fn is_web(&self, url: &str) -> bool {
        self.registered(url).is_none() && matches!(location::scheme(url), Some("http" | "https"))
    }

    /// Deletes the object at `url`. Blocks.
    ///
    /// What is not there is deleted already: some stores cannot tell, and a request that is repeated after a
    /// fault would find its own work done. A file is deleted by its name, so that a link is deleted and not
    /// what it leads to. Directories stay, also empty ones.
    ///
    /// # Errors
    ///
    /// If the place cannot be reached, does not allow it or, as web servers, knows no such thing
    /// ([`ErrorKind::Unsupported`]); and for local directories.
    pub fn delete(&self, url: &str) -> Result<()> {
        let delete = || match self.place(url)? {
            Place::Local(path) => local::delete(&path),
            Place::Source(source) => runtime::run(in_time(self.patience(url), source.delete(url))),
        };
        match delete() {
            Err(error) if matches!(error.kind(), ErrorKind::NotFound(_)) => Ok(()),
            result => result.map_err(|error| error.in_shard(url)),
        }
    }

    /// The source that the caller gave for this URL.
    fn registered(&self, url: &str) -> Option<&(SecretUrl, Arc<dyn Source>)> {
        let serves = |base: &str| {
            let rest = url.strip_prefix(base);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        self.0.registered.iter().find(|(base, _)| serves(base.expose_secret()))
    }

    /// How long a source of the caller's own may take to list something or to delete; the crate's clients
    /// watch the time of each request themselves.
    fn patience(&self, url: &str) -> Option<Duration> {
        let FetchLimits { retry_timeout, stall, .. } = self.0.limits;
        self.registered(url).map(|_| retry_timeout.max(stall))
    }

    fn place(&self, url: &str) -> Result<Place> {
        if let Some((_, source)) = self.registered(url) {
            return Ok(Place::Source(Arc::clone(source)));
        }
        if url.starts_with("pipe:") {
            let hint =
                "commands are not run; read the object by its own URL, or give the builder a source for it";
            return Err(location::unsupported("pipe", hint));
        }
        match location::local_path(url) {
            Some(path) => location::check_slashes(url).and(path).map(Place::Local),
            None => self.client(url).map(Place::Source),
        }
    }

    fn client(&self, url: &str) -> Result<Arc<dyn Source>> {
        let scheme = location::scheme(url).unwrap_or_default();
        let base = match scheme {
            "http" | "https" => "http",
            _ => location::authority(url),
        };
        let mut clients = self.0.clients.lock().unwrap_or_else(PoisonError::into_inner);
        let key = SecretUrl::from(base);
        if let Some(client) = clients.get(&key) {
            return Ok(Arc::clone(client));
        }
        let client: Arc<dyn Source> = match cloud::client(base, &self.0.limits)? {
            Some(store) => {
                let limits = &self.0.limits;
                Arc::new(ObjectSource::renewable(base.into(), store, cloud::client, limits))
            }
            None if base == "http" => web()?,
            None => {
                let known = "the schemes are file, gs, s3, az, http and https; \
                             the builder can register sources for others";
                let hint = location::meant(url).map(|meant| format!("did you mean `{meant}`? {known}"));
                return Err(location::unsupported(scheme, hint.unwrap_or_else(|| known.into())));
            }
        };
        clients.insert(key, Arc::clone(&client));
        Ok(client)
    }
}

/// Waits no longer than the limit, if there is one.
async fn in_time<T>(limit: Option<Duration>, answer: impl Future<Output = Result<T>>) -> Result<T> {
    match limit {
        Some(limit) => fetch::with_stall_timeout(limit, answer).await,
        None => answer.await,
    }
}

/// Who answers for a URL.
enum Place {
    Local(std::path::PathBuf),
    Source(Arc<dyn Source>),
}

#[cfg(feature = "http")]
fn web() -> Result<Arc<dyn Source>> {
    Ok(Arc::new(http::HttpSource::new()?))
}

#[cfg(not(feature = "http"))]
fn web() -> Result<Arc<dyn Source>> {
    Err(location::missing("http", "http"))
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
        let registered: Vec<_> = self.0.registered.iter().map(|(base, _)| base).collect();
        f.debug_struct("Store")
            .field("limits", &self.0.limits)
            .field("registered", &registered)
            .finish_non_exhaustive()
    }
}
