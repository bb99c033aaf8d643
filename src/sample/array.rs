//! `Array`: numbers with a dtype and a shape, as npy files store them.

use crate::dtype::DType;
use crate::error::{Error, ErrorKind};
use bytes::Bytes;
use half::{bf16, f16};
use std::fmt;

/// Maximum number of axes of an array, as in numpy.
pub(crate) const MAX_AXES: usize = 64;

/// An array of numbers: little-endian, row-major (C order).
///
/// ```
/// use shardstream::codec::{Array, DType};
///
/// let array = Array::from_vec(vec![2, 3], vec![1f32, 2., 3., 4., 5., 6.])?;
/// assert_eq!((array.dtype(), array.shape()), (DType::F32, &[2, 3][..]));
/// assert_eq!(array.to_vec::<f32>()?, [1., 2., 3., 4., 5., 6.]);
/// assert_eq!(array.to_string(), "float32[2, 3]");
/// # Ok::<(), shardstream::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Array {
    dtype: DType,
    shape: Vec<usize>,
    data: Bytes,
}

/// Why an array could not be made, read or split.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ArrayError {
    /// The number of elements does not match the shape, or the shape has more than 64 axes.
    #[error("{dtype}{shape:?} does not fit {bytes} bytes of data")]
    Shape {
        /// The type of the elements.
        dtype: DType,
        /// The shape.
        shape: Vec<usize>,
        /// The size of the data.
        bytes: usize,
    },
    /// The type of the elements is not the requested type.
    #[error("the array holds {found}, not {wanted}")]
    Type {
        /// The requested type.
        wanted: DType,
        /// The array's type.
        found: DType,
    },
    /// The type or the shape of the array is not the declared type or shape.
    #[error("the array is {found}{found_shape:?}, and {wanted}{wanted_shape:?} is declared")]
    Mismatch {
        /// The declared type.
        wanted: DType,
        /// The declared shape.
        wanted_shape: Vec<usize>,
        /// The array's type.
        found: DType,
        /// The array's shape.
        found_shape: Vec<usize>,
    },
    /// The rows cannot be split into equal parts.
    #[error("{rows} rows cannot be cut into {parts} equal parts")]
    Parts {
        /// The length of the first axis.
        rows: usize,
        /// The requested number of parts.
        parts: usize,
    },
}

impl From<ArrayError> for Error {
    fn from(error: ArrayError) -> Self {
        ErrorKind::Array(Box::new(error)).into()
    }
}

impl Array {
    /// Makes an array from little-endian elements in row-major order.
    ///
    /// # Errors
    /// [`ArrayError::Shape`] when the data is longer or shorter than the shape needs, or the shape has more
    /// than 64 axes.
    pub fn new(dtype: DType, shape: Vec<usize>, data: impl Into<Bytes>) -> Result<Self, ArrayError> {
        let data = data.into();
        if shape.len() <= MAX_AXES && byte_len(&shape, dtype.size()) == Some(data.len()) {
            Ok(Array { dtype, shape, data })
        } else {
            Err(ArrayError::Shape { dtype, shape, bytes: data.len() })
        }
    }

    /// Makes an array from elements in row-major order.
    ///
    /// # Errors
    /// [`ArrayError::Shape`] when there are more or fewer elements than the shape needs, or the shape has
    /// more than 64 axes.
    pub fn from_vec<T: Element>(shape: Vec<usize>, elements: Vec<T>) -> Result<Self, ArrayError> {
        let mut data = Vec::with_capacity(elements.len() * T::DTYPE.size());
        for element in elements {
            element.push(&mut data);
        }
        Array::new(T::DTYPE, shape, data)
    }

    /// Copies the elements into new memory, unless this array is the only owner of their memory.
    pub(crate) fn compact(&mut self) {
        if !self.data.is_unique() {
            self.data = Bytes::copy_from_slice(&self.data);
        }
    }

