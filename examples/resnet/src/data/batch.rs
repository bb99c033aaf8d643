//! Batches on the host.

use bytes::Bytes;
use shardstream::State;

/// The batches of one part of an epoch.
pub type HostBatches = Box<dyn Iterator<Item = shardstream::Result<HostBatch>> + Send>;

/// Images with their labels: this process's part of a global batch.
#[derive(Debug, Clone)]
pub struct HostBatch {
    /// Pixels as (N, height, width, RGB). Once dropped, the memory is used for a later batch.
    pub images: Bytes,
    /// N labels; -1 marks padding.
    pub labels: Vec<i32>,
    /// Number of samples, which come first; the rest is padding.
    pub valid: usize,
    /// The state of the data after this batch, if known.
    pub state: Option<State>,
}
