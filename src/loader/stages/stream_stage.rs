//! `StreamStage`: a stage that takes the outputs of one stream in order. It follows the stages that run on
//! the worker threads.

use crate::activity::{self, Activity};
use crate::adapters::SavedStage;
use crate::error::{Error, Result};
use crate::panic::catch;
use crate::sample::{Position, SampleLocation};
use std::any::Any;
use std::sync::Arc;

/// An output of the worker threads, type-erased. A stream stage takes it as input.
pub(in crate::loader) type ErasedItem = Box<dyn Any + Send>;

/// A stage that takes the outputs of the worker threads. Each stream has its own stage, which gets the
/// outputs of this stream in order, one at a time.
pub(in crate::loader) trait StreamStage<T>: Send {
    /// Consumes one input, which is an output of the worker threads.
    fn push(&mut self, output: ErasedItem, at: &OutputOrigin) -> Result<()>;

    /// Returns the next item; `None` if the stage needs another input first.
    fn pull(&mut self) -> Option<Result<StageOutput<T>, StageFailure>>;

    /// Called when the last pulled item is lost: a later function has failed for it, or has filtered it out.
    /// The next item takes the sequence number of the lost item. Returns the origin of the lost item; `None`
    /// means the origin of the stage's last input.
    fn lose_item(&mut self) -> Option<OutputOrigin> {
        None
    }

    /// Called when the sequence numbers of the last `count` pulled items and gaps are free again. The next
    /// items and gaps take these numbers.
    fn give_back(&mut self, count: u64) {
        let _ = count;
    }

    /// Resets the stage at the end of a pass.
    fn end(&mut self);

    /// Called when the stage gets no more inputs in this pass. From then on, `pull` returns the items that
    /// are left.
    fn drain(&mut self) {}

    /// Whether the stage continues across the ends of passes, up to the end of the run.
    fn spans_passes(&self) -> bool {
        false
    }

    /// Whether no later item depends on the inputs pushed so far.
    fn is_fresh(&self) -> bool {
        false
    }

    /// The state of the stage, if the stage can save it.
    fn save(&self) -> Option<SavedStage> {
        None
    }

    fn restore(&mut self, saved: &SavedStage) -> Result<()> {
        let _ = saved;
        Ok(())
    }

    /// Whether the stage has consumed too many inputs in a row without returning an item. The stage may hold
    /// all these inputs in memory.
    fn only_takes(&self) -> bool {
        false
    }

    /// Whether the stage has panicked and cannot continue.
    fn is_broken(&self) -> bool {
        false
    }
}

/// The origin of an output of the worker threads.
#[derive(Debug, Clone, Default)]
pub(in crate::loader) struct OutputOrigin {
    /// The key and shard of the sample, for errors.
    pub(in crate::loader) location: Option<SampleLocation>,
    /// Number of passes that the stream had completed before this one.
    pub(in crate::loader) pass: u64,
    pub(in crate::loader) position: Position,
    /// Index of the output among the outputs of its sample.
    pub(in crate::loader) part: u64,
}

impl OutputOrigin {
    /// Adds the key and shard of the sample to an error.
    pub(super) fn locate(&self, error: Error) -> Error {
        match &self.location {
            Some(location) => location.locate(error),
            None => error,
        }
    }
}

pub(in crate::loader) struct StageFailure {
    pub(in crate::loader) error: Error,
    /// The pass of the failed item. `None` means the pass of the stage's last input; the caller then adds the
    /// key and shard of this input's sample to `error`. If the pass is `Some`, `error` already names the
    /// sample.
    pub(in crate::loader) pass: Option<u64>,
}

impl From<Error> for StageFailure {
    fn from(error: Error) -> Self {
        StageFailure { error, pass: None }
    }
}

/// An item or a gap that a stream stage returns.
pub(in crate::loader) struct StageOutput<T> {
    /// `None` for a gap.
    pub(in crate::loader) item: Option<T>,
    /// The origin of the item; `None` means the origin of the stage's last input.
    pub(in crate::loader) at: Option<OutputOrigin>,
    /// The used size of the item and its capacity, such as the number of tokens in a packed row and the
    /// length of the row.
    pub(in crate::loader) fill: Option<(u64, u64)>,
}

impl<T> StageOutput<T> {
    /// An item that has the origin of the stage's last input.
    pub(super) fn item(item: T) -> Self {
        StageOutput { item: Some(item), at: None, fill: None }
    }

    /// The same output with another item.
    pub(super) fn with<U>(self, item: Option<U>) -> StageOutput<U> {
        StageOutput { item, at: self.at, fill: self.fill }
    }
}

/// A stream stage followed by a function.
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
    fn push(&mut self, output: ErasedItem, at: &OutputOrigin) -> Result<()> {
        self.stage.push(output, at)
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
                Ok(None) => drop(self.stage.lose_item()),
                Err(error) => {
                    return Some(Err(match self.stage.lose_item() {
                        Some(at) => StageFailure { error: at.locate(error), pass: Some(at.pass) },
                        None => error.into(),
                    }));
                }
            }
        }
    }

    fn lose_item(&mut self) -> Option<OutputOrigin> {
        self.stage.lose_item()
    }

    fn give_back(&mut self, count: u64) {
        self.stage.give_back(count);
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

    fn only_takes(&self) -> bool {
        self.stage.only_takes()
    }

    fn is_broken(&self) -> bool {
        self.stage.is_broken()
    }
}
