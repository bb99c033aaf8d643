//! Reads one object, or a range of it, as an in-order ring of ranged requests.
//!
//! The first request asks for the first bytes and learns the size and version; the rest follows in ranges of
//! the same version, as many in flight as the [budget](super::budget) grants, each drained by a task of its
//! own as fast as the network gives it, so that a slow reader never holds a connection open.

mod download;
mod hedge;
mod limits;
mod object;
pub(super) mod retry;
mod stall;

use super::budget::{Grant, Memory, Waiting};
use super::checksum::{Check, Checksum};
use super::runtime::{self, Task};
use super::source::{GetOptions, GetResponse};
use crate::wait::until_woken;
use crate::{Error, ErrorKind, Result};
use async_channel::{Receiver, Sender, TryRecvError};
use bytes::Bytes;
use download::{Download, Pin};
use futures::stream::{self, BoxStream, Stream, StreamExt};
pub(super) use limits::Limits;
pub(super) use object::Object;
use object::Reading;
use retry::Retries;
pub(super) use stall::timed;
use std::ops::Range;
use std::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// Number of chunks at most that wait to be read of a response that is not of a range.
const WAITING: usize = 16;
/// And such a response is thought to come in chunks of this many bytes: what others call a large one.
const LIKELY_CHUNK: usize = 512 << 10;

impl Reading {
    /// A first request, before anything of the object has been handed out: it may be repeated freely.
    async fn get_first(&self, range: Option<Range<u64>>) -> Result<GetResponse> {
        let mut retries = Retries::new(&self.limits);
        let if_version = self.expected.as_ref().and_then(|expected| expected.version.clone());
        loop {
            match hedge::get(self, GetOptions { range: range.clone(), if_version: if_version.clone() }).await
            {
                Ok(response) => {
                    self.check_expected(&response)?;
                    return Ok(response);
                }
                Err(fault) => retries.pause_after(fault, self.asked(range.clone())).await?,
            }
        }
    }
}

/// The bytes of an object. Nothing is requested before it is polled or told to begin; any executor can poll.
pub(super) fn fetch(object: Object) -> Fetch {
    Fetch::Idle(Some(object))
}

