//! Opens the slices of a stream, the next ones ahead of the reader.
//!
//! **The invariants.**
//! - Slices are returned in the order of the plan. `ahead` holds those that are open and not read yet,
//!   between `current` and `next`. A slice that cannot be opened stays in its place as an error, which the
//!   reader meets when it gets there.
//! - The samples that a slice has returned are its first ones: a state counts them, and a restore skips as
//!   many (`passed`). So after an error in one piece of a slice, its other pieces are dropped.
//! - A shard that the reader before this one still reads is not opened for the next epoch, since it may be
//!   replaced until then.
//!
//! How many slices are open, the body of the slice opened last decides (`wanted_ahead`): 16 behind one of a
//! network or a cache, where the budget decides what is requested; none behind a local file. Example: the
//! slices A to F, and bodies that want two behind them. The first call opens A, B and C and returns A. The
//! second opens D and returns B, whose bytes have been on their way since the first call. When F is open,
//! nothing is left here, and a reader of the next epoch may begin behind this one with the room that is left.
//!
//! Of a shard with a selection, a slice is read in pieces, each with a request of its own, where a [`GAP`] of
//! bytes or more would be read for nothing: the selected samples 0..40 and 40..80 of A, if 1 MiB or more of
//! others is between the samples 39 and 40. The pieces count as open slices, and have the number of their
//! slice.
//!
//! Shards without a selected sample come first, one sample each (`empty`): it shows that they are the shards
//! of the index.
//!
//! A restore reads small slices, which are scattered over the shards that were open: many more of them are
//! open at a time ([`SliceBody::wanted_ahead`]), and the reader that continues behind them
//! [follows](Opener::follow).

use super::current_shard::CurrentShard;
use super::shard_set::ShardSet;
use super::slice_body::{OpeningSlice, SliceBody};
use super::slice_check::{ExpectedObject, SliceCheck};
use super::slice_samples::SliceSamples;
use super::stop_handle::{ReaderNumber, StopHandle};
use super::versions::{EpochVersions, Versions};
use crate::error::{ErrorKind, Result};
use crate::formats::{self, ParserStart};
use crate::plan::Slice;
use crate::sample::Position;
use crate::store::{Body, ObjectVersion, ReadQueue, Stopper};
use crate::telemetry::log;
use crate::wait;
use std::collections::VecDeque;
use std::sync::Arc;

/// A new request takes no longer than reading this many bytes of samples that are not selected.
const GAP: u64 = 1 << 20;

/// Opens the slices of a stream one after the other, the next ones ahead.
#[derive(Debug)]
pub(super) struct Opener {
    shards: Arc<ShardSet>,
    epoch: u64,
    /// The number of the dataset, for the samples' positions.
    pub(super) dataset: u64,
    slices: Vec<Slice>,
    /// Slices from this number on are not returned yet.
    until: usize,
    /// Shards that should have no sample according to the index, and have not been checked.
    pub(super) empty: VecDeque<usize>,
    /// The versions that the readers of the epoch have found.
    versions: EpochVersions,
    /// Numbers of the slice that is being read, and of the next one to open.
    pub(super) current: usize,
    pub(super) next: usize,
    /// The open slices between them.
    ahead: VecDeque<OpenedSlice>,
    /// Number of slices that should be open together with the one that was opened last.
    wanted_ahead: usize,
    /// Pieces that are still to be opened of the slice before the next one.
    pieces: VecDeque<SlicePiece>,
    /// Whether the slice that is being read consists of pieces.
    in_pieces: bool,
    queue: ReadQueue,
    /// Whether another reader will [begin behind](Self::begin_behind) this one.
    pub(super) followed: bool,
    /// Whether the slices are small and scattered, so that the requests for them take longer than their
    /// bytes.
    pub(super) scattered: bool,
    /// Number of samples of the next slice that were read before.
    pub(super) passed: u64,
    /// The expected objects of these slices.
    pub(super) expected: Vec<(usize, ObjectVersion)>,
    /// What ends the reading, and this reader's number there.
    pub(super) stop: Option<(StopHandle, ReaderNumber)>,
    /// Shows which shard is being read.
    pub(super) shard: CurrentShard,
    /// Whether an interruption of the reading thread has been reported.
    interrupted: bool,
}

/// A part of a slice, between samples that are not read.
#[derive(Debug)]
struct SlicePiece {
    slice: usize,
    samples: Slice,
    /// Number of samples of the slice before this piece that were read before.
    passed: u64,
    /// The expected object.
    expected: Option<ObjectVersion>,
}

