//! `RunTotals`: the times and counts of a run, for the tuner.

use std::time::Duration;

/// Times and counts of a run so far, or in a window of it.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::loader) struct RunTotals {
    pub(in crate::loader) elapsed: Duration,
    /// Time that the trainer waited for batches.
    pub(in crate::loader) waited: Duration,
    /// Time in which the trainer did something other than steps.
    pub(in crate::loader) rested: Duration,
    /// Time that the worker threads were busy, summed over the threads.
    pub(in crate::loader) work: Duration,
    /// Time in which the maximum number of batches was ready, so that the collecting thread was idle.
    pub(in crate::loader) full: Duration,
    /// Number of items that the stages made.
    pub(in crate::loader) items: u64,
    /// CPU time of the worker threads.
    pub(in crate::loader) cpu: Duration,
    /// The idle time of the machine's cores, summed over the cores, if it is known.
    pub(in crate::loader) idle_cores: Option<Duration>,
    /// Number of batches returned.
    pub(in crate::loader) batches: u64,
    /// Number of returned batches that were not ready when the trainer requested them.
    pub(in crate::loader) late: u64,
    /// Whether there is currently no memory for more samples.
    pub(in crate::loader) is_memory_full: bool,
}

impl RunTotals {
    /// The times and counts since `before`.
    pub(super) fn since(&self, before: &RunTotals) -> RunTotals {
        let idle_cores = self.idle_cores.zip(before.idle_cores);
        RunTotals {
            elapsed: self.elapsed.saturating_sub(before.elapsed),
            waited: self.waited.saturating_sub(before.waited),
            rested: self.rested.saturating_sub(before.rested),
            work: self.work.saturating_sub(before.work),
            full: self.full.saturating_sub(before.full),
            items: self.items.saturating_sub(before.items),
            cpu: self.cpu.saturating_sub(before.cpu),
            idle_cores: idle_cores.map(|(now, before)| now.saturating_sub(before)),
            batches: self.batches.saturating_sub(before.batches),
            late: self.late.saturating_sub(before.late),
            is_memory_full: self.is_memory_full,
        }
    }

    /// A time as a share of the elapsed time. For a time that is summed over threads or cores, this is the
    /// mean number of threads or cores.
    pub(super) fn share(&self, of: Duration) -> f64 {
        of.as_secs_f64() / self.elapsed.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    /// Items per second.
    pub(super) fn rate(&self) -> f64 {
        self.items as f64 / self.elapsed.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    /// The share of the elapsed time in which the trainer waited.
    pub(super) fn waits(&self) -> f64 {
        self.share(self.waited)
    }
}
