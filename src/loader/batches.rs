//! A run over the data: the composition of the stages, and its end.

use super::chunks::{self, Chunk, chunks, unchunked};
use super::collect::{Collect, First, Given, Progress};
use super::deal::{Cuts, Deal};
use super::event::Event;
use super::lane::Lane;
use super::make::Batched;
use super::memory::QueueMemory;
use super::report::{Counter, Report};
use super::{Loader, Map};
use crate::adapters::{Background, BackgroundStream, Batch, IteratorExt, catch};
use crate::collate::{Collator, Seat, Seats};
use crate::dataset::Stop;
use crate::error::{Error, ErrorKind, Result};
use crate::sample::Sample;
use crate::state::State;
use crate::store::Budget;
use futures::Stream;
use std::fmt;
use std::iter::{self, FusedIterator};
use std::marker::PhantomData;
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
pub struct Batches<T, B = Batch<T>> {
    stop: StopOnDrop,
    batches: Running<B>,
    consumed: Consumed,
    items: PhantomData<fn() -> T>,
}

/// The same batches as a [`Stream`]; see [`Batches::into_stream`].
#[must_use = "streams do nothing unless they are polled"]
pub struct BatchesStream<T, B = Batch<T>> {
    _stop: StopOnDrop,
    batches: BackgroundStream<Given<B>>,
    consumed: Consumed,
    items: PhantomData<fn() -> T>,
}

enum Running<B> {
    /// Ahead of the consumer.
    Ahead(Background<Given<B>>),
    /// When the consumer asks.
    Here(Box<dyn Iterator<Item = Result<Given<B>>> + Send>),
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

    fn note<B: Batched>(&mut self, item: Option<Result<Given<B>>>) -> Option<Result<B>> {
        if let Some(since) = self.waiting.take() {
            self.counter.waited(since);
        }
        match item? {
            Ok(Given::Batch(batch)) => {
                self.counter.batch(batch.items());
                self.state = batch.after().unwrap_or(&self.state).clone();
                Some(Ok(batch))
            }
            Ok(Given::End) => {
                self.state = self.state.clone().ended();
                None
            }
            Err(error) => Some(Err(error)),
        }
    }
}

impl<T: Send + 'static, B: Batched> Batches<T, B> {
    /// Reads `lanes`, from the place `from` of the job's sequence on, cut into batches as `cuts` says.
    pub(super) fn new(
        loader: &Loader<T, B>,
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
        let collator = loader.make.collator.as_ref();
        let events = if threads > 0 {
            let budget = loader.budget();
            events_ahead(lanes, deal, maps, collator, threads, (stop.clone(), budget))
        } else {
            events_here(lanes, deal, maps, collator)
        };
        let make = loader.make.clone();
        let batches = Collect::new(events, loader.batch, loader.last, first, make, progress);
        let batches = match threads {
            0 => Running::Here(Box::new(batches)),
            _ => Running::Ahead(batches.prefetch(loader.prefetch)),
        };
        let counter = loader.counter();
        let consumed = Consumed::new(state, counter);
        Batches { stop: StopOnDrop(stop), batches, consumed, items: PhantomData }
    }

    /// Nothing but an error.
    pub(super) fn failed(error: Error, state: State) -> Self {
        let batches = Running::Here(Box::new(iter::once(Err(error))));
        let counter = Counter::new(iter::empty());
        let consumed = Consumed::new(state, counter);
        Batches { stop: StopOnDrop(Stop::default()), batches, consumed, items: PhantomData }
    }

    /// The same batches as a stream, for any executor.
    ///
    /// Dropping it joins the threads, as dropping the iterator does: for that moment it blocks.
    pub fn into_stream(self) -> BatchesStream<T, B> {
        let batches = match self.batches {
            Running::Ahead(batches) => batches,
            // An executor must not be blocked.
            Running::Here(batches) => batches.prefetch(1),
        };
        let (batches, consumed) = (batches.into_stream(), self.consumed);
        BatchesStream { _stop: self.stop, batches, consumed, items: PhantomData }
    }
}

/// Where the loader stands: what was consumed, whatever is prepared ahead of that.
impl<T, B> Batches<T, B> {
    /// The state after the last batch that was given out, as [`Batch::state`] of that batch; at first, that
    /// of the beginning. It takes no longer than a few allocations.
    #[must_use]
    pub fn state(&self) -> State {
        self.consumed.state.clone()
    }

