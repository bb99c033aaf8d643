//! Decoding and encoding of fields by their extension.

mod array;

pub use array::{Array, DType};
