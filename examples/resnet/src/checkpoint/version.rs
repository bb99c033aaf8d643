//! The format version of a checkpoint's documents.

use serde::Deserialize;

/// The current version. Increment it when the content or its meaning changes.
pub(super) const VERSION: u64 = 3;

#[derive(Deserialize)]
pub(super) struct Versioned {
    pub(super) version: u64,
}
