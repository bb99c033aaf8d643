//! The filling in of one object, for all its readers in this process.
//!
//! A flight is a task that either fills in the file or watches the process that does, and tells how far it
//! is. It continues at the speed of the network, whatever its readers do, until the object is there or nobody
//! reads it any more.

mod follow;

use super::directory::{Claim, Partial, Room};
use super::file::{Content, Written};
use super::progress::{Part, Progress, Rest};
use super::shared::Shared;
use crate::store::fetch::{Object, fetch};
use crate::store::{ObjectCell, ObjectVersion, runtime};
use crate::{Error, ErrorKind, Result};
use bytes::Bytes;
use futures::FutureExt;
use futures::future::{Either, select};
use futures::stream::{self, BoxStream, StreamExt};
use std::collections::HashMap;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use tokio::sync::watch;

/// Bytes that are written at once, if as many have come.
const BATCH: usize = 4 << 20;

/// Follows the flight of an object, which begins if there is none.
pub(super) fn join(
    cache: &Arc<Shared>,
    key: &str,
    object: &Object,
    stale: Option<ObjectVersion>,
) -> Result<watch::Receiver<Progress>> {
    let (sender, progress) = watch::channel(Progress::Asking);
    {
        let mut flights = cache.flights();
        if let Some(flight) = flights.get(key).filter(|flight| !flight.borrow().is_damaged()) {
            return Ok(flight.subscribe());
        }
        flights.insert(key.into(), sender.clone());
    }
    let object = Object { wanted: 0..u64::MAX, expected: None, kept: true, ..object.clone() };
    let flight = Flight { cache: Arc::clone(cache), key: key.into(), object, stale, sender };
    runtime::spawn(flight.run())?.detach();
    Ok(progress)
}

/// Lets a flight continue to its end though nobody may follow it any more.
pub(super) fn keep(cache: &Arc<Shared>, mut progress: watch::Receiver<Progress>) -> Result<()> {
    let finishing = Finishing::new(cache);
    let kept = runtime::spawn(async move {
        let _finishing = finishing;
        let _ = progress.wait_for(Progress::is_over).await;
        Ok(())
    });
    kept.map(runtime::Task::detach)
}

/// Something that [`Cache::flush`](super::Cache::flush) waits for.
struct Finishing(Arc<Shared>);

impl Finishing {
    fn new(cache: &Arc<Shared>) -> Self {
        cache.finishing.send_modify(|finishing| *finishing += 1);
        Finishing(Arc::clone(cache))
    }
}

impl Drop for Finishing {
    fn drop(&mut self) {
        self.0.finishing.send_modify(|finishing| *finishing -= 1);
    }
}

struct Flight {
    cache: Arc<Shared>,
    key: String,
    object: Object,
    /// What an entry may be that is to be replaced.
    stale: Option<ObjectVersion>,
    sender: watch::Sender<Progress>,
}

