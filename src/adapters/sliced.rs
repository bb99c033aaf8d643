//! `slice` and `epoch`: take a range of the items.

use super::Stage;
use crate::Result;
use std::ops::{Bound, RangeBounds};

/// The stage of [`slice`](super::Pipeline::slice).
#[derive(Debug, Clone)]
pub(crate) struct Sliced {
    skip: usize,
    left: Option<usize>,
}

impl Sliced {
    pub(super) fn new(range: impl RangeBounds<usize>) -> Self {
        let skip = match range.start_bound() {
            Bound::Included(&start) => start,
            Bound::Excluded(&before) => before.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(&last) => last.checked_add(1),
            Bound::Excluded(&end) => Some(end),
            Bound::Unbounded => None,
        };
        Sliced { skip, left: end.map(|end| end.saturating_sub(skip)) }
    }
}

impl<T> Stage<T> for Sliced {
    type Out = T;

    fn push(&mut self, item: T) -> Option<Result<T>> {
        if self.skip > 0 {
            self.skip -= 1;
            return None;
        }
        if let Some(left) = &mut self.left {
            *left = left.saturating_sub(1);
        }
        Some(Ok(item))
    }

    fn is_done(&self) -> bool {
        self.left == Some(0)
    }

    fn size_hint(&self, upstream: (usize, Option<usize>)) -> (usize, Option<usize>) {
        // Errors are returned in addition to the items of the range, so the range limits only the lower
        // bound.
        let wanted = upstream.0.saturating_sub(self.skip);
        (self.left.map_or(wanted, |left| left.min(wanted)), upstream.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapters::testing::{Hesitant, both, fault, oks, show, show_stream};
    use crate::adapters::{IteratorExt, StreamExt};

    #[test]
    fn slice_accepts_any_kind_of_range() {
        let slice = |range: (Bound<usize>, Bound<usize>)| -> Vec<i32> {
            let out = both!(oks(0..6), |source| source.slice(range));
            out.into_iter().map(Result::unwrap).collect()
        };
        use Bound::{Excluded, Included, Unbounded};
        assert_eq!(slice((Included(2), Excluded(4))), [2, 3]);
        assert_eq!(slice((Included(2), Included(4))), [2, 3, 4]);
        assert_eq!(slice((Excluded(2), Unbounded)), [3, 4, 5]);
        assert_eq!(slice((Unbounded, Included(usize::MAX))), [0, 1, 2, 3, 4, 5]);
        assert_eq!(slice((Included(4), Excluded(2))), Vec::<i32>::new());
        assert_eq!(slice((Included(4), Excluded(100))), [4, 5]);
    }

    #[test]
    fn slice_counts_items_and_not_errors() {
        let items = || vec![fault("a"), Ok(0), Ok(1), fault("b"), Ok(2), fault("c"), Ok(3)];
        let out = both!(items(), |source| source.slice(1..3));
        assert_eq!(out, [Err("a".into()), Ok(1), Err("b".into()), Ok(2)]);
    }

    #[test]
    fn items_after_the_range_stay_in_the_source() {
        let mut source = oks(0..10).into_iter();
        assert_eq!(source.by_ref().pipeline().slice(..3).count(), 3);
        assert_eq!(source.next().unwrap().unwrap(), 3);
        assert_eq!(source.by_ref().pipeline().slice(..0).count(), 0);
        assert_eq!(source.next().unwrap().unwrap(), 4);
    }

    fn items() -> Vec<crate::Result<i32>> {
        [oks(0..3), vec![fault("bad")], oks(3..7)].into_iter().flatten().collect()
    }

    #[test]
    fn an_epoch_begins_after_the_last_item_of_the_previous_one() {
        let mut iterated = IteratorExt::pipeline(items().into_iter());
        let mut streamed = StreamExt::pipeline(Hesitant::new(items()));
        let mut epochs = Vec::new();
        for _ in 0..4 {
            let epoch = show(iterated.epoch(3));
            assert_eq!(epoch, show_stream(streamed.epoch(3)));
            epochs.push(epoch);
        }
        assert_eq!(epochs[0], [Ok(0), Ok(1), Ok(2)]);
        assert_eq!(epochs[1], [Err("bad".into()), Ok(3), Ok(4), Ok(5)]);
        assert_eq!(epochs[2], [Ok(6)]);
        assert_eq!(epochs[3], []);
    }

    #[test]
    fn dropping_an_epoch_early_loses_no_items() {
        let mut numbers = oks(0..9).into_iter().pipeline();
        assert_eq!(numbers.epoch(4).next().unwrap().unwrap(), 0);
        assert_eq!(show(numbers.epoch(4)), [Ok(1), Ok(2), Ok(3), Ok(4)]);
    }
}
