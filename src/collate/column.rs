//! What goes into which tensor.

use super::batch::TensorBatch;
use super::check::{bad, in_column};
use super::function::FnColumn;
use super::rows::Collator;
use crate::error::{ErrorKind, Result};
use crate::sample::array::byte_len;
use crate::sample::{ArrayError, DType, Element, Sample};
use crate::tensor::{Pool, Tensor};
use bytemuck::{CheckedBitPattern, NoUninit};
use bytes::{Bytes, BytesMut};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// A tensor of a batch, as it is for one sample.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Output {
    /// What stands behind the column's name: nothing for its main output, else `.lengths`, say.
    pub suffix: &'static str,
    /// The type of the numbers.
    pub dtype: DType,
    /// How many of them a sample has.
    pub shape: Shape,
}

/// How many numbers a sample has in a tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Shape {
    /// Always as many: the batch's tensor has this shape behind the axis of the samples. No axis is one
    /// number.
    Fixed(Vec<usize>),
    /// As many as it has. Those of all samples stand one after the other in the tensor; another one, with
    /// `.offsets` behind its name, says where each begins: `int64[samples + 1]`, in numbers, from 0 to the
    /// length of the first tensor.
    Ragged,
}

impl Output {
    /// The main output of a column, of a fixed shape.
    #[must_use]
    pub fn fixed(dtype: DType, shape: impl Into<Vec<usize>>) -> Self {
        Output { suffix: "", dtype, shape: Shape::Fixed(shape.into()) }
    }

    /// The main output of a column, of any length.
    #[must_use]
    pub fn ragged(dtype: DType) -> Self {
        Output { suffix: "", dtype, shape: Shape::Ragged }
    }

    /// With something behind the column's name.
    #[must_use]
    pub fn named(self, suffix: &'static str) -> Self {
        Output { suffix, ..self }
    }

    /// The bytes that a sample takes; none for a ragged one, or where no memory has room for them.
    pub(super) fn size(&self) -> Option<usize> {
        match &self.shape {
            Shape::Fixed(shape) => byte_len(shape, self.dtype.size()),
            Shape::Ragged => None,
        }
    }
}

/// The place of a sample in one tensor.
#[derive(Debug)]
pub struct Cell {
    pub(super) dtype: DType,
    pub(super) content: Content,
}

#[derive(Debug)]
pub(super) enum Content {
    /// Of a fixed size.
    Slot(BytesMut),
    /// Of any size.
    Piece(Bytes),
}

impl Cell {
    /// One in memory of its own, which is no batch's.
    pub(super) fn alone(output: &Output) -> Self {
        let content = match output.size() {
            Some(size) => Content::Slot(Pool::single(size)),
            None => Content::Piece(Bytes::new()),
        };
        Cell { dtype: output.dtype, content }
    }

    /// Takes the slot out; an empty one is left.
    pub(super) fn take_slot(&mut self) -> BytesMut {
        match &mut self.content {
            Content::Slot(slot) => std::mem::take(slot),
            Content::Piece(_) => BytesMut::new(),
        }
    }

    /// Adds memory behind the slot: without a copy where it is the slot's continuation.
    pub(super) fn join(&mut self, part: BytesMut) {
        if let Content::Slot(slot) = &mut self.content {
            slot.unsplit(part);
        }
    }

    /// The bytes of a slot, aligned for the numbers. They hold what an earlier batch left in them: write all
    /// of them. Empty where the output is ragged.
    pub fn bytes(&mut self) -> &mut [u8] {
        match &mut self.content {
            Content::Slot(slot) => slot,
            Content::Piece(_) => &mut [],
        }
    }

    /// The numbers of a slot. They hold what an earlier batch left in them: write all of them. Empty where
    /// the output is ragged.
    ///
    /// # Errors
    /// [`ErrorKind::Array`] when the output is of another type.
    pub fn numbers<T: Element + CheckedBitPattern + NoUninit>(&mut self) -> Result<&mut [T]> {
        let other = ArrayError::Type { wanted: T::DTYPE, found: self.dtype };
        if T::DTYPE != self.dtype {
            return Err(other.into());
        }
        if self.dtype == DType::Bool {
            // Whatever an earlier owner of the memory left in it need not be truth values.
            self.bytes().fill(0);
        }
        bytemuck::checked::try_cast_slice_mut(self.bytes()).map_err(|_| other.into())
    }

    /// Fills a slot with zeros, and empties a ragged output.
    pub fn clear(&mut self) {
        match &mut self.content {
            Content::Slot(slot) => slot.fill(0),
            Content::Piece(piece) => *piece = Bytes::new(),
        }
    }

