//! One logical stream: its slices of shards, opened and parsed one after the other.

use super::check::{Expected, Extent, SliceCheck};
use super::part::Part;
use super::versions::EpochVersions;
use super::{Dataset, Stop, Versions};
use crate::error::{ErrorKind, Result};
use crate::index::ShardIndex;
use crate::plan::Slice;
use crate::sample::Sample;
use crate::store::{Body, Lane, ObjectVersion, Stopper};
use crate::tar::{self, SampleParser};
use crate::wait;
use bytes::Bytes;
use futures::stream::{BoxStream, Stream, StreamExt};
use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// The samples of one logical stream, as a blocking iterator; see [`Dataset::read`].
#[derive(Debug)]
#[must_use = "a reader reads nothing unless it is iterated"]
pub struct ShardReader {
    slices: Opener,
    current: Option<Part<Body>>,
}

impl ShardReader {
    /// Readers that are given the same `versions` read the same version of each shard.
    pub(super) fn new(dataset: Dataset, epoch: u64, slices: Vec<Slice>, versions: &Versions) -> Self {
        ShardReader { slices: Opener::new(dataset, epoch, slices, versions), current: None }
    }

    /// Looks first whether these shards have no sample indeed. An error of one counts as one of the first
    /// slice.
    pub(super) fn after_empty(mut self, shards: impl IntoIterator<Item = usize>) -> Self {
        self.slices.empty = shards.into_iter().collect();
        self
    }

    /// Begins with the slice of this number instead of the first, and after `passed` of its samples.
    pub(crate) fn from(mut self, slice: usize, passed: u64) -> Self {
        (self.slices.next, self.slices.passed) = (slice, passed);
        self.slices.current = slice;
        self
    }

    /// Gives nothing of the slice of this number unless its shard is what it was.
    pub(crate) fn expecting(mut self, slice: usize, object: ObjectVersion) -> Self {
        self.slices.expected.push((slice, object));
        self
    }

    /// Lets `stop` end this reader. `number` tells it from the other readers of the same `stop`.
    pub(crate) fn stopped_by(mut self, stop: Stop, number: usize) -> Self {
        self.slices.stop = Some((stop, number));
        self
    }

    /// Leaves out the rest of the slice that is being read.
    pub(crate) fn give_up(&mut self) {
        self.current = None;
    }

    /// Which of the slices the last item came from.
    pub(crate) fn slice(&self) -> usize {
        self.slices.current
    }

    /// The object that is being read, as far as its source tells what it is.
    pub(crate) fn object(&self) -> Option<ObjectVersion> {
        self.current.as_ref()?.object()
    }

    /// Whether the object that is being read is another one than [`ShardReader::expecting`] was told.
    pub(crate) fn is_replaced(&self) -> bool {
        self.current.as_ref().is_some_and(Part::is_replaced)
    }

    /// The same samples as a stream for any executor.
    pub fn into_stream(self) -> ShardReaderStream {
        let current = self.current.map(|part| part.map_chunks(|body| body.into_stream().boxed()));
        ShardReaderStream { slices: self.slices, current }
    }
}

impl Iterator for ShardReader {
    type Item = Result<Sample>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(part) = &mut self.current {
                match part.next() {
                    Some(Err(error)) => {
                        self.slices.leave_pieces();
                        return Some(Err(error));
                    }
                    Some(item) => return Some(item),
                    None => self.current = None,
                }
            }
            match self.slices.open_next()? {
                Ok(part) => self.current = Some(part),
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

/// The samples of one logical stream, as a [`Stream`]; see [`ShardReader::into_stream`].
#[must_use = "a stream does nothing unless it is polled"]
pub struct ShardReaderStream {
    slices: Opener,
    current: Option<Part<BoxStream<'static, Result<Bytes>>>>,
}

impl Stream for ShardReaderStream {
    type Item = Result<Sample>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        loop {
            if let Some(part) = &mut this.current {
                match ready!(part.poll_next_unpin(cx)) {
                    Some(Err(error)) => {
                        this.slices.leave_pieces();
                        return Poll::Ready(Some(Err(error)));
                    }
                    Some(item) => return Poll::Ready(Some(item)),
                    None => this.current = None,
                }
            }
            match this.slices.open_next() {
                None => return Poll::Ready(None),
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                Some(Ok(part)) => {
                    this.current = Some(part.map_chunks(|body| body.into_stream().boxed()));
                }
            }
        }
    }
}

impl fmt::Debug for ShardReaderStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShardReaderStream").field("slices", &self.slices).finish_non_exhaustive()
    }
}

