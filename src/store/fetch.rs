//! Reads one object, or a range of it, as an in-order ring of ranged requests.
//!
//! The first request asks for the first bytes and learns the size and version; the rest follows in ranges of the same
//! version, a few in flight, each drained by a task of its own as fast as the network gives it, so that a slow reader
//! never holds a connection open. What is in flight bounds the memory.

use super::body::ObjectCell;
use super::report::Meter;
use super::runtime::{self, Task};
use super::source::{GetOptions, GetResponse, ObjectVersion, Source};
use crate::{Error, ErrorKind, Result};
use async_channel::{Receiver, Sender};
use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// How an object is split into requests, and how often one is tried again.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Bytes per request.
    pub(super) range_size: u64,
    /// Requests in flight per object.
    pub(super) ranges_in_flight: usize,
    /// How often a request or the rest of a range is tried again.
    pub(super) retries: u32,
    /// The pause before the first retry; it doubles with each.
    pub(super) pause: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { range_size: 8 << 20, ranges_in_flight: 4, retries: 5, pause: Duration::from_millis(100) }
    }
}

/// The bytes of an object that are wanted. Nothing is requested before the first poll; any executor can poll.
pub(super) fn fetch(object: Object) -> BoxStream<'static, Result<Bytes>> {
    let object = Arc::new(object);
    stream::once(async { runtime::spawn(open(object))?.await })
        .map_ok(|ring| {
            stream::try_unfold(ring, async |mut ring| Ok(ring.next().await?.map(|chunk| (chunk, ring))))
        })
        .try_flatten()
        .boxed()
}

/// What is to be read.
#[derive(Debug, Clone)]
pub(super) struct Object {
    pub(super) source: Arc<dyn Source>,
    pub(super) url: Arc<str>,
    /// Not an empty range; the whole object is all that there may be.
    pub(super) wanted: Range<u64>,
    /// What the object must be, if not whatever it is now.
    pub(super) expected: Option<ObjectVersion>,
    pub(super) limits: Limits,
    /// Is told what the first answer says of the object.
    pub(super) told: ObjectCell,
    pub(super) meter: Arc<Meter>,
}

impl Object {
    fn tell(&self, response: &GetResponse) {
        self.told.set(ObjectVersion { size: response.size, version: response.version.clone() });
    }

    async fn get(&self, options: GetOptions) -> Result<GetResponse> {
        self.source.get(&self.url, options).await
    }

    /// A first request, before anything of the object has been handed out: it may be repeated freely.
    async fn get_first(&self, range: Option<Range<u64>>) -> Result<GetResponse> {
        let mut retries = Retries::new(&self.limits);
        loop {
            match self.get(GetOptions { range: range.clone(), if_version: None }).await {
                Ok(response) => return Ok(response),
                Err(fault) => retries.pause_after(fault).await?,
            }
        }
    }
}

/// The longest pause before a retry.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Counts down the retries of one request.
struct Retries {
    left: u32,
    pause: Duration,
}

impl Retries {
    fn new(limits: &Limits) -> Self {
        Retries { left: limits.retries, pause: limits.pause }
    }

    /// Waits before the next try, or gives the fault back if it is final or the tries are used up.
    async fn pause_after(&mut self, fault: Error) -> Result<()> {
        if self.left == 0 || !matches!(fault.kind(), ErrorKind::Io(_) | ErrorKind::Length { .. }) {
            return Err(fault);
        }
        self.left -= 1;
        tokio::time::sleep(self.next_pause()).await;
        Ok(())
    }

    fn next_pause(&mut self) -> Duration {
        let pause = self.pause;
        self.pause = pause.saturating_mul(2).min(LONGEST_PAUSE);
        pause
    }
}

/// What all ranges of an object must have in common.
#[derive(Debug)]
struct Pin {
    size: Option<u64>,
    version: Option<String>,
}

impl Pin {
    /// Checks that `response` continues the same object at byte `at` and goes no further than `end`.
    fn check(&self, response: &GetResponse, at: u64, end: u64) -> Result<()> {
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
        match &response.range {
            // There is nothing where the object ends.
            Some(range) if at == end && range.is_empty() => Ok(()),
            Some(range) if range.start == at && at < range.end && range.end <= end => Ok(()),
            range => {
                let message = format!("bytes {at}..{end} were asked for, and {range:?} came");
                Err(ErrorKind::Store(message.into()).into())
            }
        }
    }
}

/// The ranges of an object that are in flight, the next one to hand out in front.
struct Ring {
    object: Arc<Object>,
    pin: Arc<Pin>,
    /// What is yet to be requested.
    ahead: Range<u64>,
    in_flight: VecDeque<Download>,
}

/// A task that drains one range. It ends with an error if the range could not be received whole.
struct Download {
    chunks: Receiver<Bytes>,
    task: Task<()>,
}

/// Sends the first request and decides how to go on.
async fn open(object: Arc<Object>) -> Result<Ring> {
    let Range { start, end } = object.wanted;
    let asked = end.min(start.saturating_add(object.limits.range_size));
    let first = object.get_first(Some(start..asked)).await?;
    let Some(held) = &first.range else { return whole(object, first) };
    let end = end.min(first.size.unwrap_or(u64::MAX)).max(start);
    // Parts of an object of unknown size or version could come from different objects: unless this is all, it is read
    // in one go.
    if held.end < end && (first.size.is_none() || first.version.is_none()) {
        let response = object.get_first(None).await?;
        return whole(object, response);
    }
    let pin = Arc::new(Pin { size: first.size, version: first.version.clone() });
    let asked = asked.min(end);
    pin.check(&first, start, asked)?;
    object.tell(&first);
    // The chunks of a range wait in memory until they are read; its length bounds them.
    let (sender, chunks) = async_channel::unbounded();
    let first = download(Arc::clone(&object), Arc::clone(&pin), start..asked, Some(first), sender);
    let in_flight = [Download { chunks, task: runtime::spawn(first)? }].into();
    Ok(Ring { object, pin, ahead: asked..end, in_flight })
}

