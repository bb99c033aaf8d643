//! One pass over a stream: samples are read, selected and shuffled.

use super::config::StreamConfig;
use crate::activity::{self, Activity};
use crate::adapters::{Shuffle, Stage};
use crate::dataset::ShardReader;
use crate::error::{Error, ErrorKind, Result};
use crate::loader::event::StreamNote;
use crate::rng::Rng;
use crate::sample::Sample;
use crate::state::OpenSlice;
use std::task::{Context, Poll, ready};

/// A sample with its number in the pass.
#[derive(Debug)]
pub(super) struct NumberedSample {
    pub(super) number: u64,
    pub(super) sample: Sample,
}

/// Why a sample failed before it entered the shuffle buffer.
#[derive(Debug)]
pub(super) enum SampleError {
    Read(Error),
    /// The caller's selection failed. The error has nothing to do with the shard or the network.
    Select(Error),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReadMode {
    /// Waits on this thread.
    Blocking,
    /// Returns `Pending` instead of waiting.
    Polled,
    /// Parses only bytes that are already in memory, and returns `Pending` when they are used up.
    Buffered,
}

#[derive(Debug)]
pub(super) struct PassReader {
    pub(super) reader: ShardReader,
    pub(super) buffer: Option<Shuffle<NumberedSample>>,
    /// Number of samples that entered the buffer.
    pub(super) inputs: u64,
    /// The slice of the last sample that entered the buffer.
    pub(super) slice: Option<usize>,
    /// Whether a sample was read since the last failure. The sample counts even if the selection dropped it.
    pub(super) has_read: bool,
    /// Whether all samples were read.
    pub(super) ended: bool,
    pub(super) note: Option<Box<StreamNote>>,
}

impl StreamConfig {
    /// Reads a pass from its beginning.
    pub(super) fn fresh(&self, epoch: u64) -> PassReader {
        PassReader {
            reader: self.whole(epoch),
            buffer: self.buffer(self.rng(epoch)),
            inputs: 0,
            slice: None,
            has_read: false,
            ended: false,
            note: None,
        }
    }

    /// An empty shuffle buffer; `None` without shuffling. (A buffer of one sample would work too, but every
    /// buffer copies its samples out of their chunks.)
    pub(super) fn buffer(&self, rng: Rng) -> Option<Shuffle<NumberedSample>> {
        if self.shuffle < 2 {
            return None;
        }
        let admit = |numbered: &mut NumberedSample| {
            numbered.sample.compact();
            numbered.sample.size()
        };
        Some(Shuffle::new(self.shuffle, rng, admit).counted(&self.shuffled))
    }
}

impl PassReader {
    /// The next sample, or a failure; `None` at the end of the pass.
    pub(super) fn poll_next(
        &mut self,
        stream: &StreamConfig,
        mode: ReadMode,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<NumberedSample, SampleError>>> {
        loop {
            if let Some(buffer) = &mut self.buffer {
                let item = if self.ended { buffer.drain() } else { buffer.pull() };
                if let Some(item) = item {
                    return Poll::Ready(Some(item.map_err(SampleError::Read)));
                }
            }
            if self.ended {
                return Poll::Ready(None);
            }
            let read = match mode {
                ReadMode::Blocking => Poll::Ready(self.reader.next()),
                ReadMode::Polled => self.reader.poll_sample(cx),
                ReadMode::Buffered => self.reader.poll_buffered(),
            };
            match ready!(read) {
                Some(Ok(sample)) => {
                    let sample = match &stream.select {
                        None => sample,
                        Some(_) => match stream.select(sample) {
                            Ok(Some(sample)) => sample,
                            Ok(None) => {
                                self.has_read = true;
                                continue;
                            }
                            Err(error) => return Poll::Ready(Some(Err(SampleError::Select(error)))),
                        },
                    };
                    self.has_read = true;
                    self.note_slice();
                    let number = self.inputs;
                    self.inputs += 1;
                    match &mut self.buffer {
                        // `push` of a shuffle buffer returns nothing: samples are returned by `pull`.
                        Some(buffer) => {
                            let _shuffling = activity::during(Activity::Shuffle);
                            drop(buffer.push(NumberedSample { number, sample }));
                        }
                        None => return Poll::Ready(Some(Ok(NumberedSample { number, sample }))),
                    }
                }
                Some(Err(error)) => return Poll::Ready(Some(Err(SampleError::Read(error)))),
                None => {
                    self.ended = true;
                    // The length is only needed to restore a shuffle buffer.
                    if self.buffer.is_some() {
                        self.note.get_or_insert_default().length = Some(self.inputs);
                    }
                }
            }
        }
    }

    /// Whether the error means that a shard was replaced after the state was saved. A shard that contradicts
    /// its index has the same kind of error, even in a run without a restore. Such a run continues.
    pub(super) fn is_replaced(&self, error: &Error) -> bool {
        matches!(error.kind(), ErrorKind::Stale { .. }) && self.reader.is_replaced()
    }

    /// Notes the slice of the sample that enters the buffer, if the previous sample came from another slice.
    fn note_slice(&mut self) {
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
