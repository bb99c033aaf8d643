//! What is known of the threads and streams of a run at a moment.

use crate::activity::{Activity, ThreadMark};
use crate::dataset::CurrentShard;
use std::sync::Arc;
use std::time::Duration;

/// What a thread is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::loader) enum Role {
    /// It reads and maps.
    Worker,
    /// It puts items into batches.
    Collector,
    /// It is the trainer's own, and does both while it waits.
    Trainer,
}

/// A stream of a run: the dataset's number and the stream's, and which shard is being read.
#[derive(Debug, Clone)]
pub(in crate::loader) struct StreamId {
    pub(in crate::loader) dataset: usize,
    pub(in crate::loader) stream: usize,
    pub(in crate::loader) shard: CurrentShard,
}

/// How far one stream is ahead.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::loader) struct StreamProgress {
    /// Whether a thread reads it at the moment.
    pub(in crate::loader) is_being_read: bool,
    /// Whether it has something to read, as far as is known.
    pub(in crate::loader) is_readable: bool,
    /// Whether everything has been read.
    pub(in crate::loader) has_ended: bool,
    /// Items that have been mapped and wait to be put into a batch.
    pub(in crate::loader) items: usize,
}

/// Threads that tell how far the streams are.
pub(in crate::loader) trait PoolStatus: Send + Sync {
    fn streams(&self) -> Vec<StreamProgress>;

    /// What threads wait for that have nothing to do.
    fn idle(&self) -> Activity;

    /// What the threads have done so far.
    fn done(&self) -> WorkDone;
}

/// What threads have done: the items that came of the stages, and the time of cores that they took.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::loader) struct WorkDone {
    pub(in crate::loader) items: u64,
    pub(in crate::loader) cpu: Duration,
    /// Whether there is no memory for more samples at the moment.
    pub(in crate::loader) is_full: bool,
}

/// What a thread was seen doing.
#[derive(Debug, Clone)]
pub(super) struct ThreadSnapshot {
    pub(super) role: Role,
    pub(super) mark: Arc<ThreadMark>,
    pub(super) activity: Activity,
    /// For how long it has done the same, as far as it was looked at.
    pub(super) time: Duration,
}
