//! `ShardIndexer`: loads the saved index of a shard, or scans the shard and saves the index.

use super::ShardIndex;
use super::scan::{self, Wanted};
use super::scan_format;
use super::scan_table;
use super::sidecar::{self, SavedNeeds};
use crate::error::{ErrorKind, Result};
use crate::formats::FormatChoice;
use crate::store::{ObjectVersion, Store};
use crate::tar::Limits;
use std::path::PathBuf;

/// The index of a shard, and the keys of its samples if the caller wants the keys.
pub(super) type IndexedShard<K> = (ShardIndex, Vec<K>);

/// Converts each key to the value that is stored for it; `None` if keys are not wanted.
pub(super) type KeyOf<K> = Option<fn(&str) -> K>;

/// Indexes shards, one per call. Several threads share it.
pub(super) struct ShardIndexer<'a, K> {
    pub(super) store: &'a Store,
    pub(super) format: &'a FormatChoice,
    pub(super) limits: Limits,
    pub(super) wanted: Wanted<'a>,
    pub(super) key_of: KeyOf<K>,
    pub(super) beside: bool,
    pub(super) cache: Option<&'a PathBuf>,
}

impl<K> ShardIndexer<'_, K> {
    /// Returns the index of the shard at `url`, and the keys of its samples if the caller wants the keys.
    pub(super) fn index(&self, url: &str) -> Result<IndexedShard<K>> {
        if let Some(key_of) = self.key_of {
            let mut keys = Vec::new();
            let mut keep = |key: &str| keys.push(key_of(key));
            let shard = self.scan(url, Some(&mut keep))?;
            return Ok((shard, keys));
        }
        Ok((self.saved_or_scanned(url)?, Vec::new()))
    }

    /// Loads the saved index of the shard, or scans the shard and saves its index.
    fn saved_or_scanned(&self, url: &str) -> Result<ShardIndex> {
        let mut places = Vec::new();
        if let Some(directory) = self.cache {
            places.extend(sidecar::cached(directory, url));
        }
        places.extend(sidecar::beside(url).filter(|_| self.beside));
        if places.is_empty() {
            return self.scan(url, None);
        }
        let saved = match self.wanted.filter {
            // Saved indexes of single shards have no selections, so they are not used if there is a filter.
            Some(_) => None,
            None => {
                let now = self.store.stat(url)?;
                let mut places = places.iter().enumerate();
                places.find_map(|(at, place)| Some((at, self.find(place, url, &now)?)))
            }
        };
        let (missing, shard) = match saved {
            Some((at, shard)) => (at, shard),
            None => (places.len(), self.scan(url, None)?),
        };
        for (number, place) in places[..missing].iter().enumerate() {
            let in_cache = self.cache.is_some() && number == 0;
            let save = if in_cache { sidecar::save_cached } else { sidecar::save_sidecar };
            match save(self.store, place, &shard) {
                // If the place cannot be written to, the index is used without being saved.
                Err(error) if matches!(error.kind(), ErrorKind::Unsupported(_) | ErrorKind::Denied(_)) => {}
                saved => saved?,
            }
        }
        Ok(shard)
    }

    fn scan(&self, url: &str, keys: Option<&mut dyn FnMut(&str)>) -> Result<ShardIndex> {
        if self.format.is_tar(url) {
            scan::scan(self.store, url, self.limits, self.wanted, keys)
        } else if self.format.reads_ranges() && keys.is_none() && !self.wanted.is_whole() {
            scan_table::scan(self.store, url, self.format, self.limits)
        } else {
            scan_format::scan(self.store, url, self.format, self.limits, self.wanted, keys)
        }
    }

    fn find(&self, place: &str, url: &str, now: &ObjectVersion) -> Option<ShardIndex> {
        let layout = !self.format.reads_ranges();
        sidecar::find(self.store, place, url, now, SavedNeeds { layout, checksums: self.wanted.checksums })
    }
}
