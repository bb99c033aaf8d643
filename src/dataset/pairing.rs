//! `Pairing`: looks up samples of a side dataset by key, for one reader of the main dataset. It searches the
//! side's shard that is paired with the reader's shard, or uses an index of keys.
//!
//! Whether a key is found depends only on the shards. Earlier look-ups, the beginning of the slice and the
//! size of the buffer only determine how much is read, and how often.

use super::shard_set::ShardSet;
use super::side::{Missing, ResolvedSide};
use super::side_shard::{Damage, RangeReader, SideReader, SideShard};
use super::slice_reader::{BodyStream, SliceReader, body_stream};
use super::slice_samples::SliceSamples;
use super::stop_handle::{ReaderNumber, StopHandle};
use super::versions::Versions;
use crate::error::{Error, ErrorKind, Result};
use crate::index::{KeyIndex, hash_of};
use crate::plan::Slice;
use crate::sample::Sample;
use crate::store::Body;
use bytestring::ByteString;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::task::{Poll, ready};

/// A gap of this number of bytes or more between two samples is skipped by a new request. Reading a smaller
/// gap takes no longer than a new request.
const GAP: u64 = 1 << 20;
/// Maximum number of field names whose prefixed names are cached.
const MAX_NAMES: usize = 1024;

/// Reads a side dataset for one reader of the main dataset. Without an index of keys, it reads only the
/// shards that are paired with the shards of the reader's slices.
pub(super) struct Pairing<C> {
    side: Arc<ResolvedSide>,
    epoch: u64,
    versions: Versions,
    convert: fn(Body) -> C,
    /// Ends the range reader.
    stop: Option<(StopHandle, ReaderNumber)>,
    /// The slice of the side for each slice of the reader, in the same order.
    slices: Vec<Slice>,
    /// Reads `slices`.
    main: SliceReader<C>,
    /// The current shard of the side.
    shard: SideShard<C>,
    /// Field names and their prefixed names.
    prefixed: HashMap<ByteString, ByteString>,
}

/// The result of looking up a key.
pub(super) enum KeyMatch {
    Sample(Sample),
    Missing,
    /// The sample cannot be read.
    Failed(Error),
    /// Another sample, which was returned before, turned out to be damaged. The key must be looked up again.
    OtherFailed(Error),
}

impl Pairing<Body> {
    /// The same pairing, read asynchronously. The current shard is read from its beginning again.
    pub(super) fn into_stream(self) -> Pairing<BodyStream> {
        let (stop, slice) = (self.main.opener.stop.clone(), self.shard.slice);
        let mut pairing =
            Pairing::with_slices(self.side, self.epoch, self.slices, &self.versions, body_stream);
        if let Some((stop, number)) = stop {
            pairing.stopped_by(&stop, number);
        }
        if let Some(slice) = slice {
            pairing.enter(slice);
        }
        pairing
    }
}

impl<C> Pairing<C> {
    /// `slices` are the slices of the reader, and `shards` the shards of the dataset.
    pub(super) fn new(
        side: Arc<ResolvedSide>,
        shards: &ShardSet,
        epoch: u64,
        slices: &[Slice],
        versions: &Versions,
        convert: fn(Body) -> C,
    ) -> Self {
        // With an index of keys, shards are not paired, so no slice of the side belongs to a slice of the
        // reader.
        let slices = slices.iter().filter(|_| side.keys.is_none());
        let slices = slices.map(|slice| side.slice(shards, slice)).collect();
        Pairing::with_slices(side, epoch, slices, versions, convert)
    }

    fn with_slices(
        side: Arc<ResolvedSide>,
        epoch: u64,
        slices: Vec<Slice>,
        versions: &Versions,
        convert: fn(Body) -> C,
    ) -> Self {
        Pairing {
            main: SliceReader::new(Arc::clone(&side.shards), epoch, slices.clone(), versions, convert),
            shard: SideShard::new(None, side.buffer_bytes),
            versions: versions.clone(),
            side,
            epoch,
            convert,
            stop: None,
            slices,
            prefixed: HashMap::new(),
        }
    }

