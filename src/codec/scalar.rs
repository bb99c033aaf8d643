//! Reads and writes text, whole numbers and JSON.

use super::BoxError;
use crate::Value;
use crate::json::DEFAULT_LIMIT;
use crate::sample::json;
use crate::sample::json_error::without_nan;
use bytes::Bytes;

pub(super) fn read_text(bytes: &Bytes) -> Result<Value, BoxError> {
    Ok(Value::Text(std::str::from_utf8(bytes)?.to_owned()))
}

pub(super) fn read_int(bytes: &Bytes) -> Result<Value, BoxError> {
    parse_int(bytes).map(Value::Int)
}

/// Reads a document that takes at most `max_size` bytes of memory.
pub(super) fn read_json(bytes: &Bytes, max_size: usize) -> Result<Value, BoxError> {
    json::check_memory(bytes, max_size as u64)?;
    Ok(Value::Json(json::parse(bytes)?))
}

/// Reads a document like [`read_json`], but reads `NaN`, `Infinity` and `-Infinity` as null.
pub(super) fn read_lenient_json(bytes: &Bytes, max_size: usize) -> Result<Value, BoxError> {
    json::check_memory(bytes, max_size as u64)?;
    match json::parse(bytes) {
        Ok(json) => Ok(Value::Json(json)),
        // If the document has other faults too, return the error of the unchanged document.
        Err(error) => Ok(Value::Json(json::parse(&without_nan(bytes)).map_err(|_| error)?)),
    }
}

pub(super) fn write_text(value: &Value) -> Result<Bytes, BoxError> {
    match value {
        Value::Text(text) => Ok(text.clone().into()),
        other => Err(refuse(other, "text")),
    }
}

/// Writes a whole number. A text that spells a whole number is accepted.
pub(super) fn write_int(value: &Value) -> Result<Bytes, BoxError> {
    match value {
        Value::Int(int) => Ok(int.to_string().into()),
        Value::Text(text) => parse_int(text.as_bytes()).map(|_| text.clone().into()),
        other => Err(refuse(other, "a whole number")),
    }
}

/// Writes a JSON document. A text that is a JSON document is written unchanged, the same as in webdataset.
pub(super) fn write_json(value: &Value) -> Result<Bytes, BoxError> {
    match value {
        Value::Json(json) => Ok(serde_json::to_vec(json)?.into()),
        Value::Int(int) => Ok(int.to_string().into()),
        Value::Text(text) => match json::parse::<serde_json::Value>(text.as_bytes()) {
            Ok(_) => Ok(text.clone().into()),
            Err(error) => Err(format!(
                "text in a JSON field is written unchanged, but this text is not a JSON document ({error}); \
                 to write a JSON string, use `Value::Json`"
            )
            .into()),
        },
        other => Err(refuse(other, "a JSON document")),
    }
}

pub(super) fn refuse(found: &Value, wanted: &str) -> BoxError {
    format!("the field's extension is for {wanted}, but the value is {}", found.type_name()).into()
}

/// Maximum number of characters of a text that an error shows.
const EXCERPT: usize = 40;

/// Describes a field's content for an error message: the beginning of a text, or the length if the bytes are
/// not text.
pub(crate) fn excerpt(bytes: &[u8]) -> String {
    // A character has at most four bytes. The last character of `start` may be cut.
    let start = bytes.get(..4 * EXCERPT).unwrap_or(bytes);
    let text = match std::str::from_utf8(start) {
        Ok(text) => Some(text),
        Err(error) if start.len() < bytes.len() && error.error_len().is_none() => {
            std::str::from_utf8(&start[..error.valid_up_to()]).ok()
        }
        Err(_) => None,
    };
    match text.filter(|text| !text.contains(|c: char| c.is_control() && !c.is_whitespace())) {
        Some(text) => match text.char_indices().nth(EXCERPT) {
            Some((end, _)) => format!("{:?}… ({} bytes)", &text[..end], bytes.len()),
            None => format!("{text:?}"),
        },
        None => format!("a field of {} bytes that are not text", bytes.len()),
    }
}

/// Reads a whole number by the rules of Python's `int()`: it may have spaces around it, a sign, and single
/// underscores between the digits.
pub(crate) fn parse_int(bytes: &[u8]) -> Result<i64, BoxError> {
    let error = || format!("{} is not a whole number", excerpt(bytes));
    let is_space = |byte: &u8| byte.is_ascii_whitespace() || *byte == b'\x0b';
    let start = bytes.iter().position(|byte| !is_space(byte)).ok_or_else(error)?;
    let end = bytes.iter().rposition(|byte| !is_space(byte)).ok_or_else(error)?;
    let text = std::str::from_utf8(&bytes[start..=end]).map_err(|_| error())?;

    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if !digits.split('_').all(|group| !group.is_empty() && group.bytes().all(|byte| byte.is_ascii_digit())) {
        return Err(error().into());
    }
    let number = if text.contains('_') { text.replace('_', "").parse() } else { text.parse() };
    number.map_err(|_| match text.len() {
        ..=EXCERPT => format!("{text} does not fit a 64-bit number").into(),
        digits => format!("a number of {digits} digits does not fit a 64-bit number").into(),
    })
}

