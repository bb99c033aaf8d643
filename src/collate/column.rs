//! Columns, which write samples into tensors.

use super::cell::{Cell, Output, Shape};
use super::check::{config_error, in_column};
use crate::error::Result;
use crate::rng::salt;
use crate::sample::Sample;
use crate::tensor::{BatchMemory, Tensor, TensorPool};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// Makes one or more tensors of a batch: a column of this module, or a type of your own.
///
/// ```
/// use shardstream::collate::{Cell, Column, Columns, Output};
/// use shardstream::codec::DType;
/// use shardstream::{Result, Sample};
///
/// /// The number of bytes in the fields of a sample.
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
    /// The tensors that samples are written to. Each call must return the same ones.
    fn outputs(&self) -> Vec<Output>;

    /// Checks the options, once, before the first sample: see [`Columns::check`].
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config), which names the option and says what to do about it.
    /// The column's name is added to it.
    fn check(&self) -> Result<()> {
        Ok(())
    }

    /// Writes a sample into its cell of each output. Random numbers come from
    /// [`sample.rng(seed)`](Sample::rng): `seed` differs from column to column, so that columns draw
    /// unrelated numbers (see [`Columns`]).
    ///
    /// # Errors
    /// Any reason why the sample cannot be used. In a loader, the next sample of the stream takes its place.
    fn write(&self, sample: &Sample, seed: u64, cells: &mut [Cell]) -> Result<()>;

    /// Writes the cells of a sample that lacks the field, for [`Optional`](super::Optional) and
    /// [`Stack`](super::Stack). By default they are [cleared](Cell::clear).
    ///
    /// # Errors
    /// As [`write`](Column::write).
    fn write_missing(&self, cells: &mut [Cell]) -> Result<()> {
        cells.iter_mut().for_each(Cell::clear);
        Ok(())
    }

    /// The name of the column whose random numbers this one draws too, so that both change alike, as with
    /// `ImageColumn::same_as`. Default: none, and it has numbers of its own.
    fn follows(&self) -> Option<&str> {
        None
    }

    /// Whether it is a picture: the first picture column has the seed of all [`Columns`] unchanged. Default:
    /// no.
    fn is_picture(&self) -> bool {
        false
    }

    /// The suffixes of the tensors that [`finish`](Column::finish) makes; `None` if the tensors of a batch
    /// are those of [`outputs`](Column::outputs). Each call must return the same.
    fn finished(&self) -> Option<Vec<&'static str>> {
        None
    }

    /// Makes the tensors of a batch from those that samples were written to: in the order of
    /// [`outputs`](Column::outputs), ragged ones followed by their offsets. The first `valid` samples are
    /// real; the others pad the batch. It is called if [`finished`](Column::finished) is not `None`.
    ///
    /// # Errors
    /// Any reason why the batch cannot be used. A loader treats it as a failure of all samples of the batch,
    /// which [`on_error`](crate::loader::LoaderBuilder::on_error) may skip, and makes the batch of the
    /// samples after them.
    fn finish(&self, tensors: Vec<Tensor>, valid: usize) -> Result<Vec<Tensor>> {
        let _ = valid;
        Ok(tensors)
    }
}

/// A column under a name.
#[derive(Clone)]
pub(super) struct NamedColumn {
    name: Arc<str>,
    pub(super) column: Arc<dyn Column>,
    /// The range of its outputs.
    pub(super) outputs: Range<usize>,
    /// The names of the tensors that [`Column::finish`] makes, if it is called.
    pub(super) finished: Option<Arc<[Arc<str>]>>,
}

/// The tensors of a batch by name, and what fills them.
///
/// Each column draws random numbers of its own, which depend on its name, the seed, the epoch and the sample:
/// two columns that crop the same picture at random are two views of it. One column draws those of
/// [`sample.rng(seed)`](Sample::rng): the first picture column; every other has those of
/// [`sample.rng_named(seed, name)`](Sample::rng_named). Boxes and masks belong to their picture's column and
/// follow it. A column that must be changed as another one, such as a depth image, is declared by
/// `ImageColumn::same_as`.
#[derive(Clone, Default)]
pub struct Columns {
    pub(super) columns: Vec<NamedColumn>,
    pub(super) outputs: Vec<Output>,
    /// The names of the outputs.
    names: Vec<Arc<str>>,
    pub(super) seed: Option<u64>,
    pub(super) memory: Option<Arc<dyn BatchMemory>>,
}

