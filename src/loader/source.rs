//! One stream of one dataset: its epochs one after the other, each read and shuffled.

use super::event::{Event, Note, Tag};
use super::refill;
use crate::adapters::{Shuffle, Stage};
use crate::dataset::{Dataset, ShardReader, Stop, Versions};
use crate::error::{Error, ErrorKind, Result};
use crate::plan::Slice;
use crate::rng::Rng;
use crate::sample::Sample;
use crate::state::{Opened, StreamState, misfit};
use crate::store::Budget;
use crate::wait;

/// After so many epochs in a row without a single sample, a stream is not going to have any.
const FUTILE: u64 = 100;

/// Which stream of what, and how it is shuffled.
#[derive(Debug, Clone)]
pub(super) struct Stream {
    pub(super) dataset: Dataset,
    pub(super) stream: usize,
    /// The size of the shuffle buffer, and its bound in bytes.
    pub(super) shuffle: usize,
    pub(super) shuffle_bytes: usize,
    pub(super) epochs: Epochs,
    pub(super) stop: Stop,
    /// The versions of shards that the streams of the dataset have found.
    pub(super) versions: Versions,
    /// Tells the stream from the others of the same stop.
    pub(super) number: usize,
}

/// Which epochs a stream goes through.
#[derive(Debug, Clone, Copy)]
pub(super) enum Epochs {
    /// So many, from the first one on; none for no end.
    From(u64, Option<u64>),
    /// The same one again and again.
    Again(u64),
}

impl Epochs {
    /// The epoch of a pass, counted from 0; none after the last one.
    fn of(self, pass: u64) -> Option<u64> {
        match self {
            Epochs::From(_, Some(count)) if pass >= count => None,
            Epochs::From(first, _) => first.checked_add(pass),
            Epochs::Again(epoch) => Some(epoch),
        }
    }
}

impl Stream {
    /// What the stream reads in an epoch.
    pub(super) fn slices(&self, epoch: u64) -> Vec<Slice> {
        self.dataset.plan().stream(epoch, self.stream)
    }

    pub(super) fn reader(&self, epoch: u64, slices: Vec<Slice>) -> ShardReader {
        let reader = self.dataset.read_slices(epoch, slices, &self.versions);
        reader.stopped_by(self.stop.clone(), self.number)
    }

    /// Reads an epoch from its beginning.
    fn whole(&self, epoch: u64) -> ShardReader {
        let reader = self.dataset.read_together(epoch, self.stream, &self.versions);
        reader.stopped_by(self.stop.clone(), self.number)
    }

    /// The random numbers of the shuffle buffer.
    pub(super) fn rng(&self, epoch: u64) -> Rng {
        Rng::new(self.dataset.seed(), epoch, self.stream as u64)
    }

    /// An empty shuffle buffer. None where it would only copy every sample out of its chunk.
    pub(super) fn buffer(&self, rng: Rng) -> Option<Shuffle<Numbered>> {
        let admit = |numbered: &mut Numbered| {
            numbered.sample.compact();
            numbered.sample.size()
        };
        (self.shuffle > 1).then(|| Shuffle::new(self.shuffle, rng, admit).bounded(self.shuffle_bytes))
    }

    /// Whether what a shuffle buffer holds depends on the sizes of the samples.
    fn is_bounded(&self) -> bool {
        self.shuffle > 1 && self.shuffle_bytes != usize::MAX
    }
}

/// A sample with how many came before it in its stream.
#[derive(Debug)]
pub(super) struct Numbered {
    pub(super) number: u64,
    pub(super) sample: Sample,
}

/// Reads a stream.
#[derive(Debug)]
pub(super) struct Source {
    stream: Stream,
    pass: u64,
    reading: Option<Reading>,
    /// Where to begin.
    from: Option<StreamState>,
    /// How many samples have been read before, and are read again only to get to those after them.
    again: u64,
    /// What went wrong last while they were read again.
    missed: Option<Error>,
    /// How many passes have been without a sample.
    futile: u64,
    /// What the pass has given.
    found: Found,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    Nothing,
    Errors,
    Samples,
}

