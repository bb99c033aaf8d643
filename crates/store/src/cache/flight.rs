//! The flight of an object: the one fetch into the cache that all its readers in this process share
//! (single-flight).
//!
//! A flight is a task that either fills the file of the object or follows the process that does, and
//! publishes its progress. It runs at the speed of the network, whatever its readers do, until the object is
//! complete or the last reader is dropped.

mod follow;

use super::directory::{Claim, PartialEntry, Reservation};
use super::file::{CachedContent, Written};
use super::progress::{FlightFile, FlightProgress, Remainder};
use super::state::{CacheState, Flights};
use crate::fetch::{FetchTarget, fetch};
use crate::{Error, ErrorKind, Result};
use crate::{ObjectCell, ObjectVersion, runtime};
use bytes::Bytes;
use futures::FutureExt;
use futures::future::{Either, select};
use futures::stream::{self, BoxStream, StreamExt};
use std::io;
use std::pin::pin;
use std::sync::Arc;
use tokio::sync::watch;

/// Number of bytes that are gathered into one write, if as many are ready.
const BATCH: usize = 4 << 20;

/// Joins the flight of an object, and starts one if there is none. An entry of the version `stale` is
/// replaced.
pub(super) fn join(
    cache: &Arc<CacheState>,
    key: &str,
    target: &FetchTarget,
    stale: Option<ObjectVersion>,
) -> Result<watch::Receiver<FlightProgress>> {
    let (sender, progress) = watch::channel(FlightProgress::Requested);
    {
        let mut flights = cache.flights();
        if let Some(flight) = flights.get(key).filter(|flight| !flight.borrow().is_damaged()) {
            return Ok(flight.subscribe());
        }
        flights.insert(key.into(), sender.clone());
    }
    let target = FetchTarget { wanted: 0..u64::MAX, expected: None, for_cache: true, ..target.clone() };
    let flight = Flight { cache: Arc::clone(cache), key: key.into(), target, stale, sender };
    runtime::spawn(flight.run())?.detach();
    Ok(progress)
}

/// Keeps a flight going to its end, even without readers.
pub(super) fn keep_alive(
    cache: &Arc<CacheState>,
    mut progress: watch::Receiver<FlightProgress>,
) -> Result<()> {
    let guard = FinishingGuard::new(cache);
    let task = runtime::spawn(async move {
        let _guard = guard;
        let _ = progress.wait_for(FlightProgress::is_over).await;
        Ok(())
    });
    task.map(runtime::Task::detach)
}

/// [`Cache::flush`](super::Cache::flush) waits until all these guards are dropped.
struct FinishingGuard(Arc<CacheState>);

impl FinishingGuard {
    fn new(cache: &Arc<CacheState>) -> Self {
        cache.finishing.send_modify(|finishing| *finishing += 1);
        FinishingGuard(Arc::clone(cache))
    }
}

impl Drop for FinishingGuard {
    fn drop(&mut self) {
        self.0.finishing.send_modify(|finishing| *finishing -= 1);
    }
}

/// See the [module](self).
struct Flight {
    cache: Arc<CacheState>,
    key: String,
    target: FetchTarget,
    /// The version of an entry that is to be replaced.
    stale: Option<ObjectVersion>,
    sender: watch::Sender<FlightProgress>,
}

/// Publishes the end of the flight, whatever its cause: an error, cancellation, or a panic.
impl Drop for Flight {
    fn drop(&mut self) {
        self.leave();
        self.sender.send_if_modified(|progress| {
            let was_running = !progress.is_over();
            if was_running {
                *progress = FlightProgress::Ended(None, Written::default(), Remainder::default());
            }
            was_running
        });
    }
}

impl Flight {
    async fn run(self) -> Result<()> {
        loop {
            let (cache, key, stale) = (Arc::clone(&self.cache), self.key.clone(), self.stale.clone());
            let claim = blocking(move || cache.directory.claim(&key, stale.as_ref())).await;
            match claim {
                Ok(Claim::Mine(partial)) => {
                    self.fill(Arc::new(partial)).await;
                    return Ok(());
                }
                Ok(Claim::Busy(file)) => {
                    if self.follow(file).await? {
                        return Ok(());
                    }
                }
                Ok(Claim::Entry) => {
                    self.end(FlightProgress::Entry);
                    return Ok(());
                }
                Err(error) => {
                    self.cache.warn(&error);
                    return Ok(());
                }
            }
        }
    }

