//! Adapters that prepare items on other threads.

mod into_stream;
mod par_map;
mod prefetch;
mod threads;

pub use into_stream::IntoStream;
pub(crate) use into_stream::PollItem;
pub(super) use par_map::par_map;
pub(crate) use prefetch::prefetch;
pub(crate) use threads::Threads;

use crate::panic::drop_caught;
use crate::wait;
use crate::{Error, ErrorKind, Result};
use futures::stream::FusedStream;
use std::fmt;
use std::iter::FusedIterator;
use std::task::{Context, Poll, ready};
use tokio::sync::mpsc::error::TryRecvError;
use tokio::sync::{mpsc, oneshot};

/// The largest number of items that are prepared in advance.
const MAX_AHEAD: usize = 1 << 16;

/// An [`Iterator`] whose items are prepared on other threads, in the order of the source.
///
/// [`prefetch`](super::Pipeline::prefetch) and [`par_map`](super::Pipeline::par_map) return it.
///
/// The threads start at the first call of `next` or [`start`](Background::start). Dropping the iterator stops
/// and joins the threads. Waits inside this crate (for bytes of a store, for items of other threads) then end
/// with [`ErrorKind::Stopped`]. A running call of the source or the closure is completed, and no further call
/// is made. If such a call panics, its item is [`ErrorKind::Panicked`].
///
/// [`into_stream`](Background::into_stream) converts it to a [`Stream`](futures::Stream) for any executor.
/// (It is not itself a stream: if a type is both, calls of `next` and `pipeline` are ambiguous.)
///
/// ```
/// use shardstream::adapters::IteratorExt;
///
/// let mut numbers = (0..10).map(Ok).pipeline().prefetch(2);
/// assert_eq!(numbers.next().transpose()?, Some(0)); // starts the thread
/// drop(numbers); // joins it
/// # Ok::<(), shardstream::Error>(())
/// ```
#[must_use = "adapters are lazy: they do nothing unless they are iterated over or polled"]
pub struct Background<T> {
    state: BackgroundState<T>,
    ahead: usize,
}

type StartThreads<T> = Box<dyn FnOnce(usize) -> Result<ThreadedQueue<T>> + Send>;

enum BackgroundState<T> {
    New(StartThreads<T>),
    Running(ThreadedQueue<T>),
    /// The threads could not be started.
    Failed(Error),
    Ended,
}

impl<T> Background<T> {
    /// `start` starts the threads. Its argument is the number of items that may be prepared in advance.
    fn new(ahead: usize, start: impl FnOnce(usize) -> Result<ThreadedQueue<T>> + Send + 'static) -> Self {
        Background { state: BackgroundState::New(Box::new(start)), ahead }
    }

    /// Sets the number of items that may be prepared in advance, which bounds the memory. It must be at least
    /// 1; a number above 65536 means 65536.
    ///
    /// ```
    /// use shardstream::adapters::IteratorExt;
    ///
    /// let doubled = (0..100u32).map(Ok).pipeline().par_map(2, |n| Ok(2 * n)).ahead(8);
    /// assert_eq!(doubled.sum::<shardstream::Result<u32>>()?, 9900);
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    pub fn ahead(mut self, items: usize) -> Self {
        self.ahead = items;
        self
    }

    /// Starts the threads before the first item is asked for. They prepare the number of items that
    /// [`ahead`](Background::ahead) allows, and then wait. Further calls do nothing. If threads cannot be
    /// started, the first item is the error.
    ///
    /// ```
    /// use shardstream::adapters::IteratorExt;
    ///
    /// let mut squares = (0..100u64).map(Ok).pipeline().par_map(2, |n| Ok(n * n));
    /// squares.start();
    /// // … something that takes long, while the first squares are computed …
    /// assert_eq!(squares.next().transpose()?, Some(0));
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    pub fn start(&mut self) {
        if !matches!(self.state, BackgroundState::New(_)) {
            return;
        }
        let BackgroundState::New(start) = std::mem::replace(&mut self.state, BackgroundState::Ended) else {
            return;
        };
        let started = match self.ahead {
            0 => Err(ErrorKind::Config("0 items ahead: threads need room for at least 1 item".into()).into()),
            ahead => start(ahead.min(MAX_AHEAD)),
        };
        self.state = match started {
            Ok(queue) => BackgroundState::Running(queue),
            Err(error) => BackgroundState::Failed(error),
        };
    }

