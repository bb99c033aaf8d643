//! The bytes of one object, as a blocking iterator or as an asynchronous stream.

use super::cache::CachedRead;
use super::decompress::{Decompressor, Expansion};
use super::fetch::Fetch;
use super::object_cell::ObjectCell;
use super::offload::{offload, offload_when_slow};
use super::source::ObjectVersion;
use crate::secret_url::SecretUrl;
use crate::{Error, ErrorKind, Result, wait};
use bytes::Bytes;
use futures::stream::{self, BoxStream, Stream, StreamExt};
use futures::task::AtomicWaker;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

/// The bytes of an object, decompressed, in order, in chunks of any size above zero.
///
/// It is a blocking iterator, and [`into_stream`](Body::into_stream) turns it into a stream for any executor.
/// Nothing is read before the first chunk is asked for. After an error there is no more chunk; a body that
/// ends without an error was whole.
///
/// ```
/// use shardstream::store::Body;
///
/// let body = Body::from_chunks([Ok("ab".into()), Ok("c".into())]);
/// assert_eq!(body.read_all()?, "abc");
/// # Ok::<_, shardstream::Error>(())
/// ```
#[must_use = "a body reads nothing unless it is consumed"]
pub struct Body {
    state: State,
    compression: Option<Decompressor>,
    expansion: Expansion,
    url: Option<SecretUrl>,
    /// The place in the object at which the body begins.
    start: u64,
    object: ObjectCell,
    stop: Arc<Stop>,
}

enum State {
    Idle(Chunks),
    Running(Running),
    Taken,
}

/// Where that is read which may block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reads {
    /// By the one who polls.
    Here,
    /// By the one who polls, as long as it takes no time.
    WhileQuick,
    /// On a thread of its own.
    Elsewhere,
}

/// Where the chunks of a body come from.
pub(super) enum Chunks {
    /// An iterator that may block.
    Blocking(Box<dyn Iterator<Item = Result<Bytes>> + Send>),
    /// A stream that any executor can poll.
    Stream(BoxStream<'static, Result<Bytes>>),
    /// Ranged requests of an object, which can begin earlier.
    Fetch(Box<Fetch>),
    /// A source read through a cache, or a file of it.
    Cached(Box<CachedRead>),
}

impl Body {
    pub(super) fn new(chunks: Chunks) -> Self {
        Body {
            state: State::Idle(chunks),
            compression: None,
            expansion: Expansion::default(),
            url: None,
            start: 0,
            object: ObjectCell::default(),
            stop: Arc::default(),
        }
    }

    /// A body of chunks made by the caller: for tests, and for bytes that are in memory already. The iterator
    /// may block.
    pub fn from_chunks<I>(chunks: I) -> Self
    where
        I: IntoIterator<Item = Result<Bytes>>,
        I::IntoIter: Send + 'static,
    {
        Body::new(Chunks::Blocking(Box::new(chunks.into_iter())))
    }

    /// A body of chunks from a stream made by the caller, which is polled by whoever consumes the body.
    pub fn from_stream(chunks: impl Stream<Item = Result<Bytes>> + Send + 'static) -> Self {
        Body::new(Chunks::Stream(chunks.boxed()))
    }

    pub(super) fn compressed(mut self, compression: Option<Decompressor>, expansion: Expansion) -> Self {
        (self.compression, self.expansion) = (compression, expansion);
        self
    }

    pub(super) fn named(mut self, url: impl Into<SecretUrl>) -> Self {
        self.url = Some(url.into());
        self
    }

    /// Begins to ask for the bytes, as far as others leave room for it, so that they are there when they are
    /// read. Says how many of the objects that are read after this one should begin too.
    pub(crate) fn begin(&mut self) -> usize {
        match &mut self.state {
            // What is asked for is up to the budget: enough of them, that even small ones fill the line.
            State::Idle(Chunks::Fetch(chunks)) => {
                chunks.begin();
                16
            }
            // It is written down as fast as it comes. What goes wrong here does so again when it is read.
            State::Idle(Chunks::Cached(cached)) => cached.begin().map_or(0, |()| 3),
            // A local file is read when it is read.
            _ => 0,
        }
    }

    /// Says where in the object the body begins, and where its chunks tell which object that is.
    pub(super) fn part_of(mut self, object: ObjectCell, start: u64) -> Self {
        self.object = object;
        self.start = start;
        self
    }

    /// What is known of the object that is read, of which the body may be a range: its size as stored, and
    /// its version.
    ///
    /// `None` before the first chunk, and where nothing is known: pipes, sources that do not say, bodies of
    /// the caller's own chunks.
    ///
    /// ```
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("note.txt");
    /// # std::fs::write(&path, "ten bytes.")?;
    /// # let path = path.to_str().unwrap();
    /// let store = shardstream::store::Store::default();
    /// let mut body = store.open_range(path, 4..9)?;
    /// assert_eq!(body.next().transpose()?.as_deref(), Some(&b"bytes"[..]));
    /// assert_eq!(body.object().and_then(|object| object.size), Some(10));
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn object(&self) -> Option<ObjectVersion> {
        self.object_cell().get()
    }

    /// Where [`object`](Body::object) can be looked up when the body has become a stream.
    pub(crate) fn object_cell(&self) -> ObjectCell {
        self.object.clone()
    }

