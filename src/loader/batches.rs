//! A run over the data: the composition of the stages, and its end.

use super::chunks::{Chunk, chunks, unchunked};
use super::collect::{Collect, First, Progress};
use super::deal::{Cuts, Deal};
use super::event::Event;
use super::lane::Lane;
use super::report::{Counter, Report};
use super::{Loader, Map};
use crate::adapters::{Background, BackgroundStream, Batch, IteratorExt, catch};
use crate::dataset::Stop;
use crate::error::{Error, ErrorKind, Result};
use crate::sample::Sample;
use crate::state::State;
use futures::Stream;
use std::fmt;
use std::iter::{self, FusedIterator};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Instant;

/// How many chunks the thread of a stream prepares ahead.
const CHUNKS_PER_STREAM: usize = 2;
/// How many chunks are prepared ahead for each thread that maps.
const CHUNKS_PER_THREAD: usize = 2;

type Events<T> = Box<dyn Iterator<Item = Event<T>> + Send>;

/// The batches of one epoch or of many, from [`Loader::epoch`], [`Loader::epochs`] or [`Loader::restore`].
#[must_use = "batches are lazy: nothing is read unless they are asked for"]
pub struct Batches<T> {
    stop: StopOnDrop,
    batches: Running<T>,
    consumed: Consumed,
}

/// The same batches as a [`Stream`]; see [`Batches::into_stream`].
#[must_use = "streams do nothing unless they are polled"]
pub struct BatchesStream<T> {
    _stop: StopOnDrop,
    batches: BackgroundStream<Batch<T>>,
    consumed: Consumed,
}

enum Running<T> {
    /// Ahead of the consumer.
    Ahead(Background<Batch<T>>),
    /// When the consumer asks.
    Here(Box<dyn Iterator<Item = Result<Batch<T>>> + Send>),
}

/// Ends the reads, so that the threads that are about to be joined don't wait for the network. Fields are dropped in
/// order, and this one comes first.
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
    /// Whether an error came after that.
    failed: bool,
    counter: Counter,
    /// Since when the next batch has been waited for.
    waiting: Option<Instant>,
}

impl Consumed {
    fn new(state: State, counter: Counter) -> Self {
        Consumed { state, failed: false, counter, waiting: None }
    }

    fn wait(&mut self) {
        self.waiting.get_or_insert_with(Instant::now);
    }

    fn note<T>(&mut self, item: Option<&Result<Batch<T>>>) {
        if let Some(since) = self.waiting.take() {
            self.counter.waited(since);
        }
        match item {
            Some(Ok(batch)) => {
                self.failed = false;
                self.counter.batch(batch.len());
                self.state = batch.state().unwrap_or(&self.state).clone();
            }
            Some(Err(_)) => self.failed = true,
            None if !self.failed => self.state = self.state.clone().ended(),
            None => {}
        }
    }
}

impl<T: Send + 'static> Batches<T> {
    /// Reads `lanes`, from the place `from` of the job's sequence on, cut into batches as `cuts` says.
    pub(super) fn new(
        loader: &Loader<T>,
        lanes: Vec<Lane<super::Source>>,
        stop: Stop,
        cuts: Cuts,
        first: First<T>,
        progress: Progress,
    ) -> Self {
        let state = progress.state();
        let (threads, from) = (loader.items.threads, state.slots());
        let maps = loader.items.recipes.iter().map(|recipe| Map::clone(&recipe.map)).collect();
        let deal = (loader.reader(), loader.batch, from, cuts);
        let events = if threads > 0 {
            events_ahead(lanes, deal, maps, threads, stop.clone())
        } else {
            events_here(lanes, deal, maps)
        };
        let batches = Collect::new(events, loader.batch, loader.last, first, progress);
        let batches = match threads {
            0 => Running::Here(Box::new(batches)),
            _ => Running::Ahead(batches.prefetch(loader.prefetch)),
        };
        let counter = loader.counter();
        Batches { stop: StopOnDrop(stop), batches, consumed: Consumed::new(state, counter) }
    }

    /// Nothing but an error.
    pub(super) fn failed(error: Error, state: State) -> Self {
        let batches = Running::Here(Box::new(iter::once(Err(error))));
        let counter = Counter::new(iter::empty());
        Batches { stop: StopOnDrop(Stop::default()), batches, consumed: Consumed::new(state, counter) }
    }

    /// The same batches as a stream, for any executor.
    ///
    /// Dropping it joins the threads, as dropping the iterator does: for that moment it blocks.
    pub fn into_stream(self) -> BatchesStream<T> {
        let batches = match self.batches {
            Running::Ahead(batches) => batches,
            // An executor must not be blocked.
            Running::Here(batches) => batches.prefetch(1),
        };
        BatchesStream { _stop: self.stop, batches: batches.into_stream(), consumed: self.consumed }
    }
}

