//! Which slice of a stream comes next, and opening its shard.

use super::current_shard::CurrentShard;
use super::shard_set::ShardSet;
use super::slice_check::{Expected, Extent, SliceCheck};
use super::slice_samples::SliceSamples;
use super::stop_handle::{ReaderNumber, StopHandle};
use super::versions::{EpochVersions, Versions};
use crate::error::{ErrorKind, Result};
use crate::index::ShardIndex;
use crate::plan::Slice;
use crate::store::{Body, Lane, ObjectVersion, Stopper};
use crate::tar::{self, SampleParser};
use crate::telemetry::log;
use crate::wait;
use std::collections::VecDeque;
use std::sync::Arc;

/// Bytes of samples that are not selected from which on they are skipped: a new request for what is behind
/// them takes no longer.
const GAP: u64 = 1 << 20;

/// Opens the slices of a stream one after the other, the next ones ahead.
#[derive(Debug)]
pub(super) struct Opener {
    shards: Arc<ShardSet>,
    epoch: u64,
    slices: Vec<Slice>,
    /// Slices from this number on are not given out yet.
    until: usize,
    /// Shards that should have no sample, which is yet to be seen.
    pub(super) empty: VecDeque<usize>,
    /// What the other readers of the epoch have found.
    versions: EpochVersions,
    /// The slice that is read, and the next one to be opened.
    pub(super) current: usize,
    pub(super) next: usize,
    /// Those between them.
    ahead: VecDeque<OpenedSlice>,
    /// How many should be opened with the one that was opened last.
    worth: usize,
    /// What is left to open of the slice before the next one, where it is read in pieces.
    pieces: VecDeque<SlicePiece>,
    /// Whether the slice that is read is one of these.
    in_pieces: bool,
    lane: Lane,
    /// Whether another reader will [begin behind](Self::begin_behind) this one.
    pub(super) followed: bool,
    /// How many samples of the next slice have been read before.
    pub(super) passed: u64,
    /// What the shards of these slices should be.
    pub(super) expected: Vec<(usize, ObjectVersion)>,
    /// What ends the reading, and which reader of the same `stop` this is.
    pub(super) stop: Option<(StopHandle, ReaderNumber)>,
    /// Is told which shard is read.
    pub(super) shard: CurrentShard,
    /// Whether it has been said that the thread which reads was interrupted.
    interrupted: bool,
}

/// A part of a slice, between samples that are not read.
#[derive(Debug)]
struct SlicePiece {
    slice: usize,
    samples: Slice,
    /// How many samples of the slice come before it, and have been read before.
    passed: u64,
    /// What the shard should be.
    expected: Option<ObjectVersion>,
}

#[derive(Debug)]
struct OpenedSlice {
    slice: usize,
    /// Whether it is one of several pieces of its slice.
    is_piece: bool,
    part: Result<(SliceSamples<Body>, Stopper)>,
    /// How many of the next ones should be opened with it.
    worth: usize,
}

impl Opener {
    pub(super) fn new(shards: Arc<ShardSet>, epoch: u64, slices: Vec<Slice>, versions: &Versions) -> Self {
        Opener {
            lane: shards.store.lane(versions.network()),
            versions: versions.of(epoch),
            shards,
            epoch,
            slices,
            until: usize::MAX,
            empty: VecDeque::new(),
            current: 0,
            next: 0,
            ahead: VecDeque::new(),
            worth: 0,
            pieces: VecDeque::new(),
            in_pieces: false,
            followed: false,
            passed: 0,
            expected: Vec::new(),
            stop: None,
            shard: CurrentShard::default(),
            interrupted: false,
        }
    }

