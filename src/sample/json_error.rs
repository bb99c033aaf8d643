//! Errors of JSON documents, with an excerpt of the text. Also detects and replaces `NaN` and `Infinity`,
//! which are not valid JSON.

use std::fmt;

/// The error of a JSON document, with an excerpt of the text around the error.
#[derive(Debug)]
pub(crate) struct JsonError {
    source: serde_json::Error,
    excerpt: Option<String>,
    /// Whether `NaN` or `Infinity` is at the place of the error.
    is_nan: bool,
}

/// The excerpt shows at most this number of bytes on each side of the error's position.
const EXCERPT: usize = 24;

impl JsonError {
    /// Adds an excerpt of `text` to `source`, the error of parsing `text`.
    pub(crate) fn of(text: &[u8], source: serde_json::Error) -> Self {
        let Some(line) = source.line().checked_sub(1) else { return JsonError::from(source) };
        let starts = std::iter::once(0).chain(memchr::memchr_iter(b'\n', text).map(|at| at + 1));
        let start = starts.into_iter().nth(line).unwrap_or(text.len());
        let at = (start + source.column().saturating_sub(1)).min(text.len());
        let part = |before: usize, after: usize| {
            &text[at.saturating_sub(before)..at.saturating_add(after).min(text.len())]
        };
        let excerpt = String::from_utf8_lossy(part(EXCERPT, EXCERPT)).into_owned();
        let is_nan = NAMES.iter().any(|name| memchr::memmem::find(part(2, 9), name).is_some());
        JsonError { source, excerpt: Some(excerpt), is_nan }
    }
}

/// Makes an error without an excerpt, for use when the text of the document is no longer available.
impl From<serde_json::Error> for JsonError {
    fn from(source: serde_json::Error) -> Self {
        JsonError { source, excerpt: None, is_nan: false }
    }
}

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.source)?;
        if let Some(excerpt) = &self.excerpt {
            write!(f, ", near {excerpt:?}")?;
        }
        if self.is_nan {
            f.write_str("; JSON has no NaN and no Infinity: `Decoder::lenient_json` reads them as null")?;
        }
        Ok(())
    }
}

impl std::error::Error for JsonError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        // `Display` already writes the message of `self.source`.
        std::error::Error::source(&self.source)
    }
}

/// Names that Python's `json` writes for floats that JSON does not have. `Infinity` may have a minus sign.
const NAMES: [&[u8]; 2] = [b"NaN", b"Infinity"];

/// The document with `null` in place of `NaN`, `Infinity` and `-Infinity` outside of strings.
pub(crate) fn without_nan(text: &[u8]) -> Vec<u8> {
    let mut replaced = Vec::with_capacity(text.len());
    let mut rest = text;
    let mut in_string = false;
    while let [byte, after_byte @ ..] = rest {
        let after_name = NAMES.iter().find_map(|name| rest.strip_prefix(*name).filter(|_| !in_string));
        if let Some(after_name) = after_name {
            if replaced.last() == Some(&b'-') {
                replaced.pop();
            }
            replaced.extend_from_slice(b"null");
            rest = after_name;
            continue;
        }
        replaced.push(*byte);
        rest = after_byte;
        match byte {
            b'"' => in_string = !in_string,
            b'\\' if in_string => {
                if let [escaped, after_escaped @ ..] = rest {
                    replaced.push(*escaped);
                    rest = after_escaped;
                }
            }
            _ => {}
        }
    }
    replaced
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::json::parse;
    use serde_json::{Value, json};

    #[test]
    fn an_error_shows_the_text_around_it() {
        let message = |text: &str| parse::<Value>(text.as_bytes()).unwrap_err().to_string();
        let long = format!("{{\"a\": \"{}\",\n \"similarity\": NaN, \"w\": 3}}", "x".repeat(99));
        let error = message(&long);
        assert!(error.starts_with("expected value at line 2 column 1"), "{error}");
        assert!(
            error.contains("similarity\\\": NaN, \\\"w\\\"") && error.contains("lenient_json"),
            "{error}"
        );
        assert!(error.len() < 250, "{error}");
        assert!(message("{\"x\": -Infinity}").contains("lenient_json"));
        for (text, near) in [("{'a': 1}", "near \"{'a': 1}\""), ("{\"a\": 1,}", "1,}"), ("", "near \"\"")] {
            let error = message(text);
            assert!(error.contains(near) && !error.contains("lenient"), "{error}");
        }
        assert!(parse::<Value>(b"[\xff\xff").unwrap_err().to_string().contains('\u{fffd}'));
    }

    #[test]
    fn nan_and_infinity_are_replaced_by_null_outside_of_strings() {
        let text =
            r#"{"similarity": NaN, "low": -Infinity, "s": "NaN \" -Infinity", "l": [Infinity, -1], "w": 3}"#;
        let wanted =
            json!({"similarity": null, "low": null, "s": "NaN \" -Infinity", "l": [null, -1], "w": 3});
        assert_eq!(parse::<Value>(&without_nan(text.as_bytes())).unwrap(), wanted);
        for text in ["{\"a\": NaNa}", "\"\\", "", "nan", "{\"a\": \"b\\\\\", \"c\": +NaN}"] {
            assert!(parse::<Value>(&without_nan(text.as_bytes())).is_err(), "{text}");
        }
    }
}
