//! One epoch: the composition of the stages, and its end.

use super::chunked::Chunked;
use super::{Last, Loader, LoaderBuilder};
use crate::adapters::{
    Background, BackgroundStream, Batch, Batched, IteratorExt, Staged, catch, round_robin,
};
use crate::dataset::Stop;
use crate::error::Result;
use crate::rng::Rng;
use crate::sample::Sample;
use futures::Stream;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
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
        let Loader { items: LoaderBuilder { dataset, shuffle, shuffle_bytes, threads, map }, .. } = loader;
        let stop = Stop::default();
        let streams = dataset.streams().iter().map(|&stream| {
            let samples = dataset.read(epoch, stream).stopped_by(stop.clone(), stream);
            let rng = Rng::new(dataset.seed(), epoch, stream as u64);
            let samples: Items<Sample> = match *shuffle {
                // A shuffle copies samples out of their chunks, for nothing where none stays.
                0 | 1 => Box::new(samples),
                size => Box::new(samples.shuffle_with(size, rng).max_bytes(*shuffle_bytes)),
            };
            samples.stage(Chunked::default()).prefetch(CHUNKS_PER_STREAM).unbatched()
        });
        let map = Arc::clone(map);
        let items = round_robin(streams)
            .longest()
            .stage(Chunked::default())
            .par_map(*threads, move |chunk: Batch<Sample>| {
                Ok(chunk.into_iter().map(|sample| mapped(&*map, sample)).collect::<Vec<_>>())
            })
            .ahead(threads.saturating_mul(CHUNKS_PER_THREAD).max(1))
            .flat_map(|chunk| chunk.unwrap_or_else(|error| vec![Err(error)]));
        let batches = (Box::new(items) as Items<T>).batched(loader.batch);
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
