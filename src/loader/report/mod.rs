//! `Report`: what a run has consumed, where its time went, and what limits it.
//!
//! ```text
//! times         what the threads spent their time on
//! debug_build   whether the library was compiled without optimisation
//! limit         what limits the run: a pure function of a report
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

/// What a run has consumed so far, where its time went, and what [limits](Report::limit) it; from
/// [`Batches::report`](super::Batches::report) or a [`Reporter`](super::Reporter), at any time.
///
/// Its `Display` is a few lines for a log. It implements `Serialize` of `serde`, with times in seconds, and
/// [`to_json`](Report::to_json).
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
    /// Number of items in them.
    pub items: u64,
    /// How full the items are, if a stage counts it: [`Pack`](crate::adapters::Pack),
    /// [`buckets`](crate::loader::LoaderBuilder::buckets), or any with
    /// [`Stage::fill`](crate::adapters::Stage::fill).
    pub fill: Option<Fill>,
    /// Time that the trainer waited for batches, including a wait under way.
    #[serde(serialize_with = "crate::seconds::serialize")]
    pub waited: Duration,
    /// Time that the trainer waited for the first batch: zero before it has come. It is part of `waited`.
    #[serde(serialize_with = "crate::seconds::serialize")]
    pub first: Duration,
    /// Number of batches that were ready when the trainer asked for them, the first one excluded.
    pub ready: u64,
    /// Number of batches that were not, the first one excluded.
    pub late: u64,
    /// Time since the first batch was asked for, until the run ended.
    #[serde(serialize_with = "crate::seconds::serialize")]
    pub elapsed: Duration,
    /// The part of that in which the trainer did something other than steps, such as validation or a
    /// checkpoint: gaps between two batches that are longer than a second and 16 times as long as usual, each
    /// less the usual gap.
    #[serde(serialize_with = "crate::seconds::serialize")]
    pub rested: Duration,
    /// What the threads spent their time on.
    pub times: Times,
    /// The queues between the stages.
    pub queues: Queues,
    /// The samples that were skipped or replaced, up to the last batch returned: by this rank, and by the
    /// runs that it was restored from.
    pub ledger: Ledger,
    /// Transfers of the datasets' stores during the run, of other runs too: what a provider bills as requests
    /// and egress, and what was read from local files, including what was read ahead.
    pub store: StoreReport,
    /// The memory that the run holds now, by owner.
    pub memory: MemoryReport,
    /// Whether this is a debug build in which the library itself is not optimised. Decoding is then many
    /// times slower, and the figures say little about a release build.
    pub debug_build: bool,
}

/// The lengths of the queues of a run at the moment of its report.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Queues {
    /// Number of items that have been mapped and wait for their batch.
    pub items: u64,
    /// Number of batches that wait for the trainer.
    pub batches: u64,
    /// Number of batches that may wait for it: [`prefetch`](super::LoaderBuilder::prefetch), fixed or tuned.
    pub prefetch: u64,
}

/// How full batches are, as a stateful stage counts it: tokens of packed rows, or tokens or pixels of items
/// in the shapes of their buckets. The rest is padding.
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
    /// *Data readiness*: the share of the steps, from 0 to 1, whose batch was ready when the trainer asked
    /// for it. The first batch is excluded; without any other it is 1.
    #[must_use]
    pub fn readiness(&self) -> f64 {
        match self.ready + self.late {
            0 => 1.0,
            steps => self.ready as f64 / steps as f64,
        }
    }

    /// Items per second since the first batch was asked for, less the time [`rested`](Report::rested).
    #[must_use]
    pub fn rate(&self) -> f64 {
        match self.elapsed.saturating_sub(self.rested).as_secs_f64() {
            0.0 => 0.0,
            seconds => self.items as f64 / seconds,
        }
    }

    /// The difference to `earlier`, a report of the same run: for one epoch of several, or for the last
    /// minute. `queues`, `ledger` and `memory` stay those of this report.
    #[must_use]
    pub fn since(mut self, earlier: &Report) -> Report {
        self.batches = self.batches.saturating_sub(earlier.batches);
        self.items = self.items.saturating_sub(earlier.items);
        self.ready = self.ready.saturating_sub(earlier.ready);
        self.late = self.late.saturating_sub(earlier.late);
        self.waited = self.waited.saturating_sub(earlier.waited);
        self.elapsed = self.elapsed.saturating_sub(earlier.elapsed);
        self.rested = self.rested.saturating_sub(earlier.rested);
        // The first batch came before.
        if earlier.batches > 0 {
            self.first = Duration::ZERO;
        }
        self.times = self.times.since(&earlier.times);
        self.store = self.store.since(&earlier.store);
        self
    }
}
