//! Resuming in the middle of an epoch: what the shuffle buffer held is found out from the seed, and read
//! again.

use super::super::event::{Given, Input, Origin};
use super::super::policy::is_outage;
use super::reading::{Numbered, Reading};
use super::stream::Stream;
use crate::adapters::{Replayed, replay};
use crate::dataset::ShardReader;
use crate::error::{Error, Result};
use crate::index::ShardIndex;
use crate::plan::Slice;
use crate::sample::Sample;
use crate::state::{OpenSlice, StreamState, misfit};
use crate::store::ObjectVersion;
use std::collections::HashMap;
use std::ops::Range;

/// The most samples that a shard which was not counted may have been found to have. A state that claims more
/// is no use: it would take too long to find out what the shuffle buffer held.
const MOST_IN_A_SHARD: u64 = 1 << 26;

/// Bytes between two samples from which on they are skipped: a new request for what is behind them takes no
/// longer.
const GAP: u64 = 1 << 20;

/// A pass of the stream, as it was when the state was taken.
pub(super) fn reading(stream: &Stream, epoch: u64, from: &StreamState) -> Result<Reading> {
    let slices = stream.slices(epoch);
    let current = last_opened(stream.stream, &slices, from)?;
    let Replayed { held, inputs, rng } = match stream.shuffle {
        0 | 1 => Replayed { held: Vec::new(), inputs: from.taken, rng: stream.rng(epoch) },
        size => replay(size, stream.rng(epoch), from.taken, from.length)
            .ok_or_else(|| misfit(format!("stream {} had fewer samples than were taken", stream.stream)))?,
    };
    if inputs <= current.start || from.length.is_some_and(|length| length != inputs) {
        return Err(misfit(format!(
            "stream {}: the shuffle buffer cannot have been like this: the state is damaged",
            stream.stream
        )));
    }
    let rest = rest(from);
    let mut wanted = held.clone();
    wanted.extend(rest.map(|(number, _)| number));
    wanted.sort_unstable();
    let mut refill = Refill { stream, epoch, slices, found: HashMap::new() };
    let ends = from.open.iter().skip(1).map(|next| next.start);
    for (opened, end) in from.open.iter().zip(ends) {
        refill.read(opened, between(&wanted, opened.start, end))?;
    }
    let here = between(&wanted, current.start, inputs);
    let reader = match from.length {
        Some(_) => {
            refill.read(current, here)?;
            stream.reader(epoch, Vec::new())
        }
        None => refill.read_on(current, here, inputs)?,
    };
    let again = held.iter().map(|number| {
        let sample = refill.found.remove(number);
        let sample = sample.ok_or_else(|| misfit("a sample of the shuffle buffer is in no open shard"))?;
        Ok(Numbered { number: *number, sample })
    });
    let again = again.collect::<Result<Vec<_>>>()?;
    let rest = match rest {
        Some((number, given)) => {
            let what = "the sample of which more was to come is in no open shard";
            let sample = refill.found.remove(&number).ok_or_else(|| misfit(what))?;
            let (pass, position, taken) = (from.pass, sample.position(), from.taken);
            Some(Input { origin: Origin { pass, position, number, taken, given, note: None }, sample })
        }
        None => None,
    };
    Ok(Reading {
        reader,
        buffer: stream.buffer(rng).map(|buffer| buffer.holding(again)),
        inputs,
        slice: Some(current.slice),
        resumed: Some(from.clone()),
        rest,
        ended: from.length.is_some(),
        note: None,
    })
}

/// The input of which outputs were given and more are to come.
pub(super) fn rest(from: &StreamState) -> Option<(u64, Given)> {
    from.part.map(|part| (part.number, Given { outputs: part.given, used: part.used }))
}

/// The slice that was being read, where there is such a one, and there may have been as many samples up to
/// its end.
fn last_opened<'a>(stream: usize, slices: &[Slice], from: &'a StreamState) -> Result<&'a OpenSlice> {
    let misfit =
        |what: String| misfit(format!("stream {stream} {what}: the state is damaged, or of other shards"));
    let last = from.open.last().ok_or_else(|| misfit("has taken samples of no shard".into()))?;
    let Some(begun) = slices.get(..=last.slice) else {
        return Err(misfit(format!("was in slice {} of {}", last.slice, slices.len())));
    };
    let most = |slice: &Slice| match slice.samples.end {
        u64::MAX => MOST_IN_A_SHARD,
        end => end.saturating_sub(slice.samples.start),
    };
    let most = begun.iter().map(most).fold(0, u64::saturating_add);
    if from.taken > most {
        return Err(misfit(format!("has taken {} samples of at most {most}", from.taken)));
    }
    Ok(last)
}

/// The numbers from `start` on and below `end`.
fn between(numbers: &[u64], start: u64, end: u64) -> &[u64] {
    let place = |bound: u64| numbers.partition_point(|number| *number < bound);
    numbers.get(place(start)..place(end)).unwrap_or_default()
}

