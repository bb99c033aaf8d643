//! `Collator`: writes samples into slots, and joins the slots into the tensors of batches.

use super::batch::TensorBatch;
use super::cell::{Cell, CellContent, Output, Shape};
use super::column::Columns;
use crate::error::{ErrorKind, Result};
use crate::sample::{DType, Sample};
use crate::tensor::{BatchMemory, Tensor, TensorBuffer, TensorPool};
use bytes::BytesMut;
use smallvec::SmallVec;
use std::fmt;
use std::sync::Arc;

/// The slots of a sample in a batch, one for each tensor of a fixed shape.
pub(crate) type RowSlots = SmallVec<[BytesMut; INLINE]>;

/// If a batch has at most this number of tensors, the list of a sample's slots needs no allocation.
pub(super) const INLINE: usize = 4;

/// A sample that has been written into its slots, before its batch exists. The slots' content can be read
/// only after the slots are part of a [`TensorBatch`].
#[derive(Debug, Default)]
pub(crate) struct Row {
    contents: SmallVec<[CellContent; INLINE]>,
}

impl Row {
    /// Removes and returns the slot of an output; `None` if the output is ragged.
    fn take_slot(&mut self, output: usize) -> Option<BytesMut> {
        match self.contents.get_mut(output) {
            Some(CellContent::Slot(slot)) => Some(std::mem::take(slot)),
            _ => None,
        }
    }

    /// The bytes of a ragged output; empty for an output of a fixed shape.
    fn piece(&self, output: usize) -> &[u8] {
        match self.contents.get(output) {
            Some(CellContent::Piece(piece)) => piece,
            _ => &[],
        }
    }
}

/// Copies the slots into new memory.
impl Clone for Row {
    fn clone(&self) -> Self {
        let copy = |content: &CellContent| match content {
            CellContent::Slot(slot) => CellContent::Slot(slot.clone()),
            CellContent::Piece(piece) => CellContent::Piece(piece.clone()),
        };
        Row { contents: self.contents.iter().map(copy).collect() }
    }
}

/// Makes batches from samples. It is cheap to clone.
#[derive(Clone)]
pub(crate) struct Collator(Arc<CollatorInner>);

struct CollatorInner {
    columns: Columns,
    /// For each column, the salt that is combined with the seed.
    salts: Vec<u64>,
    names: Arc<[Arc<str>]>,
    /// The number of samples in a batch.
    rows: usize,
    /// For each output, the pool of its buffers.
    pools: Vec<OutputPool>,
}

/// The buffers of an output.
struct OutputPool {
    /// The number of bytes of a sample; `None` if the output is ragged.
    size: Option<usize>,
    pool: Arc<TensorPool>,
}

impl OutputPool {
    /// The pool of an output, for batches of `rows` samples. Only buffers of a fixed size are pinned.
    fn new(output: &Output, rows: usize, memory: Option<&Arc<dyn BatchMemory>>) -> Self {
        let Some(size) = output.size() else {
            return OutputPool { size: None, pool: TensorPool::of_any_size() };
        };
        let bytes = size.saturating_mul(rows);
        let pool = match memory {
            None => TensorPool::new(bytes),
            Some(memory) => TensorPool::pinned(bytes, Arc::clone(memory)),
        };
        OutputPool { size: Some(size), pool }
    }
}

impl Columns {
    /// Makes a batch of samples on this thread, for pipelines without a [loader](crate::Loader).
    ///
    /// The memory of batches is not reused. Samples that were not read from a dataset all have the same
    /// position, so columns draw the same random numbers for all of them, unless
    /// [positions](Sample::with_position) are set.
    ///
    /// # Errors
    /// The first error of a sample. [`ErrorKind::Config`](crate::ErrorKind::Config) for invalid columns, such
    /// as two with the same name.
    pub fn collate(&self, samples: impl IntoIterator<Item = Sample>) -> Result<TensorBatch> {
        self.check()?;
        let samples: Vec<Sample> = samples.into_iter().collect();
        Collator::new(self.clone(), samples.len()).collate(&samples, samples.len(), 0)
    }
}

impl Collator {
    /// A collator for batches of `rows` samples. The columns must have been [checked](Columns::check).
    pub(crate) fn new(columns: Columns, rows: usize) -> Self {
        let pool = |output| OutputPool::new(output, rows, columns.memory.as_ref());
        let pools = columns.outputs.iter().map(pool).collect();
        let names = columns.tensors().into();
        let salts = columns.salts();
        Collator(Arc::new(CollatorInner { columns, salts, names, rows, pools }))
    }

