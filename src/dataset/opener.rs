//! `Opener`: opens the slices of a stream, several of them ahead of the reader.
//!
//! **The invariants.**
//! - Slices are returned in the order of the plan. `ahead` holds the slices between `current` and `next`,
//!   which are open but not read yet. A slice that could not be opened is in `ahead` as an error, which is
//!   returned in its turn.
//! - The samples that a slice has returned are its first ones: a state contains their number, and a restore
//!   skips that number of samples (`passed`). So after an error in one piece of a slice, its other pieces are
//!   dropped.
//! - A shard that the reader of the current epoch still reads is not opened for the next epoch, because the
//!   shard may be replaced before the next epoch.
//!
//! The body of the slice that was opened last determines how many further slices are opened
//! (`wanted_ahead`): 16 if it is read from a network or a cache, where the budget limits the requests; none
//! for a local file. Example: there are the slices A to F, and each body wants two slices ahead. The first
//! call opens A, B and C and returns A. The second call opens D and returns B, whose bytes were requested in
//! the first call. When F is open, a reader of the next epoch may open its first slices.
//!
//! If a shard has a selection, its slices may be split into pieces. Each piece is read by its own request. A
//! slice is split between two selected samples if the unselected samples between them take [`GAP`] bytes or
//! more. For instance, the selected samples 0..80 of A become the pieces 0..40 and 40..80 if 1 MiB or more
//! lies between the samples 39 and 40. Pieces count as open slices, and have the number of their slice.
//!
//! If a shard has no selected samples, one of its samples is read to check that the shard is the one that the
//! index describes. Such shards (`empty`) are opened first.
//!
//! A restore reads small slices, scattered over the shards that were open. More slices are open at a time
//! than in a usual read ([`SliceBody::wanted_ahead`]). The reader of the rest of the pass
//! [follows](Opener::follow) the reader of these slices.

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

/// If the unselected samples between two selected samples take this number of bytes or more, a new request
/// skips them. Reading fewer bytes takes no longer than a new request.
const GAP: u64 = 1 << 20;

/// Opens the slices of a stream in order, several of them ahead of the reader.
#[derive(Debug)]
pub(super) struct Opener {
    shards: Arc<ShardSet>,
    epoch: u64,
    /// The number of the dataset, for the samples' positions.
    pub(super) dataset: u64,
    slices: Vec<Slice>,
    /// Slices from this number on are not returned.
    until: usize,
    /// Shards that are empty according to the index and were not checked yet.
    pub(super) empty: VecDeque<usize>,
    /// The versions of the shards that the readers of the epoch have read.
    versions: EpochVersions,
    /// Number of the slice that is being read.
    pub(super) current: usize,
    /// Number of the next slice to open.
    pub(super) next: usize,
    /// The open slices between `current` and `next`.
    ahead: VecDeque<OpenedSlice>,
    /// The `wanted_ahead` of the slice that was opened last.
    wanted_ahead: usize,
    /// The pieces of slice `next - 1` that are not opened yet.
    pieces: VecDeque<SlicePiece>,
    /// Whether the current slice consists of several pieces.
    in_pieces: bool,
    queue: ReadQueue,
    /// Whether another reader will [begin after](Self::begin_after) this one.
    pub(super) followed: bool,
    /// Whether the slices are small and scattered, so that waiting for a response takes longer than receiving
    /// its bytes.
    pub(super) scattered: bool,
    /// How many samples of the next slice are skipped, because they were consumed before a restore.
    pub(super) passed: u64,
    /// Pairs of the number of a slice and the object that the slice must be read from.
    pub(super) expected: Vec<(usize, ObjectVersion)>,
    /// The handle that ends the reading, and the number of this reader among the handle's readers.
    pub(super) stop: Option<(StopHandle, ReaderNumber)>,
    /// Reports the shard that is being read.
    pub(super) shard: CurrentShard,
    /// Whether an interruption of the reading thread was reported.
    interrupted: bool,
}

/// A piece of a slice: a range without large gaps between selected samples.
#[derive(Debug)]
struct SlicePiece {
    /// The number of the slice.
    slice: usize,
    samples: Slice,
    /// How many samples of the slice are skipped, because they were consumed before a restore.
    passed: u64,
    /// The object that the piece must be read from.
    expected: Option<ObjectVersion>,
}

#[derive(Debug)]
struct OpenedSlice {
    /// The number of the slice.
    slice: usize,
    /// Whether this is one of several pieces of the slice.
    is_piece: bool,
    samples: Result<(SliceSamples<Body>, Stopper)>,
    /// Number of following slices that should be open together with this one.
    wanted_ahead: usize,
}

/// The result of opening the shard of a slice.
struct OpenedShard {
    samples: SliceSamples<Body>,
    stopper: Stopper,
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