/// The end of a flight, however it comes about, a panic included.
impl Drop for Flight {
    fn drop(&mut self) {
        self.leave();
        self.sender.send_if_modified(|progress| {
            let going = !progress.is_over();
            if going {
                *progress = Progress::Ended(None, Written::default(), Rest::default());
            }
            going
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
                    if self.watch(file).await? {
                        return Ok(());
                    }
                }
                Ok(Claim::Entry) => {
                    self.end(Progress::Entry);
                    return Ok(());
                }
                Err(error) => {
                    self.cache.warn(&error);
                    return Ok(());
                }
            }
        }
    }

    fn tell(&self, progress: Progress) {
        self.sender.send_replace(progress);
    }

    /// The last that there is to tell. Who comes later begins anew.
    fn end(&self, progress: Progress) {
        self.leave();
        self.tell(progress);
    }

    fn leave(&self) {
        self.leave_those(&mut self.cache.flights());
    }

    fn leave_those(&self, flights: &mut HashMap<String, watch::Sender<Progress>>) {
        if flights.get(&self.key).is_some_and(|flight| flight.same_channel(&self.sender)) {
            flights.remove(&self.key);
        }
    }

    /// Whether nobody follows. Then nobody will: the next reader begins a flight of its own.
    fn is_deserted(&self) -> bool {
        let mut flights = self.cache.flights();
        let deserted = self.sender.receiver_count() == 0;
        if deserted {
            self.leave_those(&mut flights);
        }
        deserted
    }

    /// What comes of `future`, unless nobody waits for it any more.
    async fn while_followed<F: Future + Unpin>(&self, mut future: F) -> Option<F::Output> {
        loop {
            match select(&mut future, pin!(self.sender.closed())).await {
                Either::Left((output, _)) => return Some(output),
                Either::Right(_) if self.is_deserted() => return None,
                Either::Right(_) => {}
            }
        }
    }

    async fn fill(&self, partial: Arc<Partial>) {
        let told = ObjectCell::default();
        let mut chunks = fetch(Object { told: told.clone(), ..self.object.clone() }).boxed();
        let Some(first) = self.while_followed(chunks.next()).await else {
            return self.abandon(partial).await;
        };
        let object = told.get().unwrap_or_default();
        let room = match &first {
            Some(Err(_)) => Ok(Room::Short),
            _ => {
                let (cache, file) = (Arc::clone(&self.cache), Arc::clone(&partial));
                let url = self.object.url.clone();
                blocking(move || cache.directory.reserve(&file, &url, &object)).await
            }
        };
        let content = match room {
            Ok(Room::Enough(content)) => content,
            Ok(Room::Entry) => {
                self.abandon(partial).await;
                return self.end(Progress::Entry);
            }
            room => {
                if let Err(error) = room {
                    self.cache.warn(&error);
                }
                let rest = Rest::new(stream::iter(first).chain(chunks), told);
                self.end(Progress::Ended(None, Written::default(), rest));
                return self.abandon(partial).await;
            }
        };
        let part = Part { content: Arc::new(content), ours: true };
        self.tell(Progress::Growing(part.clone(), Written::default()));
        self.receive(partial, part, first, chunks, told).await;
    }

    /// Writes the object into the file as it comes.
    async fn receive(
        &self,
        partial: Arc<Partial>,
        part: Part,
        mut next: Option<Result<Bytes>>,
        mut chunks: BoxStream<'static, Result<Bytes>>,
        told: ObjectCell,
    ) {
        let mut written = Written::default();
        loop {
            let (batch, mut end) = gather(next, &mut chunks);
            let came = written.bytes + batch.iter().map(|chunk| chunk.len() as u64).sum::<u64>();
            if came > part.content.size {
                end = Some(Some(Err(wrong_length(&part.content, came))));
            } else if !batch.is_empty() {
                let (cache, file) = (Arc::clone(&self.cache), Arc::clone(&partial));
                let content = Arc::clone(&part.content);
                let wrote = blocking(move || {
                    let wrote = write(&cache, &file, &content, &batch, written);
                    Ok((batch, wrote))
                });
                match wrote.await {
                    Ok((_, Ok(after))) => written = after,
                    Ok((batch, Err(error))) => {
                        self.cache.warn(&error);
                        let rest = stream::iter(batch.into_iter().map(Ok)).chain(stream::iter(end.flatten()));
                        let rest = Rest::new(rest.chain(chunks), told);
                        self.end(Progress::Ended(Some(part), written, rest));
                        return self.abandon(partial).await;
                    }
                    Err(error) => {
                        self.cache.warn(&error);
                        return self.abandon(partial).await;
                    }
                }
                self.tell(Progress::Growing(part.clone(), written));
            }
            if part.content.is_damaged() {
                let rest = Rest::new(stream::iter(end.flatten()).chain(chunks), told);
                self.end(Progress::Ended(Some(part), written, rest));
                return self.abandon(partial).await;
            }
            next = match end {
                Some(end) => end,
                None => match self.while_followed(chunks.next()).await {
                    Some(next) => next,
                    None => return self.abandon(partial).await,
                },
            };
            let fault = match next {
                Some(Ok(_)) => continue,
                Some(Err(error)) => error,
                None if written.bytes == part.content.size => break,
                None => wrong_length(&part.content, written.bytes),
            };
            self.end(Progress::Ended(Some(part), written, Rest::fault(fault, told)));
            return self.abandon(partial).await;
        }
        self.finish(partial, part).await;
    }

    /// The readers have all they need; that the file becomes an entry does not concern them.
    async fn finish(&self, partial: Arc<Partial>, part: Part) {
        let _finishing = Finishing::new(&self.cache);
        self.tell(Progress::Whole(part.clone()));
        let (cache, finished) = (Arc::clone(&self.cache), Arc::clone(&partial));
        if let Err(error) = blocking(move || cache.directory.finish(&finished, &part.content)).await {
            self.cache.warn(&error);
            self.abandon(partial).await;
        }
        // From here on it is found as an entry.
        self.leave();
    }

    async fn abandon(&self, partial: Arc<Partial>) {
        let cache = Arc::clone(&self.cache);
        if let Err(error) = blocking(move || cache.directory.abandon(&partial)).await {
            self.cache.warn(&error);
        }
    }
}

/// An object of which more bytes came, or fewer, than it has.
fn wrong_length(content: &Content, received: u64) -> Error {
    ErrorKind::Length { expected: content.size, received }.into()
}

/// What there is to write without waiting, and what came behind it if that isn't more of the same.
#[allow(clippy::type_complexity, reason = "an end, or an error")]
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

/// Writes chunks behind what has been written, after the checksums of the blocks that they complete. Returns
/// how much has been written then.
fn write(
    cache: &Shared,
    partial: &Partial,
    content: &Content,
    batch: &[Bytes],
    before: Written,
) -> io::Result<Written> {
    let (mut after, mut sums) = (before, Vec::new());
    batch.iter().for_each(|chunk| after.add(chunk, content.size, &mut sums));
    cache.directory.write(partial, &sums, content.sum_place(before.bytes))?;
    let mut at = before.bytes;
    for chunk in batch {
        cache.directory.write_content(partial, content, chunk, at)?;
        at += chunk.len() as u64;
    }
    Ok(after)
}

/// Does what may wait for the disk where it keeps nobody else waiting.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, Error> {
    runtime::spawn_blocking(move || Ok(work()?))?.await
}