/// So many bytes of samples that are not selected are not read: to ask for what is behind them anew takes no
/// longer.
const GAP: u64 = 1 << 20;

/// What both faces share: which slice comes next, and opening its shard.
#[derive(Debug)]
struct Opener {
    dataset: Dataset,
    epoch: u64,
    slices: Vec<Slice>,
    /// Shards that should have no sample, which is yet to be seen.
    empty: VecDeque<usize>,
    /// What the other readers of the epoch have found.
    versions: EpochVersions,
    /// The slice that is read, and the next one to be opened.
    current: usize,
    next: usize,
    /// Those between them.
    ahead: VecDeque<Opened>,
    /// What is left to open of the slice before the next one, where it is read in pieces.
    pieces: VecDeque<Piece>,
    /// Whether the slice that is read is one of these.
    in_pieces: bool,
    lane: Lane,
    /// How many samples of the next slice have been read before.
    passed: u64,
    /// What the shards of these slices should be.
    expected: Vec<(usize, ObjectVersion)>,
    stop: Option<(Stop, usize)>,
    /// Whether it has been said that the thread which reads was interrupted.
    interrupted: bool,
}

/// A part of a slice, between samples that are not read.
#[derive(Debug)]
struct Piece {
    slice: usize,
    samples: Slice,
    /// How many samples of the slice come before it, and have been read before.
    passed: u64,
    /// What the shard should be.
    expected: Option<ObjectVersion>,
}

#[derive(Debug)]
struct Opened {
    slice: usize,
    /// Whether it is one of several pieces of its slice.
    is_piece: bool,
    part: Result<(Part<Body>, Stopper)>,
    /// How many of the next ones should be opened with it.
    worth: usize,
}

impl Opener {
    fn new(dataset: Dataset, epoch: u64, slices: Vec<Slice>, versions: &Versions) -> Self {
        Opener {
            lane: dataset.0.store.lane(),
            versions: versions.of(epoch),
            dataset,
            epoch,
            slices,
            empty: VecDeque::new(),
            current: 0,
            next: 0,
            ahead: VecDeque::new(),
            pieces: VecDeque::new(),
            in_pieces: false,
            passed: 0,
            expected: Vec::new(),
            stop: None,
            interrupted: false,
        }
    }

    fn open_next(&mut self) -> Option<Result<Part<Body>>> {
        // An error first: what has been read is not all. Then the end, for those who go on after errors.
        if wait::is_interrupted() {
            let known = std::mem::replace(&mut self.interrupted, true);
            return (!known).then(|| Err(ErrorKind::Stopped.into()));
        }
        // The next ones begin now, and not when this one has been read.
        while self.ahead.back().is_none_or(|last| self.ahead.len() <= last.worth) && self.open_ahead() {}
        let Opened { slice, is_piece, part, .. } = self.ahead.pop_front()?;
        (self.current, self.in_pieces) = (slice, is_piece);
        match part {
            Ok((part, stopper)) => {
                if let Some((stop, reader)) = &self.stop
                    && !stop.reads(*reader, stopper)
                {
                    return None;
                }
                Some(Ok(part))
            }
            Err(error) => {
                self.leave_pieces();
                Some(Err(error))
            }
        }
    }

    /// After an error in one piece of a slice, no other piece of it is read, as nothing is that comes after an
    /// error in a slice of one piece: the samples that a slice has given are always its first ones.
    fn leave_pieces(&mut self) {
        if self.in_pieces {
            let current = self.current;
            self.ahead.retain(|opened| !opened.is_piece || opened.slice != current);
            self.pieces.retain(|piece| piece.slice != current);
        }
    }