    /// The same items as a stream.
    ///
    /// ```
    /// use futures::{TryStreamExt as _, executor::block_on};
    /// use shardstream::adapters::IteratorExt;
    ///
    /// let numbers = (0..3).map(Ok).pipeline().prefetch(2).into_stream();
    /// assert_eq!(block_on(numbers.try_collect::<Vec<_>>())?, [0, 1, 2]);
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    pub fn into_stream(self) -> IntoStream<Self> {
        IntoStream::new(self)
    }

    /// Whether `next` would return without waiting. With `par_map`, also true while a thread computes the
    /// next item.
    pub(crate) fn is_ready(&self) -> bool {
        match &self.state {
            BackgroundState::New(_) => false,
            BackgroundState::Running(queue) => queue.is_ready(),
            BackgroundState::Failed(_) | BackgroundState::Ended => true,
        }
    }

    /// The queue of the threads; `None` after the end. Starts the threads if they have not been started.
    fn queue(&mut self) -> Result<Option<&mut ThreadedQueue<T>>> {
        self.start();
        if matches!(self.state, BackgroundState::Failed(_))
            && let BackgroundState::Failed(error) = std::mem::replace(&mut self.state, BackgroundState::Ended)
        {
            return Err(error);
        }
        match &mut self.state {
            BackgroundState::Running(queue) => Ok(Some(queue)),
            _ => Ok(None),
        }
    }

    /// Returns `item`. If `item` is `None`, also ends the iteration, which joins the threads.
    fn received(&mut self, item: Option<Result<T>>) -> Option<Result<T>> {
        if item.is_none() {
            self.state = BackgroundState::Ended;
        }
        item
    }

    /// Returns the error of an interrupted wait, and ends the iteration, so that a caller that continues
    /// after errors does not loop forever.
    fn interrupted(&mut self, error: Error) -> Option<Result<T>> {
        self.state = BackgroundState::Ended;
        Some(Err(error))
    }
}

impl<T> Iterator for Background<T> {
    type Item = Result<T>;

    fn next(&mut self) -> Option<Result<T>> {
        let item = match self.queue() {
            Ok(queue) => queue?.next(),
            Err(error) => return Some(Err(error)),
        };
        match item {
            Ok(item) => self.received(item),
            Err(error) => self.interrupted(error),
        }
    }
}

impl<T> FusedIterator for Background<T> {}

impl<T> PollItem for Background<T> {
    fn poll_item(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<T>>> {
        let item = match self.queue() {
            Ok(Some(_)) if wait::poll_interrupted(context) => {
                return Poll::Ready(self.interrupted(ErrorKind::Stopped.into()));
            }
            Ok(Some(queue)) => ready!(queue.poll_next(context)),
            Ok(None) => None,
            Err(error) => Some(Err(error)),
        };
        Poll::Ready(self.received(item))
    }
}

impl<T> FusedStream for IntoStream<Background<T>> {
    fn is_terminated(&self) -> bool {
        matches!(self.get_ref().state, BackgroundState::Ended)
    }
}

impl<T> fmt::Debug for Background<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Background");
        shown.field("ahead", &self.ahead);
        match &self.state {
            BackgroundState::New(_) => shown.field("state", &format_args!("New")),
            BackgroundState::Running(queue) => {
                shown.field("threads", &queue.threads.len()).field("waiting", &queue.entries.len())
            }
            BackgroundState::Failed(error) => shown.field("state", error),
            BackgroundState::Ended => shown.field("state", &format_args!("Ended")),
        };
        shown.finish()
    }
}

