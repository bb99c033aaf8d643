//! Fields of samples: the kind that a field's name tells, the decoded content, and a preview.

use crate::output::note;
use crate::text;
use bytes::Bytes;
use serde::Serialize;
use serde_json::Value as Json;
use shardstream::codec::{Array, DType, Decoder};
use shardstream::image::{Image, Size};
use shardstream::{Result, Sample, Value};
use std::fmt;
use std::fmt::Write;

/// The kind of a field. The last extension of the field's name tells it, as in [`shardstream::codec`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum FieldKind {
    Image,
    Text,
    Integer,
    Json,
    Array,
    Arrays,
    Pickle,
    Audio,
    Video,
    Bytes,
}

impl FieldKind {
    /// The kind of a field with this name. A `.gz` at the end is ignored.
    pub(crate) fn of(field: &str) -> Self {
        let lower = field.to_ascii_lowercase();
        let name = lower.strip_suffix(".gz").unwrap_or(&lower);
        match name.rsplit('.').next().unwrap_or(name) {
            "jpg" | "jpeg" | "jpe" | "jfif" | "png" | "webp" | "ppm" | "pgm" | "pbm" | "pnm" => {
                FieldKind::Image
            }
            "txt" | "text" | "transcript" => FieldKind::Text,
            "cls" | "cls2" | "class" | "count" | "index" | "inx" | "id" => FieldKind::Integer,
            "json" | "jsn" => FieldKind::Json,
            "npy" => FieldKind::Array,
            "npz" => FieldKind::Arrays,
            "pkl" | "pickle" | "pyd" | "pth" | "pt" => FieldKind::Pickle,
            "wav" | "flac" | "mp3" | "ogg" | "opus" | "m4a" => FieldKind::Audio,
            "mp4" | "webm" | "mkv" | "avi" | "mov" => FieldKind::Video,
            _ => FieldKind::Bytes,
        }
    }

    /// Whether the bytes are text.
    pub(crate) fn is_text(self) -> bool {
        matches!(self, FieldKind::Text | FieldKind::Integer | FieldKind::Json)
    }
}

impl fmt::Display for FieldKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FieldKind::Image => "image",
            FieldKind::Text => "text",
            FieldKind::Integer => "integer",
            FieldKind::Json => "json",
            FieldKind::Array => "array",
            FieldKind::Arrays => "arrays",
            FieldKind::Pickle => "pickle",
            FieldKind::Audio => "audio",
            FieldKind::Video => "video",
            FieldKind::Bytes => "bytes",
        })
    }
}

/// The name of the field that holds `value`. Compares addresses, since another field may have an equal value.
pub(crate) fn name_of<'a>(sample: &'a Sample, value: &Value) -> Option<&'a str> {
    sample.fields().find(|(_, other)| std::ptr::eq(*other, value)).map(|(name, _)| name)
}

/// Whether the field is an image file that is not compressed with gzip.
pub(crate) fn is_image_file(field: &str) -> bool {
    FieldKind::of(field) == FieldKind::Image && !field.to_ascii_lowercase().ends_with(".gz")
}

/// The format of an image, which its first bytes tell.
pub(crate) fn image_format(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0xff, 0xd8, 0xff, ..] => Some("jpeg"),
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some("png"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some("webp"),
        [b'P', b'1'..=b'6', ..] => Some("pnm"),
        _ => None,
    }
}

