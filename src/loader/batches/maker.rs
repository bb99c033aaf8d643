//! Turns the items of a batch into the batch: a list, or tensors.

use crate::adapters::{Batch, pad_to};
use crate::collate::{Collator, Columns, Row, TensorBatch};
use crate::error::{Error, ErrorKind, Result};
use crate::loader::event::{SourcePass, Tag};
use crate::panic::catch;
use crate::sample::Sample;
use crate::state::State;
use std::sync::Arc;
use std::thread;

/// The items of a batch.
pub(in crate::loader) struct BatchItems<T> {
    pub(in crate::loader) items: Vec<T>,
    /// Number of real items; the others pad the batch.
    pub(in crate::loader) valid: usize,
    /// Number of items of a full batch.
    pub(in crate::loader) size: usize,
    /// The number of its shape, if batches have several.
    pub(in crate::loader) bucket: Option<usize>,
    /// The source of each item, if items can fail while their batch is made.
    pub(in crate::loader) from: Vec<SourcePass>,
}

/// What making a batch needs to know of the run: its state, and whether a failure is skipped.
pub(in crate::loader) trait BatchContext {
    /// Records that an item failed.
    ///
    /// # Errors
    /// The same error, if it is not skipped.
    fn failed(&mut self, from: &SourcePass, error: Error) -> Result<()>;

    /// Records that an item did not fail.
    fn passed(&mut self);

    /// The state after the batch.
    fn state(&self) -> State;
}

type MakeBatch<T, B> = Arc<dyn Fn(BatchItems<T>, &mut dyn BatchContext) -> Result<B> + Send + Sync>;

/// How items become a batch.
pub(in crate::loader) struct BatchMaker<T, B> {
    /// Writes items into the slots of their batch on the threads, if the stages end in rows.
    pub(in crate::loader) collator: Option<Collator>,
    /// The owners of the tensors' memory.
    pub(in crate::loader) collators: Vec<Collator>,
    /// Gives an item its position, if it can fail while its batch is made.
    pub(in crate::loader) adopt: Option<fn(&Tag, T) -> T>,
    pub(in crate::loader) batch: MakeBatch<T, B>,
}

impl<T, B> BatchMaker<T, B> {
    /// Bytes of the largest batch, if they are known before it is made.
    pub(in crate::loader) fn batch_bytes(&self) -> Option<u64> {
        let sizes: Option<Vec<u64>> = self.collators.iter().map(Collator::batch_bytes).collect();
        sizes?.into_iter().max()
    }
}

impl<T: 'static> BatchMaker<T, Batch<T>> {
    /// Batches that are lists of the items.
    pub(in crate::loader) fn items() -> Self {
        let batch = |BatchItems { items, valid, bucket, .. }: BatchItems<T>,
                     context: &mut dyn BatchContext| {
            Ok(Batch::padded(items, valid).in_bucket(bucket).at(context.state()))
        };
        BatchMaker { collator: None, collators: Vec::new(), adopt: None, batch: Arc::new(batch) }
    }
}

impl BatchMaker<Row, TensorBatch> {
    /// Tensors of `rows` samples, whose rows the threads have written.
    pub(in crate::loader) fn tensors(columns: Columns, rows: usize) -> Self {
        let collator = Collator::new(columns, rows);
        let made = collator.clone();
        let batch = move |BatchItems { items, valid, .. }: BatchItems<Row>,
                          context: &mut dyn BatchContext| {
            Ok(made.batch(items, valid)?.at(context.state()))
        };
        let collators = vec![collator.clone()];
        BatchMaker { collator: Some(collator), collators, adopt: None, batch: Arc::new(batch) }
    }
}

impl BatchMaker<Sample, TensorBatch> {
    /// Tensors of samples that come from a stateful stage: several threads write their rows when the batch is
    /// complete. `collators` has one for each shape, `seeds` one for each dataset. With `pads`, batches are
    /// padded to their size.
    pub(in crate::loader) fn tensors_after_stage(
        collators: Vec<Collator>,
        seeds: Vec<u64>,
        threads: usize,
        pads: bool,
    ) -> Self {
        let owners = collators.clone();
        let batch = move |items: BatchItems<Sample>, context: &mut dyn BatchContext| {
            let BatchItems { items: mut samples, valid, size, bucket, from } = items;
            // A batch without a real sample has one that pads it.
            samples.truncate(valid.max(1));
            let Some(collator) = collators.get(bucket.unwrap_or_default()) else {
                return Err(ErrorKind::Config("a batch has a shape without columns".into()).into());
            };
            let seed = |at: usize| {
                let dataset = from.get(at).map_or(0, |from| from.dataset);
                seeds.get(dataset).copied().unwrap_or_default()
            };
            let mut rows = Vec::with_capacity(size);
            for (at, row) in write_rows(collator, &samples, seed, threads).into_iter().enumerate() {
                match (row, from.get(at)) {
                    (Ok(row), _) => {
                        rows.push(row);
                        context.passed();
                    }
                    (Err(error), Some(from)) => context.failed(from, error)?,
                    // The sample only pads the batch.
                    (Err(error), None) => return Err(error),
                }
            }
            let valid = rows.len().min(valid);
            if pads && !pad_to(&mut rows, size, Row::clone, None) {
                let what = "all samples of a batch failed: there is none to pad it with";
                return Err(ErrorKind::Config(what.into()).into());
            }
            Ok(collator.batch(rows, valid)?.in_bucket(bucket).at(context.state()))
        };
        let adopt: fn(&Tag, Sample) -> Sample =
            |tag, sample| sample.with_default_position(tag.position).with_part(tag.part);
        BatchMaker { collator: None, collators: owners, adopt: Some(adopt), batch: Arc::new(batch) }
    }
}

/// Writes samples into their slots of a batch, on several threads.
fn write_rows(
    collator: &Collator,
    samples: &[Sample],
    seed: impl Fn(usize) -> u64 + Sync,
    threads: usize,
) -> Vec<Result<Row>> {
    let mut slots = collator.slots();
    let mut work: Vec<_> =
        samples.iter().enumerate().map(|(at, sample)| (at, sample, slots.next_row())).collect();
    let write = |(at, sample, slot)| {
        let sample: &Sample = sample;
        catch(|| collator.row(sample, seed(at), slot))
            .and_then(|row| row)
            .map_err(|error| sample.locate(error))
    };
    let share = samples.len().div_ceil(threads.max(1)).max(1);
    if share >= samples.len() {
        return work.into_iter().map(write).collect();
    }
    thread::scope(|scope| {
        let mut running = Vec::with_capacity(threads);
        while !work.is_empty() {
            let rest = work.split_off(share.min(work.len()));
            let mine = std::mem::replace(&mut work, rest);
            let write = &write;
            running.push(scope.spawn(move || mine.into_iter().map(write).collect::<Vec<_>>()));
        }
        let panicked = || vec![Err(ErrorKind::Panicked("a thread that writes tensors".into()).into())];
        running.into_iter().flat_map(|thread| thread.join().unwrap_or_else(|_| panicked())).collect()
    })
}

impl<T, B> Clone for BatchMaker<T, B> {
    fn clone(&self) -> Self {
        BatchMaker {
            collator: self.collator.clone(),
            collators: self.collators.clone(),
            adopt: self.adopt,
            batch: Arc::clone(&self.batch),
        }
    }
}