    /// What has been taken since the beginning of the run: batches, waiting times, requests and bytes. For
    /// those of an epoch of many, take the difference of two with
    /// [`StoreReport::since`](crate::store::StoreReport::since).
    #[must_use]
    pub fn report(&self) -> Report {
        self.consumed.counter.report()
    }
}

impl<T, B> BatchesStream<T, B> {
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
    collator: Option<&Collator>,
) -> Events<T> {
    let mut seats = collator.map(Collator::seats);
    Box::new(deal(lanes, dealing).map(move |event| {
        let seat = seats.as_mut().and_then(|seats| seat(seats, &event));
        mapped(&maps, event, &mut seat.into_iter())
    }))
}

/// All up to the batches: the streams, each on its thread, and the threads that map.
fn events_ahead<T: Send + 'static>(
    lanes: Vec<Lane<super::Source>>,
    dealing: Dealing,
    maps: Vec<Map<T>>,
    collator: Option<&Collator>,
    threads: usize,
    (stop, budget): (Stop, Budget),
) -> Events<T> {
    // All are started before one is waited for: it may take long until a shuffle buffer is full.
    let started = |source: super::Source| {
        let memory = QueueMemory::new(source.budget(), 1, chunks::BYTES);
        unchunked(chunks(source, 0, memory).prefetch(CHUNKS_PER_STREAM).started())
    };
    let samples = iter::once_with(move || {
        let lanes = lanes.into_iter().map(|lane| lane.map_sources(started)).collect();
        deal(lanes, dealing)
    });
    let mut seats = collator.map(Collator::seats);
    let memory = QueueMemory::new(&budget, threads, chunks::BYTES);
    let grown = collator.map_or(0, Collator::row_size);
    let chunks = chunks(samples.flatten(), grown, memory).map(move |chunk| {
        let chunk = chunk?;
        // Here, where the samples still come in their order.
        let seats: Vec<Seat> = match &mut seats {
            Some(seats) => chunk.events.iter().filter_map(|event| seat(seats, event)).collect(),
            None => Vec::new(),
        };
        Ok((chunk, seats))
    });
    let chunks = chunks.par_map(threads, move |(chunk, seats): (Chunk<Sample>, Vec<Seat>)| {
        let mut seats = seats.into_iter();
        let map_event = |event| match (stop.is_stopped(), event) {
            // Nobody waits for it.
            (true, Event::Item(tag, _)) => Event::Item(tag, Err(ErrorKind::Stopped.into())),
            (_, event) => mapped(&maps, event, &mut seats),
        };
        Ok(chunk.map(map_event))
    });
    Box::new(unchunked(chunks.ahead(threads.saturating_mul(CHUNKS_PER_THREAD).max(1))))
}

/// The place of a sample in its batch of tensors.
fn seat(seats: &mut Seats, event: &Event<Sample>) -> Option<Seat> {
    match event {
        Event::Item(_, Ok(_)) => return Some(seats.next_seat()),
        Event::Cut(_) => seats.end_batch(),
        Event::Item(_, Err(_)) | Event::Fault(_) | Event::Fatal(_) => {}
    }
    None
}

/// Maps a sample; an error or a panic says which sample it was.
pub(super) fn map_one<T>(map: &Map<T>, sample: Sample, seat: Seat) -> Result<T> {
    let place = sample.place();
    catch(|| map(sample, seat)).and_then(|item| item).map_err(|error| place.locate(error))
}

fn mapped<T>(maps: &[Map<T>], event: Event<Sample>, seats: &mut impl Iterator<Item = Seat>) -> Event<T> {
    match event {
        Event::Item(tag, Ok(sample)) => {
            let item = match maps.get(tag.dataset) {
                Some(map) => map_one(map, sample, seats.next().unwrap_or_default()),
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

impl<T, B: Batched> Iterator for Batches<T, B> {
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

impl<T, B: Batched> FusedIterator for Batches<T, B> {}

impl<T, B: Batched> Stream for BatchesStream<T, B> {
    type Item = Result<B>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.consumed.wait();
        let item = ready!(Pin::new(&mut self.batches).poll_next(cx));
        Poll::Ready(self.consumed.note(item))
    }
}

impl<T, B> fmt::Debug for Batches<T, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Batches");
        if let Running::Ahead(batches) = &self.batches {
            shown.field("ahead", batches);
        }
        shown.field("samples", &self.consumed.state.samples()).finish_non_exhaustive()
    }
}

impl<T, B> fmt::Debug for BatchesStream<T, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BatchesStream").field(&self.batches).finish()
    }
}
