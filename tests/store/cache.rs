//! A directory between the sources and their readers: what is read is the object, from wherever it comes.

use crate::conformance::{read, read_range, reading, small_ranges, write};
use crate::support::noise;
use bytes::Bytes;
use futures::StreamExt;
use futures::future::BoxFuture;
use shardstream::store::object_store::memory::InMemory;
use shardstream::store::{Cache, GetOptions, GetResponse, Source, Store, StoreBuilder};
use shardstream::{ErrorKind, Result};
use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

/// Objects with versions, which remembers what it was asked for, and holds back bytes until it is told to go on.
#[derive(Debug, Default)]
struct Desk(Mutex<Inside>);

#[derive(Debug, Default)]
struct Inside {
    objects: BTreeMap<String, (Bytes, Option<String>)>,
    asked: Vec<(String, Range<u64>)>,
    /// No byte from this on is handed out yet.
    held: Option<u64>,
}

const URL: &str = "desk://d/0.tar";
/// Bytes of one chunk.
const CHUNK: usize = 100;

impl Desk {
    fn of(content: &[u8]) -> Arc<Self> {
        let desk = Arc::new(Desk::default());
        desk.put(URL, content, Some("v1"));
        desk
    }

    fn put(&self, url: &str, content: &[u8], version: Option<&str>) {
        let object = (Bytes::copy_from_slice(content), version.map(Into::into));
        self.0.lock().unwrap().objects.insert(url.into(), object);
    }

    fn hold(&self, from: Option<u64>) {
        self.0.lock().unwrap().held = from;
    }

    /// The ranges that were asked for since the last time, but for those that ask for the version alone.
    fn bodies(&self) -> usize {
        self.asked().into_iter().filter(|range| *range != (0..1)).count()
    }

    fn asked(&self) -> Vec<Range<u64>> {
        std::mem::take(&mut self.0.lock().unwrap().asked).into_iter().map(|(_, range)| range).collect()
    }

    fn store(self: &Arc<Self>, cache: &Cache) -> Store {
        self.builder(cache).build()
    }

    fn builder(self: &Arc<Self>, cache: &Cache) -> StoreBuilder {
        small_ranges().retries(0).with_source("desk", Arc::clone(self) as _).cache(cache.clone())
    }
}

#[derive(Debug, Clone)]
struct Handle(Arc<Desk>);

impl Source for Desk {
    fn get(&self, url: &str, options: GetOptions) -> BoxFuture<'static, Result<GetResponse>> {
        let mut inside = self.0.lock().unwrap();
        let range = options.range.unwrap_or(0..u64::MAX);
        inside.asked.push((url.into(), range.clone()));
        let found = inside.objects.get(url).cloned();
        Box::pin(async move {
            let (content, version) = found.ok_or_else(|| ErrorKind::NotFound("no such object".into()))?;
            if let (Some(before), Some(after)) = (&options.if_version, &version)
                && before != after
            {
                return Err(ErrorKind::Changed { before: before.clone(), after: after.clone() }.into());
            }
            let length = content.len() as u64;
            let range = range.start.min(length)..range.end.min(length);
            let chunks: Vec<_> = content[range.start as usize..range.end as usize]
                .chunks(CHUNK)
                .map(|chunk| Ok(Bytes::copy_from_slice(chunk)))
                .collect();
            let response = GetResponse::new(futures::stream::iter(chunks).boxed());
            let response = response.with_size(length).with_range(range);
            Ok(match version {
                Some(version) => response.with_version(version),
                None => response,
            })
        })
    }
}

#[test]
fn conformance() {
    let directory = tempfile::tempdir().unwrap();
    let memory = Arc::new(InMemory::new());
    let cache = Cache::builder(directory.path()).build().unwrap();
    let store = small_ranges().with_object_store("mem://", memory).cache(cache.clone()).build();
    let url = |name: &str| format!("mem://reading/{name}");
    reading(&store, &url, &|name, content| write(&store, &url(name), content));
    assert_eq!(cache.warning(), None);
    cache.flush();
    assert!(!files(directory.path()).is_empty());
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = fs::read_dir(directory).unwrap().map(|file| file.unwrap().path()).collect();
    files.retain(|path| path.file_name().is_some_and(|name| name != "lock"));
    files.sort();
    files
}
