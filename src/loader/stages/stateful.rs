//! `StatefulStage`: runs any [`Stage`] as a stream stage.

use super::stream_stage::{ErasedItem, OutputOrigin, StageFailure, StageOutput, StreamStage};
use crate::activity::{self, Activity};
use crate::adapters::{SavedStage, Stage};
use crate::error::{ErrorKind, Result};
use crate::loader::event::StreamStart;
use crate::panic::{catch, drop_caught};
use std::sync::Arc;

/// Maximum number of inputs without an output. Beyond it the run ends with an error, because the stage may
/// hold all of the inputs in memory.
pub(super) const MAX_INPUTS_WITHOUT_OUTPUT: u64 = 1 << 20;

/// Makes the stage of a stream. It is called for each pass.
pub(super) type MakeStage<C> = Arc<dyn Fn(&StreamStart) -> C + Send + Sync>;

/// Drives a [`Stage`], and catches its panics.
pub(super) struct StatefulStage<C: Stage<In>, In> {
    make: MakeStage<C>,
    start: StreamStart,
    /// `None` if `make` has panicked.
    stage: Option<C>,
    /// The output of the last `push`, or the panic of `make`.
    ready: Option<Result<C::Out>>,
    /// Whether the pass has no more inputs.
    draining: bool,
    /// Whether the stage has panicked, so that its state is unknown.
    broken: bool,
    /// Number of further inputs that the stage may consume without an output.
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

    /// Calls a method that does not change the stage. Returns the default if the stage has panicked.
    fn query<T: Default>(&self, call: impl FnOnce(&C) -> T) -> T {
        let stage = self.stage.as_ref().filter(|_| !self.broken);
        stage.and_then(|stage| catch(|| call(stage)).ok()).unwrap_or_default()
    }
}

impl<C, In> StreamStage<C::Out> for StatefulStage<C, In>
where
    C: Stage<In> + Send,
    C::Out: Send,
    In: 'static,
{
    fn push(&mut self, output: ErasedItem, at: &OutputOrigin) -> Result<()> {
        activity::on_sample(at.position.shard, at.position.sample);
        let Ok(item) = output.downcast::<In>() else {
            return Err(ErrorKind::Config("a stage was given items of another type".into()).into());
        };
        if !self.broken && !self.query(Stage::is_done) {
            self.inputs_left = self.inputs_left.saturating_sub(1);
            self.ready = self.call(|stage| stage.push(*item));
        }
        Ok(())
    }

    fn pull(&mut self) -> Option<Result<StageOutput<C::Out>, StageFailure>> {
        let draining = self.draining;
        let mut item = self.ready.take().or_else(|| self.call(Stage::pull));
        if item.is_none() && draining {
            item = self.call(Stage::drain);
        }
        // Items that later functions filter out count as outputs too.
        let item = item?;
        self.inputs_left = MAX_INPUTS_WITHOUT_OUTPUT;
        match item {
            Ok(item) => {
                let fill = self.query(|stage| stage.fill(&item));
                Some(Ok(StageOutput { fill, ..StageOutput::item(item) }))
            }
            Err(error) => Some(Err(StageFailure::from(error))),
        }
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
        self.query(Stage::is_fresh)
    }

    fn save(&self) -> Option<SavedStage> {
        self.query(Stage::save)
    }

    fn restore(&mut self, saved: &SavedStage) -> Result<()> {
        // `saved.inputs` inputs are pushed again. Their outputs may have been returned before the restore, so
        // these inputs do not count towards the limit.
        self.inputs_left = self.inputs_left.saturating_add(saved.inputs);
        match &mut self.stage {
            Some(stage) => catch(|| stage.restore(saved)).and_then(|restored| restored),
            // The first `pull` returns the panic of `make`.
            None => Ok(()),
        }
    }

    fn only_takes(&self) -> bool {
        self.inputs_left == 0 && self.ready.is_none()
    }

    fn is_broken(&self) -> bool {
        self.broken
    }
}
