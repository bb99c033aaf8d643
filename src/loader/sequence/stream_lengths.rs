//! The number of batches of an epoch, from the lengths of all streams.

use crate::loader::last_batch::LastBatch;

/// Maximum length of the range with gaps that is counted one by one. Only streams of very different lengths
/// have a longer one.
const MAX_COUNTED: u64 = 1 << 22;

/// The number of items that each stream of the job has in an epoch.
#[derive(Debug)]
pub(in crate::loader) struct StreamLengths(pub(in crate::loader) Vec<u64>);

impl StreamLengths {
    /// The sequence number of the first gap.
    fn first_gap(&self) -> u64 {
        let streams = self.0.len() as u64;
        let gap =
            |(stream, length): (usize, &u64)| length.saturating_mul(streams).saturating_add(stream as u64);
        self.0.iter().enumerate().map(gap).min().unwrap_or(0)
    }

    /// The sequence number after the last item.
    pub(in crate::loader) fn end(&self) -> u64 {
        let streams = self.0.len() as u64;
        let end = |(stream, length): (usize, &u64)| {
            Some(length.checked_sub(1)?.saturating_mul(streams).saturating_add(stream as u64 + 1))
        };
        self.0.iter().enumerate().filter_map(end).max().unwrap_or(0)
    }

    /// Number of steps of `batch` sequence numbers from number `from` on, if `last` gives all ranks the same
    /// number of batches.
    pub(in crate::loader) fn equal_steps(&self, last: LastBatch, batch: u64, from: u64) -> Option<u64> {
        match last {
            LastBatch::Keep => None,
            LastBatch::Drop => Some(self.first_gap().saturating_sub(from) / batch),
            LastBatch::Pad | LastBatch::Repeat => Some(self.end().saturating_sub(from).div_ceil(batch)),
        }
    }

    /// Number of batches of a rank from sequence number `from` on, with [`LastBatch::Keep`]. `None` unless
    /// that is the number of all batches less those before `from`.
    pub(in crate::loader) fn kept_steps_from(
        &self,
        rank: (usize, usize),
        batch: u64,
        from: u64,
    ) -> Option<u64> {
        let step = batch.saturating_mul(rank.1 as u64).max(1);
        let is_simple = from.is_multiple_of(step) && from <= self.first_gap();
        self.kept_steps(rank, batch).filter(|_| is_simple)?.checked_sub(from / step)
    }

    /// Number of batches of `batch` items of a rank, with [`LastBatch::Keep`]. `None` if counting would take
    /// long.
    pub(in crate::loader) fn kept_steps(&self, (rank, ranks): (usize, usize), batch: u64) -> Option<u64> {
        let streams = self.0.len() as u64;
        let (first_gap, end) = (self.first_gap(), self.end());
        if end.saturating_sub(first_gap) > MAX_COUNTED {
            return None;
        }
        let has_item = |number: &u64| {
            self.0.get((number % streams) as usize).is_some_and(|length| number / streams < *length)
        };
        // The batches of this rank that have an item behind the first gap.
        let mine = |number: &u64| number % ranks as u64 == rank as u64;
        let batch_of = |number: u64| number / ranks as u64 / batch;
        let mut late: Vec<u64> = (first_gap..end).filter(mine).filter(has_item).map(batch_of).collect();
        late.dedup();
        let before_gap = first_gap.saturating_sub(rank as u64).div_ceil(ranks as u64);
        let early = before_gap.div_ceil(batch);
        Some(early + late.iter().filter(|batch| **batch >= early).count() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_streams() {
        let lengths = StreamLengths(vec![3, 3, 2, 2]);
        let (drop, pad) = (LastBatch::Drop, LastBatch::Pad);
        assert_eq!(lengths.equal_steps(drop, 4, 0), Some(2));
        assert_eq!(lengths.equal_steps(pad, 4, 0), Some(3));
        assert_eq!(lengths.equal_steps(pad, 5, 0), Some(2));
        assert_eq!(lengths.equal_steps(pad, 4, 8), Some(1));
        assert_eq!(lengths.equal_steps(drop, 4, 10), Some(0));
        assert_eq!(lengths.equal_steps(LastBatch::Keep, 4, 0), None);
        assert_eq!([0, 1, 2, 3].map(|rank| lengths.kept_steps((rank, 4), 1).unwrap()), [3, 3, 2, 2]);
        assert_eq!(lengths.kept_steps((0, 1), 4), Some(3));
        assert_eq!(lengths.kept_steps_from((0, 1), 4, 4), Some(2));
        assert_eq!(lengths.kept_steps_from((0, 1), 4, 3), None);
    }

    #[test]
    fn uneven_streams_leave_gaps() {
        let lengths = StreamLengths(vec![1, 0, 4]);
        assert_eq!((lengths.first_gap(), lengths.end()), (1, 12));
        // 0 . 2 | . . 5 | . . 8 | . . 11
        assert_eq!(lengths.kept_steps((0, 1), 3), Some(4));
        // 0 . | 2 . | . 5 | . . | 8 . | . 11
        assert_eq!(lengths.kept_steps((0, 1), 2), Some(5));
        assert_eq!(StreamLengths(vec![]).kept_steps((0, 1), 2), Some(0));
    }

    /// An index from elsewhere may claim any number of samples.
    #[test]
    fn huge_lengths_do_not_overflow() {
        let lengths = StreamLengths(vec![u64::MAX, u64::MAX - 1]);
        assert_eq!((lengths.first_gap(), lengths.end()), (u64::MAX, u64::MAX));
        assert_eq!(lengths.kept_steps((1, 2), 1), Some(u64::MAX / 2));
    }
}
