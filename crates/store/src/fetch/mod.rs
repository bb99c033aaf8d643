//! Reads one object, or a range of it, by ranged requests whose bytes are returned in order.
//!
//! The first request is for the first bytes; its response has the size and version of the object. If the
//! version is not known yet, the first request is sent over a new connection, which is slow at first. So this
//! request asks for few bytes. The rest is requested in ranges of the same version, as many at a time as the
//! [budget](super::budget) grants. A task for each range receives it as fast as the network allows, so that a
//! slow reader never keeps a connection open.

mod download;
mod hedge;
mod limits;
pub(super) mod retry;
mod stall;
mod target;

use super::budget::{Grant, RangeMemory, WaitingReader};
use super::checksum::{Checksum, ChecksumVerifier};
use super::runtime::{self, Task};
use super::source::{GetOptions, GetResponse};
use crate::wait::until_woken;
use crate::{Error, ErrorKind, Result};
use async_channel::{Receiver, Sender, TryRecvError};
use bytes::Bytes;
use download::Download;
use futures::stream::{self, BoxStream, Stream, StreamExt};
pub(super) use limits::FetchLimits;
use retry::Retries;
#[cfg(feature = "transport")]
pub(super) use stall::StallWatch;
pub(super) use stall::with_stall_timeout;
use std::ops::Range;
use std::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
pub(super) use target::FetchTarget;
use target::QueuedTarget;

/// Maximum number of unread chunks if all wanted bytes are read from one response.
const MAX_UNREAD_CHUNKS: usize = 16;
/// Assumed size in bytes of a chunk of a response. The reserved memory divided by this size limits the number
/// of unread chunks. Chunks are usually smaller, so they fit into the reserved memory.
const ASSUMED_CHUNK: usize = 512 << 10;

impl QueuedTarget {
    /// Sends the first request. If it fails, repeats it from its first byte: the reader has no bytes yet.
    async fn get_first(&self, range: Option<Range<u64>>) -> Result<GetResponse> {
        let mut retries = Retries::new(&self.limits);
        retries.wait_for_host(self.context(range.clone())).await;
        let if_version = self.expected.as_ref().and_then(|expected| expected.strong().map(str::to_owned));
        loop {
            let options = GetOptions { range: range.clone(), if_version: if_version.clone() };
            match hedge::get(self, options, retries.attempt()).await {
                Ok(response) => {
                    self.check_expected(&response)?;
                    return Ok(response);
                }
                Err(fault) => retries.pause_after(fault, self.context(range.clone())).await?,
            }
        }
    }
}

/// Returns the bytes of an object as a stream that any executor can poll. Sends no request before the first
/// poll or [`begin`](Fetch::begin).
pub(super) fn fetch(target: FetchTarget) -> Fetch {
    Fetch::Idle(Some(target))
}

/// The stream that [`fetch`] returns.
pub(super) enum Fetch {
    Idle(Option<FetchTarget>),
    Running(BoxStream<'static, Result<Bytes>>),
}

impl Fetch {
    /// Sends the first request, unless it has been sent already.
    pub(super) fn begin(&mut self) {
        if let Fetch::Idle(target) = self {
            *self = Fetch::Running(match target.take().map(OrderedRanges::begin) {
                Some(Ok(ranges)) => ranges.chunks(),
                Some(Err(error)) => stream::iter([Err(error)]).boxed(),
                None => stream::empty().boxed(),
            });
        }
    }
}

impl Stream for Fetch {
    type Item = Result<Bytes>;

