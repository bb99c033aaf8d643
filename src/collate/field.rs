//! `Field`: reads the numbers of a field, which may have several forms.

use super::check::{self, config_error};
use super::number::{Number, of_json};
use crate::codec::{BoxError, NpyView, parse_json};
use crate::error::{Error, ErrorKind, Result, ValueType};
use crate::sample::{Array, DType, Sample, Value};
use bytes::Bytes;
use smallvec::SmallVec;
use std::borrow::Cow;
use std::ops::Deref;

/// A field with an array or a list of numbers.
#[derive(Debug, Clone)]
pub(super) struct Field {
    spec: String,
    pub(super) form: Form,
}

/// The form in which a field has its numbers.
#[derive(Debug, Clone)]
pub(super) enum Form {
    /// An npy file or a JSON list. The first bytes of the field determine which of the two it is.
    Any,
    /// Little-endian numbers without a header.
    Raw(DType),
    /// The tensor with this name in a safetensors or npz file.
    Named(String),
    /// The list at this JSON pointer in a JSON document.
    At(String),
}

/// The numbers of a field.
#[derive(Debug)]
pub(super) enum FieldNumbers<'a> {
    Array(FieldArray<'a>),
    /// A list of a JSON document.
    List(Cow<'a, [serde_json::Value]>),
}

/// An array that was read from a field.
#[derive(Debug)]
pub(super) struct FieldArray<'a> {
    pub(super) dtype: DType,
    pub(super) shape: SmallVec<[usize; 6]>,
    /// The numbers, little-endian, in row-major order.
    pub(super) data: ArrayData<'a>,
}

/// The bytes of an array.
#[derive(Debug)]
pub(super) enum ArrayData<'a> {
    /// First the bytes of the array, which are a part of the field; second all bytes of the field.
    Part(&'a [u8], &'a Bytes),
    /// Converted bytes, in newly allocated memory.
    Own(Bytes),
}

impl ArrayData<'_> {
    /// The bytes, without a copy.
    pub(super) fn to_bytes(&self) -> Bytes {
        match self {
            ArrayData::Part([], _) => Bytes::new(),
            ArrayData::Part(part, whole) => whole.slice_ref(part),
            ArrayData::Own(bytes) => bytes.clone(),
        }
    }
}

impl Deref for ArrayData<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            ArrayData::Part(part, _) => part,
            ArrayData::Own(bytes) => bytes,
        }
    }
}

impl Field {
    /// A field of any form. `spec` may be several alternatives separated by semicolons.
    pub(super) fn new(spec: &str) -> Self {
        Field { spec: spec.into(), form: Form::Any }
    }

    /// The field's name, or several alternatives separated by semicolons.
    #[cfg(feature = "image")]
    pub(super) fn spec(&self) -> &str {
        &self.spec
    }

    /// Checks the name and the form of the field.
    pub(super) fn check(&self) -> Result<()> {
        check::field(&self.spec)?;
        match &self.form {
            Form::At(pointer) => check::pointer(pointer),
            Form::Named(name) if name.is_empty() => {
                Err(config_error("`named` without a name: give the name of a tensor in the file"))
            }
            Form::Any | Form::Raw(_) | Form::Named(_) => Ok(()),
        }
    }

    /// Like [`check`](Field::check), and also checks that raw numbers can be converted to `T`.
    pub(super) fn check_numbers<T: Number>(&self) -> Result<()> {
        self.check()?;
        let Form::Raw(stored) = self.form else { return Ok(()) };
        // Converting an empty slice fails exactly if the stored type cannot be converted to `T`.
        T::of_array(stored, &[], &mut []).map_err(|_| {
            let wanted = T::DTYPE;
            config_error(format!(
                "`raw` numbers of {stored} in a column of {wanted}: whole numbers are converted to whole \
                 numbers of other types, floats are not converted"
            ))
        })
    }

