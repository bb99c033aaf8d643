//! Reads a sample's key from a member of a JSON object.

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::fmt;

/// The key of a line, which is the value of this member. If the member is repeated, its last value is the
/// key. The error says what is wrong, and contains no value of the line.
pub(super) fn key_of(line: &[u8], member: &str) -> Result<String, String> {
    let mut json = serde_json::Deserializer::from_slice(line);
    let key = json.deserialize_map(KeyOfObject { member }).and_then(|key| json.end().map(|()| key));
    match key {
        Ok(Some(Some(key))) if !key.is_empty() => Ok(key),
        Ok(Some(_)) => {
            Err(format!("the member {member:?} of a line, its key, is neither text nor a whole number"))
        }
        Ok(None) => Err(format!("a line has no member {member:?}, which is its key")),
        Err(error) if error.is_data() => Err("a line is not a JSON object, so it has no key".into()),
        Err(error) => Err(format!("a line is not JSON, so it has no key: {error}")),
    }
}

/// Reads a JSON object and returns the value of `member` as a key.
struct KeyOfObject<'a> {
    member: &'a str,
}

impl<'de> Visitor<'de> for KeyOfObject<'_> {
    /// The outer `None` means that the object lacks the member. The inner `None` means that the member's
    /// value cannot be a key.
    type Value = Option<Option<String>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut key = None;
        while let Some(name) = map.next_key::<String>()? {
            if name == self.member {
                key = Some(map.next_value_seed(KeyValue)?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(key)
    }
}

/// Reads a string or a whole number as text; returns `None` for any other value.
struct KeyValue;

impl<'de> DeserializeSeed<'de> for KeyValue {
    type Value = Option<String>;

    fn deserialize<D: Deserializer<'de>>(self, value: D) -> Result<Self::Value, D::Error> {
        value.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for KeyValue {
    type Value = Option<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Some(text.to_owned()))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Self::Value, E> {
        Ok(Some(number.to_string()))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Self::Value, E> {
        Ok(Some(number.to_string()))
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Self::Value, A::Error> {
        IgnoredAny.visit_seq(seq).map(|_| None)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        IgnoredAny.visit_map(map).map(|_| None)
    }
}
