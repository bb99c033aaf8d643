//! The runtime that drives datasets through the stages on threads, into batches.
//!
//! ```text
//! source    one stream of one dataset: its epochs, read and shuffled      refill: begun in the middle
//! lane      one stream of all datasets that are mixed
//! deal      the places of the sequence in turn, and where batches end
//! collect   batches, each with the state as of its last item
//! batches   all of it on threads, in chunks
//! run       the options, checked, and the streams begun
//! ```

mod batches;
mod builder;
mod chunks;
mod collect;
mod deal;
mod event;
mod lane;
mod make;
mod memory;
mod refill;
mod report;
mod run;
mod source;
mod steps;

pub use batches::{Batches, BatchesStream};
pub use builder::LoaderBuilder;
pub use make::Batched;
pub use report::Report;

use crate::adapters::{Batch, Partial};
use crate::collate::{Columns, Row, Seat, TensorBatch};
use crate::dataset::Dataset;
use crate::error::{ErrorKind, Result};
use crate::sample::Sample;
use crate::state::{Run, State, misfit};
use builder::{Map, Recipe};
use collect::Last;
use make::Make;
use source::Source;
use std::fmt;
use std::sync::Arc;

/// Reads, shuffles, maps and batches a dataset on threads, in an order that does not depend on them.
///
/// ```text
/// stream 0 ─ read ─ shuffle ─┐
/// stream 1 ─ read ─ shuffle ─┼─ one of each in turn ─ map ─ batch ─► next()
/// stream 2 ─ read ─ shuffle ─┘                       threads  a thread, ahead
/// ```
///
/// Each logical stream of the dataset is read, parsed and shuffled on a thread of its own; `threads` more do
/// the map (decode, augment); the batches are collected on one more, ahead of the trainer. Every queue
/// between them is bounded: beyond the shuffle buffers and the batches ahead, some 4 chunks for each stream
/// and 3 for each thread are on their way, where a chunk is up to 128 samples, and fewer when they are large
/// (512 KiB). All loaders of a process together have a quarter of the [`Budget`](crate::store::Budget) for
/// them: 64 MiB unless set. Beyond that there are 2 chunks for each stream and thread, of a sample or up to
/// 64 KiB. The batches of an epoch depend on the dataset, the seed, the epoch and the options, never on the
/// number of threads or on what arrives first.
///
/// An epoch is an [`Iterator`] ([`epoch`](Loader::epoch)) or a [`Stream`](futures::Stream)
/// ([`Batches::into_stream`]). Dropping it stops and joins all threads, also those that wait for the network;
/// what is waited for is the map of one sample on each thread.
///
/// An error comes out when it would be its turn, ahead of the samples that wait in the shuffle buffer of its
/// stream or in the batch that is being filled, and iteration can go on after it. A panic of the map is the
/// [`ErrorKind::Panicked`] of that one sample.
///
/// # The sequence of a job
///
/// All ranks together consume one sequence, whatever their number: its place `g` belongs to stream `g %
/// streams`, and is that stream's next sample. Batch `k` of `n` items on each of `W` ranks is the places from
/// `k * n * W` on, so that a global batch holds the same samples on any number of ranks. A stream that has
/// come to its end leaves its places empty, and does not move the others up: at the end of an epoch batches
/// may have fewer items.
///
/// [`partial`](Loader::partial), [`pad`](Loader::pad) and [`repeat`](Loader::repeat) say what becomes of
/// empty places. Where the datasets have an index, all ranks get the same number of batches with
/// [`Partial::Drop`], `pad` and `repeat`. Without one a rank does not know how long the streams of the others
/// are: then take the same number of batches on all of them from [`epochs`](Loader::epochs), where streams do
/// not end.
///
/// # Errors and the size of batches
///
/// A sample that could not be mapped keeps its place, without an item: its error comes first, and its batch
/// has one item fewer, or none at all if all of its samples failed. A sample that could not be read has no
/// place, and the next one of its stream moves up, so that the stream is shorter, and ends earlier than an
/// index says. No other sample takes the place of either, whatever is said of the last batches: **only `pad`
/// gives batches that always have the same number of items**. With anything else, check the length of each
/// batch where a short batch would do harm.
///
/// # Going on after a stop
///
/// Every batch carries a [`State`]; [`restore`](Loader::restore) gives the rest, byte for byte, on the same
/// or on another number of ranks. What shuffle buffers held is found out from the seed, and read again: with
/// an index by ranges, without one from the beginning of the shards that were open, and of compressed shards
/// in any case.
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
pub struct Loader<T, B = Batch<T>> {
    items: LoaderBuilder<T>,
    batch: usize,
    last: Last<T>,
    prefetch: usize,
    make: Make<T, B>,
}

