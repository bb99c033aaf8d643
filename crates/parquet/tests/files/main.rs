//! Files that pyarrow wrote are read as it reads them, in any order that a dataset reads tar shards in.

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

/// A file of the folder `data`.
fn data(name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests", "files", "data", name].iter().collect()
}

/// The pattern of the three files of texts, with 150, 200 and 250 rows.
fn texts() -> String {
    data("texts-*.parquet").display().to_string()
}

/// A value with its type and all of its bytes.
fn shown(value: &Value) -> String {
    match value {
        Value::Bytes(bytes) => format!("b\"{}\"", bytes.escape_ascii()),
        Value::Array(array) => format!("{array} {:?}", &array.data()[..]),
        other => format!("{other:?}"),
    }
}

/// A sample as text.
fn row(sample: &Sample) -> String {
    let fields: Vec<_> = sample.fields().map(|(name, value)| format!("{name}={}", shown(value))).collect();
    format!("{} {}", sample.key(), fields.join(" "))
}