    /// Returns the next slice, or the next piece of a slice, and opens further slices ahead.
    pub(super) fn open_next(&mut self) -> Option<Result<SliceSamples<Body>>> {
        // After an interruption, the first call returns an error, because the samples are not complete. Later
        // calls return the end, for callers that continue after errors.
        if wait::is_interrupted() {
            let was_reported = std::mem::replace(&mut self.interrupted, true);
            return if was_reported { None } else { Some(Err(ErrorKind::Stopped.into())) };
        }
        // Opens further slices before the caller reads the next slice.
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

    /// Opens slices until the wanted number is open.
    pub(super) fn begin(&mut self) {
        while self.ahead.back().is_none_or(|last| self.ahead.len() <= last.wanted_ahead) && self.open_ahead()
        {
        }
    }

    /// Opens slices if all slices of `before` are open. `before` reads earlier samples of the same pass.
    pub(super) fn follow(&mut self, before: &Opener) {
        if before.has_more() {
            return;
        }
        if self.ahead.is_empty() {
            // The two readers share a queue, so that the bytes of `before` are requested first.
            self.queue = before.queue.clone();
        }
        self.begin();
    }

    /// Number of slices that the following reader may open now; 0 until all slices of this reader are open.
    pub(super) fn room_after(&self) -> usize {
        if self.has_more() { 0 } else { self.wanted_ahead.saturating_sub(self.ahead.len()) }
    }

    /// Whether there are slices, pieces or empty shards that are not open yet.
    fn has_more(&self) -> bool {
        self.next < self.slices.len() || !self.pieces.is_empty() || !self.empty.is_empty()
    }

    /// Opens slices of the next epoch while the current epoch is still being read. `before` opens the slices
    /// of the current epoch; its [`room_after`](Self::room_after) limits how many slices this opener opens.
    pub(super) fn begin_after(&mut self, before: &Opener) {
        if self.ahead.is_empty() {
            // The two readers share a queue, so that the bytes of `before` are requested first.
            self.queue = before.queue.clone();
        }
        while self.ahead.len() < before.room_after() && !self.is_next_read_by(before) && self.open_ahead() {}
    }

    /// Whether `other` still reads the shard of the next slice.
    fn is_next_read_by(&self, other: &Opener) -> bool {
        let Some(next) = self.slices.get(self.next) else { return false };
        let reads = |slice: usize| other.slices.get(slice).is_some_and(|slice| slice.shard == next.shard);
        reads(other.current) || other.ahead.iter().any(|opened| reads(opened.slice))
    }

    /// Skips to the slice with this number, and ends after it.
    pub(super) fn go_to(&mut self, slice: usize) {
        self.ahead.retain(|opened| opened.slice >= slice);
        self.pieces.retain(|piece| piece.slice >= slice);
        (self.next, self.until) = (self.next.max(slice), slice + 1);
    }

    /// Whether the current slice has ended and is the last slice of its shard.
    pub(super) fn ends_shard(&self) -> bool {
        let left = || self.ahead.iter().filter(|opened| opened.is_piece).map(|opened| opened.slice);
        let mut left = left().chain(self.pieces.iter().map(|piece| piece.slice));
        let Some(slice) = self.slices.get(self.current) else { return false };
        let last = self.shards.indexed(slice.shard).is_none_or(|index| slice.samples.end == index.samples());
        last && !left.any(|slice| slice == self.current)
    }

    /// Whether the reading was stopped or interrupted, so that the samples are not complete.
    pub(super) fn is_stopped(&self) -> bool {
        self.stop.as_ref().is_some_and(|(stop, _)| stop.is_stopped()) || wait::is_interrupted()
    }

    /// Drops the remaining pieces of the current slice, after an error in one piece.
    pub(super) fn leave_pieces(&mut self) {
        if self.in_pieces {
            let current = self.current;
            self.ahead.retain(|opened| !opened.is_piece || opened.slice != current);
            self.pieces.retain(|piece| piece.slice != current);
        }
    }

    /// Opens one more slice or piece. Returns false if there is none.
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
            Ok(OpenedShard { samples, stopper, wanted_ahead }) => (Ok((samples, stopper)), wanted_ahead),
            Err(error) => (Err(error), 0),
        };
        self.wanted_ahead = wanted_ahead;
        self.ahead.push_back(OpenedSlice { slice: number, is_piece, samples, wanted_ahead });
        true
    }

    /// The next slice, or its first piece. The other pieces are stored in `pieces`.
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

    /// Opens the shard of a slice and starts to fetch it: from the first byte of the slice if its offset is
    /// known, and otherwise from the beginning of the shard.
    fn open(&self, slice: &Slice, passed: u64, expected: Option<ObjectVersion>) -> Result<OpenedShard> {
        let shards = &*self.shards;
        let (number, url) = shards.shard(slice.shard)?;
        let mut start = ParserStart::new(shards.limits);
        let (epoch, shard, dataset) = (self.epoch, number as u64, self.dataset);
        start.position = Position { epoch, shard, dataset, ..Position::default() };
        let index = shards.indexed(slice.shard);
        let samples = match index {
            // One sample is enough to check that this is the shard that the index describes.
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
        Ok(OpenedShard { samples, stopper, wanted_ahead })
    }
}
