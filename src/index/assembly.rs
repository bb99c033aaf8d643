//! Assembles an index from saved indexes that are still current, and finds the shards that have no entry in
//! the saved indexes.

use super::sample_filter::SampleFilter;
use super::sidecar::{SavedNeeds, canonical};
use super::{Index, ShardIndex};
use crate::error::{Error, ErrorKind, Result};
use crate::shards::ShardList;
use crate::store::{ObjectVersion, Store};
use std::borrow::Cow;
use std::collections::HashMap;

/// The shards of a dataset, with sizes and versions from a listing.
#[derive(Debug)]
pub(crate) struct ListedShards {
    pub(crate) shards: ShardList,
    /// The size and version of each shard, as far as the listing has them.
    pub(crate) objects: Vec<ObjectVersion>,
    /// The URL patterns from which `shards` was listed. A URL without wildcards counts as a pattern.
    pub(crate) patterns: ShardList,
}

/// An index that is assembled from the entries of saved indexes.
pub(super) struct IndexAssembly<'a> {
    filter: Option<&'a SampleFilter>,
    threads: usize,
    store: &'a Store,
    needs: SavedNeeds,
    listed: &'a ListedShards,
    /// The current size and version of each shard; `None` before the first look-up.
    now: Option<Vec<ObjectVersion>>,
    /// The current entry of each shard, if a saved index has one.
    entries: Vec<Option<ShardIndex>>,
}

impl<'a> IndexAssembly<'a> {
    /// An assembly without entries. A saved entry is used only if it meets `needs`. If there is a filter, a
    /// filter of the same name must have selected the entry's samples.
    pub(super) fn new(
        store: &'a Store,
        listed: &'a ListedShards,
        needs: SavedNeeds,
        filter: Option<&'a SampleFilter>,
    ) -> Self {
        let entries = vec![None; listed.shards.len()];
        IndexAssembly { filter, threads: 1, store, needs, listed, now: None, entries }
    }

    /// Sets the number of threads that look up sizes and versions.
    pub(super) fn with_threads(self, threads: usize) -> Self {
        IndexAssembly { threads, ..self }
    }

    /// Copies from a saved index the entries that are still current.
    pub(super) fn take(&mut self, saved: &Index) -> Result<()> {
        let now = match self.now.take() {
            Some(now) => now,
            None => self.objects()?,
        };
        let by_url: HashMap<Cow<'_, str>, &ShardIndex> =
            saved.iter().map(|shard| (canonical(shard.url()), shard)).collect();
        for ((url, now), entry) in self.listed.shards.iter().zip(&now).zip(&mut self.entries) {
            if entry.is_some() {
                continue;
            }
            let saved = by_url.get(&canonical(url.expose_secret())).copied();
            let saved =
                saved.filter(|saved| saved.object().compare(now).is_same() && self.needs.are_met_by(saved));
            *entry = match (saved, self.filter) {
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

    /// The current size and version of each shard. Versions that are not in the listing are looked up.
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

    /// Returns the whole index, with the missing entries taken from `built`.
    pub(super) fn completed_by(self, built: &Index) -> Index {
        let shards = self.listed.shards.iter().zip(self.entries);
        shards.filter_map(|(url, entry)| entry.or_else(|| built.get(url.expose_secret()).cloned())).collect()
    }

    /// The shards without a current entry.
    pub(super) fn missing(&self) -> ShardList {
        let shards = self.listed.shards.iter().zip(&self.entries);
        shards.filter(|(_, entry)| entry.is_none()).map(|(url, _)| url.clone()).collect()
    }

    /// The index, if every shard has an entry.
    pub(super) fn index(&self) -> Option<Index> {
        self.entries.iter().cloned().collect::<Option<Vec<_>>>().map(Index::from_iter)
    }
}

/// Calls `call` for each item on several threads. Returns the results in the order of the items, or the error
/// of the first item for which `call` fails.
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
            let panicked = || Error::from(ErrorKind::Panicked("looking at shards".into()));
            done.extend(part.join().map_err(|_| panicked())??);
        }
        Ok(done)
    })
}
