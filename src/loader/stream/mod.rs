//! One stream of one dataset: its epochs one after the other, each read, selected from and shuffled.

mod gate;
mod reading;
mod resume;
#[allow(clippy::module_inception, reason = "the stream itself, beside what reads it")]
mod stream;

pub(super) use gate::Gate;
use reading::{Missed, Numbered, Reading};
pub(super) use stream::{Epochs, Select, Stream};

use super::event::{Begins, Given, Input, Note, Origin, Read, Replay};
use super::policy::is_outage;
use crate::adapters::catch;
use crate::error::{Error, ErrorKind, Result};
use crate::state::{StreamState, misfit};
use crate::store::Budget;
use crate::telemetry::log;
use crate::wait;
use std::fmt;
use std::future::poll_fn;
use std::task::{Context, Poll, Waker, ready};

/// Epochs in a row without a single sample after which a stream is taken to have none.
const FUTILE: u64 = 100;

/// Reads a stream.
#[derive(Debug)]
pub(super) struct Source {
    stream: Stream,
    pass: u64,
    reading: Option<Reading>,
    /// The next pass, the first shards of which are on their way while this one's last ones are read.
    following: Option<Reading>,
    /// Where to begin.
    from: Option<StreamState>,
    /// How many samples have been read before, and are read again only to get to those after them.
    again: u64,
    /// The input of which outputs were given before and more are to come, where it is read again on the way.
    rest: Option<(u64, Given)>,
    held: Option<Input>,
    /// What went wrong last while they were read again.
    missed: Option<Error>,
    /// How many passes have been without a sample.
    futile: u64,
    /// What the pass has given.
    found: Found,
    /// How many samples of the pass have left the shuffle buffer.
    taken: u64,
    /// Where it began, and how many items were given after that.
    begins: Replay,
    /// Which turn of its lane comes first, where it has the lane to itself.
    turn: u64,
    /// Whether the end has been said that the gate is at.
    at_gate: bool,
    /// Why it cannot begin where it is to.
    wrong: Option<Error>,
    /// Whether whoever reads waits for what is not there.
    blocks: bool,
    ended: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    Nothing,
    Errors,
    Samples,
}

impl Source {
    /// Reads from the beginning, or resumes where a state says.
    pub(super) fn new(stream: Stream, from: Option<&StreamState>) -> Self {
        let begins = from.map_or_else(Replay::default, |at| Replay {
            pass: at.pass,
            taken: at.taken,
            given: at.again,
            skips: at.skips,
            saved: at.saved.clone(),
        });
        let turn = from.map_or(0, StreamState::places);
        let from = from.filter(|at| at.pass > 0 || at.taken > 0);
        let (pass, from) = (from.map_or(0, |at| at.pass), from.cloned());
        Source {
            stream,
            pass,
            reading: None,
            following: None,
            from,
            again: 0,
            rest: None,
            held: None,
            missed: None,
            futile: 0,
            found: Found::Nothing,
            taken: 0,
            begins,
            turn,
            at_gate: false,
            wrong: None,
            blocks: false,
            ended: false,
        }
    }

    /// The budget of what is read.
    pub(super) fn budget(&self) -> &Budget {
        self.stream.dataset.store().budget()
    }

    /// Where it begins, and how many items were given after that.
    pub(super) fn begins(&self) -> Begins {
        let (replay, stream) = (self.begins.clone(), self.stream.stream);
        let streams = self.stream.dataset.plan().streams();
        Begins { replay, stream, streams, turn: self.turn, shapes: None, only: None }
    }

    /// What lets the stream begin again at its end.
    pub(super) fn gate(&self) -> Option<&Gate> {
        match &self.stream.epochs {
            Epochs::Again(_, _, gate) => Some(gate),
            Epochs::From(..) => None,
        }
    }

    /// Begins a pass; none after the last one.
    fn begin(&mut self) -> Option<Result<Reading>> {
        // There would be nothing to read in it, nor in those after it.
        if self.stream.stop.is_stopped() || wait::is_interrupted() {
            return None;
        }
        let epoch = self.stream.epochs.of(self.pass)?;
        log!(DEBUG, "a stream begins an epoch", epoch = epoch, stream = self.stream.stream);
        (self.found, self.taken) = (Found::Nothing, 0);
        let following = self.following.take();
        let reading = match self.from.take() {
            None => Ok(following.unwrap_or_else(|| self.stream.fresh(epoch))),
            Some(from) => {
                // More may not come in this pass, but some did.
                self.found = Found::Samples;
                if self.stream.is_bounded() {
                    (self.again, self.rest) = (from.taken, resume::rest(&from));
                    let mut again = self.stream.fresh(epoch);
                    for opened in from.open.iter() {
                        again.reader = again.reader.expecting(opened.slice, resume::version(opened));
                    }
                    again.resumed = Some(from);
                    Ok(again)
                } else {
                    self.taken = from.taken;
                    resume::reading(&self.stream, epoch, &from)
                }
            }
        };
        let followed = self.next_epoch(self.pass).is_some();
        Some(reading.map(|mut reading| {
            reading.reader.set_followed(followed);
            reading
        }))
    }