#[derive(Debug)]
struct OpenedSlice {
    slice: usize,
    /// Whether it is one of several pieces of its slice.
    is_piece: bool,
    samples: Result<(SliceSamples<Body>, Stopper)>,
    /// Number of following slices that should be open together with this one.
    wanted_ahead: usize,
}

impl Opener {
    pub(super) fn new(shards: Arc<ShardSet>, epoch: u64, slices: Vec<Slice>, versions: &Versions) -> Self {
        Opener {
            queue: shards.store.queue(versions.network()),
            versions: versions.of(epoch),
            shards,
            epoch,
            dataset: 0,
            slices,
            until: usize::MAX,
            empty: VecDeque::new(),
            current: 0,
            next: 0,
            ahead: VecDeque::new(),
            wanted_ahead: 0,
            pieces: VecDeque::new(),
            in_pieces: false,
            followed: false,
            scattered: false,
            passed: 0,
            expected: Vec::new(),
            stop: None,
            shard: CurrentShard::default(),
            interrupted: false,
        }
    }

    /// Opens the next slice, or piece of one.
    pub(super) fn open_next(&mut self) -> Option<Result<SliceSamples<Body>>> {
        // First an error, since the samples are not complete; then the end, for callers that ignore errors.
        if wait::is_interrupted() {
            let known = std::mem::replace(&mut self.interrupted, true);
            return (!known).then(|| Err(ErrorKind::Stopped.into()));
        }
        // Open the next slices now, not when this one has been read.
        self.begin();
        if self.ahead.front()?.slice >= self.until {
            return None;
        }
        let OpenedSlice { slice, is_piece, samples, .. } = self.ahead.pop_front()?;
        (self.current, self.in_pieces) = (slice, is_piece);
        if let Some(Ok((_, url))) = self.slices.get(slice).map(|slice| self.shards.shard(slice.shard)) {
            self.shard.set(url);
            log!(DEBUG, "a shard is being read", shard = url, epoch = self.epoch);
        }
        match samples {
            Ok((samples, stopper)) => {
                if let Some((stop, reader)) = &self.stop
                    && !stop.register(*reader, stopper)
                {
                    return None;
                }
                Some(Ok(samples))
            }
            Err(error) => {
                self.leave_pieces();
                Some(Err(error))
            }
        }
    }

    /// Opens as many slices as should be open now.
    pub(super) fn begin(&mut self) {
        while self.ahead.back().is_none_or(|last| self.ahead.len() <= last.wanted_ahead) && self.open_ahead()
        {
        }
    }

    /// Begins behind `before`, which reads other samples of the same pass, once all its slices are open.
    pub(super) fn follow(&mut self, before: &Opener) {
        if before.has_more() {
            return;
        }
        if self.ahead.is_empty() {
            // The bytes of `before` are requested first.
            self.queue = before.queue.clone();
        }
        self.begin();
    }

    /// Number of slices that the reader after this one may open now. It is 0 until all slices here are open.
    pub(super) fn room_behind(&self) -> usize {
        if self.has_more() { 0 } else { self.wanted_ahead.saturating_sub(self.ahead.len()) }
    }

    /// Whether anything is left to open.
    fn has_more(&self) -> bool {
        self.next < self.slices.len() || !self.pieces.is_empty() || !self.empty.is_empty()
    }

    /// Begins while `before` is still being read, with as many slices as `before` has room for.
    pub(super) fn begin_behind(&mut self, before: &Opener) {
        if self.ahead.is_empty() {
            // The bytes of `before` are requested first.
            self.queue = before.queue.clone();
        }
        while self.ahead.len() < before.room_behind() && !self.is_next_read_by(before) && self.open_ahead() {}
    }

    /// Whether `other` still reads the shard that comes next.
    fn is_next_read_by(&self, other: &Opener) -> bool {
        let Some(next) = self.slices.get(self.next) else { return false };
        let reads = |slice: usize| other.slices.get(slice).is_some_and(|slice| slice.shard == next.shard);
        reads(other.current) || other.ahead.iter().any(|opened| reads(opened.slice))
    }

    /// Skips to the slice of this number, and ends where it does.
    pub(super) fn go_to(&mut self, slice: usize) {
        self.ahead.retain(|opened| opened.slice >= slice);
        self.pieces.retain(|piece| piece.slice >= slice);
        (self.next, self.until) = (self.next.max(slice), slice + 1);
    }

    /// Whether the slice that is being read ends here and is the last one of its shard.
    pub(super) fn ends_shard(&self) -> bool {
        let left = || self.ahead.iter().filter(|opened| opened.is_piece).map(|opened| opened.slice);
        let mut left = left().chain(self.pieces.iter().map(|piece| piece.slice));
        let Some(slice) = self.slices.get(self.current) else { return false };
        let last = self.shards.indexed(slice.shard).is_none_or(|index| slice.samples.end == index.samples());
        last && !left.any(|slice| slice == self.current)
    }

