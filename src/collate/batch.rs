//! A batch of tensors.

use super::Step;
use crate::Rng;
use crate::error::{Error, ErrorKind, Result};
use crate::rng::Purpose;
use crate::sample::Element;
use crate::state::State;
use crate::tensor::Tensor;
use bytemuck::CheckedBitPattern;
use std::fmt;
use std::ops::Index;
use std::sync::Arc;

/// The tensors of one step by name, as [`Columns`](super::Columns) make them.
///
/// If the batch is padded, only the first [`valid`](TensorBatch::valid) rows are samples. The others are
/// copies of the last sample, or of the first one of the epoch if the batch has none.
pub struct TensorBatch {
    names: Arc<[Arc<str>]>,
    /// `None` where a tensor was taken out.
    tensors: Vec<Option<Tensor>>,
    rows: usize,
    step: Step,
}

impl TensorBatch {
    pub(super) fn new(names: Arc<[Arc<str>]>, tensors: Vec<Tensor>, rows: usize, valid: usize) -> Self {
        let tensors = tensors.into_iter().map(Some).collect();
        TensorBatch { names, tensors, rows, step: Step::of(valid) }
    }

    /// The same tensors in this step.
    pub(crate) fn at(self, step: Step) -> Self {
        TensorBatch { step, ..self }
    }

    /// The number of this batch's shape, if there are [several](crate::adapters::Buckets).
    #[must_use]
    pub fn bucket(&self) -> Option<usize> {
        self.step.bucket
    }

    /// The number of rows: the first axis of all tensors of a fixed shape.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows
    }

    /// Whether there are no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// The number of rows that are samples: all, unless the batch is padded.
    #[must_use]
    pub fn valid(&self) -> usize {
        self.step.valid
    }

    /// Whether each row is a sample.
    #[must_use]
    pub fn mask(&self) -> impl ExactSizeIterator<Item = bool> + use<> {
        self.step.mask(self.rows)
    }

    /// The state of the job once this batch has been consumed; `None` for a batch that is not from a
    /// [loader](crate::Loader).
    #[must_use]
    pub fn state(&self) -> Option<&State> {
        self.step.state.as_ref()
    }

    /// A random number generator for changes of the whole batch. For a batch from a [loader](crate::Loader),
    /// the numbers depend on the seed and on the position of the batch in the job: they are the same on every
    /// run and after a restore, and differ between epochs and ranks. All other batches have the same numbers:
    /// use another seed for each.
    #[must_use]
    pub fn rng(&self, seed: u64) -> Rng {
        let (epoch, index) = self.state().map_or((0, 0), |state| (state.epoch(), state.batch_key()));
        Rng::keyed(Purpose::Batch, seed, epoch, index)
    }

    /// The tensor of this name.
    ///
    /// # Errors
    /// [`ErrorKind::MissingTensor`] when there is none of that name.
    pub fn tensor(&self, name: &str) -> Result<&Tensor> {
        self.find(name).and_then(|at| self.tensors[at].as_ref()).ok_or_else(|| self.missing(name))
    }

    /// The tensor of this name, mutably.
    ///
    /// # Errors
    /// [`ErrorKind::MissingTensor`] when there is none of that name.
    pub fn tensor_mut(&mut self, name: &str) -> Result<&mut Tensor> {
        let missing = self.missing(name);
        self.find(name).and_then(|at| self.tensors[at].as_mut()).ok_or(missing)
    }

    /// Takes the tensor of this name out.
    ///
    /// # Errors
    /// [`ErrorKind::MissingTensor`] when there is none of that name, or it was taken.
    pub fn take(&mut self, name: &str) -> Result<Tensor> {
        let missing = self.missing(name);
        self.find(name).and_then(|at| self.tensors[at].take()).ok_or(missing)
    }

    /// Replaces the tensor of this name, or appends it, and returns the old one.
    pub fn set(&mut self, name: &str, tensor: Tensor) -> Option<Tensor> {
        match self.find(name) {
            Some(at) => self.tensors[at].replace(tensor),
            None => {
                self.names = self.names.iter().cloned().chain([name.into()]).collect();
                self.tensors.push(Some(tensor));
                None
            }
        }
    }

    /// The numbers of each sample in a tensor of samples of any length, such as that of
    /// [`Ragged`](super::Ragged). If its rows have several numbers, such as pictures, they are those of all
    /// rows of the sample.
    ///
    /// # Errors
    /// [`ErrorKind::MissingTensor`] when there is no such tensor or none of its offsets, [`ErrorKind::Array`]
    /// when it is of another type.
    pub fn pieces<T: Element + CheckedBitPattern + 'static>(
        &self,
        name: &str,
    ) -> Result<impl ExactSizeIterator<Item = &[T]>> {
        let tensor = self.tensor(name)?;
        let row = tensor.shape().iter().skip(1).product::<usize>();
        let numbers = tensor.as_slice::<T>()?;
        let offsets = self.tensor(&format!("{name}.offsets"))?.as_slice::<i64>()?;
        // Changed offsets give fewer numbers, and no panic.
        let position = move |at: &i64| usize::try_from(*at).map_or(usize::MAX, |at| at.saturating_mul(row));
        Ok(offsets
            .windows(2)
            .map(move |ends| numbers.get(position(&ends[0])..position(&ends[1])).unwrap_or_default()))
    }

    /// The texts of the samples, such as those of [`Text`](super::Text).
    ///
    /// # Errors
    /// As [`pieces`](TensorBatch::pieces); and [`ErrorKind::Decode`] when a text is not UTF-8, which is never
    /// so for that column.
    pub fn strings(&self, name: &str) -> Result<impl ExactSizeIterator<Item = &str>> {
        for piece in self.pieces::<u8>(name)? {
            std::str::from_utf8(piece).map_err(|error| Error::decode(name, error))?;
        }
        Ok(self.pieces::<u8>(name)?.map(|piece| std::str::from_utf8(piece).unwrap_or_default()))
    }

    /// All tensors with their names, in the order of the columns.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Tensor)> {
        self.names.iter().zip(&self.tensors).filter_map(|(name, tensor)| Some((&**name, tensor.as_ref()?)))
    }

    fn find(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|known| **known == *name)
    }

    fn missing(&self, name: &str) -> Error {
        let available: Vec<&str> = self.iter().map(|(name, _)| name).collect();
        let available = if available.is_empty() { "nothing".into() } else { available.join(", ") };
        ErrorKind::MissingTensor { name: name.into(), available }.into()
    }
}

/// # Panics
/// When there is no such tensor; see [`TensorBatch::tensor`].
impl Index<&str> for TensorBatch {
    type Output = Tensor;

    fn index(&self, name: &str) -> &Tensor {
        self.tensor(name).unwrap_or_else(|error| panic!("{error}"))
    }
}

impl fmt::Debug for TensorBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TensorBatch({} of {} rows valid) ", self.valid(), self.rows)?;
        f.debug_map().entries(self.iter().map(|(name, tensor)| (name, tensor.to_string()))).finish()
    }
}