    /// The epoch of the pass behind this one, if it may begin.
    fn next_epoch(&self, pass: u64) -> Option<u64> {
        let next = pass + 1;
        let may = !self.stream.stop.is_stopped() && self.gate().is_none_or(|gate| gate.allows(next));
        may.then(|| self.stream.epochs.of(next)).flatten()
    }

    /// Lets the first shards of the next pass come, if there is one, as soon as all of this one have been
    /// begun: else nothing would be on its way while the last ones are read.
    fn begin_following(&mut self) {
        if !self.reading.as_ref().is_some_and(|reading| reading.reader.has_room_behind()) {
            return;
        }
        let Some(epoch) = self.next_epoch(self.pass) else { return };
        // The gate may have opened after the pass began.
        if let Some(reading) = &mut self.reading {
            reading.reader.set_followed(true);
        }
        let Some(reading) = &self.reading else { return };
        let followed = self.next_epoch(self.pass + 1).is_some();
        let following = self.following.get_or_insert_with(|| self.stream.fresh(epoch));
        following.reader.set_followed(followed);
        following.reader.begin_behind(&reading.reader);
    }

    /// The pass has ended: whether there may be another one.
    fn end(&mut self) -> Option<Read> {
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
        if let Epochs::Again(_, count, _) = self.stream.epochs
            && self.pass >= count
        {
            (self.ended, self.following) = (true, None);
            return None;
        }
        self.futile += 1;
        if self.futile < FUTILE {
            return None;
        }
        (self.ended, self.following) = (true, None);
        self.futile = 0;
        let why = match (failed, &self.stream.select) {
            (true, _) => "the errors before this one, or the ledger of the state, say why",
            (false, Some(_)) => "use fewer streams, or select more",
            (false, None) if self.stream.dataset.skips_missing() => {
                "use fewer streams; or the side has none of its keys: `Missing::Error` shows them"
            }
            (false, None) => "use fewer streams",
        };
        let what = format!("stream {} had no sample in {FUTILE} epochs: {why}", self.stream.stream);
        Some(Read::Fault(self.pass, ErrorKind::NoShards(what).into()))
    }

    /// What was read before does not come again as it was.
    fn differs(&mut self) -> Read {
        let why = self.missed.take().map_or("without an error".into(), |error| error.to_string());
        let stream = self.stream.stream;
        let why = format!("what was read of stream {stream} is not there as it was: {why}; restore it again");
        self.fatal(misfit(why))
    }

    fn fatal(&mut self, error: Error) -> Read {
        (self.ended, self.reading, self.following) = (true, None, None);
        Read::Fatal(error)
    }

    /// Waits at the end of a pass until another one is wanted, after it has said so.
    fn poll_gate(&mut self, cx: &Context<'_>) -> Poll<Option<Read>> {
        let Some(gate) = self.gate() else { return Poll::Ready(None) };
        let open = gate.allows(self.pass) || self.at_gate && gate.poll(self.pass, cx).is_ready();
        match (open, std::mem::replace(&mut self.at_gate, !open)) {
            (true, _) => Poll::Ready(None),
            (false, false) => Poll::Ready(Some(Read::End)),
            (false, true) => Poll::Pending,
        }
    }

    /// Begins where a state says, which may take long: what the shuffle buffer held is read again.
    pub(super) fn prepare(&mut self) {
        let waits = self.gate().is_some_and(|gate| !gate.allows(self.pass));
        if self.from.is_none() || self.reading.is_some() || waits {
            return;
        }
        match catch(|| self.begin()) {
            Ok(Some(Ok(reading))) => self.reading = Some(reading),
            Ok(Some(Err(error))) | Err(error) => self.wrong = Some(error),
            Ok(None) => self.ended = true,
        }
    }

