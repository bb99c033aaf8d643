//! JSON documents of credentials, whose errors name the file and the field, and show no value.

use super::values::{is_sendable, unusable};
use crate::transport::may_get_secrets;
use crate::{Error, Result};
use serde_json::Value;
use std::fs;
use std::path::Path;

/// A JSON object of a file, of a response, or of a program's output.
#[derive(Clone)]
pub(super) struct Document {
    /// The file, for messages, or what else it comes from.
    origin: String,
    /// The field that holds this object, with a `.` behind it; empty for the whole document.
    place: String,
    value: Value,
}

#[cfg_attr(not(feature = "gcs"), allow(dead_code, reason = "files of Google have more fields"))]
impl Document {
    pub(super) fn read(path: &Path) -> Result<Self> {
        let origin = path.display().to_string();
        let text = fs::read(path).map_err(|error| unusable(format!("{origin} cannot be read: {error}")))?;
        Self::parse(&text, origin)
    }

    /// Parses a document that comes from `origin`.
    pub(super) fn parse(text: &[u8], origin: String) -> Result<Self> {
        match serde_json::from_slice(text) {
            Ok(value @ Value::Object(_)) => Ok(Document { origin, place: String::new(), value }),
            // The message of the parser could quote a secret.
            _ => Err(unusable(format!("{origin}: this is no JSON object"))),
        }
    }

    /// What the document comes from.
    pub(super) fn origin(&self) -> &str {
        &self.origin
    }

    /// The error for a field, which it names.
    pub(super) fn wrong(&self, field: &str, what: &str) -> Error {
        unusable(format!("{}: the field `{}{field}` {what}", self.origin, self.place))
    }

    pub(super) fn has(&self, field: &str) -> bool {
        !matches!(self.value.get(field), None | Some(Value::Null))
    }

    /// The text of a field, unless it is missing.
    pub(super) fn optional(&self, field: &str) -> Result<Option<String>> {
        match self.value.get(field) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(_) => Err(self.wrong(field, "is no text")),
        }
    }

    /// The text of a field, which must not be empty.
    pub(super) fn text(&self, field: &str) -> Result<String> {
        let text = self.optional(field)?.filter(|text| !text.is_empty());
        text.ok_or_else(|| self.wrong(field, "is missing"))
    }

    /// A text that is sent in a header.
    pub(super) fn token(&self, field: &str) -> Result<String> {
        let token = self.text(field)?.trim().to_owned();
        match is_sendable(&token) {
            true => Ok(token),
            false => Err(self.wrong(field, "has characters that no token has")),
        }
    }

    /// A whole number, which may be written as a text; `None` if it is missing.
    pub(super) fn number(&self, field: &str) -> Result<Option<u64>> {
        let number = match self.value.get(field) {
            None | Some(Value::Null) => return Ok(None),
            Some(Value::String(text)) => text.trim().parse().ok(),
            Some(value) => value.as_u64(),
        };
        number.map(Some).ok_or_else(|| self.wrong(field, "is no whole number"))
    }

    /// Whether a field is `true`.
    pub(super) fn is_true(&self, field: &str) -> bool {
        self.value.get(field) == Some(&Value::Bool(true))
    }

    /// The texts of a list; none if it is missing.
    pub(super) fn texts(&self, field: &str) -> Result<Vec<String>> {
        let list = match self.value.get(field) {
            None | Some(Value::Null) => return Ok(Vec::new()),
            Some(Value::Array(list)) => list,
            Some(_) => return Err(self.wrong(field, "is no list")),
        };
        let texts = list.iter().map(|item| item.as_str().map(str::to_owned));
        texts.collect::<Option<_>>().ok_or_else(|| self.wrong(field, "is no list of texts"))
    }

    /// The object in a field; `None` if it is missing.
    pub(super) fn object(&self, field: &str) -> Result<Option<Document>> {
        match self.value.get(field) {
            None | Some(Value::Null) => Ok(None),
            Some(value @ Value::Object(_)) => Ok(Some(Document {
                origin: self.origin.clone(),
                place: format!("{}{field}.", self.place),
                value: value.clone(),
            })),
            Some(_) => Err(self.wrong(field, "is no object")),
        }
    }

    /// The names and texts of this object.
    pub(super) fn pairs(&self) -> Result<Vec<(String, String)>> {
        let fields = self.value.as_object().into_iter().flatten();
        fields.map(|(name, _)| Ok((name.clone(), self.text(name)?))).collect()
    }

    /// The object as JSON.
    pub(super) fn to_json(&self) -> String {
        self.value.to_string()
    }

    /// The URL in a field, to which secrets are sent: over TLS, unless it leads to this machine.
    pub(super) fn url(&self, field: &str) -> Result<String> {
        let text = self.text(field)?;
        let url = url::Url::parse(&text).map_err(|_| self.wrong(field, "is no URL"))?;
        match may_get_secrets(&url) {
            true => Ok(text),
            false => Err(self.wrong(field, "is no https URL, and secrets are sent to no other")),
        }
    }
}
