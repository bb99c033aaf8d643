//! `batch`: collects items into batches.

use super::shaped_items::ShapedItems;
use super::{Batch, Buckets, LastBatch, NOT_DROPPED, Pipeline, Stage, Staged, reserve};
use crate::collate::Step;
use crate::{ErrorKind, Result};
use std::fmt;

/// The stage of [`batch`](super::Pipeline::batch).
pub struct Batched<T> {
    size: usize,
    last: LastBatch,
    /// The function that clones an item, to pad the last batch.
    clone: Option<fn(&T) -> T>,
    items: Vec<T>,
    /// If batches have several shapes: the items that wait for a batch of their shape, or the error of a bad
    /// option.
    shaped: Option<Result<Box<ShapedItems<T>>, String>>,
}

/// What happens to the last row or group if too few items are left to fill it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Partial {
    /// The last row or group is returned with fewer items.
    #[default]
    Keep,
    /// It is dropped.
    Drop,
}

impl<T> Batched<T> {
    pub(super) fn new(size: usize) -> Self {
        Batched { size, last: LastBatch::Keep, clone: None, items: Vec::new(), shaped: None }
    }

    /// The queues of waiting items, if batches have several shapes.
    fn shaped(&mut self) -> Option<&mut ShapedItems<T>> {
        self.shaped.as_mut()?.as_deref_mut().ok()
    }

    /// The next batch, if batches have several shapes and the waiting items fill a batch.
    fn shaped_batch(&mut self) -> Option<Result<Batch<T>>> {
        let Some(Ok(shaped)) = &mut self.shaped else { return None };
        if !shaped.fill(&mut self.items) {
            return None;
        }
        Some(Ok(self.take()))
    }

    /// Makes a batch of the collected items, and pads the batch if the option is [`LastBatch::Pad`].
    fn take(&mut self) -> Batch<T> {
        let items = std::mem::take(&mut self.items);
        let mut step = Step::of(items.len());
        let mut size = self.size;
        if let Some(Ok(shaped)) = &self.shaped {
            let (bucket, of_shape) = shaped.shape();
            step.bucket = Some(bucket);
            size = of_shape;
        }
        let mut batch = Batch::from(items).at(step);
        if let (LastBatch::Pad, Some(clone)) = (self.last, self.clone) {
            batch.pad(size, clone);
        }
        batch
    }
}

impl<S, T> Pipeline<Staged<S, Batched<T>>, Batch<T>> {
    /// Sets what happens to the last batch if too few items are left to fill it. Default:
    /// [`LastBatch::Keep`]. [`Batch::valid`] is the number of items that are not padding.
    /// [`LastBatch::Repeat`] is for loaders only: a pipeline cannot read the first items of the epoch again.
    ///
    /// ```
    /// use shardstream::adapters::IteratorExt;
    /// use shardstream::loader::LastBatch;
    ///
    /// let batches = |last| (0..5).map(Ok).pipeline().batch(2).last_batch(last);
    /// assert_eq!(batches(LastBatch::Drop).count(), 2);
    /// let last = batches(LastBatch::Pad).last().unwrap()?;
    /// assert_eq!((&*last, last.valid()), (&[4, 4][..], 1));
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    #[doc(alias = "drop_last")]
    #[doc(alias = "drop_remainder")]
    pub fn last_batch(self, last: LastBatch) -> Self
    where
        T: Clone,
    {
        self.with(|stage| (stage.last, stage.clone) = (last, Some(T::clone as fn(&T) -> T)))
    }

