//! `Report`: the batches, times, memory and bottleneck of a run.
//!
//! ```text
//! times         the time that the threads spent on each activity
//! debug_build   detects a library that was compiled without optimisation
//! limit         the bottleneck of the run: a pure function of a report
//! memory        the memory that the run holds, by owner
//! text          a report as lines for a log, and as JSON
//! ```

mod debug_build;
mod limit;
mod memory;
mod text;
mod times;

pub(super) use debug_build::{DEBUG_BUILD, is_debug_build};
pub use limit::Limit;
pub(super) use memory::MemoryGauges;
pub use memory::MemoryReport;
pub use times::Times;

use crate::state::Ledger;
use crate::store::StoreReport;
use serde::Serialize;
use std::time::Duration;

/// A report of a run so far: its batches, times, memory and [bottleneck](Report::limit); from
/// [`Batches::report`](super::Batches::report) or a [`Reporter`](super::Reporter), at any time.
///
/// `Display` writes a few lines for a log. `Serialize` and [`to_json`](Report::to_json) write times in
/// seconds.
///
/// ```
/// use shardstream::prelude::*;
///
/// let dataset = Dataset::builder("docs/data/digits-{000000..000003}.tar").build()?;
/// let loader = Loader::builder(dataset).batch(4).build()?;
/// let batches = loader.epoch(0);
/// let reporter = batches.reporter();
/// for batch in batches {
///     batch?; // a step
///     let report = reporter.report();
///     println!("{} of the steps waited for data", 1.0 - report.readiness());
/// }
/// println!("{}", reporter.report());
/// assert_eq!(reporter.report().items, 40);
/// # Ok::<(), shardstream::Error>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// Number of batches returned.
    pub batches: u64,
    /// Number of items in the returned batches.
    pub items: u64,
    /// How much of the items is not padding, if a stage counts it: [`Pack`](crate::adapters::Pack),
    /// [`buckets`](crate::loader::LoaderBuilder::buckets), or a stage with
    /// [`Stage::fill`](crate::adapters::Stage::fill).
    pub fill: Option<Fill>,
    /// Time that the trainer waited for batches, including the current wait.
    #[serde(serialize_with = "crate::seconds::serialize")]
    pub waited: Duration,
    /// Time that the trainer waited for the first batch; zero before that batch is returned. It is part of
    /// `waited`.
    #[serde(serialize_with = "crate::seconds::serialize")]
    pub first: Duration,
    /// Number of batches after the first that were ready when the trainer requested them.
    pub ready: u64,
    /// Number of batches after the first that were not ready.
    pub late: u64,
    /// Time from the request of the first batch until now, or until the run ended.
    #[serde(serialize_with = "crate::seconds::serialize")]
    pub elapsed: Duration,
    /// The part of `elapsed` in which the trainer did something other than steps, such as validation or a
    /// checkpoint. If the time between two batches is longer than a second and longer than 16 times the usual
    /// time between batches, the excess over the usual time counts.
    #[serde(serialize_with = "crate::seconds::serialize")]
    pub rested: Duration,
    /// The time that the threads spent on each activity.
    pub times: Times,
    /// The queues between the stages.
    pub queues: Queues,
    /// The samples that this rank skipped or replaced, up to the last batch returned. A restored run includes
    /// the samples that the earlier runs skipped or replaced.
    pub ledger: Ledger,
    /// The transfers of the datasets' stores during the run: requests and bytes as a provider bills them, and
    /// bytes of local files, including bytes that were read ahead. The transfers of other runs with the same
    /// stores are included.
    pub store: StoreReport,
    /// The memory that the run holds now, by owner.
    pub memory: MemoryReport,
    /// Whether this is a debug build in which the library itself is not optimised. Decoding is then many
    /// times slower than in a release build, so the times of the report say nothing about a release build.
    pub debug_build: bool,
}

/// The lengths of the queues of a run at the time of its report.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Queues {
    /// Number of items that were mapped and wait for their batch.
    pub items: u64,
    /// Number of batches that wait for the trainer.
    pub batches: u64,
    /// Maximum of `batches`: [`prefetch`](super::LoaderBuilder::prefetch), fixed or tuned.
    pub prefetch: u64,
}

/// The used part of the batches of a run; the rest is padding. A stateful stage counts tokens if it packs
/// rows, and tokens or pixels if it sorts items into buckets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Fill {
    /// Number of tokens or pixels used.
    pub used: u64,
    /// Number of tokens or pixels that fit.
    pub capacity: u64,
}

impl Fill {
    /// The share used, from 0 to 1.
    #[must_use]
    pub fn share(&self) -> f64 {
        if self.capacity == 0 { 0.0 } else { self.used as f64 / self.capacity as f64 }
    }
}

impl Report {
    /// *Data readiness*: the share of the steps, from 0 to 1, whose batch was ready when the trainer
    /// requested it. The first batch is excluded. Without further batches, the readiness is 1.
    #[must_use]
    pub fn readiness(&self) -> f64 {
        match self.ready + self.late {
            0 => 1.0,
            steps => self.ready as f64 / steps as f64,
        }
    }

    /// Items per second, where the time is [`elapsed`](Report::elapsed) minus [`rested`](Report::rested).
    #[must_use]
    pub fn rate(&self) -> f64 {
        match self.elapsed.saturating_sub(self.rested).as_secs_f64() {
            0.0 => 0.0,
            seconds => self.items as f64 / seconds,
        }
    }

    /// The difference between this report and `earlier`, a report of the same run. Use it to report only one
    /// epoch, or only the last minute. `queues`, `ledger` and `memory` are not subtracted.
    #[must_use]
    pub fn since(mut self, earlier: &Report) -> Report {
        self.batches = self.batches.saturating_sub(earlier.batches);
        self.items = self.items.saturating_sub(earlier.items);
        self.ready = self.ready.saturating_sub(earlier.ready);
        self.late = self.late.saturating_sub(earlier.late);
        self.waited = self.waited.saturating_sub(earlier.waited);
        self.elapsed = self.elapsed.saturating_sub(earlier.elapsed);
        self.rested = self.rested.saturating_sub(earlier.rested);
        // The first batch is part of the earlier report.
        if earlier.batches > 0 {
            self.first = Duration::ZERO;
        }
        self.times = self.times.since(&earlier.times);
        self.store = self.store.since(&earlier.store);
        self
    }
}