    /// Sets the content of a ragged output: numbers in the machine's byte order. It is copied when the batch
    /// is complete.
    ///
    /// # Errors
    /// [`ErrorKind::Array`] when the bytes end within a number, [`ErrorKind::Config`] when the output has a
    /// fixed shape.
    pub fn put(&mut self, numbers: impl Into<Bytes>) -> Result<()> {
        let Content::Piece(piece) = &mut self.content else {
            let what = "a column that puts numbers of any length into a slot of a fixed shape";
            return Err(ErrorKind::Config(what.into()).into());
        };
        let (numbers, dtype) = (numbers.into(), self.dtype);
        if !numbers.len().is_multiple_of(dtype.size()) {
            let (shape, bytes) = (vec![numbers.len() / dtype.size()], numbers.len());
            return Err(ArrayError::Shape { dtype, shape, bytes }.into());
        }
        *piece = numbers;
        Ok(())
    }
}

/// What makes a tensor of a batch, or several: what this module has, or a type of your own.
///
/// ```
/// use shardstream::collate::{Cell, Column, Columns, Output};
/// use shardstream::codec::DType;
/// use shardstream::{Result, Sample};
///
/// /// How many bytes the fields of a sample take.
/// struct Size;
///
/// impl Column for Size {
///     fn outputs(&self) -> Vec<Output> {
///         vec![Output::fixed(DType::U64, [])]
///     }
///
///     fn write(&self, sample: &Sample, _: u64, cells: &mut [Cell]) -> Result<()> {
///         cells[0].numbers::<u64>()?.fill(sample.size() as u64);
///         Ok(())
///     }
/// }
///
/// let columns = Columns::new().with("size", Size);
/// let samples = [Sample::new("a").with("bin", b"123"), Sample::new("b").with("bin", b"")];
/// let batch = columns.collate(samples)?;
/// assert_eq!(batch["size"].as_slice::<u64>()?, [3, 0]);
/// # Ok::<(), shardstream::Error>(())
/// ```
pub trait Column: Send + Sync {
    /// The tensors that it makes. It is asked once.
    fn outputs(&self) -> Vec<Output>;

    /// Checks the options, once, before the first sample: see [`Columns::check`].
    ///
    /// # Errors
    /// [`ErrorKind::Config`], which names the option and says what to do about it. The column's name is added
    /// to it.
    fn check(&self) -> Result<()> {
        Ok(())
    }

    /// Writes the place of a sample in each of them. Random numbers come from
    /// [`sample.rng(seed)`](Sample::rng).
    ///
    /// # Errors
    /// Whatever keeps the sample from being used: it comes out in the sample's turn, and the batch is one
    /// shorter.
    fn write(&self, sample: &Sample, seed: u64, cells: &mut [Cell]) -> Result<()>;

    /// Writes the place of a sample that lacks the field, for [`Optional`](super::Optional) and
    /// [`Stack`](super::Stack). Unless a column says otherwise, it is [cleared](Cell::clear).
    ///
    /// # Errors
    /// As [`write`](Column::write).
    fn write_missing(&self, cells: &mut [Cell]) -> Result<()> {
        cells.iter_mut().for_each(Cell::clear);
        Ok(())
    }

    /// The tensors of a batch, where [`finish`](Column::finish) makes others of those that samples were
    /// written to: what stands behind the column's name for each. It is asked once.
    fn finished(&self) -> Option<Vec<&'static str>> {
        None
    }

    /// Makes the tensors of a batch of those that samples were written to, which come in the order of
    /// [`outputs`](Column::outputs), ragged ones with their offsets behind them. The first `valid` samples
    /// are real; the others pad the batch. It is called where [`finished`](Column::finished) says so.
    ///
    /// # Errors
    /// Whatever keeps the batch from being used: it comes out in the batch's place.
    fn finish(&self, tensors: Vec<Tensor>, valid: usize) -> Result<Vec<Tensor>> {
        let _ = valid;
        Ok(tensors)
    }
}

/// A column among others.
#[derive(Clone)]
pub(super) struct Named {
    name: Arc<str>,
    pub(super) column: Arc<dyn Column>,
    /// Which outputs are its.
    pub(super) outputs: Range<usize>,
    /// The names of its tensors, where it makes others of its outputs.
    pub(super) finished: Option<Arc<[Arc<str>]>>,
}

/// The tensors of a batch by name, and what fills them.
#[derive(Clone, Default)]
pub struct Columns {
    pub(super) columns: Vec<Named>,
    pub(super) outputs: Vec<Output>,
    /// Of the outputs.
    names: Vec<Arc<str>>,
    pub(super) seed: Option<u64>,
}

impl Columns {
    /// None yet.
    #[must_use]
    pub fn new() -> Self {
        Columns::default()
    }

