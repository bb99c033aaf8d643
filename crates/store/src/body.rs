//! `Body`: the bytes of one object, as a blocking iterator or an asynchronous stream.

use super::cache::CachedRead;
use super::decompress::{Decompressor, Expansion};
use super::fetch::Fetch;
use super::object_cell::ObjectCell;
use super::object_version::ObjectVersion;
use super::offload::{offload, offload_when_slow};
use crate::error::{Error, ErrorKind, Result, SizeLimit};
use crate::secret_url::SecretUrl;
use crate::wait;
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
/// A body is a blocking iterator; [`into_stream`](Body::into_stream) turns it into a stream for any executor.
/// Nothing is read before the first chunk is requested. No chunk follows an error; a body that ends without
/// an error is complete.
///
/// ```
/// # mod shardstream { pub use shardstream_base::*; pub mod store { pub use shardstream_store::*; } }
/// use shardstream::store::Body;
///
/// let body = Body::from_chunks([Ok("ab".into()), Ok("c".into())]);
/// assert_eq!(body.read_all()?, "abc");
/// # Ok::<(), shardstream::Error>(())
/// ```
#[must_use = "a body reads nothing unless it is consumed"]
pub struct Body {
    state: BodyState,
    compression: Option<Decompressor>,
    expansion: Expansion,
    url: Option<SecretUrl>,
    /// The offset in the object at which the body begins.
    start: u64,
    object: ObjectCell,
    /// The version that the object must have.
    expected: Option<ObjectVersion>,
    stop: Arc<StopFlag>,
}

enum BodyState {
    Idle(ChunkSource),
    Running(RunningBody),
    Taken,
}

/// Which thread reads a source that may block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReadOn {
    /// The polling thread.
    Caller,
    /// The polling thread, until reads turn out to be slow; then a separate thread.
    CallerWhileQuick,
    /// A separate thread.
    OwnThread,
}

pub(super) enum ChunkSource {
    /// An iterator that may block.
    Blocking(Box<dyn Iterator<Item = Result<Bytes>> + Send>),
    /// A stream that any executor can poll.
    Stream(BoxStream<'static, Result<Bytes>>),
    /// Ranged requests for an object, which can begin before the first chunk is requested.
    Fetch(Box<Fetch>),
    Cached(Box<CachedRead>),
}

impl Body {
    pub(super) fn new(chunks: ChunkSource) -> Self {
        Body {
            state: BodyState::Idle(chunks),
            compression: None,
            expansion: Expansion::default(),
            url: None,
            start: 0,
            object: ObjectCell::default(),
            expected: None,
            stop: Arc::default(),
        }
    }

    /// Makes a body from the caller's chunks: for tests, and for bytes in memory. The iterator may block.
    pub fn from_chunks<I>(chunks: I) -> Self
    where
        I: IntoIterator<Item = Result<Bytes>>,
        I::IntoIter: Send + 'static,
    {
        Body::new(ChunkSource::Blocking(Box::new(chunks.into_iter())))
    }

    /// Makes a body from the caller's stream of chunks. The consumer of the body polls the stream.
    pub fn from_stream(chunks: impl Stream<Item = Result<Bytes>> + Send + 'static) -> Self {
        Body::new(ChunkSource::Stream(chunks.boxed()))
    }

    pub(super) fn compressed(mut self, compression: Option<Decompressor>, expansion: Expansion) -> Self {
        (self.compression, self.expansion) = (compression, expansion);
        self
    }

    pub(super) fn named(mut self, url: impl Into<SecretUrl>) -> Self {
        self.url = Some(url.into());
        self
    }

    /// Begins to request the body's bytes before they are read, as far as the budget allows. Returns the
    /// number of following objects for which `begin` should be called too.
    #[doc(hidden)]
    pub fn begin(&mut self) -> usize {
        match &mut self.state {
            // The budget limits the number of requests. 16 objects saturate the connection even if they are
            // small.
            BodyState::Idle(ChunkSource::Fetch(chunks)) => {
                chunks.begin();
                16
            }
            // Fetches the blocks that are not in the cache. An error is ignored, because it occurs again when
            // the body is read.
            BodyState::Idle(ChunkSource::Cached(cached)) => cached.begin_ahead().map_or(0, |()| 16),
            // Local files are not read ahead.
            _ => 0,
        }
    }

    /// Sets a version of the object that the reader accepts. Call it before the body [begins](Body::begin).
    /// If the cache has this version, the cache sends no request for the object's current version.
    #[doc(hidden)]
    pub fn set_known_version(&mut self, object: ObjectVersion) {
        if let BodyState::Idle(ChunkSource::Cached(cached)) = &mut self.state {
            cached.set_known(object);
        }
    }

    /// Declares that only this body's range of the object will be read. A cache then fetches none of the
    /// bytes around it. Call it before the body [begins](Body::begin).
    #[doc(hidden)]
    pub fn set_scattered(&mut self) {
        if let BodyState::Idle(ChunkSource::Cached(cached)) = &mut self.state {
            cached.set_scattered();
        }
    }

