//! `Ragged`, `Text` and `Blob`: numbers, texts and bytes of any length.

use super::cell::{Cell, Output};
use super::check;
use super::column::Column;
use super::field::{ArrayData, Field, FieldNumbers, sequence_options};
use super::number::Number;
use crate::codec::{BoxError, parse_json};
use crate::error::{Error, ErrorKind, Result, ValueType};
use crate::sample::{DType, Sample, Value};
use bytes::Bytes;
use std::marker::PhantomData;

/// A column of sequences of any length. It makes two tensors. The first contains the numbers of all sequences
/// of a batch, one sequence after the other. The second, `int64[samples + 1]`, has the suffix `.offsets` and
/// tells where the numbers of each sample begin. [`TensorBatch::pieces`](super::TensorBatch::pieces) returns
/// the sequences.
///
/// By default, the field is an npy file, a decoded [`Array`](crate::Array) or a JSON list. Whole numbers may
/// be stored as any integer type, floats only as `T`. A number that does not fit into `T` is an error.
///
/// ```
/// use shardstream::collate::{Columns, Ragged};
/// use shardstream::{Sample, Value};
///
/// let columns = Columns::new().with("x", Ragged::<f32>::new("json"));
/// let batch = columns.collate([
///     Sample::new("0001").with("json", "[1, 2.5]"),
///     Sample::new("0002").with("json", "[]"),
///     Sample::new("0003").with("json", "[3]"),
/// ])?;
/// assert_eq!(batch["x"].as_slice::<f32>()?, [1., 2.5, 3.]);
/// assert_eq!(batch["x.offsets"].as_slice::<i64>()?, [0, 2, 2, 3]);
/// assert_eq!(batch.pieces::<f32>("x")?.last(), Some(&[3.][..]));
/// # Ok::<(), shardstream::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Ragged<T> {
    field: Field,
    number: PhantomData<fn() -> T>,
}

impl<T: Number> Ragged<T> {
    /// Reads `field`, which may be several alternatives separated by semicolons.
    #[must_use]
    pub fn new(field: &str) -> Self {
        Ragged { field: Field::new(field), number: PhantomData }
    }

    sequence_options!();
}

/// Owns numbers, so that their bytes can be shared as [`Bytes`].
struct Converted<T>(Vec<T>);

impl<T: Number> AsRef<[u8]> for Converted<T> {
    fn as_ref(&self) -> &[u8] {
        bytemuck::cast_slice(&self.0)
    }
}

/// Converts numbers to their bytes, without a copy.
pub(super) fn vec_to_bytes<T: Number>(numbers: Vec<T>) -> Bytes {
    Bytes::from_owner(Converted(numbers))
}

/// The bytes of the first `length` numbers, as numbers of type `T` in the machine's byte order. The bytes are
/// not copied if the numbers are already stored in this type and byte order.
pub(super) fn native_bytes<T: Number>(numbers: &FieldNumbers<'_>, length: usize) -> Result<Bytes, BoxError> {
    match numbers {
        FieldNumbers::Array(array) if array.dtype == T::DTYPE && cfg!(target_endian = "little") => {
            Ok(prefix(&array.data, length * array.dtype.size()))
        }
        _ => {
            let mut converted = vec![T::default(); length];
            numbers.read(&mut converted)?;
            Ok(vec_to_bytes(converted))
        }
    }
}

/// The first `length` bytes.
fn prefix(data: &ArrayData<'_>, length: usize) -> Bytes {
    let mut bytes = data.to_bytes();
    bytes.truncate(length);
    bytes
}

/// Puts `content` into each cell. A column with one output has one cell.
pub(super) fn put_all(cells: &mut [Cell], content: Bytes) -> Result<()> {
    match cells {
        [cell] => cell.put(content),
        cells => cells.iter_mut().try_for_each(|cell| cell.put(content.clone())),
    }
}

impl<T: Number> Column for Ragged<T> {
    fn outputs(&self) -> Vec<Output> {
        vec![Output::ragged(T::DTYPE)]
    }

    fn check(&self) -> Result<()> {
        self.field.check_numbers::<T>()
    }

    fn write(&self, sample: &Sample, _: u64, cells: &mut [Cell]) -> Result<()> {
        let bytes = self.field.with(sample, |numbers| native_bytes::<T>(&numbers, numbers.len()?))?;
        put_all(cells, bytes)
    }
}