    /// Calls `work` with the numbers of the field of a sample.
    pub(super) fn with<R>(
        &self,
        sample: &Sample,
        work: impl FnOnce(FieldNumbers<'_>) -> Result<R, BoxError>,
    ) -> Result<R> {
        let value = sample.field(&self.spec)?;
        self.find(value).and_then(work).map_err(|error| Error::decode(self.spec.as_str(), error))
    }

    fn find<'a>(&'a self, value: &'a Value) -> Result<FieldNumbers<'a>, BoxError> {
        match (value, &self.form) {
            (Value::Bytes(file), Form::Any) if NpyView::has_magic(file) => npy(file).map(FieldNumbers::Array),
            (Value::Bytes(file), Form::Raw(dtype)) => raw(file, *dtype).map(FieldNumbers::Array),
            (Value::Bytes(file), Form::Named(name)) => named(file, name).map(FieldNumbers::Array),
            (Value::Bytes(file), Form::At(pointer)) => list(parse_json(file)?, pointer),
            (Value::Bytes(file), Form::Any) => match file.trim_ascii_start().first() {
                Some(b'[') => list(parse_json(file)?, ""),
                _ => {
                    Err("it is neither an npy file nor a JSON list: call `raw` for numbers without a header"
                        .into())
                }
            },
            (Value::Text(text), Form::Any) => list(parse_json(text.as_bytes())?, ""),
            (Value::Text(text), Form::At(pointer)) => list(parse_json(text.as_bytes())?, pointer),
            (Value::Json(json), form @ (Form::Any | Form::At(_))) => {
                let pointer = if let Form::At(pointer) = form { pointer } else { "" };
                match json.pointer(pointer) {
                    Some(serde_json::Value::Array(items)) => Ok(FieldNumbers::List(Cow::Borrowed(items))),
                    _ => Err(no_list(pointer)),
                }
            }
            (Value::Array(array), Form::Any | Form::Raw(_)) => Ok(FieldNumbers::Array(of(array))),
            (Value::Arrays(arrays), Form::Named(name)) => match arrays.get(name) {
                Some(array) => Ok(FieldNumbers::Array(of(array))),
                None => Err(no_tensor(name, arrays.keys().map(String::as_str))),
            },
            (other, _) => {
                let wanted = ValueType::Named("an array of numbers in the form that is declared");
                let found = other.value_type();
                let field = self.spec.clone();
                Err(Error::from(ErrorKind::WrongType { field, wanted, found }).into())
            }
        }
    }
}

impl FieldNumbers<'_> {
    /// The length of the sequence; an error for an array that does not have exactly one axis.
    pub(super) fn len(&self) -> Result<usize, BoxError> {
        match self {
            FieldNumbers::Array(array) => match array.shape[..] {
                [length] => Ok(length),
                _ => Err(format!("an array of the shape {:?} is not a sequence", array.shape).into()),
            },
            FieldNumbers::List(items) => Ok(items.len()),
        }
    }

    /// Reads as many numbers as `to` has room for. Further numbers are not checked.
    pub(super) fn read<T: Number>(&self, to: &mut [T]) -> Result<(), BoxError> {
        match self {
            FieldNumbers::Array(array) => T::of_array(array.dtype, &array.data, to),
            FieldNumbers::List(items) => {
                for (item, to) in items.iter().zip(to) {
                    *to = of_json(item)?;
                }
                Ok(())
            }
        }
    }
}

fn of(array: &Array) -> FieldArray<'_> {
    let data = ArrayData::Part(array.data(), array.data());
    FieldArray { dtype: array.dtype(), shape: array.shape().into(), data }
}

fn npy(file: &Bytes) -> Result<FieldArray<'_>, BoxError> {
    let NpyView { dtype, big_endian, fortran, shape, data } = NpyView::new(file)?;
    let data = match big_endian || fortran {
        false => ArrayData::Part(data, file),
        true => ArrayData::Own(Array::read_npy(file)?.data().clone()),
    };
    Ok(FieldArray { dtype, shape, data })
}

fn raw(data: &Bytes, dtype: DType) -> Result<FieldArray<'_>, BoxError> {
    if !data.len().is_multiple_of(dtype.size()) {
        return Err(format!("{} bytes are not a whole number of {dtype}", data.len()).into());
    }
    Ok(FieldArray {
        dtype,
        shape: [data.len() / dtype.size()].into_iter().collect(),
        data: ArrayData::Part(data, data),
    })
}

