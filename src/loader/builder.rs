//! What happens to the samples before they are batched.

use super::{Last, Loader};
use crate::adapters::Partial;
use crate::codec::Decoder;
use crate::dataset::Dataset;
use crate::error::Result;
use crate::sample::Sample;
use std::fmt;
use std::sync::Arc;
use std::thread;

/// What the threads make of each sample.
pub(super) type Map<T> = Arc<dyn Fn(Sample) -> Result<T> + Send + Sync>;

/// What a [`Loader`] does with samples before it batches them; `T` is what becomes of each sample.
#[must_use = "a builder does nothing until `batch` makes a loader of it"]
pub struct LoaderBuilder<T> {
    pub(super) dataset: Dataset,
    pub(super) shuffle: usize,
    pub(super) shuffle_bytes: usize,
    pub(super) threads: usize,
    pub(super) map: Map<T>,
}

impl LoaderBuilder<Sample> {
    pub(super) fn new(dataset: Dataset) -> Self {
        let threads = thread::available_parallelism().map_or(1, usize::from);
        LoaderBuilder { dataset, shuffle: 0, shuffle_bytes: usize::MAX, threads, map: Arc::new(Ok) }
    }

    /// Decodes the fields on the threads: short for a [`map`](LoaderBuilder::map) with the decoder.
    pub fn decode(self, decoder: Decoder) -> Self {
        self.map(move |sample| decoder.decode(sample))
    }
}

impl<T: Send + 'static> LoaderBuilder<T> {
    /// Shuffles the samples of each stream in a buffer of `samples`, with random numbers of the dataset's seed, the
    /// epoch and the stream. Default: 0, which is no shuffle.
    pub fn shuffle(mut self, samples: usize) -> Self {
        self.shuffle = samples;
        self
    }

    /// Bounds the bytes in the shuffle buffer of each stream. Default: no bound.
    pub fn shuffle_bytes(mut self, bytes: usize) -> Self {
        self.shuffle_bytes = bytes;
        self
    }

    /// The number of threads that map, at least 1. Default: one for each core that the process may use. Each stream
    /// is read on a thread beside them, which mostly waits.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// Makes of each item another one, on the threads: decoding, augmenting, picking fields. Maps add up.
    ///
    /// Take random numbers from [`Sample::rng`], so that they don't depend on threads.
    pub fn map<U: Send + 'static>(
        self,
        f: impl Fn(T) -> Result<U> + Send + Sync + 'static,
    ) -> LoaderBuilder<U> {
        let LoaderBuilder { dataset, shuffle, shuffle_bytes, threads, map } = self;
        LoaderBuilder {
            dataset,
            shuffle,
            shuffle_bytes,
            threads,
            map: Arc::new(move |sample| f(map(sample)?)),
        }
    }

    /// A loader that puts `size` items at a time into a batch.
    #[must_use]
    pub fn batch(self, size: usize) -> Loader<T> {
        Loader { items: self, batch: size, last: Last::Partial(Partial::Keep), prefetch: 2 }
    }
}

impl<T> LoaderBuilder<T> {
    pub(super) fn dataset(&self) -> &Dataset {
        &self.dataset
    }
}

impl<T> Clone for LoaderBuilder<T> {
    fn clone(&self) -> Self {
        LoaderBuilder { dataset: self.dataset.clone(), map: Arc::clone(&self.map), ..*self }
    }
}

impl<T> fmt::Debug for LoaderBuilder<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoaderBuilder")
            .field("dataset", &self.dataset)
            .field("shuffle", &self.shuffle)
            .field("shuffle_bytes", &self.shuffle_bytes)
            .field("threads", &self.threads)
            .finish_non_exhaustive()
    }
}
