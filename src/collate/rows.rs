//! Slots: what samples write into, before their batch is one.

use super::batch::TensorBatch;
use super::cell::{Cell, Content, Output, Shape};
use super::column::Columns;
use crate::error::{ErrorKind, Result};
use crate::sample::{DType, Sample};
use crate::tensor::{Buffer, Pool, Tensor};
use bytes::BytesMut;
use smallvec::SmallVec;
use std::fmt;
use std::sync::Arc;

/// The place of a sample in a batch: a slot for each tensor of a fixed shape.
pub(crate) type Seat = SmallVec<[BytesMut; INLINE]>;

/// A sample with at most this many tensors costs no allocation.
pub(super) const INLINE: usize = 4;

/// A sample in its place in a batch to be. It says nothing before it is in a [`TensorBatch`].
#[derive(Debug)]
pub struct Row {
    contents: SmallVec<[Content; INLINE]>,
}

/// A copy in memory of its own.
impl Clone for Row {
    fn clone(&self) -> Self {
        let copy = |content: &Content| match content {
            Content::Slot(slot) => Content::Slot(slot.clone()),
            Content::Piece(piece) => Content::Piece(piece.clone()),
        };
        Row { contents: self.contents.iter().map(copy).collect() }
    }
}

/// Makes batches of samples; cheap to clone.
#[derive(Clone)]
pub(crate) struct Collator(Arc<Inner>);

struct Inner {
    columns: Columns,
    names: Arc<[Arc<str>]>,
    /// How many samples make a batch.
    rows: usize,
    /// For each output, the bytes of a sample, none for ragged ones, and where the buffers of batches come
    /// from.
    pools: Vec<(Option<usize>, Arc<Pool>)>,
}

impl Columns {
    /// Makes a batch of samples: for pipelines without a [loader](crate::Loader), on this thread.
    ///
    /// Samples that were made by hand all have the same random numbers, and the memory of batches is not used
    /// again.
    ///
    /// # Errors
    /// The first of a sample, and [`ErrorKind::Config`](crate::ErrorKind::Config) for columns that make no
    /// sense, such as two of one name.
    pub fn collate(&self, samples: impl IntoIterator<Item = Sample>) -> Result<TensorBatch> {
        self.check()?;
        let samples: Vec<Sample> = samples.into_iter().collect();
        let collator = Collator::new(self.clone(), samples.len());
        let mut seats = collator.seats();
        let row = |sample: &Sample| collator.row(sample, self.seed.unwrap_or(0), seats.next_seat());
        let rows = samples.iter().map(row).collect::<Result<_>>()?;
        collator.batch(rows, samples.len())
    }
}

impl Collator {
    /// For batches of `rows` samples, of columns that were [checked](Columns::check).
    pub(crate) fn new(columns: Columns, rows: usize) -> Self {
        let pool = |size: Option<usize>| match size {
            Some(size) => {
                let bytes = size.saturating_mul(rows);
                let memory = columns.memory.clone();
                (Some(size), memory.map_or_else(|| Pool::new(bytes), |memory| Pool::pinned(bytes, memory)))
            }
            None => (None, Pool::of_any_size()),
        };
        let pools = columns.outputs.iter().map(|output| pool(output.size())).collect();
        let names = columns.tensors().into();
        Collator(Arc::new(Inner { columns, names, rows, pools }))
    }

    /// Whether the columns make sense, and a batch of them.
    pub(crate) fn check(&self) -> Result<()> {
        self.0.columns.check()?;
        let size = self.row_size().checked_mul(self.0.rows);
        // An allocation that fails later would end the process.
        let fits = |size| Vec::<u8>::new().try_reserve_exact(size).is_ok();
        if size.is_none_or(|size| size > isize::MAX as usize / 2 || !fits(size)) {
            let (rows, size) = (self.0.rows, self.row_size());
            let what = format!("batches of {rows} samples of {size} bytes are larger than any memory");
            return Err(ErrorKind::Config(what).into());
        }
        Ok(())
    }

    /// Begins to give out the places of batches.
    pub(crate) fn seats(&self) -> Seats {
        Seats { collator: self.clone(), rest: Seat::new(), left: 0 }
    }

    /// The bytes that a sample takes in tensors of a fixed shape.
    pub(crate) fn row_size(&self) -> usize {
        self.0.pools.iter().filter_map(|(size, _)| *size).fold(0, usize::saturating_add)
    }

    /// The bytes of a batch, where all tensors have a fixed shape.
    pub(crate) fn batch_bytes(&self) -> Option<u64> {
        let row = self.0.pools.iter().try_fold(0usize, |sum, (size, _)| sum.checked_add((*size)?));
        row.and_then(|row| row.checked_mul(self.0.rows)).map(|bytes| bytes as u64)
    }

    /// Bytes of tensors that somebody has.
    pub(crate) fn bytes_in_use(&self) -> u64 {
        self.0.pools.iter().map(|(_, pool)| pool.bytes_in_use()).sum()
    }

    /// Bytes of tensors that wait to be used again.
    pub(crate) fn bytes_idle(&self) -> u64 {
        self.0.pools.iter().map(|(_, pool)| pool.bytes_idle()).sum()
    }

    /// Writes a sample into its place.
    pub(crate) fn row(&self, sample: &Sample, seed: u64, seat: Seat) -> Result<Row> {
        let mut slots = seat.into_iter();
        let columns = &self.0.columns;
        let mut cells: SmallVec<[Cell; INLINE]> = SmallVec::with_capacity(columns.outputs.len());
        for output in &columns.outputs {
            cells.push(Cell::new(output, |size| slots.next().unwrap_or_else(|| Pool::single(size))));
        }
        let seed = columns.seed.unwrap_or(seed);
        for named in &columns.columns {
            let cells = &mut cells[named.outputs.clone()];
            named.column.write(sample, seed, cells).map_err(|error| sample.locate(error))?;
        }
        Ok(Row { contents: cells.into_iter().map(|cell| cell.content).collect() })
    }

