//! The input pipeline: from tar shards, or from single files, to batches on the host.

mod batch;
mod columns;
mod folder;
mod options;
mod sets;
mod sharded;
mod source;
#[cfg(test)]
mod tests;
mod waiting;

pub use batch::{HostBatch, HostBatches};
pub use folder::Folder;
pub use options::DataOptions;
pub use sets::{Sets, Split};
pub use sharded::ShardData;
pub use source::Source;
pub use waiting::Waiting;
