//! One range, received whole: over as many answers as it takes, each of which is watched.

use super::hedge;
use super::object::Reading;
use super::retry::Retries;
use super::stall::{stalled, timed};
use crate::store::source::{GetOptions, GetResponse};
use crate::{Error, ErrorKind, Result};
use async_channel::Sender;
use bytes::Bytes;
use futures::stream::TryStreamExt;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What all answers for an object must have in common.
#[derive(Debug)]
pub(super) struct Pin {
    pub(super) size: Option<u64>,
    pub(super) version: Option<String>,
}

impl Pin {
    /// Checks that `response` is of the same object.
    fn check(&self, response: &GetResponse) -> Result<()> {
        let changed = |before: String, after: String| Err(ErrorKind::Changed { before, after }.into());
        if let (Some(before), Some(size)) = (self.size, response.size)
            && size != before
        {
            return changed(format!("{before} bytes"), format!("{size} bytes"));
        }
        if response.version != self.version {
            let shown = |version: &Option<String>| version.clone().unwrap_or_else(|| "none".into());
            return changed(shown(&self.version), shown(&response.version));
        }
        Ok(())
    }
}

/// What is to be received, and how far it has come.
#[derive(Debug)]
pub(super) struct Download {
    object: Arc<Reading>,
    pin: Arc<Pin>,
    range: Range<u64>,
    /// Whether the source sends whole objects only.
    unranged: bool,
    /// The byte that comes next.
    at: u64,
    /// The checksum of what has been handed on, where no version tells the object from others.
    sum: u32,
    /// How long the last response waited for the reader.
    rested: Duration,
}

impl Download {
    /// `unranged`: the object is asked for as a whole, whatever `range` is.
    pub(super) fn new(object: Arc<Reading>, pin: Arc<Pin>, range: Range<u64>, unranged: bool) -> Self {
        let at = range.start;
        Download { object, pin, range, unranged, at, sum: 0, rested: Duration::ZERO }
    }

    /// Hands on the bytes of the range, from the first to the last. `first` is a response to begin with, if
    /// there is one.
    pub(super) async fn run(mut self, mut first: Option<GetResponse>, chunks: Sender<Bytes>) -> Result<()> {
        let mut retries = Retries::new(&self.object.limits);
        let object = Arc::clone(&self.object);
        while self.at < self.range.end {
            let before = self.at;
            let response = match first.take() {
                Some(response) => Ok(response),
                None => hedge::get(&object, self.next()).await,
            };
            let received = match response {
                Ok(response) => self.receive(response, &chunks).await,
                Err(error) => Err(error),
            };
            retries.rested(std::mem::take(&mut self.rested));
            match received {
                Ok(true) => break,
                Ok(false) if self.at < self.range.end => {
                    retries.short_answer(self.at - before, self.range.end - before)?;
                }
                Ok(false) => {}
                // It came whole, if not to its end.
                Err(fault)
                    if self.at == self.range.end
                        && self.exact()
                        && matches!(fault.kind(), ErrorKind::Io(_)) =>
                {
                    break;
                }
                Err(fault) => {
                    retries.progress(self.at - before);
                    retries.pause_after(fault, object.asked(self.next().range)).await?;
                }
            }
        }
        Ok(())
    }

    /// What to ask for next: what is left, if it is certain that it is of the same object.
    fn next(&self) -> GetOptions {
        let range = match (self.unranged, &self.pin.version) {
            (true, _) => None,
            (false, Some(_)) => Some(self.at..self.range.end),
            (false, None) => Some(self.range.clone()),
        };
        GetOptions { range, if_version: self.pin.version.clone() }
    }

