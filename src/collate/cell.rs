//! `Output` describes a tensor of a column. `Cell` is the memory of one sample in such a tensor.

use crate::error::{ErrorKind, Result};
use crate::sample::array::byte_len;
use crate::sample::{ArrayError, DType, Element};
use crate::tensor::TensorPool;
use bytemuck::{CheckedBitPattern, NoUninit};
use bytes::{Bytes, BytesMut};

/// The description of a tensor of a batch: the type and the shape of one sample.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Output {
    /// The suffix after the column's name: empty for the main output, otherwise `.lengths`, for example.
    pub suffix: &'static str,
    /// The type of the numbers.
    pub dtype: DType,
    /// The shape of one sample.
    pub shape: Shape,
}

/// The shape of a sample in a tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Shape {
    /// A fixed shape. The tensor's shape is `[samples, …]`. A shape without axes is one number.
    Fixed(Vec<usize>),
    /// Any number of rows of this shape. The tensor's shape is `[rows, …]`: the rows of all samples, one
    /// sample after the other. A row shape without axes is one number.
    ///
    /// A second tensor, with the suffix `.offsets`, tells where the rows of each sample begin:
    /// `int64[samples + 1]`, counted in rows, from 0 to the total number of rows.
    Ragged(Vec<usize>),
}

impl Output {
    /// An output without a suffix, of a fixed shape.
    #[must_use]
    pub fn fixed(dtype: DType, shape: impl Into<Vec<usize>>) -> Self {
        Output { suffix: "", dtype, shape: Shape::Fixed(shape.into()) }
    }

    /// An output without a suffix, with any quantity of numbers per sample.
    #[must_use]
    pub fn ragged(dtype: DType) -> Self {
        Output::ragged_rows(dtype, [])
    }

    /// An output without a suffix, with any number of rows of this shape per sample. A row may be a picture.
    #[must_use]
    pub fn ragged_rows(dtype: DType, row: impl Into<Vec<usize>>) -> Self {
        Output { suffix: "", dtype, shape: Shape::Ragged(row.into()) }
    }

    /// Sets the suffix after the column's name.
    #[must_use]
    pub fn named(self, suffix: &'static str) -> Self {
        Output { suffix, ..self }
    }

    /// The number of bytes of a sample; `None` for a ragged output, or if the number overflows.
    pub(super) fn size(&self) -> Option<usize> {
        if self.is_ragged() { None } else { self.row_size() }
    }

    /// The number of bytes of a sample, or of one row of a ragged output; `None` if the number overflows.
    pub(super) fn row_size(&self) -> Option<usize> {
        byte_len(self.row(), self.dtype.size())
    }

    /// The shape of a sample, or of one row of a ragged output.
    pub(super) fn row(&self) -> &[usize] {
        match &self.shape {
            Shape::Fixed(shape) | Shape::Ragged(shape) => shape,
        }
    }

    pub(super) fn is_ragged(&self) -> bool {
        matches!(self.shape, Shape::Ragged(_))
    }
}

/// The memory of one sample in one tensor.
#[derive(Debug)]
pub struct Cell {
    pub(super) dtype: DType,
    /// The number of bytes of one row of a ragged output.
    row: usize,
    pub(super) content: CellContent,
}

#[derive(Debug)]
pub(super) enum CellContent {
    /// The slot of an output of a fixed shape.
    Slot(BytesMut),
    /// The rows of a ragged output.
    Piece(Bytes),
}

impl Cell {
    /// Makes the cell of an output. If the output has a fixed shape, `slot` is called with its size in bytes
    /// and returns the memory.
    pub(super) fn new(output: &Output, slot: impl FnOnce(usize) -> BytesMut) -> Self {
        let content = match output.size() {
            Some(size) => CellContent::Slot(slot(size)),
            None => CellContent::Piece(Bytes::new()),
        };
        Cell { dtype: output.dtype, row: output.row_size().unwrap_or(usize::MAX), content }
    }

    /// Makes a cell with newly allocated memory, outside of a batch.
    pub(super) fn standalone(output: &Output) -> Self {
        Cell::new(output, TensorPool::unpooled)
    }

    /// Makes a cell of the same output with another content.
    pub(super) fn with_content(&self, content: CellContent) -> Self {
        Cell { content, ..*self }
    }

    /// Takes the slot out, and leaves an empty slot.
    pub(super) fn take_slot(&mut self) -> BytesMut {
        match &mut self.content {
            CellContent::Slot(slot) => std::mem::take(slot),
            CellContent::Piece(_) => BytesMut::new(),
        }
    }

    /// Appends memory to the slot. Adjacent memory is not copied.
    pub(super) fn join(&mut self, part: BytesMut) {
        if let CellContent::Slot(slot) = &mut self.content {
            slot.unsplit(part);
        }
    }

    /// The bytes of a slot, aligned for the type of number; empty if the output is ragged. At first the bytes
    /// have the content of an earlier batch, so all bytes must be written.
    pub fn bytes(&mut self) -> &mut [u8] {
        match &mut self.content {
            CellContent::Slot(slot) => slot,
            CellContent::Piece(_) => &mut [],
        }
    }

