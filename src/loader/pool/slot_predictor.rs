//! `SlotPredictor`: predicts the slots of a sample's row in the memory of its batch, before the sequence
//! number of the sample is known.
//!
//! The prediction assumes that each sample becomes one item. A second sequencer runs ahead under this
//! assumption, and each source gets the slots of its sequence numbers. If a sample fails or is filtered out,
//! later rows are in wrong slots, and are copied when their batch is made. Nothing else depends on the
//! prediction.

use crate::collate::{RowSlots, SlotAllocator};
use crate::loader::event::{LoaderEvent, Tag};
use crate::loader::sequence::{MixedStream, SequenceConfig, Sequencer, SourceOutputs};
use std::collections::VecDeque;

/// Maximum bytes of slots that are reserved for sources other than the source that takes slots.
const MAX_BYTES_RESERVED: usize = 64 << 20;
/// Maximum number of sequence numbers that one call assigns, because other threads wait for the lock.
const MAX_ASSIGNED_AT_ONCE: usize = 4096;

/// Assigns slots to the items of each source, in order.
pub(super) struct SlotPredictor {
    sequencer: Sequencer<AssumedOutputs>,
    allocator: SlotAllocator,
    /// For each source, the number of the first item with a reserved slot, and the reserved slots.
    reserved: Vec<(u64, VecDeque<RowSlots>)>,
    /// Number of reserved slots of all sources.
    reserved_count: usize,
    max_reserved: usize,
}

/// Sources that have no end until [`SlotPredictor::end`] sets their end. The value of an item is the number
/// of its source.
struct AssumedOutputs {
    ended: Vec<bool>,
}

impl SourceOutputs for AssumedOutputs {
    type Item = usize;

    fn next(&mut self, source: usize) -> Option<LoaderEvent<usize>> {
        match self.ended.get(source) {
            Some(false) => Some(LoaderEvent::Item(Tag::default(), source)),
            Some(true) | None => None,
        }
    }

    fn repeat(&mut self, source: usize, _: u64) -> bool {
        let ended = self.ended.get_mut(source);
        ended.map(|ended| *ended = false).is_some()
    }
}

impl SlotPredictor {
    /// `streams` and `sequence` are the arguments of the loader's sequencer. Rows have `row_bytes` bytes.
    pub(super) fn new(
        sources: usize,
        streams: Vec<MixedStream>,
        sequence: &SequenceConfig,
        allocator: SlotAllocator,
        row_bytes: usize,
    ) -> Self {
        let sequencer = Sequencer::new(AssumedOutputs { ended: vec![false; sources] }, streams, sequence);
        let reserved = (0..sources).map(|_| (0, VecDeque::new())).collect();
        // At least two slots for each source, because a source has more than one row in progress.
        let max_reserved = (MAX_BYTES_RESERVED / (row_bytes + size_of::<RowSlots>())).max(2 * sources);
        SlotPredictor { sequencer, allocator, reserved, reserved_count: 0, max_reserved }
    }

    /// The slots of `count` items of a source, from item number `first` on; fewer if the slots of the last
    /// items cannot be predicted. An item whose slots were given to another item gets no slots.
    pub(super) fn take(&mut self, source: usize, first: u64, count: usize) -> VecDeque<RowSlots> {
        let mut taken = VecDeque::with_capacity(count);
        let mut budget = MAX_ASSIGNED_AT_ONCE;
        for item in first..first.saturating_add(count as u64) {
            while self.reserved.get(source).is_some_and(|(first, slots)| first + slots.len() as u64 <= item) {
                if budget == 0 || !self.assign_next(source) {
                    return taken;
                }
                budget -= 1;
            }
            let Some((first, slots)) = self.reserved.get_mut(source) else { return taken };
            // More items than predicted resulted from earlier samples: the slots of the additional items are
            // skipped.
            let skipped = usize::try_from(item.saturating_sub(*first)).unwrap_or(usize::MAX).min(slots.len());
            slots.drain(..skipped);
            *first += skipped as u64;
            self.reserved_count -= skipped;
            taken.push_back(match *first == item {
                true => {
                    *first += 1;
                    self.reserved_count -= 1;
                    slots.pop_front().unwrap_or_default()
                }
                // Fewer items than predicted resulted from earlier samples: the slot of this item was
                // already given to one of those samples.
                false => RowSlots::new(),
            });
        }
        taken
    }

