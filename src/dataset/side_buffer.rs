//! Samples of a side that came before their turn.

use crate::sample::Sample;
use smol_str::SmolStr;
use std::collections::{BTreeMap, HashMap};

/// What a sample takes beside its fields and its key.
const ENTRY: usize = 256;

/// Samples by key, within a bound in bytes.
///
/// Where there is no room, those that came before the last one that was asked for make it: they are the least
/// likely to be asked for. What comes too far ahead is not kept.
#[derive(Debug)]
pub(super) struct SideBuffer {
    samples: HashMap<SmolStr, (u64, Sample)>,
    /// Their keys by number.
    keys: BTreeMap<u64, SmolStr>,
    bytes: usize,
    room: usize,
    /// The number of the last one that was asked for.
    reached: u64,
}

impl SideBuffer {
    pub(super) fn new(room: usize) -> Self {
        SideBuffer { samples: HashMap::new(), keys: BTreeMap::new(), bytes: 0, room, reached: 0 }
    }

    /// Keeps a sample, if there is room or some can be made.
    pub(super) fn hold(&mut self, number: u64, mut sample: Sample) {
        let key = sample.shared_key().clone();
        if self.samples.contains_key(&key) {
            return;
        }
        let size = size(&sample);
        while self.bytes.saturating_add(size) > self.room {
            let Some(oldest) = self.keys.first_entry().filter(|oldest| *oldest.key() < self.reached) else {
                return;
            };
            let oldest = oldest.remove();
            self.remove(&oldest);
        }
        sample.compact();
        self.bytes += size;
        self.keys.insert(number, key.clone());
        self.samples.insert(key, (number, sample));
    }

    /// Takes a sample out that is asked for.
    pub(super) fn take(&mut self, key: &str) -> Option<Sample> {
        let (number, sample) = self.remove(key)?;
        self.keys.remove(&number);
        self.reached(number);
        Some(sample)
    }

    /// The sample of this number was asked for.
    pub(super) fn reached(&mut self, number: u64) {
        self.reached = number;
    }

    fn remove(&mut self, key: &str) -> Option<(u64, Sample)> {
        let (number, sample) = self.samples.remove(key)?;
        self.bytes = self.bytes.saturating_sub(size(&sample));
        Some((number, sample))
    }
}

fn size(sample: &Sample) -> usize {
    ENTRY + sample.key().len() + sample.size() + 64 * sample.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(number: u64) -> Sample {
        Sample::new(number.to_string()).with("bin", vec![0; 1000])
    }

    fn numbers(held: &SideBuffer) -> Vec<u64> {
        assert_eq!(held.keys.len(), held.samples.len());
        assert_eq!(held.bytes, held.samples.values().map(|(_, sample)| size(sample)).sum::<usize>());
        held.keys.keys().copied().collect()
    }

    #[test]
    fn what_is_too_far_ahead_is_not_kept() {
        let mut held = SideBuffer::new(3 * size(&sample(10)));
        (10..20).for_each(|number| held.hold(number, sample(number)));
        assert_eq!(numbers(&held), [10, 11, 12]);
        assert!(held.take("15").is_none());
        assert_eq!(held.take("11").unwrap().key(), "11");
        held.hold(20, sample(20));
        assert_eq!(numbers(&held), [10, 12, 20]);
    }

    #[test]
    fn what_was_passed_makes_room() {
        let mut held = SideBuffer::new(3 * size(&sample(10)));
        (10..13).for_each(|number| held.hold(number, sample(number)));
        held.reached(12);
        (20..30).for_each(|number| held.hold(number, sample(number)));
        assert_eq!(numbers(&held), [12, 20, 21]);
        held.reached(30);
        held.hold(30, sample(30));
        assert_eq!(numbers(&held), [20, 21, 30]);
    }

    #[test]
    fn what_has_no_room_at_all_is_not_kept() {
        let mut held = SideBuffer::new(10);
        held.hold(0, sample(0));
        assert_eq!((numbers(&held), held.bytes), (vec![], 0));
    }
}
