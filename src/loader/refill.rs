//! Going on in the middle of an epoch: what the shuffle buffer held is found out from the seed, and read again.

use super::source::{Numbered, Reading, Stream};
use crate::adapters::{Replayed, replay};
use crate::dataset::ShardReader;
use crate::error::{Error, Result};
use crate::plan::Slice;
use crate::sample::Sample;
use crate::state::{Opened, StreamState, misfit};
use crate::store::ObjectVersion;
use std::collections::HashMap;

/// The most samples that a shard which was not counted may have been found to have. A state that claims more is no use:
/// it would take too long to find out what the shuffle buffer held.
const MOST_IN_A_SHARD: u64 = 1 << 26;

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
            "stream {}: the shuffle buffer cannot have been like this",
            stream.stream
        )));
    }
    let mut refill = Refill { stream, epoch, slices: &slices, found: HashMap::new() };
    let mut wanted = held.clone();
    wanted.sort_unstable();
    let ended = from.length.is_some();
    for (at, opened) in from.open.iter().enumerate() {
        let end = from.open.get(at + 1).map_or(inputs, |next| next.start);
        let number = |bound: u64| wanted.partition_point(|number| *number < bound);
        let here = &wanted[number(opened.start)..number(end)];
        refill.read(opened, here)?;
    }
    let mut found = refill.found;
    let again = held.iter().map(|number| {
        let sample = found
            .remove(number)
            .ok_or_else(|| misfit("a sample of the shuffle buffer is in no open shard"))?;
        Ok(Numbered { number: *number, sample })
    });
    let again = again.collect::<Result<Vec<_>>>()?;
    let next = match ended {
        true => (slices.len(), 0),
        false => (current.slice, inputs - current.start),
    };
    Ok(Reading {
        reader: stream.reader(epoch, slices).from(next.0, next.1).expecting(current.slice, version(current)),
        buffer: stream.buffer(rng).map(|buffer| buffer.holding(again)),
        inputs,
        slice: Some(current.slice),
        resumed: Some(current.slice),
        ended,
        note: None,
    })
}

/// The slice that was being read, where there is such a one, and there may have been as many samples up to its end.
fn last_opened<'a>(stream: usize, slices: &[Slice], from: &'a StreamState) -> Result<&'a Opened> {
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

/// What the object was.
pub(super) fn version(opened: &Opened) -> ObjectVersion {
    ObjectVersion { size: opened.size, version: opened.version.as_deref().map(Into::into) }
}

struct Refill<'a> {
    stream: &'a Stream,
    epoch: u64,
    slices: &'a [Slice],
    /// The samples of the buffer, by their numbers in the stream.
    found: HashMap<u64, Sample>,
}

impl Refill<'_> {
    /// Reads the samples of these numbers, all of one slice.
    fn read(&mut self, opened: &Opened, numbers: &[u64]) -> Result<()> {
        let (Some(first), Some(last)) = (numbers.first(), numbers.last()) else { return Ok(()) };
        let slice = self.slices.get(opened.slice);
        let slice = slice
            .ok_or_else(|| misfit(format!("stream {} has no slice {}", self.stream.stream, opened.slice)))?;
        let place = |number: u64| slice.samples.start + (number - opened.start);
        let mut run = slice.clone();
        run.samples = place(*first)..place(*last) + 1;
        let mut reader = self.stream.reader(self.epoch, vec![run]).expecting(0, version(opened));
        let mut wanted = numbers.iter();
        let mut next = wanted.next();
        for number in *first..=*last {
            let sample = next_good(&mut reader)?;
            if next == Some(&number) {
                let mut sample = sample;
                sample.compact();
                self.found.insert(number, sample);
                next = wanted.next();
            }
        }
        Ok(())
    }
}

/// The next sample that can be read. What could not be was reported when it was read before.
fn next_good(reader: &mut ShardReader) -> Result<Sample> {
    let mut fault: Option<Error> = None;
    for item in reader {
        match item {
            Ok(sample) => return Ok(sample),
            Err(error) => fault = Some(error),
        }
    }
    Err(fault.unwrap_or_else(|| misfit("a shard has fewer samples than it had")))
}
