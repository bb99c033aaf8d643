//! The values of fields, and their conversion to Rust types.

use super::Array;
use crate::error::ValueType;
#[cfg(feature = "image")]
use crate::image::Image;
use bytes::Bytes;
use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// The value of a field: raw bytes as in the shard, or a decoded value.
#[derive(Clone)]
#[non_exhaustive]
pub enum Value {
    /// Raw bytes.
    Bytes(Bytes),
    /// Text.
    Text(String),
    /// A whole number, such as a class label.
    Int(i64),
    /// A JSON document.
    Json(serde_json::Value),
    /// An array with a shape.
    Array(Array),
    /// Named arrays.
    Arrays(BTreeMap<String, Array>),
    /// A decoded image.
    #[cfg(feature = "image")]
    Image(Image),
    /// A value of any other type.
    Other(Arc<dyn Any + Send + Sync>),
}

impl Value {
    /// Wraps a value of any type. [`Value::downcast`] borrows the wrapped value, and
    /// [`take::<Arc<T>>`](crate::Sample::take) returns it.
    ///
    /// ```
    /// use shardstream::{Sample, Value};
    /// use std::sync::Arc;
    ///
    /// let mut sample = Sample::new("0001").with("tokens", Value::other(vec![3_u32, 1, 4]));
    /// let tokens: Arc<Vec<u32>> = sample.take("tokens")?;
    /// assert_eq!(Arc::unwrap_or_clone(tokens), [3, 1, 4]);
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    pub fn other<T: Any + Send + Sync>(value: T) -> Self {
        Value::Other(Arc::new(value))
    }

    /// The value that [`Value::other`] wraps, if it is of this type.
    #[must_use]
    pub fn downcast<T: Any + Send + Sync>(&self) -> Option<&T> {
        match self {
            Value::Other(value) => value.downcast_ref(),
            _ => None,
        }
    }

    /// The raw bytes; `None` if the value is of another type.
    #[must_use]
    pub fn as_bytes(&self) -> Option<&Bytes> {
        match self {
            Value::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// The name of the value's type, for messages.
    #[must_use]
    pub fn type_name(&self) -> &'static str {
        self.value_type().name()
    }

    /// The type of the value.
    #[must_use]
    pub fn value_type(&self) -> ValueType {
        match self {
            Value::Bytes(_) => ValueType::Bytes,
            Value::Text(_) => ValueType::Text,
            Value::Int(_) => ValueType::Int,
            Value::Json(_) => ValueType::Json,
            Value::Array(_) => ValueType::Array,
            Value::Arrays(_) => ValueType::Arrays,
            #[cfg(feature = "image")]
            Value::Image(_) => ValueType::Image,
            Value::Other(_) => ValueType::Other,
        }
    }

    /// The approximate size of the value in memory, in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        match self {
            Value::Bytes(bytes) => bytes.len(),
            Value::Text(text) => text.len(),
            Value::Int(_) => size_of::<i64>(),
            Value::Json(json) => json_size(json),
            Value::Array(array) => array.size(),
            Value::Arrays(arrays) => arrays.values().map(Array::size).sum(),
            #[cfg(feature = "image")]
            Value::Image(image) => image.size(),
            #[cfg(feature = "audio")]
            Value::Other(value) if value.is::<crate::audio::Audio>() => {
                value.downcast_ref().map_or(0, crate::audio::Audio::size)
            }
            Value::Other(value) => size_of_val(&**value),
        }
    }
}

fn json_size(json: &serde_json::Value) -> usize {
    use serde_json::Value as J;
    size_of::<J>()
        + match json {
            J::String(text) => text.len(),
            J::Array(items) => items.iter().map(json_size).sum(),
            J::Object(fields) => fields.iter().map(|(k, v)| k.len() + json_size(v)).sum(),
            J::Null | J::Bool(_) | J::Number(_) => 0,
        }
}

/// Number of characters of a text or a document that `Debug` shows.
const EXCERPT: usize = 60;

/// Shows the beginning of a text, of a JSON document, or of raw bytes that are text. For any other value,
/// shows its type and size.
impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let excerpt = |f: &mut fmt::Formatter<'_>, text: &str| match text.char_indices().nth(EXCERPT) {
            Some((end, _)) => write!(f, "{:?}… ({} bytes)", &text[..end], text.len()),
            None => write!(f, "{text:?}"),
        };
        match self {
            Value::Bytes(bytes) => match std::str::from_utf8(bytes) {
                Ok(text) if !text.contains(|c: char| c.is_control() && !c.is_whitespace()) => {
                    f.write_str("b")?;
                    excerpt(f, text)
                }
                _ => write!(f, "Bytes({} bytes)", bytes.len()),
            },
            Value::Text(text) => excerpt(f, text),
            Value::Int(int) => int.fmt(f),
            Value::Json(json) => {
                let text = format!("{json:?}");
                match text.char_indices().nth(EXCERPT) {
                    Some((end, _)) => {
                        write!(f, "{}… ({} bytes of JSON)", &text[..end], json.to_string().len())
                    }
                    None => f.write_str(&text),
                }
            }
            Value::Array(array) => array.fmt(f),
            Value::Arrays(arrays) => arrays.fmt(f),
            #[cfg(feature = "image")]
            Value::Image(image) => image.fmt(f),
            Value::Other(_) => f.write_str("Other(..)"),
        }
    }
}