    /// Declares that each epoch reads the same bytes. A cache that has no room for all of them then keeps the
    /// blocks that it already has. Call it before the body [begins](Body::begin).
    #[doc(hidden)]
    pub fn set_repeated(&mut self) {
        if let BodyState::Idle(ChunkSource::Cached(cached)) = &mut self.state {
            cached.set_repeated();
        }
    }

    /// Sets the offset in the object at which the body begins, and the cell that receives the object's
    /// version.
    pub(super) fn part_of(mut self, object: ObjectCell, start: u64) -> Self {
        self.object = object;
        self.start = start;
        self
    }

    /// Requires that the body's object is not [different](ObjectVersion::compare) from `object`. Use this for
    /// an object that was looked up or partly read before.
    ///
    /// If the object is different, the body's first item is [`ErrorKind::Changed`], which names both
    /// versions, and no bytes are returned. An object of unknown version is accepted.
    ///
    /// ```
    /// # mod shardstream { pub use shardstream_base::*; pub mod store { pub use shardstream_store::*; } }
    /// use shardstream::ErrorKind;
    /// use shardstream::store::Store;
    ///
    /// let directory = tempfile::tempdir()?;
    /// let path = format!("{}/note.txt", directory.path().display());
    /// let store = Store::default();
    /// store.put(&path, b"ten bytes.")?;
    /// let object = store.stat(&path)?;
    /// assert_eq!(store.open(&path)?.of_version(&object).read_all()?, "ten bytes.");
    /// store.put(&path, b"other bytes")?;
    /// let error = store.open(&path)?.of_version(&object).read_all().unwrap_err();
    /// assert!(matches!(error.kind(), ErrorKind::Changed { .. }));
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    pub fn of_version(mut self, object: &ObjectVersion) -> Self {
        self.expected = Some(object.clone());
        self
    }

    /// The stored size and the version of the object that is read, even if the body is only a range of it.
    ///
    /// `None` before the first chunk, and if neither the size nor the version is known: for pipes, for
    /// sources that report neither, and for bodies of the caller's own chunks.
    ///
    /// ```
    /// # mod shardstream { pub use shardstream_base::*; pub mod store { pub use shardstream_store::*; } }
    /// use shardstream::store::{ObjectVersion, Store};
    ///
    /// let directory = tempfile::tempdir()?;
    /// let path = format!("{}/note.txt", directory.path().display());
    /// let store = Store::default();
    /// store.put(&path, b"ten bytes.")?;
    /// let mut body = store.open_range(&path, 4..9, &ObjectVersion::any())?;
    /// assert_eq!(body.next().transpose()?.as_deref(), Some(&b"bytes"[..]));
    /// assert_eq!(body.object().and_then(|object| object.size), Some(10));
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    #[must_use]
    pub fn object(&self) -> Option<ObjectVersion> {
        self.object_cell().get()
    }

    /// The cell that holds [`object`](Body::object), for use after the body has been turned into a stream.
    #[doc(hidden)]
    pub fn object_cell(&self) -> ObjectCell {
        self.object.clone()
    }

    /// Turns the body into an asynchronous stream of the same chunks.
    ///
    /// Any executor can poll the stream. Work that takes CPU time or blocks, such as decompression and
    /// reading local files, runs on a separate thread, a few chunks ahead.
    pub fn into_stream(mut self) -> impl Stream<Item = Result<Bytes>> + Send + Unpin + 'static {
        self.start(ReadOn::OwnThread)
    }

    /// Reads the rest of the body into one buffer. Use this only for small objects. Read a shard chunk by
    /// chunk instead.
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

    /// Reads the rest of the body, at most `limit` bytes, into one buffer. Use this for documents of unknown
    /// size.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::TooLarge`] if there are more bytes, and the first error of the body.
    ///
    /// ```
    /// # mod shardstream { pub use shardstream_base::*; pub mod store { pub use shardstream_store::*; } }
    /// use shardstream::ErrorKind;
    /// use shardstream::store::Body;
    ///
    /// let body = || Body::from_chunks([Ok("ab".into()), Ok("c".into())]);
    /// assert_eq!(body().read_at_most(3)?, "abc");
    /// let error = body().read_at_most(2).unwrap_err();
    /// assert!(matches!(error.kind(), ErrorKind::TooLarge { size: 3, limit: 2, .. }));
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    pub fn read_at_most(self, limit: u64) -> Result<Bytes> {
        let (url, mut chunks, mut size) = (self.url.clone(), Vec::new(), 0);
        for chunk in self {
            let chunk = chunk?;
            size += chunk.len() as u64;
            if size > limit {
                let error = Error::from(ErrorKind::TooLarge { what: SizeLimit::Document, size, limit });
                return Err(if let Some(url) = url { error.in_shard(url) } else { error });
            }
            chunks.push(chunk);
        }
        Ok(if chunks.len() == 1 { chunks.remove(0) } else { chunks.concat().into() })
    }