    fn poll_next(mut self: pin::Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.begin();
        match &mut *self {
            Fetch::Running(chunks) => chunks.poll_next_unpin(cx),
            Fetch::Idle(_) => Poll::Ready(None),
        }
    }
}

/// A range that has been requested. Its task receives the bytes, and fails if it cannot receive all bytes.
struct IncomingRange {
    chunks: Receiver<Bytes>,
    task: Task<()>,
    /// The checksum of the whole object. Only the first range has it, and only if it is known and the whole
    /// object is read.
    checksum: Option<Checksum>,
    /// Released as the range is read.
    memory: RangeMemory,
    /// Whether `memory` is for the unread chunks only, and therefore stays the same while the range is read.
    is_window: bool,
}

/// The ranges of an object, in order.
struct OrderedRanges {
    target: Arc<QueuedTarget>,
    ranges: Receiver<IncomingRange>,
    current: Option<IncomingRange>,
    verifier: Option<ChecksumVerifier>,
    /// Number of bytes returned.
    returned: u64,
    /// Time that the reader has waited, in nanoseconds.
    waited: Arc<AtomicU64>,
    /// The task that sends all requests. Its output is the expected number of bytes, if known.
    requests: Task<Option<u64>>,
}

impl OrderedRanges {
    fn begin(target: FetchTarget) -> Result<Self> {
        let target = Arc::new(QueuedTarget { queued: target.queue.next_object(), target });
        // Requests only one range at first: the size of the object is unknown before the first response.
        let grants = target.queued.request(target.wanted.clone(), target.range_sizes(), 1);
        let (sender, ranges) = async_channel::unbounded();
        let requests = runtime::spawn(send_requests(Arc::clone(&target), grants, sender))?;
        let waited = Arc::default();
        Ok(OrderedRanges { target, ranges, current: None, verifier: None, returned: 0, waited, requests })
    }

    fn chunks(self) -> BoxStream<'static, Result<Bytes>> {
        stream::try_unfold(self, async |mut ranges| Ok(ranges.next().await?.map(|chunk| (chunk, ranges))))
            .boxed()
    }

    async fn next(&mut self) -> Result<Option<Bytes>> {
        loop {
            if let Some(range) = &mut self.current {
                let waiting = || self.target.queued.wait();
                if let Some(chunk) = receive(&range.chunks, &self.target, &self.waited, waiting).await {
                    if let Some(verifier) = &mut self.verifier {
                        verifier.add(&chunk);
                    }
                    self.returned += chunk.len() as u64;
                    if !range.is_window {
                        range.memory.read(chunk.len());
                    }
                    return Ok(Some(chunk));
                }
                (&mut range.task).await?;
                self.current = None;
            }
            let waiting = || self.target.queued.wait_for_next();
            match receive(&self.ranges, &self.target, &self.waited, waiting).await {
                Some(range) => {
                    self.verifier = range.checksum.map(ChecksumVerifier::new).or(self.verifier.take());
                    self.current = Some(range);
                }
                None => {
                    // Each range was complete. The number of expected bytes shows whether a range is missing.
                    let received = self.returned;
                    match (&mut self.requests).await? {
                        Some(expected) if expected != received => {
                            return Err(ErrorKind::Length { expected, received }.into());
                        }
                        _ => {}
                    }
                    self.verifier.take().map_or(Ok(()), ChecksumVerifier::finish)?;
                    let waited = Duration::from_nanos(self.waited.load(Relaxed));
                    if !self.target.for_cache {
                        self.target.meter.was_read(&self.target.url, received, waited);
                    }
                    return Ok(None);
                }
            }
        }
    }
}

/// Receives the next item, if there is one. The time until it arrives counts as waiting time of the reader.
async fn receive<T: Send>(
    receiver: &Receiver<T>,
    target: &FetchTarget,
    waited: &Arc<AtomicU64>,
    waiting: impl Fn() -> WaitingReader + Send + Sync,
) -> Option<T> {
    match receiver.try_recv() {
        Ok(item) => return Some(item),
        Err(TryRecvError::Closed) => return None,
        Err(TryRecvError::Empty) => {}
    }
    let timer = || WaitTimer { start: Instant::now(), nanoseconds: Arc::clone(waited) };
    let guards = || (waiting(), (!target.for_cache).then(|| (target.meter.wait(), timer())));
    until_woken(receiver.recv(), guards).await.ok()
}

/// A guard that adds the time for which it lives to `nanoseconds`.
struct WaitTimer {
    start: Instant,
    nanoseconds: Arc<AtomicU64>,
}

impl Drop for WaitTimer {
    fn drop(&mut self) {
        let passed = u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.nanoseconds.fetch_add(passed, Relaxed);
    }
}

