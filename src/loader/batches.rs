//! One epoch: the composition of the stages, and its end.

use super::chunks::{Chunk, chunks, unchunked};
use super::{Last, Loader, LoaderBuilder};
use crate::adapters::{
    Background, BackgroundStream, Batch, Batched, IteratorExt, Staged, catch, round_robin,
};
use crate::dataset::{ShardReader, Stop};
use crate::error::{ErrorKind, Result};
use crate::rng::Rng;
use crate::sample::Sample;
use futures::Stream;
use std::fmt;
use std::iter::{self, FusedIterator};
use std::pin::Pin;
use std::task::{Context, Poll};

/// How many chunks the thread of a stream prepares ahead.
const CHUNKS_PER_STREAM: usize = 2;
/// How many chunks are prepared ahead for each thread that maps.
const CHUNKS_PER_THREAD: usize = 2;

type Items<T> = Box<dyn Iterator<Item = Result<T>> + Send>;
/// Items about to be batched, before the last batch has been decided on.
pub(super) type Batching<T> = Staged<Items<T>, Batched<T>>;

/// The batches of one epoch; see [`Loader::epoch`].
#[must_use = "batches are lazy: nothing is read unless they are asked for"]
pub struct Batches<T> {
    stop: StopOnDrop,
    batches: Background<Batch<T>>,
}

/// The batches of one epoch as a [`Stream`]; see [`Batches::into_stream`].
#[must_use = "streams do nothing unless they are polled"]
pub struct BatchesStream<T> {
    _stop: StopOnDrop,
    batches: BackgroundStream<Batch<T>>,
}

/// Ends the reads, so that the threads that are about to be joined don't wait for the network. Fields are dropped in
/// order, and this one comes first.
struct StopOnDrop(Stop);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop();
    }
}

impl<T: Send + 'static> Batches<T> {
    pub(super) fn new(loader: &Loader<T>, epoch: u64) -> Self {
        let stop = Stop::default();
        let items = items(&loader.items, epoch, &stop);
        let batches = items.batched(loader.batch);
        let batches = match loader.last {
            Last::Partial(partial) => batches.partial(partial),
            Last::Pad(pad) => pad(batches),
        };
        Batches { stop: StopOnDrop(stop), batches: batches.prefetch(loader.prefetch) }
    }

    /// The same batches as a stream, for any executor.
    ///
    /// Dropping it joins the threads, as dropping the iterator does: for that moment it blocks.
    pub fn into_stream(self) -> BatchesStream<T> {
        BatchesStream { _stop: self.stop, batches: self.batches.into_stream() }
    }
}

/// All up to the batches: the streams, each on its thread, and the threads that map.
fn items<T: Send + 'static>(options: &LoaderBuilder<T>, epoch: u64, stop: &Stop) -> Items<T> {
    let LoaderBuilder { dataset, shuffle, shuffle_bytes, threads, map } = options.clone();
    if shuffle_bytes == 0 {
        // Each stream would say so.
        let what = "a shuffle buffer of 0 bytes: give it the size of many samples";
        return Box::new(iter::once(Err(ErrorKind::Config(what.into()).into())));
    }
    let (reading, mapping) = (stop.clone(), stop.clone());
    let seed = dataset.seed();
    let read = move |(stream, samples): (usize, ShardReader)| {
        let samples = samples.stopped_by(reading.clone(), stream);
        let rng = Rng::new(seed, epoch, stream as u64);
        let samples: Items<Sample> = match shuffle {
            // A buffer that holds nothing would still copy every sample out of its network chunk.
            0 | 1 => Box::new(samples),
            size => Box::new(samples.shuffle_with(size, rng).max_bytes(shuffle_bytes)),
        };
        // All are started before one is waited for: it may take long until a shuffle buffer is full.
        unchunked(chunks(samples).prefetch(CHUNKS_PER_STREAM).started())
    };
    let samples = iter::once_with(move || round_robin(dataset.readers(epoch).map(read)).longest()).flatten();
    let mapped = chunks(samples).par_map(threads, move |chunk: Chunk<Sample>| {
        let map_one = |sample: Result<Sample>| match mapping.is_stopped() {
            // Nobody waits for it.
            true => Err(ErrorKind::Stopped.into()),
            false => sample.and_then(|sample| mapped(&*map, sample)),
        };
        Ok(chunk.into_iter().map(map_one).collect::<Chunk<T>>())
    });
    Box::new(unchunked(mapped.ahead(threads.saturating_mul(CHUNKS_PER_THREAD).max(1))))
}

/// Maps one sample; an error or a panic says which sample it was.
fn mapped<T>(map: &(dyn Fn(Sample) -> Result<T> + Send + Sync), sample: Sample) -> Result<T> {
    let place = sample.place();
    catch(|| map(sample)).and_then(|item| item).map_err(|error| place.locate(error))
}

impl<T> Iterator for Batches<T> {
    type Item = Result<Batch<T>>;

    fn next(&mut self) -> Option<Self::Item> {
        self.batches.next()
    }
}

impl<T> FusedIterator for Batches<T> {}

impl<T> Stream for BatchesStream<T> {
    type Item = Result<Batch<T>>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Pin::new(&mut self.batches).poll_next(cx)
    }
}

impl<T> fmt::Debug for Batches<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Batches").field(&self.batches).finish()
    }
}

impl<T> fmt::Debug for BatchesStream<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BatchesStream").field(&self.batches).finish()
    }
}