/// A type to which a field's value can be converted, by [`Sample::take`](crate::Sample::take) and
/// [`Sample::read`](crate::Sample::read).
#[diagnostic::on_unimplemented(
    message = "a field cannot be read as `{Self}`",
    label = "not a type of a field's value",
    note = "for JSON as a type of your own, derive `serde::Deserialize` and call `sample.json(\"json\")?`",
    note = "a value of your own that a decoder made is read as `Arc<{Self}>`"
)]
pub trait FromValue: Sized {
    /// The name of the type, for messages.
    const NAME: &'static str;

    /// The type, for errors. If you implement this trait for a type of your own, you can keep the default.
    const TYPE: ValueType = ValueType::Named(Self::NAME);

    /// Converts the value to this type.
    ///
    /// # Errors
    /// If the value has another type, the error is the value itself.
    fn from_value(value: Value) -> Result<Self, Value>;
}

/// Conversions between a Rust type and its variant of [`Value`].
macro_rules! variant {
    ($variant:ident, $type:ty) => {
        impl From<$type> for Value {
            fn from(value: $type) -> Self {
                Value::$variant(value)
            }
        }
        impl FromValue for $type {
            const NAME: &'static str = ValueType::$variant.name();
            const TYPE: ValueType = ValueType::$variant;

            fn from_value(value: Value) -> Result<Self, Value> {
                match value {
                    Value::$variant(value) => Ok(value),
                    other => Err(other),
                }
            }
        }
    };
}

variant!(Bytes, Bytes);
variant!(Text, String);
variant!(Int, i64);
variant!(Json, serde_json::Value);
variant!(Array, Array);
variant!(Arrays, BTreeMap<String, Array>);
#[cfg(feature = "image")]
variant!(Image, Image);

impl FromValue for Value {
    const NAME: &'static str = "any value";

    fn from_value(value: Value) -> Result<Self, Value> {
        Ok(value)
    }
}

/// The value that [`Value::other`] wrapped.
impl<T: Any + Send + Sync> FromValue for Arc<T> {
    const NAME: &'static str = "a value of this type of the caller's own";

    fn from_value(value: Value) -> Result<Self, Value> {
        match value {
            Value::Other(value) => value.downcast().map_err(Value::Other),
            other => Err(other),
        }
    }
}

impl FromValue for Vec<u8> {
    const NAME: &'static str = ValueType::Bytes.name();
    const TYPE: ValueType = ValueType::Bytes;

    fn from_value(value: Value) -> Result<Self, Value> {
        Bytes::from_value(value).map(Vec::from)
    }
}

/// Conversions of a `Value::Int` to integer types other than `i64`. A conversion fails if the value does not
/// fit into the type.
macro_rules! narrow {
    ($($type:ty: $name:literal),*) => {$(
        impl FromValue for $type {
            const NAME: &'static str = $name;

            fn from_value(value: Value) -> Result<Self, Value> {
                i64::from_value(value).and_then(|int| <$type>::try_from(int).map_err(|_| Value::Int(int)))
            }
        }
    )*};
}

narrow!(
    i32: "a whole number of 32 bits", u32: "a whole number of 32 bits without a sign",
    u64: "a whole number without a sign", usize: "a whole number without a sign",
    i16: "a whole number of 16 bits", u16: "a whole number of 16 bits without a sign",
    i8: "a whole number of 8 bits", u8: "a whole number of 8 bits without a sign"
);

impl From<Vec<u8>> for Value {
    fn from(bytes: Vec<u8>) -> Self {
        Value::Bytes(bytes.into())
    }
}

impl From<&[u8]> for Value {
    fn from(bytes: &[u8]) -> Self {
        Value::Bytes(Bytes::copy_from_slice(bytes))
    }
}

impl<const N: usize> From<&[u8; N]> for Value {
    fn from(bytes: &[u8; N]) -> Self {
        Value::from(&bytes[..])
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Value::Text(text.into())
    }
}

/// Conversions from integer types. Every value of these types fits into `i64`.
macro_rules! widen {
    ($($type:ty),*) => {$(
        impl From<$type> for Value {
            fn from(int: $type) -> Self {
                Value::Int(int.into())
            }
        }
    )*};
}

widen!(i8, u8, i16, u16, i32, u32);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binary_fields_are_not_printed() {
        let long = "é".repeat(100);
        for (value, expected) in [
            (Value::from(b"\xff\xd8\xff S3CRET"), "Bytes(10 bytes)".to_owned()),
            (Value::from(b"S3CRET\0"), "Bytes(7 bytes)".into()),
            (Value::from(b"7\n"), "b\"7\\n\"".into()),
            (Value::from(long.as_bytes()), format!("b{:?}… (200 bytes)", "é".repeat(60))),
            (Value::from(&*long), format!("{:?}… (200 bytes)", "é".repeat(60))),
            (Value::from("short"), "\"short\"".into()),
            (Value::from(7), "7".into()),
            (Value::Json(serde_json::json!({"a": 1})), "Object {\"a\": Number(1)}".into()),
            (Value::Array(Array::from_vec(vec![2], vec![1_u8, 2]).unwrap()), "Array(uint8[2])".into()),
            (Value::other("S3CRET"), "Other(..)".into()),
        ] {
            assert_eq!(format!("{value:?}"), expected);
        }
        let json = format!("{:?}", Value::Json(serde_json::json!({"a": "x".repeat(999)})));
        assert!(json.len() < 100 && json.ends_with("(1007 bytes of JSON)"), "{json}");
        let sample = crate::Sample::new("k").with("jpg", b"\xff\xd8").with("txt", "x".repeat(999));
        assert!(format!("{sample:#?}").len() < 200, "{sample:#?}");
    }
}