    /// The asynchronous face of the same bytes.
    ///
    /// It can be polled by any executor. What keeps it busy or blocks it, such as decompression and the
    /// reading of local files, happens on a thread of its own, a few chunks ahead.
    pub fn into_stream(mut self) -> impl Stream<Item = Result<Bytes>> + Send + Unpin + 'static {
        self.start(Reads::Elsewhere)
    }

    /// Reads all that is left into one buffer. For small objects: shards are read chunk by chunk.
    ///
    /// # Errors
    ///
    /// The first error of the body.
    pub fn read_all(self) -> Result<Bytes> {
        let mut chunks = self.collect::<Result<Vec<_>>>()?;
        match chunks.len() {
            1 => Ok(chunks.remove(0)),
            _ => Ok(chunks.concat().into()),
        }
    }

    /// The next chunk, for those who have other work while the network is slow, and may be blocked by what is
    /// read or expanded on their own thread.
    pub(crate) fn poll_here(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes>>> {
        let mut running = self.start(Reads::WhileQuick);
        let item = running.poll_next_unpin(cx);
        self.state = State::Running(running);
        item
    }

    /// A handle with which another thread can end the reading.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        Stopper(Arc::clone(&self.stop))
    }

    /// The running body. Where what blocks is read is settled if it isn't running yet.
    fn start(&mut self, reads: Reads) -> Running {
        let may_block = reads != Reads::Elsewhere;
        let decoded = self.compression.is_some();
        let (chunks, blocks) = match std::mem::replace(&mut self.state, State::Taken) {
            State::Idle(Chunks::Blocking(chunks)) if reads == Reads::WhileQuick => {
                (offload_when_slow(chunks).boxed(), true)
            }
            State::Idle(Chunks::Blocking(chunks)) => (stream::iter(chunks).boxed(), true),
            State::Idle(Chunks::Cached(cached)) => (cached.into_stream(may_block || decoded), decoded),
            State::Idle(Chunks::Stream(chunks)) => (chunks, decoded),
            State::Idle(Chunks::Fetch(chunks)) => (chunks.boxed(), decoded),
            State::Running(running) => return running,
            State::Taken => (stream::empty().boxed(), false),
        };
        let chunks = match self.compression {
            Some(compression) => compression.decode(chunks, self.expansion),
            None => chunks,
        };
        let chunks = if blocks && !may_block { offload(chunks) } else { chunks };
        Running {
            chunks: Some(chunks),
            position: self.start,
            url: self.url.clone(),
            stop: Arc::clone(&self.stop),
        }
    }
}

impl Iterator for Body {
    type Item = Result<Bytes>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut running = self.start(Reads::Here);
        let item = match running.chunks {
            None => None,
            Some(_) => wait::block_on(running.next()).unwrap_or_else(|error| Some(Err(running.fail(error)))),
        };
        self.state = State::Running(running);
        item
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Body")
            .field("url", &self.url)
            .field("compression", &self.compression)
            .finish_non_exhaustive()
    }
}

/// A body that is being read: errors get their location here, and a stop takes effect.
struct Running {
    /// `None` after the end.
    chunks: Option<BoxStream<'static, Result<Bytes>>>,
    position: u64,
    url: Option<SecretUrl>,
    stop: Arc<Stop>,
}

impl Running {
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes>>> {
        let Some(chunks) = &mut self.chunks else { return Poll::Ready(None) };
        self.stop.waker.register(cx.waker());
        loop {
            if self.stop.stopped.load(Ordering::Acquire) || wait::poll_interrupted(cx) {
                return Poll::Ready(Some(Err(ErrorKind::Stopped.into())));
            }
            match chunks.poll_next_unpin(cx) {
                Poll::Ready(Some(Ok(chunk))) if chunk.is_empty() => {}
                other => return other,
            }
        }
    }

    /// Ends the body with an error.
    fn fail(&mut self, error: Error) -> Error {
        self.chunks = None;
        self.located(error)
    }

    fn located(&self, error: Error) -> Error {
        let error = error.at_offset(self.position);
        match &self.url {
            Some(url) => error.in_shard(url),
            None => error,
        }
    }
}

impl Stream for Running {
    type Item = Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let item = std::task::ready!(self.poll_chunk(cx));
        Poll::Ready(match item {
            Some(Ok(chunk)) => {
                self.position += chunk.len() as u64;
                Some(Ok(chunk))
            }
            Some(Err(error)) => Some(Err(self.fail(error))),
            None => {
                self.chunks = None;
                None
            }
        })
    }
}

/// Ends the reading of a [`Body`] from another thread.
///
/// After [`stop`](Stopper::stop) a waiting or later read gives [`ErrorKind::Stopped`] once and then nothing
/// more; an error and not a plain end, so that half an object is never taken for a whole one. A read of a
/// local file is not interrupted, but it is the last.
#[derive(Clone, Debug)]
pub struct Stopper(Arc<Stop>);

impl Stopper {
    /// Ends the reading.
    pub fn stop(&self) {
        self.0.stopped.store(true, Ordering::Release);
        self.0.waker.wake();
    }
}

#[derive(Debug, Default)]
struct Stop {
    stopped: AtomicBool,
    waker: AtomicWaker,
}

#[cfg(test)]
mod tests;
