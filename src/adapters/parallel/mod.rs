//! Adapters that work on threads of their own: what runs there, and the faces before it.

mod par_map;
mod prefetch;
mod threads;

pub(super) use par_map::par_map;
pub(super) use prefetch::prefetch;
pub(crate) use threads::Threads;

use crate::secret_url::redact_text;
use crate::wait;
use crate::{Error, ErrorKind, Result};
use async_channel::{Receiver, Sender, TryRecvError};
use futures::Stream;
use futures::stream::FusedStream;
use std::fmt;
use std::iter::FusedIterator;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// The queue reserves its places when it is made, so that there must be a bound.
const MAX_AHEAD: usize = 1 << 16;

/// Items that are prepared on other threads: an [`Iterator`] that gives them in the order of the source.
///
/// Made by [`prefetch`](super::IteratorExt::prefetch) and [`par_map`](super::IteratorExt::par_map).
///
/// The threads start when the first item is asked for, and not before. Dropping this stops and joins them.
/// What the threads wait for in this crate (bytes of a store, items of other threads) ends with
/// [`ErrorKind::Stopped`]; any other call to the source or to the closure that is under way is waited for,
/// and no further ones are made. Where one of them panics, [`ErrorKind::Panicked`] is in the place of its
/// item.
///
/// [`into_stream`](Background::into_stream) gives the same as a [`Stream`], for any executor. (One type with
/// both faces would make every `map` and `batched` after it ambiguous.)
#[must_use = "adapters are lazy: they do nothing unless they are iterated over or polled"]
pub struct Background<T> {
    state: State<T>,
    ahead: usize,
}

/// The [`Stream`] face of [`Background`].
///
/// Dropping it joins the threads, as dropping [`Background`] does: for that moment it blocks.
#[must_use = "streams do nothing unless they are polled"]
pub struct BackgroundStream<T>(Background<T>);

/// Nothing in it is pinned: what is polled is boxed.
impl<T> Unpin for BackgroundStream<T> {}

type Start<T> = Box<dyn FnOnce(usize) -> Result<Crew<T>> + Send>;

enum State<T> {
    New(Start<T>),
    Running(Crew<T>),
    Ended,
}

impl<T> Background<T> {
    /// `start` is given the number of items that may be prepared ahead.
    fn new(ahead: usize, start: impl FnOnce(usize) -> Result<Crew<T>> + Send + 'static) -> Self {
        Background { state: State::New(Box::new(start)), ahead }
    }

    /// Sets how many items may be prepared ahead of the one that is asked for: what bounds the memory. It
    /// must be at least 1, and is at most 65536.
    pub fn ahead(mut self, items: usize) -> Self {
        self.ahead = items;
        self
    }

    /// The same as a stream.
    pub fn into_stream(self) -> BackgroundStream<T> {
        BackgroundStream(self)
    }

    /// Whether the next item, or the end, is known already: then asking for it does not wait.
    pub(crate) fn is_waiting(&self) -> bool {
        match &self.state {
            State::New(_) => false,
            State::Running(crew) => crew.is_waiting(),
            State::Ended => true,
        }
    }

    /// The threads, started if they were not, or nothing after the end.
    fn crew(&mut self) -> Result<Option<&mut Crew<T>>> {
        if let State::New(_) = self.state
            && let State::New(start) = std::mem::replace(&mut self.state, State::Ended)
        {
            if self.ahead == 0 {
                let what = "0 items ahead: threads need room for at least 1 item";
                return Err(ErrorKind::Config(what.into()).into());
            }
            self.state = State::Running(start(self.ahead.min(MAX_AHEAD))?);
        }
        match &mut self.state {
            State::Running(crew) => Ok(Some(crew)),
            State::New(_) | State::Ended => Ok(None),
        }
    }

    /// Passes an answer of the threads on, and lets them go at the end.
    fn answered(&mut self, item: Option<Result<T>>) -> Option<Result<T>> {
        if item.is_none() {
            self.state = State::Ended;
        }
        item
    }

    /// Passes on why this thread cannot wait for an answer, once: whoever continues after errors must come to
    /// an end.
    fn broken_off(&mut self, error: Error) -> Option<Result<T>> {
        self.state = State::Ended;
        Some(Err(error))
    }
}

impl<T> Iterator for Background<T> {
    type Item = Result<T>;

    fn next(&mut self) -> Option<Result<T>> {
        let item = match self.crew() {
            Ok(crew) => crew?.next(),
            Err(error) => return Some(Err(error)),
        };
        match item {
            Ok(item) => self.answered(item),
            Err(error) => self.broken_off(error),
        }
    }
}

impl<T> FusedIterator for Background<T> {}

impl<T> BackgroundStream<T> {
    /// As [`Background::is_waiting`].
    pub(crate) fn is_waiting(&self) -> bool {
        self.0.is_waiting()
    }
}