    /// Lets `stop` end the main reader, which gets this number, and the range reader, which gets the next
    /// number.
    pub(super) fn stopped_by(&mut self, stop: &StopHandle, number: ReaderNumber) {
        self.main.opener.stop = Some((stop.clone(), number));
        self.stop = Some((stop.clone(), ReaderNumber { part: number.part + 1, ..number }));
    }

    pub(super) fn missing(&self) -> Missing {
        self.side.missing
    }

    pub(super) fn is_in(&self, slice: usize) -> bool {
        self.side.keys.is_some() || self.shard.slice == Some(slice)
    }

    /// Moves to the side's shard for this slice of the reader, unless that shard is already the current
    /// shard.
    pub(super) fn enter(&mut self, slice: usize) {
        if self.is_in(slice) {
            return;
        }
        let paired = self.slices.get(slice);
        let mut shard = SideShard::new(paired.map(|slice| slice.shard), self.side.buffer_bytes);
        shard.slice = Some(slice);
        if let Some(Slice { shard: number, samples }) = paired {
            shard.main = Some(samples.start);
            // Ranges are popped from the end of `unread`. Therefore, the samples that follow the slice are
            // read first, then those that precede the slice.
            let count = self.side.located_samples(*number).unwrap_or(samples.end);
            let unread = [0..samples.start, samples.end..count].into_iter();
            shard.unread.extend(unread.filter(|range| !range.is_empty()));
        }
        self.shard = shard;
        self.main.go_to(slice);
    }

    /// Looks up the sample with this key in the current shard.
    pub(super) fn poll_find<F>(&mut self, key: &str, poll: &mut F) -> Poll<KeyMatch>
    where
        F: FnMut(&mut SliceSamples<C>) -> Poll<Option<Result<Sample>>>,
    {
        if let Some(keys) = &self.side.keys {
            let Some((shard, _)) = only(keys, key) else { return Poll::Ready(KeyMatch::Missing) };
            if self.shard.number != Some(shard) {
                self.shard = SideShard::new(Some(shard), self.side.buffer_bytes);
            }
        }
        loop {
            if let Some(error) = self.shard.faults.remove(key) {
                return Poll::Ready(KeyMatch::Failed(error));
            }
            if let Some(sample) = self.shard.buffer.take(key) {
                self.shard.mark_returned(key);
                return Poll::Ready(KeyMatch::Sample(sample));
            }
            let Some(from) = self.reader_for(key) else { return Poll::Ready(self.not_found(key)) };
            let item = ready!(self.poll_reader(from, poll));
            if let Some(found) = self.admit(from, item, Some(key)) {
                return Poll::Ready(found);
            }
        }
    }

    /// Reads the shard to its end, unless an index has the offsets of its samples. Returns the next error.
    pub(super) fn poll_rest<F>(&mut self, poll: &mut F) -> Poll<Option<Error>>
    where
        F: FnMut(&mut SliceSamples<C>) -> Poll<Option<Result<Sample>>>,
    {
        if self.shard.number.is_some_and(|shard| self.side.located_samples(shard).is_some()) {
            return Poll::Ready(None);
        }
        while self.shard.main.is_some() {
            let item = ready!(self.poll_reader(SideReader::Main, poll));
            let found = self.admit(SideReader::Main, item, None);
            if let Some(KeyMatch::OtherFailed(error) | KeyMatch::Failed(error)) = found {
                return Poll::Ready(Some(error));
            }
        }
        Poll::Ready(self.shard.report())
    }

    fn poll_reader<F>(&mut self, from: SideReader, poll: &mut F) -> Poll<Option<Result<Sample>>>
    where
        F: FnMut(&mut SliceSamples<C>) -> Poll<Option<Result<Sample>>>,
    {
        match (from, &mut self.shard.range) {
            (SideReader::Range, Some(range)) => range.reader.poll_sample(poll),
            (SideReader::Range, None) => Poll::Ready(None),
            (SideReader::Main, _) => self.main.poll_sample(poll),
        }
    }