struct Refill<'a> {
    stream: &'a Stream,
    epoch: u64,
    slices: Vec<Slice>,
    /// The samples of the buffer, by their numbers in the stream.
    found: HashMap<u64, Sample>,
}

impl Refill<'_> {
    /// The slice that was opened, and whether it is known where its samples are.
    fn slice(&self, opened: &OpenSlice) -> Result<(&Slice, Option<&ShardIndex>)> {
        let slice = self.slices.get(opened.slice);
        let slice = slice
            .ok_or_else(|| misfit(format!("stream {} has no slice {}", self.stream.stream, opened.slice)))?;
        let index = self.stream.dataset.indexed(slice.shard);
        // Where samples are dropped, no number says where one is.
        let index = index.filter(|_| !self.stream.drops_samples());
        Ok((slice, index.filter(|index| index.range(slice.samples.clone()).is_some())))
    }

    /// Reads the samples of these numbers, all of one slice.
    fn read(&mut self, opened: &OpenSlice, numbers: &[u64]) -> Result<()> {
        let (slice, index) = self.slice(opened)?;
        let (slice, index) = (slice.clone(), index.cloned());
        if self.stream.drops_samples() {
            let Some(last) = numbers.last() else { return Ok(()) };
            let mut reader = self.stream.reader(self.epoch, vec![slice]).expecting(0, version(opened));
            return self.pick(&mut reader, 0, opened.start..last + 1, numbers);
        }
        let place = |number: u64| slice.samples.start.saturating_add(number - opened.start);
        let near = |a: &u64, b: &u64| {
            let gap = index.as_ref().and_then(|index| index.range(place(*a) + 1..place(*b)));
            gap.is_none_or(|gap| gap.end - gap.start < GAP)
        };
        let runs = numbers.chunk_by(near).filter_map(|run| Some((run, *run.first()?..*run.last()? + 1)));
        let runs: Vec<_> = runs.collect();
        let samples = |numbers: &Range<u64>| place(numbers.start)..place(numbers.end - 1) + 1;
        let slices = runs.iter().map(|(_, numbers)| Slice { samples: samples(numbers), ..slice });
        // One reader for all of them: it asks for the next while one is read.
        let mut reader = self.stream.reader(self.epoch, slices.collect());
        for number in 0..runs.len() {
            reader = reader.expecting(number, version(opened));
        }
        for (number, (run, numbers)) in runs.into_iter().enumerate() {
            self.pick(&mut reader, number, numbers, run)?;
        }
        Ok(())
    }

    /// Reads the samples of these numbers, and gives what reads on from number `next`.
    fn read_on(&mut self, opened: &OpenSlice, numbers: &[u64], next: u64) -> Result<ShardReader> {
        let place = |number: u64| {
            number.checked_sub(opened.start).ok_or_else(|| misfit("a shard was begun after its first sample"))
        };
        let from = match (self.slice(opened)?.1, numbers.first()) {
            _ if self.stream.drops_samples() => opened.start,
            (None, Some(first)) => *first,
            // Where the next one is is known, or nothing is wanted before it.
            _ => next,
        };
        if from == next {
            self.read(opened, numbers)?;
        }
        let mut reader = self.stream.reader(self.epoch, self.slices.clone());
        reader = reader.from(opened.slice, place(from)?).expecting(opened.slice, version(opened));
        if from < next {
            self.pick(&mut reader, opened.slice, from..next, numbers)?;
        }
        Ok(reader)
    }

    /// Reads the samples of these numbers, which are of the slice that the reader begins with, and keeps
    /// those that are wanted.
    fn pick(
        &mut self,
        reader: &mut ShardReader,
        slice: usize,
        numbers: Range<u64>,
        wanted: &[u64],
    ) -> Result<()> {
        let mut wanted = wanted.iter().peekable();
        for number in numbers {
            let mut sample = next_good(self.stream, reader, slice)?;
            if wanted.next_if_eq(&&number).is_some() {
                // It may wait for long, and the chunk that it is a slice of is large.
                sample.compact();
                self.found.insert(number, sample);
            }
        }
        Ok(())
    }
}

/// What the object was.
pub(super) fn version(opened: &OpenSlice) -> ObjectVersion {
    ObjectVersion { size: opened.size, version: opened.version.as_deref().map(Into::into) }
}

/// The next sample of the slice that can be read. What could not be was reported when it was read before.
fn next_good(stream: &Stream, reader: &mut ShardReader, slice: usize) -> Result<Sample> {
    let mut fault: Option<Error> = None;
    while let Some(item) = reader.next() {
        match item {
            _ if reader.slice() != slice => break,
            Ok(sample) => match stream.select(sample) {
                Ok(Some(sample)) => return Ok(sample),
                Ok(None) => {}
                Err(error) if is_outage(error.kind()) => return Err(error),
                Err(error) => fault = Some(error),
            },
            // That is new: the next sample must not be taken for this one.
            Err(error) if is_outage(error.kind()) => return Err(error),
            Err(error) => fault = Some(error),
        }
    }
    Err(fault.unwrap_or_else(|| misfit("a shard has fewer samples than it had")))
}
