//! Computes the number of batches of an epoch from the lengths of all streams.

use std::ops::Range;

/// The number of items of each stream of the job in an epoch.
#[derive(Debug)]
pub(crate) struct StreamLengths(pub(crate) Vec<u64>);

impl StreamLengths {
    /// The lengths of streams that do not end.
    pub(crate) fn endless(streams: usize) -> Self {
        StreamLengths(vec![u64::MAX; streams])
    }

    /// The sequence number of the first gap.
    fn first_gap(&self) -> u64 {
        let streams = self.0.len() as u64;
        let gap =
            |(stream, length): (usize, &u64)| length.saturating_mul(streams).saturating_add(stream as u64);
        self.0.iter().enumerate().map(gap).min().unwrap_or(0)
    }

    /// The sequence number after the last item.
    fn end(&self) -> u64 {
        let streams = self.0.len() as u64;
        let end = |(stream, length): (usize, &u64)| {
            Some(length.checked_sub(1)?.saturating_mul(streams).saturating_add(stream as u64 + 1))
        };
        self.0.iter().enumerate().filter_map(end).max().unwrap_or(0)
    }

    /// Number of steps without a gap, from sequence number `from` on. A step covers `batch` sequence numbers.
    pub(crate) fn full_steps(&self, batch: u64, from: u64) -> u64 {
        self.first_gap().saturating_sub(from) / batch.max(1)
    }

    /// Number of steps from sequence number `from` up to and including the step of the last item. A step
    /// covers `batch` sequence numbers.
    pub(crate) fn all_steps(&self, batch: u64, from: u64) -> u64 {
        self.end().saturating_sub(from).div_ceil(batch.max(1))
    }

    /// The items that are left for a rank with batches of `batch` items, from sequence number `from` on. For
    /// each of the rank's streams, `taken` has the number of items that were taken; a stream may be ahead of
    /// `from`.
    pub(crate) fn left(&self, rank: usize, ranks: usize, batch: u64, from: u64, taken: &[u64]) -> ItemsLeft {
        let lengths = self.0.iter().skip(rank).step_by(ranks.max(1)).copied();
        let start = from.saturating_sub(rank as u64).div_ceil(ranks.max(1) as u64);
        let streams = self.0.len().div_ceil(ranks.max(1)) as u64;
        let items = lengths.enumerate().map(|(stream, length)| {
            let first = start.saturating_sub(stream as u64).div_ceil(streams);
            first.max(taken.get(stream).copied().unwrap_or_default()).min(length)..length
        });
        ItemsLeft { items: items.collect(), start, batch: batch.max(1) }
    }
}

/// The items that a rank's streams have left, and the batches that they form.
///
/// *Local numbers* count the sequence numbers of the rank: local number `l` of a rank with `m` streams is
/// item `l / m` of its stream `l % m`. A *window* is a range of `batch` local numbers. Each window with at
/// least one item is a batch.
#[derive(Debug)]
pub(crate) struct ItemsLeft {
    /// For each stream, the indices of the items that are left.
    items: Vec<Range<u64>>,
    /// The local number at which the first window starts.
    start: u64,
    batch: u64,
}

impl ItemsLeft {
    pub(crate) fn batches(&self) -> u64 {
        self.batches_in(u64::MAX)
    }

    /// Number of windows up to the end of batch number `count`, where the first batch is number 1. If there
    /// are fewer batches, the number of windows up to the last item.
    pub(crate) fn windows_of(&self, count: u64) -> u64 {
        let streams = self.items.len() as u64;
        let end = |(stream, items): (usize, &Range<u64>)| {
            Some(items.end.checked_sub(1).filter(|_| !items.is_empty())?.saturating_mul(streams))
                .map(|number| number.saturating_add(stream as u64 + 1))
        };
        let end = self.items.iter().enumerate().filter_map(end).max().unwrap_or(self.start);
        // A binary search for the smallest number of windows with `count` batches.
        let mut low = 0;
        let mut high = end.saturating_sub(self.start).div_ceil(self.batch);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.batches_in(middle) < count { low = middle + 1 } else { high = middle }
        }
        low
    }

    /// Number of batches in the first `windows` windows.
    ///
    /// *Round* `r` of a rank with `m` streams has the local numbers from `r * m` to `r * m + m - 1`: item `r`
    /// of each stream. `bounds` are the rounds at which the items of a stream begin or end. Between two
    /// bounds, a stream is *present* if it has an item in every round; the other streams have no items there.
    ///
    /// Each window with at least one item is a batch. So the number of batches between two bounds is the
    /// number of windows from the first item to the last, minus the number of windows without an item. A
    /// window without an item lies wholly between two neighbouring items.
    fn batches_in(&self, windows: u64) -> u64 {
        let (streams, batch) = (self.items.len() as u128, u128::from(self.batch));
        let end = self.start.saturating_add(windows.saturating_mul(self.batch));
        let until = |stream: u64| end.saturating_sub(stream).div_ceil(streams.max(1) as u64);
        let clipped = (0..).zip(&self.items).map(|(stream, items)| items.start..items.end.min(until(stream)));
        let items: Vec<Range<u64>> = clipped.collect();
        let mut bounds: Vec<u64> = items.iter().flat_map(|items| [items.start, items.end]).collect();
        bounds.sort_unstable();
        bounds.dedup();
        let (mut batches, mut last_window) = (0u128, None);
        for rounds in bounds.windows(2) {
            let (first_round, end_round) = (u128::from(rounds[0]), u128::from(rounds[1]));
            let with_item =
                |(stream, items): (u128, &Range<u64>)| items.contains(&rounds[0]).then_some(stream);
            let present: Vec<u128> = (0..).zip(&items).filter_map(with_item).collect();
            let (Some(first), Some(last)) = (present.first(), present.last()) else { continue };
            let number = |round: u128, stream: u128| round * streams + stream - u128::from(self.start);
            let (first_window, end_window) =
                (number(first_round, *first) / batch, number(end_round - 1, *last) / batch);
            batches += end_window - first_window + 1;
            batches -= u128::from(last_window == Some(first_window));
            last_window = Some(end_window);
            let count = end_round - first_round;
            let mut between = |stream: u128, distance: u128, count: u128| {
                if distance > batch {
                    let from = number(first_round, stream);
                    let sum = |offset| floor_sum(count, batch, streams, from + offset);
                    batches -= sum(distance) - sum(0) - count;
                }
            };
            present.windows(2).for_each(|pair| between(pair[0], pair[1] - pair[0], count));
            between(*last, streams - last + first, count - 1);
        }
        u64::try_from(batches).unwrap_or(u64::MAX)
    }
}

