//! Resumes a stream in the middle of an epoch: computes from the seed which samples were in the shuffle
//! buffer, and reads them again.

use super::config::StreamConfig;
use super::pass_reader::{NumberedSample, PassReader};
use crate::adapters::{ReplayedBuffer, replay};
use crate::dataset::ShardReader;
use crate::error::{Error, Result};
use crate::index::ShardIndex;
use crate::loader::policy::is_outage;
use crate::plan::Slice;
use crate::sample::Sample;
use crate::state::{Cursor, OpenSlice, misfit};
use crate::store::ObjectVersion;
use std::collections::HashMap;
use std::ops::Range;

/// Maximum number of samples that a shard without an index may have. If a stream has taken more samples than
/// its shards may have, the state is rejected: computing the content of the shuffle buffer would take too
/// long.
const MAX_IN_SHARD: u64 = 1 << 26;

/// Two samples are read by separate requests if this number of bytes or more lies between them. If fewer
/// bytes lie between them, one request reads both samples and these bytes.
const MIN_GAP: u64 = 1 << 20;

pub(super) fn resumed_pass(stream: &StreamConfig, epoch: u64, from: &Cursor) -> Result<PassReader> {
    let slices = stream.slices(epoch);
    if from.open.is_empty() && from.length == Some(from.taken) {
        return Ok(finished_pass(stream, epoch, from));
    }
    let current = last_open_slice(stream.stream, &slices, from)?;
    let ReplayedBuffer { held, inputs, rng } = match stream.shuffle {
        0 | 1 => ReplayedBuffer { held: Vec::new(), inputs: from.taken, rng: stream.rng(epoch) },
        size => replay(size, stream.rng(epoch), from.taken, from.length)
            .ok_or_else(|| misfit(format!("stream {} had fewer samples than were taken", stream.stream)))?,
    };
    if inputs <= current.start || from.length.is_some_and(|length| length != inputs) {
        return Err(misfit(format!(
            "stream {}: no shuffle buffer matches the state: the state is damaged",
            stream.stream
        )));
    }
    let mut wanted = held.clone();
    wanted.sort_unstable();
    let mut refill = Refill { stream, epoch, slices, runs: Vec::new(), samples: HashMap::new() };
    let ends = from.open.iter().skip(1).map(|next| next.start);
    for (opened, end) in from.open.iter().zip(ends) {
        refill.add(opened, between(&wanted, opened.start, end))?;
    }
    let in_current = between(&wanted, current.start, inputs);
    let reader = match from.length {
        Some(_) => {
            let mut reader = stream.reader(epoch, Vec::new());
            refill.add(current, in_current)?;
            refill.read(&mut reader)?;
            reader
        }
        None => refill.read_on(current, in_current, inputs)?,
    };
    let held_samples = held.iter().map(|number| {
        let sample = refill.samples.remove(number);
        let sample = sample.ok_or_else(|| misfit("a sample of the shuffle buffer is in no open shard"))?;
        Ok(NumberedSample { number: *number, sample })
    });
    let held_samples = held_samples.collect::<Result<Vec<_>>>()?;
    Ok(PassReader {
        reader,
        buffer: stream.buffer(rng).map(|buffer| buffer.holding(held_samples)),
        inputs,
        slice: Some(current.slice),
        has_read: false,
        ended: from.length.is_some(),
        note: None,
    })
}

/// A pass whose samples were all taken.
fn finished_pass(stream: &StreamConfig, epoch: u64, from: &Cursor) -> PassReader {
    PassReader {
        reader: stream.reader(epoch, Vec::new()),
        buffer: None,
        inputs: from.taken,
        slice: None,
        has_read: false,
        ended: true,
        note: None,
    }
}