    /// Opens the next slice, or piece of one.
    pub(super) fn open_next(&mut self) -> Option<Result<SliceSamples<Body>>> {
        // An error first: what has been read is not all. Then the end, for those who continue after errors.
        if wait::is_interrupted() {
            let known = std::mem::replace(&mut self.interrupted, true);
            return (!known).then(|| Err(ErrorKind::Stopped.into()));
        }
        // The next ones begin now, and not when this one has been read.
        while self.ahead.back().is_none_or(|last| self.ahead.len() <= last.worth) && self.open_ahead() {}
        if self.ahead.front()?.slice >= self.until {
            return None;
        }
        let OpenedSlice { slice, is_piece, part, .. } = self.ahead.pop_front()?;
        (self.current, self.in_pieces) = (slice, is_piece);
        if let Some(Ok((_, url))) = self.slices.get(slice).map(|slice| self.shards.shard(slice.shard)) {
            self.shard.set(url);
            log!(DEBUG, "a shard is being read", shard = url, epoch = self.epoch);
        }
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

    /// How many slices of whatever is read after these may be opened now: all of these have been.
    pub(super) fn room_behind(&self) -> usize {
        if self.has_more() { 0 } else { self.worth.saturating_sub(self.ahead.len()) }
    }

    /// Whether anything is left to be opened.
    fn has_more(&self) -> bool {
        self.next < self.slices.len() || !self.pieces.is_empty() || !self.empty.is_empty()
    }

    /// Begins while `before` is still being read, with as many slices as `before` has room for.
    pub(super) fn begin_behind(&mut self, before: &Opener) {
        if self.ahead.is_empty() {
            // Whatever `before` reads is asked for first.
            self.lane = before.lane.clone();
        }
        while self.ahead.len() < before.room_behind() && !self.is_next_read_by(before) && self.open_ahead() {}
    }

    /// Whether `other` is not done with the shard that comes next. It is opened again when it is: until then
    /// it may be replaced.
    fn is_next_read_by(&self, other: &Opener) -> bool {
        let Some(next) = self.slices.get(self.next) else { return false };
        let reads = |slice: usize| other.slices.get(slice).is_some_and(|slice| slice.shard == next.shard);
        reads(other.current) || other.ahead.iter().any(|opened| reads(opened.slice))
    }

    /// Goes to the slice of this number, past those before it, and ends where it does.
    pub(super) fn go_to(&mut self, slice: usize) {
        self.ahead.retain(|opened| opened.slice >= slice);
        self.pieces.retain(|piece| piece.slice >= slice);
        (self.next, self.until) = (self.next.max(slice), slice + 1);
    }

    /// Whether the slice that is read ends here, and its shard with it.
    pub(super) fn ends_shard(&self) -> bool {
        let left = || self.ahead.iter().filter(|opened| opened.is_piece).map(|opened| opened.slice);
        let mut left = left().chain(self.pieces.iter().map(|piece| piece.slice));
        let Some(slice) = self.slices.get(self.current) else { return false };
        let last = self.shards.indexed(slice.shard).is_none_or(|index| slice.samples.end == index.samples());
        last && !left.any(|slice| slice == self.current)
    }

    /// Whether the reading was ended from outside, so that what has been read is not all.
    pub(super) fn is_stopped(&self) -> bool {
        self.stop.as_ref().is_some_and(|(stop, _)| stop.is_stopped()) || wait::is_interrupted()
    }

    /// After an error in one piece of a slice, no other piece of it is read, as nothing is that comes after
    /// an error in a slice of one piece: the samples that a slice has given are always its first ones.
    pub(super) fn leave_pieces(&mut self) {
        if self.in_pieces {
            let current = self.current;
            self.ahead.retain(|opened| !opened.is_piece || opened.slice != current);
            self.pieces.retain(|piece| piece.slice != current);
        }
    }

    /// Opens one more slice, or piece of one. False when there is none.
    fn open_ahead(&mut self) -> bool {
        let looked = self.empty.pop_front().map(|shard| Slice { samples: 0..0, ..Slice::whole(shard) });
        let (SlicePiece { slice: number, samples: slice, passed, expected }, is_piece) = match looked {
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
        self.lane.expect(if self.followed { u64::MAX } else { left as u64 });
        let (part, worth) = match self.open(&slice, passed, expected) {
            Ok((part, stopper, worth)) => (Ok((part, stopper)), worth),
            Err(error) => (Err(error), 0),
        };
        self.worth = worth;
        self.ahead.push_back(OpenedSlice { slice: number, is_piece, part, worth });
        true
    }

    /// The next slice, or the first piece of it: the others are left.
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

    /// Opens the shard of a slice: there where the slice begins, if that is known, or at its beginning.
    /// Its bytes begin to come; says how many of the next ones should be opened with it.
    fn open(
        &self,
        slice: &Slice,
        passed: u64,
        expected: Option<ObjectVersion>,
    ) -> Result<(SliceSamples<Body>, Stopper, usize)> {
        let shards = &*self.shards;
        let (number, url) = shards.shard(slice.shard)?;
        let parser = SampleParser::new(url).at(self.epoch, number as u64).with_limits(shards.limits);
        let index = shards.indexed(slice.shard);
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
                (shards.store.open_in(&self.lane, url.expose_secret())?, parser, Extent::Shard(samples.start))
            }
            Some((index, range)) => {
                let parser = parser.starting(samples.start, range.start);
                let parser = if samples.end < index.stored_samples() { parser.cut() } else { parser };
                (shards.store.open_range_in(&self.lane, url.expose_secret(), range)?, parser, Extent::Slice)
            }
        };
        let (object, stopper, worth) = (body.object_cell(), body.stopper(), body.begin());
        let known = index.map(|index| index.object_at(url.expose_secret()));
        let (epoch, url) = (self.versions.clone(), url.clone());
        let check = SliceCheck::new(slice, extent, index, &url);
        let check = check.after(passed).of(object, Expected { state: expected, index: known, epoch, url });
        let part = SliceSamples::new(tar::read(body, parser), check.with_checksums(shards.checksums));
        Ok((part, stopper, worth))
    }
}