/// The sum of `(step * i + offset) / divisor` over all `i` below `count`, each term rounded down.
fn floor_sum(mut count: u128, mut divisor: u128, mut step: u128, mut offset: u128) -> u128 {
    let mut sum: u128 = 0;
    while count > 0 {
        sum += (count * (count - 1) / 2).saturating_mul(step / divisor) + count * (offset / divisor);
        (step, offset) = (step % divisor, offset % divisor);
        let end = step * count + offset;
        (count, offset) = (end / divisor, end % divisor);
        (divisor, step) = (step, divisor);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Number of batches of a rank from the beginning.
    fn kept(lengths: &StreamLengths, (rank, ranks): (usize, usize), batch: u64) -> u64 {
        lengths.left(rank, ranks, batch, 0, &[]).batches()
    }

    #[test]
    fn equal_streams_have_equal_steps() {
        let lengths = StreamLengths(vec![3, 3, 2, 2]);
        assert_eq!((lengths.full_steps(4, 0), lengths.full_steps(4, 10)), (2, 0));
        assert_eq!((lengths.all_steps(4, 0), lengths.all_steps(5, 0), lengths.all_steps(4, 8)), (3, 2, 1));
        assert_eq!([0, 1, 2, 3].map(|rank| kept(&lengths, (rank, 4), 1)), [3, 3, 2, 2]);
        assert_eq!(kept(&lengths, (0, 1), 4), 3);
        assert_eq!(lengths.left(0, 1, 4, 4, &[1; 4]).batches(), 2);
    }

    #[test]
    fn uneven_streams_leave_gaps() {
        let lengths = StreamLengths(vec![1, 0, 4]);
        assert_eq!((lengths.first_gap(), lengths.end()), (1, 12));
        // The windows, with a dot for each gap: 0 . 2 | . . 5 | . . 8 | . . 11
        assert_eq!(kept(&lengths, (0, 1), 3), 4);
        // The same items in windows of two: 0 . | 2 . | . 5 | . . | 8 . | . 11
        assert_eq!(kept(&lengths, (0, 1), 2), 5);
        assert_eq!(
            [0, 1, 3, 4, 5, 9].map(|step| lengths.left(0, 1, 2, 0, &[]).windows_of(step)),
            [0, 1, 3, 5, 6, 6]
        );
        assert_eq!(kept(&StreamLengths(vec![]), (0, 1), 2), 0);
    }

    /// An index may contain any number of samples.
    #[test]
    fn huge_lengths_do_not_overflow() {
        let lengths = StreamLengths(vec![u64::MAX, u64::MAX - 1]);
        assert_eq!((lengths.first_gap(), lengths.end()), (u64::MAX, u64::MAX));
        assert_eq!(kept(&lengths, (1, 2), 1), u64::MAX - 1);
        assert_eq!(kept(&lengths, (0, 1), 2), u64::MAX / 2 + 1);
        // The local numbers from 50 on, with a dot where stream 0 has no item left: 50 . 52 53 . 55 56 …
        let endless = StreamLengths::endless(6).left(1, 2, 1, 100, &[1 << 40, 0, 7]);
        assert_eq!(endless.windows_of(1001), 1501);
    }

    proptest! {
        #[test]
        fn the_number_of_batches_equals_a_count_one_by_one(
            lengths in prop::collection::vec(0u64..12, 1..9),
            taken in prop::collection::vec(0u64..14, 9),
            ranks in 1usize..4,
            (batch, from) in (1u64..10, 0u64..60),
        ) {
            let lengths = StreamLengths(lengths.repeat(ranks));
            for rank in 0..ranks {
                let mine = (lengths.0.len() / ranks) as u64;
                let start = from.saturating_sub(rank as u64).div_ceil(ranks as u64);
                let has_item = |number: &u64| {
                    let (stream, index) = ((number % mine) as usize, number / mine);
                    index >= taken[stream % 9] && index < lengths.0[rank + stream * ranks]
                };
                let taken: Vec<u64> = (0..mine as usize).map(|stream| taken[stream % 9]).collect();
                let mut windows: Vec<u64> = (start..start + 400)
                    .filter(has_item).map(|number| (number - start) / batch).collect();
                windows.dedup();
                let left = lengths.left(rank, ranks, batch, from, &taken);
                prop_assert_eq!(left.batches(), windows.len() as u64);
                for (count, window) in windows.iter().enumerate() {
                    prop_assert_eq!(left.windows_of(count as u64 + 1), window + 1);
                }
                prop_assert_eq!(left.windows_of(0), 0);
                let all = windows.last().map_or(0, |last| last + 1);
                prop_assert_eq!(left.windows_of(windows.len() as u64 + 1), all);
            }
        }
    }
}
