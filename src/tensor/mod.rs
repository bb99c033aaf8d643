//! Tensors: the columns of batches, in aligned memory that later batches reuse.
//!
//! The numbers of a [`Tensor`] are in row-major order and in the machine's byte order; the address of the
//! first number is a multiple of 256. A tensor converts without a copy to a slice of numbers
//! ([`as_slice`](Tensor::as_slice)), to bytes ([`into_bytes`](Tensor::into_bytes)), to an array of the crate
//! `ndarray` (`view`, feature `ndarray`) and to a tensor of another framework (`into_dlpack`, feature
//! `dlpack`). When the tensor, or the value that it was converted to, is dropped, its memory becomes free for
//! later batches.

mod batch_memory;
#[cfg(feature = "dlpack")]
mod dlpack;
#[cfg(feature = "ndarray")]
mod ndarray;
mod pool;

pub use batch_memory::BatchMemory;
#[cfg(feature = "dlpack")]
pub use dlpark;
pub(crate) use pool::{TensorBuffer, TensorPool};

use crate::sample::array::byte_len;
use crate::sample::{ArrayError, DType, Element};
use bytemuck::{CheckedBitPattern, NoUninit};
use bytes::Bytes;
use std::fmt;

/// An array of numbers of one type, with a shape.
///
/// ```
/// use shardstream::tensor::Tensor;
///
/// let mut tensor = Tensor::zeros(shardstream::codec::DType::F32, [2, 3])?;
/// tensor.as_mut_slice::<f32>()?[5] = 0.5;
/// assert_eq!(tensor.as_slice::<f32>()?, [0., 0., 0., 0., 0., 0.5]);
/// assert_eq!(tensor.to_string(), "float32[2, 3]");
/// # Ok::<(), shardstream::Error>(())
/// ```
pub struct Tensor {
    dtype: DType,
    shape: Vec<usize>,
    buffer: TensorBuffer,
}

impl Tensor {
    /// Makes a tensor of zeros.
    ///
    /// # Errors
    /// [`ArrayError::Shape`] if the tensor does not fit into the address space.
    pub fn zeros(dtype: DType, shape: impl Into<Vec<usize>>) -> Result<Self, ArrayError> {
        let shape = shape.into();
        match byte_len(&shape, dtype.size()).filter(|size| TensorPool::is_possible(*size)) {
            Some(size) => Ok(Tensor { dtype, shape, buffer: TensorBuffer::zeroed(size) }),
            None => Err(ArrayError::Shape { dtype, shape, bytes: 0 }),
        }
    }

    /// Makes a tensor from a buffer. The buffer must have the size that the type and the shape need.
    pub(crate) fn new(dtype: DType, shape: Vec<usize>, buffer: TensorBuffer) -> Result<Self, ArrayError> {
        let bytes = buffer.as_ref().len();
        if byte_len(&shape, dtype.size()) == Some(bytes) {
            Ok(Tensor { dtype, shape, buffer })
        } else {
            Err(ArrayError::Shape { dtype, shape, bytes })
        }
    }

    /// The type of the numbers.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The length of each axis. The first axis is the batch.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The numbers in row-major order.
    ///
    /// # Errors
    /// [`ArrayError::Type`] if the tensor has another type than `T`: numbers are not converted.
    pub fn as_slice<T: Element + CheckedBitPattern>(&self) -> Result<&[T], ArrayError> {
        self.check_type::<T>()?;
        // Only the bytes 0 and 1 are valid as `bool`.
        bytemuck::checked::try_cast_slice(self.buffer.as_ref()).map_err(|_| self.type_error::<T>())
    }

    /// The numbers in row-major order, mutably.
    ///
    /// # Errors
    /// [`ArrayError::Type`] if the tensor has another type than `T`: numbers are not converted.
    pub fn as_mut_slice<T: Element + CheckedBitPattern + NoUninit>(
        &mut self,
    ) -> Result<&mut [T], ArrayError> {
        self.check_type::<T>()?;
        let other = self.type_error::<T>();
        bytemuck::checked::try_cast_slice_mut(self.buffer.as_mut()).map_err(|_| other)
    }

