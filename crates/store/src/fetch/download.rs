//! Receives one range, with as many requests as are necessary, and watches each response for stalls.

use super::hedge;
use super::retry::Retries;
use super::stall::StallWatch;
use super::target::QueuedTarget;
use crate::object_version::{ObjectVersion, VersionComparison};
use crate::source::{GetOptions, GetResponse};
use crate::{Error, ErrorKind, Result};
use async_channel::Sender;
use bytes::Bytes;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Maximum size in bytes of a range whose bytes are copied. Ranges are short if many readers share little
/// memory. Without a copy, each chunk of such a range would prevent the client from freeing a buffer of up to
/// 408 KiB.
const MAX_COPIED_RANGE: u64 = 256 << 10;
/// Maximum size in bytes of one copy. The parser of each stream keeps the chunk that it is reading, and the
/// memory of this chunk is not counted.
const MAX_COPY: usize = 64 << 10;

/// The download of one range.
#[derive(Debug)]
pub(super) struct Download {
    target: Arc<QueuedTarget>,
    /// The version that all responses must have.
    pinned: Arc<ObjectVersion>,
    range: Range<u64>,
    /// Whether the source sends only whole objects.
    unranged: bool,
    /// The offset of the next byte to send to the reader.
    at: u64,
    /// CRC-32C of the bytes that the reader has received; only computed if no strong version identifies the
    /// object.
    sum: u32,
    /// Time that the last response waited for the reader.
    reader_time: Duration,
}

impl Download {
    /// If `unranged` is set, the whole object is requested, whatever `range` is.
    pub(super) fn new(
        target: Arc<QueuedTarget>,
        pinned: Arc<ObjectVersion>,
        range: Range<u64>,
        unranged: bool,
    ) -> Self {
        let at = range.start;
        Download { target, pinned, range, unranged, at, sum: 0, reader_time: Duration::ZERO }
    }

    /// Receives the range, and sends its bytes to `chunks` in order. `first` is the first response, if there
    /// is one already.
    pub(super) async fn run(mut self, mut first: Option<GetResponse>, chunks: Sender<Bytes>) -> Result<()> {
        let mut retries = Retries::new(&self.target.limits);
        let target = Arc::clone(&self.target);
        if first.is_none() {
            retries.wait_for_host(target.context(self.next().range)).await;
        }
        while self.at < self.range.end {
            let before = self.at;
            let response = match first.take() {
                Some(response) => Ok(response),
                None => hedge::get(&target, self.next(), retries.attempt()).await,
            };
            let received = match response {
                Ok(response) => self.receive(response, &chunks).await,
                Err(error) => Err(error),
            };
            retries.exclude(std::mem::take(&mut self.reader_time));
            match received {
                Ok(true) => break,
                Ok(false) if self.at < self.range.end => {
                    retries.short_response(self.at - before, self.range.end - before)?;
                }
                Ok(false) => {}
                // All bytes of the range were received; the fault was at the end of the response.
                Err(fault)
                    if self.at == self.range.end
                        && self.can_resume()
                        && matches!(fault.kind(), ErrorKind::Io(_)) =>
                {
                    break;
                }
                Err(fault) => {
                    retries.progress(self.at - before);
                    retries.pause_after(fault, target.context(self.next().range)).await?;
                }
            }
        }
        Ok(())
    }

    /// The next request: the rest of the range if a strong version makes sure that the object is the same,
    /// else the whole range.
    fn next(&self) -> GetOptions {
        let range = match self.can_resume() {
            _ if self.unranged => None,
            true => Some(self.at..self.range.end),
            false => Some(self.range.clone()),
        };
        GetOptions { range, if_version: self.pinned.strong().map(str::to_owned) }
    }

    /// Checks that a response is of the same object. If no strong version identifies the object,
    /// [`receive`](Self::receive) also compares the bytes that the reader already has.
    fn check(&self, response: &GetResponse) -> Result<()> {
        let object = response.object();
        match self.pinned.compare(&object) {
            VersionComparison::Same => Ok(()),
            VersionComparison::Unknown if !self.pinned.is_strong() => Ok(()),
            _ => Err(self.pinned.changed_to(&object)),
        }
    }

