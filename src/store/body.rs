//! The bytes of one object, as a blocking iterator or as an asynchronous stream.

use super::cache::Cached;
use super::decompress::{Compression, Expansion};
use super::runtime;
use super::source::ObjectVersion;
use super::told::ObjectCell;
use crate::secret_url::SecretUrl;
use crate::{Error, ErrorKind, Result, wait};
use bytes::Bytes;
use futures::future::{Either, select};
use futures::stream::{self, BoxStream, Stream, StreamExt};
use futures::task::AtomicWaker;
use std::fmt;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

/// The bytes of an object, decompressed, in order, in chunks of any size above zero.
///
/// It is a blocking iterator, and [`into_stream`](Body::into_stream) turns it into a stream for any executor. Nothing
/// is read before the first chunk is asked for. After an error there is no more chunk; a body that ends without an
/// error was whole.
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
    compression: Option<Compression>,
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

/// Where the chunks of a body come from.
pub(super) enum Chunks {
    /// An iterator that may block.
    Blocking(Box<dyn Iterator<Item = Result<Bytes>> + Send>),
    /// A stream that any executor can poll.
    Stream(BoxStream<'static, Result<Bytes>>),
    /// Such a stream that can begin earlier.
    Ahead(Box<dyn Ahead>),
    /// A source read through a cache, or a file of it.
    Cached(Box<Cached>),
}

/// A stream whose work can begin before it is polled.
pub(super) trait Ahead: Stream<Item = Result<Bytes>> + Send + Unpin {
    /// Begins, if it has not begun.
    fn begin(&mut self);
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

    /// A body of chunks made by the caller: for tests, and for bytes that are in memory already. The iterator may
    /// block.
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

    pub(super) fn compressed(mut self, compression: Option<Compression>, expansion: Expansion) -> Self {
        (self.compression, self.expansion) = (compression, expansion);
        self
    }

    pub(super) fn named(mut self, url: impl Into<SecretUrl>) -> Self {
        self.url = Some(url.into());
        self
    }

