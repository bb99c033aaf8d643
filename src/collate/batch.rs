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

/// The tensors of one step by name, made by [`Columns`](super::Columns).
///
/// If the batch is padded, only the first [`valid`](TensorBatch::valid) rows are samples. The padding rows
/// are copies of the batch's last sample, or of the epoch's first sample if the batch has no sample.
pub struct TensorBatch {
    names: Arc<[Arc<str>]>,
    /// The tensors in the order of `names`; `None` for a tensor that was taken out.
    tensors: Vec<Option<Tensor>>,
    rows: usize,
    step: Step,
}

impl TensorBatch {
    pub(super) fn new(names: Arc<[Arc<str>]>, tensors: Vec<Tensor>, rows: usize, valid: usize) -> Self {
        let tensors = tensors.into_iter().map(Some).collect();
        TensorBatch { names, tensors, rows, step: Step::of(valid) }
    }

    /// Replaces the batch's step.
    pub(crate) fn at(self, step: Step) -> Self {
        TensorBatch { step, ..self }
    }

    /// The index of this batch's shape in the loader's [buckets](crate::adapters::Buckets); `None` if the
    /// loader has no buckets.
    #[must_use]
    pub fn bucket(&self) -> Option<usize> {
        self.step.bucket
    }

    /// The number of rows. Every tensor of a fixed shape has this length along its first axis.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows
    }

    /// Whether there are no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// The number of rows that are samples. It is less than [`len`](TensorBatch::len) only if the batch is
    /// padded.
    #[must_use]
    pub fn valid(&self) -> usize {
        self.step.valid
    }

    /// For each row, whether it is a sample and not padding.
    #[must_use]
    pub fn mask(&self) -> impl ExactSizeIterator<Item = bool> + use<> {
        self.step.mask(self.rows)
    }

    /// The state of the job after this batch has been consumed; `None` if the batch was not made by a
    /// [loader](crate::Loader).
    #[must_use]
    pub fn state(&self) -> Option<&State> {
        self.step.state.as_ref()
    }

    /// A random number generator for augmentations of the whole batch. For a batch from a
    /// [loader](crate::Loader), the numbers depend on the seed and on the position of the batch in the job:
    /// they are the same on every run and after a restore, and differ between epochs and ranks. Without a
    /// loader, the numbers depend on the seed only: use a different seed for each batch.
    #[must_use]
    pub fn rng(&self, seed: u64) -> Rng {
        let (epoch, index) = self.state().map_or((0, 0), |state| (state.epoch(), state.batch_key()));
        Rng::keyed(Purpose::Batch, seed, epoch, index)
    }

    /// The tensor with this name.
    ///
    /// # Errors
    /// [`ErrorKind::MissingTensor`] if the batch has no such tensor.
    pub fn tensor(&self, name: &str) -> Result<&Tensor> {
        self.find(name).and_then(|at| self.tensors[at].as_ref()).ok_or_else(|| self.missing(name))
    }

    /// The tensor with this name, mutably.
    ///
    /// # Errors
    /// [`ErrorKind::MissingTensor`] if the batch has no such tensor.
    pub fn tensor_mut(&mut self, name: &str) -> Result<&mut Tensor> {
        let missing = self.missing(name);
        self.find(name).and_then(|at| self.tensors[at].as_mut()).ok_or(missing)
    }

    /// Removes and returns the tensor with this name.
    ///
    /// # Errors
    /// [`ErrorKind::MissingTensor`] if the batch has no such tensor, or no longer has it.
    pub fn take(&mut self, name: &str) -> Result<Tensor> {
        let missing = self.missing(name);
        self.find(name).and_then(|at| self.tensors[at].take()).ok_or(missing)
    }

    /// Replaces the tensor with this name and returns the old one, or appends the tensor.
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

    /// The numbers of each sample in a ragged tensor, such as the tensor of a [`Ragged`](super::Ragged)
    /// column. If the rows of the tensor have several numbers, a sample's slice has the numbers of all of its
    /// rows.
    ///
    /// # Errors
    /// [`ErrorKind::MissingTensor`] if the batch lacks the tensor or its offsets; [`ErrorKind::Array`] if the
    /// tensor has another type.
    pub fn pieces<T: Element + CheckedBitPattern + 'static>(
        &self,
        name: &str,
    ) -> Result<impl ExactSizeIterator<Item = &[T]>> {
        let tensor = self.tensor(name)?;
        let row = tensor.shape().iter().skip(1).product::<usize>();
        let numbers = tensor.as_slice::<T>()?;
        let offsets = self.tensor(&format!("{name}.offsets"))?.as_slice::<i64>()?;
        // Callers may have changed the offsets. Offsets that are out of range or decrease give empty slices,
        // and no panic.
        let position = move |at: &i64| usize::try_from(*at).map_or(usize::MAX, |at| at.saturating_mul(row));
        Ok(offsets
            .windows(2)
            .map(move |ends| numbers.get(position(&ends[0])..position(&ends[1])).unwrap_or_default()))
    }

    /// The text of each sample in a ragged tensor of bytes, such as the tensor of a [`Text`](super::Text)
    /// column.
    ///
    /// # Errors
    /// The errors of [`pieces`](TensorBatch::pieces), and [`ErrorKind::Decode`] if a text is not UTF-8. The
    /// texts of a `Text` column are always UTF-8.
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
/// If the batch has no such tensor. [`TensorBatch::tensor`] returns an error instead.
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