    /// Checks the columns, and that a batch fits into memory.
    pub(crate) fn check(&self) -> Result<()> {
        self.0.columns.check()?;
        let size = self.row_size().checked_mul(self.0.rows);
        // Try an allocation here: an allocation that fails later would abort the process.
        let fits = |size| Vec::<u8>::new().try_reserve_exact(size).is_ok();
        if !size.is_some_and(|size| TensorPool::is_possible(size) && fits(size)) {
            let (rows, size) = (self.0.rows, self.row_size());
            let what = format!("batches of {rows} samples of {size} bytes are larger than any memory");
            return Err(ErrorKind::Config(what).into());
        }
        Ok(())
    }

    /// The largest number of samples in a batch.
    pub(crate) fn rows(&self) -> usize {
        self.0.rows
    }

    /// Makes a batch of samples on this thread. The first `valid` samples are real; the remaining samples are
    /// padding.
    pub(crate) fn collate(&self, samples: &[Sample], valid: usize, seed: u64) -> Result<TensorBatch> {
        let mut allocator = self.slots();
        let row = |sample: &Sample| self.row(sample, seed, allocator.next_row());
        let rows = samples.iter().map(row).collect::<Result<_>>()?;
        self.batch(rows, valid)
    }

    /// Whether making a batch from rows may fail because it calls the caller's code:
    /// [`Column::finish`](super::Column::finish), or a driver that pins memory.
    pub(crate) fn may_fail(&self) -> bool {
        let columns = &self.0.columns;
        columns.memory.is_some() || columns.columns.iter().any(|named| named.finished.is_some())
    }

    pub(crate) fn slots(&self) -> SlotAllocator {
        SlotAllocator { collator: self.clone(), rest: RowSlots::new(), left: 0 }
    }

    /// How many bytes a sample takes in the tensors of a fixed shape.
    pub(crate) fn row_size(&self) -> usize {
        self.0.pools.iter().filter_map(|pool| pool.size).fold(0, usize::saturating_add)
    }

    /// The number of bytes of a batch; `None` if a tensor is ragged.
    pub(crate) fn batch_bytes(&self) -> Option<u64> {
        let row = self.0.pools.iter().try_fold(0usize, |sum, pool| sum.checked_add(pool.size?));
        row.and_then(|row| row.checked_mul(self.0.rows)).map(|bytes| bytes as u64)
    }

    /// The number of bytes of tensors in use.
    pub(crate) fn bytes_in_use(&self) -> u64 {
        self.0.pools.iter().map(|output| output.pool.bytes_in_use()).sum()
    }

    /// The number of bytes of idle buffers, ready for reuse.
    pub(crate) fn bytes_idle(&self) -> u64 {
        self.0.pools.iter().map(|output| output.pool.bytes_idle()).sum()
    }

    /// Writes a sample into its slots.
    pub(crate) fn row(&self, sample: &Sample, seed: u64, mut row_slots: RowSlots) -> Result<Row> {
        let mut slots = row_slots.iter_mut().map(std::mem::take);
        let columns = &self.0.columns;
        let seed = columns.seed.unwrap_or(seed);
        let mut cell =
            |output| Cell::new(output, |size| slots.next().unwrap_or_else(|| TensorPool::unpooled(size)));
        let mut row = Row { contents: SmallVec::with_capacity(columns.outputs.len()) };
        for (named, salt) in columns.columns.iter().zip(&self.0.salts) {
            let write = |cells: &mut [Cell]| {
                named.column.write(sample, seed ^ salt, cells).map_err(|error| sample.locate(error))
            };
            match &columns.outputs[named.outputs.clone()] {
                // Most columns have one output, and need no list of cells.
                [output] => {
                    let mut cell = cell(output);
                    write(std::slice::from_mut(&mut cell))?;
                    row.contents.push(cell.content);
                }
                outputs => {
                    let mut cells: SmallVec<[Cell; INLINE]> = outputs.iter().map(&mut cell).collect();
                    write(&mut cells)?;
                    row.contents.extend(cells.drain(..).map(|cell| cell.content));
                }
            }
        }
        Ok(row)
    }

    /// A row of zeros in newly allocated memory. Its ragged outputs are empty.
    pub(crate) fn blank_row(&self) -> Row {
        let blank = |output| Cell::standalone(output).content;
        Row { contents: self.0.columns.outputs.iter().map(blank).collect() }
    }

