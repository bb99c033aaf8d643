//! What a kept index still says of the shards as they are now, and which ones are missing.

use super::select::Filter;
use super::sidecar::lasting;
use super::{Index, ShardIndex};
use crate::error::{Error, ErrorKind, Result};
use crate::shards::ShardList;
use crate::store::{ObjectVersion, Store};
use std::borrow::Cow;
use std::collections::HashMap;

/// The shards of a dataset, and what a listing says of them.
#[derive(Debug)]
pub(crate) struct Listed {
    pub(crate) shards: ShardList,
    /// The size and version of each shard, as far as they are known.
    pub(crate) objects: Vec<ObjectVersion>,
    /// The patterns that were listed, and the URLs that needed no listing.
    pub(crate) patterns: ShardList,
}

/// What is found of each shard, until all are.
pub(super) struct Finding<'a> {
    filter: Option<&'a Filter>,
    threads: usize,
    store: &'a Store,
    checksums: bool,
    listed: &'a Listed,
    /// The objects as they are now, once that was looked at.
    now: Option<Vec<ObjectVersion>>,
    found: Vec<Option<ShardIndex>>,
}

impl<'a> Finding<'a> {
    /// Nothing is found yet. `checksums` and the filter say what an index must have.
    pub(super) fn new(
        store: &'a Store,
        listed: &'a Listed,
        checksums: bool,
        filter: Option<&'a Filter>,
    ) -> Self {
        let found = vec![None; listed.shards.len()];
        Finding { filter, threads: 1, store, checksums, listed, now: None, found }
    }

    /// How many shards are looked at at a time.
    pub(super) fn with_threads(self, threads: usize) -> Self {
        Finding { threads, ..self }
    }

    /// Takes what is current of an index that was kept.
    pub(super) fn take(&mut self, kept: &Index) -> Result<()> {
        let now = match self.now.take() {
            Some(now) => now,
            None => self.objects()?,
        };
        let by_url: HashMap<Cow<'_, str>, &ShardIndex> =
            kept.iter().map(|shard| (lasting(shard.url()), shard)).collect();
        for ((url, now), found) in self.listed.shards.iter().zip(&now).zip(&mut self.found) {
            if found.is_some() {
                continue;
            }
            let kept = by_url.get(&lasting(url.expose_secret())).copied();
            let kept = kept.filter(|kept| {
                let then = ObjectVersion { size: kept.bytes(), version: kept.version().map(Into::into) };
                then.is_same_version(now)
                    && kept.layout.is_some()
                    && (kept.has_checksums() || !self.checksums)
            });
            *found = match (kept, self.filter) {
                (Some(kept), None) => Some(kept.unselected().at(url.clone())),
                (Some(kept), Some(filter)) if kept.selection() == Some(filter.name()) => {
                    Some(kept.at(url.clone()))
                }
                _ => None,
            };
        }
        self.now = Some(now);
        Ok(())
    }

    /// The objects as they are now: those that the listing does not tell are looked at.
    fn objects(&self) -> Result<Vec<ObjectVersion>> {
        let mut now = self.listed.objects.clone();
        now.resize(self.listed.shards.len(), ObjectVersion::default());
        let untold: Vec<usize> = (0..now.len()).filter(|number| now[*number].version.is_none()).collect();
        let stat = |number: &usize| match self.listed.shards.get(*number) {
            Some(url) => self.store.stat(url.expose_secret()),
            None => Ok(ObjectVersion::default()),
        };
        for (number, object) in untold.iter().zip(in_parallel(&untold, self.threads, stat)?) {
            now[*number] = object;
        }
        Ok(now)
    }

    /// The index, with what was built of the missing shards.
    pub(super) fn completed_by(self, built: &Index) -> Index {
        let shards = self.listed.shards.iter().zip(self.found);
        shards.filter_map(|(url, found)| found.or_else(|| built.get(url.expose_secret()).cloned())).collect()
    }

    /// The shards of which nothing current is kept.
    pub(super) fn missing(&self) -> ShardList {
        let shards = self.listed.shards.iter().zip(&self.found);
        shards.filter(|(_, found)| found.is_none()).map(|(url, _)| url.clone()).collect()
    }

    /// The index, if nothing is missing.
    pub(super) fn index(&self) -> Option<Index> {
        self.found.iter().cloned().collect::<Option<Vec<_>>>().map(Index::from_iter)
    }
}

/// What a call returns for each item, in their order, on several threads; or the first error of the list.
fn in_parallel<T: Sync, U: Send>(
    items: &[T],
    threads: usize,
    call: impl Fn(&T) -> Result<U> + Sync,
) -> Result<Vec<U>> {
    let each = items.len().div_ceil(threads.max(1)).max(1);
    std::thread::scope(|scope| {
        let mut parts = Vec::new();
        for items in items.chunks(each) {
            let call = &call;
            let work = move || items.iter().map(call).collect::<Result<Vec<U>>>();
            let name = "shardstream-index".to_owned();
            parts.push(std::thread::Builder::new().name(name).spawn_scoped(scope, work)?);
        }
        let mut done = Vec::with_capacity(items.len());
        for part in parts {
            let stopped = || Error::from(ErrorKind::Panicked("looking at shards".into()));
            done.extend(part.join().map_err(|_| stopped())??);
        }
        Ok(done)
    })
}