    /// Polls for the next chunk, for callers that have other work while they wait for the network. May block
    /// while a chunk is read from a file or decompressed.
    #[doc(hidden)]
    pub fn poll_here(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes>>> {
        let mut running = self.start(ReadOn::CallerWhileQuick);
        let item = running.poll_next_unpin(cx);
        self.state = BodyState::Running(running);
        item
    }

    /// Returns a handle with which another thread can stop the reading.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        Stopper(Arc::clone(&self.stop))
    }

    /// Takes the running body. Starts it first if it is idle; `read_on` matters only then.
    fn start(&mut self, read_on: ReadOn) -> RunningBody {
        let may_block = read_on != ReadOn::OwnThread;
        let decoded = self.compression.is_some();
        let (chunks, blocks) = match std::mem::replace(&mut self.state, BodyState::Taken) {
            BodyState::Idle(ChunkSource::Blocking(chunks)) if read_on == ReadOn::CallerWhileQuick => {
                (offload_when_slow(chunks).boxed(), true)
            }
            BodyState::Idle(ChunkSource::Blocking(chunks)) => (stream::iter(chunks).boxed(), true),
            BodyState::Idle(ChunkSource::Cached(cached)) => {
                (cached.into_stream(may_block || decoded), decoded)
            }
            BodyState::Idle(ChunkSource::Stream(chunks)) => (chunks, decoded),
            BodyState::Idle(ChunkSource::Fetch(chunks)) => (chunks.boxed(), decoded),
            BodyState::Running(running) => return running,
            BodyState::Taken => (stream::empty().boxed(), false),
        };
        let chunks = match self.compression {
            Some(compression) => compression.decode(chunks, self.expansion),
            None => chunks,
        };
        let chunks = if blocks && !may_block { offload(chunks) } else { chunks };
        RunningBody {
            chunks: Some(chunks),
            position: self.start,
            url: self.url.clone(),
            object: self.object.clone(),
            expected: self.expected.take(),
            stop: Arc::clone(&self.stop),
        }
    }
}

impl Iterator for Body {
    type Item = Result<Bytes>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut running = self.start(ReadOn::Caller);
        let item = match running.chunks {
            None => None,
            Some(_) => wait::block_on(running.next()).unwrap_or_else(|error| Some(Err(running.fail(error)))),
        };
        self.state = BodyState::Running(running);
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

/// A body that is being read. It adds the URL and the offset to errors, and ends when a [`Stopper`] stops it.
struct RunningBody {
    /// `None` after the end.
    chunks: Option<BoxStream<'static, Result<Bytes>>>,
    position: u64,
    url: Option<SecretUrl>,
    object: ObjectCell,
    /// The version that the object must have; `None` after it has been compared.
    expected: Option<ObjectVersion>,
    stop: Arc<StopFlag>,
}

impl RunningBody {
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes>>> {
        let Some(chunks) = &mut self.chunks else { return Poll::Ready(None) };
        self.stop.waker.register(cx.waker());
        loop {
            if self.stop.stopped.load(Ordering::Acquire) || wait::poll_interrupted(cx) {
                return Poll::Ready(Some(Err(ErrorKind::Stopped.into())));
            }
            match wait::poll_unconstrained(chunks.next(), cx) {
                Poll::Ready(Some(Ok(chunk))) if chunk.is_empty() => {}
                other => return other,
            }
        }
    }

    /// Compares the object with the expected version, once the object's version is known.
    fn check_version(&mut self) -> Result<()> {
        let Some((expected, found)) = self.expected.as_ref().zip(self.object.get()) else { return Ok(()) };
        if expected.compare(&found).is_different() {
            return Err(expected.changed_to(&found));
        }
        self.expected = None;
        Ok(())
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

impl Stream for RunningBody {
    type Item = Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let item = std::task::ready!(self.poll_chunk(cx));
        if !matches!(item, Some(Err(_)))
            && let Err(error) = self.check_version()
        {
            return Poll::Ready(Some(Err(self.fail(error))));
        }
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

/// Stops the reading of a [`Body`] from another thread.
///
/// After [`stop`](Stopper::stop), a waiting or later read returns [`ErrorKind::Stopped`] once, and the body
/// ends. Stopping is an error, so that a part of an object is never mistaken for the whole object. A read of
/// a local file that is in progress is not interrupted, but no other read follows.
#[derive(Clone, Debug)]
pub struct Stopper(Arc<StopFlag>);

impl Stopper {
    /// Stops the reading.
    pub fn stop(&self) {
        self.0.stopped.store(true, Ordering::Release);
        self.0.waker.wake();
    }
}

#[derive(Debug, Default)]
struct StopFlag {
    stopped: AtomicBool,
    waker: AtomicWaker,
}

#[cfg(test)]
mod tests;