    fn publish(&self, progress: FlightProgress) {
        self.sender.send_replace(progress);
    }

    /// Publishes the last progress. Later readers start another flight.
    fn end(&self, progress: FlightProgress) {
        self.leave();
        self.publish(progress);
    }

    /// Removes this flight from the flights of the cache.
    fn leave(&self) {
        self.remove_from(&mut self.cache.flights());
    }

    fn remove_from(&self, flights: &mut Flights) {
        if flights.get(&self.key).is_some_and(|flight| flight.same_channel(&self.sender)) {
            flights.remove(&self.key);
        }
    }

    /// Whether the flight has no readers. If so, it gets none any more: the next reader starts another
    /// flight.
    fn is_deserted(&self) -> bool {
        let mut flights = self.cache.flights();
        let deserted = self.sender.receiver_count() == 0;
        if deserted {
            self.remove_from(&mut flights);
        }
        deserted
    }

    /// Waits for `future`. Returns `None` if the flight has no readers any more.
    async fn while_followed<F: Future + Unpin>(&self, mut future: F) -> Option<F::Output> {
        loop {
            match select(&mut future, pin!(self.sender.closed())).await {
                Either::Left((output, _)) => return Some(output),
                Either::Right(_) if self.is_deserted() => return None,
                Either::Right(_) => {}
            }
        }
    }

    async fn fill(&self, partial: Arc<PartialEntry>) {
        let object = ObjectCell::default();
        let mut chunks = fetch(FetchTarget { object: object.clone(), ..self.target.clone() }).boxed();
        let Some(first) = self.while_followed(chunks.next()).await else {
            return self.abandon(partial).await;
        };
        let reservation = match &first {
            Some(Err(_)) => Ok(Reservation::NoSpace),
            _ => {
                let (cache, partial) = (Arc::clone(&self.cache), Arc::clone(&partial));
                let (url, version) = (self.target.url.clone(), object.get().unwrap_or_default());
                blocking(move || cache.directory.reserve(&partial, &url, &version)).await
            }
        };
        let content = match reservation {
            Ok(Reservation::Reserved(content)) => content,
            Ok(Reservation::Entry) => {
                self.abandon(partial).await;
                return self.end(FlightProgress::Entry);
            }
            reservation => {
                if let Err(error) = reservation {
                    self.cache.warn(&error);
                }
                let remainder = Remainder::new(stream::iter(first).chain(chunks), object);
                self.end(FlightProgress::Ended(None, Written::default(), remainder));
                return self.abandon(partial).await;
            }
        };
        let file = FlightFile { content: Arc::new(content), filled_here: true };
        self.publish(FlightProgress::Growing(file.clone(), Written::default()));
        self.receive(partial, file, first, chunks, object).await;
    }

