//! What travels from the streams to the batches.

use crate::error::{Error, Result};
use crate::sample::Position;
use crate::state::Opened;

/// A sample or what has become of it, or something that happened between two of them.
#[derive(Debug)]
pub(super) enum Event<T> {
    /// It has a place in the sequence, whether it came out well or not.
    Item(Tag, Result<T>),
    /// An error between the samples of a stream.
    Fault(Error),
    /// An error after which nothing that comes could be right.
    Fatal(Error),
    /// The places of a batch end here.
    Cut(Cut),
}

/// Where an item stands in the sequence of its job.
#[derive(Debug)]
pub(super) struct Tag {
    /// In the sequence of all ranks.
    pub(super) slot: u64,
    pub(super) dataset: usize,
    /// Which of the rank's streams.
    pub(super) lane: usize,
    /// How often its stream had come to an end before.
    pub(super) pass: u64,
    pub(super) position: Position,
    /// What its stream has to say for the state, seldom anything.
    pub(super) note: Option<Box<Note>>,
}

/// What has happened in a stream since its last item was given out.
#[derive(Debug, Default)]
pub(super) struct Note {
    /// The slices that were begun.
    pub(super) opened: Vec<Opened>,
    /// The samples that came into the stream before this one have all been given out.
    pub(super) oldest: u64,
    /// No more come: there were so many.
    pub(super) length: Option<u64>,
}

/// The end of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cut {
    /// How many places of the job's sequence lie before the next batch.
    pub(super) slots: u64,
}
