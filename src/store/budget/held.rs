//! Memory of the budget for what loaders have read ahead.

use super::Budget;
use crate::memory::{Gauge, Share};
use std::sync::atomic::Ordering::Relaxed;

/// The part of a budget that loaders may take for what they have read ahead: one part in four. The rest is
/// certain to be left for what is on its way, which they would otherwise keep waiting.
const PART: u64 = 4;

impl Budget {
    /// Takes `bytes` for samples that are read ahead, if there is room for them. `owner` counts them.
    pub(crate) fn try_hold(&self, bytes: u64, owner: &Gauge) -> Option<Held> {
        let most = self.0.bytes / PART;
        let more = |held: u64| held.checked_add(bytes).filter(|held| *held <= most);
        self.0.held.fetch_update(Relaxed, Relaxed, more).ok()?;
        Some(Held { budget: self.clone(), bytes, share: Share::of(owner, bytes) })
    }

    /// Takes `bytes` in any case.
    pub(crate) fn hold(&self, bytes: u64, owner: &Gauge) -> Held {
        self.0.held.fetch_add(bytes, Relaxed);
        Held { budget: self.clone(), bytes, share: Share::of(owner, bytes) }
    }
}

/// Memory of the budget, until this is dropped.
#[derive(Debug)]
pub(crate) struct Held {
    budget: Budget,
    bytes: u64,
    /// As its owner counts it.
    share: Share,
}

impl Held {
    /// Sets the true number of bytes.
    pub(crate) fn set(&mut self, bytes: u64) {
        let held = &self.budget.0.held;
        match bytes.checked_sub(self.bytes) {
            Some(more) => held.fetch_add(more, Relaxed),
            None => held.fetch_sub(self.bytes - bytes, Relaxed),
        };
        self.bytes = bytes;
        self.share.set(bytes);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarter_is_for_what_is_read_ahead_and_all_of_it_is_given_back() {
        let (budget, owner) = (Budget::new(8, 400), Gauge::default());
        let first = budget.try_hold(60, &owner).unwrap();
        assert!(budget.try_hold(41, &owner).is_none());
        let mut second = budget.try_hold(40, &owner).unwrap();
        second.set(10);
        let third = budget.try_hold(30, &owner).unwrap();
        second.set(500);
        assert_eq!(budget.in_use(), 60 + 500 + 30, "one chunk may be larger than was thought");
        assert_eq!(owner.bytes(), budget.in_use());
        let needed = budget.hold(7, &owner);
        assert!(budget.try_hold(1, &owner).is_none() && budget.try_hold(u64::MAX, &owner).is_none());
        drop((first, second, third, needed));
        assert_eq!((budget.in_use(), owner.bytes()), (0, 0));
    }

    #[test]
    fn what_is_held_is_not_asked_for() {
        let (budget, owner) = (Budget::new(8, 100), Gauge::default());
        budget.answered(std::time::Duration::from_millis(20));
        let held = budget.hold(75, &owner);
        let object = budget.lane(&owner).next_object();
        let asked = object.ask(0..1000, Some(10), usize::MAX);
        assert_eq!((asked.len(), budget.in_use(), owner.bytes()), (2, 95, 95));
        let waiting = object.wait_for_next();
        assert_eq!(asked.len(), 2, "it has not read what came");
        drop((waiting, held, asked.try_recv().unwrap()));
        assert!(asked.len() > 2);
    }
}