fn list(mut json: serde_json::Value, pointer: &str) -> Result<FieldNumbers<'static>, BoxError> {
    match json.pointer_mut(pointer).map(serde_json::Value::take) {
        Some(serde_json::Value::Array(items)) => Ok(FieldNumbers::List(Cow::Owned(items))),
        _ => Err(no_list(pointer)),
    }
}

fn no_list(pointer: &str) -> BoxError {
    format!("the JSON document has no list at {pointer:?}").into()
}

fn no_tensor<'a>(name: &str, present: impl Iterator<Item = &'a str>) -> BoxError {
    let mut present: Vec<&str> = present.collect();
    present.sort_unstable();
    present.truncate(12);
    format!("it has no tensor {name:?}, but: {}", present.join(", ")).into()
}

/// Maximum length of a safetensors header in bytes. Parsing a longer header would take longer than reading
/// the data of a sample.
#[cfg(feature = "safetensors")]
const MAX_HEADER: u64 = 1 << 20;

/// Finds the tensor with this name in a safetensors file.
#[cfg(feature = "safetensors")]
fn named<'a>(file: &'a Bytes, name: &str) -> Result<FieldArray<'a>, BoxError> {
    use crate::error::SizeLimit;
    use safetensors::{Dtype, SafeTensorError, SafeTensors};
    if let Some((size, _)) =
        file.split_first_chunk().filter(|(size, _)| u64::from_le_bytes(**size) > MAX_HEADER)
    {
        let (what, size) = (SizeLimit::SafetensorsHeader, u64::from_le_bytes(*size));
        return Err(Error::from(ErrorKind::TooLarge { what, size, limit: MAX_HEADER }).into());
    }
    let file_tensors = SafeTensors::deserialize(file)?;
    let tensor = match file_tensors.tensor(name) {
        Err(SafeTensorError::TensorNotFound(_)) => {
            return Err(no_tensor(name, file_tensors.names().into_iter()));
        }
        tensor => tensor?,
    };
    let dtype = match tensor.dtype() {
        Dtype::BOOL => DType::Bool,
        Dtype::U8 => DType::U8,
        Dtype::I8 => DType::I8,
        Dtype::U16 => DType::U16,
        Dtype::I16 => DType::I16,
        Dtype::U32 => DType::U32,
        Dtype::I32 => DType::I32,
        Dtype::U64 => DType::U64,
        Dtype::I64 => DType::I64,
        Dtype::F16 => DType::F16,
        Dtype::BF16 => DType::BF16,
        Dtype::F32 => DType::F32,
        Dtype::F64 => DType::F64,
        other => return Err(format!("tensors of the type {other:?} are not supported").into()),
    };
    Ok(FieldArray { dtype, shape: tensor.shape().into(), data: ArrayData::Part(tensor.data(), file) })
}

#[cfg(not(feature = "safetensors"))]
fn named<'a>(_: &'a Bytes, name: &str) -> Result<FieldArray<'a>, BoxError> {
    Err(format!(
        "the tensor {name:?} of a safetensors file needs the feature `safetensors`; an npz field must be \
         decoded first"
    )
    .into())
}

/// Options for the form of the numbers, shared by all columns of sequences.
macro_rules! sequence_options {
    () => {
        /// Reads the field as raw bytes: little-endian numbers of this type, without a header.
        #[must_use]
        pub fn raw(mut self, stored: $crate::sample::DType) -> Self {
            self.field.form = $crate::collate::field::Form::Raw(stored);
            self
        }

        /// Reads the tensor with this name from a safetensors file (feature `safetensors`) or a decoded npz
        /// file.
        #[must_use]
        pub fn named(mut self, tensor: &str) -> Self {
            self.field.form = $crate::collate::field::Form::Named(tensor.into());
            self
        }

        /// Reads a list in a JSON document. `pointer` is a JSON pointer (RFC 6901), such as `/tokens` or
        /// `/turns/0/ids`.
        #[must_use]
        pub fn at(mut self, pointer: &str) -> Self {
            self.field.form = $crate::collate::field::Form::At(pointer.into());
            self
        }
    };
}
pub(super) use sequence_options;
