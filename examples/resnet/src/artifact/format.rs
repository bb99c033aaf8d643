//! The version of the exporter's documents.

use serde::Deserialize;

/// The version that this trainer reads; `FORMAT` of the exporter is the same number.
pub(super) const FORMAT: u64 = 2;

/// The version of a document. The first exporters wrote none, which counts as 0.
#[derive(Deserialize)]
pub(super) struct DocumentFormat {
    #[serde(default)]
    pub(super) format: u64,
}
