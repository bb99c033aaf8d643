//! Datasets: the samples of a list of shards, split among ranks and workers, in a reproducible order.

mod builder;
mod current_shard;
mod indexed_dataset;
mod opener;
mod pairing;
mod reader;
mod shard_numbers;
mod shard_set;
mod shards;
mod side;
mod side_buffer;
mod side_join;
mod side_shard;
mod slice_body;
mod slice_check;
mod slice_reader;
mod slice_samples;
mod stop_handle;
mod versions;

pub use builder::DatasetBuilder;
pub(crate) use current_shard::CurrentShard;
pub use indexed_dataset::IndexedDataset;
pub use reader::{ShardReader, ShardReaderStream};
use shard_set::ShardSet;
pub use shards::Shards;
use side::ResolvedSide;
pub use side::{Missing, Side};
pub(crate) use stop_handle::StopHandle;
pub(crate) use versions::Versions;

use crate::adapters::{Mix, Pipeline, round_robin};
use crate::error::Result;
use crate::index::ShardIndex;
use crate::plan::{Plan, Slice};
use crate::rng::{Purpose, Rng};
use crate::sample::{Position, Sample};
use crate::secret_url::SecretUrl;
use crate::shards::ShardList;
use crate::state::{DatasetHeader, Digest, ShardOrder, hash_texts};
use crate::store::Store;
use crate::topology::Topology;
use std::fmt;
use std::sync::Arc;

/// The samples of a list of shards, in an order that is a pure function of the seed and the epoch.
///
/// A dataset has a list of shards, the store in which they are opened, and the topology of this process. In
/// every epoch, the shards are split into *logical streams*: sequences of shards that are read one after the
/// other. Ranks (and the workers within a rank) read whole streams, so that the samples of a stream depend on
/// the seed, the epoch and the number of streams, but not on the number of nodes or threads.
///
/// [`samples`](Dataset::samples) is a blocking iterator and [`stream`](Dataset::stream) an asynchronous
/// stream. Both take one sample from each of this process's streams in turn. A
/// [`Loader`](crate::loader::Loader) reads the same streams on threads.
///
/// ```
/// use shardstream::prelude::*;
///
/// let shards = "docs/data/digits-{000000..000003}.tar";
/// let dataset = Dataset::builder(shards).seed(42).shuffle_shards(true).build()?;
/// let labels = dataset
///     .samples(0)
///     .decode(Decoder::new())
///     .to_tuple::<(i64,)>(["cls"])
///     .collect::<Result<Vec<_>, _>>()?;
/// assert_eq!(labels.len(), 40);
/// # Ok::<(), shardstream::Error>(())
/// ```
#[derive(Clone)]
#[doc(alias = "IterableDataset")]
#[doc(alias = "WebDataset")]
pub struct Dataset(Arc<DatasetState>);

#[derive(Clone)]
struct DatasetState {
    shards: Arc<ShardSet>,
    /// The shards that have no samples according to the index, by their numbers in the plan.
    empty: Vec<usize>,
    plan: Plan,
    /// The logical streams that this process reads.
    streams: Vec<usize>,
    topology: Topology,
    seed: u64,
    /// The dataset's number in the first mixture that it was part of. Later mixtures keep this number, which
    /// also seeds the random numbers.
    number: u64,
    /// The sides that are joined to the samples.
    sides: Vec<Arc<ResolvedSide>>,
    /// The versions of the shards that [`Dataset::read`] has read.
    versions: Versions,
}

impl Dataset {
    /// The whole list of shards, of all ranks, including shards that [`only`](DatasetBuilder::only) excludes.
    #[must_use]
    pub fn shards(&self) -> &ShardList {
        &self.0.shards.list
    }

