//! A source that the test controls, and a cache in front of it.

use crate::store::conformance::small_ranges;
use crate::support::noise;
use bytes::Bytes;
use futures::StreamExt;
use futures::future::BoxFuture;
use shardstream::store::{
    Cache, CacheBuilder, Checksum, GetOptions, GetResponse, ObjectVersion, Source, Store, StoreBuilder,
};
use shardstream::{ErrorKind, Result};
use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub(super) const URL: &str = "test://d/0.tar";
/// The range of a request that only asks for the version.
pub(super) const VERSION: Range<u64> = 0..1;
/// Bytes per block, unless a test sets another size.
pub(super) const BLOCK: usize = 1000;
/// Bytes of one chunk.
pub(super) const CHUNK: usize = 100;

/// A source of versioned objects that records its requests and withholds bytes until the test releases them.
#[derive(Debug, Default)]
pub(super) struct ControlledSource(pub(super) Arc<Mutex<SourceState>>);

#[derive(Debug, Default)]
pub(super) struct SourceState {
    pub(super) objects: BTreeMap<String, (Bytes, Option<String>)>,
    pub(super) requested: Vec<(String, Range<u64>)>,
    /// Chunks that begin at or after this offset are withheld.
    pub(super) held: Option<u64>,
    /// Reading a chunk that begins at or after this offset fails.
    pub(super) broken: Option<u64>,
    /// Requests for this object fail.
    pub(super) failing: Option<String>,
    pub(super) checksum: Option<Checksum>,
    pub(super) place: String,
}

impl ControlledSource {
    pub(super) fn of(content: &[u8]) -> Arc<Self> {
        let source = Arc::new(ControlledSource::default());
        source.put(URL, content, Some("v1"));
        source
    }

    pub(super) fn put(&self, url: &str, content: &[u8], version: Option<&str>) {
        let object = (Bytes::copy_from_slice(content), version.map(Into::into));
        self.0.lock().unwrap().objects.insert(url.into(), object);
    }

    pub(super) fn hold(&self, from: Option<u64>) {
        self.0.lock().unwrap().held = from;
    }

    /// Number of ranges that were requested since the last call, without requests for the version alone.
    pub(super) fn bodies(&self) -> usize {
        self.requested().into_iter().filter(|range| *range != VERSION).count()
    }

    pub(super) fn requested(&self) -> Vec<Range<u64>> {
        std::mem::take(&mut self.0.lock().unwrap().requested).into_iter().map(|(_, range)| range).collect()
    }

    pub(super) fn store(self: &Arc<Self>, cache: &Cache) -> Store {
        self.builder(cache).build().unwrap()
    }

    pub(super) fn builder(self: &Arc<Self>, cache: &Cache) -> StoreBuilder {
        small_ranges().retries(0).with_source("test", Arc::clone(self) as _).cache(cache.clone())
    }
}

impl Source for ControlledSource {
    fn place(&self) -> String {
        self.0.lock().unwrap().place.clone()
    }

    fn get(&self, url: &str, options: GetOptions) -> BoxFuture<'static, Result<GetResponse>> {
        let state = Arc::clone(&self.0);
        let range = options.range.unwrap_or(0..u64::MAX);
        let (found, checksum) = {
            let mut state = state.lock().unwrap();
            state.requested.push((url.into(), range.clone()));
            if state.failing.as_deref() == Some(url) {
                let error = std::io::Error::new(std::io::ErrorKind::ConnectionReset, "reset on purpose");
                return Box::pin(async { Err(error.into()) });
            }
            (state.objects.get(url).cloned(), state.checksum)
        };
        Box::pin(async move {
            let (content, version) = found.ok_or_else(|| ErrorKind::NotFound("no such object".into()))?;
            if let (Some(before), Some(after)) = (&options.if_version, &version)
                && before != after
            {
                return Err(ErrorKind::Changed { before: before.clone(), after: after.clone() }.into());
            }
            let length = content.len() as u64;
            let whole = range == (0..u64::MAX);
            let range = range.start.min(length)..range.end.min(length);
            let (state, start, end) = (Arc::clone(&state), range.start, range.end);
            let body = futures::stream::unfold(start, move |at| {
                let (state, content) = (Arc::clone(&state), content.clone());
                async move {
                    if at == end {
                        return None;
                    }
                    while state.lock().unwrap().held.is_some_and(|held| held <= at) {
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                    if state.lock().unwrap().broken.is_some_and(|broken| broken <= at) {
                        return Some((Err(std::io::Error::other("the line is cut").into()), end));
                    }
                    let next = end.min(at + CHUNK as u64);
                    Some((Ok(content.slice(at as usize..next as usize)), next))
                }
            });
            let response = GetResponse::new(body.boxed()).with_size(length);
            let response = if whole { response } else { response.with_range(range) };
            let checksum = checksum.into_iter();
            let response = checksum.fold(response, GetResponse::with_checksum);
            Ok(match version {
                Some(version) => response.with_version(version),
                None => response,
            })
        })
    }
}

