//! What a run has cost, where its time went, and what limits it.
//!
//! ```text
//! times   what the threads did
//! limit   which stage limits the run: a pure function of a report
//! memory  what the run holds, by owner
//! text    lines for a log, and JSON
//! ```

mod limit;
mod memory;
mod text;
mod times;

pub use limit::Limit;
pub use memory::MemoryReport;
pub(super) use memory::MemoryGauges;
pub use times::Times;

use crate::state::Ledger;
use crate::store::StoreReport;
use serde::Serialize;
use std::time::Duration;

/// What a run over the data has taken so far, where its time went, and what [limits](Report::limit) it; from
/// [`Batches::report`](super::Batches::report) or a [`Reporter`](super::Reporter), at any time.
///
/// Its `Display` is a few lines for a log. It implements `Serialize` of `serde`, with times in seconds, and
/// [`to_json`](Report::to_json).
///
/// ```
/// # use shardstream::prelude::*;
/// # fn main() -> shardstream::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let pattern = format!("{}/train-%06d.tar", dir.path().display());
/// # let mut writer = ShardWriter::builder(&pattern).build()?;
/// # for i in 0..8 { writer.write(&Sample::new(format!("{i:06}")).with("cls", i))?; }
/// # writer.finish()?;
/// # let shards = pattern.replace("%06d", "000000");
/// let loader = Loader::builder(Dataset::builder(shards).build()?).batch(4).build()?;
/// let batches = loader.epoch(0);
/// let reporter = batches.reporter();
/// for batch in batches {
///     batch?; // a step
///     let report = reporter.report();
///     println!("{} of the steps waited for data", 1.0 - report.readiness());
/// }
/// println!("{}", reporter.report());
/// assert_eq!(reporter.report().items, 8);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// Batches that were given out.
    pub batches: u64,
    /// Items in them.
    pub items: u64,
    /// How full the items are, where a stage counts it: [`Pack`](crate::adapters::Pack),
    /// [`buckets`](crate::loader::LoaderBuilder::buckets), or one that says it by
    /// [`Stage::fill`](crate::adapters::Stage::fill).
    pub fill: Option<Fill>,
    /// How long the trainer waited for batches, a wait under way included.
    #[serde(serialize_with = "crate::seconds::serialize")]
    pub waited: Duration,
    /// How long the first batch was waited for: zero before it has come. It is part of `waited`.
    #[serde(serialize_with = "crate::seconds::serialize")]
    pub first: Duration,
    /// Batches that were there when the trainer asked for them, the first one left out.
    pub ready: u64,
    /// Batches that were not, the first one left out.
    pub late: u64,
    /// Since the first batch was asked for, until the run ended.
    #[serde(serialize_with = "crate::seconds::serialize")]
    pub elapsed: Duration,
    /// How much of that the trainer did something else than steps, such as validation or a checkpoint: gaps
    /// between two batches of over a second that are 16 times as long as usual, without a usual one.
    #[serde(serialize_with = "crate::seconds::serialize")]
    pub rested: Duration,
    /// What the threads did.
    pub times: Times,
    /// What waits between the stages.
    pub queues: Queues,
    /// What was skipped, and what fills the places of it, up to the last batch that was given out: of this
    /// rank, and of the runs before those that it was restored from.
    pub ledger: Ledger,
    /// What was transferred meanwhile by the stores of the datasets, for whomever: what a provider bills as
    /// requests and egress, and what was read of local files. What was read ahead of the batches is in it.
    pub store: StoreReport,
    /// What the run holds in memory now, by owner.
    pub memory: MemoryReport,
}

/// What waits between the stages of a run at the moment of its report.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Queues {
    /// Items that have been mapped and wait to be put into a batch.
    pub items: u64,
    /// Batches that wait for the trainer.
    pub batches: u64,
    /// Number of batches that may wait for it: [`prefetch`](super::LoaderBuilder::prefetch), fixed or tuned.
    pub prefetch: u64,
}

/// How much of what batches have room for is used, as a stage with a memory counts it: tokens of packed rows,
/// or of sequences in the shapes of their buckets, or pixels. The rest is padding.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Fill {
    /// How much is used.
    pub used: u64,
    /// How much there is room for.
    pub room: u64,
}

impl Fill {
    /// The share that is used, from 0 to 1.
    #[must_use]
    pub fn share(&self) -> f64 {
        if self.room == 0 { 0.0 } else { self.used as f64 / self.room as f64 }
    }
}

impl Report {
    /// *Data readiness*: the share of the steps, from 0 to 1, whose batch was there when the trainer asked
    /// for it. The first batch is left out; with nothing else it is 1.
    #[must_use]
    pub fn readiness(&self) -> f64 {
        match self.ready + self.late {
            0 => 1.0,
            steps => self.ready as f64 / steps as f64,
        }
    }

    /// Items per second since the first batch was asked for, without the time that was
    /// [`rested`](Report::rested).
    #[must_use]
    pub fn rate(&self) -> f64 {
        match self.elapsed.saturating_sub(self.rested).as_secs_f64() {
            0.0 => 0.0,
            seconds => self.items as f64 / seconds,
        }
    }

    /// What happened since `earlier`, a report of the same run: those of one epoch of several, or of the last
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
        // It was before.
        if earlier.batches > 0 {
            self.first = Duration::ZERO;
        }
        self.times = self.times.since(&earlier.times);
        self.store = self.store.since(&earlier.store);
        self
    }
}
