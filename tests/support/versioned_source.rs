//! An in-memory source. A test can replace each object and its version.

use super::archive;
use super::shards::key;
use bytes::Bytes;
use futures::StreamExt;
use futures::future::BoxFuture;
use shardstream::dataset::DatasetBuilder;
use shardstream::store::{GetOptions, GetResponse, Source, Store};
use shardstream::{Dataset, ErrorKind, Index, Result, Sample, ShardList, Topology};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

#[derive(Debug, Default)]
pub struct VersionedSource(Mutex<BTreeMap<String, (Bytes, Option<String>)>>);

/// The URL of a shard.
pub fn url(shard: usize) -> String {
    format!("shelf://train/{shard:02}.tar")
}

/// A shard with `size` samples, whose keys contain the number `shard`.
pub fn shard(shard: usize, size: usize) -> Vec<u8> {
    let sample = |n| Sample::new(key(shard, n)).with("cls", n as i64).with("bin", vec![7; n % 5 * 100]);
    archive(&(0..size).map(sample).collect::<Vec<_>>())
}

impl VersionedSource {
    /// A source with a shard for each number of samples in `sizes`. All shards have version "v1".
    pub fn of(sizes: &[usize]) -> Arc<Self> {
        let source = Arc::new(VersionedSource::default());
        for (number, &size) in sizes.iter().enumerate() {
            source.put(&url(number), shard(number, size), Some("v1"));
        }
        source
    }

    pub fn put(&self, url: &str, content: impl Into<Bytes>, version: Option<&str>) {
        self.0.lock().unwrap().insert(url.into(), (content.into(), version.map(Into::into)));
    }

    pub fn remove(&self, url: &str) {
        self.0.lock().unwrap().remove(url);
    }

    pub fn store(self: &Arc<Self>) -> Store {
        Store::builder().with_source("shelf", Arc::clone(self) as _).build().unwrap()
    }

    /// The builder of a dataset of the first `shards` shards, which a single process reads.
    pub fn dataset(self: &Arc<Self>, shards: usize) -> DatasetBuilder {
        let list = ShardList::from_urls((0..shards).map(url));
        Dataset::builder(list).store(self.store()).topology(Topology::single())
    }
}

impl Source for VersionedSource {
    fn get(&self, url: &str, options: GetOptions) -> BoxFuture<'static, Result<GetResponse>> {
        let found = self.0.lock().unwrap().get(url).cloned();
        Box::pin(async move {
            let (content, version) = found.ok_or_else(|| ErrorKind::NotFound("no such object".into()))?;
            let length = content.len() as u64;
            let range = options.range.unwrap_or(0..length);
            let range = range.start.min(length)..range.end.min(length);
            let part = content.slice(range.start as usize..range.end as usize);
            let body = futures::stream::once(async { Ok(part) }).boxed();
            let response = GetResponse::new(body).with_size(length).with_range(range);
            Ok(match version {
                Some(version) => response.with_version(version),
                None => response,
            })
        })
    }
}

/// An index that has only the number of samples of each shard.
pub fn counts(sizes: &[usize]) -> Index {
    let entries =
        sizes.iter().enumerate().map(|(n, size)| serde_json::json!({"url": url(n), "nsamples": size}));
    let document = serde_json::json!({"wids_version": 1, "shardlist": entries.collect::<Vec<_>>()});
    Index::from_json(document.to_string().as_bytes(), "").unwrap()
}
