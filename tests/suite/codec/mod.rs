//! Decoding and encoding, compared with numpy, Pillow and webdataset.
//!
//! The files in `tests/data/codec` are written by `tests/scripts/make_codec_fixtures.py`.

mod fields;
#[cfg(feature = "image")]
mod images;
mod npy;

use bytes::Bytes;
use serde_json::json;
use shardstream::codec::{Array, DType, Decoder, Encoder};
use shardstream::{ErrorKind, Sample, Value};
use std::error::Error as _;
use std::path::{Path, PathBuf};

fn data(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/codec").join(path)
}

fn read(path: &Path) -> Bytes {
    std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display())).into()
}

/// The files of a folder whose names begin with a prefix, sorted.
fn files(folder: &str, prefix: &str) -> Vec<PathBuf> {
    let mut files: Vec<_> = std::fs::read_dir(data(folder))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with(prefix))
        .collect();
    files.sort();
    assert!(!files.is_empty(), "{prefix}");
    files
}

fn array(path: &Path) -> Array {
    Array::from_npy(&read(path)).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
