//! From events to batches, each with the state as of its last item.

use super::make::{Items, Judge, Make};
use crate::adapters::catch;
use crate::error::{Error, ErrorKind, Result};
use crate::loader::event::{Cut, Event, Fault, From, Replay, Tag};
use crate::loader::policy::{Counts, OnError, Verdict};
use crate::loader::report::Fill;
use crate::sample::Position;
use crate::state::{EpochRange, JobHeader, PartialInput, Reached, State, StreamState};
use crate::telemetry::{count, log};
use std::collections::HashMap;
use std::sync::Arc;

/// Clones an item, where the last batches are padded.
pub(in crate::loader) type Pad<T> = Option<fn(&T) -> T>;

/// Reads the first item of the epoch again that can be made, and has room in this shape where there are
/// several: none where there is none.
pub(in crate::loader) type First<T> = Box<dyn FnMut(Option<usize>) -> Option<Result<T>> + Send>;

/// What a run gives: its batches, and its end, which is not said where it breaks off.
pub(in crate::loader) enum Given<B> {
    /// With how many items it has, how much of all batches so far is used, and where the job is after it.
    Batch(B, (usize, Fill), State),
    /// With where the job is then, where that is not as of the last batch: samples may have failed behind
    /// it.
    End(Option<State>),
}

/// Collects batches.
pub(in crate::loader) struct Collect<I, T, B> {
    events: I,
    pad: Pad<T>,
    items: Vec<T>,
    /// Where they come from, of batches that may fail in parts.
    from: Vec<From>,
    /// How many items the last batch had, to reserve room for as many.
    expected: usize,
    /// The first item of the epoch, where a batch had nothing else to be padded with: not the last item of
    /// the batch before, which a job that resumes after a stop does not have.
    spares: HashMap<Option<usize>, Option<T>>,
    first: First<T>,
    make: Make<T, B>,
    progress: Progress,
    policy: Arc<OnError>,
    ended: bool,
}

impl<I, T, B> Collect<I, T, B> {
    pub(in crate::loader) fn new(
        events: I,
        pad: Pad<T>,
        first: First<T>,
        make: Make<T, B>,
        (progress, policy): (Progress, Arc<OnError>),
    ) -> Self {
        let (items, from, expected, spares, ended) = (Vec::new(), Vec::new(), 0, HashMap::new(), false);
        Collect { events, pad, items, from, expected, spares, first, make, progress, policy, ended }
    }

    /// Makes a batch of what has been collected, which may be nothing.
    fn cut(&mut self, cut: Cut) -> Result<Given<B>> {
        let mut items = std::mem::take(&mut self.items);
        let (valid, from) = (items.len(), std::mem::take(&mut self.from));
        self.expected = valid;
        self.progress.batches += 1;
        if let Some(clone) = self.pad
            && valid < cut.size
        {
            if valid == 0 && !self.spares.contains_key(&cut.bucket) {
                let found = (self.first)(cut.bucket).transpose()?;
                self.spares.insert(cut.bucket, found);
            }
            let spare = || self.spares.get(&cut.bucket).and_then(Option::as_ref);
            let Some(spare) = items.last().or_else(spare).map(clone) else {
                let what = "there is no sample to pad a batch with: none is left of the epoch".into();
                return Err(ErrorKind::Config(what).into());
            };
            items.resize_with(cut.size, || clone(&spare));
        }
        let (len, items) = (items.len(), Items { items, valid, size: cut.size, bucket: cut.bucket, from });
        let mut late = Late { progress: &mut self.progress, policy: &self.policy };
        // Columns of the caller's own may have a say in it.
        let batch = catch(|| (self.make.batch)(items, &mut late)).and_then(|batch| batch);
        let batch = batch.inspect_err(|_| {
            // The samples of a batch that fails in parts are lost with it: only a restore gives them again.
            self.ended = self.make.adopt.is_some();
        })?;
        let state = self.progress.state();
        Ok(Given::Batch(batch, (len, self.progress.fill), state))
    }

    /// What happens to a failure: an error to be given out, or none.
    fn judge(&mut self, fault: Fault) -> Option<Error> {
        let counts = self.progress.fault(&fault)?;
        match self.policy.judge(fault.error, counts) {
            Verdict::Skip(error) => {
                self.progress.skip(&fault.from, &error);
                None
            }
            Verdict::Stop(error) => {
                // Beyond a limit nothing is to be expected but more of the same.
                self.ended = matches!(error.kind(), ErrorKind::TooManySkipped { .. });
                Some(error)
            }
        }
    }
}

