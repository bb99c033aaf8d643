//! One side of one reader: finds the side's sample of a key, in the shard that is paired with the reader's or
//! where an index of keys says that it is.
//!
//! Whether a key is found depends on the shards alone, and not on what was asked for before, where the slice
//! begins or how much room the buffer has: these decide only how much is read, and how often.

use super::part::Part;
use super::reader::{Chunks, Reader, stream};
use super::side::{Joined, Missing};
use super::side_shard::{Again, Damage, SideShard, Via};
use super::stop::ReaderNumber;
use super::{Dataset, Stop, Versions};
use crate::error::{Error, ErrorKind, Result};
use crate::index::hash_of;
use crate::plan::Slice;
use crate::sample::Sample;
use crate::store::Body;
use bytestring::ByteString;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::task::{Poll, ready};

/// Bytes between two samples from which on they are skipped: a new request for what is behind them takes no
/// longer.
const GAP: u64 = 1 << 20;
/// The most names of fields whose names with the prefix are remembered.
const NAMES: usize = 1024;

/// The shards of a side, beside the slices of one reader.
pub(super) struct Pairing<C> {
    side: Arc<Joined>,
    epoch: u64,
    versions: Versions,
    face: fn(Body) -> C,
    stop: Option<(Stop, ReaderNumber)>,
    /// What is read of the side for each slice of the reader, in the same order.
    slices: Vec<Slice>,
    /// Reads them.
    main: Reader<C>,
    shard: SideShard<C>,
    /// Names of fields with the prefix.
    names: HashMap<ByteString, ByteString>,
}

/// What there is of a key.
pub(super) enum Found {
    Sample(Sample),
    Missing,
    /// It cannot be read.
    Failed(Error),
    /// Something is wrong with another sample, that was given before. Ask again.
    Other(Error),
}

