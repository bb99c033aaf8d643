//! What a run holds and has ready, as gauges of the facade `metrics`.

use crate::loader::report::{MemoryReport, Queues, Report};
use std::time::{Duration, Instant};

/// How often they are set.
const INTERVAL: Duration = Duration::from_secs(1);

/// The gauges of one run. Those of all runs of a process are added up: each run adds what has changed.
#[derive(Debug, Default)]
pub(super) struct Gauges {
    at: Option<Instant>,
    memory: MemoryReport,
    queues: Queues,
    threads: usize,
}

impl Gauges {
    /// Sets the gauges, unless that was done a moment ago.
    pub(super) fn show(&mut self, report: impl FnOnce() -> Report) {
        if self.at.is_none_or(|at| at.elapsed() >= INTERVAL) {
            self.at = Some(Instant::now());
            let report = report();
            self.set(report.memory, report.queues, report.times.threads);
        }
    }

    fn set(&mut self, memory: MemoryReport, queues: Queues, threads: usize) {
        // The last two are those of the process.
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
}

impl Gauges {
    /// The run has ended, and holds nothing.
    pub(super) fn clear(&mut self) {
        let MemoryReport { read_buffers, idle_read_buffers, .. } = self.memory;
        if self.at.take().is_some() {
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