    /// Opens one more slice, or piece of one. False when there is none.
    fn open_ahead(&mut self) -> bool {
        let looked = self.empty.pop_front().map(|shard| Slice { samples: 0..0, ..Slice::whole(shard) });
        let (Piece { slice: number, samples: slice, passed, expected }, is_piece) = match looked {
            Some(samples) => (Piece { slice: self.next, samples, passed: 0, expected: None }, false),
            None => match self.pieces.pop_front() {
                Some(piece) => (piece, true),
                None => match self.next_slice() {
                    Some(piece) => (piece, !self.pieces.is_empty()),
                    None => return false,
                },
            },
        };
        let (part, worth) = match self.open(&slice, passed, expected) {
            Ok((part, stopper, worth)) => (Ok((part, stopper)), worth),
            Err(error) => (Err(error), 0),
        };
        self.ahead.push_back(Opened { slice: number, is_piece, part, worth });
        true
    }

    /// The next slice, or the first piece of it: the others are left.
    fn next_slice(&mut self) -> Option<Piece> {
        let number = self.next;
        let mut slice = self.slices.get(number)?.clone();
        self.next += 1;
        let passed = std::mem::take(&mut self.passed);
        slice.samples.start = slice.samples.start.saturating_add(passed);
        let expected = self.expected.iter().find(|(slice, _)| *slice == number);
        let expected = expected.map(|(_, object)| object.clone());
        let index = self.dataset.indexed(slice.shard);
        let pieces = index.map(|index| index.pieces(slice.samples.clone(), GAP));
        let pieces = pieces.unwrap_or_else(|| vec![slice.samples.clone()]);
        let piece = |samples| {
            let samples = Slice { samples, ..slice };
            Piece { slice: number, samples, passed: 0, expected: expected.clone() }
        };
        self.pieces.extend(pieces.into_iter().map(piece));
        let first = self.pieces.pop_front()?;
        Some(Piece { passed, ..first })
    }

    /// Opens the shard of a slice: there where the slice begins, if that is known, or at its beginning.
    /// Its bytes begin to come; says how many of the next ones should be opened with it.
    fn open(
        &self,
        slice: &Slice,
        passed: u64,
        expected: Option<ObjectVersion>,
    ) -> Result<(Part<Body>, Stopper, usize)> {
        let inner = &*self.dataset.0;
        let (number, url) = self.dataset.shard(slice.shard)?;
        let parser = SampleParser::new(url).at(self.epoch, number as u64).with_limits(inner.limits);
        let index = self.dataset.indexed(slice.shard);
        let samples = match index {
            // To see that the shard is the one of which nothing was selected, one sample is enough.
            Some(index) if index.samples() == 0 => 0..index.stored_samples().min(1),
            Some(index) => index.span(&slice.samples),
            None => slice.samples.clone(),
        };
        let slice = &Slice { samples: samples.clone(), ..*slice };
        let stored = index.map(ShardIndex::stored_samples);
        let last = index.filter(|_| stored == Some(samples.end)).and_then(ShardIndex::end);
        let parser = last.into_iter().fold(parser, SampleParser::reaching);
        // Of a whole shard the end marker is read too.
        let is_part = |index: &&ShardIndex| samples.start > 0 || samples.end < index.stored_samples();
        let piece = index.filter(is_part);
        let piece = piece.and_then(|index| Some((index, index.stored_range(samples.clone())?)));
        let (mut body, parser, extent) = match piece {
            None => {
                (inner.store.open_in(&self.lane, url.expose_secret())?, parser, Extent::Shard(samples.start))
            }
            Some((index, range)) => {
                let parser = parser.starting(samples.start, range.start);
                let parser = if samples.end < index.stored_samples() { parser.cut() } else { parser };
                (inner.store.open_range_in(&self.lane, url.expose_secret(), range)?, parser, Extent::Slice)
            }
        };
        let (object, stopper, worth) = (body.object_cell(), body.stopper(), body.begin());
        let known = index.map(|index| index.object_at(url.expose_secret()));
        let (epoch, url) = (self.versions.clone(), url.clone());
        let check = SliceCheck::new(slice, extent, index, &url);
        let check = check.after(passed).of(object, Expected { state: expected, index: known, epoch, url });
        let part = Part::new(tar::read(body, parser), check.with_checksums(inner.checksums));
        Ok((part, stopper, worth))
    }
}
