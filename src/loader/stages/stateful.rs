//! Runs a [`Stage`] of any kind as a stream stage.

use super::stream_stage::{ErasedItem, OutputOrigin, StageFailure, StageOutput, StreamStage};
use crate::activity::{self, Activity};
use crate::adapters::{SavedStage, Stage};
use crate::error::{ErrorKind, Result};
use crate::loader::event::StreamStart;
use crate::panic::{catch, drop_caught};
use std::sync::Arc;

/// Maximum number of inputs without an output. Beyond it the run ends with an error, since the stage may hold
/// all of them.
pub(super) const MAX_INPUTS_WITHOUT_OUTPUT: u64 = 1 << 20;

/// Makes a stage, one for each stream and pass.
pub(super) type MakeStage<C> = Arc<dyn Fn(&StreamStart) -> C + Send + Sync>;

/// A stateful stage: drives any [`Stage`].
pub(super) struct StatefulStage<C: Stage<In>, In> {
    make: MakeStage<C>,
    start: StreamStart,
    /// None if making it has panicked.
    stage: Option<C>,
    /// What the last push has given.
    ready: Option<Result<C::Out>>,
    /// No more inputs come in this pass.
    draining: bool,
    /// Whether the stage has panicked, so that its state is unknown.
    broken: bool,
    /// Number of inputs that it may take before it must give something.
    inputs_left: u64,
}

impl<C: Stage<In>, In> StatefulStage<C, In> {
    pub(super) fn new(make: MakeStage<C>, start: StreamStart) -> Self {
        let (stage, ready) = match catch(|| make(&start)) {
            Ok(stage) => (Some(stage), None),
            Err(panic) => (None, Some(Err(panic))),
        };
        let broken = stage.is_none();
        let inputs_left = MAX_INPUTS_WITHOUT_OUTPUT;
        StatefulStage { make, start, stage, ready, draining: false, broken, inputs_left }
    }

    /// Calls the stage, unless it has panicked before.
    fn call<T>(&mut self, call: impl FnOnce(&mut C) -> Option<Result<T>>) -> Option<Result<T>> {
        let stage = self.stage.as_mut().filter(|_| !self.broken)?;
        let _staging = activity::during(Activity::Stage);
        catch(|| call(stage)).unwrap_or_else(|panic| {
            self.broken = true;
            Some(Err(panic))
        })
    }

    /// Asks the stage something that changes nothing.
    fn ask<T: Default>(&self, ask: impl FnOnce(&C) -> T) -> T {
        let stage = self.stage.as_ref().filter(|_| !self.broken);
        stage.and_then(|stage| catch(|| ask(stage)).ok()).unwrap_or_default()
    }
}

impl<C, In> StreamStage<C::Out> for StatefulStage<C, In>
where
    C: Stage<In> + Send,
    C::Out: Send,
    In: 'static,
{
    fn push(&mut self, part: ErasedItem, at: &OutputOrigin) -> Result<()> {
        activity::on_sample(at.position.shard, at.position.sample);
        let Ok(item) = part.downcast::<In>() else {
            return Err(ErrorKind::Config("a stage was given items of another type".into()).into());
        };
        if !self.broken && !self.is_done() {
            self.inputs_left = self.inputs_left.saturating_sub(1);
            self.ready = self.call(|stage| stage.push(*item));
        }
        Ok(())
    }

    fn pull(&mut self) -> Option<Result<StageOutput<C::Out>, StageFailure>> {
        let draining = self.draining;
        let item = self.ready.take().or_else(|| self.call(Stage::pull));
        let item = item.or_else(|| draining.then(|| self.call(Stage::drain)).flatten());
        // What functions behind the stage leave out counts as well.
        if item.is_some() {
            self.inputs_left = MAX_INPUTS_WITHOUT_OUTPUT;
        }
        let fill = |item: &C::Out| self.ask(|stage| stage.fill(item));
        let pulled = |item| StageOutput { fill: fill(&item), ..StageOutput::item(item) };
        item.map(|item| item.map(pulled).map_err(StageFailure::from))
    }

    fn end(&mut self) {
        let before = std::mem::replace(self, Self::new(Arc::clone(&self.make), self.start.clone()));
        if let Err(panic) = drop_caught(before) {
            (self.ready, self.broken) = (Some(Err(panic)), true);
        }
    }

    fn drain(&mut self) {
        self.draining = true;
    }

    fn is_fresh(&self) -> bool {
        self.ask(Stage::is_fresh)
    }

    fn save(&self) -> Option<SavedStage> {
        self.ask(Stage::save)
    }

    fn restore(&mut self, saved: &SavedStage) -> Result<()> {
        // The stage has given something for the inputs that it gets again.
        self.inputs_left = self.inputs_left.saturating_add(saved.inputs);
        match &mut self.stage {
            Some(stage) => catch(|| stage.restore(saved)).and_then(|restored| restored),
            // The panic is the first thing that it gives.
            None => Ok(()),
        }
    }

    fn is_done(&self) -> bool {
        self.ask(Stage::is_done)
    }

    fn only_takes(&self) -> bool {
        self.inputs_left == 0 && self.ready.is_none()
    }

    fn is_broken(&self) -> bool {
        self.broken
    }
}