/// The slice that was read last. Checks that the slice exists, and that no more samples were taken than the
/// slices up to this one can have.
fn last_open_slice<'a>(stream: usize, slices: &[Slice], from: &'a Cursor) -> Result<&'a OpenSlice> {
    let misfit =
        |what: String| misfit(format!("stream {stream} {what}: the state is damaged, or of other shards"));
    let last = from.open.last().ok_or_else(|| misfit("has taken samples of no shard".into()))?;
    let Some(begun) = slices.get(..=last.slice) else {
        return Err(misfit(format!("was in slice {} of {}", last.slice, slices.len())));
    };
    let max_samples = |slice: &Slice| match slice.samples.end {
        u64::MAX => MAX_IN_SHARD,
        end => end.saturating_sub(slice.samples.start),
    };
    let max_samples = begun.iter().map(max_samples).fold(0, u64::saturating_add);
    if from.taken > max_samples {
        return Err(misfit(format!("has taken {} samples of at most {max_samples}", from.taken)));
    }
    Ok(last)
}

/// The part of a sorted list with the numbers from `start` up to, but not including, `end`.
fn between(numbers: &[u64], start: u64, end: u64) -> &[u64] {
    let at = |bound: u64| numbers.partition_point(|number| *number < bound);
    numbers.get(at(start)..at(end)).unwrap_or_default()
}

/// Reads the samples of a shuffle buffer again. One reader reads all of these samples, so that they are
/// requested concurrently, within the memory budget.
struct Refill<'a> {
    stream: &'a StreamConfig,
    epoch: u64,
    slices: Vec<Slice>,
    /// The samples to read, in order.
    runs: Vec<Run<'a>>,
    /// The samples that were read, by their numbers in the pass.
    samples: HashMap<u64, Sample>,
}

/// Samples that are near each other. If there is an index, they are read by one request.
struct Run<'a> {
    /// A part of an open slice. It contains all samples of this run.
    slice: Slice,
    /// The version of the shard when the state was saved.
    object: ObjectVersion,
    /// The numbers of the samples that are read.
    numbers: Range<u64>,
    /// The numbers of the samples that are kept.
    wanted: &'a [u64],
}

impl<'a> Refill<'a> {
    /// The slice that was open, and the index of its shard if that index has the offsets of the samples.
    fn slice(&self, opened: &OpenSlice) -> Result<(&Slice, Option<&ShardIndex>)> {
        let slice = self.slices.get(opened.slice);
        let slice = slice
            .ok_or_else(|| misfit(format!("stream {} has no slice {}", self.stream.stream, opened.slice)))?;
        let index = self.stream.dataset.indexed(slice.shard);
        // If samples are dropped, the number of a sample in the pass is not its number in the shard.
        let index = index.filter(|_| !self.stream.drops_samples());
        Ok((slice, index.filter(|index| index.range(slice.samples.clone()).is_some())))
    }

