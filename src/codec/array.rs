//! An array with a shape, as npy files hold it.

use bytes::Bytes;

/// An array of numbers: little-endian, row-major (C order).
#[derive(Debug, Clone, PartialEq)]
pub struct Array {
    dtype: DType,
    shape: Vec<usize>,
    data: Bytes,
}

/// The type of an array's elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DType {
    /// 8-bit number without a sign.
    U8,
}

impl Array {
    /// The bytes that the elements take.
    #[must_use]
    pub fn size(&self) -> usize {
        self.data.len()
    }
}
