//! A source that logs its requests and can refuse writes.

use super::*;
use futures::TryStreamExt;
use shardstream::Error;
use shardstream::index::AutoIndex;
use shardstream::prelude::*;

/// A log with one line per request.
pub(super) type Log = Arc<Mutex<Vec<String>>>;

/// In-memory objects that can be listed and written, with a log of requests.
#[derive(Debug, Default)]
pub(super) struct LoggedBucket {
    pub(super) objects: Arc<CountingSource>,
    pub(super) log: Log,
    /// Whether listings have versions.
    pub(super) versions: bool,
    /// Whether writes are allowed.
    pub(super) writable: bool,
    /// The size from which an upload is refused, as if the bucket only accepted uploads of one part.
    pub(super) part: Option<usize>,
    /// Whether writes may only create objects, and not replace or delete them.
    pub(super) fixed: bool,
    /// The error that the next write returns.
    pub(super) fault: Mutex<Option<Error>>,
}

impl LoggedBucket {
    pub(super) fn new(versions: bool, writable: bool) -> Arc<Self> {
        Arc::new(LoggedBucket { versions, writable, ..LoggedBucket::default() })
    }

    /// A bucket with a shard for each of `sizes`: `logged://b/t/s-0.tar` and so on.
    pub(super) fn of(sizes: &[usize], versions: bool, writable: bool) -> Arc<Self> {
        let logged = Self::new(versions, writable);
        for (shard, size) in sizes.iter().enumerate() {
            logged.shard(shard, *size);
        }
        logged
    }

    pub(super) fn shard(&self, shard: usize, size: usize) {
        let samples: Vec<Sample> =
            (0..size).map(|i| Sample::new(format!("{shard}-{i}")).with("bin", noise(i * 400))).collect();
        self.objects.put(&format!("logged://b/t/s-{shard}.tar"), crate::support::archive(&samples));
    }

    pub(super) fn store(self: &Arc<Self>) -> Store {
        Store::builder().with_source("logged", Arc::clone(self) as Arc<dyn Source>).build().unwrap()
    }

    pub(super) fn dataset(self: &Arc<Self>, auto: AutoIndex) -> Result<Dataset> {
        let builder = Dataset::builder("logged://b/t/s-*.tar").store(self.store());
        builder.topology(Topology::single()).auto_index(auto).build()
    }

    /// Returns the requests since the last call.
    pub(super) fn take_requests(&self) -> Vec<String> {
        std::mem::take(&mut *self.log.lock().unwrap())
    }

    pub(super) fn note(&self, what: &str, url: &str) {
        let name = url.strip_prefix("logged://b/t").unwrap_or(url).trim_start_matches('/');
        let name = match name.split_once('-') {
            Some((stem, rest)) if rest.contains(".probe.") => format!("{stem}-*.probe.index.json"),
            Some((stem, rest)) if rest.len() > 16 => format!("{stem}-*.index.json"),
            _ => name.to_owned(),
        };
        self.log.lock().unwrap().push(format!("{what} {name}").trim_end().to_owned());
    }
}

impl Source for LoggedBucket {
    fn get(&self, url: &str, options: GetOptions) -> BoxFuture<'static, Result<GetResponse>> {
        self.note("get", url);
        self.objects.get(url, options)
    }

    fn list(&self, prefix: &str) -> BoxStream<'static, Result<ObjectInfo>> {
        self.note("list", prefix);
        let versions = self.versions;
        let objects = self.objects.list(prefix);
        let info = move |info: ObjectInfo| if versions { info } else { ObjectInfo::new(info.url, info.size) };
        objects.map_ok(info).boxed()
    }

    fn put(
        &self,
        url: &str,
        mut body: BoxStream<'static, Result<Bytes>>,
    ) -> BoxFuture<'static, Result<ObjectInfo>> {
        let (objects, url) = (Arc::clone(&self.objects), url.to_owned());
        let (writable, fixed, log, part) = (self.writable, self.fixed, Arc::clone(&self.log), self.part);
        let fault = self.fault.lock().unwrap().take();
        let this = LoggedBucket { objects, log, ..LoggedBucket::default() };
        Box::pin(async move {
            if let Some(fault) = fault {
                return Err(fault);
            }
            let mut content = Vec::new();
            while let Some(chunk) = body.try_next().await? {
                content.extend_from_slice(&chunk);
                if part.is_some_and(|part| content.len() > part) {
                    return Err(ErrorKind::Denied("no uploads of parts".into()).into());
                }
            }
            let is_there = this.objects.objects.lock().unwrap().contains_key(&url);
            if !writable || fixed && is_there {
                return Err(ErrorKind::Denied("read only".into()).into());
            }
            this.note("put", &url);
            let size = content.len() as u64;
            this.objects.put(&url, content);
            Ok(ObjectInfo::new(url, size))
        })
    }

    fn delete(&self, url: &str) -> BoxFuture<'static, Result<()>> {
        self.note("delete", url);
        if self.fixed {
            return Box::pin(async { Err(ErrorKind::Denied("nothing may be deleted".into()).into()) });
        }
        self.objects.objects.lock().unwrap().remove(url);
        Box::pin(async { Ok(()) })
    }
}

/// The requests that test whether the location of the index can be written.
pub(super) const PROBE: [&str; 2] = ["put s-*.probe.index.json", "delete s-*.probe.index.json"];

pub(super) fn keys(dataset: &Dataset) -> Vec<String> {
    dataset.samples(0).results().map(|sample| sample.unwrap().key().to_owned()).collect()
}
