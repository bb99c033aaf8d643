//! `collate`: converts batches of samples to batches of tensors.

use super::{Batch, Pipeline, Stage, Staged};
use crate::collate::{Collator, Columns, Step, TensorBatch};
use crate::{ErrorKind, Result, Sample};

/// The stage of [`collate`](Pipeline::collate).
#[derive(Debug)]
struct Collated {
    /// The columns for each shape of batch.
    columns: Vec<Columns>,
    /// For each shape, the collator, which reuses the memory of tensors; `None` before the first batch of
    /// that shape.
    collators: Vec<Option<Collator>>,
    seed: u64,
}

impl<S> Pipeline<S, Batch<Sample>> {
    /// Converts batches of samples to batches of tensors: the [`columns`](Columns) write each sample into its
    /// slots of the batch, on the thread that asks for the batch. Call it after [`batch`](Pipeline::batch).
    ///
    /// If a sample cannot be written, its whole batch is an error, and the samples of the batch are lost. (A
    /// [`Loader`](crate::loader::LoaderBuilder::collate) replaces only that sample.) Random transforms draw
    /// the same numbers as in a loader whose dataset has the pipeline's [seed](Pipeline::seed). All outputs
    /// that [`flat_map`](Pipeline::flat_map) makes from one sample draw the same numbers. The memory of
    /// dropped batches is reused.
    ///
    /// ```
    /// use shardstream::prelude::*;
    ///
    /// let samples = (0..6).map(|n| Ok(Sample::new(n.to_string()).with("cls", n)));
    /// let columns = Columns::new().with("label", Scalar::<i64>::new("cls"));
    /// let mut batches = samples.pipeline().batch(3).collate(columns);
    /// let batch = batches.nth(1).unwrap()?;
    /// assert_eq!(batch["label"].as_slice::<i64>()?, [3, 4, 5]);
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    #[doc(alias = "collate_fn")]
    pub fn collate(
        self,
        columns: Columns,
    ) -> Pipeline<Staged<S, impl Stage<Batch<Sample>, Out = TensorBatch>>, TensorBatch> {
        self.collate_each([columns])
    }

    /// Like [`collate`](Pipeline::collate), with one set of columns for each shape of
    /// [`buckets`](Pipeline::buckets), in the order of the shapes.
    pub fn collate_each(
        self,
        columns: impl IntoIterator<Item = Columns>,
    ) -> Pipeline<Staged<S, impl Stage<Batch<Sample>, Out = TensorBatch>>, TensorBatch> {
        let columns: Vec<Columns> = columns.into_iter().collect();
        let collators = vec![None; columns.len()];
        let seed = self.dataset_seed();
        self.then(Collated { columns, collators, seed })
    }
}

impl Collated {
    fn collate(&mut self, batch: &Batch<Sample>) -> Result<TensorBatch> {
        let bucket = batch.bucket();
        let (shape, shapes) = (bucket.unwrap_or_default(), self.columns.len());
        let (Some(columns), Some(collator)) = (self.columns.get(shape), self.collators.get_mut(shape)) else {
            let what = format!(
                "{shapes} sets of columns, and a batch of shape {shape}: call `collate` with one set if \
                 batches have one shape, or `collate_each` with one set for each shape"
            );
            return Err(ErrorKind::Config(what).into());
        };
        // A batch with fewer samples than the collator's batches, such as the last batch, uses a part of a
        // buffer. A batch with more samples needs a new collator.
        let collator = match collator {
            Some(collator) if collator.rows() >= batch.len() => collator,
            too_small => {
                let larger = Collator::new(columns.clone(), batch.len());
                larger.check()?;
                too_small.insert(larger)
            }
        };
        let tensors = collator.collate(batch, batch.valid(), self.seed)?;
        Ok(tensors.at(Step { bucket, ..Step::of(batch.valid()) }))
    }
}

impl Stage<Batch<Sample>> for Collated {
    type Out = TensorBatch;

    fn push(&mut self, batch: Batch<Sample>) -> Option<Result<TensorBatch>> {
        Some(self.collate(&batch))
    }

    fn check(&self) -> Result<()> {
        self.columns.iter().try_for_each(Columns::check)
    }

    fn size_hint(&self, upstream: (usize, Option<usize>)) -> (usize, Option<usize>) {
        upstream
    }
}
