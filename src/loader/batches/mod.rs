//! A run over the data: its batches, its state, and its end.
//!
//! ```text
//! collect   items into batches, each with the state as of its last item
//! make      what batches are made of
//! memory    what a run holds, by owner
//! report    what a run has cost
//! ```

mod collect;
mod make;
mod memory;
mod report;

pub(super) use collect::{Collect, First, Given, Pad, Progress, Promised};
pub(super) use make::Make;
pub use memory::MemoryReport;
pub(super) use memory::Owners;
pub(super) use report::Counter;
pub use report::{Fill, Report};

use crate::adapters::{Background, BackgroundStream, IteratorExt};
use crate::dataset::Stop;
use crate::error::{Error, Result};
use crate::state::State;
use futures::Stream;
use std::fmt;
use std::iter::{self, FusedIterator};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Instant;

/// Batches with what is noted of them.
pub(super) type Collected<B> = Box<dyn Iterator<Item = Result<Given<B>>> + Send>;

/// The batches of one epoch or of many, from [`Loader::epoch`](super::Loader::epoch),
/// [`Loader::epochs`](super::Loader::epochs) or [`Loader::restore`](super::Loader::restore).
#[must_use = "batches are lazy: nothing is read unless they are asked for"]
pub struct Batches<B> {
    stop: StopOnDrop,
    batches: Running<B>,
    consumed: Consumed,
}

/// The same batches as a [`Stream`]; see [`Batches::into_stream`].
#[must_use = "streams do nothing unless they are polled"]
pub struct BatchesStream<B> {
    _stop: StopOnDrop,
    batches: BackgroundStream<Given<B>>,
    consumed: Consumed,
}

enum Running<B> {
    /// Ahead of the consumer.
    Ahead(Background<Given<B>>),
    /// When the consumer asks.
    Here(Collected<B>),
}

/// Ends the reads, so that the threads that are about to be joined don't wait for the network. Fields are
/// dropped in order, and this one comes first.
struct StopOnDrop(Stop);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// What has been given out.
#[derive(Debug)]
struct Consumed {
    state: State,
    counter: Counter,
    /// Since when the next batch has been waited for.
    waiting: Option<Instant>,
}

impl Consumed {
    fn new(state: State, counter: Counter) -> Self {
        Consumed { state, counter, waiting: None }
    }

    fn wait(&mut self) {
        self.waiting.get_or_insert_with(Instant::now);
    }

    fn note<B>(&mut self, item: Option<Result<Given<B>>>) -> Option<Result<B>> {
        if let Some(since) = self.waiting.take() {
            self.counter.waited(since);
        }
        match item? {
            Ok(Given::Batch(batch, (items, fill), state)) => {
                self.counter.batch(items, fill);
                self.state = state;
                Some(Ok(batch))
            }
            Ok(Given::End(state)) => {
                self.state = state.unwrap_or_else(|| self.state.clone()).ended();
                None
            }
            Err(error) => Some(Err(error)),
        }
    }
}

impl<B: Send + 'static> Batches<B> {
    /// Prepares so many batches ahead on a thread, or none without one.
    pub(super) fn new(
        batches: Collected<B>,
        ahead: Option<usize>,
        stop: Stop,
        (state, counter): (State, Counter),
    ) -> Self {
        let batches = match ahead {
            Some(ahead) => Running::Ahead(batches.prefetch(ahead)),
            None => Running::Here(batches),
        };
        Batches { stop: StopOnDrop(stop), batches, consumed: Consumed::new(state, counter) }
    }

    /// Nothing but an error.
    pub(super) fn failed(error: Error, state: State) -> Self {
        let batches: Collected<B> = Box::new(iter::once(Err(error)));
        Batches::new(batches, None, Stop::default(), (state, Counter::new(iter::empty())))
    }

    /// The same batches as a stream, for any executor.
    ///
    /// Dropping it joins the threads, as dropping the iterator does: for that moment it blocks.
    pub fn into_stream(self) -> BatchesStream<B> {
        let batches = match self.batches {
            Running::Ahead(batches) => batches,
            // An executor must not be blocked.
            Running::Here(batches) => batches.prefetch(1),
        };
        let (batches, consumed) = (batches.into_stream(), self.consumed);
        BatchesStream { _stop: self.stop, batches, consumed }
    }
}

/// Where the loader stands: what was consumed, whatever is prepared ahead of that.
impl<B> Batches<B> {
    /// The state after the last batch that was given out, as [`Batch::state`](crate::adapters::Batch::state)
    /// of that batch; at first, that of the beginning. It takes no longer than a few allocations.
    #[must_use]
    pub fn state(&self) -> State {
        self.consumed.state.clone()
    }

    /// What has been taken since the beginning of the run: batches, waiting times, requests and bytes, and the
    /// memory that the run holds now. For
    /// those of an epoch of many, take the difference of two with
    /// [`StoreReport::since`](crate::store::StoreReport::since).
    #[must_use]
    pub fn report(&self) -> Report {
        self.consumed.counter.report(self.consumed.state.ledger())
    }
}

impl<B> BatchesStream<B> {
    /// As [`Batches::state`].
    #[must_use]
    pub fn state(&self) -> State {
        self.consumed.state.clone()
    }

    /// As [`Batches::report`].
    #[must_use]
    pub fn report(&self) -> Report {
        self.consumed.counter.report(self.consumed.state.ledger())
    }
}

impl<B> Iterator for Batches<B> {
    type Item = Result<B>;

    fn next(&mut self) -> Option<Self::Item> {
        self.consumed.wait();
        let item = match &mut self.batches {
            Running::Ahead(batches) => batches.next(),
            Running::Here(batches) => batches.next(),
        };
        self.consumed.note(item)
    }
}

impl<B> FusedIterator for Batches<B> {}

impl<B> Stream for BatchesStream<B> {
    type Item = Result<B>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.consumed.wait();
        let item = ready!(Pin::new(&mut self.batches).poll_next(cx));
        Poll::Ready(self.consumed.note(item))
    }
}

impl<B> fmt::Debug for Batches<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Batches");
        if let Running::Ahead(batches) = &self.batches {
            shown.field("ahead", batches);
        }
        shown.field("samples", &self.consumed.state.samples()).finish_non_exhaustive()
    }
}

impl<B> fmt::Debug for BatchesStream<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BatchesStream").field(&self.batches).finish()
    }
}