impl Columns {
    /// No columns yet.
    #[must_use]
    pub fn new() -> Self {
        Columns::default()
    }

    /// Pins the memory of batches for a device: `PinnedMemory` of the crate `shardstream-cuda` for NVIDIA
    /// GPUs, or your own. Default: it is not pinned. The batches are the same.
    #[must_use]
    pub fn memory(mut self, memory: Arc<dyn BatchMemory>) -> Self {
        self.memory = Some(memory);
        self
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
        self.columns.push(NamedColumn { name: name.into(), column: Arc::new(column), outputs, finished });
        self
    }

    /// Sets the seed of the columns' random numbers. Default: that of the dataset, or 0 without a
    /// [loader](crate::Loader).
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
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
                if output.is_ragged() {
                    names.push(format!("{name}.offsets").into());
                }
            }
        }
        names
    }

    /// For each column, what is added to the seed of its random numbers.
    pub(super) fn salts(&self) -> Vec<u64> {
        let leads = |named: &&NamedColumn| named.column.is_picture() && named.column.follows().is_none();
        let first = self.columns.iter().find(leads);
        let salt = |named: &NamedColumn| match named.column.follows().unwrap_or(&named.name) {
            name if first.is_some_and(|first| *first.name == *name) => 0,
            name => salt(name),
        };
        self.columns.iter().map(salt).collect()
    }

    /// Checks that a column follows one that has random numbers of its own.
    fn check_follows(&self, name: &str) -> Result<()> {
        let leads = |named: &&NamedColumn| named.column.follows().is_none();
        let names: Vec<&str> = self.columns.iter().filter(leads).map(|named| &*named.name).collect();
        if names.contains(&name) {
            return Ok(());
        }
        let what = format!("`same_as({name:?})`: name a column with random numbers of its own, of {names:?}");
        Err(config_error(what))
    }

    /// Checks the options of all columns. A [loader](crate::Loader) and [`collate`](Columns::collate) do so
    /// before the first sample.
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) with the name of the column whose options are invalid,
    /// or of the tensor that two columns make or that exceeds any memory.
    pub fn check(&self) -> Result<()> {
        let config = |what: String| Err(config_error(what));
        for NamedColumn { name, column, .. } in &self.columns {
            if name.is_empty() {
                return config("a column without a name: give `Columns::with` one".into());
            }
            let follows = column.follows().map_or(Ok(()), |name| self.check_follows(name));
            column.check().and(follows).map_err(|error| in_column(name, &error))?;
        }
        let tensors = self.tensors();
        for (at, name) in tensors.iter().enumerate() {
            if tensors[..at].contains(name) {
                return config(format!("two tensors with the name {name:?}: name the columns differently"));
            }
        }
        for (name, output) in self.names.iter().zip(&self.outputs) {
            let (dtype, size) = (output.dtype, output.row_size());
            if !size.is_some_and(TensorPool::is_possible) {
                let shape = output.row();
                return config(format!(
                    "the tensor {name:?} of {dtype}{shape:?} is larger than any memory: make its shape \
                     smaller"
                ));
            }
            if output.is_ragged() && size == Some(0) {
                let shape = output.row();
                return config(format!(
                    "the rows {dtype}{shape:?} of the tensor {name:?} have no numbers: make all axes at \
                     least 1"
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
            Shape::Ragged(row) if row.is_empty() => format!("{}[..]", output.dtype),
            Shape::Ragged(row) => format!("{}[.., {}", output.dtype, &format!("{row:?}")[1..]),
        };
        f.debug_map().entries(self.names.iter().zip(self.outputs.iter().map(shown))).finish()
    }
}
