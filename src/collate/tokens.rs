//! `Tokens`: sequences of whole numbers, padded to one length.

use super::cell::{Cell, Output};
use super::check;
use super::column::Column;
use super::field::{Field, sequence_options};
use super::number::Integer;
use crate::codec::BoxError;
use crate::error::Result;
use crate::sample::{DType, Sample};

/// A column of sequences of whole numbers, such as tokens, padded to one length.
///
/// The column makes two tensors: the numbers, `[samples, length]`, and, with the suffix `.lengths`, the
/// length of each sequence without padding, `int32[samples]`. [`mask`](Tokens::mask) adds a tensor that is
/// true for each number that is not padding.
///
/// By default, the field is an npy file, a decoded [`Array`](crate::Array) or a JSON list. Its numbers may be
/// stored as any integer type. A number that does not fit into `T` is an error. A sequence that is longer
/// than `length` is an error too, unless [`truncate`](Tokens::truncate) is called. Reading raw bytes, or an
/// npy file in C order with little-endian numbers, allocates no memory.
///
/// ```
/// use shardstream::codec::DType;
/// use shardstream::collate::{Columns, Tokens};
/// use shardstream::Sample;
///
/// let tokens = Tokens::<i32>::new("bin", 4).raw(DType::U16).pad(-1).mask();
/// let batch = Columns::new().with("text", tokens).collate([
///     Sample::new("0001").with("bin", b"\x05\x00\xff\xff\x07\x00"),
///     Sample::new("0002").with("bin", b""),
/// ])?;
/// assert_eq!(batch["text"].as_slice::<i32>()?, [5, 65535, 7, -1, -1, -1, -1, -1]);
/// assert_eq!(batch["text.lengths"].as_slice::<i32>()?, [3, 0]);
/// assert_eq!(batch["text.mask"].as_slice::<bool>()?[..4], [true, true, true, false]);
/// # Ok::<(), shardstream::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Tokens<T> {
    field: Field,
    length: usize,
    pad: T,
    mask: bool,
    truncate: bool,
}

impl<T: Integer> Tokens<T> {
    /// Reads `field`, which may be several alternatives separated by semicolons.
    #[must_use]
    pub fn new(field: &str, length: usize) -> Self {
        Tokens { field: Field::new(field), length, pad: T::default(), mask: false, truncate: false }
    }

    sequence_options!();

    /// Sets the number that pads sequences that are shorter than `length`. Default: 0.
    #[must_use]
    pub fn pad(mut self, value: T) -> Self {
        self.pad = value;
        self
    }

    /// Adds a tensor `.mask`, `bool[samples, length]`: true where a number is not padding.
    #[must_use]
    pub fn mask(mut self) -> Self {
        self.mask = true;
        self
    }

    /// Truncates sequences that are longer than `length`. Default: such sequences are errors.
    #[must_use]
    pub fn truncate(mut self) -> Self {
        self.truncate = true;
        self
    }
}

/// The length that a sequence of `length` numbers has in a row with room for `room` numbers. If `length` is
/// larger than `room`, the sequence is truncated to `room` numbers if `truncate` is true, and otherwise it is
/// an error.
pub(super) fn truncated_len(length: usize, room: usize, truncate: bool) -> Result<usize, BoxError> {
    if length > room && !truncate {
        return Err(format!("the sequence of {length} is longer than {room}: see `truncate`").into());
    }
    Ok(length.min(room))
}

impl<T: Integer> Column for Tokens<T> {
    fn outputs(&self) -> Vec<Output> {
        let mut outputs =
            vec![Output::fixed(T::DTYPE, [self.length]), Output::fixed(DType::I32, []).named(".lengths")];
        if self.mask {
            outputs.push(Output::fixed(DType::Bool, [self.length]).named(".mask"));
        }
        outputs
    }

    fn check(&self) -> Result<()> {
        self.field.check_numbers::<T>()?;
        check::length(self.length)
    }

    fn write(&self, sample: &Sample, _: u64, cells: &mut [Cell]) -> Result<()> {
        let [numbers, length, mask @ ..] = cells else {
            return Err(check::wrong_cells());
        };
        let slot = numbers.numbers::<T>()?;
        let kept = self.field.with(sample, |numbers| {
            let kept = truncated_len(numbers.len()?, slot.len(), self.truncate)?;
            let (tokens, padding) = slot.split_at_mut(kept);
            numbers.read(tokens)?;
            padding.fill(self.pad);
            i32::try_from(kept).map_err(BoxError::from)
        })?;
        length.numbers::<i32>()?.fill(kept);
        for mask in mask {
            let (tokens, padding) = mask.bytes().split_at_mut(kept as usize);
            tokens.fill(1);
            padding.fill(0);
        }
        Ok(())
    }