impl<T, B, I: Iterator<Item = Event<T>>> Iterator for Collect<I, T, B> {
    type Item = Result<Given<B>>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.ended {
            match self.events.next() {
                Some(Event::Item(tag, item)) => {
                    if self.items.is_empty() {
                        self.items.reserve_exact(self.expected.min(MAX_RESERVED));
                    }
                    match self.make.adopt {
                        Some(adopt) => {
                            self.from.push(tag.from);
                            self.items.push(adopt(&tag, item));
                        }
                        None => self.items.push(item),
                    }
                    self.progress.pass(tag);
                }
                Some(Event::Empty(tag)) => self.progress.pass_empty(tag),
                Some(Event::Fault(fault)) => {
                    if let Some(error) = self.judge(fault) {
                        return Some(Err(error));
                    }
                }
                Some(Event::Fatal(error)) => {
                    self.ended = true;
                    return Some(Err(error));
                }
                Some(Event::Cut(cut)) => {
                    self.progress.cut(cut.slots, self.pad.is_some());
                    return Some(self.cut(cut));
                }
                None => {
                    self.ended = true;
                    // Items that fill no batch are left out, with all between them.
                    let state = self.items.is_empty().then(|| self.progress.state());
                    return Some(Ok(Given::End(state)));
                }
            }
        }
        None
    }
}

/// What happens to items that fail while their batch is made.
struct Late<'a> {
    progress: &'a mut Progress,
    policy: &'a OnError,
}

impl Judge for Late<'_> {
    fn failed(&mut self, from: &From, error: Error) -> Result<()> {
        let in_a_row = self.progress.late_in_a_row;
        self.progress.late_in_a_row += 1;
        match self.policy.judge(error, Counts { in_a_row, ..self.progress.counts() }) {
            Verdict::Skip(error) => {
                self.progress.skip(from, &error);
                Ok(())
            }
            Verdict::Stop(error) => Err(error),
        }
    }

    fn passed(&mut self) {
        self.progress.late_in_a_row = 0;
    }

    fn state(&self) -> State {
        self.progress.state()
    }
}

/// More is not reserved ahead of the items, however large the batches are to be.
const MAX_RESERVED: usize = 1024;

/// How far the rank's streams have been consumed.
#[derive(Debug, Clone)]
pub(in crate::loader) struct Progress {
    header: Arc<JobHeader>,
    /// How many streams of each dataset the rank has.
    lanes: usize,
    /// Which places of the job's sequence have been passed.
    reached: Reached,
    /// How many batches were given out.
    batches: u64,
    /// By dataset and lane.
    streams: Vec<StreamState>,
    /// For each of them how many failures come again that were counted before a restore.
    known: Vec<u64>,
    /// For each of them how many failures there were since its last item.
    in_a_row: Vec<u64>,
    /// By lane, how many items the batch has.
    items: Vec<u64>,
    /// What the index promises, where places that stay empty are filled.
    promised: Option<Promised>,
    /// How much of the items is used, and how much room they have, as a stage with a memory counts it.
    fill: Fill,
    /// How many samples failed in a row while their batch was made.
    late_in_a_row: u64,
}

/// What an index promises of an epoch.
#[derive(Debug, Clone)]
pub(in crate::loader) struct Promised {
    /// How many items each stream of the job has.
    pub(in crate::loader) lengths: Arc<[u64]>,
    /// How many passes of each dataset there are.
    pub(in crate::loader) passes: Arc<[u64]>,
}

impl Promised {
    /// How many places from `start` on and before `end` have an item of this stream.
    fn places(&self, stream: usize, start: u64, end: u64) -> u64 {
        let count = self.lengths.len() as u64;
        let length = self.lengths.get(stream).copied().unwrap_or_default();
        let before = |place: u64| place.saturating_sub(stream as u64).div_ceil(count.max(1)).min(length);
        before(end).saturating_sub(before(start))
    }
}

impl Progress {
    pub(in crate::loader) fn new(
        header: Arc<JobHeader>,
        (reached, batches): (Reached, u64),
        lanes: usize,
        streams: Vec<StreamState>,
    ) -> Self {
        let known = streams.iter().map(|stream| stream.skips).collect();
        // Of those since an earlier item it is not known how many were the last.
        let since = |at: &StreamState| if at.again == 0 { at.skips } else { 0 };
        let in_a_row = streams.iter().map(since).collect();
        let items = vec![0; lanes];
        let (promised, fill, late_in_a_row) = (None, Fill::default(), 0);
        Progress {
            header,
            lanes,
            reached,
            batches,
            streams,
            known,
            in_a_row,
            items,
            promised,
            fill,
            late_in_a_row,
        }
    }

    /// Counts in the ledger what fills places that should have had an item.
    pub(in crate::loader) fn promised(self, promised: Option<Promised>) -> Self {
        Progress { promised, ..self }
    }

    /// A batch ends, which is padded where it has not enough items.
    fn cut(&mut self, slots: u64, padded: bool) {
        if let Some(promised) = self.promised.as_ref().filter(|_| padded) {
            for (stream, items) in self.streams.iter_mut().zip(&self.items) {
                let places = promised.places(stream.stream, self.reached.slots, slots);
                stream.ledger.pad(places.saturating_sub(*items));
            }
        }
        self.items.fill(0);
        self.reached = self.reached.at(slots);
    }

