//! Parses rows of JSON Lines. Numbers keep the digits with which they are written.

use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::fmt;

/// A value of a row of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Cell {
    Null,
    Text(String),
    /// Any other JSON value, as written but without white space.
    Json(String),
}

impl Cell {
    /// The content of a field: a text without quotes, and any other value as JSON.
    pub(crate) fn into_text(self) -> String {
        match self {
            Cell::Null => "null".into(),
            Cell::Text(text) | Cell::Json(text) => text,
        }
    }

    /// The value as JSON.
    pub(crate) fn json(&self) -> String {
        match self {
            Cell::Null => "null".into(),
            Cell::Text(text) => serde_json::Value::from(text.as_str()).to_string(),
            Cell::Json(json) => json.clone(),
        }
    }

    fn of(raw: &RawValue) -> Result<Self, serde_json::Error> {
        Ok(match raw.get() {
            "null" => Cell::Null,
            text if text.starts_with('"') => Cell::Text(serde_json::from_str(text)?),
            other => Cell::Json(without_white_space(other)),
        })
    }
}

/// The names and values of one JSON object, in order.
#[derive(Debug)]
pub(crate) struct JsonRow(pub(crate) Vec<(String, Cell)>);

impl<'de> Deserialize<'de> for JsonRow {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(RowVisitor)
    }
}

struct RowVisitor;

impl<'de> Visitor<'de> for RowVisitor {
    type Value = JsonRow;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<JsonRow, A::Error> {
        let mut row = Vec::new();
        while let Some((name, value)) = map.next_entry::<String, Box<RawValue>>()? {
            row.push((name, Cell::of(&value).map_err(A::Error::custom)?));
        }
        Ok(JsonRow(row))
    }
}

/// JSON without the white space between its tokens.
fn without_white_space(json: &str) -> String {
    let (mut is_text, mut is_escaped) = (false, false);
    let is_kept = |character: &char| {
        let kept = is_text || !character.is_ascii_whitespace();
        if *character == '"' && !is_escaped {
            is_text = !is_text;
        }
        is_escaped = is_text && *character == '\\' && !is_escaped;
        kept
    };
    json.chars().filter(is_kept).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_keep_the_digits_and_order_in_which_they_are_written() {
        let line = r#"{"n": 12345678901234567890123, "f": 1.10, "t": "a\" \u00e9", "none": null,
            "box": [ 1e400, {"a b": "c \\" , "a b": [ ] } ]}"#;
        let JsonRow(row) = serde_json::from_str(line).unwrap();
        let json = |text: &str| Cell::Json(text.into());
        let expected = [
            ("n", json("12345678901234567890123")),
            ("f", json("1.10")),
            ("t", Cell::Text("a\" é".into())),
            ("none", Cell::Null),
            ("box", json(r#"[1e400,{"a b":"c \\","a b":[]}]"#)),
        ];
        assert_eq!(row, expected.map(|(name, cell)| (name.to_owned(), cell)));
        assert_eq!(Cell::Text("a\n".into()).json(), "\"a\\n\"");
        for line in ["[1]", "1", "{\"a\": 1", "{\"a\": \"\\ud800\"}", "{\"a\": 01}", "{} {}"] {
            assert!(serde_json::from_str::<JsonRow>(line).is_err(), "{line}");
        }
    }
}
