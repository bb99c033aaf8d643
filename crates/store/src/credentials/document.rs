//! JSON documents with credentials. Their errors name the file and the field, and never show a value.

use super::values::{is_sendable, unusable};
use crate::transport::may_get_secrets;
use crate::{Error, Result};
use serde_json::Value;
use std::fs;
use std::path::Path;

/// A JSON object from a file, a response, or a program's output.
#[derive(Clone)]
pub(super) struct Document {
    /// The file or other origin of the document, for messages.
    origin: String,
    /// The path of the field that has this object, with a `.` at its end; empty for the whole document.
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

    pub(super) fn parse(text: &[u8], origin: String) -> Result<Self> {
        match serde_json::from_slice(text) {
            Ok(value @ Value::Object(_)) => Ok(Document { origin, place: String::new(), value }),
            // The parser's message is dropped, since it could quote a secret.
            _ => Err(unusable(format!("{origin}: this is not a JSON object"))),
        }
    }

    pub(super) fn origin(&self) -> &str {
        &self.origin
    }

    /// The error for a field, which the message names.
    pub(super) fn wrong(&self, field: &str, what: &str) -> Error {
        unusable(format!("{}: the field `{}{field}` {what}", self.origin, self.place))
    }

    pub(super) fn has(&self, field: &str) -> bool {
        !matches!(self.value.get(field), None | Some(Value::Null))
    }

    /// The text of a field; `None` if it is missing or null.
    pub(super) fn optional(&self, field: &str) -> Result<Option<String>> {
        match self.value.get(field) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(_) => Err(self.wrong(field, "is not a string")),
        }
    }

    /// The text of a field, which must not be empty.
    pub(super) fn text(&self, field: &str) -> Result<String> {
        let text = self.optional(field)?.filter(|text| !text.is_empty());
        text.ok_or_else(|| self.wrong(field, "is missing"))
    }

    /// The text of a field that is sent in a header, without spaces around it.
    pub(super) fn token(&self, field: &str) -> Result<String> {
        let token = self.text(field)?.trim().to_owned();
        match is_sendable(&token) {
            true => Ok(token),
            false => Err(self.wrong(field, "has characters that are not allowed in a token")),
        }
    }

    /// A whole number, which may be written as a string; `None` if it is missing.
    pub(super) fn number(&self, field: &str) -> Result<Option<u64>> {
        let number = match self.value.get(field) {
            None | Some(Value::Null) => return Ok(None),
            Some(Value::String(text)) => text.trim().parse().ok(),
            Some(value) => value.as_u64(),
        };
        number.map(Some).ok_or_else(|| self.wrong(field, "is not a whole number"))
    }

    /// Whether a field is `true`.
    pub(super) fn is_true(&self, field: &str) -> bool {
        self.value.get(field) == Some(&Value::Bool(true))
    }

    /// The strings of a list; empty if the field is missing.
    pub(super) fn texts(&self, field: &str) -> Result<Vec<String>> {
        let list = match self.value.get(field) {
            None | Some(Value::Null) => return Ok(Vec::new()),
            Some(Value::Array(list)) => list,
            Some(_) => return Err(self.wrong(field, "is not a list")),
        };
        let texts = list.iter().map(|item| item.as_str().map(str::to_owned));
        texts.collect::<Option<_>>().ok_or_else(|| self.wrong(field, "is not a list of strings"))
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
            Some(_) => Err(self.wrong(field, "is not an object")),
        }
    }

    /// The names and values of this object. All values must be strings.
    pub(super) fn pairs(&self) -> Result<Vec<(String, String)>> {
        let fields = self.value.as_object().into_iter().flatten();
        fields.map(|(name, _)| Ok((name.clone(), self.text(name)?))).collect()
    }

    /// The object as JSON.
    pub(super) fn to_json(&self) -> String {
        self.value.to_string()
    }

    /// The URL in a field. Secrets are sent to this URL, so its scheme must be https, unless it names this
    /// machine.
    pub(super) fn url(&self, field: &str) -> Result<String> {
        let text = self.text(field)?;
        let url = url::Url::parse(&text).map_err(|_| self.wrong(field, "is not a URL"))?;
        match may_get_secrets(&url) {
            true => Ok(text),
            false => Err(self.wrong(field, "is not an https URL, and secrets are sent over https only")),
        }
    }
}
