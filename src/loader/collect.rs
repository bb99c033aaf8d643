//! From events to batches, each with the state as of its last item.

use super::event::{Event, Tag};
use super::make::Make;
use crate::adapters::{Partial, catch};
use crate::error::{ErrorKind, Result};
use crate::state::{Header, Reached, State, StreamState};
use std::sync::Arc;

/// What becomes of places that stay empty, because there are no more samples.
pub(super) enum Last<T> {
    Partial(Partial),
    /// They are filled with clones.
    Pad(fn(&T) -> T),
    /// They are filled with samples from the beginning of the epoch.
    Repeat,
}

impl<T> Clone for Last<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Last<T> {}

/// Reads the first item of the epoch again that can be made: none where there is none.
pub(super) type First<T> = Box<dyn FnMut() -> Option<Result<T>> + Send>;

/// What a run gives: its batches, and its end, which is not said where it breaks off.
pub(super) enum Given<B> {
    Batch(B),
    End,
}

/// Collects batches.
pub(super) struct Collect<I, T, B> {
    events: I,
    batch: usize,
    last: Last<T>,
    items: Vec<T>,
    /// The first item of the epoch, where a batch had nothing else to be padded with: not the last item of
    /// the batch before, which a job that goes on after a stop does not have.
    spare: Option<T>,
    first: First<T>,
    make: Make<T, B>,
    progress: Progress,
    ended: bool,
}

impl<I, T, B> Collect<I, T, B> {
    pub(super) fn new(
        events: I,
        batch: usize,
        last: Last<T>,
        first: First<T>,
        make: Make<T, B>,
        progress: Progress,
    ) -> Self {
        Collect { events, batch, last, items: Vec::new(), spare: None, first, make, progress, ended: false }
    }

    /// Makes a batch of what has been collected, which may be nothing: then all of it were errors.
    fn cut(&mut self) -> Result<B> {
        let mut items = std::mem::take(&mut self.items);
        let valid = items.len();
        if let Last::Pad(clone) = self.last
            && valid < self.batch
        {
            if valid == 0 && self.spare.is_none() {
                self.spare = (self.first)().transpose()?;
            }
            let Some(spare) = items.last().or(self.spare.as_ref()).map(clone) else {
                let what = "there is no sample to pad a batch with: use fewer ranks".into();
                return Err(ErrorKind::Config(what).into());
            };
            items.resize_with(self.batch, || clone(&spare));
        }
        self.progress.batches += 1;
        let state = self.progress.state();
        // Columns of the caller's own may have a say in it.
        catch(|| (self.make.batch)(items, valid, state)).and_then(|batch| batch)
    }
}

impl<T, B, I: Iterator<Item = Event<T>>> Iterator for Collect<I, T, B> {
    type Item = Result<Given<B>>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.ended {
            match self.events.next() {
                Some(Event::Item(tag, item)) => {
                    self.progress.pass(tag);
                    match item {
                        Ok(item) => {
                            if self.items.is_empty() {
                                self.items.reserve_exact(self.batch.min(MAX_RESERVED));
                            }
                            self.items.push(item);
                        }
                        Err(error) => return Some(Err(error)),
                    }
                }
                Some(Event::Fault(error)) => return Some(Err(error)),
                Some(Event::Fatal(error)) => {
                    self.ended = true;
                    return Some(Err(error));
                }
                Some(Event::Cut(cut)) => {
                    self.progress.reached = self.progress.reached.at(cut.slots);
                    return Some(self.cut().map(Given::Batch));
                }
                None => {
                    self.ended = true;
                    return Some(Ok(Given::End));
                }
            }
        }
        None
    }
}

/// More is not reserved ahead of the items, however large the batches are to be.
const MAX_RESERVED: usize = 1024;

/// How far the rank's streams have been consumed.
#[derive(Debug, Clone)]
pub(super) struct Progress {
    header: Arc<Header>,
    /// How many streams of each dataset the rank has.
    lanes: usize,
    /// Which places of the job's sequence have been passed.
    reached: Reached,
    /// How many batches were given out.
    batches: u64,
    /// By dataset and lane.
    streams: Vec<StreamState>,
}

impl Progress {
    pub(super) fn new(
        header: Arc<Header>,
        (reached, batches): (Reached, u64),
        lanes: usize,
        streams: Vec<StreamState>,
    ) -> Self {
        Progress { header, lanes, reached, batches, streams }
    }

    /// The state as of the last batch.
    pub(super) fn state(&self) -> State {
        State::new(Arc::clone(&self.header), self.reached, self.batches, self.streams.as_slice().into())
    }

    /// Takes note of an item that is being consumed.
    fn pass(&mut self, tag: Tag) {
        let Some(stream) = self.streams.get_mut(tag.dataset * self.lanes + tag.lane) else { return };
        if stream.pass != tag.pass {
            (stream.pass, stream.taken, stream.length, stream.open) = (tag.pass, 0, None, Arc::default());
        }
        if let Some(note) = tag.note {
            stream.length = note.length.or(stream.length);
            if !note.opened.is_empty() {
                let all: Vec<_> = stream.open.iter().cloned().chain(note.opened).collect();
                // Of what was begun before, that remains which has samples that have not been given out.
                let gone = all.iter().skip(1).take_while(|next| next.start <= note.oldest).count();
                stream.open = all[gone..].into();
            }
        }
        stream.taken += 1;
        stream.digest.add(tag.slot, tag.dataset, tag.position);
    }
}
