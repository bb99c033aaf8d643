//! Batches on the host.

use bytes::Bytes;
use shardstream::State;

/// An iterator over the batches of an epoch, or of the rest of an epoch.
pub type HostBatches = Box<dyn Iterator<Item = shardstream::Result<HostBatch>> + Send>;

/// Images with their labels: this process's part of a global batch.
#[derive(Debug, Clone)]
pub struct HostBatch {
    /// Pixels as (N, height, width, RGB). After this field is dropped, the loader reuses its memory.
    pub images: Bytes,
    /// N labels. The label of a row of padding is -1.
    pub labels: Vec<i32>,
    /// Number of samples. The rows after the samples are padding.
    pub valid: usize,
    /// The state of the data after this batch; `None` for single files.
    pub state: Option<State>,
}
