//! Turns items into rows, and the rows of a batch into the batch: a list, or tensors.

use crate::adapters::Batch;
use crate::collate::{Collator, Columns, Row, RowSlots, SlotAllocator, TensorBatch};
use crate::error::{Error, ErrorKind, Result};
use crate::loader::event::Tag;
use crate::panic::catch;
use crate::sample::Sample;
use crate::state::State;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// Clones an item to pad a batch; none if batches are not padded.
pub(in crate::loader) type PadFn<T> = Option<fn(&T) -> T>;

/// How items become a batch: items become rows, and rows a batch.
pub(in crate::loader) struct BatchMaker<T, R, B> {
    /// Writes items into the slots of their batch on the threads, if the stages end in rows.
    pub(in crate::loader) collator: Option<Collator>,
    /// The owners of the tensors' memory.
    pub(in crate::loader) collators: Vec<Collator>,
    pub(in crate::loader) rows: RowMaker<T, R>,
    /// Clones a row to pad a batch; none if batches are not padded.
    pub(in crate::loader) pad: PadFn<R>,
    /// Makes a row of this shape without content, if rows are tensors.
    pub(in crate::loader) blank: Option<BlankRow<R>>,
    /// Makes a batch of rows, of which the first ones (a number) are real, in this shape.
    pub(in crate::loader) batch: MakeBatch<R, B>,
    pub(in crate::loader) with_state: fn(B, State) -> B,
}

/// How items become rows.
pub(in crate::loader) enum RowMaker<T, R> {
    /// An item is a row.
    Same(fn(T) -> R),
    /// Rows are written when their batch is complete, several at once. Each may fail.
    Late {
        /// Gives an item its position.
        adopt: fn(&Tag, T) -> T,
        write: WriteRows<T, R>,
    },
}

/// Writes items into rows of a batch of this shape, whose memory is allocated by the first call for the
/// batch. The function says which dataset an item is of.
type WriteRows<T, R> = Arc<
    dyn Fn(&mut Option<SlotAllocator>, &[T], Option<usize>, &dyn Fn(usize) -> usize) -> Vec<Result<R>>
        + Send
        + Sync,
>;
type BlankRow<R> = Arc<dyn Fn(Option<usize>) -> R + Send + Sync>;
type MakeBatch<R, B> = Arc<dyn Fn(Vec<R>, usize, Option<usize>) -> Result<B> + Send + Sync>;

impl<T, R, B> BatchMaker<T, R, B> {
    /// Bytes of the largest batch, if they are known before it is made.
    pub(in crate::loader) fn batch_bytes(&self) -> Option<u64> {
        let sizes: Option<Vec<u64>> = self.collators.iter().map(Collator::batch_bytes).collect();
        sizes?.into_iter().max()
    }

    /// The row of one item, in memory of its own.
    pub(super) fn row(&self, tag: &Tag, item: T, bucket: Option<usize>) -> Result<R> {
        match &self.rows {
            RowMaker::Same(row) => Ok(row(item)),
            RowMaker::Late { adopt, write } => {
                let written = write(&mut None, &[adopt(tag, item)], bucket, &|_| tag.source.dataset);
                let row = written.into_iter().next().unwrap_or_else(|| Err(not_written()))?;
                // Else it would hold the memory of a whole batch.
                Ok(match self.pad {
                    Some(clone) => clone(&row),
                    None => row,
                })
            }
        }
    }
}

impl<T: 'static> BatchMaker<T, T, Batch<T>> {
    /// Batches that are lists of the items.
    pub(in crate::loader) fn items(pad: PadFn<T>) -> Self {
        let batch = |rows: Vec<T>, valid, bucket| Ok(Batch::padded(rows, valid).in_bucket(bucket));
        BatchMaker {
            collator: None,
            collators: Vec::new(),
            rows: RowMaker::Same(|item| item),
            pad,
            blank: None,
            batch: Arc::new(batch),
            with_state: Batch::at,
        }
    }
}

impl BatchMaker<Row, Row, TensorBatch> {
    /// Tensors of `rows` samples, whose rows the threads have written. With `pads`, batches are padded.
    pub(in crate::loader) fn tensors(columns: Columns, rows: usize, pads: bool) -> Self {
        let collator = Collator::new(columns, rows);
        BatchMaker {
            collator: Some(collator.clone()),
            rows: RowMaker::Same(|row| row),
            ..BatchMaker::of(vec![collator], pads)
        }
    }
}

