//! What a run has cost: bytes, requests, and the time that the trainer waited.

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
        if !self.ledger.is_empty() {
            write!(f, "\n{}", self.ledger)?;
        }
        if !self.store.sources.is_empty() {
            write!(f, "\n{}", self.store)?;
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
    waited: Duration,
}

impl Counter {
    pub(in crate::loader) fn new<'a>(all: impl Iterator<Item = &'a Store>) -> Self {
        let mut stores: Vec<(Store, StoreReport)> = Vec::new();
        for store in all {
            if !stores.iter().any(|(known, _)| known.is(store)) {
                stores.push((store.clone(), store.report()));
            }
        }
        Counter { begun: Instant::now(), stores, batches: 0, items: 0, waited: Duration::ZERO }
    }

    pub(in crate::loader) fn waited(&mut self, since: Instant) {
        self.waited += since.elapsed();
    }

    pub(in crate::loader) fn batch(&mut self, items: usize) {
        self.batches += 1;
        self.items += items as u64;
    }

    pub(in crate::loader) fn report(&self, ledger: Ledger) -> Report {
        let reports = self.stores.iter().map(|(store, before)| store.report().since(before));
        Report {
            batches: self.batches,
            items: self.items,
            waited: self.waited,
            elapsed: self.begun.elapsed(),
            ledger,
            store: reports.fold(StoreReport::default(), StoreReport::with),
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
        assert_eq!(report.to_string(), "100 items in 2 batches in 1.0 s, of which 25.0 % waiting for them");
    }
}
