//! `Optional`: a column of a field that samples may lack.

use super::cell::{Cell, Output, Shape};
use super::check::{self, config_error};
use super::collator::INLINE;
use super::column::Column;
use crate::error::{ErrorKind, Result};
use crate::sample::{DType, Sample, Value};
use crate::tensor::Tensor;
use smallvec::SmallVec;

/// The suffix of the tensor that tells which samples have the field.
pub(super) const PRESENT: &str = ".present";

/// A column of a field that samples may lack. An additional tensor `.present`, `bool[samples]`, is true for
/// the samples that have the field.
///
/// The slot of a sample without the field is filled with zeros, or with padding for
/// [`Tokens`](super::Tokens); a ragged column gets no numbers. With
/// [`default_value`](Optional::default_value), the column reads the default value as if it were the field.
///
/// Only a missing field ([`ErrorKind::MissingField`]) is replaced. It is an error if the field is damaged or
/// has another type, or if a JSON document has no value at the pointer of `at`.
///
/// ```
/// use shardstream::Sample;
/// use shardstream::collate::{Columns, Optional, Scalar, Text};
///
/// let columns = Columns::new()
///     .with("label", Optional::new(Scalar::<i32>::new("cls")).default_value(-1))
///     .with("caption", Optional::new(Text::new("txt")));
/// let batch = columns.collate([
///     Sample::new("0001").with("cls", b"7"),
///     Sample::new("0002").with("txt", "a dog"),
/// ])?;
/// assert_eq!(batch["label"].as_slice::<i32>()?, [7, -1]);
/// assert_eq!(batch["label.present"].as_slice::<bool>()?, [true, false]);
/// assert!(batch.strings("caption")?.eq(["", "a dog"]));
/// assert_eq!(batch["caption.present"].as_slice::<bool>()?, [false, true]);
/// # Ok::<(), shardstream::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Optional<C> {
    column: C,
    default: Option<Value>,
}

impl<C: Column> Optional<C> {
    /// Wraps a column that reads a field. [`check`](super::Columns::check) refuses a column that accepts a
    /// sample without fields. To detect such a column, `check` writes a sample without fields to it.
    #[must_use]
    pub fn new(column: C) -> Self {
        Optional { column, default: None }
    }

    /// Sets the value for samples that lack the field, in a form that the field could have: a whole number,
    /// text such as `"0.5"`, the bytes of a picture, a JSON document. The column reads the value like a
    /// field, and [`check`](super::Columns::check) tests that the column can read it. By default, there is no
    /// value, and slots are filled with zeros.
    ///
    /// A default value works only with columns that read one field.
    #[must_use]
    pub fn default_value(mut self, value: impl Into<Value>) -> Self {
        self.default = Some(value.into());
        self
    }

    /// Writes a sample that lacks the field `missing`.
    fn write_default(&self, sample: &Sample, missing: &str, seed: u64, cells: &mut [Cell]) -> Result<()> {
        let Some(value) = &self.default else { return self.column.write_missing(cells) };
        let field = missing.split(';').next().unwrap_or_default();
        self.column.write(&sample.clone().with(field, value.clone()), seed, cells)
    }
}

/// `check` tests the column by writing a sample to it, but only if the sample's slots have at most this many
/// bytes.
const MAX_TRIED: usize = 1 << 28;

impl<C: Column> Column for Optional<C> {
    fn outputs(&self) -> Vec<Output> {
        let mut outputs = self.column.outputs();
        outputs.push(Output::fixed(DType::Bool, []).named(PRESENT));
        outputs
    }

    fn check(&self) -> Result<()> {
        self.column.check()?;
        let outputs = self.column.outputs();
        if outputs.iter().any(|output| output.suffix == PRESENT) {
            return Err(config_error(
                "`Optional` of a column that has a tensor `.present` itself: leave `Optional` out, or name \
                 the tensor of your own column differently",
            ));
        }
        let size = |output: &Output| match output.shape {
            Shape::Fixed(_) => output.size(),
            Shape::Ragged(_) => Some(0),
        };
        let size = outputs.iter().try_fold(0usize, |sum, output| sum.checked_add(size(output)?));
        if size.is_none_or(|size| size > MAX_TRIED) {
            return Ok(());
        }
        let mut cells: SmallVec<[Cell; INLINE]> = outputs.iter().map(Cell::standalone).collect();
        let empty = Sample::new("");
        match self.column.write(&empty, 0, &mut cells) {
            Ok(()) => Err(config_error(
                "`Optional` of a column that accepts a sample without fields: leave `Optional` out",
            )),
            Err(error) => match error.kind() {
                ErrorKind::MissingField { wanted, .. } if self.default.is_some() => {
                    self.write_default(&empty, wanted, 0, &mut cells).map_err(|error| {
                        config_error(format!("`default_value`, which the column cannot read: {error:#}"))
                    })
                }
                _ => Ok(()),
            },
        }
    }