/// The content of a field.
#[derive(Debug)]
pub(crate) enum FieldContent {
    /// Format and size of an image, from its header.
    Image(&'static str, Size),
    /// A decoded value.
    Value(Value),
    /// Bytes of a kind that is not decoded.
    Bytes,
}

impl FieldContent {
    /// Decodes a field. Only the header of an image is read.
    ///
    /// # Errors
    /// [`Decode`](shardstream::ErrorKind::Decode) if the field cannot be decoded.
    pub(crate) fn of(field: &str, bytes: &Bytes, decoder: &Decoder) -> Result<Self> {
        match FieldKind::of(field) {
            FieldKind::Image if is_image_file(field) => {
                let size = Image::size_in(bytes).map_err(|error| shardstream::Error::decode(field, error))?;
                Ok(FieldContent::Image(image_format(bytes).unwrap_or("image"), size))
            }
            // Loading a pickle can run any code, so only its bytes are shown.
            FieldKind::Pickle => Ok(FieldContent::Bytes),
            _ => Ok(decoder.decode_field(field, bytes)?.map_or(FieldContent::Bytes, FieldContent::Value)),
        }
    }
}

/// A preview of a field: a JSON document for programs, and a line for people.
#[derive(Debug, Serialize)]
pub(crate) struct FieldPreview {
    pub(crate) kind: FieldKind,
    pub(crate) bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    format: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    height: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    width: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dtype: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    shape: Option<Vec<usize>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<Json>,
    /// The error if the field cannot be decoded.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip)]
    pub(crate) line: String,
}

/// Maximum number of characters of a text that a preview shows.
const MAX_CHARACTERS: usize = 120;
/// Maximum number of elements of an array that a preview shows.
const MAX_ELEMENTS: usize = 6;

impl FieldPreview {
    pub(crate) fn of(field: &str, bytes: &Bytes, decoder: &Decoder) -> Self {
        let size = text::bytes(bytes.len() as u64);
        let mut shown = FieldPreview {
            kind: FieldKind::of(field),
            bytes: bytes.len() as u64,
            format: None,
            height: None,
            width: None,
            dtype: None,
            shape: None,
            value: None,
            error: None,
            line: String::new(),
        };
        shown.line = match FieldContent::of(field, bytes, decoder) {
            Ok(FieldContent::Image(format, Size { height, width })) => {
                (shown.format, shown.height, shown.width) = (Some(format), Some(height), Some(width));
                format!("{format}, height {height}, width {width}, {size}")
            }
            Ok(FieldContent::Value(Value::Text(text))) => {
                let line = text::shortened(&text, MAX_CHARACTERS);
                shown.value = Some(text.into());
                line
            }
            Ok(FieldContent::Value(Value::Int(number))) => {
                shown.value = Some(number.into());
                number.to_string()
            }
            Ok(FieldContent::Value(Value::Json(json))) => {
                let line = text::shortened(&json.to_string(), MAX_CHARACTERS);
                shown.value = Some(json);
                line
            }
            Ok(FieldContent::Value(Value::Array(array))) => {
                (shown.dtype, shown.shape) = (Some(array.dtype().name()), Some(array.shape().to_vec()));
                format!("{}, {size}: {}", shape(&array), beginning(&array))
            }
            Ok(FieldContent::Value(Value::Arrays(arrays))) => {
                let one =
                    |(name, array): (&String, &Array)| format!("{}: {}", text::printable(name), shape(array));
                let arrays: Vec<String> = arrays.iter().map(one).collect();
                format!("{}, {size}", arrays.join("; "))
            }
            Ok(_) => format!("{size}: {}", hexadecimal(bytes)),
            Err(error) => {
                let error = format!("{error:#}");
                let line = format!("{size}, {}", text::printable(&error));
                shown.error = Some(error);
                line
            }
        };
        shown
    }
}

/// The type and shape of an array, as in `float32 [3, 224, 224]`.
fn shape(array: &Array) -> String {
    format!("{} {:?}", array.dtype(), array.shape())
}

/// The first elements of an array, on one line.
fn beginning(array: &Array) -> String {
    let numbers = numbers(array, MAX_ELEMENTS + 1);
    let mut line = String::new();
    for (at, number) in numbers.iter().take(MAX_ELEMENTS).enumerate() {
        // Writing to a String does not fail.
        let _ = write!(line, "{}{number}", if at > 0 { ", " } else { "" });
    }
    if numbers.len() > MAX_ELEMENTS {
        line.push_str(", …");
    }
    line
}

/// The first `count` elements of an array as text.
fn numbers(array: &Array, count: usize) -> Vec<String> {
    let size = array.dtype().size();
    let elements = array.data().chunks_exact(size).take(count);
    elements.filter_map(|element| number(array.dtype(), element)).collect()
}

/// An element of an array as text.
fn number(dtype: DType, element: &[u8]) -> Option<String> {
    macro_rules! of {
        ($T:ty) => {
            <$T>::from_le_bytes(element.try_into().ok()?).to_string()
        };
    }
    Some(match dtype {
        DType::Bool => (element.first()? != &0).to_string(),
        DType::I8 => of!(i8),
        DType::I16 => of!(i16),
        DType::I32 => of!(i32),
        DType::I64 => of!(i64),
        DType::U8 => of!(u8),
        DType::U16 => of!(u16),
        DType::U32 => of!(u32),
        DType::U64 => of!(u64),
        DType::F16 => half::f16::from_le_bytes(element.try_into().ok()?).to_string(),
        DType::BF16 => half::bf16::from_le_bytes(element.try_into().ok()?).to_string(),
        DType::F32 => of!(f32),
        DType::F64 => of!(f64),
        _ => return None,
    })
}

/// The first 16 bytes in hexadecimal.
fn hexadecimal(bytes: &[u8]) -> String {
    let shown: Vec<String> = bytes.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    let more = if bytes.len() > 16 { " …" } else { "" };
    format!("{}{more}", shown.join(" "))
}

/// Prints a note if at least half of the samples have a field that no other sample has: the keys of these
/// samples probably contain dots. `counts` has, for each field, the number of samples with that field.
pub(crate) fn warn_of_odd_names(samples: u64, counts: impl Iterator<Item = u64>) {
    let (mut names, mut unique) = (0_u64, 0_u64);
    for count in counts {
        names += 1;
        unique += u64::from(count == 1);
    }
    if samples >= 3 && unique.saturating_mul(2) >= samples {
        note(format_args!(
            "{} have {}: a key ends at the first dot of a file name, so the field of `scan 22.05.png` is \
             05.png; write the shards with keys that have no dots",
            text::counted(samples, "sample"),
            text::counted(names, "different field name"),
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(field: &str, bytes: &[u8]) -> String {
        FieldPreview::of(field, &Bytes::copy_from_slice(bytes), &Decoder::new()).line
    }

    #[test]
    fn the_last_extension_says_the_kind() {
        assert_eq!(FieldKind::of("seg.PNG"), FieldKind::Image);
        assert_eq!(FieldKind::of("txt.gz"), FieldKind::Text);
        assert_eq!(
            [FieldKind::of("cls"), FieldKind::of("x"), FieldKind::of("")],
            [FieldKind::Integer, FieldKind::Bytes, FieldKind::Bytes]
        );
    }

    #[test]
    fn the_preview_of_a_field_is_one_line() {
        assert_eq!(line("cls", b"7\n"), "7");
        assert_eq!(line("txt", b"a cat\x1b[2J\n"), "a cat\\u{1b}[2J");
        assert_eq!(line("json", b"{\"a\": [1]}"), "{\"a\":[1]}");
        assert_eq!(line("bin", b"!?"), "2 B: 21 3f");
        let array = Array::from_vec(vec![2, 4], (0..8).map(|n| n as f32 / 2.0).collect()).unwrap();
        assert_eq!(line("npy", &array.to_npy()), "float32 [2, 4], 160 B: 0, 0.5, 1, 1.5, 2, 2.5, …");
        assert!(line("cls", b"seven").starts_with("5 B, cannot decode the field \"cls\""));
    }
}
