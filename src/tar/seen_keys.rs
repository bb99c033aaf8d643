//! The keys of a shard that were already read, to detect repeated keys.

use foldhash::quality::RandomState;
use std::collections::HashSet;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher};

/// The keys of a shard that were already read, as hashes.
///
/// Most writers sort their samples. As long as each key is greater than the previous key, no key can be
/// repeated, and it is enough to append the hash of each key to a list. A look-up in a set would miss the CPU
/// cache for most keys of a large shard.
#[derive(Debug, Default)]
pub(super) struct SeenKeys {
    hasher: RandomState,
    /// The last and greatest key, while keys ascend.
    last: String,
    /// The hashes of all keys, while keys ascend; empty afterwards.
    ascending: Vec<u64>,
    /// `None` while keys ascend; afterwards, the hashes of all keys.
    any: Option<HashSet<u64, BuildHasherDefault<IdentityHasher>>>,
}

impl SeenKeys {
    /// Adds a key. Returns false if the key was added before.
    pub(super) fn insert(&mut self, key: &str) -> bool {
        let hash = self.hasher.hash_one(key);
        if let Some(any) = &mut self.any {
            return any.insert(hash);
        }
        if self.ascending.is_empty() || *self.last < *key {
            self.last.clear();
            self.last.push_str(key);
            self.ascending.push(hash);
            return true;
        }
        self.any.insert(std::mem::take(&mut self.ascending).into_iter().collect()).insert(hash)
    }
}

/// A hasher for numbers that already are hashes: it returns them unchanged.
#[derive(Debug, Default)]
struct IdentityHasher(u64);

impl Hasher for IdentityHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.0 = self.0.rotate_left(8) ^ u64::from(byte));
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_key_is_new_exactly_once(
            keys in prop::collection::vec("[ab]{0,3}", 0..40),
            sorted in any::<bool>(),
        ) {
            let mut keys = keys;
            if sorted {
                keys.sort();
            }
            let (mut seen, mut reference) = (SeenKeys::default(), HashSet::new());
            for key in keys {
                prop_assert_eq!(seen.insert(&key), reference.insert(key.clone()), "{}", key);
            }
        }
    }
}