/// A pass that has been begun.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) reader: ShardReader,
    pub(super) buffer: Option<Shuffle<Numbered>>,
    /// How many samples came into the buffer.
    pub(super) inputs: u64,
    /// The slice that the last of them was from.
    pub(super) slice: Option<usize>,
    /// The state that the pass goes on from, if it does.
    pub(super) resumed: Option<StreamState>,
    pub(super) ended: bool,
    pub(super) note: Option<Box<Note>>,
}

impl Source {
    /// Reads from the beginning, or goes on where a state says.
    pub(super) fn new(stream: Stream, from: Option<&StreamState>) -> Self {
        let from = from.filter(|at| at.pass > 0 || at.taken > 0);
        let (pass, from) = (from.map_or(0, |at| at.pass), from.cloned());
        let found = Found::Nothing;
        Source { stream, pass, reading: None, from, again: 0, missed: None, futile: 0, found }
    }

    /// The budget of what is read.
    pub(super) fn budget(&self) -> &Budget {
        self.stream.dataset.store().budget()
    }

    /// Begins a pass; none after the last one.
    fn begin(&mut self) -> Option<Result<Reading>> {
        // There would be nothing to read in it, nor in those after it.
        if self.stream.stop.is_stopped() || wait::is_interrupted() {
            return None;
        }
        let epoch = self.stream.epochs.of(self.pass)?;
        self.found = Found::Nothing;
        let fresh = |stream: &Stream| Reading {
            reader: stream.whole(epoch),
            buffer: stream.buffer(stream.rng(epoch)),
            inputs: 0,
            slice: None,
            resumed: None,
            ended: false,
            note: None,
        };
        Some(match self.from.take() {
            None => Ok(fresh(&self.stream)),
            Some(from) => {
                // More may not come in this pass, but some did.
                self.found = Found::Samples;
                if self.stream.is_bounded() {
                    self.again = from.taken;
                    let mut again = fresh(&self.stream);
                    for opened in from.open.iter() {
                        again.reader = again.reader.expecting(opened.slice, refill::version(opened));
                    }
                    again.resumed = Some(from);
                    Ok(again)
                } else {
                    refill::reading(&self.stream, epoch, &from)
                }
            }
        })
    }

    /// The pass has ended: whether there may be another one.
    fn end(&mut self) -> Option<Event<Sample>> {
        self.reading = None;
        if self.again > 0 {
            return Some(self.differs());
        }
        self.pass += 1;
        let failed = match self.found {
            Found::Samples => {
                self.futile = 0;
                return None;
            }
            Found::Errors => true,
            Found::Nothing => false,
        };
        // What failed in one epoch may be there in the next. To read the same one again is for filling up.
        if failed && matches!(self.stream.epochs, Epochs::Again(_)) {
            self.stream.epochs = Epochs::From(0, Some(0));
            return None;
        }
        self.futile += 1;
        if self.futile < FUTILE {
            return None;
        }
        self.stream.epochs = Epochs::From(0, Some(0));
        self.futile = 0;
        let why = if failed { "the errors before this one say why" } else { "use fewer streams" };
        let what = format!("stream {} had no sample in {FUTILE} epochs: {why}", self.stream.stream);
        Some(Event::Fault(ErrorKind::NoShards(what).into()))
    }
}

impl Source {
    /// What was read before does not come again as it was.
    fn differs(&mut self) -> Event<Sample> {
        self.stream.epochs = Epochs::From(0, Some(0));
        self.reading = None;
        let why = self.missed.take().map_or("without an error".into(), |error| error.to_string());
        let stream = self.stream.stream;
        let why = format!("what was read of stream {stream} is not there as it was: {why}; restore it again");
        Event::Fatal(misfit(why))
    }
}

impl Iterator for Source {
    type Item = Event<Sample>;

