//! The types of the values of fields.

use std::fmt;

/// The type of a field's value, in [`ErrorKind::WrongType`](super::ErrorKind::WrongType).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ValueType {
    /// Bytes as in the shard.
    Bytes,
    /// Text.
    Text,
    /// A whole number.
    Int,
    /// A JSON document.
    Json,
    /// An array with a shape.
    Array,
    /// Named arrays.
    Arrays,
    /// A decoded image.
    Image,
    /// A value of a type that the caller defined.
    Other,
    /// The type that a value should be converted to, as messages name it: "a whole number of 32 bits".
    Named(&'static str),
}

impl ValueType {
    /// The name of the type, for messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            ValueType::Bytes => "raw bytes",
            ValueType::Text => "text",
            ValueType::Int => "a whole number",
            ValueType::Json => "a JSON document",
            ValueType::Array => "an array",
            ValueType::Arrays => "named arrays",
            ValueType::Image => "an image",
            ValueType::Other => "a value of another type",
            ValueType::Named(name) => name,
        }
    }

    /// What to do about a field that holds `found` instead of this type, as the end of a message.
    pub(super) fn hint(self, found: ValueType) -> &'static str {
        match (self, found) {
            (ValueType::Image, ValueType::Bytes) => "; images are decoded by a `Decoder` with `images(…)`",
            (_, ValueType::Bytes) => "; is a `decode` step missing, or a decoder for this extension?",
            (ValueType::Bytes, _) => "; `Decoder::without` leaves a field raw",
            _ => "",
        }
    }
}

impl fmt::Display for ValueType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