    /// Writes the object to the file as it is received.
    async fn receive(
        &self,
        partial: Arc<PartialEntry>,
        file: FlightFile,
        mut next: Option<Result<Bytes>>,
        mut chunks: BoxStream<'static, Result<Bytes>>,
        object: ObjectCell,
    ) {
        let mut written = Written::default();
        loop {
            let (batch, mut end) = gather(next, &mut chunks);
            let received = written.bytes + batch.iter().map(|chunk| chunk.len() as u64).sum::<u64>();
            if received > file.content.size {
                end = Some(Some(Err(wrong_length(&file.content, received))));
            } else if !batch.is_empty() {
                let (cache, claimed) = (Arc::clone(&self.cache), Arc::clone(&partial));
                let content = Arc::clone(&file.content);
                let write = blocking(move || {
                    let result = write(&cache, &claimed, &content, &batch, written);
                    Ok((batch, result))
                });
                match write.await {
                    Ok((_, Ok(after))) => written = after,
                    Ok((batch, Err(error))) => {
                        self.cache.warn(&error);
                        let unwritten =
                            stream::iter(batch.into_iter().map(Ok)).chain(stream::iter(end.flatten()));
                        let remainder = Remainder::new(unwritten.chain(chunks), object);
                        self.end(FlightProgress::Ended(Some(file), written, remainder));
                        return self.abandon(partial).await;
                    }
                    Err(error) => {
                        self.cache.warn(&error);
                        return self.abandon(partial).await;
                    }
                }
                self.publish(FlightProgress::Growing(file.clone(), written));
            }
            if file.content.is_damaged() {
                let remainder = Remainder::new(stream::iter(end.flatten()).chain(chunks), object);
                self.end(FlightProgress::Ended(Some(file), written, remainder));
                return self.abandon(partial).await;
            }
            next = match end {
                Some(end) => end,
                None => match self.while_followed(chunks.next()).await {
                    Some(next) => next,
                    None => return self.abandon(partial).await,
                },
            };
            let error = match next {
                Some(Ok(_)) => continue,
                Some(Err(error)) => error,
                None if written.bytes == file.content.size => break,
                None => wrong_length(&file.content, written.bytes),
            };
            self.end(FlightProgress::Ended(Some(file), written, Remainder::from_error(error, object)));
            return self.abandon(partial).await;
        }
        self.finish(partial, file).await;
    }

    /// Turns the complete file into an entry. Its readers need not wait for that.
    async fn finish(&self, partial: Arc<PartialEntry>, file: FlightFile) {
        let _guard = FinishingGuard::new(&self.cache);
        self.publish(FlightProgress::Complete(file.clone()));
        let (cache, finished) = (Arc::clone(&self.cache), Arc::clone(&partial));
        if let Err(error) = blocking(move || cache.directory.finish(&finished, &file.content)).await {
            self.cache.warn(&error);
            self.abandon(partial).await;
        }
        // From now on, readers find the entry.
        self.leave();
    }

    async fn abandon(&self, partial: Arc<PartialEntry>) {
        let cache = Arc::clone(&self.cache);
        if let Err(error) = blocking(move || cache.directory.abandon(&partial)).await {
            self.cache.warn(&error);
        }
    }
}

/// The error of an object that is longer or shorter than its size.
fn wrong_length(content: &CachedContent, received: u64) -> Error {
    ErrorKind::Length { expected: content.size, received }.into()
}

/// Gathers the chunks that are ready, until they have [`BATCH`] bytes. Also returns the end of the stream or
/// its error, if that comes next.
#[allow(clippy::type_complexity, reason = "an optional item of a stream")]
fn gather(
    next: Option<Result<Bytes>>,
    chunks: &mut BoxStream<'static, Result<Bytes>>,
) -> (Vec<Bytes>, Option<Option<Result<Bytes>>>) {
    let (mut batch, mut length, mut next) = (Vec::new(), 0, next);
    loop {
        match next {
            Some(Ok(chunk)) => {
                length += chunk.len();
                batch.push(chunk);
            }
            end => return (batch, Some(end)),
        }
        if length >= BATCH {
            return (batch, None);
        }
        match chunks.next().now_or_never() {
            Some(more) => next = more,
            None => return (batch, None),
        }
    }
}

/// Appends chunks to the written bytes. The checksums of the blocks that they complete are written first.
/// Returns the new written bytes.
fn write(
    cache: &CacheState,
    partial: &PartialEntry,
    content: &CachedContent,
    batch: &[Bytes],
    before: Written,
) -> io::Result<Written> {
    let (mut after, mut sums) = (before, Vec::new());
    batch.iter().for_each(|chunk| after.add(chunk, content.size, &mut sums));
    cache.directory.write(partial, &sums, content.sum_offset(before.bytes))?;
    let mut at = before.bytes;
    for chunk in batch {
        cache.directory.write_content(partial, content, chunk, at)?;
        at += chunk.len() as u64;
    }
    Ok(after)
}

/// Runs work that may wait for the disk on a thread for blocking work.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, Error> {
    runtime::spawn_blocking(move || Ok(work()?))?.await
}