    /// The store in which the shards are opened.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.0.shards.store
    }

    /// The seed of the order.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.0.seed
    }

    /// The same dataset, but as dataset number `number` of a mixture. The number seeds its random numbers.
    pub(crate) fn numbered(&self, number: u64) -> Dataset {
        if number == self.0.number {
            return self.clone();
        }
        let plan = self.0.plan.clone().of_dataset(number);
        Dataset(Arc::new(DatasetState { number, plan, ..DatasetState::clone(&self.0) }))
    }

    /// The random number generator of the shuffle buffer of a stream.
    pub(crate) fn shuffle_rng(&self, epoch: u64, stream: usize) -> Rng {
        Rng::of_dataset(self.0.number, Purpose::Shuffle, self.0.seed, epoch, stream as u64)
    }

    /// The plan that splits the shards into streams. The number of a shard in the plan is its number in the
    /// list. If [`only`](DatasetBuilder::only) selected shards, the number counts only the selected shards.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.0.plan
    }

    /// Number of samples of an epoch in this process. `None` if the number is not known: there is no
    /// [index](DatasetBuilder::index), shards are drawn with replacement, or samples that a
    /// [side](DatasetBuilder::join) lacks are [skipped](Missing::Skip).
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "no dataset is known to be empty")]
    pub fn len(&self) -> Option<u64> {
        if self.skips_missing() {
            return None;
        }
        self.streams().iter().map(|stream| self.0.plan.samples(*stream)).sum()
    }

    /// The expected digest of an epoch in which all ranks together read each sample exactly once. To check a
    /// run, compare the [content](Digest::content) of its digest with the content of this one.
    ///
    /// `None` if [`len`](Dataset::len) is `None`, or if a [sampler](DatasetBuilder::sampler) does not choose
    /// every sample exactly once. The call takes time proportional to the number of samples.
    #[must_use]
    pub fn digest(&self, epoch: u64) -> Option<Digest> {
        self.len().filter(|_| self.0.plan.is_complete())?;
        let mut digest = Digest::default();
        for (planned, count) in self.0.plan.counts()?.iter().enumerate() {
            let shard = self.0.shards.numbers.get(planned)? as u64;
            let index = self.indexed(planned)?;
            for sample in (0..*count).filter_map(|sample| index.position_of(sample)) {
                digest.add(digest.samples(), 0, Position { epoch, shard, sample, ..Position::default() });
            }
        }
        Some(digest)
    }

    /// The numbers of the logical streams that this process reads.
    #[must_use]
    pub fn streams(&self) -> &[usize] {
        &self.0.streams
    }

    /// Reads one logical stream of an epoch: its shards one after the other.
    ///
    /// All streams of an epoch must read the same version of a shard. If the shard is replaced during the
    /// epoch, the next stream that reads it returns [`ErrorKind::Changed`](crate::ErrorKind::Changed). The
    /// dataset remembers the versions of the last epochs between calls of `read`. Each call of
    /// [`samples`](Dataset::samples) or [`stream`](Dataset::stream), and each run of a loader, starts without
    /// remembered versions.
    pub fn read(&self, epoch: u64, stream: usize) -> ShardReader {
        self.read_together(epoch, stream, &self.0.versions)
    }

    /// Reads one logical stream of an epoch. Readers that share `versions` read the same version of a shard.
    pub(crate) fn read_together(&self, epoch: u64, stream: usize, versions: &Versions) -> ShardReader {
        let slices = self.0.plan.stream(epoch, stream);
        self.read_slices(epoch, slices, versions).after_empty(self.empty(stream))
    }

    /// The shards that this stream checks because they are empty according to the index, by their numbers in
    /// the plan. No slice contains such a shard, so without the check, a wrong index would hide its samples.
    fn empty(&self, stream: usize) -> impl Iterator<Item = usize> {
        self.0.empty.iter().copied().skip(stream).step_by(self.0.plan.streams())
    }

    /// Reads slices of shards. Each slice has its shard's number in the plan.
    pub(crate) fn read_slices(&self, epoch: u64, slices: Vec<Slice>, versions: &Versions) -> ShardReader {
        let shards = Arc::clone(&self.0.shards);
        let reader =
            ShardReader::new(shards, &self.0.sides, epoch, slices, versions).of_dataset(self.0.number);
        if self.0.plan.sampler().is_some() { reader.scattered() } else { reader }
    }

    /// A shard's number in the list and its URL. `planned` is its number in the plan.
    pub(crate) fn shard(&self, planned: usize) -> Result<(usize, &SecretUrl)> {
        self.0.shards.shard(planned)
    }

    /// The header that describes the dataset in a state. The loader adds its own options to it.
    pub(crate) fn header(&self) -> DatasetHeader {
        let plan = &self.0.plan;
        let hash = |numbers: &[u64]| hash_texts(numbers.iter().map(u64::to_string));
        let sampler = plan.sampler().map(|sampler| sampler.fingerprint(hash));
        let order = if sampler.is_some() {
            ShardOrder::Sampled
        } else if plan.is_resampled() {
            ShardOrder::Resampled
        } else if plan.is_kept() {
            ShardOrder::Kept
        } else if plan.is_shuffled() {
            ShardOrder::Shuffled
        } else {
            ShardOrder::Listed
        };
        DatasetHeader {
            seed: self.0.seed,
            number: self.0.number,
            shards: plan.shards(),
            names: self.0.shards.names,
            index: self.0.shards.fingerprint.clone(),
            order,
            sampler,
            shuffle: 0,
            weight: 1,
            repeats: 1,
            stages: Vec::new(),
            name: None,
            begins: 0,
            sides: self.0.sides.iter().map(|side| side.header()).collect(),
        }
    }

    /// The stores of the dataset and of its sides.
    pub(crate) fn stores(&self) -> impl Iterator<Item = &Store> {
        std::iter::once(self.store()).chain(self.0.sides.iter().map(|side| &side.shards.store))
    }

    /// Whether sides are joined to the samples. Then samples may fail although they were read.
    pub(crate) fn is_joined(&self) -> bool {
        !self.0.sides.is_empty()
    }

    /// Whether samples that a side lacks are skipped.
    pub(crate) fn skips_missing(&self) -> bool {
        self.0.sides.iter().any(|side| side.missing == Missing::Skip)
    }

    /// The index entry of a shard of the plan.
    pub(crate) fn indexed(&self, planned: usize) -> Option<&ShardIndex> {
        self.0.shards.indexed(planned)
    }

    /// The rank and worker of this process.
    pub(crate) fn topology(&self) -> &Topology {
        &self.0.topology
    }

    /// The samples of an epoch: one from each of this process's streams in turn, until all have ended.
    ///
    /// After an error, the iteration continues with the next sample of the shard, or with the next shard if
    /// the rest of the shard cannot be read. Stop at the first error (`?`) unless samples may be missing.
    ///
    /// A [`Loader`](crate::Loader) returns the same samples in the same order if there are no errors. Here,
    /// the sample after an error is from the next stream; in a loader, it is from the same stream.
    ///
    /// The result is a [`Pipeline`], whose [shuffle](Pipeline::shuffle) has the random numbers of this epoch
    /// and of the first stream. Its methods `map` and `filter` get samples. For the methods of [`Iterator`],
    /// call [`results`](Pipeline::results) first.
    #[doc(alias = "iter")]
    #[doc(alias = "epoch")]
    pub fn samples(&self, epoch: u64) -> Pipeline<Mix<ShardReader>, Sample> {
        self.pipeline(epoch, round_robin(self.readers(epoch)).longest())
    }

    /// Like [`samples`](Dataset::samples), but returns a stream for any executor.
    pub fn stream(&self, epoch: u64) -> Pipeline<Mix<ShardReaderStream>, Sample> {
        self.pipeline(epoch, round_robin(self.readers(epoch).map(ShardReader::into_stream)).longest())
    }

    fn pipeline<S>(&self, epoch: u64, samples: S) -> Pipeline<S, Sample> {
        let stream = self.streams().first().map_or(0, |stream| *stream as u64);
        Pipeline::new(samples).of_dataset(self.0.number).seed(self.seed(), epoch, stream)
    }

    fn readers(&self, epoch: u64) -> impl Iterator<Item = ShardReader> {
        let versions = Versions::default();
        self.streams().iter().map(move |&stream| self.read_together(epoch, stream, &versions))
    }
}

impl fmt::Debug for Dataset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dataset")
            .field("shards", &self.0.shards.list.len())
            .field("streams", &self.0.streams)
            .field("seed", &self.0.seed)
            .finish_non_exhaustive()
    }
}