/// Reads what is wanted from one response that holds the whole object, as fast as the reader takes it.
fn whole(object: Arc<Object>, response: GetResponse) -> Result<Ring> {
    if let Some(range) = &response.range {
        return Err(
            ErrorKind::Store(format!("the whole object was asked for, and {range:?} came").into()).into()
        );
    }
    object.told.set_unranged();
    object.tell(&response);
    let (sender, chunks) = async_channel::bounded(16);
    let task = runtime::spawn(drain(response, object.wanted.clone(), sender))?;
    let pin = Arc::new(Pin { size: None, version: None });
    Ok(Ring { object, pin, ahead: 0..0, in_flight: [Download { chunks, task }].into() })
}

/// Hands on the bytes `wanted` of a response that holds the whole object: what stands before them is passed over, and
/// what stands behind them is not received.
async fn drain(mut response: GetResponse, wanted: Range<u64>, chunks: Sender<Bytes>) -> Result<()> {
    let mut received = 0;
    // Nothing is to be passed over if nothing comes after it.
    if response.size.is_some_and(|size| (1..=wanted.start).contains(&size)) {
        return Ok(());
    }
    while received < wanted.end {
        let Some(chunk) = response.body.try_next().await? else { break };
        let part = part(&chunk, received, &wanted);
        received += chunk.len() as u64;
        if !part.is_empty() && chunks.send(part).await.is_err() {
            return Ok(());
        }
    }
    match response.size {
        Some(expected) if received > expected || received < expected.min(wanted.end) => {
            Err(ErrorKind::Length { expected, received }.into())
        }
        _ => Ok(()),
    }
}

/// What of `chunk`, which begins at byte `at`, lies in `wanted`.
fn part(chunk: &Bytes, at: u64, wanted: &Range<u64>) -> Bytes {
    let place = |bound: u64| {
        let place = usize::try_from(bound.saturating_sub(at)).unwrap_or(usize::MAX);
        place.min(chunk.len())
    };
    chunk.slice(place(wanted.start)..place(wanted.end))
}

impl Ring {
    async fn next(&mut self) -> Result<Option<Bytes>> {
        loop {
            self.request()?;
            let Some(front) = self.in_flight.front_mut() else { return Ok(None) };
            if let Ok(chunk) = front.chunks.recv().await {
                return Ok(Some(chunk));
            }
            (&mut front.task).await?;
            self.in_flight.pop_front();
        }
    }

    /// Starts as many requests as may be in flight.
    fn request(&mut self) -> Result<()> {
        let limits = &self.object.limits;
        while !self.ahead.is_empty() && self.in_flight.len() < limits.ranges_in_flight {
            let Range { start, end } = self.ahead;
            let end = end.min(start.saturating_add(limits.range_size));
            let (sender, chunks) = async_channel::unbounded();
            let (object, pin) = (Arc::clone(&self.object), Arc::clone(&self.pin));
            let task = runtime::spawn(download(object, pin, start..end, None, sender))?;
            self.in_flight.push_back(Download { chunks, task });
            self.ahead.start = end;
        }
        Ok(())
    }
}

/// Receives `range` of the object whole, going on at the exact byte after a fault if the version can be pinned.
async fn download(
    object: Arc<Object>,
    pin: Arc<Pin>,
    range: Range<u64>,
    mut response: Option<GetResponse>,
    chunks: Sender<Bytes>,
) -> Result<()> {
    let mut at = range.start;
    let mut retries = Retries::new(&object.limits);
    while at < range.end {
        let received = async {
            let response = match response.take() {
                Some(response) => response,
                None => {
                    object
                        .get(GetOptions { range: Some(at..range.end), if_version: pin.version.clone() })
                        .await?
                }
            };
            pin.check(&response, at, range.end)?;
            receive(response, range.clone(), &mut at, &chunks).await
        };
        let Err(fault) = received.await else { continue };
        if pin.version.is_none() {
            return Err(fault);
        }
        retries.pause_after(fault).await?;
    }
    Ok(())
}

/// Hands on the bytes of one response; `at` is the byte that comes next. All must come that the response says it holds,
/// which may be less than all of the range that was asked for.
async fn receive(
    mut response: GetResponse,
    range: Range<u64>,
    at: &mut u64,
    chunks: &Sender<Bytes>,
) -> Result<()> {
    let end = response.range.map_or(range.end, |held| held.end);
    let expected = end - range.start;
    while let Some(chunk) = response.body.try_next().await? {
        let received = *at - range.start + chunk.len() as u64;
        if received > expected {
            let message = format!("{received} bytes came where the answer to a request had {expected}");
            return Err(ErrorKind::Store(message.into()).into());
        }
        *at += chunk.len() as u64;
        // A receiver that is gone takes this task with it.
        let _ = chunks.send(chunk).await;
    }
    match *at - range.start {
        received if received < expected => Err(ErrorKind::Length { expected, received }.into()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_a_bound() {
        let mut retries = Retries::new(&Limits::default());
        let pauses: Vec<_> = (0..200).map(|_| retries.next_pause()).collect();
        assert_eq!(pauses[..3], [100, 200, 400].map(Duration::from_millis));
        assert_eq!(pauses[199], LONGEST_PAUSE);
    }
}
