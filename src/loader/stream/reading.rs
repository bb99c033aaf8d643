//! One pass over a stream: samples read, selected and shuffled.

use super::stream::Stream;
use crate::activity::{self, Activity};
use crate::adapters::{Shuffle, Stage};
use crate::dataset::ShardReader;
use crate::error::{Error, ErrorKind, Result};
use crate::loader::event::{Input, Note};
use crate::rng::Rng;
use crate::sample::Sample;
use crate::state::{OpenSlice, StreamState};
use std::task::{Context, Poll, ready};

/// A sample with how many came before it in its stream.
#[derive(Debug)]
pub(super) struct Numbered {
    pub(super) number: u64,
    pub(super) sample: Sample,
}

/// Why a sample does not come.
#[derive(Debug)]
pub(super) enum Missed {
    /// It cannot be read.
    Read(Error),
    /// What is done with it before the shuffle buffer failed, which says nothing of the shard or the network.
    Select(Error),
}

/// A pass that has been begun.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) reader: ShardReader,
    pub(super) buffer: Option<Shuffle<Numbered>>,
    /// How many samples came into the buffer.
    pub(super) inputs: u64,
    /// The slice that the last of them was from.
    pub(super) slice: Option<usize>,
    /// The state that the pass resumes from, if it does.
    pub(super) resumed: Option<StreamState>,
    /// The input of which outputs were given before and more are to come.
    pub(super) rest: Option<Input>,
    pub(super) ended: bool,
    pub(super) note: Option<Box<Note>>,
}

impl Stream {
    /// A pass from its beginning.
    pub(super) fn fresh(&self, epoch: u64) -> Reading {
        Reading {
            reader: self.whole(epoch),
            buffer: self.buffer(self.rng(epoch)),
            inputs: 0,
            slice: None,
            resumed: None,
            rest: None,
            ended: false,
            note: None,
        }
    }

    /// An empty shuffle buffer. None where it would only copy every sample out of its chunk.
    pub(super) fn buffer(&self, rng: Rng) -> Option<Shuffle<Numbered>> {
        let admit = |numbered: &mut Numbered| {
            numbered.sample.compact();
            numbered.sample.size()
        };
        let new =
            || Shuffle::new(self.shuffle, rng, admit).bounded(self.shuffle_bytes).counted(&self.shuffled);
        (self.shuffle > 1).then(new)
    }
}

impl Reading {
    pub(super) fn poll_next(
        &mut self,
        stream: &Stream,
        blocks: bool,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Numbered, Missed>>> {
        loop {
            if let Some(buffer) = &mut self.buffer {
                let item = if self.ended { buffer.drain() } else { buffer.pull() };
                if let Some(item) = item {
                    return Poll::Ready(Some(item.map_err(Missed::Read)));
                }
            }
            if self.ended {
                return Poll::Ready(None);
            }
            let read = if blocks { Poll::Ready(self.reader.next()) } else { self.reader.poll_sample(cx) };
            match ready!(read) {
                Some(Ok(sample)) => {
                    let sample = match &stream.select {
                        None => sample,
                        Some(_) => match stream.select(sample) {
                            Ok(Some(sample)) => sample,
                            Ok(None) => continue,
                            Err(error) => return Poll::Ready(Some(Err(Missed::Select(error)))),
                        },
                    };
                    self.admit();
                    let number = self.inputs;
                    self.inputs += 1;
                    match &mut self.buffer {
                        // A shuffle buffer never answers at once.
                        Some(buffer) => {
                            let _shuffling = activity::during(Activity::Shuffle);
                            drop(buffer.push(Numbered { number, sample }));
                        }
                        None => return Poll::Ready(Some(Ok(Numbered { number, sample }))),
                    }
                }
                Some(Err(error)) => return Poll::Ready(Some(Err(Missed::Read(error)))),
                None => {
                    self.ended = true;
                    // Without a buffer it makes no difference.
                    if self.buffer.is_some() {
                        self.note.get_or_insert_default().length = Some(self.inputs);
                    }
                }
            }
        }
    }

    /// Whether the error says that a shard is not the one that was open when the state was taken. Where a
    /// shard only contradicts its index, an undisturbed run met the same error and read on.
    pub(super) fn is_replaced(&self, error: &Error) -> bool {
        matches!(error.kind(), ErrorKind::Stale { .. }) && self.reader.is_replaced()
    }

    /// Whether all up to the state has come again as it was then: in the slices that are open, at the same
    /// numbers.
    pub(super) fn is_resumed(&mut self) -> bool {
        let (Some(from), Some(note)) = (&self.resumed, self.note.take()) else { return false };
        let same = |(then, now): (&OpenSlice, &OpenSlice)| (then.slice, then.start) == (now.slice, now.start);
        note.length == from.length
            && note.opened.len() >= from.open.len()
            && from.open.iter().rev().zip(note.opened.iter().rev()).all(same)
    }

    /// Takes note of the slice of the sample that comes in.
    fn admit(&mut self) {
        let slice = self.reader.slice();
        if self.slice.replace(slice) != Some(slice) {
            let numbers = self.buffer.iter().flat_map(|buffer| buffer.held().map(|numbered| numbered.number));
            let note = self.note.get_or_insert_default();
            note.oldest = numbers.min().unwrap_or(self.inputs);
            let object = self.reader.object().unwrap_or_default();
            let version = object.version.map(Into::into);
            note.opened.push(OpenSlice { slice, start: self.inputs, size: object.size, version });
        }
    }
}
