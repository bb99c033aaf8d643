//! Replaces `gzip.rs` in a build without the feature `gzip`: every call is an error.

use super::BoxError;
use crate::{Error, ErrorKind};
use bytes::Bytes;

pub(super) fn decompress(_: &[u8], _: usize) -> Result<Bytes, BoxError> {
    Err(unsupported())
}

pub(super) fn compress(_: &[u8]) -> Result<Bytes, BoxError> {
    Err(unsupported())
}

fn unsupported() -> BoxError {
    let message = "fields ending in .gz need the feature `gzip` of shardstream";
    Error::from(ErrorKind::UnsupportedCompression(message.into())).into()
}
