//! What a run has cost: bytes, requests, and the time that the trainer waited.

use super::memory::{MemoryReport, Owners};
use crate::state::Ledger;
use crate::store::{Store, StoreReport};
use std::fmt;
use std::time::{Duration, Instant};

/// What a run over the data has taken so far, from [`Batches::report`](super::Batches::report).
#[derive(Debug, Clone, Default, PartialEq)]
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
    /// How long the trainer waited for batches.
    pub waited: Duration,
    /// Since the run began.
    pub elapsed: Duration,
    /// What was skipped, and what fills the places of it, up to the last batch that was given out: of this
    /// rank, and of the runs before those that it was restored from.
    pub ledger: Ledger,
    /// What was transferred meanwhile by the stores of the datasets, for whomever: what a provider bills as
    /// requests and egress. What was read ahead of the batches is in it. Empty where all shards are local
    /// files.
    pub store: StoreReport,
    /// What the run holds in memory now, by owner.
    pub memory: MemoryReport,
}

/// How much of what batches have room for is used, as a stage with a memory counts it: tokens of packed rows,
/// or of sequences in the shapes of their buckets, or pixels. The rest is padding.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
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

/// A few lines for a log.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.elapsed.as_secs_f64();
        let share = if seconds > 0.0 { 100.0 * self.waited.as_secs_f64() / seconds } else { 0.0 };
        let (batches, items) = (self.batches, self.items);
        write!(
            f,
            "{items} items in {batches} batches in {seconds:.1} s, of which {share:.1} % waiting for them"
        )?;
        if let Some(fill) = self.fill {
            let (Fill { used, room }, share) = (fill, 100.0 * fill.share());
            write!(f, "\n{share:.1} % of the batches is used: {used} of {room}, the rest is padding")?;
        }
        if !self.ledger.is_empty() {
            write!(f, "\n{}", self.ledger)?;
        }
        if !self.store.sources.is_empty() {
            write!(f, "\n{}", self.store)?;
        }
        if self.memory != MemoryReport::default() {
            write!(f, "\n{}", self.memory)?;
        }
        Ok(())
    }
}

/// Counts what a run takes.
#[derive(Debug)]
pub(in crate::loader) struct Counter {
    begun: Instant,
    /// The stores, each once, with what they had transferred before.
    stores: Vec<(Store, StoreReport)>,
    batches: u64,
    items: u64,
    fill: Fill,
    waited: Duration,
    owners: Owners,
}

impl Counter {
    pub(in crate::loader) fn new<'a>(all: impl Iterator<Item = &'a Store>) -> Self {
        let mut stores: Vec<(Store, StoreReport)> = Vec::new();
        for store in all {
            if !stores.iter().any(|(known, _)| known.is(store)) {
                stores.push((store.clone(), store.report()));
            }
        }
        Counter {
            begun: Instant::now(),
            stores,
            batches: 0,
            items: 0,
            fill: Fill::default(),
            waited: Duration::ZERO,
            owners: Owners::default(),
        }
    }

    /// Says what these hold too.
    pub(in crate::loader) fn with_owners(self, owners: Owners) -> Self {
        Counter { owners, ..self }
    }

    pub(in crate::loader) fn waited(&mut self, since: Instant) {
        self.waited += since.elapsed();
    }

    /// A batch of so many items, and how much of all batches so far is used.
    pub(in crate::loader) fn batch(&mut self, items: usize, fill: Fill) {
        self.batches += 1;
        self.items += items as u64;
        self.fill = fill;
    }

    pub(in crate::loader) fn report(&self, ledger: Ledger) -> Report {
        let reports = self.stores.iter().map(|(store, before)| store.report().since(before));
        Report {
            batches: self.batches,
            items: self.items,
            fill: Some(self.fill).filter(|fill| fill.room > 0),
            waited: self.waited,
            elapsed: self.begun.elapsed(),
            ledger,
            store: reports.fold(StoreReport::default(), StoreReport::with),
            memory: self.owners.report(),
        }
    }
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
