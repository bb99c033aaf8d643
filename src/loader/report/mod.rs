//! What a run has cost, where its time went, and what limits it.
//!
//! ```text
//! times   what the threads did
//! limit   which stage limits the run: a pure function of a report
//! memory  what the run holds, by owner
//! ```

mod limit;
mod memory;
mod times;

pub use limit::Limit;
pub use memory::MemoryReport;
pub(super) use memory::Owners;
pub use times::Times;

use crate::state::Ledger;
use crate::store::StoreReport;
use serde::Serialize;
use std::fmt;
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
    /// How much of that the trainer did something else than steps, such as validation or a checkpoint: gaps between two
    /// batches of over a second that are 16 times as long as usual, without a usual one.
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
    /// *Data readiness*: the share of the steps, from 0 to 1, whose batch was there when the trainer asked for it. The
    /// first batch is left out; with nothing else it is 1.
    #[must_use]
    pub fn readiness(&self) -> f64 {
        match self.ready + self.late {
            0 => 1.0,
            steps => self.ready as f64 / steps as f64,
        }
    }

    /// Items per second since the first batch was asked for, without the time that was [`rested`](Report::rested).
    #[must_use]
    pub fn rate(&self) -> f64 {
        match self.elapsed.saturating_sub(self.rested).as_secs_f64() {
            0.0 => 0.0,
            seconds => self.items as f64 / seconds,
        }
    }

    /// What limits the run.
    #[must_use]
    pub fn limit(&self) -> Limit {
        Limit::of(self)
    }

    /// What happened since `earlier`, a report of the same run: those of one epoch of several, or of the last minute.
    /// `queues`, `ledger` and `memory` stay those of this report.
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

    /// The report as a JSON document, with [`limit`](Report::limit), [`readiness`](Report::readiness) and
    /// [`rate`](Report::rate). Times are in seconds.
    #[must_use]
    pub fn to_json(&self) -> String {
        #[derive(Serialize)]
        struct Document<'a> {
            limit: Limit,
            advice: &'static str,
            readiness: f64,
            rate: f64,
            #[serde(flatten)]
            report: &'a Report,
        }
        let (limit, readiness, rate) = (self.limit(), self.readiness(), self.rate());
        let document = Document { limit, advice: limit.advice(), readiness, rate, report: self };
        // It has only numbers, lists and keys that are text.
        serde_json::to_string(&document).unwrap_or_default()
    }
}

/// A few lines for a log.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.elapsed.as_secs_f64();
        let percent =
            |time: Duration, all: f64| if all > 0.0 { 100.0 * time.as_secs_f64() / all } else { 0.0 };
        let share = percent(self.waited, seconds);
        let (batches, items) = (self.batches, self.items);
        write!(
            f,
            "{items} items in {batches} batches in {seconds:.1} s, of which {share:.1} % waiting for them"
        )?;
        if self.ready + self.late > 0 {
            write!(f, "\ndata readiness {:.1} %", 100.0 * self.readiness())?;
        }
        if self.limit() != Limit::Unknown {
            write!(f, "\n{}\n", self.limit())?;
            let threads = self.times.threads.max(1);
            match self.times.threads {
                0 => f.write_str("no threads:")?,
                threads => write!(
                    f,
                    "{}, {} ahead:",
                    counted(threads as u64, "thread", "threads"),
                    counted(self.queues.prefetch, "batch", "batches")
                )?,
            }
            let of_threads = || self.times.iter().take(8).filter(|(_, time)| !time.is_zero());
            // There may have been more of them before.
            let seen: Duration = of_threads().map(|(_, time)| time).sum();
            let all = seen.as_secs_f64().max(seconds * threads as f64);
            for (number, (name, time)) in of_threads().enumerate() {
                let between = if number > 0 { "," } else { "" };
                write!(f, "{between} {name} {:.1} %", percent(time, all))?;
            }
        }
        if let Some(fill) = self.fill {
            let (Fill { used, room }, share) = (fill, 100.0 * fill.share());
            write!(f, "\n{share:.1} % of the batches is used: {used} of {room}, the rest is padding")?;
        }
        if !self.ledger.is_empty() {
            write!(f, "\n{}", self.ledger)?;
        }
        if !self.store.is_empty() {
            write!(f, "\n{}", self.store)?;
        }
        if self.memory != MemoryReport::default() {
            write!(f, "\n{}", self.memory)?;
        }
        Ok(())
    }
}

/// As `1 batch`, `2 batches`.
fn counted(number: u64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_for_a_log() {
        let report = Report {
            batches: 2,
            items: 100,
            waited: Duration::from_millis(250),
            elapsed: Duration::from_secs(1),
            ..Report::default()
        };
        let line = "100 items in 2 batches in 1.0 s, of which 25.0 % waiting for them";
        assert_eq!(report.to_string(), line);
        let report = Report { fill: Some(Fill { used: 987, room: 1000 }), ..report };
        let fill = "98.7 % of the batches is used: 987 of 1000, the rest is padding";
        assert_eq!(report.to_string(), format!("{line}\n{fill}"));
    }
}