/// A column of texts. It makes a ragged `uint8` tensor with the bytes of all texts, and `.offsets`, as
/// [`Ragged`] does. [`TensorBatch::strings`](super::TensorBatch::strings) returns the texts.
///
/// The field is text or raw bytes. Bytes that are not UTF-8 are an error.
///
/// ```
/// use shardstream::collate::{Columns, Text};
/// use shardstream::Sample;
///
/// let columns = Columns::new().with("caption", Text::new("txt"));
/// let samples = [Sample::new("0001").with("txt", "été"), Sample::new("0002").with("txt", b"sun")];
/// let batch = columns.collate(samples)?;
/// assert_eq!(batch["caption"].shape(), [8]);
/// assert!(batch.strings("caption")?.eq(["été", "sun"]));
/// # Ok::<(), shardstream::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Text {
    spec: String,
    pointer: Option<String>,
}

impl Text {
    /// Reads `field`, which may be several alternatives separated by semicolons.
    #[must_use]
    pub fn new(field: &str) -> Self {
        Text { spec: field.into(), pointer: None }
    }

    /// Reads a string in a JSON document. `pointer` is a JSON pointer (RFC 6901), such as `/caption` or
    /// `/turns/0/text`.
    #[must_use]
    pub fn at(mut self, pointer: &str) -> Self {
        self.pointer = Some(pointer.into());
        self
    }

    fn read(&self, value: &Value) -> Result<Bytes, BoxError> {
        match (value, &self.pointer) {
            (Value::Text(text), None) => Ok(Bytes::copy_from_slice(text.as_bytes())),
            (Value::Bytes(bytes), None) => {
                std::str::from_utf8(bytes)?;
                Ok(bytes.clone())
            }
            (Value::Text(text), Some(pointer)) => string(&parse_json(text.as_bytes())?, pointer),
            (Value::Bytes(bytes), Some(pointer)) => string(&parse_json(bytes)?, pointer),
            (Value::Json(json), pointer) => string(json, pointer.as_deref().unwrap_or_default()),
            (other, _) => Err(format!("{} is not text", other.type_name()).into()),
        }
    }
}

fn string(json: &serde_json::Value, pointer: &str) -> Result<Bytes, BoxError> {
    match json.pointer(pointer) {
        Some(serde_json::Value::String(text)) => Ok(Bytes::copy_from_slice(text.as_bytes())),
        _ => Err(format!("the JSON document has no string at {pointer:?}").into()),
    }
}

impl Column for Text {
    fn outputs(&self) -> Vec<Output> {
        vec![Output::ragged(DType::U8)]
    }

    fn check(&self) -> Result<()> {
        check::field(&self.spec)?;
        self.pointer.as_deref().map_or(Ok(()), check::pointer)
    }

    fn write(&self, sample: &Sample, _: u64, cells: &mut [Cell]) -> Result<()> {
        let value = sample.field(&self.spec)?;
        let text = self.read(value).map_err(|error| Error::decode(self.spec.as_str(), error))?;
        put_all(cells, text)
    }
}

/// A column of the raw bytes of a field, whatever they contain. It makes a ragged `uint8` tensor with the
/// bytes of all samples, and `.offsets`, as [`Ragged`] does. The bytes are copied once, into the batch.
///
/// ```
/// use shardstream::collate::{Blob, Columns};
/// use shardstream::Sample;
///
/// let sample = Sample::new("a").with("jpg", b"\xff\xd8");
/// let batch = Columns::new().with("file", Blob::new("jpg")).collate([sample])?;
/// assert_eq!(batch.pieces::<u8>("file")?.next(), Some(&[0xff, 0xd8][..]));
/// # Ok::<(), shardstream::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Blob {
    spec: String,
}

impl Blob {
    /// Reads `field`, which may be several alternatives separated by semicolons.
    #[must_use]
    pub fn new(field: &str) -> Self {
        Blob { spec: field.into() }
    }
}

impl Column for Blob {
    fn outputs(&self) -> Vec<Output> {
        vec![Output::ragged(DType::U8)]
    }

    fn check(&self) -> Result<()> {
        check::field(&self.spec)
    }