    /// Receives one answer. True when nothing comes after it.
    async fn receive(&mut self, mut response: GetResponse, chunks: &Sender<Bytes>) -> Result<bool> {
        self.pin.check(&response)?;
        let held = self.held(&response)?;
        let again = self.at;
        let mut again_sum = 0;
        let mut position = held.start;
        let (mut watch, begun) = (Watch::new(self.object.limits.stall), Instant::now());
        // Nothing is to be passed over if nothing comes after it.
        if self.unranged && response.size.is_some_and(|size| (1..=self.range.start).contains(&size)) {
            return Ok(true);
        }
        // A response for a range is read to its end, to see that it is its end.
        while !self.unranged || position < self.range.end {
            let Some(chunk) = watch.next(&mut response).await? else { break };
            let budget = &self.object.place.budget;
            self.object.meter.received(chunk.len());
            budget.received(chunk.len());
            let end = position + chunk.len() as u64;
            if !self.unranged && end > held.end {
                let (received, expected) = (end - held.start, held.end - held.start);
                let message = format!("{received} bytes came where the answer to a request had {expected}");
                return Err(ErrorKind::Store(message.into()).into());
            }
            // What was handed on before a response broke must come again, where no version says that it does.
            let known = part(&chunk, position, &(self.range.start..again));
            self.object.meter.wasted(again.min(end).saturating_sub(position));
            again_sum = crc32c::crc32c_append(again_sum, &known);
            let new = part(&chunk, position, &(again..self.range.end));
            position = end;
            if !new.is_empty() {
                if again_sum != self.sum && self.at == again && !self.exact() {
                    return Err(changed_content());
                }
                self.at += new.len() as u64;
                if !self.exact() {
                    self.sum = crc32c::crc32c_append(self.sum, &new);
                }
                // Nobody reads any more. The task is about to be ended, but a body may never give it the
                // occasion.
                let begun = Instant::now();
                let sent = chunks.send(new).await;
                self.rested += begun.elapsed();
                if sent.is_err() {
                    return Ok(true);
                }
            }
        }
        self.object.place.budget.completed(position - held.start, begun.elapsed());
        if !self.exact() && self.at == again && position >= again && again_sum != self.sum {
            return Err(changed_content());
        }
        if self.unranged {
            return match response.size {
                Some(expected) if position < expected.min(self.range.end) || position > expected => {
                    Err(ErrorKind::Length { expected, received: position }.into())
                }
                // It is whole, and shorter than it was.
                None if position < again && again > self.range.start => Err(changed_content()),
                _ => Ok(true),
            };
        }
        match position {
            position if position < held.end => {
                let (expected, received) = (held.end - self.range.start, position - self.range.start);
                Err(ErrorKind::Length { expected, received }.into())
            }
            _ if self.at < self.range.end && !self.exact() => {
                let message = "the source sends less than it is asked for, of an object without a version";
                Err(ErrorKind::Store(message.into()).into())
            }
            _ => Ok(false),
        }
    }

    /// Whether a version says which object it is, so that a response can begin anywhere.
    fn exact(&self) -> bool {
        !self.unranged && self.pin.version.is_some()
    }

    /// The bytes that the response brings, which must be what was asked for or the beginning of it.
    fn held(&self, response: &GetResponse) -> Result<Range<u64>> {
        let asked = self.next().range;
        let end = self.range.end;
        match (&response.range, asked) {
            (None, None) => Ok(0..response.size.unwrap_or(u64::MAX)),
            (Some(held), Some(asked)) if held.start == asked.start && !held.is_empty() && held.end <= end => {
                Ok(held.clone())
            }
            (held, asked) => {
                let message = format!("bytes {asked:?} were asked for, and {held:?} came");
                Err(ErrorKind::Store(message.into()).into())
            }
        }
    }
}

fn changed_content() -> Error {
    let (before, after) = ("what came first".into(), "other bytes when it was read again".into());
    ErrorKind::Changed { before, after }.into()
}

/// What of `chunk`, which begins at byte `at`, lies in `wanted`.
fn part(chunk: &Bytes, at: u64, wanted: &Range<u64>) -> Bytes {
    let place = |bound: u64| {
        let place = usize::try_from(bound.saturating_sub(at)).unwrap_or(usize::MAX);
        place.min(chunk.len())
    };
    chunk.slice(place(wanted.start)..place(wanted.end).max(place(wanted.start)))
}

/// Fewer bytes per second than this are as bad as none.
const DRIP: u64 = 1 << 10;

/// Watches that a body keeps coming. Only the time in which it is waited for counts, not what its reader
/// takes.
#[derive(Debug)]
struct Watch {
    stall: Duration,
    /// Time waited, and bytes that came, since the last look at them.
    waited: Duration,
    bytes: u64,
}

impl Watch {
    fn new(stall: Duration) -> Self {
        Watch { stall, waited: Duration::ZERO, bytes: 0 }
    }

    async fn next(&mut self, response: &mut GetResponse) -> Result<Option<Bytes>> {
        let begun = Instant::now();
        let chunk = timed(self.stall, response.body.try_next()).await?;
        self.waited += begun.elapsed();
        self.bytes += chunk.as_ref().map_or(0, Bytes::len) as u64;
        if self.waited >= self.stall {
            let enough = self.waited.as_secs_f64() * DRIP as f64;
            if chunk.is_some() && (self.bytes as f64) < enough {
                return Err(stalled(self.stall, &format!("only {} bytes came", self.bytes)));
            }
            (self.waited, self.bytes) = (Duration::ZERO, 0);
        }
        Ok(chunk)
    }
}