    /// Makes a batch of rows. The first `valid` rows are samples; the remaining rows are padding.
    pub(crate) fn batch(&self, mut rows: Vec<Row>, valid: usize) -> Result<TensorBatch> {
        let count = rows.len();
        let mut tensors = Vec::with_capacity(self.0.names.len());
        for named in &self.0.columns.columns {
            let begin = tensors.len();
            for number in named.outputs.clone() {
                let output = &self.0.columns.outputs[number];
                let pool = &self.0.pools[number].pool;
                match &output.shape {
                    Shape::Fixed(shape) => {
                        let shape = std::iter::once(count).chain(shape.iter().copied()).collect();
                        let slots = rows.iter_mut().filter_map(|row| row.take_slot(number));
                        let buffer = TensorBuffer::pooled(joined(slots, pool), pool);
                        pool.check_pinned()?;
                        tensors.push(Tensor::new(output.dtype, shape, buffer)?);
                    }
                    Shape::Ragged(_) => {
                        let pieces = || rows.iter().map(|row| row.piece(number));
                        tensors.extend(concatenated(pieces, output, pool)?);
                    }
                }
            }
            if let Some(names) = &named.finished {
                let finished = named.column.finish(tensors.split_off(begin), valid)?;
                if finished.len() != names.len() {
                    let (made, announced) = (finished.len(), names.len());
                    let what = format!(
                        "`Column::finish` of a column made {made} tensors, and `Column::finished` \
                         announced {announced}"
                    );
                    return Err(ErrorKind::Config(what).into());
                }
                tensors.extend(finished);
            }
        }
        Ok(TensorBatch::new(Arc::clone(&self.0.names), tensors, count, valid))
    }
}

/// Joins the slots of a tensor into one buffer. Nothing is copied if each slot begins where the previous one
/// ends.
fn joined(mut slots: impl Iterator<Item = BytesMut>, pool: &TensorPool) -> BytesMut {
    // The buffer of a tensor without rows must be aligned too.
    let Some(mut whole) = slots.next() else { return TensorPool::unpooled(0) };
    let copied = |parts: &mut dyn Iterator<Item = BytesMut>| {
        let mut copy = pool.take();
        copy.clear();
        parts.for_each(|part| copy.extend_from_slice(&part));
        copy
    };
    while let Some(slot) = slots.next() {
        // `unsplit` is called only for adjacent slots of one buffer. If two slots are not adjacent, it would
        // copy them, and the copy might not be aligned.
        if whole.as_ptr().addr() + whole.len() != slot.as_ptr().addr() || whole.capacity() != whole.len() {
            // The two slots are not adjacent: a sample between them failed, or the second slot is padding.
            return copied(&mut [whole, slot].into_iter().chain(slots));
        }
        whole.unsplit(slot);
    }
    if TensorPool::is_aligned(&whole) { whole } else { copied(&mut std::iter::once(whole)) }
}

/// Concatenates the rows of all pieces. Returns the tensor of the rows, and the tensor of offsets.
fn concatenated<'a, P: ExactSizeIterator<Item = &'a [u8]>>(
    pieces: impl Fn() -> P,
    output: &Output,
    pool: &Arc<TensorPool>,
) -> Result<[Tensor; 2]> {
    // `Columns::check` made sure that a row has at least one byte.
    let row = output.row_size().unwrap_or(0).max(1);
    let mut offsets = Tensor::zeros(DType::I64, vec![pieces().len() + 1])?;
    let mut end = 0;
    for (offset, piece) in offsets.as_mut_slice::<i64>()?[1..].iter_mut().zip(pieces()) {
        end += piece.len();
        *offset = (end / row) as i64;
    }
    let shape: Vec<usize> = std::iter::once(end / row).chain(output.row().iter().copied()).collect();
    let mut values = pool.take_empty(end);
    pieces().for_each(|piece| values.extend_from_slice(piece));
    // An incomplete row is dropped.
    values.truncate(end / row * row);
    Ok([Tensor::new(output.dtype, shape, TensorBuffer::pooled(values, pool))?, offsets])
}

/// Returns the slots of batches, row by row.
pub(crate) struct SlotAllocator {
    collator: Collator,
    /// For each tensor, the memory of the current batch's remaining rows.
    rest: RowSlots,
    /// The number of rows that remain.
    left: usize,
}

impl SlotAllocator {
    /// The slots of the next row.
    pub(crate) fn next_row(&mut self) -> RowSlots {
        let inner = &self.collator.0;
        if self.left == 0 {
            let fixed = inner.pools.iter().filter(|output| output.size.is_some());
            self.rest = fixed.map(|output| output.pool.take()).collect();
            self.left = inner.rows.max(1);
        }
        self.left -= 1;
        let sizes = inner.pools.iter().filter_map(|output| output.size);
        self.rest.iter_mut().zip(sizes).map(|(rest, size)| rest.split_to(size.min(rest.len()))).collect()
    }

    /// Ends the current batch: the next row is the first of another batch.
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
