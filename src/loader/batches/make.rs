//! What batches are made of, and how.

use crate::adapters::{Batch, catch};
use crate::collate::{Collator, Columns, Row, TensorBatch};
use crate::error::{Error, ErrorKind, Result};
use crate::loader::event::{SourcePass, Tag};
use crate::sample::Sample;
use crate::state::State;
use std::sync::Arc;
use std::thread;

/// The items of a batch.
pub(in crate::loader) struct Items<T> {
    pub(in crate::loader) items: Vec<T>,
    /// How many of them are real; the others pad the batch.
    pub(in crate::loader) valid: usize,
    /// How many items a full batch has.
    pub(in crate::loader) size: usize,
    /// Which shape it has, where there are several.
    pub(in crate::loader) bucket: Option<usize>,
    /// Where they come from, of batches that may fail in parts.
    pub(in crate::loader) from: Vec<SourcePass>,
}

/// Where the job is, and what happens to items that fail while their batch is made.
pub(in crate::loader) trait Judge {
    /// # Errors
    /// The same error, where it is not to be skipped.
    fn failed(&mut self, from: &SourcePass, error: Error) -> Result<()>;

    /// An item did not fail.
    fn passed(&mut self);

    /// Where the job is after the batch.
    fn state(&self) -> State;
}

type MakeBatch<T, B> = Arc<dyn Fn(Items<T>, &mut dyn Judge) -> Result<B> + Send + Sync>;

/// How items become batches.
pub(in crate::loader) struct Make<T, B> {
    /// Where items write into the slots of their batch.
    pub(in crate::loader) collator: Option<Collator>,
    /// Whose memory the tensors of batches have.
    pub(in crate::loader) collators: Vec<Collator>,
    /// Gives an item the position at which it stands, where it may fail later.
    pub(in crate::loader) adopt: Option<fn(&Tag, T) -> T>,
    pub(in crate::loader) batch: MakeBatch<T, B>,
}

impl<T, B> Make<T, B> {
    /// The bytes of the largest batch, where its memory is known before it is made.
    pub(in crate::loader) fn batch_bytes(&self) -> Option<u64> {
        let sizes: Option<Vec<u64>> = self.collators.iter().map(Collator::batch_bytes).collect();
        sizes?.into_iter().max()
    }
}

impl<T: 'static> Make<T, Batch<T>> {
    /// The items as they are.
    pub(in crate::loader) fn items() -> Self {
        let batch = |Items { items, valid, bucket, .. }: Items<T>, judge: &mut dyn Judge| {
            Ok(Batch::padded(items, valid).in_bucket(bucket).at(judge.state()))
        };
        Make { collator: None, collators: Vec::new(), adopt: None, batch: Arc::new(batch) }
    }
}

impl Make<Row, TensorBatch> {
    /// Tensors of `rows` samples, which the threads have written.
    pub(in crate::loader) fn tensors(columns: Columns, rows: usize) -> Self {
        let collator = Collator::new(columns, rows);
        let made = collator.clone();
        let batch = move |Items { items, valid, .. }: Items<Row>, judge: &mut dyn Judge| {
            Ok(made.batch(items, valid)?.at(judge.state()))
        };
        let collators = vec![collator.clone()];
        Make { collator: Some(collator), collators, adopt: None, batch: Arc::new(batch) }
    }
}

impl Make<Sample, TensorBatch> {
    /// Tensors of samples that come from a stage with a memory, written by several threads when their batch
    /// is complete. There is a collator for each shape, and a seed for each dataset. `pads` where batches are
    /// filled up.
    pub(in crate::loader) fn behind(
        collators: Vec<Collator>,
        seeds: Vec<u64>,
        threads: usize,
        pads: bool,
    ) -> Self {
        let owners = collators.clone();
        let batch = move |items: Items<Sample>, judge: &mut dyn Judge| {
            let Items { items: mut samples, valid, size, bucket, from } = items;
            // One sample may pad a batch that has no other.
            samples.truncate(valid.max(1));
            let Some(collator) = collators.get(bucket.unwrap_or_default()) else {
                return Err(ErrorKind::Config("a batch has a shape without columns".into()).into());
            };
            let seed = |at: usize| {
                let dataset = from.get(at).map_or(0, |from| from.dataset);
                seeds.get(dataset).copied().unwrap_or_default()
            };
            let mut rows = Vec::with_capacity(size);
            for (at, row) in written(collator, &samples, seed, threads).into_iter().enumerate() {
                match (row, from.get(at)) {
                    (Ok(row), _) => {
                        rows.push(row);
                        judge.passed();
                    }
                    (Err(error), Some(from)) => judge.failed(from, error)?,
                    // It only pads the batch.
                    (Err(error), None) => return Err(error),
                }
            }
            let valid = rows.len().min(valid);
            if pads && rows.len() < size {
                let Some(last) = rows.last().cloned() else {
                    let what = "all samples of a batch failed: there is none to pad it with";
                    return Err(ErrorKind::Config(what.into()).into());
                };
                rows.resize_with(size, || last.clone());
            }
            Ok(collator.batch(rows, valid)?.in_bucket(bucket).at(judge.state()))
        };
        let adopt: fn(&Tag, Sample) -> Sample =
            |tag, sample| sample.with_default_position(tag.position).with_part(tag.part);
        Make { collator: None, collators: owners, adopt: Some(adopt), batch: Arc::new(batch) }
    }
}

/// Writes samples into their places in a batch, on several threads.
fn written(
    collator: &Collator,
    samples: &[Sample],
    seed: impl Fn(usize) -> u64 + Sync,
    threads: usize,
) -> Vec<Result<Row>> {
    let mut seats = collator.slots();
    let mut places: Vec<_> =
        samples.iter().enumerate().map(|(at, sample)| (at, sample, seats.next_row())).collect();
    let write = |(at, sample, seat)| {
        let sample: &Sample = sample;
        catch(|| collator.row(sample, seed(at), seat))
            .and_then(|row| row)
            .map_err(|error| sample.locate(error))
    };
    let each = samples.len().div_ceil(threads.max(1)).max(1);
    if each >= samples.len() {
        return places.into_iter().map(write).collect();
    }
    thread::scope(|scope| {
        let mut running = Vec::with_capacity(threads);
        while !places.is_empty() {
            let rest = places.split_off(each.min(places.len()));
            let mine = std::mem::replace(&mut places, rest);
            let write = &write;
            running.push(scope.spawn(move || mine.into_iter().map(write).collect::<Vec<_>>()));
        }
        let panicked = || vec![Err(ErrorKind::Panicked("a thread that writes tensors".into()).into())];
        running.into_iter().flat_map(|thread| thread.join().unwrap_or_else(|_| panicked())).collect()
    })
}

impl<T, B> Clone for Make<T, B> {
    fn clone(&self) -> Self {
        Make {
            collator: self.collator.clone(),
            collators: self.collators.clone(),
            adopt: self.adopt,
            batch: Arc::clone(&self.batch),
        }
    }
}