/// An entry of the queue. Entries are in the order of the source.
enum QueueEntry<T> {
    /// The item.
    Ready(Result<T>),
    /// The channel through which a thread will send the item that it is computing.
    Promised(oneshot::Receiver<Result<T>>),
}

/// Threads that fill a queue. Dropping the `ThreadedQueue` joins the threads.
///
/// The queue is a channel that wakes its receiver without holding a lock. If a lock were held, the woken
/// thread would often run immediately on the same core, and would then have to wait for that lock.
struct ThreadedQueue<T> {
    entries: mpsc::Receiver<QueueEntry<T>>,
    /// The first entry, if its item was polled and was not ready.
    front: Option<QueueEntry<T>>,
    threads: Threads,
}

impl<T: Send + 'static> ThreadedQueue<T> {
    /// Starts a thread for each of `works`, named after `name`, with a queue of `ahead` entries.
    fn start<W>(name: &str, ahead: usize, works: impl IntoIterator<Item = W>) -> Result<Self>
    where
        W: FnOnce(mpsc::Sender<QueueEntry<T>>) + Send + 'static,
    {
        let (sender, entries) = mpsc::channel(ahead);
        let mut queue = ThreadedQueue { entries, front: None, threads: Threads::default() };
        for (number, work) in works.into_iter().enumerate() {
            let sender = sender.clone();
            queue.threads.start(format!("{name}-{number}"), move || work(sender))?;
        }
        Ok(queue)
    }
}

impl<T> ThreadedQueue<T> {
    /// Whether the queue has an entry. The item of this entry may not be ready yet.
    fn is_ready(&self) -> bool {
        self.front.is_some() || !self.entries.is_empty()
    }

    /// The next item; `None` at the end. Blocks.
    ///
    /// # Errors
    /// [`ErrorKind::Stopped`] if this thread is interrupted.
    fn next(&mut self) -> Result<Option<Result<T>>> {
        if wait::is_interrupted() {
            return Err(ErrorKind::Stopped.into());
        }
        let slot = match self.front.take() {
            Some(slot) => Some(slot),
            None => match self.entries.try_recv() {
                Ok(slot) => Some(slot),
                Err(TryRecvError::Disconnected) => None,
                Err(TryRecvError::Empty) => wait::block_on(self.entries.recv())?,
            },
        };
        Ok(match slot {
            None => None,
            Some(QueueEntry::Ready(item)) => Some(item),
            Some(QueueEntry::Promised(item)) => Some(wait::block_on(item)?.unwrap_or_else(|_| lost())),
        })
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<T>>> {
        let slot = match self.front.take() {
            Some(slot) => slot,
            None => match ready!(wait::poll_unconstrained(self.entries.recv(), context)) {
                Some(slot) => slot,
                None => return Poll::Ready(None),
            },
        };
        match slot {
            QueueEntry::Ready(item) => Poll::Ready(Some(item)),
            QueueEntry::Promised(mut item) => match wait::poll_unconstrained(&mut item, context) {
                Poll::Ready(item) => Poll::Ready(Some(item.unwrap_or_else(|_| lost()))),
                Poll::Pending => {
                    self.front = Some(QueueEntry::Promised(item));
                    Poll::Pending
                }
            },
        }
    }
}

impl<T> Drop for ThreadedQueue<T> {
    fn drop(&mut self) {
        // After this function, `threads` is dropped, which joins the threads. A thread that waited for room
        // in the queue would never end, so the queue is closed.
        self.entries.close();
        // Dropping an item calls the caller's code. If that code panics, the panic must not reach this
        // thread.
        drop(drop_caught(self.front.take()));
        while let Ok(entry) = self.entries.try_recv() {
            drop(drop_caught(entry));
        }
    }
}

/// The error for an item that was never sent, because the thread panicked while dropping a caller's value.
fn lost<T>() -> Result<T> {
    Err(ErrorKind::Panicked("it ended without an answer".into()).into())
}
