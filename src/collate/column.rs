//! `Column` writes a sample into one or more tensors; `Columns` are all columns of a batch.

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
    /// The tensors that samples are written to. Each call must return the same outputs.
    fn outputs(&self) -> Vec<Output>;

    /// Checks the options. [`Columns::check`] calls it, once, before the first sample.
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config), which names the option and says how to fix it. The
    /// caller adds the column's name.
    fn check(&self) -> Result<()> {
        Ok(())
    }

    /// Writes a sample into its cells, one for each output. Draw random numbers from
    /// [`sample.rng(seed)`](Sample::rng): each column gets a different `seed`, so columns draw unrelated
    /// numbers (see [`Columns`]).
    ///
    /// # Errors
    /// Any reason why the sample cannot be used. A loader then uses the next sample of the stream instead.
    fn write(&self, sample: &Sample, seed: u64, cells: &mut [Cell]) -> Result<()>;

    /// Writes the cells of a sample that lacks the field, for [`Optional`](super::Optional) and
    /// [`Stack`](super::Stack). By default, the cells are [cleared](Cell::clear).
    ///
    /// # Errors
    /// The same as for [`write`](Column::write).
    fn write_missing(&self, cells: &mut [Cell]) -> Result<()> {
        cells.iter_mut().for_each(Cell::clear);
        Ok(())
    }

    /// The name of another column whose random numbers this column draws too, so that both columns augment
    /// samples in the same way: see `ImageColumn::same_as`. Default: `None`, so the column draws numbers of
    /// its own.
    fn follows(&self) -> Option<&str> {
        None
    }

    /// Whether the column makes pictures. The first picture column gets the seed of the [`Columns`]
    /// unchanged. Default: false.
    fn is_picture(&self) -> bool {
        false
    }

    /// The suffixes of the tensors that [`finish`](Column::finish) makes. The default, `None`, means that a
    /// batch has the tensors of [`outputs`](Column::outputs). Each call must return the same suffixes.
    fn finished(&self) -> Option<Vec<&'static str>> {
        None
    }

    /// Makes the tensors of the batch from `tensors`, which hold the written samples. Called only if
    /// [`finished`](Column::finished) is not `None`. `tensors` are in the order of
    /// [`outputs`](Column::outputs); a ragged tensor is followed by its offsets. The first `valid` samples
    /// are real; the remaining samples are padding.
    ///
    /// # Errors
    /// Any reason why the batch cannot be used. A loader treats the error as a failure of all samples of the
    /// batch. If [`on_error`](crate::loader::LoaderBuilder::on_error) skips these samples, the loader makes
    /// the batch from later samples.
    fn finish(&self, tensors: Vec<Tensor>, valid: usize) -> Result<Vec<Tensor>> {
        let _ = valid;
        Ok(tensors)
    }
}

/// A column and its name.
#[derive(Clone)]
pub(super) struct NamedColumn {
    name: Arc<str>,
    pub(super) column: Arc<dyn Column>,
    /// The range of the column's outputs in [`Columns::outputs`].
    pub(super) outputs: Range<usize>,
    /// The names of the tensors that [`Column::finish`] makes; `None` if `finish` is not called.
    pub(super) finished: Option<Arc<[Arc<str>]>>,
}

/// The columns of a batch: they name its tensors and write samples into them.
///
/// Each column draws its own random numbers, which depend on the column's name, the seed, the epoch and the
/// sample. So two columns that crop the same picture at random give two different views of it. The first
/// picture column draws from [`sample.rng(seed)`](Sample::rng). Every other column draws from
/// [`sample.rng_named(seed, name)`](Sample::rng_named). Boxes and masks belong to their picture's column and
/// need no random numbers. `ImageColumn::same_as` makes a column draw the same numbers as another column, for
/// example to crop a depth image in the same way as its picture.
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
    /// An empty set of columns.
    #[must_use]
    pub fn new() -> Self {
        Columns::default()
    }

    /// Pins the memory of batches for a device, with `PinnedMemory` of the crate `shardstream-cuda` for
    /// NVIDIA GPUs, or with your own implementation. The content of batches stays the same. Default: memory
    /// is not pinned.
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

    /// Sets the seed of the columns' random numbers. Default: the seed of the dataset, or 0 without a
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

    /// For each column, the salt that makes its seed differ from the seeds of other columns. It is 0 for the
    /// first picture column that draws its own random numbers, and for the columns that draw the same random
    /// numbers as that column.
    pub(super) fn salts(&self) -> Vec<u64> {
        let leads = |named: &&NamedColumn| named.column.is_picture() && named.column.follows().is_none();
        let first = self.columns.iter().find(leads);
        let salt = |named: &NamedColumn| match named.column.follows().unwrap_or(&named.name) {
            name if first.is_some_and(|first| *first.name == *name) => 0,
            name => salt(name),
        };
        self.columns.iter().map(salt).collect()
    }

    /// Checks `name`, which the [`follows`](Column::follows) of a column returned: a column with this name
    /// must exist and draw its own random numbers.
    fn check_follows(&self, name: &str) -> Result<()> {
        let leads = |named: &&NamedColumn| named.column.follows().is_none();
        let names: Vec<&str> = self.columns.iter().filter(leads).map(|named| &*named.name).collect();
        if names.contains(&name) {
            return Ok(());
        }
        let what = format!("`same_as({name:?})`: name a column with random numbers of its own, of {names:?}");
        Err(config_error(what))
    }

    /// Checks the options of all columns. A [loader](crate::Loader) and [`collate`](Columns::collate) call it
    /// before the first sample.
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) if there is no column, if a column has no name or
    /// invalid options, if two columns make a tensor of the same name, or if a tensor's shape is impossible.
    /// The error names the column or the tensor.
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
