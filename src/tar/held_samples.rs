//! Incomplete samples of an archive whose members are in any order.

use super::pending::Pending;
use crate::error::{ErrorKind, SizeLimit};
use foldhash::quality::RandomState;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::BuildHasher;

/// Holds incomplete samples, whose next members may follow later in the archive. Used with
/// [`Limits::unsorted`](super::Limits::unsorted).
///
/// A sample is complete when the distance from its first header to the beginning of the current member is
/// larger than the limit, or when the archive ends. So the held samples take at most as many bytes as the
/// limit, and samples become complete in the order of their first members. This order does not depend on the
/// limit.
#[derive(Debug)]
pub(super) struct HeldSamples<V> {
    /// Largest accepted distance of a member from the first member of its sample, in bytes.
    limit: u64,
    /// Incomplete samples by the offset of their first header.
    held: BTreeMap<u64, Pending<V>>,
    complete: VecDeque<Pending<V>>,
    hasher: RandomState,
    /// For the hash of each key, the offset of the last sample that has begun with this key.
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

    /// The next complete sample that has no error.
    pub(super) fn next_complete(&mut self) -> Option<Pending<V>> {
        loop {
            let complete = self.complete.pop_front()?;
            if !complete.bad {
                return Some(complete);
            }
        }
    }

    /// Holds `sample`, because a member of another sample begins at `offset`. Samples whose first header is
    /// more than `limit` bytes before `offset` become complete.
    pub(super) fn hold(&mut self, sample: Option<Pending<V>>, offset: u64) {
        self.held.extend(sample.map(|sample| (sample.offset, sample)));
        let first = offset.saturating_sub(self.limit);
        let near = self.held.split_off(&first);
        self.complete.extend(std::mem::replace(&mut self.held, near).into_values());
    }

    /// Ends the archive: all held samples and `last`, the sample of the last member, become complete.
    pub(super) fn complete_all(&mut self, last: Option<Pending<V>>) {
        self.held.extend(last.map(|sample| (sample.offset, sample)));
        self.complete.extend(std::mem::take(&mut self.held).into_values());
    }

    /// Drops the incomplete samples.
    pub(super) fn clear(&mut self) {
        self.held.clear();
    }

    /// Removes and returns the held sample with this key, to add a member to it.
    pub(super) fn resume(&mut self, key: &str) -> Option<Pending<V>> {
        let offset = self.offsets.get(&self.hasher.hash_one(key))?;
        self.held.get(offset).filter(|sample| sample.key() == key)?;
        self.is_mixed = true;
        self.held.remove(offset)
    }

    /// Records a new sample. Returns an error if an earlier sample with the same key is already complete.
    pub(super) fn begin(&mut self, key: &str, offset: u64) -> Option<ErrorKind> {
        let before = self.offsets.insert(self.hasher.hash_one(key), offset)?;
        let (size, limit) = (offset.saturating_sub(before), self.limit);
        self.is_mixed = true;
        Some(match size > limit {
            true => ErrorKind::TooLarge { what: SizeLimit::MemberDistance, size, limit },
            // The two samples are in two concatenated archives.
            false => ErrorKind::ScatteredSample,
        })
    }

    /// Whether any sample had members that were not adjacent.
    pub(super) fn is_mixed(&self) -> bool {
        self.is_mixed
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Pending<V>> {
        self.held.values_mut()
    }
}
