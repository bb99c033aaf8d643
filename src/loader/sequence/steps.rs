//! How many batches an epoch has, where the lengths of all streams are known.

use crate::loader::last_batch::LastBatch;

/// Most places with gaps among them that are looked at one by one; only streams of very different lengths
/// have more.
const MOST_COUNTED: u64 = 1 << 22;

/// The lengths of all streams of the job, in samples of an epoch.
#[derive(Debug)]
pub(in crate::loader) struct Lengths(pub(in crate::loader) Vec<u64>);

impl Lengths {
    /// How many places come before the first that is empty.
    fn full(&self) -> u64 {
        let streams = self.0.len() as u64;
        let first_gap =
            |(stream, length): (usize, &u64)| length.saturating_mul(streams).saturating_add(stream as u64);
        self.0.iter().enumerate().map(first_gap).min().unwrap_or(0)
    }

    /// How many places come before those that are all empty.
    pub(in crate::loader) fn used(&self) -> u64 {
        let streams = self.0.len() as u64;
        let end = |(stream, length): (usize, &u64)| {
            Some(length.checked_sub(1)?.saturating_mul(streams).saturating_add(stream as u64 + 1))
        };
        self.0.iter().enumerate().filter_map(end).max().unwrap_or(0)
    }

    /// How many batches of `batch` items every rank gets from the place `from` on, where all ranks are to get
    /// the same number.
    pub(in crate::loader) fn equal(&self, last: LastBatch, batch: u64, from: u64) -> Option<u64> {
        match last {
            LastBatch::Keep => None,
            LastBatch::Drop => Some(self.full().saturating_sub(from) / batch),
            LastBatch::Pad | LastBatch::Repeat => Some(self.used().saturating_sub(from).div_ceil(batch)),
        }
    }

    /// How many batches a rank gets from the place `from` on that keeps partial ones; none where that is not
    /// simply the rest of all.
    pub(in crate::loader) fn kept_from(&self, reader: (usize, usize), batch: u64, from: u64) -> Option<u64> {
        let step = batch.saturating_mul(reader.1 as u64).max(1);
        let is_simple = from.is_multiple_of(step) && from <= self.full();
        self.kept(reader, batch).filter(|_| is_simple)?.checked_sub(from / step)
    }

    /// How many batches of `batch` items a rank gets that keeps partial ones; none where it would take long
    /// to find out.
    pub(in crate::loader) fn kept(&self, (rank, ranks): (usize, usize), batch: u64) -> Option<u64> {
        let streams = self.0.len() as u64;
        let (full, used) = (self.full(), self.used());
        if used.saturating_sub(full) > MOST_COUNTED {
            return None;
        }
        let holds =
            |slot: &u64| self.0.get((slot % streams) as usize).is_some_and(|length| slot / streams < *length);
        // The batches of this rank that have an item among the places after those that are all full.
        let mine = |slot: &u64| slot % ranks as u64 == rank as u64;
        let number = |slot: u64| slot / ranks as u64 / batch;
        let mut late: Vec<u64> = (full..used).filter(mine).filter(holds).map(number).collect();
        late.dedup();
        let places = full.saturating_sub(rank as u64).div_ceil(ranks as u64);
        let early = places.div_ceil(batch);
        Some(early + late.iter().filter(|number| **number >= early).count() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_streams() {
        let lengths = Lengths(vec![3, 3, 2, 2]);
        let (drop, pad) = (LastBatch::Drop, LastBatch::Pad);
        assert_eq!(lengths.equal(drop, 4, 0), Some(2));
        assert_eq!(lengths.equal(pad, 4, 0), Some(3));
        assert_eq!(lengths.equal(pad, 5, 0), Some(2));
        assert_eq!(lengths.equal(pad, 4, 8), Some(1));
        assert_eq!(lengths.equal(drop, 4, 10), Some(0));
        assert_eq!(lengths.equal(LastBatch::Keep, 4, 0), None);
        assert_eq!([0, 1, 2, 3].map(|rank| lengths.kept((rank, 4), 1).unwrap()), [3, 3, 2, 2]);
        assert_eq!(lengths.kept((0, 1), 4), Some(3));
        assert_eq!(lengths.kept_from((0, 1), 4, 4), Some(2));
        assert_eq!(lengths.kept_from((0, 1), 4, 3), None);
    }

    #[test]
    fn uneven_streams_leave_gaps() {
        let lengths = Lengths(vec![1, 0, 4]);
        assert_eq!((lengths.full(), lengths.used()), (1, 12));
        // 0 . 2 | . . 5 | . . 8 | . . 11
        assert_eq!(lengths.kept((0, 1), 3), Some(4));
        // 0 . | 2 . | . 5 | . . | 8 . | . 11
        assert_eq!(lengths.kept((0, 1), 2), Some(5));
        assert_eq!(Lengths(vec![]).kept((0, 1), 2), Some(0));
    }

    /// An index that came from elsewhere may claim any number.
    #[test]
    fn lengths_that_nobody_can_count() {
        let lengths = Lengths(vec![u64::MAX, u64::MAX - 1]);
        assert_eq!((lengths.full(), lengths.used()), (u64::MAX, u64::MAX));
        assert_eq!(lengths.kept((1, 2), 1), Some(u64::MAX / 2));
    }
}
