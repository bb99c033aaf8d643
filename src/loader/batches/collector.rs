//! Batches from whichever thread collects them, with a mark of what it does.

use super::{Collect, Given};
use crate::activity::{self, Activity};
use crate::error::Result;
use crate::loader::event::Event;
use crate::loader::watch::{Role, Run};
use crate::telemetry::span;

/// Collects batches, and says so.
pub(in crate::loader) struct Collector<I, T, B> {
    collect: Collect<I, T, B>,
    run: Run,
    /// Whether it does so ahead of the trainer, on a thread of its own.
    is_ahead: bool,
}

impl<I, T, B> Collector<I, T, B> {
    pub(in crate::loader) fn new(collect: Collect<I, T, B>, run: Run, is_ahead: bool) -> Self {
        Collector { collect, run, is_ahead }
    }
}

impl<T, B, I: Iterator<Item = Event<T>>> Iterator for Collector<I, T, B> {
    type Item = Result<Given<B>>;

    fn next(&mut self) -> Option<Self::Item> {
        self.run.register(if self.is_ahead { Role::Collector } else { Role::Trainer });
        let item = {
            let _collecting = activity::during(Activity::Collect);
            let _span = span!("collect");
            self.collect.next()
        };
        if let Some(Ok(Given::Batch(..))) = item {
            self.run.made();
        }
        if self.is_ahead {
            activity::set(if item.is_some() { Activity::AwaitTrainer } else { Activity::Other });
        }
        item
    }
}