/// Where the loader stands: what was consumed, whatever is prepared ahead of that.
impl<T> Batches<T> {
    /// The state after the last batch that was given out, as [`Batch::state`] of that batch; at first, that of the
    /// beginning. It takes no longer than a few allocations.
    #[must_use]
    pub fn state(&self) -> State {
        self.consumed.state.clone()
    }

    /// What has been taken since the beginning of the run: batches, waiting times, requests and bytes. For those of an
    /// epoch of many, take the difference of two with [`StoreReport::since`](crate::store::StoreReport::since).
    #[must_use]
    pub fn report(&self) -> Report {
        self.consumed.counter.report()
    }
}

impl<T> BatchesStream<T> {
    /// As [`Batches::state`].
    #[must_use]
    pub fn state(&self) -> State {
        self.consumed.state.clone()
    }

    /// As [`Batches::report`].
    #[must_use]
    pub fn report(&self) -> Report {
        self.consumed.counter.report()
    }
}

type Dealing = ((usize, usize), usize, u64, Cuts);

fn deal<I>(lanes: Vec<Lane<I>>, (reader, batch, from, cuts): Dealing) -> Deal<I> {
    Deal::new(lanes, reader, batch, from, cuts)
}

/// All up to the batches, on this thread.
fn events_here<T: Send + 'static>(
    lanes: Vec<Lane<super::Source>>,
    dealing: Dealing,
    maps: Vec<Map<T>>,
) -> Events<T> {
    Box::new(deal(lanes, dealing).map(move |event| mapped(&maps, event)))
}

/// All up to the batches: the streams, each on its thread, and the threads that map.
fn events_ahead<T: Send + 'static>(
    lanes: Vec<Lane<super::Source>>,
    dealing: Dealing,
    maps: Vec<Map<T>>,
    threads: usize,
    stop: Stop,
) -> Events<T> {
    // All are started before one is waited for: it may take long until a shuffle buffer is full.
    let started = |source| unchunked(chunks(source).prefetch(CHUNKS_PER_STREAM).started());
    let samples = iter::once_with(move || {
        let lanes = lanes.into_iter().map(|lane| lane.map_sources(started)).collect();
        deal(lanes, dealing)
    });
    let chunks = chunks(samples.flatten()).par_map(threads, move |chunk: Chunk<Sample>| {
        let map_event = |event| match (stop.is_stopped(), event) {
            // Nobody waits for it.
            (true, Event::Item(tag, _)) => Event::Item(tag, Err(ErrorKind::Stopped.into())),
            (_, event) => mapped(&maps, event),
        };
        Ok(chunk.into_iter().map(map_event).collect::<Chunk<T>>())
    });
    Box::new(unchunked(chunks.ahead(threads.saturating_mul(CHUNKS_PER_THREAD).max(1))))
}

/// Maps a sample; an error or a panic says which sample it was.
pub(super) fn map_one<T>(map: &Map<T>, sample: Sample) -> Result<T> {
    let place = sample.place();
    catch(|| map(sample)).and_then(|item| item).map_err(|error| place.locate(error))
}

fn mapped<T>(maps: &[Map<T>], event: Event<Sample>) -> Event<T> {
    match event {
        Event::Item(tag, Ok(sample)) => {
            let item = match maps.get(tag.dataset) {
                Some(map) => map_one(map, sample),
                None => Err(ErrorKind::Config("a dataset that is not in the mix".into()).into()),
            };
            Event::Item(tag, item)
        }
        Event::Item(tag, Err(error)) => Event::Item(tag, Err(error)),
        Event::Fault(error) => Event::Fault(error),
        Event::Fatal(error) => Event::Fatal(error),
        Event::Cut(cut) => Event::Cut(cut),
    }
}

impl<T> Iterator for Batches<T> {
    type Item = Result<Batch<T>>;

    fn next(&mut self) -> Option<Self::Item> {
        self.consumed.wait();
        let item = match &mut self.batches {
            Running::Ahead(batches) => batches.next(),
            Running::Here(batches) => batches.next(),
        };
        self.consumed.note(item.as_ref());
        item
    }
}

impl<T> FusedIterator for Batches<T> {}

impl<T> Stream for BatchesStream<T> {
    type Item = Result<Batch<T>>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.consumed.wait();
        let item = ready!(Pin::new(&mut self.batches).poll_next(cx));
        self.consumed.note(item.as_ref());
        Poll::Ready(item)
    }
}

impl<T> fmt::Debug for Batches<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Batches");
        if let Running::Ahead(batches) = &self.batches {
            shown.field("ahead", batches);
        }
        shown.field("samples", &self.consumed.state.samples()).finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for BatchesStream<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BatchesStream").field(&self.batches).finish()
    }
}
