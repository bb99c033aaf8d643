//! Reads JSON fields as types of the caller.

use super::json_error::JsonError;
use super::{Sample, Value};
use crate::error::{Error, ErrorKind, Result, SizeLimit, ValueType};
use crate::json::{DEFAULT_LIMIT, ParsedAs, excess};
use serde::Deserialize;

/// Reads a document, which may begin with a byte order mark.
pub(crate) fn parse<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, JsonError> {
    let text = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    serde_json::from_slice(text).map_err(|error| JsonError::of(text, error))
}

/// Estimates the memory that the parsed document needs, and returns an error if it needs more than `limit`
/// bytes.
pub(crate) fn check_memory(bytes: &[u8], limit: u64) -> Result<()> {
    match excess(bytes, ParsedAs::Values, limit) {
        Some(size) => Err(ErrorKind::TooLarge { what: SizeLimit::ParsedJson, size, limit }.into()),
        None => Ok(()),
    }
}

impl Sample {
    /// Reads a JSON field as any type that implements [`Deserialize`]. `spec` is a field name, or several
    /// names separated by semicolons: the first field that the sample has is read.
    ///
    /// The field may hold raw bytes, text, or a decoded document. Raw bytes and text are parsed directly to
    /// `T`, without a [`serde_json::Value`] in between. If a program reads a field only through this method,
    /// leave it undecoded ([`Decoder::without`](crate::codec::Decoder::without)).
    ///
    /// ```
    /// use serde::Deserialize;
    /// use shardstream::Sample;
    ///
    /// #[derive(Debug, Deserialize)]
    /// struct Meta {
    ///     caption: String,
    ///     #[serde(default)]
    ///     tags: Vec<String>,
    /// }
    ///
    /// let sample = Sample::new("0001").with("json", br#"{"caption": "a dog", "width": 640}"#);
    /// let meta: Meta = sample.json("json")?;
    /// assert_eq!(meta.caption, "a dog");
    /// assert!(meta.tags.is_empty());
    ///
    /// let error = Sample::new("0002").with("json", b"{}").json::<Meta>("json").unwrap_err();
    /// assert_eq!(error.to_string(), "cannot decode the field \"json\" (sample 0002)");
    /// assert!(format!("{error:#}").contains("missing field `caption`"));
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::MissingField`] when the sample has no field that `spec` names, [`ErrorKind::Decode`] when
    /// the document is damaged, would need more than about 512 MiB of memory or cannot be read as a `T`,
    /// [`ErrorKind::WrongType`] when the value is neither bytes nor text nor JSON. The error names the field,
    /// the sample's key and its shard.
    pub fn json<'a, T: Deserialize<'a>>(&'a self, spec: &str) -> Result<T> {
        let at = self.find(spec).ok_or_else(|| self.missing(spec))?;
        let (name, value) = &self.0.fields[at];
        let text = match value {
            Value::Bytes(bytes) => Some(&bytes[..]),
            Value::Text(text) => Some(text.as_bytes()),
            _ => None,
        };
        if let Some(text) = text {
            check_memory(text, DEFAULT_LIMIT).map_err(|error| self.locate(Error::decode(&**name, error)))?;
        }
        let parsed = match value {
            Value::Bytes(bytes) => parse(bytes),
            Value::Text(text) => parse(text.as_bytes()),
            Value::Json(json) => T::deserialize(json).map_err(JsonError::from),
            other => {
                let (wanted, found) = (ValueType::Json, other.value_type());
                return Err(
                    self.locate(ErrorKind::WrongType { field: name.to_string(), wanted, found }.into())
                );
            }
        };
        parsed.map_err(|error| self.locate(Error::decode(&**name, error)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{Fields, Position};
    use serde_json::json;

    #[derive(Debug, PartialEq, Deserialize)]
    struct Meta<'a> {
        caption: &'a str,
        score: Option<f64>,
    }

    #[test]
    fn bytes_text_and_decoded_json_give_the_same_value() {
        let text = r#"{"caption": "été", "score": 0.1, "more": [1]}"#;
        let wanted = Meta { caption: "été", score: Some(0.1) };
        let values: [Value; 4] = [
            text.into(),
            text.as_bytes().to_vec().into(),
            format!("\u{feff}{text}").into_bytes().into(),
            json!({"caption": "été", "score": 0.1}).into(),
        ];
        for value in values {
            let sample = Sample::new("k").with("json", value);
            assert_eq!(sample.json::<Meta<'_>>("jsn;json").unwrap(), wanted);
        }
        assert_eq!(Sample::new("k").with("x", b" [1, 2]\n").json::<Vec<u8>>("x").unwrap(), [1, 2]);
    }

    #[test]
    fn errors_name_the_field_the_key_and_the_shard() {
        let read = |value: Value, spec: &str| {
            let fields = Fields::from_iter([("meta.json".into(), value)]);
            let sample = Sample::from_parts("k".into(), fields, "a.tar".into(), Position::default());
            sample.json::<Meta<'_>>(spec).map(drop).unwrap_err()
        };
        let document = || Value::from(b"{}");
        for (error, kind, wanted) in [
            (read(document(), "json"), "missing_field", "has no field \"json\"; it has: meta.json"),
            (read(document(), "x;meta.json"), "decode", "the field \"meta.json\""),
            (read(Value::from(b"{\"caption\": "), "meta.json"), "decode", "EOF while parsing"),
            (read(Value::from(b"\xff"), "meta.json"), "decode", "line 1 column 1"),
            (read(json!({"caption": 7}).into(), "meta.json"), "decode", "invalid type: integer `7`"),
            (read(Value::from(b"{\"caption\": \"a\"} x"), "meta.json"), "decode", "trailing characters"),
            (read(7.into(), "meta.json"), "wrong_type", "holds a whole number, not a JSON document"),
        ] {
            let text = format!("{error:#}");
            assert_eq!(error.kind().name(), kind, "{text}");
            assert!(text.contains(wanted), "{text:?} lacks {wanted:?}");
            assert_eq!((error.location().key(), error.location().shard()), (Some("k"), Some("a.tar")));
        }
    }
}