    /// The reader to read next in search of this key; `None` if the whole shard was read without finding the
    /// key.
    fn reader_for(&mut self, key: &str) -> Option<SideReader> {
        if let Some(number) = self.number(key) {
            let range = self.shard.range.as_ref();
            let reaches = |range: &RangeReader<C>| {
                (range.next..range.end).contains(&number) && !self.is_far(range.next, number)
            };
            if !range.is_some_and(reaches) {
                let count = self.shard.number.and_then(|shard| self.side.located_samples(shard));
                let window = match range.filter(|range| range.end == number && !range.first) {
                    // This range begins where the previous range ended, so its window is twice as large.
                    Some(range) => range.window.saturating_mul(2),
                    None if number == 0 => u64::MAX,
                    None => 1,
                };
                let end = |count: u64| number.saturating_add(window).min(count);
                self.close_range();
                self.open_range(count.map_or(0..u64::MAX, |count| number..end(count)), false);
            }
            return Some(SideReader::Range);
        }
        if self.shard.main.is_some() {
            return Some(SideReader::Main);
        }
        if !self.shard.range.as_ref().is_some_and(|range| range.first) {
            let unread = self.shard.unread.pop()?;
            self.open_range(unread, true);
        }
        Some(SideReader::Range)
    }

    /// The number of the sample with this key in the current shard, if it is known.
    fn number(&self, key: &str) -> Option<u64> {
        match &self.side.keys {
            Some(keys) => only(keys, key).map(|(_, number)| number),
            None => self.shard.seen.get(key).map(|(number, _)| *number),
        }
    }

    /// Handles the next item of the reader `from`. `key` is the key that is being looked up, if there is one.
    /// Returns `None` if the look-up must continue with the next item.
    fn admit(
        &mut self,
        from: SideReader,
        item: Option<Result<Sample>>,
        key: Option<&str>,
    ) -> Option<KeyMatch> {
        let first = self.shard.is_first(from);
        let Some(item) = item else { return self.ended(from, first, key) };
        let shard = &mut self.shard;
        let other = shard.settle(from);
        if first && let Some(kind) = shard.too_many_keys(self.side.key_bytes) {
            let error = self.located(kind.into());
            self.shard.set_damaged(error);
            return other.map(KeyMatch::OtherFailed);
        }
        let sample = match item {
            Ok(sample) => sample,
            Err(error) => {
                shard.last_errors[from as usize] = Some(error);
                return other.map(KeyMatch::OtherFailed);
            }
        };
        let next = match (from, &mut shard.range) {
            (SideReader::Range, Some(range)) => &mut range.next,
            _ => shard.main.get_or_insert_default(),
        };
        let number = *next;
        *next += 1;
        if first && !shard.note(sample.shared_key(), number) {
            let kind = ErrorKind::Format("a key occurs twice in this shard of a side".into());
            let error = self.located(kind.into()).with_key(sample.key());
            self.shard.set_damaged(error);
            return other.map(KeyMatch::OtherFailed);
        }
        match other {
            None if key == Some(sample.key()) => {
                self.shard.buffer.reached(number);
                self.shard.mark_returned(sample.key());
                Some(KeyMatch::Sample(sample))
            }
            // At this number, the sample with the requested key was expected, but the sample has another key.
            None if !first && key.is_some_and(|key| self.number(key) == Some(number)) => {
                let is_collision = |key| self.side.keys.is_some() && hash_of(key) == hash_of(sample.key());
                Some(if key.is_some_and(is_collision) { KeyMatch::Missing } else { self.gone() })
            }
            other => {
                self.shard.buffer.insert(number, sample);
                other.map(KeyMatch::OtherFailed)
            }
        }
    }

    /// Called when the reader `from` has ended. `key` is the key that is being looked up, if there is one.
    fn ended(&mut self, from: SideReader, first: bool, key: Option<&str>) -> Option<KeyMatch> {
        let range = match from {
            SideReader::Main => {
                self.shard.main = None;
                None
            }
            SideReader::Range => self.shard.range.take(),
        };
        let stopped = || self.main.opener.is_stopped().then(|| ErrorKind::Stopped.into());
        let error = self.shard.last_errors[from as usize].take().or_else(stopped);
        if !first {
            // The error may belong to an earlier sample in the range, so the sample with this key is read
            // alone.
            let number = key.and_then(|key| self.number(key));
            if let (Some(number), Some(range)) = (number, range)
                && (range.end - range.window, range.end) != (number, number + 1)
                && self.shard.number.is_some_and(|shard| self.side.located_samples(shard).is_some())
                && !self.main.opener.is_stopped()
            {
                self.open_range(number..number + 1, false);
                return None;
            }
            return Some(error.map_or_else(|| self.gone(), KeyMatch::Failed));
        }
        if let Some(error) = error {
            self.shard.set_damaged(error);
        }
        None
    }