/// Sends the first request, chooses how to read the rest, and sends a request for each range that is granted.
/// Returns the expected number of bytes, if known.
async fn send_requests(
    target: Arc<QueuedTarget>,
    grants: Receiver<Grant>,
    ranges: Sender<IncomingRange>,
) -> Result<Option<u64>> {
    let Range { start, end } = target.wanted;
    let Ok(grant) = grants.recv().await else { return Ok(None) };
    // This variable is declared after `grant`, so an early return drops it first. Otherwise the memory that
    // `grant` releases could be granted to this object again.
    let grants = grants;
    let requested = grant.range.end;
    let first = target.get_first(Some(grant.range.clone())).await?;
    let Some(held) = &first.range else { return receive_in_one(target, first, None, grant, &ranges) };
    let end = end.min(first.size.unwrap_or(u64::MAX)).max(start);
    let object = first.object();
    // If the size is unknown, or there is no strong version, two ranges could be of different objects. So the
    // bytes are read in one response, unless this range has all wanted bytes.
    if held.end < end && (object.size.is_none() || !object.is_strong()) {
        drop(first);
        let range = object.size.filter(|size| (start, end) != (0, *size)).map(|_| start..end);
        let response = target.get_first(range.clone()).await?;
        return receive_in_one(target, response, range, grant, &ranges);
    }
    // If the range begins at or after the end of the object, there must be no bytes.
    if start == end && !held.is_empty() {
        let message = format!("received bytes {held:?} of an object that ends before them");
        return Err(ErrorKind::Store(message.into()).into());
    }
    let pinned = Arc::new(object);
    target.set_object(&first);
    let mut requested = requested.min(end);
    target.queued.extend(requested..end, target.limits.ranges_in_flight);
    let checksum = target.checksum(&first, first.size.unwrap_or(u64::MAX));
    let begin = |range: Range<u64>, first, grant: Grant, checksum| {
        // Unbounded: the length of the range limits the number of chunks.
        let (sender, chunks) = async_channel::unbounded();
        let download = Download::new(Arc::clone(&target), Arc::clone(&pinned), range, false);
        let incoming = spawn_download(download, first, grant, sender, chunks)?;
        let _ = ranges.try_send(IncomingRange { checksum, ..incoming });
        Ok::<_, Error>(())
    };
    begin(start..requested, Some(first), grant, checksum)?;
    while requested < end {
        let Ok(grant) = grants.recv().await else { break };
        requested = grant.range.end;
        begin(grant.range.clone(), None, grant, None)?;
    }
    Ok(Some(end - start))
}

/// Reads the wanted bytes from one response, as fast as the reader takes them. `requested` is the requested
/// range; `None` if the whole object was requested, or if the source returned it instead.
fn receive_in_one(
    target: Arc<QueuedTarget>,
    response: GetResponse,
    requested: Option<Range<u64>>,
    mut grant: Grant,
    ranges: &Sender<IncomingRange>,
) -> Result<Option<u64>> {
    if let (None, Some(range)) = (&requested, &response.range) {
        let message = format!("requested the whole object, and received bytes {range:?}");
        return Err(ErrorKind::Store(message.into()).into());
    }
    let unranged = response.range.is_none();
    if unranged {
        target.object.set_unranged();
    }
    target.set_object(&response);
    let checksum = target.checksum(&response, response.size.unwrap_or(u64::MAX));
    let pinned = Arc::new(response.object());
    let wanted = requested.filter(|_| !unranged).unwrap_or_else(|| target.wanted.clone());
    let length = response.size.map(|size| wanted.end.min(size).saturating_sub(wanted.start));
    // The response has all wanted bytes, but the memory was reserved only for the granted range, which may be
    // short. More memory allows more unread chunks.
    grant.memory.grow(length.unwrap_or(u64::MAX));
    let granted = usize::try_from(grant.memory.bytes()).unwrap_or(usize::MAX);
    let (sender, chunks) = async_channel::bounded((granted / ASSUMED_CHUNK).clamp(1, MAX_UNREAD_CHUNKS));
    let download = Download::new(target, pinned, wanted, unranged);
    let incoming = spawn_download(download, Some(response), grant, sender, chunks)?;
    let _ = ranges.try_send(IncomingRange { checksum, is_window: true, ..incoming });
    Ok(length)
}

fn spawn_download(
    download: Download,
    first: Option<GetResponse>,
    grant: Grant,
    sender: Sender<Bytes>,
    chunks: Receiver<Bytes>,
) -> Result<IncomingRange> {
    let Grant { connection, memory, .. } = grant;
    let task = runtime::spawn(async move {
        let _connection = connection;
        download.run(first, sender).await
    })?;
    Ok(IncomingRange { chunks, task, checksum: None, memory, is_window: false })
}
