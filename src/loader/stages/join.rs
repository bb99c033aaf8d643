//! What a stage behind the threads is to the loader.

use crate::adapters::SavedStage;
use crate::error::{Error, Result};
use crate::sample::{Position, SampleLocation};
use std::any::Any;

/// An output for a stage behind the threads.
pub(in crate::loader) type Part = Box<dyn Any + Send>;

/// A stage behind the threads: it sees the outputs of one stream in their order.
pub(in crate::loader) trait Join<T>: Send {
    /// Takes an output, without its first `used` parts, which were given before a restore.
    fn push(&mut self, part: Part, used: u64, at: &At) -> Result<()>;

    /// Gives what comes next, if something does without another output.
    fn pull(&mut self) -> Option<Result<Pulled<T>, Failed>>;

    /// The item that was pulled last was lost: its place is to be filled by the next one. Where it came from,
    /// if that is not the last output.
    fn lost(&mut self) -> Option<At> {
        None
    }

    /// Forgets what is left at the end of a pass.
    fn end(&mut self);

    /// No more comes in this pass: what is left is to be pulled.
    fn drain(&mut self) {}

    /// Whether the end of a pass is nothing to it: only the end of the run is.
    fn spans_passes(&self) -> bool {
        false
    }

    /// Whether it remembers nothing.
    fn is_fresh(&self) -> bool {
        false
    }

    /// What it needs to be restored, if it says so.
    fn save(&self) -> Option<SavedStage> {
        None
    }

    /// Begins where it was saved.
    fn restore(&mut self, saved: &SavedStage) -> Result<()> {
        let _ = saved;
        Ok(())
    }

    /// Whether it may leave out all that it is given from now on.
    fn is_done(&self) -> bool {
        false
    }

    /// Whether nothing more can come of it.
    fn is_broken(&self) -> bool {
        false
    }
}

/// Where an output comes from.
#[derive(Debug, Clone, Default)]
pub(in crate::loader) struct At {
    /// For errors.
    pub(in crate::loader) place: Option<SampleLocation>,
    /// How often the stream had come to an end before.
    pub(in crate::loader) pass: u64,
    pub(in crate::loader) position: Position,
    /// Which output of its sample it is, from 0.
    pub(in crate::loader) part: u64,
}

impl At {
    /// The sample in an error.
    pub(super) fn locate(&self, error: Error) -> Error {
        match &self.place {
            Some(place) => place.locate(error),
            None => error,
        }
    }
}

/// A failure of a stage behind the threads.
pub(in crate::loader) struct Failed {
    pub(in crate::loader) error: Error,
    /// Of which pass the item is that failed, where that is not the last output. The error has its sample
    /// then.
    pub(in crate::loader) pass: Option<u64>,
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Failed { error, pass: None }
    }
}

/// What a stage behind the threads gives.
pub(in crate::loader) struct Pulled<T> {
    /// None for a place that stays empty.
    pub(in crate::loader) item: Option<T>,
    /// How many parts of the last output were used by then: none when all were.
    pub(in crate::loader) used: Option<u64>,
    /// Where the item comes from, where that is not the last output.
    pub(in crate::loader) at: Option<At>,
    /// How much of the item is used, and how much room it has.
    pub(in crate::loader) fill: Option<(u64, u64)>,
}

impl<T> Pulled<T> {
    /// An item of all outputs so far.
    pub(super) fn item(item: T) -> Self {
        Pulled { item: Some(item), used: None, at: None, fill: None }
    }

    /// The same with another item.
    pub(super) fn with<U>(self, item: Option<U>) -> Pulled<U> {
        Pulled { item, used: self.used, at: self.at, fill: self.fill }
    }
}
