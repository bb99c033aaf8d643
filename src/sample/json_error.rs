//! Errors of JSON documents that show the place, and documents with numbers that JSON does not have.

use std::fmt;

/// A JSON document that cannot be read, with the text around the place.
#[derive(Debug)]
pub(crate) struct JsonError {
    source: serde_json::Error,
    near: Option<String>,
    is_number: bool,
}

/// Number of bytes before and after the place that are shown.
const SHOWN: usize = 24;

impl JsonError {
    /// The error of reading `text`.
    pub(crate) fn of(text: &[u8], source: serde_json::Error) -> Self {
        let Some(line) = source.line().checked_sub(1) else { return JsonError::from(source) };
        let starts = std::iter::once(0).chain(memchr::memchr_iter(b'\n', text).map(|at| at + 1));
        let start = starts.into_iter().nth(line).unwrap_or(text.len());
        let at = (start + source.column().saturating_sub(1)).min(text.len());
        let part = |before: usize, after: usize| {
            &text[at.saturating_sub(before)..at.saturating_add(after).min(text.len())]
        };
        let near = part(SHOWN, SHOWN);
        let is_number = NUMBERS.iter().any(|number| memchr::memmem::find(part(2, 9), number).is_some());
        JsonError { source, near: Some(String::from_utf8_lossy(near).into_owned()), is_number }
    }
}

/// The error of a document that is parsed already.
impl From<serde_json::Error> for JsonError {
    fn from(source: serde_json::Error) -> Self {
        JsonError { source, near: None, is_number: false }
    }
}

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.source)?;
        if let Some(near) = &self.near {
            write!(f, ", near {near:?}")?;
        }
        if self.is_number {
            f.write_str("; JSON has no NaN and no Infinity: `Decoder::lenient_json` reads them as null")?;
        }
        Ok(())
    }
}

impl std::error::Error for JsonError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        // The text of the error is that of this one already.
        std::error::Error::source(&self.source)
    }
}

/// What Python's `json` writes for numbers that JSON does not have; a sign before it belongs to it.
const NUMBERS: [&[u8]; 2] = [b"NaN", b"Infinity"];

/// The document with `null` in place of `NaN`, `Infinity` and `-Infinity` outside of strings.
pub(crate) fn without_nan(text: &[u8]) -> Vec<u8> {
    let mut changed = Vec::with_capacity(text.len());
    let (mut rest, mut in_string) = (text, false);
    while let [byte, behind @ ..] = rest {
        let after = NUMBERS.iter().find_map(|number| rest.strip_prefix(*number).filter(|_| !in_string));
        if let Some(after) = after {
            if changed.last() == Some(&b'-') {
                changed.pop();
            }
            changed.extend_from_slice(b"null");
            rest = after;
            continue;
        }
        changed.push(*byte);
        rest = behind;
        match byte {
            b'"' => in_string = !in_string,
            b'\\' if in_string => {
                if let [escaped, behind @ ..] = rest {
                    changed.push(*escaped);
                    rest = behind;
                }
            }
            _ => {}
        }
    }
    changed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::json::parse;
    use serde_json::{Value, json};

    #[test]
    fn an_error_shows_the_place() {
        let told = |text: &str| parse::<Value>(text.as_bytes()).unwrap_err().to_string();
        let long = format!("{{\"a\": \"{}\",\n \"similarity\": NaN, \"w\": 3}}", "x".repeat(99));
        let error = told(&long);
        assert!(error.starts_with("expected value at line 2 column 1"), "{error}");
        assert!(
            error.contains("similarity\\\": NaN, \\\"w\\\"") && error.contains("lenient_json"),
            "{error}"
        );
        assert!(error.len() < 250, "{error}");
        assert!(told("{\"x\": -Infinity}").contains("lenient_json"));
        for (text, near) in [("{'a': 1}", "near \"{'a': 1}\""), ("{\"a\": 1,}", "1,}"), ("", "near \"\"")] {
            let error = told(text);
            assert!(error.contains(near) && !error.contains("lenient"), "{error}");
        }
        assert!(parse::<Value>(b"[\xff\xff").unwrap_err().to_string().contains('\u{fffd}'));
    }

    #[test]
    fn numbers_that_json_does_not_have_are_null() {
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
