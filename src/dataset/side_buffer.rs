//! `SideBuffer`: a buffer of limited size for samples of a side dataset. Each sample was read before the main
//! dataset's sample with the same key.

use crate::sample::Sample;
use smol_str::SmolStr;
use std::collections::{BTreeMap, HashMap};

/// Bytes counted for a sample in addition to its fields and its key.
const ENTRY: usize = 256;

/// Samples by key, with a limit of bytes.
///
/// A full buffer drops samples with lower numbers than the last requested sample, because they are the least
/// likely to be needed. If there are no such samples, the new sample is not kept.
#[derive(Debug)]
pub(super) struct SideBuffer {
    samples: HashMap<SmolStr, (u64, Sample)>,
    /// The keys of the samples, by number.
    keys: BTreeMap<u64, SmolStr>,
    bytes: usize,
    capacity: usize,
    /// The number of the last sample that was requested.
    reached: u64,
}

impl SideBuffer {
    pub(super) fn new(capacity: usize) -> Self {
        SideBuffer { samples: HashMap::new(), keys: BTreeMap::new(), bytes: 0, capacity, reached: 0 }
    }

    /// Keeps a sample, if there is room or dropping other samples makes room.
    pub(super) fn insert(&mut self, number: u64, mut sample: Sample) {
        let key = sample.shared_key().clone();
        if self.samples.contains_key(&key) {
            return;
        }
        let size = size(&sample);
        while self.bytes.saturating_add(size) > self.capacity {
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

    /// Removes and returns the sample with this key.
    pub(super) fn take(&mut self, key: &str) -> Option<Sample> {
        let (number, sample) = self.remove(key)?;
        self.keys.remove(&number);
        self.reached(number);
        Some(sample)
    }

    /// Records that the sample with this number was requested.
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

    fn numbers(buffer: &SideBuffer) -> Vec<u64> {
        assert_eq!(buffer.keys.len(), buffer.samples.len());
        assert_eq!(buffer.bytes, buffer.samples.values().map(|(_, sample)| size(sample)).sum::<usize>());
        buffer.keys.keys().copied().collect()
    }

    #[test]
    fn samples_beyond_the_capacity_are_not_kept() {
        let mut buffer = SideBuffer::new(3 * size(&sample(10)));
        (10..20).for_each(|number| buffer.insert(number, sample(number)));
        assert_eq!(numbers(&buffer), [10, 11, 12]);
        assert!(buffer.take("15").is_none());
        assert_eq!(buffer.take("11").unwrap().key(), "11");
        buffer.insert(20, sample(20));
        assert_eq!(numbers(&buffer), [10, 12, 20]);
    }

    #[test]
    fn samples_before_the_last_requested_one_are_dropped_for_new_ones() {
        let mut buffer = SideBuffer::new(3 * size(&sample(10)));
        (10..13).for_each(|number| buffer.insert(number, sample(number)));
        buffer.reached(12);
        (20..30).for_each(|number| buffer.insert(number, sample(number)));
        assert_eq!(numbers(&buffer), [12, 20, 21]);
        buffer.reached(30);
        buffer.insert(30, sample(30));
        assert_eq!(numbers(&buffer), [20, 21, 30]);
    }

    #[test]
    fn a_sample_larger_than_the_buffer_is_not_kept() {
        let mut buffer = SideBuffer::new(10);
        buffer.insert(0, sample(0));
        assert_eq!((numbers(&buffer), buffer.bytes), (vec![], 0));
    }
}
