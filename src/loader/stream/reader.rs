//! `StreamReader`: reads one stream of one dataset, pass by pass.

use super::config::{StreamConfig, StreamEpochs};
use super::gate::Gate;
use super::pass_reader::{PassReader, ReadMode, SampleError};
use super::resume::resumed_pass;
use crate::error::{Error, ErrorKind, Result};
use crate::loader::event::{InputOrigin, StageInput, StreamEvent, StreamFault, StreamNote, StreamStart};
use crate::loader::policy::is_outage;
use crate::panic::catch;
use crate::sample::Sample;
use crate::state::{Cursor, StreamState};
use crate::store::Budget;
use crate::telemetry::log;
use crate::wait;
use std::future::poll_fn;
use std::mem::take;
use std::task::{Context, Poll, Waker, ready};

/// A stream ends with an error after this number of consecutive epochs without a sample.
const MAX_EMPTY_PASSES: u64 = 100;

/// Reads one stream of one dataset, pass by pass. It can be polled, or used as a blocking iterator.
#[derive(Debug)]
pub(in crate::loader) struct StreamReader {
    stream: StreamConfig,
    /// Number of the current pass.
    pass: u64,
    current: Option<PassReader>,
    /// The next pass. Its first shards are requested while the last shards of this pass are read.
    following: Option<PassReader>,
    /// The cursor from which the first pass resumes. `None` once that pass has started.
    resume_from: Option<Cursor>,
    /// Number of consecutive passes without a sample.
    empty_passes: u64,
    /// Whether an earlier pass has read a sample since the last failure.
    has_read: bool,
    /// What the current pass has returned so far.
    pass_yield: PassYield,
    /// Number of samples of the pass that have left the shuffle buffer.
    taken: u64,
    /// The cursor from which the stream starts.
    start: Cursor,
    /// Number of items and gaps of the stream before the first returned item. Only meaningful without a
    /// mixture.
    first_index: u64,
    /// Whether [`StreamEvent::End`] was reported since the gate last closed.
    end_reported: bool,
    /// Why the stream could not resume.
    start_error: Option<Error>,
    mode: ReadMode,
    ended: bool,
}

/// What a pass has returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PassYield {
    Nothing,
    Errors,
    Samples,
}

impl StreamReader {
    /// Reads from the beginning, or resumes from a state.
    pub(in crate::loader) fn new(stream: StreamConfig, from: Option<&StreamState>) -> Self {
        let start = from.map(|state| state.cursor.clone()).unwrap_or_default();
        let first_index = from.map_or(0, StreamState::items_and_gaps);
        StreamReader {
            stream,
            pass: start.pass,
            current: None,
            following: None,
            resume_from: Some(start.clone()).filter(|start| start.taken > 0),
            empty_passes: 0,
            has_read: false,
            pass_yield: PassYield::Nothing,
            taken: 0,
            start,
            first_index,
            end_reported: false,
            start_error: None,
            mode: ReadMode::Polled,
            ended: false,
        }
    }

    /// The memory budget of the dataset's store.
    pub(in crate::loader) fn budget(&self) -> &Budget {
        self.stream.dataset.store().budget()
    }

    /// The point at which the stages of this stream start.
    pub(in crate::loader) fn start(&self) -> StreamStart {
        StreamStart {
            cursor: self.start.clone(),
            stream: self.stream.stream,
            streams: self.stream.dataset.plan().streams(),
            first_index: self.first_index,
            shapes: None,
            only_bucket: None,
        }
    }

    /// The gate that decides whether the stream starts again after its end; `None` if it is never repeated.
    pub(in crate::loader) fn gate(&self) -> Option<&Gate> {
        match &self.stream.epochs {
            StreamEpochs::Repeating(_, _, gate) => Some(gate),
            StreamEpochs::Sequential(..) => None,
        }
    }

