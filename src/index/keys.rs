//! An index of the keys of many shards.

use super::{Index, ShardIndex};
use crate::error::{Error, ErrorKind, Result};
use crate::state::hash_texts;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::sync::Arc;

/// An [`Index`] with the key of each sample, for [sides](crate::dataset::Side::keys) whose shards are not
/// paired with those of a dataset. [Built](super::IndexBuilder::build_keys) from headers. Cheap to clone.
///
/// Each key takes 20 to 40 bytes of memory, for a hash of 64 bits and the place of its sample. A key index
/// cannot be saved: build it at the start of a job.
#[derive(Clone)]
pub struct KeyIndex(Arc<KeyTable>);

struct KeyTable {
    index: Index,
    /// The shard and the number of each sample, by the hash of its key.
    places: HashMap<u64, (u32, u32)>,
}

impl KeyIndex {
    /// A key index of these shards, with the hashes of the keys of all their samples.
    pub(super) fn new(shards: Vec<(ShardIndex, Vec<u64>)>) -> Result<Self> {
        let mut places = HashMap::with_capacity(shards.iter().map(|(_, keys)| keys.len()).sum());
        for (number, (shard, keys)) in shards.iter().enumerate() {
            for (sample, key) in keys.iter().enumerate() {
                let (Ok(number), Ok(sample)) = (u32::try_from(number), u32::try_from(sample)) else {
                    return Err(refused(shard, "there are more samples or shards than 32 bits count".into()));
                };
                match places.entry(*key) {
                    Entry::Vacant(place) => drop(place.insert((number, sample))),
                    Entry::Occupied(other) => {
                        let (first, at): (u32, u32) = *other.get();
                        let first = shards
                            .get(first as usize)
                            .map_or_else(|| "".into(), |(shard, _)| shard.url.shown());
                        let what = format!(
                            "its sample {sample} has the key of sample {at} of {first}, or one of the same \
                             hash: keys must be unique across all shards"
                        );
                        return Err(refused(shard, what));
                    }
                }
            }
        }
        let index = shards.into_iter().map(|(shard, _)| shard).collect();
        Ok(KeyIndex(Arc::new(KeyTable { index, places })))
    }

    /// The index of the shards.
    #[must_use]
    pub fn index(&self) -> &Index {
        &self.0.index
    }

    /// The number of keys.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.places.len()
    }

    /// Whether there are no keys.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.places.is_empty()
    }

    /// The number of the shard, and of the sample in it, of this key. The caller must compare the sample's
    /// key, since another key may have the same hash.
    pub(crate) fn find(&self, key: &str) -> Option<(usize, u64)> {
        let (shard, sample) = self.0.places.get(&hash_of(key))?;
        Some((*shard as usize, u64::from(*sample)))
    }
}

/// The hash of a key.
pub(crate) fn hash_of(key: &str) -> u64 {
    hash_texts([key])
}

fn refused(shard: &ShardIndex, what: String) -> Error {
    Error::from(ErrorKind::Index(what)).in_shard(shard.url())
}

impl fmt::Debug for KeyIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyIndex").field("index", &self.0.index).field("keys", &self.len()).finish()
    }
}
