//! Assembles an index from saved ones that are still current, and finds the shards that are missing.

use super::sample_filter::SampleFilter;
use super::sidecar::{SavedNeeds, canonical};
use super::{Index, ShardIndex};
use crate::error::{Error, ErrorKind, Result};
use crate::shards::ShardList;
use crate::store::{ObjectVersion, Store};
use std::borrow::Cow;
use std::collections::HashMap;

/// The shards of a dataset, with the objects that a listing gave.
#[derive(Debug)]
pub(crate) struct ListedShards {
    pub(crate) shards: ShardList,
    /// The size and version of each shard, as far as they are known.
    pub(crate) objects: Vec<ObjectVersion>,
    /// The patterns that were listed, and the URLs that needed no listing.
    pub(crate) patterns: ShardList,
}

/// An index whose shards are taken from saved indexes, until all are found.
pub(super) struct IndexAssembly<'a> {
    filter: Option<&'a SampleFilter>,
    threads: usize,
    store: &'a Store,
    needs: SavedNeeds,
    listed: &'a ListedShards,
    /// The current objects, once they have been looked up.
    now: Option<Vec<ObjectVersion>>,
    found: Vec<Option<ShardIndex>>,
}

impl<'a> IndexAssembly<'a> {
    /// An assembly without any shard yet. `needs` and the filter say what a saved index must have.
    pub(super) fn new(
        store: &'a Store,
        listed: &'a ListedShards,
        needs: SavedNeeds,
        filter: Option<&'a SampleFilter>,
    ) -> Self {
        let found = vec![None; listed.shards.len()];
        IndexAssembly { filter, threads: 1, store, needs, listed, now: None, found }
    }

    /// Number of objects that are looked up at a time.
    pub(super) fn with_threads(self, threads: usize) -> Self {
        IndexAssembly { threads, ..self }
    }

    /// Takes the shards of a saved index that are still current.
    pub(super) fn take(&mut self, saved: &Index) -> Result<()> {
        let now = match self.now.take() {
            Some(now) => now,
            None => self.objects()?,
        };
        let by_url: HashMap<Cow<'_, str>, &ShardIndex> =
            saved.iter().map(|shard| (canonical(shard.url()), shard)).collect();
        for ((url, now), found) in self.listed.shards.iter().zip(&now).zip(&mut self.found) {
            if found.is_some() {
                continue;
            }
            let saved = by_url.get(&canonical(url.expose_secret())).copied();
            let saved =
                saved.filter(|saved| saved.object().compare(now).is_same() && self.needs.are_met_by(saved));
            *found = match (saved, self.filter) {
                (Some(saved), None) => Some(saved.unselected().at(url.clone())),
                (Some(saved), Some(filter)) if saved.selection() == Some(filter.name()) => {
                    Some(saved.at(url.clone()))
                }
                _ => None,
            };
        }
        self.now = Some(now);
        Ok(())
    }

    /// The current objects. Objects whose version the listing did not give are looked up.
    fn objects(&self) -> Result<Vec<ObjectVersion>> {
        let mut now = self.listed.objects.clone();
        now.resize(self.listed.shards.len(), ObjectVersion::default());
        let unknown: Vec<usize> = (0..now.len()).filter(|number| now[*number].version.is_none()).collect();
        let stat = |number: &usize| match self.listed.shards.get(*number) {
            Some(url) => self.store.stat(url.expose_secret()),
            None => Ok(ObjectVersion::default()),
        };
        for (number, object) in unknown.iter().zip(in_parallel(&unknown, self.threads, stat)?) {
            now[*number] = object;
        }
        Ok(now)
    }

    /// The whole index; `built` has the missing shards.
    pub(super) fn completed_by(self, built: &Index) -> Index {
        let shards = self.listed.shards.iter().zip(self.found);
        shards.filter_map(|(url, found)| found.or_else(|| built.get(url.expose_secret()).cloned())).collect()
    }

    /// The shards without a current index.
    pub(super) fn missing(&self) -> ShardList {
        let shards = self.listed.shards.iter().zip(&self.found);
        shards.filter(|(_, found)| found.is_none()).map(|(url, _)| url.clone()).collect()
    }

    /// The index, if nothing is missing.
    pub(super) fn index(&self) -> Option<Index> {
        self.found.iter().cloned().collect::<Option<Vec<_>>>().map(Index::from_iter)
    }
}

/// Calls `call` for each item on several threads, and returns the results in order, or the first error of the
/// list.
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