    /// Receives one response. Returns whether it is the last response that is needed.
    async fn receive(&mut self, mut response: GetResponse, chunks: &Sender<Bytes>) -> Result<bool> {
        self.check(&response)?;
        let held = self.held(&response)?;
        let resume_at = self.at;
        let mut repeated_sum = 0;
        let mut position = held.start;
        let (mut watch, start) = (StallWatch::new(self.target.limits.stall), Instant::now());
        // If the range begins after the end of the object, there is nothing to read.
        if self.unranged && response.size.is_some_and(|size| (1..=self.range.start).contains(&size)) {
            return Ok(true);
        }
        // The response for a range is read to its end, to check that no bytes follow.
        while !self.unranged || position < self.range.end {
            let Some(chunk) = watch.next(&mut response.body).await? else { break };
            let budget = &self.target.queued.budget;
            self.target.meter.received(chunk.len());
            budget.received(chunk.len());
            let end = position + chunk.len() as u64;
            if !self.unranged && end > held.end {
                let (received, expected) = (end - held.start, held.end - held.start);
                let message = format!("received {received} bytes in a response of {expected}");
                return Err(ErrorKind::Store(message.into()).into());
            }
            // If no strong version identifies the object, the response must repeat the bytes that the reader
            // has.
            let repeated = overlap(&chunk, position, &(self.range.start..resume_at));
            self.target.meter.wasted(resume_at.min(end).saturating_sub(position));
            repeated_sum = crc32c::crc32c_append(repeated_sum, &repeated);
            let new = overlap(&chunk, position, &(resume_at..self.range.end));
            position = end;
            if !new.is_empty() {
                if repeated_sum != self.sum && self.at == resume_at && !self.can_resume() {
                    return Err(changed_content());
                }
                self.at += new.len() as u64;
                if !self.can_resume() {
                    self.sum = crc32c::crc32c_append(self.sum, &new);
                }
                // If the receiver was dropped, this task is about to be cancelled. But it can only be
                // cancelled while it waits, which it never does if the body is always ready.
                let start = Instant::now();
                let is_received = self.send_chunk(new, chunks).await;
                self.reader_time += start.elapsed();
                if !is_received {
                    return Ok(true);
                }
            }
        }
        self.target.queued.budget.completed(position - held.start, start.elapsed());
        if !self.can_resume() && self.at == resume_at && position >= resume_at && repeated_sum != self.sum {
            return Err(changed_content());
        }
        if self.unranged {
            return match response.size {
                Some(expected) if position < expected.min(self.range.end) || position > expected => {
                    Err(ErrorKind::Length { expected, received: position }.into())
                }
                // The object is shorter than before.
                None if position < resume_at && resume_at > self.range.start => Err(changed_content()),
                _ => Ok(true),
            };
        }
        match position {
            position if position < held.end => {
                let (expected, received) = (held.end - self.range.start, position - self.range.start);
                Err(ErrorKind::Length { expected, received }.into())
            }
            _ if self.at < self.range.end && !self.can_resume() => {
                let message = "the source sends fewer bytes than requested of an object without a version";
                Err(ErrorKind::Store(message.into()).into())
            }
            _ => Ok(false),
        }
    }

    /// Sends a chunk to the reader. Returns whether the reader still exists.
    async fn send_chunk(&self, chunk: Bytes, chunks: &Sender<Bytes>) -> bool {
        if self.unranged || self.range.end - self.range.start > MAX_COPIED_RANGE {
            return chunks.send(chunk).await.is_ok();
        }
        for copy in chunk.chunks(MAX_COPY) {
            if chunks.send(Bytes::copy_from_slice(copy)).await.is_err() {
                return false;
            }
        }
        true
    }

    /// Whether a strong version identifies the object, so that a request can resume at any byte.
    fn can_resume(&self) -> bool {
        !self.unranged && self.pinned.is_strong()
    }

    /// The range of bytes in the response. It must be the requested range, or another range that begins with
    /// the same byte.
    fn held(&self, response: &GetResponse) -> Result<Range<u64>> {
        let requested = self.next().range;
        let end = self.range.end;
        match (&response.range, requested) {
            (None, None) => Ok(0..response.size.unwrap_or(u64::MAX)),
            (Some(held), Some(requested))
                if held.start == requested.start && !held.is_empty() && held.end <= end =>
            {
                Ok(held.clone())
            }
            (held, requested) => {
                let message = format!("requested bytes {requested:?}, and received {held:?}");
                Err(ErrorKind::Store(message.into()).into())
            }
        }
    }
}

fn changed_content() -> Error {
    let (before, after) = ("the bytes that were read first".into(), "other bytes in a retry".into());
    ErrorKind::Changed { before, after }.into()
}

/// Returns the bytes of `chunk` that lie in `wanted`. The chunk begins at byte `at`.
fn overlap(chunk: &Bytes, at: u64, wanted: &Range<u64>) -> Bytes {
    let index = |bound: u64| {
        let index = usize::try_from(bound.saturating_sub(at)).unwrap_or(usize::MAX);
        index.min(chunk.len())
    };
    chunk.slice(index(wanted.start)..index(wanted.end).max(index(wanted.start)))
}