    /// Starts a pass; `None` after the last one.
    fn start_pass(&mut self) -> Option<Result<PassReader>> {
        // A stopped reader returns no samples, in this pass and all later ones.
        if self.stream.stop.is_stopped() || wait::is_interrupted() {
            return None;
        }
        let epoch = self.stream.epochs.of(self.pass)?;
        log!(DEBUG, "a stream begins an epoch", epoch = epoch, stream = self.stream.stream);
        (self.pass_yield, self.taken) = (PassYield::Nothing, 0);
        let following = self.following.take();
        let current = match self.resume_from.take() {
            None => Ok(following.unwrap_or_else(|| self.stream.fresh(epoch))),
            Some(from) => {
                // The pass returned samples before the restore, even if no sample is left now.
                (self.pass_yield, self.taken) = (PassYield::Samples, from.taken);
                resumed_pass(&self.stream, epoch, &from)
            }
        };
        let followed = self.next_epoch(self.pass).is_some();
        Some(current.map(|mut current| {
            current.reader.set_followed(followed);
            current
        }))
    }

    /// The epoch of the pass after `pass`, if that pass may start.
    fn next_epoch(&self, pass: u64) -> Option<u64> {
        let next = pass + 1;
        if self.stream.stop.is_stopped() || self.gate().is_some_and(|gate| !gate.allows(next)) {
            return None;
        }
        self.stream.epochs.of(next)
    }

    /// Requests the first shards of the next pass once all shards of this pass were requested, so that the
    /// network is not idle while the last shards are read.
    fn start_following(&mut self) {
        if !self.current.as_ref().is_some_and(|current| current.reader.has_room_after()) {
            return;
        }
        let Some(epoch) = self.next_epoch(self.pass) else { return };
        // The gate may have opened after the pass began.
        if let Some(current) = &mut self.current {
            current.reader.set_followed(true);
        }
        let Some(current) = &self.current else { return };
        let followed = self.next_epoch(self.pass + 1).is_some();
        let following = self.following.get_or_insert_with(|| self.stream.fresh(epoch));
        following.reader.set_followed(followed);
        following.reader.begin_after(&current.reader);
    }

    /// Ends the pass. Returns an error event if too many passes in a row had no sample.
    fn end_pass(&mut self) -> Option<StreamEvent> {
        self.has_read |= self.current.take().is_some_and(|current| current.has_read);
        self.pass += 1;
        let failed = match self.pass_yield {
            PassYield::Samples => {
                self.empty_passes = 0;
                return None;
            }
            PassYield::Errors => true,
            PassYield::Nothing => false,
        };
        // The ended pass returned no sample. If the next pass would only repeat an epoch to fill batches, the
        // stream ends now. Otherwise the stream continues: samples that failed may be readable in the next
        // epoch.
        if let StreamEpochs::Repeating(_, count, _) = self.stream.epochs
            && self.pass >= count
        {
            (self.ended, self.following) = (true, None);
            return None;
        }
        self.empty_passes += 1;
        if self.empty_passes < MAX_EMPTY_PASSES {
            return None;
        }
        (self.ended, self.following) = (true, None);
        self.empty_passes = 0;
        let why = match (failed, &self.stream.select) {
            (true, _) => "the errors before this one, or the ledger of the state, say why",
            (false, Some(_)) => "use fewer streams, or a filter that keeps more samples",
            (false, None) if self.stream.dataset.skips_missing() => {
                "use fewer streams; or the joined dataset has none of the keys: `Missing::Error` shows them"
            }
            (false, None) => "use fewer streams",
        };
        let what = format!("stream {} had no sample in {MAX_EMPTY_PASSES} epochs: {why}", self.stream.stream);
        let (pass, error) = (self.pass, ErrorKind::NoShards(what).into());
        Some(StreamEvent::Fault(StreamFault { pass, after_success: true, error }))
    }

    /// Ends the stream with an error.
    fn fatal(&mut self, error: Error) -> StreamEvent {
        (self.ended, self.current, self.following) = (true, None, None);
        StreamEvent::Fatal(error)
    }

    /// Reports the end of a pass once, then waits until the gate allows another pass.
    fn poll_gate(&mut self, cx: &Context<'_>) -> Poll<Option<StreamEvent>> {
        let Some(gate) = self.gate() else { return Poll::Ready(None) };
        let open = gate.allows(self.pass) || self.end_reported && gate.poll(self.pass, cx).is_ready();
        match (open, std::mem::replace(&mut self.end_reported, !open)) {
            (true, _) => Poll::Ready(None),
            (false, false) => Poll::Ready(Some(StreamEvent::End)),
            (false, true) => Poll::Pending,
        }
    }

