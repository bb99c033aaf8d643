//! `MonitoredCollector`: reports to the run monitor what the thread that collects batches does.

use super::collector::{BatchCollector, RunOutput};
use crate::activity::{self, Activity};
use crate::error::Result;
use crate::loader::tuning::Tuning;
use crate::loader::watch::{Role, RunMonitor};
use crate::telemetry::span;
use std::sync::Arc;

/// A [`BatchCollector`] that reports to the run monitor what its thread does.
pub(in crate::loader) struct MonitoredCollector<R, B> {
    collect: BatchCollector<R, B>,
    run: RunMonitor,
    /// Limits the number of batches ahead of the trainer; `None` if the trainer's thread collects batches.
    ahead: Option<Arc<Tuning>>,
}

impl<R, B> MonitoredCollector<R, B> {
    pub(in crate::loader) fn new(
        collect: BatchCollector<R, B>,
        run: RunMonitor,
        ahead: Option<Arc<Tuning>>,
    ) -> Self {
        MonitoredCollector { collect, run, ahead }
    }
}

impl<R, B> Iterator for MonitoredCollector<R, B> {
    type Item = Result<RunOutput<B>>;

    fn next(&mut self) -> Option<Self::Item> {
        self.run.register(if self.ahead.is_some() { Role::Collector } else { Role::Trainer });
        let item = {
            let _collecting = activity::during(Activity::Collect);
            let _span = span!("collect");
            match self.collect.next() {
                Some(Err(error)) if self.collect.has_ended() => Some(Ok(RunOutput::Failed(error))),
                item => item,
            }
        };
        if let Some(Ok(RunOutput::Batch(_))) = item {
            self.run.batch_made();
        }
        if let Some(ahead) = &self.ahead {
            activity::set(if item.is_some() { Activity::AwaitTrainer } else { Activity::Other });
            if item.is_some()
                && let Err(stopped) = ahead.wait_for_room()
            {
                return Some(Err(stopped));
            }
        }
        item
    }
}