/// See [`fetch`].
pub(super) enum Fetch {
    Idle(Option<Object>),
    Running(BoxStream<'static, Result<Bytes>>),
}

impl Fetch {
    /// Sends the first request, if that was not done.
    pub(super) fn begin(&mut self) {
        if let Fetch::Idle(object) = self {
            *self = Fetch::Running(match object.take().map(Ring::begin) {
                Some(Ok(ring)) => ring.chunks(),
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

/// A range that is being received by a task, which ends with an error if it could not be received whole.
struct Part {
    chunks: Receiver<Bytes>,
    task: Task<()>,
    /// That of the whole object, with the first part, if it is known and all of the object is read.
    checksum: Option<Checksum>,
    /// Given back when the part has been read.
    _memory: Memory,
}

/// The parts of an object, in order.
struct Ring {
    object: Arc<Reading>,
    parts: Receiver<Part>,
    current: Option<Part>,
    check: Option<Check>,
    /// Bytes that have been given out.
    given: u64,
    /// How long they were waited for, in nanoseconds.
    waited: Arc<AtomicU64>,
    /// Sends the first request, and those that are granted after it. Ends with the number of bytes there are,
    /// if known.
    lead: Task<Option<u64>>,
}

impl Ring {
    fn begin(object: Object) -> Result<Self> {
        let object = Arc::new(Reading { place: object.lane.next_object(), object });
        // How much there is after the first range is not known before it is answered.
        let grants = object.place.ask(object.wanted.clone(), object.limits.range_size, 1);
        let (sender, parts) = async_channel::unbounded();
        let lead = runtime::spawn(lead(Arc::clone(&object), grants, sender))?;
        Ok(Ring { object, parts, current: None, check: None, given: 0, waited: Arc::default(), lead })
    }

    fn chunks(self) -> BoxStream<'static, Result<Bytes>> {
        stream::try_unfold(self, async |mut ring| Ok(ring.next().await?.map(|chunk| (chunk, ring)))).boxed()
    }

    async fn next(&mut self) -> Result<Option<Bytes>> {
        loop {
            if let Some(part) = &mut self.current {
                let waiting = || self.object.place.wait();
                if let Some(chunk) = received(&part.chunks, &self.object, &self.waited, waiting).await {
                    if let Some(check) = &mut self.check {
                        check.add(&chunk);
                    }
                    self.given += chunk.len() as u64;
                    return Ok(Some(chunk));
                }
                (&mut part.task).await?;
                self.current = None;
            }
            let waiting = || self.object.place.wait_for_next();
            match received(&self.parts, &self.object, &self.waited, waiting).await {
                Some(part) => {
                    self.check = part.checksum.map(Check::new).or(self.check.take());
                    self.current = Some(part);
                }
                None => {
                    // Each part was whole; that none is missing is seen here.
                    let received = self.given;
                    match (&mut self.lead).await? {
                        Some(expected) if expected != received => {
                            return Err(ErrorKind::Length { expected, received }.into());
                        }
                        _ => {}
                    }
                    self.check.take().map_or(Ok(()), Check::end)?;
                    let waited = Duration::from_nanos(self.waited.load(Relaxed));
                    self.object.meter.was_read(&self.object.url, received, waited);
                    return Ok(None);
                }
            }
        }
    }
}

/// What comes next, if anything. The time that it takes is the reader's waiting time.
async fn received<T: Send>(
    receiver: &Receiver<T>,
    object: &Object,
    waited: &Arc<AtomicU64>,
    waiting: impl Fn() -> Waiting + Send + Sync,
) -> Option<T> {
    match receiver.try_recv() {
        Ok(item) => return Some(item),
        Err(TryRecvError::Closed) => return None,
        Err(TryRecvError::Empty) => {}
    }
    let time = || Timed(Instant::now(), Arc::clone(waited));
    let waits = || (waiting(), (!object.kept).then(|| (object.meter.wait(), time())));
    until_woken(receiver.recv(), waits).await.ok()
}

/// Adds the time until it is dropped.
struct Timed(Instant, Arc<AtomicU64>);

impl Drop for Timed {
    fn drop(&mut self) {
        let passed = u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.1.fetch_add(passed, Relaxed);
    }
}

/// Sends the first request, decides how to continue, and sends a request for each range that is granted.
async fn lead(object: Arc<Reading>, grants: Receiver<Grant>, parts: Sender<Part>) -> Result<Option<u64>> {
    let Range { start, end } = object.wanted;
    let Ok(grant) = grants.recv().await else { return Ok(None) };
    // Dropped before the grant is, if something fails: what that gives back is not to be granted to this
    // object again.
    let grants = grants;
    let asked = grant.range.end;
    let first = object.get_first(Some(grant.range.clone())).await?;
    let Some(held) = &first.range else { return whole(object, first, grant, &parts) };
    let end = end.min(first.size.unwrap_or(u64::MAX)).max(start);
    // Parts of an object of unknown size or version could come from different objects: unless this is all, it
    // is read in one go.
    if held.end < end && (first.size.is_none() || first.version.is_none()) {
        drop(first);
        let response = object.get_first(None).await?;
        return whole(object, response, grant, &parts);
    }
    // There is nothing where the object ends.
    if start == end && !held.is_empty() {
        let message = format!("bytes {held:?} came of an object that should end before them");
        return Err(ErrorKind::Store(message.into()).into());
    }
    let pin = Arc::new(Pin { size: first.size, version: first.version.clone() });
    object.tell(&first);
    let mut asked = asked.min(end);
    object.place.go_on(asked..end, object.limits.ranges_in_flight);
    let checksum = object.checksum(&first, first.size.unwrap_or(u64::MAX));
    let begin = |range: Range<u64>, first, grant: Grant, checksum| {
        // The chunks of a range wait in memory until they are read; its length bounds them.
        let (sender, chunks) = async_channel::unbounded();
        let download = Download::new(Arc::clone(&object), Arc::clone(&pin), range, false);
        let _ = parts.try_send(part(download, first, grant, chunks, sender, checksum)?);
        Ok::<_, Error>(())
    };
    begin(start..asked, Some(first), grant, checksum)?;
    while asked < end {
        let Ok(grant) = grants.recv().await else { break };
        asked = grant.range.end;
        begin(grant.range.clone(), None, grant, None)?;
    }
    Ok(Some(end - start))
}

/// Reads what is wanted from one response that holds the whole object, as fast as the reader takes it.
fn whole(
    object: Arc<Reading>,
    response: GetResponse,
    grant: Grant,
    parts: &Sender<Part>,
) -> Result<Option<u64>> {
    if let Some(range) = &response.range {
        let message = format!("the whole object was asked for, and {range:?} came");
        return Err(ErrorKind::Store(message.into()).into());
    }
    object.told.set_unranged();
    object.tell(&response);
    let checksum = object.checksum(&response, response.size.unwrap_or(u64::MAX));
    let pin = Arc::new(Pin { size: response.size, version: response.version.clone() });
    // It does not end with the range that was granted: what waits is bounded by its length.
    let granted = usize::try_from(grant.range.end - grant.range.start).unwrap_or(usize::MAX);
    let (sender, chunks) = async_channel::bounded((granted / LIKELY_CHUNK).clamp(1, WAITING));
    let wanted = object.wanted.clone();
    let length = response.size.map(|size| wanted.end.min(size).saturating_sub(wanted.start));
    let download = Download::new(object, pin, wanted, true);
    let _ = parts.try_send(part(download, Some(response), grant, chunks, sender, checksum)?);
    Ok(length)
}

fn part(
    download: Download,
    first: Option<GetResponse>,
    grant: Grant,
    chunks: Receiver<Bytes>,
    sender: Sender<Bytes>,
    checksum: Option<Checksum>,
) -> Result<Part> {
    let Grant { connection, memory, .. } = grant;
    let task = runtime::spawn(async move {
        let _connection = connection;
        download.run(first, sender).await
    })?;
    Ok(Part { chunks, task, checksum, _memory: memory })
}