    /// Resumes from the state. This may take long, because the content of the shuffle buffer is read again.
    pub(in crate::loader) fn prepare(&mut self) {
        let waits = self.gate().is_some_and(|gate| !gate.allows(self.pass));
        if self.resume_from.is_none() || self.current.is_some() || waits {
            return;
        }
        match catch(|| self.start_pass()) {
            Ok(Some(Ok(current))) => self.current = Some(current),
            Ok(Some(Err(error))) | Err(error) => self.start_error = Some(error),
            Ok(None) => self.ended = true,
        }
    }

    /// Whether the stream resumes from a state, so that [`prepare`](StreamReader::prepare) has work to do.
    pub(in crate::loader) fn resumes(&self) -> bool {
        self.resume_from.is_some()
    }

    /// Skips the rest of the current shard if the policy asks for it after this error.
    fn give_up_shard(&mut self, error: &Error) {
        if let Some(current) = self.current.as_mut().filter(|_| self.stream.policy.ends_shard(error)) {
            current.reader.give_up();
        }
    }

    fn event(&mut self, sample: Sample, note: Option<Box<StreamNote>>) -> StreamEvent {
        let position = sample.position();
        let origin = InputOrigin { pass: self.pass, position, taken: self.taken, note };
        StreamEvent::Input(StageInput { origin, sample })
    }
}

impl Iterator for StreamReader {
    type Item = StreamEvent;

    /// Blocks, and reads on this thread.
    fn next(&mut self) -> Option<StreamEvent> {
        self.mode = ReadMode::Blocking;
        match self.poll_next(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(read) => read,
            Poll::Pending => {
                let next = wait::block_on(poll_fn(|cx| self.poll_next(cx)));
                next.unwrap_or_else(|error| Some(self.fatal(error)))
            }
        }
    }
}

impl StreamReader {
    /// The next event, if its bytes are already in memory and none of the caller's functions has to run.
    /// Otherwise `None`. Call it only after [`next`](Iterator::next) has returned an event.
    pub(in crate::loader) fn next_buffered(&mut self) -> Option<StreamEvent> {
        if self.stream.select.is_some() || self.current.is_none() {
            return None;
        }
        self.mode = ReadMode::Buffered;
        match self.poll_next(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(read) => read,
            Poll::Pending => None,
        }
    }

    /// The next event, without blocking.
    pub(in crate::loader) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<StreamEvent>> {
        while !self.ended {
            if let Some(error) = self.start_error.take() {
                return Poll::Ready(Some(self.fatal(error)));
            }
            if self.current.is_none()
                && let Some(read) = ready!(self.poll_gate(cx))
            {
                return Poll::Ready(Some(read));
            }
            self.start_following();
            let current = match &mut self.current {
                Some(current) => current,
                None => match self.start_pass() {
                    Some(Ok(current)) => self.current.insert(current),
                    Some(Err(error)) => return Poll::Ready(Some(self.fatal(error))),
                    None => return Poll::Ready(None),
                },
            };
            match ready!(current.poll_next(&self.stream, self.mode, cx)) {
                Some(Ok(numbered)) => {
                    self.pass_yield = PassYield::Samples;
                    self.taken += 1;
                    let note = current.note.take();
                    return Poll::Ready(Some(self.event(numbered.sample, note)));
                }
                Some(Err(SampleError::Read(error))) if current.is_replaced(&error) => {
                    return Poll::Ready(Some(self.fatal(error)));
                }
                // After an outage the samples may be readable later. To continue without these samples would
                // change the sequence.
                Some(Err(SampleError::Read(error))) if is_outage(error.kind()) => {
                    return Poll::Ready(Some(self.fatal(error)));
                }
                Some(Err(error)) => {
                    let after_success = take(&mut current.has_read) | take(&mut self.has_read);
                    let error = match error {
                        SampleError::Read(error) => {
                            self.give_up_shard(&error);
                            error
                        }
                        SampleError::Select(error) => error,
                    };
                    if self.pass_yield == PassYield::Nothing {
                        self.pass_yield = PassYield::Errors;
                    }
                    let fault = StreamFault { pass: self.pass, after_success, error };
                    return Poll::Ready(Some(StreamEvent::Fault(fault)));
                }
                // Starting the next pass may block.
                None if self.mode == ReadMode::Buffered => return Poll::Pending,
                None => {
                    if let Some(read) = self.end_pass() {
                        return Poll::Ready(Some(read));
                    }
                }
            }
        }
        Poll::Ready(None)
    }
}
