//! `Reporter`: a public handle that reports on a run.

use super::diagnosis::Diagnosis;
use super::monitor::RunMonitor;
use crate::loader::report::Report;
use crate::state::State;
use std::fmt;

/// A handle that reports on a run at any time and from any thread, also while the batches are iterated over.
/// [`Batches::reporter`](crate::loader::Batches::reporter) returns it. Clones report on the same run.
///
/// The handle keeps the values of the report alive after the run, but not the run's threads or data.
#[derive(Clone)]
pub struct Reporter(RunMonitor);

impl Reporter {
    pub(in crate::loader) fn new(run: RunMonitor) -> Self {
        Reporter(run)
    }

    /// As [`Batches::report`](crate::loader::Batches::report).
    #[must_use]
    pub fn report(&self) -> Report {
        self.0.report()
    }

    /// As [`Batches::diagnose`](crate::loader::Batches::diagnose).
    #[must_use]
    pub fn diagnose(&self) -> Diagnosis {
        self.0.diagnose()
    }

    /// As [`Batches::state`](crate::loader::Batches::state).
    #[must_use]
    pub fn state(&self) -> State {
        self.0.state()
    }
}

impl fmt::Debug for Reporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