pub(super) struct CacheFixture {
    pub(super) directory: tempfile::TempDir,
    pub(super) source: Arc<ControlledSource>,
    pub(super) cache: Cache,
    pub(super) store: Store,
    pub(super) content: Vec<u8>,
    pub(super) block: usize,
}

impl CacheFixture {
    pub(super) fn new() -> Self {
        Self::with(|builder| builder)
    }

    pub(super) fn with(settings: impl FnOnce(CacheBuilder) -> CacheBuilder) -> Self {
        Self::of(4500, BLOCK, settings)
    }

    pub(super) fn of(
        length: usize,
        block: usize,
        settings: impl FnOnce(CacheBuilder) -> CacheBuilder,
    ) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let content = noise(length);
        let source = ControlledSource::of(&content);
        let cache = settings(Cache::builder(directory.path()).block_size(block as u64)).build().unwrap();
        let store = source.store(&cache);
        CacheFixture { directory, source, cache, store, content, block }
    }

    pub(super) fn files(&self) -> Vec<PathBuf> {
        files(self.directory.path())
    }

    /// Opens the directory with a new cache, as another process would.
    pub(super) fn again(self) -> Self {
        let cache = Cache::builder(self.directory.path()).revalidate(false).block_size(self.block as u64);
        let cache = cache.build().unwrap();
        CacheFixture { store: self.source.store(&cache), cache, ..self }
    }

    /// Reads the whole object, checks its bytes, and waits until all blocks are in the directory.
    pub(super) fn read(&self) {
        assert!(self.store.open(URL).unwrap().read_all().unwrap() == self.content);
        self.cache.flush();
    }

    /// Reads a range, checks its bytes, and waits until its blocks are in the directory.
    pub(super) fn read_range(&self, range: Range<usize>) {
        let body =
            self.store.open_range(URL, range.start as u64..range.end as u64, &ObjectVersion::any()).unwrap();
        let end = range.end.min(self.content.len());
        assert!(body.read_all().unwrap() == self.content[range.start.min(end)..end], "{range:?}");
        self.cache.flush();
    }

    /// The files of all blocks in the directory, in order. There must be one object only.
    pub(super) fn blocks(&self) -> Vec<PathBuf> {
        let mut files = self.files();
        assert!(files.iter().all(|path| path.extension().is_some_and(|kind| kind == "block")), "{files:?}");
        files.sort_by_key(|path| number(path));
        files
    }

    /// The numbers of the blocks in the directory.
    pub(super) fn numbers(&self) -> Vec<usize> {
        self.blocks().iter().map(|path| number(path)).collect()
    }
}

fn number(path: &Path) -> usize {
    path.file_stem().unwrap().to_str().unwrap().split_once('-').unwrap().1.parse().unwrap()
}

/// All files below a directory.
pub(super) fn files(directory: &Path) -> Vec<PathBuf> {
    let under = |path: PathBuf| if path.is_dir() { files(&path) } else { vec![path] };
    let mut files: Vec<_> =
        fs::read_dir(directory).unwrap().flat_map(|file| under(file.unwrap().path())).collect();
    files.sort();
    files
}