    /// The bytes of the numbers, in the machine's byte order.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.buffer.as_ref()
    }

    /// The bytes of the numbers, mutably.
    #[must_use]
    pub fn as_bytes_mut(&mut self) -> &mut [u8] {
        self.buffer.as_mut()
    }

    /// Returns the bytes without a copy. The memory returns to its pool when all clones and slices of the
    /// bytes are dropped.
    #[must_use]
    pub fn into_bytes(self) -> Bytes {
        Bytes::from_owner(self.buffer)
    }

    /// Divides the rows (the first axis) into `parts` equal parts, such as one for each device of a host.
    /// Returns the bytes of each part without a copy. The memory returns to its pool when all clones and
    /// slices of all parts are dropped.
    ///
    /// # Errors
    /// [`ArrayError::Parts`] if the number of rows is not a multiple of `parts`, or `parts` is 0.
    pub fn into_rows(self, parts: usize) -> Result<Vec<Bytes>, ArrayError> {
        let rows = self.shape.first().copied().unwrap_or(0);
        if parts == 0 || !rows.is_multiple_of(parts) {
            return Err(ArrayError::Parts { rows, parts });
        }
        let bytes = self.into_bytes();
        let part = bytes.len() / parts;
        Ok((0..parts).map(|at| bytes.slice(at * part..(at + 1) * part)).collect())
    }

    /// The size of the tensor in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        self.buffer.as_ref().len()
    }

    fn check_type<T: Element>(&self) -> Result<(), ArrayError> {
        if T::DTYPE == self.dtype { Ok(()) } else { Err(self.type_error::<T>()) }
    }

    fn type_error<T: Element>(&self) -> ArrayError {
        ArrayError::Type { wanted: T::DTYPE, found: self.dtype }
    }
}

/// Copies the tensor into new memory, outside of any pool.
impl Clone for Tensor {
    fn clone(&self) -> Self {
        let mut buffer = TensorBuffer::zeroed(self.size());
        buffer.as_mut().copy_from_slice(self.as_bytes());
        Tensor { dtype: self.dtype, shape: self.shape.clone(), buffer }
    }
}

impl PartialEq for Tensor {
    /// Whether the types, shapes and bytes of the tensors are the same.
    fn eq(&self, other: &Self) -> bool {
        (self.dtype, &self.shape, self.as_bytes()) == (other.dtype, &other.shape, other.as_bytes())
    }
}

impl fmt::Display for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:?}", self.dtype, self.shape)
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tensor({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::bf16;
    use std::sync::Arc;

    #[test]
    fn numbers_are_read_only_as_the_type_of_the_tensor() {
        let mut tensor = Tensor::zeros(DType::BF16, vec![2]).unwrap();
        tensor.as_mut_slice::<bf16>().unwrap()[1] = bf16::ONE;
        assert_eq!(tensor.as_slice::<bf16>().unwrap(), [bf16::ZERO, bf16::ONE]);
        assert_eq!(
            tensor.as_slice::<i16>(),
            Err(ArrayError::Type { wanted: DType::I16, found: DType::BF16 })
        );
        assert_eq!(tensor.clone(), tensor);
        assert_eq!(tensor.into_bytes(), [0, 0, 0x80, 0x3f][..]);
        let mut truth = Tensor::zeros(DType::Bool, vec![1]).unwrap();
        assert_eq!(truth.as_slice::<bool>().unwrap(), [false]);
        truth.as_bytes_mut()[0] = 2;
        assert!(truth.as_slice::<bool>().is_err());
    }

    #[test]
    fn impossible_sizes_are_errors() {
        assert!(Tensor::zeros(DType::U8, vec![usize::MAX, 2]).is_err());
        assert!(Tensor::zeros(DType::U8, vec![usize::MAX / 2]).is_err());
        assert_eq!(Tensor::zeros(DType::F64, vec![3, 0]).unwrap().size(), 0);
        assert!(Tensor::new(DType::F32, vec![2], TensorBuffer::zeroed(7)).is_err());
    }

    #[test]
    fn into_rows_splits_the_memory_without_a_copy() {
        let pool = TensorPool::new(24);
        let mut tensor =
            Tensor::new(DType::I32, vec![3, 2], TensorBuffer::pooled(pool.take(), &pool)).unwrap();
        tensor.as_mut_slice::<i32>().unwrap().copy_from_slice(&[0, 1, 2, 3, 4, 5]);
        let (begin, copy) = (tensor.as_bytes().as_ptr(), tensor.clone());
        for parts in [0, 2, 4] {
            assert_eq!(copy.clone().into_rows(parts), Err(ArrayError::Parts { rows: 3, parts }));
        }
        let parts = tensor.into_rows(3).unwrap();
        assert_eq!(parts[0].as_ptr(), begin);
        assert_eq!(parts.concat(), copy.as_bytes());
        drop(parts);
        assert_eq!(pool.take().as_ptr(), begin);
        let none = Tensor::zeros(DType::U8, vec![0, 4]).unwrap().into_rows(8).unwrap();
        assert_eq!(none.concat().len() + none.len(), 8);
    }

    #[test]
    fn dropped_bytes_return_the_memory_to_the_pool() {
        let pool = TensorPool::new(64);
        let tensor = |pool: &Arc<TensorPool>| {
            Tensor::new(DType::U8, vec![64], TensorBuffer::pooled(pool.take(), pool)).unwrap()
        };
        let bytes = tensor(&pool).into_bytes();
        let (address, part) = (bytes.as_ptr(), bytes.slice(3..9));
        drop(bytes);
        assert_ne!(tensor(&pool).as_bytes().as_ptr(), address);
        drop(part);
        let again = [tensor(&pool), tensor(&pool)];
        assert!(again.iter().any(|tensor| tensor.as_bytes().as_ptr() == address));
    }
}
