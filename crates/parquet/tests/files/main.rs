//! Reads files that pyarrow wrote: the values are those that pyarrow reads, and the rows have the same order
//! as the samples of tar shards.

mod damage;
mod hostile;
mod memory_source;
mod order;
mod peer;
mod ranges;
mod reading;
mod refused;

use shardstream::{Sample, Value};
use std::path::PathBuf;

/// The path of a file in the folder `data`.
fn data(name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests", "files", "data", name].iter().collect()
}

/// The pattern that matches the three files of texts, which have 150, 200 and 250 rows.
fn texts() -> String {
    data("texts-*.parquet").display().to_string()
}

/// Formats a value as text, with its type and all its bytes.
fn shown(value: &Value) -> String {
    match value {
        Value::Bytes(bytes) => format!("b\"{}\"", bytes.escape_ascii()),
        Value::Array(array) => format!("{array} {:?}", &array.data()[..]),
        other => format!("{other:?}"),
    }
}

/// Formats the key and the fields of a sample as one line of text.
fn row(sample: &Sample) -> String {
    let fields: Vec<_> = sample.fields().map(|(name, value)| format!("{name}={}", shown(value))).collect();
    format!("{} {}", sample.key(), fields.join(" "))
}
