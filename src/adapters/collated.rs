//! `collate`: makes tensors of batches of samples.

use super::{Batch, Pipeline, Stage, Staged};
use crate::collate::{Collator, Columns, Step, TensorBatch};
use crate::{ErrorKind, Result, Sample};

/// The stage of [`collate`](Pipeline::collate).
#[derive(Debug)]
struct Collated {
    /// By shape.
    columns: Vec<Columns>,
    /// Those of the shapes that have had a batch, with the memory of their tensors.
    collators: Vec<Option<Collator>>,
    seed: u64,
}

impl<S> Pipeline<S, Batch<Sample>> {
    /// Collates batches of samples into tensors: each sample is written into its slots of the batch's
    /// [`columns`](Columns), on the thread that asks for the batch. Call it after
    /// [`batch`](Pipeline::batch).
    ///
    /// A batch with a sample that cannot be written is an error, and its samples are lost; a
    /// [`Loader`](crate::loader::LoaderBuilder::collate) replaces that sample. Random transforms have the
    /// numbers of a loader whose dataset has the pipeline's [seed](Pipeline::seed), but the outputs that
    /// [`flat_map`](Pipeline::flat_map) makes of a sample share them. The memory of dropped batches is
    /// reused.
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

    /// As [`collate`](Pipeline::collate), with columns for each shape of [`buckets`](Pipeline::buckets), in
    /// the order of the shapes.
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
                "{shapes} sets of columns, and a batch of shape {shape}: give `collate` one for a single \
                 shape, and `collate_each` one for each of several"
            );
            return Err(ErrorKind::Config(what).into());
        };
        // The last batch may be smaller: it takes part of a buffer.
        let collator = match collator {
            Some(collator) if collator.rows() >= batch.len() => collator,
            outgrown => {
                let larger = Collator::new(columns.clone(), batch.len());
                larger.check()?;
                outgrown.insert(larger)
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