    /// Adds a column under a name.
    #[must_use]
    pub fn with(mut self, name: &str, column: impl Column + 'static) -> Self {
        let outputs = column.outputs();
        let begin = self.outputs.len();
        let full = |suffix: &&'static str| Arc::from(format!("{name}{suffix}"));
        self.names.extend(outputs.iter().map(|output| full(&output.suffix)));
        self.outputs.extend(outputs);
        let finished = column.finished().map(|suffixes| suffixes.iter().map(full).collect());
        let outputs = begin..self.outputs.len();
        self.columns.push(Named { name: name.into(), column: Arc::new(column), outputs, finished });
        self
    }

    /// Adds a tensor of a fixed shape that a function fills: for what no column of this module reads.
    ///
    /// The function gets the sample and its numbers in the tensor, which are 0.
    ///
    /// ```
    /// use shardstream::Sample;
    /// use shardstream::collate::Columns;
    ///
    /// let columns = Columns::new().with_fn("histogram", [256], |sample: &Sample, counts: &mut [u32]| {
    ///     for byte in sample.field("bin")?.as_bytes().into_iter().flatten() {
    ///         counts[usize::from(*byte)] += 1;
    ///     }
    ///     Ok(())
    /// });
    /// let batch = columns.collate([Sample::new("0001").with("bin", b"aba")])?;
    /// assert_eq!(batch["histogram"].as_slice::<u32>()?[97..99], [2, 1]);
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    #[must_use]
    pub fn with_fn<T: Element + CheckedBitPattern + NoUninit + 'static>(
        self,
        name: &str,
        shape: impl Into<Vec<usize>>,
        fill: impl Fn(&Sample, &mut [T]) -> Result<()> + Send + Sync + 'static,
    ) -> Self {
        self.with(name, FnColumn::new(shape, fill))
    }

    /// The seed of what is random in the columns. Default: that of the dataset, and 0 without a
    /// [loader](crate::Loader).
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Makes a batch of samples: for pipelines without a [loader](crate::Loader), on this thread.
    ///
    /// Samples that were made by hand all have the same random numbers, and the memory of batches is not used
    /// again.
    ///
    /// # Errors
    /// The first of a sample, and [`ErrorKind::Config`] for columns that make no sense, such as two of one
    /// name.
    pub fn collate(&self, samples: impl IntoIterator<Item = Sample>) -> Result<TensorBatch> {
        self.check()?;
        let samples: Vec<Sample> = samples.into_iter().collect();
        let collator = Collator::new(self.clone(), samples.len());
        let mut seats = collator.seats();
        let row = |sample: &Sample| collator.row(sample, self.seed.unwrap_or(0), seats.next_seat());
        let rows = samples.iter().map(row).collect::<Result<_>>()?;
        collator.batch(rows, samples.len())
    }

    /// The names of a batch's tensors.
    pub(super) fn tensors(&self) -> Vec<Arc<str>> {
        let mut names = Vec::new();
        for column in &self.columns {
            if let Some(finished) = &column.finished {
                names.extend(finished.iter().cloned());
                continue;
            }
            for (name, output) in
                self.names[column.outputs.clone()].iter().zip(&self.outputs[column.outputs.clone()])
            {
                names.push(Arc::clone(name));
                if output.shape == Shape::Ragged {
                    names.push(format!("{name}.offsets").into());
                }
            }
        }
        names
    }

    /// Checks the options of all columns. A [loader](crate::Loader) and [`collate`](Columns::collate) do so
    /// before the first sample.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] with the name of the column whose options make no sense, or of the tensor that
    /// two columns make or no memory has room for.
    pub fn check(&self) -> Result<()> {
        let config = |what: String| Err(bad(what));
        for Named { name, column, .. } in &self.columns {
            if name.is_empty() {
                return config("a column without a name: give `Columns::with` one".into());
            }
            column.check().map_err(|error| in_column(name, &error))?;
        }
        let tensors = self.tensors();
        for (at, name) in tensors.iter().enumerate() {
            if tensors[..at].contains(name) {
                return config(format!("two tensors with the name {name:?}: name the columns differently"));
            }
        }
        for (name, output) in self.names.iter().zip(&self.outputs) {
            let fits = output.size().is_some_and(|size| size <= isize::MAX as usize / 2);
            if let Shape::Fixed(shape) = &output.shape
                && !fits
            {
                return config(format!(
                    "the tensor {name:?} of {}{shape:?} is larger than any memory: make its shape smaller",
                    output.dtype
                ));
            }
        }
        if self.columns.is_empty() {
            return config("batches without columns: add at least one with `Columns::with`".into());
        }
        Ok(())
    }
}

impl fmt::Debug for Columns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |output: &Output| match &output.shape {
            Shape::Fixed(shape) => format!("{}{shape:?}", output.dtype),
            Shape::Ragged => format!("{}[..]", output.dtype),
        };
        f.debug_map().entries(self.names.iter().zip(self.outputs.iter().map(shown))).finish()
    }
}
