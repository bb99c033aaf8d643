//! `Pipeline`: an iterator or a stream of results that has the stages of a loader as methods.

use super::{Mix, Stage, Staged};
use crate::Result;
use crate::rng::{Purpose, Rng};
use futures::Stream;
use futures::stream::FusedStream;
use pin_project_lite::pin_project;
use std::fmt;
use std::iter::FusedIterator;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};

pin_project! {
    /// A source of [`Result`]s with stages: an [`Iterator`] if the source is an iterator, a [`Stream`] if it
    /// is a stream.
    ///
    /// Its methods are the stages of a [`LoaderBuilder`](crate::loader::LoaderBuilder), with the same names,
    /// arguments and results. Unlike a loader, a pipeline works on the caller's thread, and has no state to
    /// resume from. [`Dataset::samples`](crate::Dataset::samples) and
    /// [`Dataset::stream`](crate::Dataset::stream) return a pipeline. [`IteratorExt::pipeline`] and
    /// [`StreamExt::pipeline`] make a pipeline from any other source.
    ///
    /// ```
    /// use shardstream::prelude::*;
    ///
    /// let dataset = Dataset::builder("docs/data/digits-000000.tar").build()?;
    /// let batches = dataset
    ///     .samples(0)
    ///     .filter(|sample| sample.key() != "000003")
    ///     .shuffle(100)
    ///     .decode(Decoder::new())
    ///     .map(|mut sample| sample.take::<i64>("cls"))
    ///     .batch(2);
    /// let batches: Vec<_> = batches.collect::<shardstream::Result<_>>()?;
    ///
    /// let loader = Loader::builder(dataset)
    ///     .filter(|sample| sample.key() != "000003")
    ///     .shuffle(100)
    ///     .decode(Decoder::new())
    ///     .map(|mut sample| sample.take::<i64>("cls"))
    ///     .batch(2);
    /// assert_eq!(batches, loader.build()?.epoch(0).collect::<shardstream::Result<Vec<_>>>()?);
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    ///
    /// # Methods of `Iterator`
    ///
    /// `map`, `filter`, `filter_map` and `flat_map` of a pipeline take functions of the item, not of the
    /// `Result`. They hide the methods of [`Iterator`] and of `futures` with the same names: to use the
    /// hidden methods, call [`results`](Pipeline::results) first. All other methods of [`Iterator`] and of
    /// `futures` can be used as usual.
    ///
    /// # Errors
    ///
    /// An error passes through all stages immediately, ahead of the items that wait in a buffer or a batch.
    /// The iteration continues after it.
    #[must_use = "stages are lazy: they do nothing unless they are iterated over or polled"]
    pub struct Pipeline<S, T> {
        #[pin]
        source: S,
        seed: ShuffleSeed,
        // The weight of the pipeline in a mix.
        weight: u32,
        items: PhantomData<fn() -> T>,
    }
}

/// What the random numbers of the next shuffle depend on.
#[derive(Debug, Clone, Copy, Default)]
struct ShuffleSeed {
    dataset: u64,
    seed: u64,
    epoch: u64,
    stream: u64,
    /// Number of earlier shuffles.
    number: u64,
}

impl<S, T> Pipeline<S, T> {
    pub(crate) fn new(source: S) -> Self {
        Pipeline { source, seed: ShuffleSeed::default(), weight: 1, items: PhantomData }
    }

    /// Sets the seed of [`shuffle`](Pipeline::shuffle). The random numbers are the same as in the shuffle
    /// buffer of a [`Loader`](crate::Loader) whose dataset has this seed, in this epoch and logical stream.
    /// Default: 0, 0, 0; for a pipeline from a [`Dataset`](crate::Dataset), the dataset's seed, the epoch and
    /// the stream.
    ///
    /// ```
    /// use shardstream::adapters::IteratorExt;
    ///
    /// let shuffled = |epoch| (0..100).map(Ok).pipeline().seed(42, epoch, 0).shuffle(100);
    /// let order = |epoch| shuffled(epoch).collect::<shardstream::Result<Vec<u32>>>();
    /// assert_eq!(order(0)?, order(0)?);
    /// assert_ne!(order(0)?, order(1)?);
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    pub fn seed(self, seed: u64, epoch: u64, stream: u64) -> Self {
        Pipeline { seed: ShuffleSeed { seed, epoch, stream, ..self.seed }, ..self }
    }

