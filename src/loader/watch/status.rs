//! Snapshots of the threads and streams of a run.

use crate::activity::{Activity, ThreadMark};
use crate::dataset::CurrentShard;
use std::sync::Arc;
use std::time::Duration;

/// The role of a thread in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::loader) enum Role {
    /// Reads and maps.
    Worker,
    /// Collects items into batches.
    Collector,
    /// The trainer's own thread, which does both while it waits.
    Trainer,
}

/// A stream of a run: the number of the dataset, that of the stream, and the shard being read.
#[derive(Debug, Clone)]
pub(in crate::loader) struct StreamId {
    pub(in crate::loader) dataset: usize,
    pub(in crate::loader) stream: usize,
    pub(in crate::loader) shard: CurrentShard,
}

/// What happens to a stream, and how many items are ready.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::loader) struct StreamProgress {
    /// Whether a thread reads it.
    pub(in crate::loader) is_being_read: bool,
    /// Whether it is known to have something to read.
    pub(in crate::loader) is_readable: bool,
    /// Whether it has been read to its end.
    pub(in crate::loader) has_ended: bool,
    /// Number of items that have been mapped and wait for their batch.
    pub(in crate::loader) items: usize,
}

/// A pool of threads that can be asked how far its streams are.
pub(in crate::loader) trait PoolStatus: Send + Sync {
    /// The progress of each stream.
    fn streams(&self) -> Vec<StreamProgress>;

    /// What idle threads wait for.
    fn idle(&self) -> Activity;

    /// The work that the threads have done so far.
    fn done(&self) -> WorkDone;
}

/// The work of threads.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::loader) struct WorkDone {
    /// Number of items that the stages made.
    pub(in crate::loader) items: u64,
    /// CPU time that they took.
    pub(in crate::loader) cpu: Duration,
    /// Whether there is currently no memory for more samples.
    pub(in crate::loader) is_memory_full: bool,
}

/// What a thread does at a moment.
#[derive(Debug, Clone)]
pub(super) struct ThreadSnapshot {
    pub(super) role: Role,
    pub(super) mark: Arc<ThreadMark>,
    pub(super) activity: Activity,
    /// How long it has done that, as far as the sampler has seen.
    pub(super) time: Duration,
}
