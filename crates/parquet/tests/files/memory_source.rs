//! A source of objects in memory, which records the requested ranges.

use bytes::Bytes;
use futures::StreamExt;
use futures::future::BoxFuture;
use shardstream::store::{GetOptions, GetResponse, Source, Store};
use shardstream::{ErrorKind, Result};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex};

#[derive(Debug, Default)]
pub(crate) struct MemorySource {
    objects: Mutex<BTreeMap<String, (Bytes, String)>>,
    requested: Mutex<Vec<Range<u64>>>,
}

impl MemorySource {
    pub(crate) fn put(&self, url: &str, bytes: impl Into<Bytes>, version: &str) {
        self.objects.lock().unwrap().insert(url.into(), (bytes.into(), version.into()));
    }

    /// Removes and returns the ranges that have been requested since the last call.
    pub(crate) fn requested(&self) -> Vec<Range<u64>> {
        std::mem::take(&mut self.requested.lock().unwrap())
    }

    pub(crate) fn store(self: &Arc<Self>) -> Store {
        Store::builder().with_source("shelf", Arc::clone(self) as _).build().unwrap()
    }
}

impl Source for MemorySource {
    fn get(&self, url: &str, options: GetOptions) -> BoxFuture<'static, Result<GetResponse>> {
        let found = self.objects.lock().unwrap().get(url).cloned();
        let whole = found.as_ref().map_or(0, |(bytes, _)| bytes.len() as u64);
        let range = options.range.map(|range| range.start.min(whole)..range.end.min(whole));
        let range = range.unwrap_or(0..whole);
        self.requested.lock().unwrap().push(range.clone());
        Box::pin(async move {
            let (bytes, version) = found.ok_or_else(|| ErrorKind::NotFound("no such object".into()))?;
            if let Some(wanted) = options.if_version.filter(|wanted| *wanted != version) {
                return Err(ErrorKind::Changed { before: wanted, after: version }.into());
            }
            let part = bytes.slice(range.start as usize..range.end as usize);
            let chunks: Vec<_> = part.chunks(1000).map(|chunk| Ok(part.slice_ref(chunk))).collect();
            let response = GetResponse::new(futures::stream::iter(chunks).boxed());
            Ok(response.with_size(whole).with_range(range).with_version(version))
        })
    }
}
