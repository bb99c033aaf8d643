//! Stages that see the outputs of one stream in order: behind the stages on the threads.

use crate::activity::{self, Activity};
use crate::adapters::SavedStage;
use crate::error::{Error, Result};
use crate::panic::catch;
use crate::sample::{Position, SampleLocation};
use std::any::Any;
use std::sync::Arc;

/// An output of the threads for a stream stage, without its type.
pub(in crate::loader) type ErasedItem = Box<dyn Any + Send>;

/// A stage behind the threads. There is one for each stream, which sees the outputs of the stream in order,
/// one output at a time.
pub(in crate::loader) trait StreamStage<T>: Send {
    /// Takes an output.
    fn push(&mut self, part: ErasedItem, at: &OutputOrigin) -> Result<()>;

    /// Returns the next item, if there is one without another output.
    fn pull(&mut self) -> Option<Result<StageOutput<T>, StageFailure>>;

    /// Says that a function behind this stage failed for the item that was pulled last, or filtered it out:
    /// the next item takes its sequence number. Returns where the item came from, if not from the last
    /// output.
    fn lost(&mut self) -> Option<OutputOrigin> {
        None
    }

    /// Says that the last items and gaps that were pulled have lost their sequence numbers, which the next
    /// ones take.
    fn give_back(&mut self, places: u64) {
        let _ = places;
    }

    /// Resets the stage at the end of a pass.
    fn end(&mut self);

    /// Says that no more outputs come in this pass, so that `pull` gives what is left.
    fn drain(&mut self) {}

    /// Whether it continues across the ends of passes, up to the end of the run.
    fn spans_passes(&self) -> bool {
        false
    }

    /// Whether it depends on no earlier output.
    fn is_fresh(&self) -> bool {
        false
    }

    /// Its state, if it saves one.
    fn save(&self) -> Option<SavedStage> {
        None
    }

    /// Continues from a saved state.
    fn restore(&mut self, saved: &SavedStage) -> Result<()> {
        let _ = saved;
        Ok(())
    }

    /// Whether it may drop all further outputs.
    fn is_done(&self) -> bool {
        false
    }

    /// Whether it takes items and gives none: it may hold all of them in memory.
    fn only_takes(&self) -> bool {
        false
    }

    /// Whether it has panicked and cannot continue.
    fn is_broken(&self) -> bool {
        false
    }
}

/// Where an output comes from.
#[derive(Debug, Clone, Default)]
pub(in crate::loader) struct OutputOrigin {
    /// The sample, for errors.
    pub(in crate::loader) location: Option<SampleLocation>,
    /// Number of passes that the stream had completed before.
    pub(in crate::loader) pass: u64,
    pub(in crate::loader) position: Position,
    /// Index among the outputs of its sample.
    pub(in crate::loader) part: u64,
}

impl OutputOrigin {
    /// Adds the sample to an error.
    pub(super) fn locate(&self, error: Error) -> Error {
        match &self.location {
            Some(location) => location.locate(error),
            None => error,
        }
    }
}

/// A failure of a stream stage.
pub(in crate::loader) struct StageFailure {
    pub(in crate::loader) error: Error,
    /// The pass of the item that failed, if it does not come from the last output. Then the error names the
    /// sample already.
    pub(in crate::loader) pass: Option<u64>,
}

impl From<Error> for StageFailure {
    fn from(error: Error) -> Self {
        StageFailure { error, pass: None }
    }
}

/// What a stream stage gives.
pub(in crate::loader) struct StageOutput<T> {
    /// None for a gap.
    pub(in crate::loader) item: Option<T>,
    /// Where the item comes from, if not from the last output.
    pub(in crate::loader) at: Option<OutputOrigin>,
    /// How much of the item is used, and how much fits into it.
    pub(in crate::loader) fill: Option<(u64, u64)>,
}

impl<T> StageOutput<T> {
    /// An item that comes from the last output.
    pub(super) fn item(item: T) -> Self {
        StageOutput { item: Some(item), at: None, fill: None }
    }

    /// The same with another item.
    pub(super) fn with<U>(self, item: Option<U>) -> StageOutput<U> {
        StageOutput { item, at: self.at, fill: self.fill }
    }
}

/// A stream stage with a function behind it.
pub(super) struct StageThenMap<T, F> {
    stage: Box<dyn StreamStage<T>>,
    f: Arc<F>,
}

impl<T, F> StageThenMap<T, F> {
    pub(super) fn new(stage: Box<dyn StreamStage<T>>, f: Arc<F>) -> Self {
        StageThenMap { stage, f }
    }
}

impl<T, U, F> StreamStage<U> for StageThenMap<T, F>
where
    F: Fn(T) -> Result<Option<U>> + Send + Sync,
{
    fn push(&mut self, part: ErasedItem, at: &OutputOrigin) -> Result<()> {
        self.stage.push(part, at)
    }

    fn pull(&mut self) -> Option<Result<StageOutput<U>, StageFailure>> {
        loop {
            let mut pulled = match self.stage.pull()? {
                Ok(pulled) => pulled,
                Err(error) => return Some(Err(error)),
            };
            let Some(item) = pulled.item.take() else { return Some(Ok(pulled.with(None))) };
            let mapped = {
                let _staging = activity::during(Activity::Stage);
                catch(|| (self.f)(item)).and_then(|item| item)
            };
            match mapped {
                Ok(Some(item)) => return Some(Ok(pulled.with(Some(item)))),
                Ok(None) => drop(self.stage.lost()),
                Err(error) => {
                    return Some(Err(match self.stage.lost() {
                        Some(at) => StageFailure { error: at.locate(error), pass: Some(at.pass) },
                        None => error.into(),
                    }));
                }
            }
        }
    }

    fn lost(&mut self) -> Option<OutputOrigin> {
        self.stage.lost()
    }

    fn give_back(&mut self, places: u64) {
        self.stage.give_back(places);
    }

    fn end(&mut self) {
        self.stage.end();
    }

    fn drain(&mut self) {
        self.stage.drain();
    }

    fn is_fresh(&self) -> bool {
        self.stage.is_fresh()
    }

    fn spans_passes(&self) -> bool {
        self.stage.spans_passes()
    }

    fn save(&self) -> Option<SavedStage> {
        self.stage.save()
    }

    fn restore(&mut self, saved: &SavedStage) -> Result<()> {
        self.stage.restore(saved)
    }

    fn is_done(&self) -> bool {
        self.stage.is_done()
    }

    fn only_takes(&self) -> bool {
        self.stage.only_takes()
    }

    fn is_broken(&self) -> bool {
        self.stage.is_broken()
    }
}