    /// Sets the number of the pipeline's dataset in a mix. The random numbers of its shuffles depend on it.
    pub(crate) fn of_dataset(self, dataset: u64) -> Self {
        Pipeline { seed: ShuffleSeed { dataset, ..self.seed }, ..self }
    }

    /// The seed of the dataset, for random numbers that depend on the seed alone.
    pub(super) fn dataset_seed(&self) -> u64 {
        self.seed.seed
    }

    /// The random numbers of the next shuffle. Each shuffle of a pipeline has different random numbers.
    pub(super) fn next_rng(&mut self) -> Rng {
        let ShuffleSeed { dataset, seed, epoch, stream, number } = self.seed;
        self.seed.number += 1;
        let seed = seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Rng::of_dataset(dataset, Purpose::Shuffle, seed, epoch, stream)
    }

    /// Sets this pipeline's relative weight in a [mix](Pipeline::mix). If a pipeline of weight 3 is mixed
    /// with a pipeline of weight 1, three of four items are from the first pipeline. Default: 1.
    pub fn weight(self, weight: u32) -> Self {
        Pipeline { weight, ..self }
    }

    /// Returns the pipeline's source, an iterator or a stream of [`Result`]s, to use methods of the standard
    /// library and of `futures`.
    ///
    /// ```
    /// use shardstream::adapters::IteratorExt;
    ///
    /// let items = ["1", "2", "x"].into_iter().map(Ok).pipeline();
    /// let numbers = items.map(|text| text.parse::<u32>().map_err(shardstream::Error::step));
    /// assert_eq!(numbers.results().filter_map(Result::ok).sum::<u32>(), 3);
    /// ```
    pub fn results(self) -> S {
        self.source
    }

    /// Appends a stage.
    pub(super) fn then<C: Stage<T>>(self, stage: C) -> Pipeline<Staged<S, C>, C::Out> {
        self.over(|source| Staged::new(source, stage))
    }

    /// Returns a pipeline that borrows the source. Each call increments the epoch of the seed, so that the
    /// pipelines of different calls shuffle differently.
    pub(super) fn by_mut(&mut self) -> Pipeline<&mut S, T> {
        let seed = self.seed;
        self.seed.epoch = seed.epoch.wrapping_add(1);
        Pipeline { source: &mut self.source, seed, weight: self.weight, items: PhantomData }
    }

    pub(super) fn source_mut(&mut self) -> &mut S {
        &mut self.source
    }

    /// Converts the source.
    pub(super) fn over<R, U>(self, change: impl FnOnce(S) -> R) -> Pipeline<R, U> {
        Pipeline { source: change(self.source), seed: self.seed, weight: self.weight, items: PhantomData }
    }
}

