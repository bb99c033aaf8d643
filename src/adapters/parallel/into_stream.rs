//! `IntoStream`: a stream from an iterator whose items are prepared on other threads.

use futures::Stream;
use std::pin::Pin;
use std::task::{Context, Poll};

/// A [`Stream`] of the items of an iterator whose threads prepare the items. It works with any executor.
///
/// `into_stream` of [`Background`](super::Background), [`Batches`](crate::loader::Batches) and
/// [`Feed`](crate::Feed) returns an `IntoStream`. [`get_ref`](IntoStream::get_ref) and
/// [`get_mut`](IntoStream::get_mut) return the iterator, to start it or to read its state and reports.
///
/// Dropping the stream drops the iterator, which joins the threads, and blocks until they have ended.
///
/// ```
/// use futures::{StreamExt as _, executor::block_on};
/// use shardstream::Feed;
///
/// let mut feed = Feed::new((0..3).map(Ok), |batch: u32| Ok(batch + 1)).into_stream();
/// assert_eq!(block_on(feed.next()).transpose()?, Some(1));
/// assert_eq!(feed.get_ref().report().batches, 1);
/// # Ok::<(), shardstream::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "streams do nothing unless they are polled"]
pub struct IntoStream<I>(I);

/// An iterator that can be asked for its next item without blocking.
pub trait PollItem: Iterator {
    /// The next item, if it is ready. Otherwise, wakes the task when the item is ready.
    fn poll_item(&mut self, context: &mut Context<'_>) -> Poll<Option<Self::Item>>;
}

impl<I> IntoStream<I> {
    pub(crate) fn new(items: I) -> Self {
        IntoStream(items)
    }

    /// The iterator.
    #[must_use]
    pub fn get_ref(&self) -> &I {
        &self.0
    }

    /// The iterator. Taking an item from the iterator blocks.
    pub fn get_mut(&mut self) -> &mut I {
        &mut self.0
    }
}

/// The iterator is never pinned: it polls only boxed futures.
impl<I> Unpin for IntoStream<I> {}

impl<I: PollItem> Stream for IntoStream<I> {
    type Item = I::Item;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<I::Item>> {
        Pin::get_mut(self).0.poll_item(context)
    }
}