    /// Makes a batch of rows, of which the first `valid` are samples.
    pub(crate) fn batch(&self, rows: Vec<Row>, valid: usize) -> Result<TensorBatch> {
        let count = rows.len();
        let mut columns: Vec<Vec<Content>> =
            self.0.columns.outputs.iter().map(|_| Vec::with_capacity(count)).collect();
        for row in rows {
            for (column, content) in columns.iter_mut().zip(row.contents) {
                column.push(content);
            }
        }
        let mut tensors = Vec::with_capacity(self.0.names.len());
        let mut columns = columns.into_iter().zip(&self.0.columns.outputs).zip(&self.0.pools);
        for named in &self.0.columns.columns {
            let begin = tensors.len();
            for ((column, output), pool) in columns.by_ref().take(named.outputs.len()) {
                let (_, pool) = pool;
                match &output.shape {
                    Shape::Fixed(shape) => {
                        let shape = std::iter::once(count).chain(shape.iter().copied()).collect();
                        let buffer = Buffer::pooled(joined(column, pool), pool);
                        tensors.push(Tensor::new(output.dtype, shape, buffer)?);
                    }
                    Shape::Ragged(_) => tensors.extend(concatenated(column, output, pool)?),
                }
            }
            if let Some(names) = &named.finished {
                let finished = named.column.finish(tensors.split_off(begin), valid)?;
                if finished.len() != names.len() {
                    let (made, announced) = (finished.len(), names.len());
                    let what = format!("a column made {made} tensors of the {announced} that it announced");
                    return Err(ErrorKind::Config(what).into());
                }
                tensors.extend(finished);
            }
        }
        Ok(TensorBatch::new(Arc::clone(&self.0.names), tensors, count, valid))
    }
}

/// The slots of a tensor as one piece of memory: without a copy as long as each begins where the last one
/// ends.
fn joined(cells: Vec<Content>, pool: &Pool) -> BytesMut {
    let mut slots = cells.into_iter().filter_map(|content| match content {
        Content::Slot(slot) => Some(slot),
        Content::Piece(_) => None,
    });
    // Of no rows; but it must be aligned for numbers, as any other.
    let Some(mut whole) = slots.next() else { return Pool::single(0) };
    let copied = |parts: &mut dyn Iterator<Item = BytesMut>| {
        let mut copy = pool.take();
        copy.clear();
        parts.for_each(|part| copy.extend_from_slice(&part));
        copy
    };
    while let Some(slot) = slots.next() {
        // What is joined must be of one buffer; `unsplit` would copy the rest to where it is not aligned.
        if whole.as_ptr().addr() + whole.len() != slot.as_ptr().addr() || whole.capacity() != whole.len() {
            // A sample failed in between, or this one is a copy that fills the batch up.
            return copied(&mut [whole, slot].into_iter().chain(slots));
        }
        whole.unsplit(slot);
    }
    if Pool::is_aligned(&whole) { whole } else { copied(&mut std::iter::once(whole)) }
}

/// The rows of all pieces one after the other, and where those of each begin.
fn concatenated(cells: Vec<Content>, output: &Output, pool: &Arc<Pool>) -> Result<[Tensor; 2]> {
    let pieces = || {
        cells.iter().map(|content| match content {
            Content::Piece(piece) => &piece[..],
            Content::Slot(_) => &[],
        })
    };
    // At least 1, as `Columns::check` sees to.
    let row = output.row_size().unwrap_or(0).max(1);
    let mut offsets = Tensor::zeros(DType::I64, vec![cells.len() + 1])?;
    let mut end = 0;
    for (offset, piece) in offsets.as_mut_slice::<i64>()?[1..].iter_mut().zip(pieces()) {
        end += piece.len();
        *offset = (end / row) as i64;
    }
    let shape: Vec<usize> = std::iter::once(end / row).chain(output.row().iter().copied()).collect();
    let mut values = pool.take_empty(end);
    pieces().for_each(|piece| values.extend_from_slice(piece));
    // What is no whole row is no row.
    values.truncate(end / row * row);
    Ok([Tensor::new(output.dtype, shape, Buffer::pooled(values, pool))?, offsets])
}

/// The places of batches in their order.
pub(crate) struct Seats {
    collator: Collator,
    /// Of each tensor what has not been given out.
    rest: Seat,
    /// How many places that is.
    left: usize,
}

impl Seats {
    /// The next place.
    pub(crate) fn next_seat(&mut self) -> Seat {
        let inner = &self.collator.0;
        if self.left == 0 {
            let fixed = inner.pools.iter().filter(|(size, _)| size.is_some());
            self.rest = fixed.map(|(_, pool)| pool.take()).collect();
            self.left = inner.rows.max(1);
        }
        self.left -= 1;
        let sizes = inner.pools.iter().filter_map(|(size, _)| *size);
        self.rest.iter_mut().zip(sizes).map(|(rest, size)| rest.split_to(size.min(rest.len()))).collect()
    }

    /// Ends a batch: the next place is the first of another one.
    pub(crate) fn end_batch(&mut self) {
        self.rest.clear();
        self.left = 0;
    }
}

impl fmt::Debug for Collator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Collator").field("columns", &self.0.columns).field("rows", &self.0.rows).finish()
    }
}