impl Loader<Sample> {
    /// Begins a loader of `dataset`: [`LoaderBuilder::batch`] makes it one.
    pub fn builder(dataset: Dataset) -> LoaderBuilder<Sample> {
        LoaderBuilder::new(dataset)
    }
}

impl Loader<Sample> {
    /// Makes tensors of the batches: the threads that map write each sample straight into its slots of the
    /// batch's [`columns`](Columns).
    ///
    /// A batch that is short for an error is copied once, so that its rows are adjacent. Batches that are
    /// dropped give their memory to those that come; some `prefetch` and those in the making are under way at
    /// a time.
    pub fn collate(self, columns: Columns) -> Loader<Row, TensorBatch> {
        let make = Make::tensors(columns, self.batch);
        let recipes = self.items.recipes.into_iter().enumerate().map(|(number, recipe)| {
            let Recipe { dataset, shuffle, shuffle_bytes, map, weight, repeats } = recipe;
            // Datasets of the same seed must not be augmented alike.
            let seed = dataset.seed() ^ (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let collator = make.collator.clone();
            let map: Map<Row> = Arc::new(move |sample: Sample, seat| {
                let position = sample.position();
                let sample = map(sample, Seat::new())?.or_at(position);
                match &collator {
                    Some(collator) => collator.row(&sample, seed, seat),
                    None => Err(ErrorKind::Config("tensors without columns".into()).into()),
                }
            });
            Recipe { dataset, shuffle, shuffle_bytes, map, weight, repeats }
        });
        let items = LoaderBuilder { recipes: recipes.collect(), threads: self.items.threads };
        let last = match self.last {
            Last::Partial(partial) => Last::Partial(partial),
            Last::Pad(_) => Last::Pad(Row::clone),
            Last::Repeat => Last::Repeat,
        };
        Loader { items, batch: self.batch, last, prefetch: self.prefetch, make }
    }
}

impl<T: Send + 'static> Loader<T> {
    /// Begins a loader of several datasets, each with its own map, [weight](LoaderBuilder::weight) and number
    /// of [epochs](LoaderBuilder::repeats), mixed sample by sample.
    ///
    /// Their weights hold exactly: of as many samples of a stream as the sum of the weights, each dataset
    /// gives as many as its weight, in an order that depends on the seed of the first dataset. Each goes
    /// through its own epochs. When one has come to its end, its turns go to the next one.
    ///
    /// They must have the same number of streams, and be read by the same ranks.
    ///
    /// ```
    /// use shardstream::prelude::*;
    ///
    /// # fn main() -> shardstream::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let write = |name: &str, count: u32| -> shardstream::Result<String> {
    /// #     let pattern = format!("{}/{name}-%d.tar", dir.path().display());
    /// #     let mut writer = ShardWriter::builder(&pattern).max_count(8).build()?;
    /// #     for i in 0..count { writer.write(&Sample::new(format!("{name}{i}")).with("cls", i))?; }
    /// #     Ok(pattern.replace("%d", &format!("{{0..{}}}", writer.finish()?.len() - 1)))
    /// # };
    /// # let (web, books) = (write("web", 24)?, write("books", 8)?);
    /// let dataset = |shards| Dataset::builder(shards).streams(1).shuffle_shards(true).build();
    /// let web = Loader::builder(dataset(&web)?).shuffle(100).weight(3);
    /// let books = Loader::builder(dataset(&books)?).shuffle(100);
    /// let loader = Loader::mix([web, books]).map(|sample| Ok(sample.key().to_owned())).batch(4);
    /// for batch in loader.epochs(0).take(20) {
    ///     assert_eq!(batch?.iter().filter(|key| key.starts_with("books")).count(), 1);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn mix(loaders: impl IntoIterator<Item = LoaderBuilder<T>>) -> LoaderBuilder<T> {
        LoaderBuilder::mixed(loaders)
    }
}