    /// The elements in row-major order.
    ///
    /// # Errors
    /// [`ArrayError::Type`] when the array has another type than `T`. Elements are not converted.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>, ArrayError> {
        if T::DTYPE != self.dtype {
            return Err(ArrayError::Type { wanted: T::DTYPE, found: self.dtype });
        }
        Ok(self.data.chunks_exact(self.dtype.size()).map(T::read).collect())
    }

    /// The type of the elements.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The length of each axis; empty for a single number.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The elements: little-endian, in row-major order. The memory may be unaligned for the type of the
    /// elements.
    #[must_use]
    pub fn data(&self) -> &Bytes {
        &self.data
    }

    /// The number of bytes of the elements.
    #[must_use]
    pub fn size(&self) -> usize {
        self.data.len()
    }
}

impl fmt::Display for Array {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:?}", self.dtype, self.shape)
    }
}

impl fmt::Debug for Array {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Array({self})")
    }
}

/// The number of bytes of an array; `None` if the number overflows.
pub(crate) fn byte_len(shape: &[usize], item: usize) -> Option<usize> {
    if shape.contains(&0) {
        return Some(0);
    }
    shape.iter().try_fold(item, |bytes, &axis| bytes.checked_mul(axis))
}

mod sealed {
    pub trait Sealed: Copy {
        /// Appends the element in little-endian order.
        fn push(self, to: &mut Vec<u8>);
        /// Reads an element. `bytes` is exactly as long as the element.
        fn read(bytes: &[u8]) -> Self;
    }
}

/// A Rust type for the elements of an [`Array`]: `bool`, the integers of 8 to 64 bits, `f32`, `f64`, and
/// `f16` and `bf16` of the crate `half`.
pub trait Element: sealed::Sealed {
    /// The element type of an array of these elements.
    const DTYPE: DType;
}

macro_rules! elements {
    ($($type:ident: $dtype:ident),*) => {$(
        impl sealed::Sealed for $type {
            fn push(self, to: &mut Vec<u8>) {
                to.extend_from_slice(&self.to_le_bytes());
            }

            fn read(bytes: &[u8]) -> Self {
                <$type>::from_le_bytes(bytes.try_into().expect("a chunk is as long as an element"))
            }
        }

        impl Element for $type {
            const DTYPE: DType = DType::$dtype;
        }
    )*};
}

elements!(
    i8: I8, i16: I16, i32: I32, i64: I64, u8: U8, u16: U16, u32: U32, u64: U64,
    f16: F16, bf16: BF16, f32: F32, f64: F64
);

impl sealed::Sealed for bool {
    fn push(self, to: &mut Vec<u8>) {
        to.push(self.into());
    }

    fn read(bytes: &[u8]) -> Self {
        bytes != [0]
    }
}

impl Element for bool {
    const DTYPE: DType = DType::Bool;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_elements_must_be_that_of_the_shape() {
        assert!(Array::from_vec(vec![2, 2], vec![1u8, 2, 3]).is_err());
        assert!(Array::from_vec(vec![usize::MAX, 2], vec![1u8, 2]).is_err());
        assert!(Array::from_vec::<u8>(vec![0, usize::MAX, 2], vec![]).is_ok());
        assert_eq!(Array::from_vec(vec![], vec![1.5f64]).unwrap().to_vec::<f64>().unwrap(), [1.5]);
    }

    #[test]
    fn elements_are_not_converted() {
        let array = Array::from_vec(vec![2], vec![true, false]).unwrap();
        assert_eq!(array.to_vec::<bool>().unwrap(), [true, false]);
        assert_eq!(array.to_vec::<u8>(), Err(ArrayError::Type { wanted: DType::U8, found: DType::Bool }));
    }

    #[test]
    fn debug_shows_the_dtype_and_shape_without_the_data() {
        let array = Array::from_vec(vec![1000, 1], vec![0i64; 1000]).unwrap();
        assert_eq!(format!("{array:?}"), "Array(int64[1000, 1])");
        assert_eq!(array.size(), 8000);
    }
}