    /// Gives each batch one of a few [shapes](Buckets), such as a length of sequences or a height and width
    /// of pictures. `size` returns the size of an item. [`Batch::bucket`] is the number of the batch's shape.
    ///
    /// This is an option of [`batch`](Pipeline::batch). A loader with one logical stream and the pipeline's
    /// [seed](Pipeline::seed) has the same batches.
    /// [`LoaderBuilder::buckets`](crate::loader::LoaderBuilder::buckets) describes which shape a batch has,
    /// and when a batch has fewer items.
    ///
    /// ```
    /// use shardstream::adapters::{Buckets, IteratorExt};
    ///
    /// let texts = ["a", "bb", "long", "c", "longer"].into_iter().map(Ok).pipeline();
    /// let mut batches = texts.batch(2).buckets(Buckets::lengths([2, 6]), |text| Ok([text.len()]));
    /// let longest = [2, 6];
    /// while let Some(batch) = batches.next().transpose()? {
    ///     let room = longest[batch.bucket().unwrap_or_default()];
    ///     assert!(batch.iter().all(|text| text.len() <= room));
    /// }
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    pub fn buckets<const N: usize>(
        self,
        buckets: Buckets<N>,
        size: impl Fn(&T) -> Result<[usize; N]> + Send + Sync + 'static,
    ) -> Self {
        let seed = self.dataset_seed();
        self.with(|stage| {
            stage.shaped = Some(ShapedItems::new(stage.size, buckets, size, seed).map(Box::new));
        })
    }
}

impl<T> Stage<T> for Batched<T> {
    type Out = Batch<T>;

    fn push(&mut self, item: T) -> Option<Result<Batch<T>>> {
        if let Some(shaped) = self.shaped() {
            if let Err(error) = shaped.push(item) {
                return Some(Err(error));
            }
            return self.shaped_batch();
        }
        reserve(&mut self.items, self.size);
        self.items.push(item);
        (self.items.len() >= self.size).then(|| Ok(self.take()))
    }

    fn pull(&mut self) -> Option<Result<Batch<T>>> {
        self.shaped_batch()
    }

    fn drain(&mut self) -> Option<Result<Batch<T>>> {
        if let Some(shaped) = self.shaped() {
            shaped.drain();
            if let Some(batch) = self.shaped_batch() {
                return Some(batch);
            }
        }
        if self.items.is_empty() || self.last == LastBatch::Drop {
            return None;
        }
        Some(Ok(self.take()))
    }

    fn check(&self) -> Result<()> {
        if let Some(Err(what)) = &self.shaped {
            return Err(ErrorKind::Config(what.clone()).into());
        }
        match self.size {
            0 => Err(ErrorKind::Config("batches of 0 items: the size must be at least 1".into()).into()),
            _ if self.last == LastBatch::Repeat => {
                let what = "`LastBatch::Repeat` of a pipeline: only a `Loader` reads the first items again";
                Err(ErrorKind::Config(what.into()).into())
            }
            _ if self.last == LastBatch::Drop && self.shaped.is_some() => {
                Err(ErrorKind::Config(NOT_DROPPED.into()).into())
            }
            _ => Ok(()),
        }
    }

    fn size_hint(&self, upstream: (usize, Option<usize>)) -> (usize, Option<usize>) {
        if let Some(Ok(shaped)) = &self.shaped {
            // A batch has at least one item, so there are at most as many batches as items.
            let waiting = self.items.len().saturating_add(shaped.waiting());
            return (0, upstream.1.and_then(|most| most.checked_add(waiting)));
        }
        // The number of outputs is largest if every item is an error, and smallest if no item is an error.
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
    fn the_last_batch_is_kept_dropped_or_padded() {
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
    fn an_error_is_returned_at_once_and_does_not_end_the_batch() {
        let items = || vec![Ok(0), fault("a"), Ok(1), Ok(2), fault("b")];
        let out = both!(items(), |source| source.batch(2));
        assert_eq!(out, [Err("a".into()), Ok(vec![0, 1].into()), Err("b".into()), Ok(vec![2].into())]);
    }

    #[test]
    fn a_batch_size_of_zero_is_an_error() {
        let mut batches = oks(0..5).into_iter().pipeline().batch(0);
        assert_eq!(batches.size_hint(), (1, Some(1)));
        assert!(matches!(batches.next().unwrap().unwrap_err().kind(), ErrorKind::Config(_)));
        assert!(batches.next().is_none());
        assert_eq!(both!(oks(0..5), |source| source.batch(0)).len(), 1);
    }

    #[test]
    fn a_huge_batch_size_does_not_reserve_memory() {
        let out = both!(oks(0..3), |source| source.batch(usize::MAX));
        assert_eq!(out, [Ok(vec![0, 1, 2].into())]);
    }
}
