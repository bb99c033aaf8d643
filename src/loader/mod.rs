//! The runtime that drives a dataset through the stages on threads, into batches.

mod batches;
mod builder;
mod chunks;

pub use batches::{Batches, BatchesStream};
pub use builder::LoaderBuilder;

use crate::adapters::{Batch, Partial};
use crate::dataset::Dataset;
use crate::error::Result;
use crate::sample::Sample;
use batches::Batching;
use std::fmt;

/// Reads, shuffles, maps and batches a dataset on threads, in an order that does not depend on them.
///
/// ```text
/// stream 0 ─ read ─ shuffle ─┐
/// stream 1 ─ read ─ shuffle ─┼─ one of each in turn ─ map ─ batch ─► next()
/// stream 2 ─ read ─ shuffle ─┘                       threads  a thread, ahead
/// ```
///
/// Each logical stream of the dataset is read, parsed and shuffled on a thread of its own; `threads` more do the map
/// (decode, augment); the batches are collected on one more, ahead of the trainer. Every queue between them is bounded:
/// beyond the shuffle buffers and the batches ahead, some 4 chunks for each stream and 3 for each thread are on their
/// way, where a chunk is up to 128 samples, and fewer when they are large (512 KiB).
/// The batches of an epoch depend on the dataset, the seed, the epoch and the options, never on the number of
/// threads or on what arrives first.
///
/// An epoch is an [`Iterator`] ([`epoch`](Loader::epoch)) or a [`Stream`](futures::Stream)
/// ([`Batches::into_stream`]). Dropping it stops and joins all threads, also those that wait for the network; what is
/// waited for is the map of one sample on each thread.
///
/// An error comes out when it would be its turn, ahead of the samples that wait in the shuffle buffer of its stream or in
/// the batch that is being filled, and iteration can go on after it. A panic of the map is the
/// [`ErrorKind::Panicked`](crate::ErrorKind::Panicked) of that one sample.
///
/// Nothing here makes the ranks of a job take the same number of steps: where their shards differ in size, so does the
/// number of batches in an epoch. Take the same number from [`epochs`](Loader::epochs) on all of them.
///
/// ```
/// use shardstream::prelude::*;
///
/// # fn main() -> shardstream::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let pattern = format!("{}/train-%06d.tar", dir.path().display());
/// # let mut writer = ShardWriter::builder(&pattern).max_count(10).build()?;
/// # for i in 0..40 { writer.write(&Sample::new(format!("{i:06}")).with("cls", i))?; }
/// # writer.finish()?;
/// # let shards = pattern.replace("%06d", "{000000..000003}");
/// let dataset = Dataset::builder(shards).streams(4).shuffle_shards(true).seed(42).build()?;
/// let decoder = Decoder::new();
/// let loader = Loader::builder(dataset)
///     .shuffle(1000)
///     .threads(2)
///     .map(move |sample| decoder.decode(sample)?.take::<i64>("cls"))
///     .batch(8);
/// for epoch in 0..2 {
///     for batch in loader.epoch(epoch) {
///         assert_eq!(batch?.len(), 8);
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Loader<T> {
    items: LoaderBuilder<T>,
    batch: usize,
    last: Last<T>,
    prefetch: usize,
}

/// What becomes of the last items of an epoch when they don't fill a batch.
enum Last<T> {
    Partial(Partial),
    /// They are padded, by the function that does it where items can be cloned.
    Pad(fn(Batching<T>) -> Batching<T>),
}

impl Loader<Sample> {
    /// Begins a loader of `dataset`: [`LoaderBuilder::batch`] makes it one.
    pub fn builder(dataset: Dataset) -> LoaderBuilder<Sample> {
        LoaderBuilder::new(dataset)
    }
}

/// Options. One that makes no sense, as batches of 0 items, is an error that comes out as the first and only batch.
impl<T: Send + 'static> Loader<T> {
    /// What becomes of the last items of an epoch when they don't fill a batch. Default: they make a smaller one.
    #[must_use]
    pub fn partial(mut self, partial: Partial) -> Self {
        self.last = Last::Partial(partial);
        self
    }

    /// Fills the last batch of an epoch up with clones of its last item; [`Batch::valid`] says how many are real.
    #[must_use]
    pub fn pad(mut self) -> Self
    where
        T: Clone,
    {
        self.last = Last::Pad(Batching::pad);
        self
    }

    /// How many batches are prepared ahead of the one that is asked for, at least 1. Default: 2.
    #[must_use]
    pub fn prefetch(mut self, batches: usize) -> Self {
        self.prefetch = batches;
        self
    }
}

/// Reading.
impl<T: Send + 'static> Loader<T> {
    /// The batches of one epoch. Nothing is read before the first one is asked for.
    pub fn epoch(&self, epoch: u64) -> Batches<T> {
        Batches::new(self, epoch)
    }

    /// The batches of all epochs from `first` on, one epoch after the other, without an end: for training by the number
    /// of steps. See [`with_epoch`](crate::adapters::IteratorExt::with_epoch) for epochs of a fixed length.
    ///
    /// It ends after an epoch without a single batch, be it for errors or because no sample is left, rather than going
    /// on for ever with nothing.
    pub fn epochs(&self, first: u64) -> impl Iterator<Item = Result<Batch<T>>> + Send + use<T> {
        let loader = self.clone();
        let mut next = first;
        let mut current = loader.epoch(next);
        let mut empty = true;
        std::iter::from_fn(move || {
            loop {
                if let Some(batch) = current.next() {
                    empty &= batch.is_err();
                    return Some(batch);
                }
                if std::mem::replace(&mut empty, true) {
                    return None;
                }
                next = next.checked_add(1)?;
                current = loader.epoch(next);
            }
        })
    }
}

impl<T> Loader<T> {
    /// The dataset that is read.
    #[must_use]
    pub fn dataset(&self) -> &Dataset {
        self.items.dataset()
    }
}

impl<T> Clone for Loader<T> {
    fn clone(&self) -> Self {
        Loader { items: self.items.clone(), batch: self.batch, last: self.last, prefetch: self.prefetch }
    }
}

impl<T> Clone for Last<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Last<T> {}

impl<T> fmt::Debug for Last<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Last::Partial(partial) => partial.fmt(f),
            Last::Pad(_) => f.write_str("Pad"),
        }
    }
}