    /// Adds samples of one slice to those that will be read. `wanted` has their numbers in the pass.
    fn add(&mut self, opened: &OpenSlice, wanted: &'a [u64]) -> Result<()> {
        let (slice, index) = self.slice(opened)?;
        let drops = self.stream.drops_samples();
        let shard_index = |number: u64| slice.samples.start.saturating_add(number - opened.start);
        let near = |a: &u64, b: &u64| {
            let gap = index.and_then(|index| index.range(shard_index(*a) + 1..shard_index(*b)));
            gap.is_none_or(|gap| gap.end - gap.start < MIN_GAP)
        };
        let run = |wanted: &'a [u64]| {
            let (first, last) = (*wanted.first()?, *wanted.last()?);
            let (numbers, samples) = match drops {
                true => (opened.start..last + 1, slice.samples.clone()),
                false => (first..last + 1, shard_index(first)..shard_index(last) + 1),
            };
            Some(Run { slice: Slice { samples, ..*slice }, object: version(opened), numbers, wanted })
        };
        let runs: Vec<_> = wanted.chunk_by(near).filter_map(run).collect();
        self.runs.extend(runs);
        Ok(())
    }

    /// Reads the added samples. Starts the requests of `next` when few of the added samples are left to read.
    fn read(&mut self, next: &mut ShardReader) -> Result<()> {
        let runs = std::mem::take(&mut self.runs);
        let slices = runs.iter().map(|run| run.slice.clone()).collect();
        let mut reader = self.stream.reader(self.epoch, slices).scattered();
        for (number, run) in runs.iter().enumerate() {
            reader = reader.expecting(number, run.object.clone());
        }
        let last = runs.len().wrapping_sub(1);
        for (number, Run { numbers, wanted, .. }) in runs.into_iter().enumerate() {
            // The requests of `next` would take bandwidth from the samples of the buffer, and the first batch
            // waits for these samples. Therefore the requests of `next` start only when half of the last
            // `Run` has been read. That is early enough to hide the latency of the first bytes of `next`.
            let is_last = number == last;
            let middle =
                if is_last { numbers.start + (numbers.end - numbers.start) / 2 } else { numbers.end };
            let (before, after) = wanted.split_at(wanted.partition_point(|number| *number < middle));
            self.pick(&mut reader, number, numbers.start..middle, before)?;
            if is_last {
                reader.begin_before(next);
            }
            self.pick(&mut reader, number, middle..numbers.end, after)?;
            if is_last {
                // If some requests of this `Run` were not open yet at the first call, that call started no
                // requests of `next`.
                reader.begin_before(next);
            }
            // The rest of the slice is not needed.
            reader.give_up();
        }
        Ok(())
    }

    /// Reads the added samples, and the samples `numbers` of the slice that was read last. Returns a reader
    /// that continues with the sample `next`. `numbers` and `next` are numbers of samples in the pass.
    fn read_on(&mut self, opened: &OpenSlice, numbers: &'a [u64], next: u64) -> Result<ShardReader> {
        let shard_index = |number: u64| {
            number
                .checked_sub(opened.start)
                .ok_or_else(|| misfit("a shard was opened after its first sample"))
        };
        let from = match (self.slice(opened)?.1, numbers.first()) {
            _ if self.stream.drops_samples() => opened.start,
            (None, Some(first)) => *first,
            // The index has the offset of `next`, or no sample before `next` is needed.
            _ => next,
        };
        if from == next {
            self.add(opened, numbers)?;
        }
        let reader = self.stream.reader(self.epoch, self.slices.clone());
        let mut reader =
            reader.from(opened.slice, shard_index(from)?).expecting(opened.slice, version(opened));
        self.read(&mut reader)?;
        if from < next {
            self.pick(&mut reader, opened.slice, from..next, numbers)?;
        }
        Ok(reader)
    }

    /// Reads the samples with these numbers from slice `slice`, and keeps the wanted ones.
    fn pick(
        &mut self,
        reader: &mut ShardReader,
        slice: usize,
        numbers: Range<u64>,
        wanted: &[u64],
    ) -> Result<()> {
        let mut wanted = wanted.iter().peekable();
        for number in numbers {
            let mut sample = next_readable(self.stream, reader, slice)?;
            if wanted.next_if_eq(&&number).is_some() {
                // The sample may stay in the shuffle buffer for long. Without a copy of its own, it would
                // keep its whole chunk in memory.
                sample.compact();
                self.samples.insert(number, sample);
            }
        }
        Ok(())
    }
}

/// The version of the shard when the state was saved.
fn version(opened: &OpenSlice) -> ObjectVersion {
    ObjectVersion::new(opened.size, opened.version.as_deref())
}

/// The next readable sample of the slice. Failed samples are skipped: they were reported before the restore.
fn next_readable(stream: &StreamConfig, reader: &mut ShardReader, slice: usize) -> Result<Sample> {
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
            // An outage ends a run, so the run before the restore did not skip this sample. Skipping it now
            // would shift the numbers of later samples.
            Err(error) if is_outage(error.kind()) => return Err(error),
            Err(error) => fault = Some(error),
        }
    }
    Err(fault.unwrap_or_else(|| misfit("a shard has fewer samples than it had")))
}