    fn next(&mut self) -> Option<Event<Sample>> {
        loop {
            let reading = match &mut self.reading {
                Some(reading) => reading,
                None => match self.begin()? {
                    Ok(reading) => self.reading.insert(reading),
                    Err(error) => {
                        self.stream.epochs = Epochs::From(0, Some(0));
                        return Some(Event::Fatal(error));
                    }
                },
            };
            match reading.next() {
                Some(Ok(_)) if self.again > 0 => {
                    self.again -= 1;
                    if self.again == 0 && !reading.is_resumed() {
                        return Some(self.differs());
                    }
                }
                Some(Ok(sample)) => {
                    self.found = Found::Samples;
                    let (position, note) = (sample.position(), reading.note.take());
                    let tag = Tag { slot: 0, dataset: 0, lane: 0, pass: self.pass, position, note };
                    return Some(Event::Item(tag, Ok(sample)));
                }
                Some(Err(error)) if reading.is_replaced(&error) => {
                    self.stream.epochs = Epochs::From(0, Some(0));
                    self.reading = None;
                    return Some(Event::Fatal(error));
                }
                // What goes wrong among samples that were read before has been reported then; or it is new,
                // which shows in what comes of it.
                Some(Err(error)) if self.again > 0 => self.missed = Some(error),
                Some(Err(error)) => {
                    if self.found == Found::Nothing {
                        self.found = Found::Errors;
                    }
                    return Some(Event::Fault(error));
                }
                None => {
                    if let Some(event) = self.end() {
                        return Some(event);
                    }
                }
            }
        }
    }
}

impl Reading {
    fn next(&mut self) -> Option<Result<Sample>> {
        loop {
            if let Some(buffer) = &mut self.buffer {
                let item = if self.ended { buffer.drain() } else { buffer.pull() };
                if let Some(item) = item {
                    return Some(item.map(|numbered| numbered.sample));
                }
            }
            if self.ended {
                return None;
            }
            match self.reader.next() {
                Some(Ok(sample)) => {
                    self.admit();
                    let number = self.inputs;
                    self.inputs += 1;
                    match &mut self.buffer {
                        // A shuffle buffer never answers at once.
                        Some(buffer) => drop(buffer.push(Numbered { number, sample })),
                        None => return Some(Ok(sample)),
                    }
                }
                Some(Err(error)) => return Some(Err(error)),
                None => {
                    self.ended = true;
                    // Without a buffer it makes no difference.
                    if self.buffer.is_some() {
                        self.note.get_or_insert_default().length = Some(self.inputs);
                    }
                }
            }
        }
    }

    /// Whether the error says that a shard is not the one that was open when the state was taken. Where a
    /// shard only contradicts its index, an undisturbed run met the same error and read on.
    fn is_replaced(&self, error: &Error) -> bool {
        matches!(error.kind(), ErrorKind::Stale { .. }) && self.reader.is_replaced()
    }

    /// Whether all up to the state has come again as it was then: in the slices that are open, at the same
    /// numbers.
    fn is_resumed(&mut self) -> bool {
        let (Some(from), Some(note)) = (&self.resumed, self.note.take()) else { return false };
        let same = |(then, now): (&Opened, &Opened)| (then.slice, then.start) == (now.slice, now.start);
        note.length == from.length
            && note.opened.len() >= from.open.len()
            && from.open.iter().rev().zip(note.opened.iter().rev()).all(same)
    }

    /// Takes note of the slice of the sample that comes in.
    fn admit(&mut self) {
        let slice = self.reader.slice();
        if self.slice.replace(slice) != Some(slice) {
            let numbers = self.buffer.iter().flat_map(|buffer| buffer.held().map(|numbered| numbered.number));
            let note = self.note.get_or_insert_default();
            note.oldest = numbers.min().unwrap_or(self.inputs);
            let object = self.reader.object().unwrap_or_default();
            let version = object.version.map(Into::into);
            note.opened.push(Opened { slice, start: self.inputs, size: object.size, version });
        }
    }
}