    /// Assigns the slot of the next sequence number. Returns false if there is no further number, or if too
    /// many slots are reserved for other sources than `source`.
    fn assign_next(&mut self, source: usize) -> bool {
        if self.reserved_count >= self.max_reserved
            && self.reserved.iter().enumerate().any(|(at, _)| at != source)
        {
            return false;
        }
        loop {
            match self.sequencer.next() {
                Some(LoaderEvent::Item(_, owner)) => {
                    let slots = self.allocator.next_row();
                    if let Some((_, row_slots)) = self.reserved.get_mut(owner) {
                        row_slots.push_back(slots);
                        self.reserved_count += 1;
                    }
                    return true;
                }
                Some(LoaderEvent::BatchEnd(_)) => self.allocator.end_batch(),
                Some(_) => {}
                None => return false,
            }
            // Stop if all remaining sequence numbers are gaps. There may be any number of such gaps, because
            // an index may claim any number of steps.
            if self.sequencer.is_exhausted() {
                return false;
            }
        }
    }

    pub(super) fn end(&mut self, source: usize) {
        if let Some(ended) = self.sequencer.sources().ended.get_mut(source) {
            *ended = true;
        }
        if let Some((_, row_slots)) = self.reserved.get_mut(source) {
            self.reserved_count -= row_slots.len();
            row_slots.clear();
        }
    }

    /// Restarts a source that has ended.
    pub(super) fn repeat(&mut self, source: usize) {
        if let Some(ended) = self.sequencer.sources().ended.get_mut(source) {
            *ended = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collate::{Collator, Columns, Scalar};
    use crate::loader::sequence::Batching;
    use crate::plan::DatasetOrder;

    /// A predictor for `streams` streams, with batches of `batch` rows of 8 bytes.
    fn predictor(streams: usize, batch: usize) -> SlotPredictor {
        let columns = Columns::new().with("x", Scalar::<i64>::new("cls"));
        let order = || DatasetOrder::new(&[1], 0, 0).unwrap();
        let mixed = (0..streams).map(|source| MixedStream::new(vec![source], order(), 0, 0)).collect();
        let sequence = SequenceConfig {
            rank: 0,
            ranks: 1,
            batch,
            shapes: None,
            first_number: 0,
            furthest: 0,
            batching: Batching::Aligned,
            alone: false,
            repeat_streams: false,
        };
        SlotPredictor::new(streams, mixed, &sequence, Collator::new(columns, batch).slots(), 8)
    }

    /// The addresses of the slots; 0 for a row without slots.
    fn addresses(row_slots: &VecDeque<RowSlots>) -> Vec<usize> {
        row_slots.iter().map(|slots| slots.first().map_or(0, |slot| slot.as_ptr().addr())).collect()
    }

    #[test]
    fn streams_get_the_slots_of_their_sequence_numbers_in_any_order_of_calls() {
        let mut predictor = predictor(2, 6);
        let second_slots = predictor.take(1, 0, 3);
        let first_slots = predictor.take(0, 0, 3);
        let second = addresses(&second_slots);
        let first = addresses(&first_slots);
        let begin = first[0];
        assert_eq!(first, [begin, begin + 16, begin + 32]);
        assert_eq!(second, [begin + 8, begin + 24, begin + 40]);
        // The slots of the first batch are still in use, so the next batch has other memory.
        let third = addresses(&predictor.take(0, 3, 1));
        assert!(!first.contains(&third[0]) && third[0] != 0, "the next batch has other memory");
    }

    #[test]
    fn after_wrong_predictions_later_items_get_the_right_slots() {
        let mut predictor = predictor(1, 100);
        let begin = addresses(&predictor.take(0, 0, 10))[0];
        // Two of the ten samples resulted in no item. The next two items have the numbers 8 and 9, whose
        // slots were already given to those samples.
        assert_eq!(addresses(&predictor.take(0, 8, 4)), [0, 0, begin + 80, begin + 88]);
        // Four samples follow, and one of them results in three items: the next item is number 14.
        assert_eq!(addresses(&predictor.take(0, 14, 2)), [begin + 112, begin + 120]);
    }

    #[test]
    fn a_source_that_has_ended_gets_no_more_slots() {
        let mut predictor = predictor(2, 8);
        let first = addresses(&predictor.take(0, 0, 1))[0];
        predictor.end(1);
        // The slot of the other source stays empty.
        assert_eq!(addresses(&predictor.take(0, 1, 3)), [first + 8, first + 16, first + 24]);
        predictor.end(0);
        assert!(predictor.take(0, 4, 1).is_empty());
    }
}
