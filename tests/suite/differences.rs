//! What differs from Python's `webdataset`, as `docs/webdataset.md` lists it: odd shards, and what each side makes of
//! them. What both make the same of is in `differential.rs`.

use crate::support::python::Python;
use crate::support::read_samples;
use shardstream::codec::Decoder;
use shardstream::{Error, Result, Sample, Value};
use std::path::Path;

/// The shard, written by `differences.py`, and what `webdataset` and this crate make of it: samples with their fields
/// or one decoded field, and errors.
type Row = (&'static str, &'static str, &'static str);

const ROWS: &[Row] = &[];

fn kind(error: &Error) -> String {
    let kind = format!("{:?}", error.kind());
    kind.split(|c: char| !c.is_alphanumeric()).next().unwrap().to_owned()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn shown(value: &Value) -> String {
    match value {
        Value::Bytes(bytes) => format!("bytes {}", hex(bytes)),
        Value::Text(text) => format!("text {text}"),
        Value::Int(int) => format!("int {int}"),
        Value::Json(json) => format!("json {json}"),
        Value::Array(array) => format!("array {} {}", array.dtype(), hex(array.data())),
        #[cfg(feature = "image")]
        Value::Image(image) => format!("pixels {}", hex(image.as_u8().expect("8 bits are asked for"))),
        other => panic!("{}", other.type_name()),
    }
}

/// What this crate makes of a shard: its one field `FIELD` where the shard is of one of those, decoded.
fn ours(path: &Path) -> String {
    let decoder = Decoder::new();
    #[cfg(feature = "image")]
    let decoder = decoder.images(shardstream::image::ImageMode::L8);
    let show = |sample: Sample| -> Result<String> {
        if sample.key() != "k" {
            let fields: Vec<&str> = sample.fields().map(|(name, _)| name).collect();
            return Ok(format!("{}: {}", sample.key(), fields.join(" ")));
        }
        let sample = decoder.decode(sample)?;
        let (_, value) = sample.fields().next().expect("it has one field");
        Ok(shown(value))
    };
    let url = path.to_str().unwrap();
    if let Err(error) = shardstream::store::Store::default().open(url) {
        return kind(&error);
    }
    let samples = read_samples(path).into_iter().map(|sample| sample.and_then(show));
    samples.map(|shown| shown.unwrap_or_else(|error| kind(&error))).collect::<Vec<_>>().join("; ")
}

/// Whether a row needs what is not compiled in.
fn is_left_out(name: &str) -> bool {
    let gzip = name.ends_with(".gz") || name.starts_with("gz_");
    let image = name.starts_with("pgm_") || name.starts_with("png_");
    gzip && !cfg!(feature = "gzip") || image && !cfg!(feature = "image")
}

#[test]
fn each_side_does_what_the_page_says() {
    let Some(python) = Python::find() else { return };
    let dir = tempfile::tempdir().unwrap();
    let theirs = python.differences(dir.path());
    let theirs = theirs.as_object().unwrap();
    let mut wrong = Vec::new();
    for (name, there, here) in ROWS.iter().filter(|row| !is_left_out(row.0)) {
        let found = (theirs[*name].as_str().unwrap(), &*ours(&dir.path().join(name)));
        if found != (*there, *here) {
            wrong.push(format!("({name:?}, {:?}, {:?}),", found.0, found.1));
        }
    }
    for name in theirs.keys().filter(|name| ROWS.iter().all(|row| row.0 != **name)) {
        let here = if is_left_out(name) { String::new() } else { ours(&dir.path().join(name)) };
        wrong.push(format!("({name:?}, {:?}, {here:?}), has no row", theirs[name].as_str().unwrap()));
    }
    assert!(wrong.is_empty(), "these rows, and the page, should say:\n{}", wrong.join("\n"));
}