/// Parses a document that takes at most [`DEFAULT_LIMIT`] bytes of memory.
pub(crate) fn parse_json(bytes: &[u8]) -> Result<serde_json::Value, BoxError> {
    json::check_memory(bytes, DEFAULT_LIMIT)?;
    Ok(json::parse(bytes)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn errors_show_the_beginning_of_text_and_the_length_of_other_bytes() {
        let long = "é".repeat(100);
        for (bytes, expected) in [
            (&b"cat\n"[..], "\"cat\\n\"".to_owned()),
            (b"", "\"\"".into()),
            (long.as_bytes(), format!("{:?}… (200 bytes)", "é".repeat(40))),
            (
                &[b"x".repeat(159), "é".repeat(9).into()].concat(),
                format!("{:?}… (177 bytes)", "x".repeat(40)),
            ),
            (b"\xff\xd8\xff\xe0 JFIF", "a field of 9 bytes that are not text".into()),
            (b"a\0b", "a field of 3 bytes that are not text".into()),
            (b"a\xc3", "a field of 2 bytes that are not text".into()),
        ] {
            assert_eq!(excerpt(bytes), expected);
        }
        assert!(parse_int(b"\xff\xd8").unwrap_err().to_string().contains("2 bytes that are not text"));
        assert!(parse_int(&b"7".repeat(9999)).unwrap_err().to_string().contains("a number of 9999 digits"));
    }

    #[test]
    fn whole_numbers_follow_python() {
        let good: [(&[u8], i64); 11] = [
            (b"7", 7),
            (b" 7\n", 7),
            (b"\t\x0b\x0c\r7 ", 7),
            (b"+5", 5),
            (b"-5", -5),
            (b"007", 7),
            (b"1_000", 1000),
            (b"0_0", 0),
            (b"-1_0", -10),
            (b"9223372036854775807", i64::MAX),
            (b"-9223372036854775808", i64::MIN),
        ];
        for (bytes, wanted) in good {
            assert_eq!(parse_int(bytes).unwrap(), wanted, "{:?}", bytes.escape_ascii().to_string());
        }
        let bad: [&[u8]; 19] = [
            b"",
            b" ",
            b"1.5",
            b"- 1",
            b"+",
            b"--1",
            b"+-1",
            b"_1",
            b"1_",
            b"1__0",
            b"1 2",
            b"0x10",
            b"1\0",
            b"1e3",
            b"\x1c1",
            b"\xc2\xa05",
            b"\xd9\xa1",
            b"\xff",
            b"9223372036854775808",
        ];
        for bytes in bad {
            assert!(parse_int(bytes).is_err(), "{:?}", bytes.escape_ascii().to_string());
        }
    }

    #[test]
    fn json_is_parsed_strictly_and_exactly() {
        assert_eq!(parse_json(b"null").unwrap(), json!(null));
        assert_eq!(parse_json(b"\xef\xbb\xbf [1] \n").unwrap(), json!([1]));
        assert_eq!(parse_json(b"{\"a\": 1, \"a\": 2}").unwrap(), json!({"a": 2}));
        // Numbers are rounded to the nearest float.
        assert_eq!(parse_json(b"5e-324").unwrap(), json!(5e-324));
        assert_eq!(parse_json(b"9007199254740993.0").unwrap(), json!(9_007_199_254_740_992.0));
        for bytes in [&b"NaN"[..], b"", b"[1,]", b"{\"a\":1} x", b"\xff\xfe1\0", b"1e999"] {
            assert!(parse_json(bytes).is_err(), "{:?}", bytes.escape_ascii().to_string());
        }
        assert!(parse_json("[".repeat(100_000).as_bytes()).is_err());
    }

    #[test]
    fn text_in_a_json_field_must_be_json() {
        assert_eq!(write_json(&"{\"a\": 1}".into()).unwrap(), "{\"a\": 1}");
        assert!(write_json(&"a cat".into()).unwrap_err().to_string().contains("Value::Json"));
        assert_eq!(write_json(&Value::Json(json!("a cat"))).unwrap(), "\"a cat\"");
    }
}