impl<T> Stream for BackgroundStream<T> {
    type Item = Result<T>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<T>>> {
        let item = match self.0.crew() {
            Ok(Some(_)) if wait::poll_interrupted(context) => {
                return Poll::Ready(self.0.broken_off(ErrorKind::Stopped.into()));
            }
            Ok(Some(crew)) => ready!(crew.poll_next(context)),
            Ok(None) => None,
            Err(error) => Some(Err(error)),
        };
        Poll::Ready(self.0.answered(item))
    }
}

impl<T> fmt::Debug for BackgroundStream<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BackgroundStream").field(&self.0).finish()
    }
}

impl<T> FusedStream for BackgroundStream<T> {
    fn is_terminated(&self) -> bool {
        matches!(self.0.state, State::Ended)
    }
}

impl<T> fmt::Debug for Background<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Background");
        shown.field("ahead", &self.ahead);
        match &self.state {
            State::New(_) => shown.field("state", &format_args!("New")),
            State::Running(crew) => {
                shown.field("threads", &crew.threads.len()).field("waiting", &crew.queue.len())
            }
            State::Ended => shown.field("state", &format_args!("Ended")),
        };
        shown.finish()
    }
}

/// A place in the queue, in the order of the source.
enum Slot<T> {
    /// The item is there.
    Ready(Result<T>),
    /// A thread is at work on the item, and will send it here.
    Promised(Pin<Box<Receiver<Result<T>>>>),
}

impl<T> Slot<T> {
    /// An empty place, and the way to fill it.
    fn promised() -> (Sender<Result<T>>, Self) {
        let (sender, receiver) = async_channel::bounded(1);
        (sender, Slot::Promised(Box::pin(receiver)))
    }
}

/// Threads that fill a queue, and are joined when this is dropped.
struct Crew<T> {
    queue: Pin<Box<Receiver<Slot<T>>>>,
    /// The slot at the front, where it had no item when it was polled.
    front: Option<Slot<T>>,
    threads: Threads,
}

impl<T: Send + 'static> Crew<T> {
    /// Starts a thread for each of the `works`, named after `name`, with a queue of `ahead` places.
    fn start<W>(name: &str, ahead: usize, works: impl IntoIterator<Item = W>) -> Result<Self>
    where
        W: FnOnce(Sender<Slot<T>>) + Send + 'static,
    {
        let (sender, queue) = async_channel::bounded(ahead);
        let mut crew = Crew { queue: Box::pin(queue), front: None, threads: Threads::default() };
        for (number, work) in works.into_iter().enumerate() {
            let sender = sender.clone();
            crew.threads.start(format!("{name}-{number}"), move || work(sender))?;
        }
        Ok(crew)
    }
}

impl<T> Crew<T> {
    /// Whether there is something at the front of the queue. A place that a thread is still at work on counts
    /// too.
    fn is_waiting(&self) -> bool {
        self.front.is_some() || !self.queue.is_empty()
    }

    /// Blocks. An error is one of the wait itself.
    fn next(&mut self) -> Result<Option<Result<T>>> {
        if wait::is_interrupted() {
            return Err(ErrorKind::Stopped.into());
        }
        let slot = match self.front.take() {
            Some(slot) => slot,
            None => match received(&self.queue)? {
                Some(slot) => slot,
                None => return Ok(None),
            },
        };
        Ok(Some(match slot {
            Slot::Ready(item) => item,
            Slot::Promised(item) => received(&item)?.unwrap_or_else(broken),
        }))
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<T>>> {
        let slot = match self.front.take() {
            Some(slot) => slot,
            None => match ready!(self.queue.as_mut().poll_next(context)) {
                Some(slot) => slot,
                None => return Poll::Ready(None),
            },
        };
        match slot {
            Slot::Ready(item) => Poll::Ready(Some(item)),
            Slot::Promised(mut item) => match item.as_mut().poll_next(context) {
                Poll::Ready(item) => Poll::Ready(Some(item.unwrap_or_else(broken))),
                Poll::Pending => {
                    self.front = Some(Slot::Promised(item));
                    Poll::Pending
                }
            },
        }
    }
}

impl<T> Drop for Crew<T> {
    fn drop(&mut self) {
        // Before the threads are joined.
        self.queue.close();
    }
}

/// What comes next, or nothing when the other end is gone. Blocks.
fn received<T>(receiver: &Receiver<T>) -> Result<Option<T>> {
    match receiver.try_recv() {
        Ok(item) => Ok(Some(item)),
        Err(TryRecvError::Closed) => Ok(None),
        Err(TryRecvError::Empty) => Ok(wait::block_on(receiver.recv())?.ok()),
    }
}

/// The item of a thread that ended without it, which only a panic while dropping things can bring about.
fn broken<T>() -> Result<T> {
    Err(ErrorKind::Panicked("it ended without an answer".into()).into())
}

/// Calls a closure of the caller's, and makes an error of its panic.
pub(crate) fn catch<T>(call: impl FnOnce() -> T) -> Result<T> {
    catch_unwind(AssertUnwindSafe(call)).map_err(|panic| {
        let message = panic.downcast_ref::<&str>().copied();
        let message = message.or_else(|| panic.downcast_ref().map(String::as_str));
        ErrorKind::Panicked(redact_text(message.unwrap_or("no message"))).into()
    })
}
