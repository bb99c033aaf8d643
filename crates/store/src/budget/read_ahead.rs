//! Memory of the budget for samples that loaders have read ahead.

use super::Budget;
use crate::memory::{Gauge, MemoryShare};
use std::sync::atomic::Ordering::Relaxed;

/// Loaders may use a budget's memory divided by this number for samples that they have read ahead. The rest
/// is for ranges.
const READ_AHEAD_DIVISOR: u64 = 4;

impl Budget {
    /// Reserves `bytes` for samples that are read ahead, if there is room for them. The gauge `owner` counts
    /// these bytes.
    #[doc(hidden)]
    pub fn try_reserve(&self, bytes: u64, owner: &Gauge) -> Option<ReadAheadMemory> {
        self.0.has_read_ahead.store(true, Relaxed);
        let limit = self.0.bytes / READ_AHEAD_DIVISOR;
        let add = |reserved: u64| reserved.checked_add(bytes).filter(|total| *total <= limit);
        self.0.read_ahead.fetch_update(Relaxed, Relaxed, add).ok()?;
        Some(ReadAheadMemory { budget: self.clone(), bytes, share: MemoryShare::of(owner, bytes) })
    }

    /// Number of bytes that ranges may not use. It is the size of the samples that were read ahead. If any
    /// loader reads ahead, it is at least the reserved fraction of the memory. Otherwise, ranges could fill
    /// this fraction while there are few samples.
    pub(super) fn for_read_ahead(&self) -> u64 {
        let kept = if self.0.has_read_ahead.load(Relaxed) { self.0.bytes / READ_AHEAD_DIVISOR } else { 0 };
        self.0.read_ahead.load(Relaxed).max(kept)
    }

    /// Reserves `bytes` even if there is no room for them.
    #[doc(hidden)]
    pub fn reserve(&self, bytes: u64, owner: &Gauge) -> ReadAheadMemory {
        self.0.has_read_ahead.store(true, Relaxed);
        self.0.read_ahead.fetch_add(bytes, Relaxed);
        ReadAheadMemory { budget: self.clone(), bytes, share: MemoryShare::of(owner, bytes) }
    }
}

/// Memory that a loader has reserved in the budget. Dropping this gives the memory back.
#[doc(hidden)]
#[derive(Debug)]
pub struct ReadAheadMemory {
    budget: Budget,
    bytes: u64,
    /// Counts these bytes in the gauge of their owner.
    share: MemoryShare,
}

impl ReadAheadMemory {
    /// Changes the number of bytes.
    pub fn set(&mut self, bytes: u64) {
        let total = &self.budget.0.read_ahead;
        match bytes.checked_sub(self.bytes) {
            Some(more) => total.fetch_add(more, Relaxed),
            None => total.fetch_sub(self.bytes - bytes, Relaxed),
        };
        self.bytes = bytes;
        self.share.set(bytes);
    }
}

impl Drop for ReadAheadMemory {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarter_can_be_reserved_and_is_given_back() {
        let (budget, owner) = (Budget::new(8, 400), Gauge::default());
        let first = budget.try_reserve(60, &owner).unwrap();
        assert!(budget.try_reserve(41, &owner).is_none());
        let mut second = budget.try_reserve(40, &owner).unwrap();
        second.set(10);
        let third = budget.try_reserve(30, &owner).unwrap();
        second.set(500);
        assert_eq!(budget.in_use(), 60 + 500 + 30, "a chunk may turn out larger than its reservation");
        assert_eq!(owner.bytes(), budget.in_use());
        let needed = budget.reserve(7, &owner);
        assert!(budget.try_reserve(1, &owner).is_none() && budget.try_reserve(u64::MAX, &owner).is_none());
        drop((first, second, third, needed));
        assert_eq!((budget.in_use(), owner.bytes()), (0, 0));
    }

    #[test]
    fn reserved_memory_is_not_available_for_ranges() {
        let (budget, owner) = (Budget::new(8, 100), Gauge::default());
        budget.record_first_byte(std::time::Duration::from_millis(20));
        let held = budget.reserve(75, &owner);
        let object = budget.queue(&owner).next_object();
        let grants = object.request(0..1000, Some(10), usize::MAX);
        assert_eq!((grants.len(), budget.in_use(), owner.bytes()), (2, 95, 95));
        let waiting = object.wait_for_next();
        assert_eq!(grants.len(), 2, "the reader has not read what it received");
        drop((waiting, held, grants.try_recv().unwrap()));
        assert!(grants.len() > 2);
    }
}
