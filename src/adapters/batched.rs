//! `batch`: collects items into batches.

use super::{Batch, LastBatch, Pipeline, Stage, Staged, reserve};
use crate::{ErrorKind, Result};
use std::fmt;

/// The stage of [`batch`](super::Pipeline::batch).
pub struct Batched<T> {
    size: usize,
    last: LastBatch,
    /// The function that clones an item, to pad the last batch.
    clone: Option<fn(&T) -> T>,
    items: Vec<T>,
}

/// What happens to the last items if they don't fill a row or group.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Partial {
    /// They are returned as a smaller one.
    #[default]
    Keep,
    /// They are dropped.
    Drop,
}

impl<T> Batched<T> {
    pub(super) fn new(size: usize) -> Self {
        Batched { size, last: LastBatch::Keep, clone: None, items: Vec::new() }
    }

    fn take(&mut self) -> Batch<T> {
        Batch::from(std::mem::take(&mut self.items))
    }
}

impl<S, T> Pipeline<Staged<S, Batched<T>>, Batch<T>> {
    /// What happens to the last items if they don't fill a batch. Default: [`LastBatch::Keep`].
    /// [`Batch::valid`] is the number of items that are not padding. [`LastBatch::Repeat`] is for loaders: a
    /// pipeline has no first items of the epoch any more.
    ///
    /// ```
    /// use shardstream::adapters::IteratorExt;
    /// use shardstream::loader::LastBatch;
    ///
    /// let batches = |last| (0..5).map(Ok).pipeline().batch(2).last_batch(last);
    /// assert_eq!(batches(LastBatch::Drop).count(), 2);
    /// let last = batches(LastBatch::Pad).last().unwrap()?;
    /// assert_eq!((&*last, last.valid()), (&[4, 4][..], 1));
    /// # Ok::<_, shardstream::Error>(())
    /// ```
    #[doc(alias = "drop_last")]
    #[doc(alias = "drop_remainder")]
    pub fn last_batch(self, last: LastBatch) -> Self
    where
        T: Clone,
    {
        self.with(|stage| (stage.last, stage.clone) = (last, Some(T::clone as fn(&T) -> T)))
    }
}

impl<T> Stage<T> for Batched<T> {
    type Out = Batch<T>;

    fn push(&mut self, item: T) -> Option<Result<Batch<T>>> {
        reserve(&mut self.items, self.size);
        self.items.push(item);
        (self.items.len() >= self.size).then(|| Ok(self.take()))
    }

    fn drain(&mut self) -> Option<Result<Batch<T>>> {
        let mut batch = self.take();
        match (self.last, self.clone) {
            (LastBatch::Drop, _) => return None,
            (LastBatch::Pad, Some(clone)) => batch.pad(self.size, clone),
            _ => {}
        }
        (!batch.is_empty()).then_some(Ok(batch))
    }

    fn check(&self) -> Result<()> {
        match self.size {
            0 => Err(ErrorKind::Config("batches of 0 items: the size must be at least 1".into()).into()),
            _ if self.last == LastBatch::Repeat => {
                let what = "`LastBatch::Repeat` of a pipeline: only a `Loader` reads the first items again";
                Err(ErrorKind::Config(what.into()).into())
            }
            _ => Ok(()),
        }
    }

    fn size_hint(&self, upstream: (usize, Option<usize>)) -> (usize, Option<usize>) {
        // Most outputs come if every item is an error, fewest if none is.
        let (waiting, size) = (self.items.len(), self.size.max(1));
        let least = waiting.saturating_add(upstream.0);
        let least = match self.last {
            LastBatch::Drop => least / size,
            _ => least.div_ceil(size),
        };
        (least, upstream.1.and_then(|most| most.checked_add(usize::from(waiting > 0))))
    }
}

impl<T> fmt::Debug for Batched<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batched")
            .field("size", &self.size)
            .field("last", &self.last)
            .field("waiting", &self.items.len())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapters::IteratorExt;
    use crate::adapters::testing::{both, fault, oks};

    #[test]
    fn the_last_batch() {
        let keep = both!(oks(0..5), |source| source.batch(2));
        assert_eq!(keep, [Ok(vec![0, 1].into()), Ok(vec![2, 3].into()), Ok(vec![4].into())]);
        let drop = both!(oks(0..5), |source| source.batch(2).last_batch(LastBatch::Drop));
        assert_eq!(drop, keep[..2]);
        let pad = both!(oks(0..5), |source| source.batch(2).last_batch(LastBatch::Pad));
        assert_eq!(pad[..2], keep[..2]);
        assert_eq!(pad[2].as_deref(), Ok(&[4, 4][..]));
        assert_eq!(pad[2].as_ref().unwrap().valid(), 1);
        for out in [
            both!(oks(0..4), |source| source.batch(2)),
            both!(oks(0..4), |source| source.batch(2).last_batch(LastBatch::Drop)),
            both!(oks(0..4), |source| source.batch(2).last_batch(LastBatch::Pad)),
        ] {
            assert_eq!(out, keep[..2]);
        }
        assert_eq!(both!(oks(0..0), |source| source.batch(2).last_batch(LastBatch::Pad)), []);
    }

    #[test]
    fn an_error_comes_at_once_and_the_batch_continues() {
        let items = || vec![Ok(0), fault("a"), Ok(1), Ok(2), fault("b")];
        let out = both!(items(), |source| source.batch(2));
        assert_eq!(out, [Err("a".into()), Ok(vec![0, 1].into()), Err("b".into()), Ok(vec![2].into())]);
    }

    #[test]
    fn batches_of_nothing_are_an_error() {
        let mut batches = oks(0..5).into_iter().pipeline().batch(0);
        assert_eq!(batches.size_hint(), (1, Some(1)));
        assert!(matches!(batches.next().unwrap().unwrap_err().kind(), ErrorKind::Config(_)));
        assert!(batches.next().is_none());
        assert_eq!(both!(oks(0..5), |source| source.batch(0)).len(), 1);
    }

    #[test]
    fn an_absurd_size_does_not_reserve_memory() {
        let out = both!(oks(0..3), |source| source.batch(usize::MAX));
        assert_eq!(out, [Ok(vec![0, 1, 2].into())]);
    }
}