impl BatchMaker<Sample, Row, TensorBatch> {
    /// Tensors of samples that come from a stateful stage: several threads write their rows when the batch is
    /// complete. `collators` has one for each shape, `seeds` one for each dataset. With `pads`, batches are
    /// padded to their size.
    pub(in crate::loader) fn tensors_after_stage(
        collators: Vec<Collator>,
        seeds: Vec<u64>,
        threads: usize,
        pads: bool,
    ) -> Self {
        let of_shapes = collators.clone();
        let write = move |slots: &mut Option<SlotAllocator>,
                          samples: &[Sample],
                          bucket: Option<usize>,
                          dataset: &dyn Fn(usize) -> usize| {
            let Some(collator) = of_shapes.get(bucket.unwrap_or_default()) else {
                return samples.iter().map(|_| Err(without_columns())).collect();
            };
            let slots = slots.get_or_insert_with(|| collator.slots());
            let row_work = |(number, sample)| RowWork {
                number,
                sample,
                seed: seeds.get(dataset(number)).copied().unwrap_or_default(),
                slots: slots.next_row(),
            };
            write_rows(collator, samples.iter().enumerate().map(row_work).collect(), threads)
        };
        let adopt: fn(&Tag, Sample) -> Sample =
            |tag, sample| sample.with_default_position(tag.position).with_part(tag.part);
        BatchMaker {
            rows: RowMaker::Late { adopt, write: Arc::new(write) },
            ..BatchMaker::of(collators, pads)
        }
    }
}

impl<T: 'static> BatchMaker<T, Row, TensorBatch> {
    /// Batches of tensors of each shape, whose rows are never made.
    fn of(collators: Vec<Collator>, pads: bool) -> Self {
        let (of_shapes, blanks) = (collators.clone(), collators.clone());
        let batch = move |rows, valid, bucket: Option<usize>| match of_shapes.get(bucket.unwrap_or_default())
        {
            Some(collator) => Ok(collator.batch(rows, valid)?.in_bucket(bucket)),
            None => Err(without_columns()),
        };
        let blank = move |bucket: Option<usize>| {
            blanks.get(bucket.unwrap_or_default()).map_or_else(Row::default, Collator::blank_row)
        };
        BatchMaker {
            collator: None,
            collators,
            rows: RowMaker::Same(|_| Row::default()),
            pad: pads.then_some(Row::clone),
            blank: Some(Arc::new(blank)),
            batch: Arc::new(batch),
            with_state: TensorBatch::at,
        }
    }
}

/// A sample to write.
struct RowWork<'a> {
    /// Index of the row.
    number: usize,
    sample: &'a Sample,
    seed: u64,
    slots: RowSlots,
}

/// Writes samples into their slots of a batch, on several threads.
fn write_rows(collator: &Collator, work: Vec<RowWork<'_>>, threads: usize) -> Vec<Result<Row>> {
    let mut rows: Vec<Result<Row>> = work.iter().map(|_| Err(not_written())).collect();
    let write = |RowWork { number, sample, seed, slots }: RowWork<'_>| {
        let row = catch(|| collator.row(sample, seed, slots)).and_then(|row| row);
        (number, row.map_err(|error| sample.locate(error)))
    };
    let threads = threads.min(work.len());
    let work = Mutex::new(work.into_iter());
    let next = || work.lock().unwrap_or_else(PoisonError::into_inner).next();
    let write_all = || std::iter::from_fn(next).map(write).collect::<Vec<_>>();
    let written = thread::scope(|scope| {
        // This thread writes too. If the system starts no more threads, it does all of the work.
        let start = |_| thread::Builder::new().name("shardstream-rows".into()).spawn_scoped(scope, write_all);
        let started: Vec<_> = (1..threads).map_while(|number| start(number).ok()).collect();
        let mut written = write_all();
        written.extend(started.into_iter().flat_map(|thread| thread.join().unwrap_or_default()));
        written
    });
    for (number, row) in written {
        rows[number] = row;
    }
    rows
}

fn without_columns() -> Error {
    ErrorKind::Config("a batch has a shape without columns".into()).into()
}

fn not_written() -> Error {
    ErrorKind::Panicked("a thread that writes tensors".into()).into()
}

impl<T, R, B> Clone for BatchMaker<T, R, B> {
    fn clone(&self) -> Self {
        BatchMaker {
            collator: self.collator.clone(),
            collators: self.collators.clone(),
            rows: self.rows.clone(),
            pad: self.pad,
            blank: self.blank.clone(),
            batch: Arc::clone(&self.batch),
            with_state: self.with_state,
        }
    }
}

impl<T, R> Clone for RowMaker<T, R> {
    fn clone(&self) -> Self {
        match self {
            RowMaker::Same(row) => RowMaker::Same(*row),
            RowMaker::Late { adopt, write } => RowMaker::Late { adopt: *adopt, write: Arc::clone(write) },
        }
    }
}