    /// Whether [`prepare`](Source::prepare) has anything to do.
    pub(super) fn resumes(&self) -> bool {
        self.from.is_some()
    }

    /// Leaves out the rest of the shard that is being read, where the policy says so.
    fn give_up_shard(&mut self, error: &Error) {
        if let Some(reading) = self.reading.as_mut().filter(|_| self.stream.policy.ends_shard(error)) {
            reading.reader.give_up();
        }
    }

    fn input(&mut self, numbered: Numbered, note: Option<Box<Note>>) -> Read {
        let Numbered { number, sample } = numbered;
        let (position, given) = (sample.position(), Given::default());
        let origin = Origin { pass: self.pass, position, number, taken: self.taken, given, note };
        Read::Input(Input { origin, sample })
    }
}

impl Iterator for Source {
    type Item = Read;

    /// Blocks, and reads on this thread.
    fn next(&mut self) -> Option<Read> {
        self.blocks = true;
        match self.poll_next(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(read) => read,
            Poll::Pending => {
                let next = wait::block_on(poll_fn(|cx| self.poll_next(cx)));
                next.unwrap_or_else(|error| Some(self.fatal(error)))
            }
        }
    }
}

impl Source {
    /// What comes next, without waiting for the network.
    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Read>> {
        while !self.ended {
            if let Some(error) = self.wrong.take() {
                return Poll::Ready(Some(self.fatal(error)));
            }
            if self.reading.is_none()
                && let Some(read) = ready!(self.poll_gate(cx))
            {
                return Poll::Ready(Some(read));
            }
            self.begin_following();
            let reading = match &mut self.reading {
                Some(reading) => reading,
                None => match self.begin() {
                    Some(Ok(reading)) => self.reading.insert(reading),
                    Some(Err(error)) => return Poll::Ready(Some(self.fatal(error))),
                    None => return Poll::Ready(None),
                },
            };
            if let Some(rest) = reading.rest.take() {
                return Poll::Ready(Some(Read::Input(rest)));
            }
            match ready!(reading.poll_next(&self.stream, self.blocks, cx)) {
                Some(Ok(numbered)) if self.again > 0 => {
                    self.again -= 1;
                    self.taken += 1;
                    if let Some((number, given)) = self.rest
                        && number == numbered.number
                    {
                        let (pass, position) = (self.pass, numbered.sample.position());
                        let taken = self.taken + self.again;
                        let origin = Origin { pass, position, number, taken, given, note: None };
                        self.held = Some(Input { origin, sample: numbered.sample });
                        self.rest = None;
                    }
                    if self.again == 0 {
                        if self.rest.is_some() || !reading.is_resumed() {
                            return Poll::Ready(Some(self.differs()));
                        }
                        reading.rest = self.held.take();
                    }
                }
                Some(Ok(numbered)) => {
                    self.found = Found::Samples;
                    self.taken += 1;
                    let note = reading.note.take();
                    return Poll::Ready(Some(self.input(numbered, note)));
                }
                Some(Err(Missed::Read(error))) if reading.is_replaced(&error) => {
                    return Poll::Ready(Some(self.fatal(error)));
                }
                // An outage is no damage: without what could not be read, all that follows would be another
                // sequence.
                Some(Err(Missed::Read(error))) if is_outage(error.kind()) => {
                    return Poll::Ready(Some(self.fatal(error)));
                }
                // Nor may a sample that was selected before be left out now.
                Some(Err(Missed::Select(error))) if self.again > 0 && is_outage(error.kind()) => {
                    return Poll::Ready(Some(self.fatal(error)));
                }
                Some(Err(missed)) => {
                    let error = match missed {
                        Missed::Read(error) => {
                            self.give_up_shard(&error);
                            error
                        }
                        Missed::Select(error) => error,
                    };
                    // What goes wrong among samples that were read before has been reported then; or it is
                    // new, which shows in what comes of it.
                    if self.again > 0 {
                        self.missed = Some(error);
                        continue;
                    }
                    if self.found == Found::Nothing {
                        self.found = Found::Errors;
                    }
                    return Poll::Ready(Some(Read::Fault(self.pass, error)));
                }
                None => {
                    if let Some(read) = self.end() {
                        return Poll::Ready(Some(read));
                    }
                }
            }
        }
        Poll::Ready(None)
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream")
            .field("dataset", &self.dataset)
            .field("stream", &self.stream)
            .field("shuffle", &self.shuffle)
            .field("epochs", &self.epochs)
            .finish_non_exhaustive()
    }
}