    /// Begins to ask for the bytes, as far as others leave room for it, so that they are there when they are read. Says how
    /// many of the objects that are read after this one should begin too.
    pub(crate) fn begin(&mut self) -> usize {
        match &mut self.state {
            // What is asked for is up to the budget: enough of them, that even small ones fill the line.
            State::Idle(Chunks::Ahead(chunks)) => {
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

    /// What is known of the object that is read, of which the body may be a range: its size as stored, and its version.
    ///
    /// `None` before the first chunk, and where nothing is known: pipes, sources that do not say, bodies of the caller's
    /// own chunks.
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
    /// It can be polled by any executor. What keeps it busy or blocks it, such as decompression and the reading of local
    /// files, happens on a thread of its own, a few chunks ahead.
    pub fn into_stream(mut self) -> impl Stream<Item = Result<Bytes>> + Send + Unpin + 'static {
        self.start(false)
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

    /// A handle with which another thread can end the reading.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        Stopper(Arc::clone(&self.stop))
    }

    /// The running body. Whether the one who polls it may be blocked is settled if it isn't running yet.
    fn start(&mut self, may_block: bool) -> Running {
        let decoded = self.compression.is_some();
        let (chunks, blocks) = match std::mem::replace(&mut self.state, State::Taken) {
            State::Idle(Chunks::Blocking(chunks)) => (stream::iter(chunks).boxed(), true),
            State::Idle(Chunks::Cached(cached)) => (cached.into_stream(may_block || decoded), decoded),
            State::Idle(Chunks::Stream(chunks)) => (chunks, decoded),
            State::Idle(Chunks::Ahead(chunks)) => (chunks.boxed(), decoded),
            State::Running(running) => return running,
            State::Taken => (stream::empty().boxed(), false),
        };
        let chunks = match self.compression {
            Some(compression) => compression.decode(chunks, self.expansion),
            None => chunks,
        };
        let chunks = if blocks && !may_block { elsewhere(chunks) } else { chunks };
        Running {
            chunks: Some(chunks),
            position: self.start,
            url: self.url.clone(),
            stop: Arc::clone(&self.stop),
        }
    }
}

/// A stream that may block, or be busy, polled on a thread of its own, a few chunks ahead.
fn elsewhere(mut chunks: BoxStream<'static, Result<Bytes>>) -> BoxStream<'static, Result<Bytes>> {
    let reading = async move {
        let (sender, receiver) = async_channel::bounded(2);
        let task = runtime::spawn_blocking(move || {
            let send = async {
                while let Some(chunk) = chunks.next().await {
                    if sender.send(chunk?).await.is_err() {
                        break;
                    }
                }
                Ok(())
            };
            // Bytes that nobody wants any more may never come.
            match wait::block_on(select(pin!(send), pin!(sender.closed())))? {
                Either::Left((end, _)) => end,
                Either::Right(_) => Ok(()),
            }
        });
        delivered(receiver, task)
    };
    stream::once(reading).flatten().boxed()
}

/// The chunks that a task sends, then the error with which it ended, if any.
fn delivered(
    receiver: async_channel::Receiver<Bytes>,
    task: Result<runtime::Task<()>>,
) -> BoxStream<'static, Result<Bytes>> {
    let end = stream::once(async { task?.await }).filter_map(async |end: Result<()>| end.err().map(Err));
    receiver.map(Ok).chain(end).boxed()
}

impl Iterator for Body {
    type Item = Result<Bytes>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut running = self.start(true);
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
/// After [`stop`](Stopper::stop) a waiting or later read gives [`ErrorKind::Stopped`] once and then nothing more; an
/// error and not a plain end, so that half an object is never taken for a whole one. A read of a local file is not
/// interrupted, but it is the last.
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
mod tests {
    use super::*;
    use futures::TryStreamExt;

    fn chunks(parts: &[&'static str]) -> Vec<Result<Bytes>> {
        parts.iter().map(|part| Ok(Bytes::from_static(part.as_bytes()))).collect()
    }

    #[test]
    fn both_faces_give_the_same_and_no_empty_chunk() {
        let body = || Body::from_chunks(chunks(&["", "ab", "", "c"]));
        let blocking: Vec<_> = body().collect::<Result<_>>().unwrap();
        let asynchronous: Vec<_> = futures::executor::block_on(body().into_stream().try_collect()).unwrap();
        assert_eq!(blocking, ["ab", "c"]);
        assert_eq!(asynchronous, blocking);
    }

    #[test]
    fn the_faces_can_be_changed_midway() {
        let mut body = Body::from_chunks(chunks(&["a", "b"]));
        assert_eq!(body.next().unwrap().unwrap(), "a");
        let rest: Vec<_> = futures::executor::block_on(body.into_stream().try_collect()).unwrap();
        assert_eq!(rest, ["b"]);
    }

    #[test]
    fn an_error_is_the_end_and_knows_its_place() {
        let mut parts = chunks(&["abc"]);
        parts.push(Err(ErrorKind::Checksum.into()));
        parts.extend(chunks(&["d"]));
        let mut body = Body::from_chunks(parts).named("s.tar");
        assert!(body.next().unwrap().is_ok());
        let error = body.next().unwrap().unwrap_err();
        assert_eq!((error.location().shard(), error.location().offset()), (Some("s.tar"), Some(3)));
        assert!(body.next().is_none());
    }

    #[test]
    fn the_object_is_known_with_the_first_chunk_of_either_face() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        std::fs::write(&path, "four").unwrap();
        let path = path.to_str().unwrap();
        let store = crate::store::Store::default();
        let stat = store.stat(path).unwrap();
        assert_eq!(stat.size, Some(4));
        assert_eq!(stat.version, store.list(directory.path().to_str().unwrap()).unwrap()[0].version);

        let mut body = store.open_range(path, 1..2).unwrap();
        assert_eq!(body.object(), None);
        assert_eq!(body.next().unwrap().unwrap(), "o");
        assert_eq!(body.object().as_ref(), Some(&stat));

        let body = store.open(path).unwrap();
        let object = body.object_cell();
        let mut stream = body.into_stream();
        assert_eq!(object.get(), None);
        assert_eq!(futures::executor::block_on(stream.next()).unwrap().unwrap(), "four");
        assert_eq!(object.get(), Some(stat));
    }

    #[test]
    fn a_stop_wakes_a_waiting_reader() {
        for into_stream in [false, true] {
            let mut body = Body::from_stream(stream::pending());
            let stopper = body.stopper();
            let reader = std::thread::spawn(move || {
                if into_stream {
                    futures::executor::block_on(body.into_stream().collect::<Vec<_>>())
                } else {
                    body.by_ref().collect()
                }
            });
            stopper.stop();
            let items = reader.join().unwrap();
            assert_eq!(items.len(), 1);
            assert!(matches!(items[0].as_ref().unwrap_err().kind(), ErrorKind::Stopped));
        }
    }

    #[test]
    fn a_panic_of_a_blocking_source_is_not_a_short_body() {
        let body =
            Body::from_chunks((0..2).map(|i| if i == 0 { Ok("a".into()) } else { panic!("on purpose") }));
        let items: Vec<_> = futures::executor::block_on(body.into_stream().collect());
        assert_eq!(items.len(), 2);
        assert!(matches!(items[1].as_ref().unwrap_err().kind(), ErrorKind::Panicked(_)));
    }

    /// Nor does the thread wait for ever on which it is decompressed.
    #[cfg(feature = "gzip")]
    #[test]
    fn decompression_is_polled_elsewhere_and_ends_with_its_reader() {
        let here = std::thread::current().id();
        let polled = Arc::new(std::sync::Mutex::new(None));
        let held = Arc::downgrade(&polled);
        let chunks = stream::poll_fn(move |_| {
            *polled.lock().unwrap() = Some(std::thread::current().id());
            Poll::<Option<Result<Bytes>>>::Pending
        });
        let compression = Compression::of("a.tar.gz").unwrap();
        let mut body = Body::from_stream(chunks).compressed(compression, Expansion::default()).into_stream();
        let polled_at = || *held.upgrade()?.lock().unwrap();
        assert!(futures::FutureExt::now_or_never(body.next()).is_none());
        while polled_at().is_none() {
            std::thread::yield_now();
        }
        assert_ne!(polled_at(), Some(here));
        drop(body);
        while held.strong_count() > 0 {
            std::thread::yield_now();
        }
    }

    /// Each waits on a thread of its own for its reader; none may keep another from beginning.
    #[test]
    fn any_number_can_be_read_in_turn() {
        let (done, read) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let bodies = (0..600).map(|_| Body::from_chunks((0..9).map(|_| Ok("a".into()))).into_stream());
            let mut bodies: Vec<_> = bodies.collect();
            for body in &mut bodies {
                assert!(futures::executor::block_on(body.next()).unwrap().is_ok());
            }
            done.send(()).unwrap();
        });
        read.recv_timeout(std::time::Duration::from_secs(60)).expect("it waits for ever");
    }

    #[test]
    fn crosses_threads() {
        fn crosses<T: Send + 'static>() {}
        crosses::<Body>();
        crosses::<Stopper>();
    }
}