    fn write(&self, sample: &Sample, seed: u64, cells: &mut [Cell]) -> Result<()> {
        let Some((present, cells)) = cells.split_last_mut() else {
            return Err(check::wrong_cells());
        };
        let is_present = match self.column.write(sample, seed, cells) {
            Ok(()) => true,
            Err(error) => match error.kind() {
                ErrorKind::MissingField { wanted, .. } => {
                    self.write_default(sample, wanted, seed, cells)?;
                    false
                }
                _ => return Err(error),
            },
        };
        present.numbers::<bool>()?.fill(is_present);
        Ok(())
    }

    fn write_missing(&self, cells: &mut [Cell]) -> Result<()> {
        let Some((present, cells)) = cells.split_last_mut() else { return Ok(()) };
        present.clear();
        self.column.write_missing(cells)
    }

    fn follows(&self) -> Option<&str> {
        self.column.follows()
    }

    fn is_picture(&self) -> bool {
        self.column.is_picture()
    }

    fn finished(&self) -> Option<Vec<&'static str>> {
        let mut suffixes = self.column.finished()?;
        suffixes.push(PRESENT);
        Some(suffixes)
    }

    fn finish(&self, mut tensors: Vec<Tensor>, valid: usize) -> Result<Vec<Tensor>> {
        let present = tensors.pop();
        let mut finished = self.column.finish(tensors, valid)?;
        finished.extend(present);
        Ok(finished)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collate::{
        ArrayColumn, Blob, Columns, Origin, PackedTokens, Ragged, Scalar, TensorBatch, Text, Tokens,
    };
    use crate::sample::Array;

    /// Collates three samples: the first and the last have the field, with these values; the second lacks it.
    fn collate(column: impl Column + 'static, values: [Value; 2]) -> TensorBatch {
        let [first, last] = values.map(|value| Sample::new("k").with("x", value));
        let lacks = Sample::new("k").with("y", 9);
        let batch = Columns::new().with("x", column).collate([first, lacks, last]).unwrap();
        assert_eq!(batch["x.present"].as_slice::<bool>().unwrap(), [true, false, true]);
        batch
    }

    #[test]
    fn every_column_accepts_a_missing_field() {
        let batch = collate(Optional::new(Scalar::<f32>::new("x")), [1.into(), 3.into()]);
        assert_eq!(batch["x"].as_slice::<f32>().unwrap(), [1., 0., 3.]);
        let batch = collate(Optional::new(Text::new("z;x")), ["one".into(), "two".into()]);
        assert!(batch.strings("x").unwrap().eq(["one", "", "two"]));
        let batch = collate(Optional::new(Blob::new("x")), [b"\xff".into(), b"".into()]);
        assert_eq!(batch["x.offsets"].as_slice::<i64>().unwrap(), [0, 1, 1, 1]);
        let lists = || ["[1, 2]".into(), "[3]".into()];
        let batch = collate(Optional::new(Ragged::<i16>::new("x")), lists());
        assert!(batch.pieces::<i16>("x").unwrap().eq([&[1, 2][..], &[], &[3]]));
        let arrays = [[1u8, 2], [3, 4]].map(|numbers| Array::from_vec(vec![2], numbers.to_vec()).unwrap());
        let batch = collate(Optional::new(ArrayColumn::new("x", DType::U8, [2])), arrays.map(Value::from));
        assert_eq!(batch["x"].as_slice::<u8>().unwrap(), [1, 2, 0, 0, 3, 4]);

        let batch = collate(Optional::new(Tokens::<i32>::new("x", 3).pad(-1).mask()), lists());
        assert_eq!(batch["x"].as_slice::<i32>().unwrap(), [1, 2, -1, -1, -1, -1, 3, -1, -1]);
        assert_eq!(batch["x.lengths"].as_slice::<i32>().unwrap(), [2, 0, 1]);
        assert_eq!(batch["x.mask"].as_slice::<bool>().unwrap()[2..7], [false, false, false, false, true]);
        let batch = collate(Optional::new(PackedTokens::<i32>::new("x", 1, 4)), lists());
        assert_eq!(batch["x"].as_slice::<i32>().unwrap(), [1, 2, 3, 0]);
        assert_eq!(batch["x.segments"].as_slice::<i32>().unwrap(), [1, 1, 2, 0]);
    }

    #[test]
    fn the_default_value_is_read_like_a_field() {
        let half = Optional::new(Scalar::<f32>::new("x")).default_value("0.5");
        assert_eq!(collate(half, [1.into(), 3.into()])["x"].as_slice::<f32>().unwrap(), [1., 0.5, 3.]);
        let document = || serde_json::json!({"a": 7});
        let column = Scalar::<u8>::new("z;x").at("/a");
        let batch = collate(
            Optional::new(column).default_value(document()),
            [b"{\"a\": 1}".into(), document().into()],
        );
        assert_eq!(batch["x"].as_slice::<u8>().unwrap(), [1, 7, 7]);
        let column = Optional::new(Tokens::<i32>::new("x", 2)).default_value("[5]");
        let batch = collate(column, ["[1, 2]".into(), "[3]".into()]);
        assert_eq!(batch["x"].as_slice::<i32>().unwrap(), [1, 2, 5, 0, 3, 0]);
        assert_eq!(batch["x.lengths"].as_slice::<i32>().unwrap(), [2, 1, 1]);
        let batch = collate(Optional::new(Text::new("x")).default_value("none"), ["".into(), "a".into()]);
        assert!(batch.strings("x").unwrap().eq(["", "none", "a"]));
    }

    #[test]
    fn a_bad_field_is_an_error() {
        let columns = |column: Scalar<i32>| {
            Columns::new().with("x", Optional::new(column).default_value(serde_json::json!(1)))
        };
        let collate = |column, value: Value| columns(column).collate([Sample::new("k").with("x", value)]);
        for (found, wanted) in [
            (collate(Scalar::new("x"), b"cat".into()), "\"cat\" is not a whole number"),
            (collate(Scalar::new("x"), (1i64 << 40).into()), "does not fit int32"),
            (collate(Scalar::new("x"), b"".into()), "not a whole number"),
            (collate(Scalar::new("x").at(""), b"[".into()), "EOF"),
        ] {
            let error = found.unwrap_err();
            let text = format!("{error:#}");
            assert!(matches!(error.kind(), ErrorKind::Decode { .. }), "{text}");
            assert!(text.contains(wanted) && text.contains("sample k"), "{text}");
        }
        let place = Columns::new().with("x", Optional::new(Scalar::<i32>::new("x").at("/a")));
        assert!(place.collate([Sample::new("k").with("x", b"{}")]).is_err());
        let blob = Columns::new().with("x", Optional::new(Blob::new("x")));
        let error = blob.collate([Sample::new("k").with("x", "text")]).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::WrongType { .. }), "{error}");
    }

    #[test]
    fn invalid_options_are_errors_with_the_name_of_the_column() {
        let refused = |column: &dyn Fn(Columns) -> Columns, wanted: &str| {
            let error = column(Columns::new()).check().unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Config(_)), "{error:?}");
            let text = error.to_string();
            assert!(text.contains(wanted) && text.contains("\"x\""), "{text}");
        };
        refused(&|c| c.with("x", Optional::new(Blob::new(""))), "the field \"\"");
        refused(&|c| c.with("x", Optional::new(Origin::key())), "leave `Optional` out");
        refused(&|c| c.with("x", Optional::new(Optional::new(Blob::new("x")))), "leave `Optional` out");
        let number = || Optional::new(Scalar::<u8>::new("x"));
        refused(&|c| c.with("x", number().default_value(-1)), "`default_value`");
        refused(&|c| c.with("x", number().default_value(300)), "300 does not fit uint8");
        let array = ArrayColumn::new("x", DType::F32, [2]);
        refused(&|c| c.with("x", Optional::new(array.clone()).default_value(b"1234")), "neither an npy");
        // `Optional` does not try to write a sample to a column of this size. `Columns::check` refuses it.
        let huge = ArrayColumn::new("x", DType::F32, [usize::MAX / 2]);
        refused(&|c| c.with("x", Optional::new(huge.clone())), "larger than any memory");
    }

    #[test]
    fn the_content_of_an_earlier_batch_is_overwritten() {
        let columns = Columns::new().with("x", Optional::new(Tokens::<u8>::new("x", 4).mask()));
        let collator = crate::collate::Collator::new(columns, 2);
        let mut allocator = collator.slots();
        for values in [["[1, 2, 3, 4]", "[5, 6, 7, 8]"].map(Some), [None, None]] {
            let rows = values.map(|value| {
                let sample = Sample::new("k");
                let sample = if let Some(value) = value { sample.with("x", value) } else { sample };
                collator.row(&sample, 0, allocator.next_row()).unwrap()
            });
            let batch = collator.batch(rows.into(), 2).unwrap();
            let wanted = |tensor: &str, byte: u8| batch[tensor].as_bytes().iter().all(|found| *found == byte);
            if values[0].is_none() {
                assert!(["x", "x.lengths", "x.mask", "x.present"].iter().all(|tensor| wanted(tensor, 0)));
            } else {
                assert!(wanted("x.present", 1));
            }
        }
    }
}