impl Pipeline<(), ()> {
    /// Mixes pipelines item by item. Each pipeline has its own stages and [weight](Pipeline::weight).
    ///
    /// The order is the same as in one stream of [`Loader::mix`](crate::Loader::mix) with the
    /// [seed](Pipeline::seed) of the first pipeline. The order consists of windows: a window has as many
    /// items as the sum of the weights, and exactly `weight` items from each pipeline. When a pipeline has
    /// ended, the other pipelines take its turns, until all pipelines have ended. Unlike in a loader, an
    /// error is counted as an item.
    ///
    /// All pipelines must have the same type. Otherwise, box their sources: `let web = web.results()` returns
    /// the source of a pipeline, and `(Box::new(web) as Box<dyn Iterator<Item = _>>).pipeline()` makes a
    /// pipeline of the boxed source.
    ///
    /// ```
    /// use shardstream::adapters::{IteratorExt, Pipeline};
    ///
    /// let source = |name| std::iter::repeat_n(name, 30).map(Ok).pipeline();
    /// let mixed = Pipeline::mix([source("web").weight(3), source("books")]);
    /// for batch in mixed.batch(4).slice(..9) {
    ///     assert_eq!(batch?.iter().filter(|name| **name == "books").count(), 1);
    /// }
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    #[doc(alias = "RandomMix")]
    pub fn mix<S, T>(
        pipelines: impl IntoIterator<Item = Pipeline<S, T>>,
    ) -> Pipeline<Staged<Mix<S>, impl Stage<T, Out = T> + fmt::Debug>, T> {
        let mut seed = None;
        let weighted = pipelines.into_iter().map(|pipeline| {
            seed.get_or_insert(pipeline.seed);
            (pipeline.source, pipeline.weight)
        });
        let weighted: Vec<(S, u32)> = weighted.collect();
        let seed: ShuffleSeed = seed.unwrap_or_default();
        let (mix, checked) = Mix::of_pipelines(weighted, seed.seed, seed.stream);
        Pipeline { source: Staged::new(mix, checked), seed, weight: 1, items: PhantomData }
    }
}

impl<S, C, T> Pipeline<Staged<S, C>, T> {
    /// Changes the last stage, to set an option of it.
    pub(super) fn with(self, change: impl FnOnce(&mut C)) -> Self {
        self.over(|staged| staged.with(change))
    }
}

impl<S: Iterator, T> Iterator for Pipeline<S, T> {
    type Item = S::Item;

    fn next(&mut self) -> Option<S::Item> {
        self.source.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.source.size_hint()
    }
}

impl<S: FusedIterator, T> FusedIterator for Pipeline<S, T> {}

impl<S: Stream, T> Stream for Pipeline<S, T> {
    type Item = S::Item;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<S::Item>> {
        self.project().source.poll_next(context)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.source.size_hint()
    }
}

impl<S: FusedStream, T> FusedStream for Pipeline<S, T> {
    fn is_terminated(&self) -> bool {
        self.source.is_terminated()
    }
}

impl<S: fmt::Debug, T> fmt::Debug for Pipeline<S, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pipeline").field(&self.source).finish()
    }
}

/// Makes a [`Pipeline`] from any iterator of [`Result`]s.
///
/// ```
/// use shardstream::adapters::IteratorExt;
///
/// let squares = [1, 2, 3].into_iter().map(Ok).pipeline().map(|n| Ok(n * n));
/// assert_eq!(squares.collect::<shardstream::Result<Vec<_>>>()?, [1, 4, 9]);
/// # Ok::<(), shardstream::Error>(())
/// ```
pub trait IteratorExt: Iterator + Sized {
    /// A pipeline of these items.
    fn pipeline<T>(self) -> Pipeline<Self, T>
    where
        Self: Iterator<Item = Result<T>>,
    {
        Pipeline::new(self)
    }
}

impl<I: Iterator> IteratorExt for I {}

/// Makes a [`Pipeline`] from any stream of [`Result`]s. The pipeline has the same results as a pipeline from
/// an iterator.
///
/// `futures::StreamExt` has the same name but no method in common. To use both traits, import this trait with
/// `use shardstream::adapters::StreamExt as _`.
///
/// ```
/// use futures::{StreamExt as _, TryStreamExt as _, executor::block_on, stream};
/// use shardstream::adapters::StreamExt as _;
///
/// let batches = stream::iter(0..10).map(Ok).pipeline().filter(|n| n % 2 == 0).batch(3);
/// let batches: Vec<_> = block_on(batches.try_collect())?;
/// assert_eq!(*batches[1], [6, 8]);
/// # Ok::<(), shardstream::Error>(())
/// ```
pub trait StreamExt: Stream + Sized {
    /// A pipeline of these items.
    fn pipeline<T>(self) -> Pipeline<Self, T>
    where
        Self: Stream<Item = Result<T>>,
    {
        Pipeline::new(self)
    }
}

impl<S: Stream> StreamExt for S {}