    /// Writes an empty sequence.
    fn write_missing(&self, cells: &mut [Cell]) -> Result<()> {
        cells.iter_mut().for_each(Cell::clear);
        cells.first_mut().map_or(Ok(()), |numbers| {
            numbers.numbers::<T>()?.fill(self.pad);
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collate::{Columns, TensorBatch};
    use crate::sample::{Array, Value};
    use proptest::prelude::*;

    fn collate(column: Tokens<i32>, value: impl Into<Value>) -> Result<TensorBatch, String> {
        let sample = Sample::new("k").with("x", value);
        Columns::new().with("x", column).collate([sample]).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn every_form_of_a_field_gives_the_same_numbers() {
        let json = serde_json::json!({"ids": [1, 2, 70000]});
        let array = Array::from_vec(vec![3], vec![1u32, 2, 70000]).unwrap();
        let column = || Tokens::new("x", 4).pad(9);
        for batch in [
            collate(column(), array.to_npy()),
            collate(column(), array.clone()),
            collate(column().raw(DType::U32), array.data().clone()),
            collate(column(), "[1, 2, 70000]"),
            collate(column(), b" [1, 2, 70000]\n"),
            collate(column().at("/ids"), serde_json::to_vec(&json).unwrap()),
            collate(column().at("/ids"), json),
        ] {
            let batch = batch.unwrap();
            assert_eq!(batch["x"].as_slice::<i32>().unwrap(), [1, 2, 70000, 9]);
            assert_eq!(batch["x.lengths"].as_slice::<i32>().unwrap(), [3]);
            assert!(batch.tensor("x.mask").is_err());
        }
    }

    #[test]
    fn values_that_do_not_fit_are_errors() {
        let long = collate(Tokens::new("x", 2).truncate(), "[1, 2, 3]").unwrap();
        assert_eq!(long["x"].as_slice::<i32>().unwrap(), [1, 2]);
        let matrix = Array::from_vec(vec![1, 2], vec![1i32, 2]).unwrap();
        for (found, wanted) in [
            (collate(Tokens::new("x", 2), "[1, 2, 3]"), "the sequence of 3 is longer than 2"),
            (collate(Tokens::new("x", 2), "[1, 2147483648]"), "2147483648 does not fit int32"),
            (collate(Tokens::new("x", 2), "[1, 0.5]"), "0.5 does not fit int32"),
            (collate(Tokens::new("x", 2), r#"["a"]"#), "is not a number"),
            (collate(Tokens::new("x", 2), "{}"), "no list at"),
            (collate(Tokens::new("x", 2), matrix), "[1, 2] is not a sequence"),
        ] {
            let error = found.unwrap_err();
            assert!(error.contains(wanted) && error.contains("\"x\""), "{error}");
        }
    }

    proptest! {
        #[test]
        fn rows_are_the_truncated_and_padded_sequences(
            sequences in prop::collection::vec(prop::collection::vec(any::<u16>(), 0..12), 1..9),
            length in 1usize..12,
        ) {
            let samples = sequences.iter().enumerate().map(|(at, tokens)| {
                let raw: Vec<u8> = tokens.iter().flat_map(|token| token.to_le_bytes()).collect();
                Sample::new(at.to_string()).with("x", raw)
            });
            let column = Tokens::<i32>::new("x", length).raw(DType::U16).pad(-1).mask().truncate();
            let batch = Columns::new().with("x", column).collate(samples).unwrap();
            let cells = |f: &dyn Fn(Option<&u16>) -> i32| -> Vec<i32> {
                sequences.iter().flat_map(|tokens| (0..length).map(|at| f(tokens.get(at)))).collect()
            };
            let wanted = cells(&|token| token.map_or(-1, |t| (*t).into()));
            prop_assert_eq!(batch["x"].as_slice::<i32>().unwrap(), wanted);
            let mask = batch["x.mask"].as_slice::<bool>().unwrap();
            let mask: Vec<i32> = mask.iter().map(|m| (*m).into()).collect();
            prop_assert_eq!(mask, cells(&|token| token.is_some().into()));
            let lengths: Vec<i32> = sequences.iter().map(|tokens| tokens.len().min(length) as i32).collect();
            prop_assert_eq!(batch["x.lengths"].as_slice::<i32>().unwrap(), lengths);
        }
    }
}