    /// The numbers of a slot; empty if the output is ragged. At first the numbers have the content of an
    /// earlier batch, so all numbers must be written.
    ///
    /// # Errors
    /// [`ErrorKind::Array`] if the output has another type.
    pub fn numbers<T: Element + CheckedBitPattern + NoUninit>(&mut self) -> Result<&mut [T]> {
        let other = ArrayError::Type { wanted: T::DTYPE, found: self.dtype };
        if T::DTYPE != self.dtype {
            return Err(other.into());
        }
        if self.dtype == DType::Bool {
            // The content of an earlier batch may have bytes that are not valid values of `bool`.
            self.bytes().fill(0);
        }
        bytemuck::checked::try_cast_slice_mut(self.bytes()).map_err(|_| other.into())
    }

    /// Fills a slot with zeros, or removes all rows of a ragged output.
    pub fn clear(&mut self) {
        match &mut self.content {
            CellContent::Slot(slot) => slot.fill(0),
            CellContent::Piece(piece) => *piece = Bytes::new(),
        }
    }

    /// Sets the sample's rows in a ragged output. `rows` are the bytes of the numbers, in the machine's byte
    /// order. The bytes are copied when the batch is complete.
    ///
    /// # Errors
    /// [`ErrorKind::Array`] if the bytes end within a row; [`ErrorKind::Config`] if the output has a fixed
    /// shape.
    pub fn put(&mut self, rows: impl Into<Bytes>) -> Result<()> {
        let (dtype, row) = (self.dtype, self.row);
        let CellContent::Piece(piece) = &mut self.content else {
            let what =
                "a column calls `Cell::put` for an output of a fixed shape: write to `bytes` or `numbers`";
            return Err(ErrorKind::Config(what.into()).into());
        };
        let rows = rows.into();
        if !rows.len().is_multiple_of(row) {
            let (bytes, numbers) = (rows.len(), row / dtype.size());
            let count = bytes.checked_div(row).unwrap_or(0);
            let shape = if numbers == 1 { vec![count] } else { vec![count, numbers] };
            return Err(ArrayError::Shape { dtype, shape, bytes }.into());
        }
        *piece = rows;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collate::{Column, Columns, Optional};
    use crate::sample::Sample;

    /// A column that puts the bytes of the field `x` as rows of this shape.
    struct Pairs(Vec<usize>);

    impl Column for Pairs {
        fn outputs(&self) -> Vec<Output> {
            vec![Output::ragged_rows(DType::I16, &self.0[..])]
        }

        fn write(&self, sample: &Sample, _: u64, cells: &mut [Cell]) -> Result<()> {
            cells[0].put(sample.field("x")?.as_bytes().cloned().unwrap_or_default())
        }
    }

    #[test]
    fn ragged_rows_are_concatenated_and_have_offsets() {
        let numbers = |numbers: &[i16]| numbers.iter().flat_map(|n| n.to_ne_bytes()).collect::<Vec<u8>>();
        let samples =
            || [&[1i16, 2, 3, 4][..], &[], &[5, 6]].map(|list| Sample::new("k").with("x", numbers(list)));
        let batch = Columns::new().with("x", Pairs(vec![2])).collate(samples()).unwrap();
        assert_eq!(batch["x"].to_string(), "int16[3, 2]");
        assert_eq!(batch["x.offsets"].as_slice::<i64>().unwrap(), [0, 2, 2, 3]);
        assert!(batch.pieces::<i16>("x").unwrap().eq([&[1, 2, 3, 4][..], &[], &[5, 6]]));
        let optional = Columns::new().with("x", Optional::new(Pairs(vec![2, 1])));
        let batch =
            optional.collate([Sample::new("a"), Sample::new("b").with("x", numbers(&[7, 8]))]).unwrap();
        assert_eq!(batch["x"].to_string(), "int16[1, 2, 1]");
        assert_eq!(batch["x.offsets"].as_slice::<i64>().unwrap(), [0, 0, 1]);
        assert_eq!(
            format!("{:?}", Columns::new().with("x", Pairs(vec![2, 1]))),
            "{\"x\": \"int16[.., 2, 1]\"}"
        );
        // In a batch without samples, the tensor still has the shape of a row.
        let batch = Columns::new().with("x", Pairs(vec![2])).collate([]).unwrap();
        assert_eq!(batch["x"].to_string(), "int16[0, 2]");
    }

    #[test]
    fn bytes_that_end_within_a_row_are_an_error() {
        let columns = Columns::new().with("x", Pairs(vec![2]));
        let error = columns.collate([Sample::new("k").with("x", b"123456")]).unwrap_err();
        let text = format!("{error:#}");
        assert!(text.contains("int16[1, 2] does not fit 6 bytes") && text.contains("sample k"), "{text}");
        let columns = Columns::new().with("x", Pairs(vec![]));
        let error = columns.collate([Sample::new("k").with("x", b"123")]).unwrap_err();
        assert!(format!("{error:#}").contains("int16[1] does not fit 3 bytes"), "{error:#}");
    }

    #[test]
    fn rows_that_are_empty_or_too_large_are_errors() {
        for (row, wanted) in
            [(vec![2, 0], "have no numbers"), (vec![usize::MAX, 2], "larger than any memory")]
        {
            let error = Columns::new().with("x", Pairs(row)).check().unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Config(_)), "{error:?}");
            assert!(error.to_string().contains(wanted), "{error}");
        }
    }
}
