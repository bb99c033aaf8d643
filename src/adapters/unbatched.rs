//! `unbatch`: splits batches into their items again.

use super::{Batch, Stage};
use crate::Result;
use std::fmt;

/// The stage of [`unbatch`](super::Pipeline::unbatch).
pub(crate) struct Unbatched<T> {
    items: std::vec::IntoIter<T>,
}

impl<T> Unbatched<T> {
    pub(super) fn new() -> Self {
        Unbatched { items: Vec::new().into_iter() }
    }
}

impl<T> Stage<Batch<T>> for Unbatched<T> {
    type Out = T;

    fn push(&mut self, batch: Batch<T>) -> Option<Result<T>> {
        self.items = batch.into_valid().into_iter();
        self.pull()
    }

    fn pull(&mut self) -> Option<Result<T>> {
        self.items.next().map(Ok)
    }

    fn drain(&mut self) -> Option<Result<T>> {
        self.pull()
    }

    fn size_hint(&self, upstream: (usize, Option<usize>)) -> (usize, Option<usize>) {
        let here = self.items.len();
        (here, (upstream.1 == Some(0)).then_some(here))
    }
}

impl<T> fmt::Debug for Unbatched<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unbatched").field("left", &self.items.len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use crate::adapters::testing::{both, fault, oks, show};
    use crate::adapters::{Batch, IteratorExt, LastBatch};

    #[test]
    fn unbatch_returns_the_items_of_batches_without_padding() {
        let items = || [oks(0..4), vec![fault("bad")], oks(4..7)].into_iter().flatten().collect::<Vec<_>>();
        let out = both!(items(), |source| source.batch(4).last_batch(LastBatch::Pad).unbatch());
        assert_eq!(out, show(items().into_iter()));
        let out = both!(items(), |source| source.batch(3).unbatch());
        assert_eq!(out.iter().flatten().copied().collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5, 6]);
    }

    #[test]
    fn empty_batches_have_no_items() {
        let batches = [vec![], vec![1], vec![], vec![2, 3], vec![]];
        let out: Vec<i32> = batches
            .into_iter()
            .map(|b| Ok(Batch::from(b)))
            .pipeline()
            .unbatch()
            .results()
            .map(Result::unwrap)
            .collect();
        assert_eq!(out, [1, 2, 3]);
    }
}
