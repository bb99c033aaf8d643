//! What happens to the samples before they are batched.

use super::Loader;
use super::collect::Last;
use super::make::Make;
use crate::adapters::Partial;
use crate::codec::Decoder;
use crate::collate::Seat;
use crate::dataset::Dataset;
use crate::error::Result;
use crate::sample::Sample;
use std::fmt;
use std::sync::Arc;
use std::thread;

/// What the threads make of each sample, in its place of a batch of tensors. Items have none.
pub(super) type Map<T> = Arc<dyn Fn(Sample, Seat) -> Result<T> + Send + Sync>;

/// One core in so many is left to the trainer.
const CORES_FOR_TRAINER: usize = 8;

/// What is done with the samples of one dataset.
pub(super) struct Recipe<T> {
    pub(super) dataset: Dataset,
    pub(super) shuffle: usize,
    pub(super) shuffle_bytes: usize,
    pub(super) map: Map<T>,
    /// Its turns, where datasets are mixed.
    pub(super) weight: u32,
    /// How many of its epochs are one of the mix.
    pub(super) repeats: u64,
}

/// What a [`Loader`] does with samples before it batches them; `T` is what becomes of each sample.
#[must_use = "a builder does nothing until `batch` makes a loader of it"]
pub struct LoaderBuilder<T> {
    pub(super) recipes: Vec<Recipe<T>>,
    pub(super) threads: usize,
}

impl LoaderBuilder<Sample> {
    pub(super) fn new(dataset: Dataset) -> Self {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let threads = cores - cores / CORES_FOR_TRAINER;
        let map = Arc::new(|sample, _| Ok(sample));
        let recipe = Recipe { dataset, shuffle: 0, shuffle_bytes: usize::MAX, map, weight: 1, repeats: 1 };
        LoaderBuilder { recipes: vec![recipe], threads }
    }

    /// Decodes the fields on the threads: short for a [`map`](LoaderBuilder::map) with the decoder.
    pub fn decode(self, decoder: Decoder) -> Self {
        self.map(move |sample| decoder.decode(sample))
    }
}

/// Options; of a [mix](Loader::mix), those for each sample are set for all datasets in it.
impl<T: Send + 'static> LoaderBuilder<T> {
    pub(super) fn mixed(builders: impl IntoIterator<Item = LoaderBuilder<T>>) -> Self {
        let mut mixed = LoaderBuilder { recipes: Vec::new(), threads: 0 };
        for builder in builders {
            mixed.recipes.extend(builder.recipes);
            mixed.threads = mixed.threads.max(builder.threads);
        }
        mixed
    }

    /// Shuffles the samples of each stream in a buffer of `samples`, with random numbers of the dataset's
    /// seed, the epoch and the stream. Default: 0, which is no shuffle.
    pub fn shuffle(self, samples: usize) -> Self {
        self.each(|recipe| recipe.shuffle = samples)
    }

    /// Bounds the bytes in the shuffle buffer of each stream. Default: no bound.
    ///
    /// The order depends on the sizes of the samples then, and a loader that is
    /// [restored](Loader::restore) reads the epoch again from its beginning to find them out.
    pub fn shuffle_bytes(self, bytes: usize) -> Self {
        self.each(|recipe| recipe.shuffle_bytes = bytes)
    }

    /// How many of so many samples a [mix](Loader::mix) takes from this dataset: of `weight(3)` beside
    /// `weight(1)`, three in four. Default: 1.
    pub fn weight(self, weight: u32) -> Self {
        self.each(|recipe| recipe.weight = weight)
    }

    /// How many epochs of this dataset make one epoch, of a [mix](Loader::mix) in which a small dataset is to
    /// be seen more often, say. Default: 1. Where epochs go on [without an end](Loader::epochs), it has no
    /// meaning.
    pub fn repeats(self, epochs: u64) -> Self {
        self.each(|recipe| recipe.repeats = epochs)
    }

    /// The number of threads that map. Default: one for each core that the process may use, less one in
    /// eight, which are left to the trainer. Each stream is read on a thread beside them, which mostly waits.
    /// With 0 there is no thread at all, and nothing happens ahead of [`next`](Iterator::next): for
    /// debugging, the batches are the same.
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
        let f = Arc::new(f);
        let recipes = self.recipes.into_iter().map(|recipe| {
            let Recipe { dataset, shuffle, shuffle_bytes, map, weight, repeats } = recipe;
            let f = Arc::clone(&f);
            let map: Map<U> = Arc::new(move |sample, seat| f(map(sample, seat)?));
            Recipe { dataset, shuffle, shuffle_bytes, map, weight, repeats }
        });
        LoaderBuilder { recipes: recipes.collect(), threads: self.threads }
    }

    /// A loader that puts `size` items at a time into a batch.
    #[must_use]
    pub fn batch(self, size: usize) -> Loader<T> {
        Loader {
            items: self,
            batch: size,
            last: Last::Partial(Partial::Keep),
            prefetch: 2,
            make: Make::items(),
        }
    }

    fn each(mut self, option: impl Fn(&mut Recipe<T>)) -> Self {
        self.recipes.iter_mut().for_each(option);
        self
    }
}

impl<T> Clone for Recipe<T> {
    fn clone(&self) -> Self {
        Recipe { dataset: self.dataset.clone(), map: Arc::clone(&self.map), ..*self }
    }
}

impl<T> Clone for LoaderBuilder<T> {
    fn clone(&self) -> Self {
        LoaderBuilder { recipes: self.recipes.clone(), threads: self.threads }
    }
}

impl<T> fmt::Debug for Recipe<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recipe")
            .field("dataset", &self.dataset)
            .field("shuffle", &self.shuffle)
            .field("shuffle_bytes", &self.shuffle_bytes)
            .field("weight", &self.weight)
            .field("repeats", &self.repeats)
            .finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for LoaderBuilder<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoaderBuilder")
            .field("recipes", &self.recipes)
            .field("threads", &self.threads)
            .finish_non_exhaustive()
    }
}