/// Options. One that makes no sense, as batches of 0 items, is an error that comes out as the first and only
/// batch.
impl<T: Send + 'static, B> Loader<T, B> {
    /// What becomes of the last batches of an epoch when they have empty places. Default: they are smaller,
    /// and one that would have no place with an item is left out.
    ///
    /// With [`Partial::Drop`] the last batches, which would have empty places, are left out. Where the
    /// datasets have an index, the epoch ends before the first place that is empty by the index, which leaves
    /// out less than a batch, on all ranks after the same step. Without one, batches reach over empty places,
    /// and every rank leaves out less than a batch of its own samples: after the first stream has ended, the
    /// batches of ranks are no longer runs of the one sequence, and their number may differ. A batch with a
    /// sample that failed is short all the same, and is not left out: see
    /// [errors](Loader#errors-and-the-size-of-batches).
    #[must_use]
    pub fn partial(mut self, partial: Partial) -> Self {
        self.last = Last::Partial(partial);
        self
    }

    /// Fills batches up with clones of their last item, or where they have none with the first of the epoch;
    /// [`Batch::valid`](crate::adapters::Batch::valid) says how many are real. So does a batch that is short
    /// for an error.
    #[must_use]
    pub fn pad(mut self) -> Self
    where
        T: Clone,
    {
        self.last = Last::Pad(T::clone);
        self
    }

    /// Fills the last batch of an epoch up with samples from its beginning, so that all ranks get as many
    /// places. It takes a single dataset, with an index. It does not replace samples that
    /// [fail](Loader#errors-and-the-size-of-batches).
    #[must_use]
    pub fn repeat(mut self) -> Self {
        self.last = Last::Repeat;
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
impl<T: Send + 'static, B: Batched> Loader<T, B> {
    /// The batches of one epoch. Nothing is read before the first one is asked for.
    pub fn epoch(&self, epoch: u64) -> Batches<T, B> {
        self.begin(self.one_epoch(epoch))
    }

    /// The batches of all epochs from `first` on, without an end: for training by the number of steps.
    ///
    /// Each stream goes into its next epoch, in a new order, as soon as it has come to its end, so that there
    /// are no empty places, and every rank gets as many batches as it takes. An epoch of a fixed number of
    /// steps, that resumes where the last one stopped, is `batches.by_ref().take(steps)`.
    ///
    /// A sample that cannot be mapped [shortens its batch](Loader#errors-and-the-size-of-batches). A shard
    /// that cannot be opened is an error, and is tried again in the next epoch. A stream that has had no
    /// sample in a hundred epochs in a row, whether there was none or none could be read, ends with
    /// [`ErrorKind::NoShards`], and leaves its places empty; when all streams have ended, so do the batches.
    pub fn epochs(&self, first: u64) -> Batches<T, B> {
        self.begin(Run::EpochsFrom(first))
    }

    /// The batches that were not consumed when `state` was taken: the rest of its epoch, or all that follow.
    ///
    /// The loader must be what it was, except for the number of ranks, threads and batches ahead, the size of
    /// batches, and the map, which nobody can compare. The state must have the streams of this rank: it is
    /// this rank's own, or the [whole](State::merge).
    ///
    /// # Errors
    /// [`ErrorKind::State`] with the difference, when the state is of other shards, another seed or another
    /// pipeline, and what [`epoch`](Loader::epoch) would give as its first item. Shards that were open and
    /// have changed since are an error of the first batch, after which there is none.
    pub fn restore(&self, state: &State) -> Result<Batches<T, B>> {
        let run = match state.header().run {
            Run::Epoch(epoch) | Run::EpochRepeated(epoch) => self.one_epoch(epoch),
            run @ Run::EpochsFrom(_) => run,
        };
        let header = self.header(run);
        if let Some(difference) = state.header().difference(&header) {
            return Err(misfit(format!(
                "{difference}; go on with what it was taken with, or begin an epoch anew"
            )));
        }
        self.check(run)?;
        self.start(header, Some(state))
    }
}

impl<T, B> Loader<T, B> {
    /// The datasets that are read.
    pub fn datasets(&self) -> impl ExactSizeIterator<Item = &Dataset> {
        self.items.recipes.iter().map(|recipe| &recipe.dataset)
    }

    /// How many batches an epoch has on this rank; none where that is not known, because a dataset has no
    /// index or is resampled.
    #[must_use]
    pub fn steps(&self) -> Option<u64> {
        let (rank, ranks) = self.reader();
        let lengths = self.lengths()?;
        let equal = lengths.equal(self.last, self.step(), 0);
        equal.or_else(|| lengths.kept((rank, ranks), self.batch as u64))
    }
}

impl<T, B> Clone for Loader<T, B> {
    fn clone(&self) -> Self {
        Loader { items: self.items.clone(), make: self.make.clone(), ..*self }
    }
}

impl<T, B> fmt::Debug for Loader<T, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loader")
            .field("items", &self.items)
            .field("batch", &self.batch)
            .field("last", &self.last)
            .field("prefetch", &self.prefetch)
            .field("collator", &self.make.collator)
            .finish()
    }
}

impl<T> fmt::Debug for Last<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Last::Partial(partial) => partial.fmt(f),
            Last::Pad(_) => f.write_str("Pad"),
            Last::Repeat => f.write_str("Repeat"),
        }
    }
}