    /// Whether the reading was ended from outside, so that the samples are not complete.
    pub(super) fn is_stopped(&self) -> bool {
        self.stop.as_ref().is_some_and(|(stop, _)| stop.is_stopped()) || wait::is_interrupted()
    }

    /// After an error in one piece of the slice that is being read, drops its other pieces.
    pub(super) fn leave_pieces(&mut self) {
        if self.in_pieces {
            let current = self.current;
            self.ahead.retain(|opened| !opened.is_piece || opened.slice != current);
            self.pieces.retain(|piece| piece.slice != current);
        }
    }

    /// Opens one more slice, or piece of one. Returns false if there is none.
    fn open_ahead(&mut self) -> bool {
        let empty = self.empty.pop_front().map(|shard| Slice { samples: 0..0, ..Slice::whole(shard) });
        let (SlicePiece { slice: number, samples: slice, passed, expected }, is_piece) = match empty {
            Some(samples) => (SlicePiece { slice: self.next, samples, passed: 0, expected: None }, false),
            None => match self.pieces.pop_front() {
                Some(piece) => (piece, true),
                None => match self.next_slice() {
                    Some(piece) => (piece, !self.pieces.is_empty()),
                    None => return false,
                },
            },
        };
        let left =
            (self.slices.len() - self.next.min(self.slices.len())) + self.pieces.len() + self.empty.len();
        self.queue.set_remaining(if self.followed { u64::MAX } else { left as u64 });
        let (samples, wanted_ahead) = match self.open(&slice, passed, expected) {
            Ok((samples, stopper, wanted_ahead)) => (Ok((samples, stopper)), wanted_ahead),
            Err(error) => (Err(error), 0),
        };
        self.wanted_ahead = wanted_ahead;
        self.ahead.push_back(OpenedSlice { slice: number, is_piece, samples, wanted_ahead });
        true
    }

    /// The next slice, or its first piece; the others go into `pieces`.
    fn next_slice(&mut self) -> Option<SlicePiece> {
        let number = self.next;
        let mut slice = self.slices.get(number)?.clone();
        self.next += 1;
        let passed = std::mem::take(&mut self.passed);
        slice.samples.start = slice.samples.start.saturating_add(passed);
        let expected = self.expected.iter().find(|(slice, _)| *slice == number);
        let expected = expected.map(|(_, object)| object.clone());
        let index = self.shards.indexed(slice.shard);
        let pieces = index.map(|index| index.pieces(slice.samples.clone(), GAP));
        let pieces = pieces.unwrap_or_else(|| vec![slice.samples.clone()]);
        let piece = |samples| {
            let samples = Slice { samples, ..slice };
            SlicePiece { slice: number, samples, passed: 0, expected: expected.clone() }
        };
        self.pieces.extend(pieces.into_iter().map(piece));
        let first = self.pieces.pop_front()?;
        Some(SlicePiece { passed, ..first })
    }

    /// Opens the shard of a slice at the slice's first byte, if that is known, or else at the beginning, and
    /// starts to fetch it. Also returns the number of following slices that should be open together with it.
    fn open(
        &self,
        slice: &Slice,
        passed: u64,
        expected: Option<ObjectVersion>,
    ) -> Result<(SliceSamples<Body>, Stopper, usize)> {
        let shards = &*self.shards;
        let (number, url) = shards.shard(slice.shard)?;
        let mut start = ParserStart::new(shards.limits);
        let (epoch, shard, dataset) = (self.epoch, number as u64, self.dataset);
        start.position = Position { epoch, shard, dataset, ..Position::default() };
        let index = shards.indexed(slice.shard);
        let samples = match index {
            // One sample is enough to check that this is the shard without a selected sample.
            Some(index) if index.samples() == 0 => 0..index.stored_samples().min(1),
            Some(index) => index.span(&slice.samples),
            None => slice.samples.clone(),
        };
        let slice = &Slice { samples: samples.clone(), ..*slice };
        let opening = OpeningSlice { shards, slice, url, queue: &self.queue, scattered: self.scattered };
        let SliceBody { body, parser, extent, wanted_ahead } = opening.open(start)?;
        let (object, stopper) = (body.object_cell(), body.stopper());
        let (epoch, url) = (self.versions.clone(), url.clone());
        let check = SliceCheck::new(slice, extent, index, &url);
        let check = check.after(passed).of(object, ExpectedObject { state: expected, epoch, url });
        let samples = SliceSamples::new(formats::read(body, parser), check.with_checksums(shards.checksums));
        Ok((samples, stopper, wanted_ahead))
    }
}
