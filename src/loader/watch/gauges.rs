//! `Gauges`: the memory, queues and threads of a run as gauges of the crate `metrics`.

use crate::loader::report::{MemoryReport, Queues, Report};
use std::time::{Duration, Instant};

/// The time between two updates.
const INTERVAL: Duration = Duration::from_secs(1);

/// Adds the values of one run to the gauges of the process. The value of a gauge is the sum over all runs.
#[derive(Debug, Default)]
pub(super) struct Gauges {
    last_update: Option<Instant>,
    memory: MemoryReport,
    queues: Queues,
    threads: usize,
}

impl Gauges {
    /// Updates the gauges if [`INTERVAL`] has passed since the last update.
    pub(super) fn update(&mut self, report: impl FnOnce() -> Report) {
        if self.last_update.is_none_or(|at| at.elapsed() >= INTERVAL) {
            self.last_update = Some(Instant::now());
            let report = report();
            self.set(report.memory, report.queues, report.times.threads);
        }
    }

    fn set(&mut self, memory: MemoryReport, queues: Queues, threads: usize) {
        // The last two owners are read buffers of the whole process.
        let of_run = MemoryReport::default().owners().count() - 2;
        for (number, ((owner, now), (_, before))) in memory.owners().zip(self.memory.owners()).enumerate() {
            let gauge = metrics::gauge!("shardstream_memory_bytes", "owner" => owner);
            match number < of_run {
                true => gauge.increment(now as f64 - before as f64),
                false => gauge.set(now as f64),
            }
        }
        let change = |now: u64, before: u64| now as f64 - before as f64;
        metrics::gauge!("shardstream_ready_items").increment(change(queues.items, self.queues.items));
        metrics::gauge!("shardstream_ready_batches").increment(change(queues.batches, self.queues.batches));
        let ahead = change(queues.prefetch, self.queues.prefetch);
        metrics::gauge!("shardstream_prefetch_batches").increment(ahead);
        metrics::gauge!("shardstream_threads").increment(change(threads as u64, self.threads as u64));
        (self.memory, self.queues, self.threads) = (memory, queues, threads);
    }

    /// Subtracts the run's values from the gauges. Called when the run has ended.
    pub(super) fn clear(&mut self) {
        let MemoryReport { read_buffers, idle_read_buffers, .. } = self.memory;
        if self.last_update.take().is_some() {
            self.set(
                MemoryReport { read_buffers, idle_read_buffers, ..MemoryReport::default() },
                Queues::default(),
                0,
            );
        }
    }
}

impl Drop for Gauges {
    fn drop(&mut self) {
        self.clear();
    }
}
