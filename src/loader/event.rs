//! What travels from the streams to the batches.

use super::shapes::Shapes;
use crate::error::Error;
use crate::sample::{Position, Sample};
use crate::state::{OpenSlice, StageRecord};

/// What a stream gives to the stages on threads.
#[derive(Debug)]
pub(super) enum Read {
    Input(Input),
    /// A failure between the samples of the stream.
    Fault(u64, Error),
    /// A failure after which nothing that comes could be right.
    Fatal(Error),
    /// The stream has come to its end. Where places are filled up, it may begin again.
    End,
}

/// A sample on its way to the stages, after the shuffle buffer.
#[derive(Debug)]
pub(super) struct Input {
    pub(super) origin: Origin,
    pub(super) sample: Sample,
}

impl Input {
    /// The memory that it takes.
    pub(super) fn bytes(&self) -> usize {
        self.sample.size().saturating_add(size_of::<Self>())
    }
}

/// Which input of its stream a sample is.
#[derive(Debug, Default)]
pub(super) struct Origin {
    /// How often its stream had come to an end before.
    pub(super) pass: u64,
    pub(super) position: Position,
    /// Its number among the inputs of the pass in the order in which they were read.
    pub(super) number: u64,
    /// How many inputs of the pass have left the shuffle buffer, with this one.
    pub(super) taken: u64,
    /// The outputs of this input that were given before a restore.
    pub(super) given: Given,
    /// What its stream has to say for the state, seldom anything.
    pub(super) note: Option<Box<Note>>,
}

/// How much of an input has been given: a number of its outputs, and a number of parts of the next one, where
/// a stage behind the threads takes outputs apart.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Given {
    pub(super) outputs: u64,
    pub(super) used: u64,
}

/// What a source has for the sequence, in the order of its stream.
#[derive(Debug)]
pub(super) enum Event<T> {
    /// An item, which takes the next place of its stream.
    Item(Tag, T),
    /// The next place of the stream stays empty: it has no item of the shape that the place has.
    Empty(Tag),
    /// A failure between two items: it takes no place.
    Fault(Fault),
    /// A failure after which nothing that comes could be right.
    Fatal(Error),
    /// The places of a batch end here.
    Cut(Cut),
}

/// Where a stream is to begin again for a stage with a memory: before the first sample that it remembers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Replay {
    pub(super) pass: u64,
    /// How many inputs of the pass have left the shuffle buffer by then.
    pub(super) taken: u64,
    /// How many items were given since, with the one that says so.
    pub(super) given: u64,
    /// How many failures there were since that come again.
    pub(super) skips: u64,
    /// What the stage has saved, if it does.
    pub(super) saved: Option<StageRecord>,
}

/// Where the stages of a stream begin.
#[derive(Debug, Clone)]
pub(super) struct Begins {
    pub(super) replay: Replay,
    /// Which of the job's streams.
    pub(super) stream: usize,
    pub(super) streams: usize,
    /// The first turn of its lane, where it has the lane to itself.
    pub(super) turn: u64,
    /// Which places have which shape, if they have any.
    pub(super) shapes: Option<Shapes>,
    /// Items that have no room in this shape are left out, where places have none.
    pub(super) only: Option<usize>,
}

/// Which source something comes from: a stream of a dataset.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct From {
    pub(super) dataset: usize,
    /// Which of the rank's streams.
    pub(super) lane: usize,
    /// How often the stream had come to an end before.
    pub(super) pass: u64,
}

/// A sample that was lost, and why.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) from: From,
    pub(super) error: Error,
}

/// Where an item is in the sequence of its job.
#[derive(Debug, Default)]
pub(super) struct Tag {
    /// In the sequence of all ranks.
    pub(super) slot: u64,
    pub(super) from: From,
    pub(super) position: Position,
    /// Which output of its input it is, from 0.
    pub(super) part: u64,
    /// How many inputs of the pass have left the shuffle buffer by then.
    pub(super) taken: u64,
    /// The input that has more to give, by its number, and how much of it has been given.
    pub(super) rest: Option<(u64, Given)>,
    /// Where to begin again, if that is elsewhere. The note is then of what happened until there.
    pub(super) replay: Option<Box<Replay>>,
    /// How much of the item is used, and how much room it has, in whatever a stage with a memory counts.
    pub(super) fill: Option<(u64, u64)>,
    pub(super) note: Option<Box<Note>>,
}

/// What has happened in a stream since its last item was given out.
#[derive(Debug, Default)]
pub(super) struct Note {
    /// The slices that were begun.
    pub(super) opened: Vec<OpenSlice>,
    /// The samples that came into the stream before this one have all been given out.
    pub(super) oldest: u64,
    /// The end, with the number of items there were.
    pub(super) length: Option<u64>,
}

impl Note {
    /// This and what happened after it.
    pub(super) fn then(&mut self, later: Note) {
        if !later.opened.is_empty() {
            self.opened.extend(later.opened);
            self.oldest = later.oldest;
        }
        self.length = later.length.or(self.length);
    }
}

/// The end of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cut {
    /// How many places of the job's sequence lie before the next batch.
    pub(super) slots: u64,
    /// How many items a full batch has.
    pub(super) size: usize,
    /// Which shape it has, where there are several.
    pub(super) bucket: Option<usize>,
}