    fn write(&self, sample: &Sample, _: u64, cells: &mut [Cell]) -> Result<()> {
        let bytes = match sample.field(&self.spec)? {
            Value::Bytes(bytes) => bytes,
            other => {
                let (wanted, found) = (ValueType::Bytes, other.value_type());
                return Err(ErrorKind::WrongType { field: self.spec.clone(), wanted, found }.into());
            }
        };
        put_all(cells, bytes.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collate::Columns;
    use crate::sample::Array;
    use proptest::prelude::*;

    #[test]
    fn texts_of_every_form_are_read_and_other_values_are_errors() {
        let collate = |column: Text, value: Value| {
            let batch = Columns::new().with("x", column).collate([Sample::new("k").with("x", value)]);
            batch.map(|batch| batch.strings("x").unwrap().collect::<String>())
        };
        let json = || Value::Json(serde_json::json!({"a": ["b", "é"]}));
        assert_eq!(collate(Text::new("x").at("/a/1"), json()).unwrap(), "é");
        assert_eq!(collate(Text::new("x").at("/a"), Value::from(br#"{"a": "b"}"#)).unwrap(), "b");
        assert_eq!(collate(Text::new("x"), Value::from("")).unwrap(), "");
        for (found, wanted) in [
            (collate(Text::new("x"), Value::from(b"\xff")), "invalid utf-8"),
            (collate(Text::new("x").at("/a"), json()), "no string at \"/a\""),
            (collate(Text::new("x"), Value::from(7)), "a whole number is not text"),
        ] {
            let error = format!("{:#}", found.unwrap_err());
            assert!(error.contains(wanted) && error.contains("sample k"), "{error}");
        }
        let blob = Columns::new().with("x", Blob::new("x"));
        let error = blob.collate([Sample::new("k").with("x", "text")]).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::WrongType { .. }), "{error}");
        // `strings` refuses bytes that are not UTF-8. `pieces` refuses another type and a missing tensor.
        let batch =
            blob.collate([Sample::new("k").with("x", b"\xc3"), Sample::new("l").with("x", b"\xa9")]).unwrap();
        assert!(batch.strings("x").is_err());
        assert!(batch.pieces::<u16>("x").is_err());
        assert!(batch.pieces::<u8>("y").is_err());
    }

    #[test]
    fn numbers_and_texts_are_not_copied_before_the_batch() {
        let bytes = Bytes::from(vec![7; 100]);
        let array = Array::from_vec(vec![3], vec![1i32, 2, 3]).unwrap();
        let numbers = Field::new("x");
        let sample = Sample::new("k").with("x", array.clone());
        let native = numbers.with(&sample, |numbers| native_bytes::<i32>(&numbers, 2)).unwrap();
        assert_eq!((native.as_ptr(), native.len()), (array.data().as_ptr(), 8));
        let sample = Sample::new("k").with("x", bytes.clone());
        assert_eq!(Text::new("x").read(sample.field("x").unwrap()).unwrap().as_ptr(), bytes.as_ptr());
    }

    proptest! {
        #[test]
        fn pieces_are_the_sequences_of_the_samples(
            sequences in prop::collection::vec(prop::collection::vec(any::<i16>(), 0..9), 0..9),
        ) {
            let samples = sequences.iter().enumerate().map(|(at, numbers)| {
                let array = Array::from_vec(vec![numbers.len()], numbers.clone()).unwrap();
                let sample = Sample::new(at.to_string());
                if at % 2 == 0 { sample.with("x", array.to_npy()) } else { sample.with("x", array) }
            });
            let columns = Columns::new().with("x", Ragged::<i16>::new("x"));
            let columns = columns.with("y", Ragged::<i64>::new("x"));
            let batch = columns.collate(samples).unwrap();
            prop_assert_eq!(batch["x.offsets"].shape(), [sequences.len() + 1]);
            prop_assert!(batch.pieces::<i16>("x").unwrap().eq(sequences.iter().map(Vec::as_slice)));
            let widened = |numbers: &Vec<i16>| numbers.iter().map(|n| i64::from(*n)).collect::<Vec<_>>();
            let wide = sequences.iter().map(widened);
            prop_assert!(batch.pieces::<i64>("y").unwrap().map(<[i64]>::to_vec).eq(wide));
        }
    }
}
