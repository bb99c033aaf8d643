//! Finds the labels of samples, and counts the samples with each label.

use crate::field::name_of;
use serde_json::Value as Json;
use shardstream::codec::Decoder;
use shardstream::{Result, Sample, Value};
use std::collections::BTreeMap;

/// Where the label of a sample is: in a field, or at a path in a JSON field.
#[derive(Debug)]
pub(super) struct LabelSpec {
    spec: String,
    field: String,
    path: Vec<String>,
    decoder: Decoder,
}

impl LabelSpec {
    /// Parses a specification such as `cls` or `json:annotation.label`.
    pub(super) fn new(spec: &str) -> Self {
        let (field, path) = spec.split_once(':').unwrap_or((spec, ""));
        let path = path.split('.').filter(|part| !part.is_empty()).map(str::to_owned).collect();
        LabelSpec { spec: spec.to_owned(), field: field.to_owned(), path, decoder: Decoder::new() }
    }

    pub(super) fn spec(&self) -> &str {
        &self.spec
    }

    /// The label of a sample as text, if it has one.
    ///
    /// # Errors
    /// If the field cannot be decoded.
    pub(super) fn of(&self, sample: &Sample) -> Result<Option<String>> {
        let Some(value) = sample.get(&self.field) else { return Ok(None) };
        let Some(bytes) = value.as_bytes() else { return Ok(None) };
        let name = name_of(sample, value).unwrap_or(&self.field);
        let value = self.decoder.decode_field(name, bytes).map_err(|error| sample.locate(error))?;
        Ok(match value {
            Some(Value::Int(number)) => Some(number.to_string()),
            Some(Value::Text(text)) => Some(text.trim_end().to_owned()),
            Some(Value::Json(json)) => at(&json, &self.path).map(shown),
            Some(_) => None,
            // A field of unknown type is read as text.
            None => std::str::from_utf8(bytes).ok().map(|text| text.trim_end().to_owned()),
        })
    }
}

/// The value at a path of object keys and list indices.
fn at<'a>(json: &'a Json, path: &[String]) -> Option<&'a Json> {
    path.iter().try_fold(json, |json, part| match json {
        Json::Object(object) => object.get(part),
        Json::Array(list) => list.get(part.parse::<usize>().ok()?),
        _ => None,
    })
}

fn shown(json: &Json) -> String {
    match json {
        Json::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Number of samples with each label.
#[derive(Debug, Default)]
pub(super) struct LabelCounts {
    counts: BTreeMap<String, u64>,
    /// Number of samples without a label.
    pub(super) without: u64,
}

impl LabelCounts {
    pub(super) fn add(&mut self, label: Option<String>) {
        match label {
            Some(label) => *self.counts.entry(label).or_default() += 1,
            None => self.without += 1,
        }
    }

    pub(super) fn merge(&mut self, other: LabelCounts) {
        self.without += other.without;
        for (label, count) in other.counts {
            *self.counts.entry(label).or_default() += count;
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    pub(super) fn counts(&self) -> &BTreeMap<String, u64> {
        &self.counts
    }

    /// The labels, the most frequent first. Labels with the same frequency are sorted: numbers by value, then
    /// other labels by text.
    pub(super) fn by_count(&self) -> Vec<(&str, u64)> {
        let mut labels: Vec<(&str, u64)> =
            self.counts.iter().map(|(label, count)| (&**label, *count)).collect();
        labels.sort_by_key(|(label, count)| {
            (std::cmp::Reverse(*count), label.parse::<i64>().unwrap_or(i64::MAX), *label)
        });
        labels
    }
}