    /// The state as of the last batch.
    pub(in crate::loader) fn state(&self) -> State {
        State::new(Arc::clone(&self.header), self.reached, self.batches, self.streams.as_slice().into())
    }

    /// Takes note of an item that is being consumed.
    fn pass(&mut self, mut tag: Tag) {
        self.reach(&mut tag);
        let number = tag.from.dataset * self.lanes + tag.from.lane;
        let Some(stream) = self.streams.get_mut(number) else { return };
        self.items[tag.from.lane] += 1;
        if let Some(promised) = &self.promised
            && promised.passes.get(tag.from.dataset).is_some_and(|passes| tag.from.pass >= *passes)
        {
            stream.ledger.repeat(promised.places(stream.stream, tag.slot, tag.slot + 1));
        }
        stream.digest.add(tag.slot, tag.from.dataset, Position { part: tag.part, ..tag.position });
    }

    /// Takes note of a place that stays empty.
    fn pass_empty(&mut self, mut tag: Tag) {
        self.reach(&mut tag);
        if let Some(stream) = self.streams.get_mut(tag.from.dataset * self.lanes + tag.from.lane) {
            stream.empty += 1;
        }
    }

    /// Moves a stream to where it is to begin again behind this item, or empty place.
    fn reach(&mut self, tag: &mut Tag) {
        let number = tag.from.dataset * self.lanes + tag.from.lane;
        let Some(stream) = self.streams.get_mut(number) else { return };
        let here = || Replay { pass: tag.from.pass, taken: tag.taken, ..Replay::default() };
        let Replay { pass, taken, given, skips, saved } =
            tag.replay.take().map_or_else(here, |replay| *replay);
        if stream.pass != pass {
            (stream.pass, stream.length, stream.open) = (pass, None, Arc::default());
        }
        if let Some(note) = tag.note.take() {
            stream.length = note.length.or(stream.length);
            if !note.opened.is_empty() {
                let all: Vec<_> = stream.open.iter().cloned().chain(note.opened).collect();
                // Of what was begun before, that remains which has samples that have not been given out.
                let gone = all.iter().skip(1).take_while(|next| next.start <= note.oldest).count();
                stream.open = all[gone..].into();
            }
        }
        (stream.taken, stream.again, stream.skips, stream.saved) = (taken, given, skips, saved);
        stream.part =
            tag.rest.map(|(number, given)| PartialInput { number, given: given.outputs, used: given.used });
        stream.given_pass = match stream.given_pass.max(tag.from.pass) {
            given if given > pass => given,
            _ => 0,
        };
        self.known[number] = 0;
        self.in_a_row[number] = 0;
        let (used, room) = tag.fill.unwrap_or_default();
        self.fill.used = self.fill.used.saturating_add(used);
        self.fill.room = self.fill.room.saturating_add(room);
    }

    /// Takes note of a failure: what was counted by then, or none where this one was counted before a
    /// restore.
    fn fault(&mut self, fault: &Fault) -> Option<Counts> {
        let number = fault.from.dataset * self.lanes + fault.from.lane;
        let stream = self.streams.get_mut(number)?;
        if self.known[number] > 0 {
            self.known[number] -= 1;
            return None;
        }
        let in_a_row = self.in_a_row[number];
        self.in_a_row[number] += 1;
        stream.skips += 1;
        Some(Counts { in_a_row, ..self.counts() })
    }

    /// What has been counted so far, as of an item that was taken.
    fn counts(&self) -> Counts {
        let total = self.streams.iter().map(|stream| stream.ledger.skipped()).sum();
        let samples = self.streams.iter().map(|stream| stream.digest.samples()).sum();
        Counts { in_a_row: 0, total, samples }
    }

    fn skip(&mut self, from: &From, error: &Error) {
        let epoch = self.epoch_of(from);
        count!("shardstream_skipped_samples_total", 1);
        log!(
            WARN,
            "a sample was skipped",
            epoch = epoch,
            dataset = from.dataset,
            error = format_args!("{error:#}")
        );
        if let Some(stream) = self.streams.get_mut(from.dataset * self.lanes + from.lane) {
            stream.skip(epoch, error);
        }
    }

    /// Which epoch of the dataset a pass reads.
    fn epoch_of(&self, from: &From) -> u64 {
        let repeats = self.header.datasets.get(from.dataset).map_or(1, |dataset| dataset.repeats.max(1));
        match self.header.run {
            EpochRange::EpochsFrom(first) => {
                first.saturating_add(self.header.begins(from.dataset)).saturating_add(from.pass)
            }
            EpochRange::Epoch(epoch) | EpochRange::EpochRepeated(epoch) => {
                // What fills places at the end of an epoch counts as its last pass: entries are in the order
                // of epochs.
                epoch.saturating_mul(repeats).saturating_add(from.pass.min(repeats - 1))
            }
        }
    }
}
