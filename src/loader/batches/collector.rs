//! Batches from whichever thread collects them, with a mark of what it does.

use super::{Collect, Given};
use crate::activity::{self, Activity};
use crate::error::Result;
use crate::loader::event::LoaderEvent;
use crate::loader::tuning::Tuning;
use crate::loader::watch::{Role, Run};
use crate::telemetry::span;
use std::sync::Arc;

/// Collects batches, and says so.
pub(in crate::loader) struct Collector<I, T, B> {
    collect: Collect<I, T, B>,
    run: Run,
    /// How far ahead, if it does so ahead of the trainer, on a thread of its own.
    ahead: Option<Arc<Tuning>>,
}

impl<I, T, B> Collector<I, T, B> {
    pub(in crate::loader) fn new(collect: Collect<I, T, B>, run: Run, ahead: Option<Arc<Tuning>>) -> Self {
        Collector { collect, run, ahead }
    }
}

impl<T, B, I: Iterator<Item = LoaderEvent<T>>> Iterator for Collector<I, T, B> {
    type Item = Result<Given<B>>;

    fn next(&mut self) -> Option<Self::Item> {
        self.run.register(if self.ahead.is_some() { Role::Collector } else { Role::Trainer });
        let item = {
            let _collecting = activity::during(Activity::Collect);
            let _span = span!("collect");
            self.collect.next()
        };
        if let Some(Ok(Given::Batch(..))) = item {
            self.run.made();
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
