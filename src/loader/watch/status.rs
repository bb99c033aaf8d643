//! Snapshots of the threads and streams of a run.

use crate::activity::{Activity, ThreadMark};
use crate::dataset::CurrentShard;
use std::sync::Arc;
use std::time::Duration;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::loader) enum Role {
    /// Reads and maps.
    Worker,
    /// Collects items into batches.
    Collector,
    /// The trainer's thread, if there are no other threads: it reads, maps and collects in `next`.
    Trainer,
}

/// A stream of a run: its dataset, its number, and the shard that it reads.
#[derive(Debug, Clone)]
pub(in crate::loader) struct StreamId {
    pub(in crate::loader) dataset: usize,
    pub(in crate::loader) stream: usize,
    pub(in crate::loader) shard: CurrentShard,
}

#[derive(Debug, Clone, Copy, Default)]
pub(in crate::loader) struct StreamProgress {
    /// Whether a thread reads the stream.
    pub(in crate::loader) is_being_read: bool,
    /// Whether the stream can be read without waiting, as far as is known.
    pub(in crate::loader) is_readable: bool,
    /// Whether the stream was read to its end.
    pub(in crate::loader) has_ended: bool,
    /// Number of items that were mapped and wait for their batch.
    pub(in crate::loader) items: usize,
}

/// A pool of threads, as the run monitor sees it.
pub(in crate::loader) trait PoolStatus: Send + Sync {
    fn streams(&self) -> Vec<StreamProgress>;

    /// The activity of idle threads. It says what the threads wait for.
    fn idle(&self) -> Activity;

    /// The work that the threads have done so far.
    fn done(&self) -> WorkDone;
}

#[derive(Debug, Clone, Copy, Default)]
pub(in crate::loader) struct WorkDone {
    /// Number of items that the stages made.
    pub(in crate::loader) items: u64,
    /// CPU time of the threads.
    pub(in crate::loader) cpu: Duration,
    /// Whether there is currently no memory for more samples.
    pub(in crate::loader) is_memory_full: bool,
}

/// The activity of a thread at a moment.
#[derive(Debug, Clone)]
pub(super) struct ThreadSnapshot {
    pub(super) role: Role,
    pub(super) mark: Arc<ThreadMark>,
    pub(super) activity: Activity,
    /// The duration of the activity so far, as sampled.
    pub(super) time: Duration,
}