    /// The result for a sample that was read before and is not found again.
    fn gone(&self) -> KeyMatch {
        let (then, now) = ("it had a sample with this key".into(), "it has none".into());
        KeyMatch::Failed(self.located(ErrorKind::Stale { then, now }.into()))
    }

    /// The result for a key that was not found in the whole shard.
    fn not_found(&mut self, key: &str) -> KeyMatch {
        if let Some(error) = self.shard.report() {
            return KeyMatch::Failed(error.with_key(key));
        }
        match self.shard.damage {
            Damage::None => KeyMatch::Missing,
            _ => KeyMatch::Failed(self.missing_sample(key, true)),
        }
    }

    pub(super) fn missing_sample(&self, key: &str, damaged: bool) -> Error {
        self.located(ErrorKind::MissingSample { damaged }.into()).with_key(key)
    }

    /// Adds the fields of the side's sample to `sample`.
    pub(super) fn merge(&mut self, sample: &mut Sample, found: Sample) -> Result<()> {
        let mut fields = found.into_fields();
        if let Some(prefix) = &self.side.prefix {
            for (name, _) in &mut fields {
                let prefixed = match self.prefixed.get(name) {
                    Some(prefixed) => prefixed.clone(),
                    None => {
                        let prefixed = ByteString::from(format!("{prefix}{name}"));
                        if self.prefixed.len() < MAX_NAMES {
                            self.prefixed.insert(name.clone(), prefixed.clone());
                        }
                        prefixed
                    }
                };
                *name = prefixed;
            }
        }
        sample.join(fields).map_err(|field| {
            self.located(ErrorKind::FieldConflict { field: field.into() }.into()).with_key(sample.key())
        })
    }

    /// Adds the side's shard to an error.
    fn located(&self, error: Error) -> Error {
        match self.shard.number.and_then(|shard| self.side.shards.shard(shard).ok()) {
            Some((_, url)) => error.in_shard(url),
            None => error,
        }
    }

    /// Whether the gap between two samples is so large that a new request skips it.
    fn is_far(&self, next: u64, number: u64) -> bool {
        let index = self.shard.number.and_then(|shard| self.side.shards.indexed(shard));
        let between = index.and_then(|index| index.range(next..number));
        between.is_some_and(|bytes| bytes.end - bytes.start >= GAP)
    }

    /// Opens the range reader for these samples. `first` says whether they are read for the first time.
    fn open_range(&mut self, samples: Range<u64>, first: bool) {
        let Some(shard) = self.shard.number else { return };
        let (next, end) = (samples.start, samples.end);
        let window = end.saturating_sub(next);
        let slices = vec![Slice { shard, samples }];
        let shards = Arc::clone(&self.side.shards);
        let mut reader = SliceReader::new(shards, self.epoch, slices, &self.versions, self.convert);
        reader.opener.stop.clone_from(&self.stop);
        self.shard.last_errors[SideReader::Range as usize] = None;
        self.shard.range = Some(RangeReader { reader, next, end, window, first });
    }

    /// Closes the range reader. Samples that it should have read for the first time become unread again.
    fn close_range(&mut self) {
        if let Some(range) = self.shard.range.take().filter(|range| range.first && range.next < range.end) {
            self.shard.unread.push(range.next..range.end);
        }
    }
}

/// The shard and the number of the sample whose key has the same hash as `key`. `keys` must be a
/// [unique](KeyIndex::unique) index: no two of its keys have the same hash, and a look-up cannot fail because
/// the index is in memory.
fn only(keys: &KeyIndex, key: &str) -> Option<(usize, u64)> {
    keys.find(key).ok()?.into_iter().next()
}
