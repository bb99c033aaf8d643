//! The version of the documents of a checkpoint.

use serde::Deserialize;

/// Incremented when the meaning of the content changes.
pub(super) const VERSION: u64 = 3;

#[derive(Deserialize)]
pub(super) struct Versioned {
    pub(super) version: u64,
}
