//! Samples whose members need not be adjacent, while more of their members may follow.

use super::pending::Pending;
use crate::error::{ErrorKind, SizeLimit};
use foldhash::quality::RandomState;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::BuildHasher;

/// The samples that may have more members, if [`Limits::unsorted`](super::Limits::unsorted) allows them to be
/// apart.
///
/// A sample is complete when the next member begins further from its first header than the limit, or when the
/// archive ends. So what is held is in as many bytes of the archive, and samples are complete in the order of
/// their first members, whatever the limit is.
#[derive(Debug)]
pub(super) struct HeldSamples<V> {
    /// Largest accepted distance of a member from the first one of its sample, in bytes.
    limit: u64,
    /// By the offset of the first header.
    held: BTreeMap<u64, Pending<V>>,
    complete: VecDeque<Pending<V>>,
    hasher: RandomState,
    /// The offset of the last sample of each key so far, by the hash of the key.
    offsets: HashMap<u64, u64>,
    is_mixed: bool,
}

impl<V> HeldSamples<V> {
    pub(super) fn new(limit: u64) -> Self {
        HeldSamples {
            limit,
            held: BTreeMap::new(),
            complete: VecDeque::new(),
            hasher: RandomState::default(),
            offsets: HashMap::new(),
            is_mixed: false,
        }
    }

    /// The next complete sample without an error.
    pub(super) fn next_complete(&mut self) -> Option<Pending<V>> {
        loop {
            let complete = self.complete.pop_front()?;
            if !complete.bad {
                return Some(complete);
            }
        }
    }

    /// Holds the sample before a member of another one at `offset`. Samples that are further away become
    /// complete.
    pub(super) fn hold(&mut self, sample: Option<Pending<V>>, offset: u64) {
        self.held.extend(sample.map(|sample| (sample.offset, sample)));
        let first = offset.saturating_sub(self.limit);
        let near = self.held.split_off(&first);
        self.complete.extend(std::mem::replace(&mut self.held, near).into_values());
    }

    /// Ends the archive, whose last member is of `last`.
    pub(super) fn complete_all(&mut self, last: Option<Pending<V>>) {
        self.held.extend(last.map(|sample| (sample.offset, sample)));
        self.complete.extend(std::mem::take(&mut self.held).into_values());
    }

    /// Drops the samples that may have more members.
    pub(super) fn clear(&mut self) {
        self.held.clear();
    }

    /// Takes back the sample of this key, of which a member follows.
    pub(super) fn resume(&mut self, key: &str) -> Option<Pending<V>> {
        let offset = self.offsets.get(&self.hasher.hash_one(key))?;
        self.held.get(offset).filter(|sample| sample.key() == key)?;
        self.is_mixed = true;
        self.held.remove(offset)
    }

    /// Notes a new sample. Returns its error if there was one of the same key, which is complete.
    pub(super) fn begin(&mut self, key: &str, offset: u64) -> Option<ErrorKind> {
        let before = self.offsets.insert(self.hasher.hash_one(key), offset)?;
        let (size, limit) = (offset.saturating_sub(before), self.limit);
        self.is_mixed = true;
        Some(match size > limit {
            true => ErrorKind::TooLarge { what: SizeLimit::MemberDistance, size, limit },
            // They are in two concatenated archives.
            false => ErrorKind::ScatteredSample,
        })
    }

    /// Whether members of several samples were mixed.
    pub(super) fn is_mixed(&self) -> bool {
        self.is_mixed
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Pending<V>> {
        self.held.values_mut()
    }
}
