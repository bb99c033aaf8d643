//! Makes the rows of a batch into the batch: a list, or tensors.

use crate::adapters::Batch;
use crate::collate::{Collator, Row, Step, TensorBatch};
use crate::error::{ErrorKind, Result};
use std::sync::Arc;

/// Clones an item to pad a batch; none if batches are not padded.
pub(in crate::loader) type PadFn<T> = Option<fn(&T) -> T>;

/// How rows become a batch.
pub(in crate::loader) struct BatchMaker<R, B> {
    /// The owners of the tensors' memory, by shape; none if batches are lists.
    pub(in crate::loader) collators: Arc<[Collator]>,
    /// Clones a row to pad a batch; none if batches are not padded.
    pub(in crate::loader) pad: PadFn<R>,
    /// Makes a row of this shape without content, if rows are tensors.
    pub(in crate::loader) blank: Option<BlankRow<R>>,
    /// Makes a batch of rows, of which the first ones (a number) are real, in this shape.
    pub(in crate::loader) batch: MakeBatch<R, B>,
    pub(in crate::loader) with_step: fn(B, Step) -> B,
}

type BlankRow<R> = Arc<dyn Fn(Option<usize>) -> R + Send + Sync>;
type MakeBatch<R, B> = Arc<dyn Fn(Vec<R>, usize, Option<usize>) -> Result<B> + Send + Sync>;

impl<R, B> BatchMaker<R, B> {
    /// Bytes of the largest batch, if they are known before it is made.
    pub(in crate::loader) fn batch_bytes(&self) -> Option<u64> {
        let sizes: Option<Vec<u64>> = self.collators.iter().map(Collator::batch_bytes).collect();
        sizes?.into_iter().max()
    }

    /// Whether making a batch calls the caller's code, so that it may fail.
    pub(in crate::loader) fn may_fail(&self) -> bool {
        self.pad.is_some() || self.collators.iter().any(Collator::may_fail)
    }
}

impl<T: 'static> BatchMaker<T, Batch<T>> {
    /// Batches that are lists of the items.
    pub(in crate::loader) fn items(pad: PadFn<T>) -> Self {
        BatchMaker {
            collators: Arc::default(),
            pad,
            blank: None,
            batch: Arc::new(|rows, _, _| Ok(Batch::from(rows))),
            with_step: Batch::at,
        }
    }
}

impl BatchMaker<Row, TensorBatch> {
    /// Batches of tensors of each shape. With `pads`, they are padded to their size.
    pub(in crate::loader) fn tensors(collators: Arc<[Collator]>, pads: bool) -> Self {
        let (of_shapes, blanks) = (Arc::clone(&collators), Arc::clone(&collators));
        let batch = move |rows, valid, bucket: Option<usize>| match of_shapes.get(bucket.unwrap_or_default())
        {
            Some(collator) => collator.batch(rows, valid),
            None => Err(ErrorKind::Config("a batch has a shape without columns".into()).into()),
        };
        let blank = move |bucket: Option<usize>| {
            blanks.get(bucket.unwrap_or_default()).map_or_else(Row::default, Collator::blank_row)
        };
        BatchMaker {
            collators,
            pad: pads.then_some(Row::clone),
            blank: Some(Arc::new(blank)),
            batch: Arc::new(batch),
            with_step: TensorBatch::at,
        }
    }
}

impl<R, B> Clone for BatchMaker<R, B> {
    fn clone(&self) -> Self {
        BatchMaker {
            collators: Arc::clone(&self.collators),
            pad: self.pad,
            blank: self.blank.clone(),
            batch: Arc::clone(&self.batch),
            with_step: self.with_step,
        }
    }
}
