//! The format version of the exporter's documents.

use serde::Deserialize;

/// The version that this trainer reads. `FORMAT` in the exporter is the same number.
pub(super) const FORMAT: u64 = 2;

/// The version of a document; 0 if the document has none: the first exporters wrote no version.
#[derive(Deserialize)]
pub(super) struct DocumentFormat {
    #[serde(default)]
    pub(super) format: u64,
}
