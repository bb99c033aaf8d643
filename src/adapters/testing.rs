//! Sources for tests, and a macro that checks that an adapter returns the same results for an iterator and
//! for a stream.

use crate::{Error, Result};
use futures::Stream;
use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Items that can be compared: errors are converted to their messages.
pub(super) type Shown<T> = Vec<std::result::Result<T, String>>;

pub(crate) fn oks(range: Range<i32>) -> Vec<Result<i32>> {
    range.map(Ok).collect()
}

/// An error whose message is `message`.
pub(crate) fn fault<T>(message: &'static str) -> Result<T> {
    Err(crate::ErrorKind::UnsupportedCompression(message.into()).into())
}

fn shown<T>(item: Result<T>) -> std::result::Result<T, String> {
    item.map_err(|error: Error| error.to_string())
}

pub(crate) fn show<T>(items: impl Iterator<Item = Result<T>>) -> Shown<T> {
    items.map(shown).collect()
}

pub(crate) fn show_stream<T>(items: impl Stream<Item = Result<T>>) -> Shown<T> {
    use futures::StreamExt as _;
    futures::executor::block_on(items.map(shown).collect())
}

/// A stream that is ready only on every third poll.
#[derive(Debug)]
pub(super) struct Hesitant<T> {
    items: std::vec::IntoIter<Result<T>>,
    polls: usize,
}

impl<T> Hesitant<T> {
    pub(crate) fn new(items: Vec<Result<T>>) -> Self {
        Hesitant { items: items.into_iter(), polls: 0 }
    }
}

impl<T> Unpin for Hesitant<T> {}

impl<T> Stream for Hesitant<T> {
    type Item = Result<T>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<T>>> {
        self.polls += 1;
        if !self.polls.is_multiple_of(3) {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(self.items.next())
    }
}

/// Runs a chain of adapters on an iterator, on a stream that is always ready and on a [`Hesitant`] stream.
/// Checks that the results are the same, and returns them.
macro_rules! both {
    ($items:expr, |$source:ident| $chain:expr) => {{
        let iterated = {
            #[allow(unused_imports)]
            use $crate::adapters::IteratorExt as _;
            let $source = $items.into_iter().pipeline();
            $crate::adapters::testing::show($chain)
        };
        let ready = {
            #[allow(unused_imports)]
            use $crate::adapters::StreamExt as _;
            let $source = futures::stream::iter($items).pipeline();
            $crate::adapters::testing::show_stream($chain)
        };
        let hesitant = {
            #[allow(unused_imports)]
            use $crate::adapters::StreamExt as _;
            let $source = $crate::adapters::testing::Hesitant::new($items).pipeline();
            $crate::adapters::testing::show_stream($chain)
        };
        let text = |out: &dyn std::fmt::Debug| format!("{out:?}");
        assert_eq!(text(&iterated), text(&ready));
        assert_eq!(text(&iterated), text(&hesitant));
        iterated
    }};
}
pub(super) use both;