impl Pairing<Body> {
    /// Another face of the same side. The shard that is read is begun again.
    pub(super) fn into_stream(self) -> Pairing<Chunks> {
        let (stop, slice) = (self.main.slices.stop.clone(), self.shard.slice);
        let mut pairing = Pairing::of(self.side, self.epoch, self.slices, &self.versions, stream);
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
    pub(super) fn new(
        side: Arc<Joined>,
        dataset: &Dataset,
        epoch: u64,
        slices: &[Slice],
        versions: &Versions,
        face: fn(Body) -> C,
    ) -> Self {
        // Where keys are is known without them.
        let slices = slices.iter().filter(|_| side.keys.is_none());
        let slices = slices.map(|slice| side.slice(dataset, slice)).collect();
        Pairing::of(side, epoch, slices, versions, face)
    }

    fn of(
        side: Arc<Joined>,
        epoch: u64,
        slices: Vec<Slice>,
        versions: &Versions,
        face: fn(Body) -> C,
    ) -> Self {
        Pairing {
            main: Reader::with_face(side.dataset.clone(), epoch, slices.clone(), versions, face),
            shard: SideShard::new(None, side.buffer_bytes),
            versions: versions.clone(),
            side,
            epoch,
            face,
            stop: None,
            slices,
            names: HashMap::new(),
        }
    }

    pub(super) fn stopped_by(&mut self, stop: &Stop, (reader, number): ReaderNumber) {
        self.main.slices.stop = Some((stop.clone(), (reader, number)));
        self.stop = Some((stop.clone(), (reader, number + 1)));
    }

    pub(super) fn missing(&self) -> Missing {
        self.side.missing
    }

    pub(super) fn is_in(&self, slice: usize) -> bool {
        self.side.keys.is_some() || self.shard.slice == Some(slice)
    }

    /// Goes to the shard of this slice of the reader, unless it is there.
    pub(super) fn enter(&mut self, slice: usize) {
        if self.is_in(slice) {
            return;
        }
        let paired = self.slices.get(slice);
        let mut shard = SideShard::new(paired.map(|slice| slice.shard), self.side.buffer_bytes);
        shard.slice = Some(slice);
        if let Some(Slice { shard: place, samples }) = paired {
            shard.main = Some(samples.start);
            // What follows the slice is read before what precedes it: it is taken from the end.
            let count = self.side.places(*place).unwrap_or(samples.end);
            let unread = [0..samples.start, samples.end..count].into_iter();
            shard.unread.extend(unread.filter(|range| !range.is_empty()));
        }
        self.shard = shard;
        self.main.go_to(slice);
    }

    /// Finds the sample of this key in the shard of the slice that was entered.
    pub(super) fn poll_find<F>(&mut self, key: &str, poll: &mut F) -> Poll<Found>
    where
        F: FnMut(&mut Part<C>) -> Poll<Option<Result<Sample>>>,
    {
        if let Some(keys) = &self.side.keys {
            let Some((place, _)) = keys.find(key) else { return Poll::Ready(Found::Missing) };
            if self.shard.place != Some(place) {
                self.shard = SideShard::new(Some(place), self.side.buffer_bytes);
            }
        }
        loop {
            if let Some(error) = self.shard.faults.remove(key) {
                return Poll::Ready(Found::Failed(error));
            }
            if let Some(sample) = self.shard.held.take(key) {
                self.shard.give(key);
                return Poll::Ready(Found::Sample(sample));
            }
            let Some(from) = self.source(key) else { return Poll::Ready(self.unfound(key)) };
            let item = ready!(self.poll_source(from, poll));
            if let Some(found) = self.admit(from, item, Some(key)) {
                return Poll::Ready(found);
            }
        }
    }

    /// Reads the shard to its end, where no index vouches for it, and says what is wrong with it.
    pub(super) fn poll_rest<F>(&mut self, poll: &mut F) -> Poll<Option<Error>>
    where
        F: FnMut(&mut Part<C>) -> Poll<Option<Result<Sample>>>,
    {
        if self.shard.place.is_some_and(|shard| self.side.places(shard).is_some()) {
            return Poll::Ready(None);
        }
        while self.shard.main.is_some() {
            let item = ready!(self.poll_source(Via::Main, poll));
            if let Some(Found::Other(error) | Found::Failed(error)) = self.admit(Via::Main, item, None) {
                return Poll::Ready(Some(error));
            }
        }
        Poll::Ready(self.shard.report())
    }

    fn poll_source<F>(&mut self, from: Via, poll: &mut F) -> Poll<Option<Result<Sample>>>
    where
        F: FnMut(&mut Part<C>) -> Poll<Option<Result<Sample>>>,
    {
        match (from, &mut self.shard.again) {
            (Via::Again, Some(again)) => again.reader.poll_next(poll),
            (Via::Again, None) => Poll::Ready(None),
            (Via::Main, _) => self.main.poll_next(poll),
        }
    }

    /// Where to read on for this key; none where all of the shard has been read, and it is not there.
    fn source(&mut self, key: &str) -> Option<Via> {
        if let Some(number) = self.number(key) {
            let again = self.shard.again.as_ref();
            let reaches = |again: &Again<C>| {
                (again.next..again.end).contains(&number) && !self.is_far(again.next, number)
            };
            if !again.is_some_and(reaches) {
                let places = self.shard.place.and_then(|shard| self.side.places(shard));
                let window = match again.filter(|again| again.end == number && !again.first) {
                    // More and more, as long as one follows another.
                    Some(again) => again.window.saturating_mul(2),
                    None if number == 0 => u64::MAX,
                    None => 1,
                };
                let end = |count: u64| number.saturating_add(window).min(count);
                self.leave_again();
                self.open_again(places.map_or(0..u64::MAX, |count| number..end(count)), false);
            }
            return Some(Via::Again);
        }
        if self.shard.main.is_some() {
            return Some(Via::Main);
        }
        if !self.shard.again.as_ref().is_some_and(|again| again.first) {
            let range = self.shard.unread.pop()?;
            self.open_again(range, true);
        }
        Some(Via::Again)
    }

    /// The number of the sample of this key in the shard, as far as it is known.
    fn number(&self, key: &str) -> Option<u64> {
        match &self.side.keys {
            Some(keys) => keys.find(key).map(|(_, number)| number),
            None => self.shard.seen.get(key).map(|(number, _)| *number),
        }
    }

    /// Takes in what was read, while this key is looked for. None where it is not settled what there is of
    /// it.
    fn admit(&mut self, from: Via, item: Option<Result<Sample>>, key: Option<&str>) -> Option<Found> {
        let first = self.shard.is_first(from);
        let Some(item) = item else { return self.ended(from, first, key) };
        let shard = &mut self.shard;
        let other = shard.settle(from);
        if first && let Some(kind) = shard.beyond(self.side.key_bytes) {
            let error = self.located(kind.into());
            self.shard.damaged(error);
            return other.map(Found::Other);
        }
        let sample = match item {
            Ok(sample) => sample,
            Err(error) => {
                shard.doubts[from as usize] = Some(error);
                return other.map(Found::Other);
            }
        };
        let number = match (from, &mut shard.again) {
            (Via::Again, Some(again)) => &mut again.next,
            _ => shard.main.get_or_insert_default(),
        };
        let at = *number;
        *number += 1;
        if first {
            shard.note(sample.shared_key(), at);
        }
        match other {
            None if key == Some(sample.key()) => {
                self.shard.held.reached(at);
                self.shard.give(sample.key());
                Some(Found::Sample(sample))
            }
            // Another sample is where this one should be.
            None if !first && key.is_some_and(|key| self.number(key) == Some(at)) => {
                let is_alike = |key| self.side.keys.is_some() && hash_of(key) == hash_of(sample.key());
                Some(if key.is_some_and(is_alike) { Found::Missing } else { self.gone() })
            }
            other => {
                self.shard.held.hold(at, sample);
                other.map(Found::Other)
            }
        }
    }

    /// What `from` reads has ended, while this key is looked for.
    fn ended(&mut self, from: Via, first: bool, key: Option<&str>) -> Option<Found> {
        let again = match from {
            Via::Main => {
                self.shard.main = None;
                None
            }
            Via::Again => self.shard.again.take(),
        };
        let stopped = || self.main.slices.is_stopped().then(|| ErrorKind::Stopped.into());
        let doubt = self.shard.doubts[from as usize].take().or_else(stopped);
        if !first {
            // What went wrong may be a sample before this one, which was read on the way: then this one is
            // read alone.
            let number = key.and_then(|key| self.number(key));
            if let (Some(number), Some(again)) = (number, again)
                && (again.end - again.window, again.end) != (number, number + 1)
                && self.shard.place.is_some_and(|shard| self.side.places(shard).is_some())
                && !self.main.slices.is_stopped()
            {
                self.open_again(number..number + 1, false);
                return None;
            }
            return Some(doubt.map_or_else(|| self.gone(), Found::Failed));
        }
        if let Some(error) = doubt {
            self.shard.damaged(error);
        }
        None
    }

    /// A sample that was there before is not found again.
    fn gone(&self) -> Found {
        let (then, now) = ("it had a sample of this key".into(), "it is not there".into());
        Found::Failed(self.located(ErrorKind::Stale { then, now }.into()))
    }

    /// What it means that a key is not in what was read of the shard.
    fn unfound(&mut self, key: &str) -> Found {
        if let Some(error) = self.shard.report() {
            return Found::Failed(error.with_key(key));
        }
        match self.shard.damage {
            Damage::None => Found::Missing,
            _ => Found::Failed(self.missing_sample(key, true)),
        }
    }

    pub(super) fn missing_sample(&self, key: &str, damaged: bool) -> Error {
        self.located(ErrorKind::MissingSample { damaged }.into()).with_key(key)
    }

    /// Adds the fields of the side.
    pub(super) fn merge(&mut self, sample: &mut Sample, found: Sample) -> Result<()> {
        let mut fields = found.into_fields();
        if let Some(prefix) = &self.side.prefix {
            for (name, _) in &mut fields {
                let prefixed = match self.names.get(name) {
                    Some(prefixed) => prefixed.clone(),
                    None => {
                        let prefixed = ByteString::from(format!("{prefix}{name}"));
                        if self.names.len() < NAMES {
                            self.names.insert(name.clone(), prefixed.clone());
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

    fn located(&self, error: Error) -> Error {
        match self.shard.place.and_then(|shard| self.side.dataset.shard(shard).ok()) {
            Some((_, url)) => error.in_shard(url),
            None => error,
        }
    }

    /// Whether so much lies between two samples that it is not worth while to read it.
    fn is_far(&self, next: u64, number: u64) -> bool {
        let index = self.shard.place.and_then(|shard| self.side.dataset.indexed(shard));
        let between = index.and_then(|index| index.range(next..number));
        between.is_some_and(|bytes| bytes.end - bytes.start >= GAP)
    }

    /// Reads these samples of the shard, `first` for the first time.
    fn open_again(&mut self, samples: Range<u64>, first: bool) {
        let Some(shard) = self.shard.place else { return };
        let (next, end) = (samples.start, samples.end);
        let window = end.saturating_sub(next);
        let slices = vec![Slice { shard, samples }];
        let dataset = self.side.dataset.clone();
        let mut reader = Reader::with_face(dataset, self.epoch, slices, &self.versions, self.face);
        reader.slices.stop.clone_from(&self.stop);
        self.shard.doubts[Via::Again as usize] = None;
        self.shard.again = Some(Again { reader, next, end, window, first });
    }

    /// What was to be read for the first time is read later.
    fn leave_again(&mut self) {
        if let Some(again) = self.shard.again.take().filter(|again| again.first && again.next < again.end) {
            self.shard.unread.push(again.next..again.end);
        }
    }
}

impl Joined {
    /// What is read of the side for a slice of the dataset: the same numbers, where an index says where they
    /// are, else the shard from its beginning.
    fn slice(&self, dataset: &Dataset, slice: &Slice) -> Slice {
        // A shard that is not there is an error when it is opened.
        let shard = dataset.shard(slice.shard).map_or(usize::MAX, |(number, _)| number);
        let Some(count) = self.places(shard) else {
            let all = self.dataset.indexed(shard).map_or(u64::MAX, |index| index.samples());
            return Slice { shard, samples: 0..all };
        };
        let samples = match dataset.indexed(slice.shard) {
            Some(index) => index.span(&slice.samples),
            None => slice.samples.clone(),
        };
        let samples = samples.start..samples.end.min(count);
        Slice { shard, samples: if samples.is_empty() { 0..count } else { samples } }
    }

    /// How many samples a shard has, where an index says where they are.
    fn places(&self, shard: usize) -> Option<u64> {
        let index = self.dataset.indexed(shard)?;
        let count = index.samples();
        index.range(0..count).map(|_| count)
    }
}
