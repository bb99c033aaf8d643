//! The options of a dataset, and the checks of their combinations.

use super::shard_set::ShardSetOptions;
use super::side::ResolvedSide;
use super::versions::Versions;
use super::{Dataset, DatasetState, Shards, Side};
use crate::error::{Error, ErrorKind, Result};
use crate::formats::{FormatChoice, ShardFormat};
use crate::index::{AutoIndex, DatasetPart, Index, ShardIndex};
use crate::plan::{Plan, Sampler, check_enough};
use crate::store::Store;
use crate::tar::Limits;
use crate::topology::Topology;
use std::iter;
use std::sync::Arc;

impl Dataset {
    /// A builder of a dataset of `shards`: a pattern such as `gs://bucket/train-{000000..000146}.tar` or
    /// `/data/**/*.tar`, or a [`ShardList`](crate::ShardList).
    #[doc(alias = "new")]
    pub fn builder(shards: impl Into<Shards>) -> DatasetBuilder {
        DatasetBuilder::new(shards.into())
    }
}

/// The options of a [`Dataset`].
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until it is built"]
pub struct DatasetBuilder {
    shards: ShardSetOptions,
    topology: Option<Topology>,
    streams: Option<usize>,
    shuffle: bool,
    keep: bool,
    resample: bool,
    sampler: Option<Sampler>,
    seed: u64,
    sides: Vec<Side>,
}

impl DatasetBuilder {
    fn new(shards: Shards) -> Self {
        DatasetBuilder {
            shards: ShardSetOptions::new(shards),
            topology: None,
            streams: None,
            shuffle: false,
            keep: false,
            resample: false,
            sampler: None,
            seed: 0,
            sides: Vec::new(),
        }
    }

    /// The store in which the shards are opened. Default: [`Store::default`].
    pub fn store(mut self, store: Store) -> Self {
        self.shards.store = Some(store);
        self
    }

    /// The rank and worker of this process. Default: a single process. If environment variables describe
    /// several ranks or workers, this option is required, so that no job reads all data on every rank by
    /// mistake. Pass [`Topology::detect`] to split the shards among the processes, or [`Topology::single`] to
    /// read all shards in each process. If ranks of tensor or pipeline parallelism read the same data, add
    /// [`Topology::with_data_parallel`].
    pub fn topology(mut self, topology: Topology) -> Self {
        self.topology = Some(topology);
        self
    }

    /// Reads only the shards with these numbers in the list, in this order: for a subset of a dataset, or
    /// with your own splitter. Default: all.
    ///
    /// The samples keep their [positions](crate::Sample::position) in the whole list, and so their random
    /// numbers. The selected shards are split by the [topology](DatasetBuilder::topology) as usual. If your
    /// splitter already splits by rank, pass [`Topology::single`]. The splitter of this example gives each
    /// rank a contiguous block of shards:
    ///
    /// ```
    /// use shardstream::plan::split_by;
    /// use shardstream::prelude::*;
    ///
    /// let shards = ShardList::expand("gs://bucket/train-{000000..000007}.tar")?;
    /// let topology = Topology::new(1, 2)?; // in a job: Topology::detect()?
    /// // Contiguous blocks in place of every other shard.
    /// let blocks = |number: usize, who: &Topology| number * who.readers() / 8 == who.reader();
    /// let mine: Vec<usize> = split_by(0..shards.len(), &topology, blocks).collect();
    /// assert_eq!(mine, [4, 5, 6, 7]);
    ///
    /// let dataset = Dataset::builder(shards).only(mine).topology(Topology::single()).build()?;
    /// assert_eq!(dataset.plan().shards(), 4);
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    pub fn only(mut self, numbers: impl IntoIterator<Item = usize>) -> Self {
        self.shards.only = Some(numbers.into_iter().collect());
        self
    }

    /// The index of the shards. With an index, shards are cut into slices. This has three effects: the sample
    /// counts of any two streams, and of any two ranks, differ by at most one; a few shards can feed many
    /// ranks; and [`Dataset::len`] is known. The index must contain all shards that are read. Default: no
    /// index; streams read whole shards.
    ///
    /// The order of the samples is different with and without an index. A shard that has changed since it was
    /// indexed is [an error](ErrorKind::Stale): its size or version differs, a slice has other samples than
    /// the index says, or the shard has more samples than the index says.
    ///
    /// A copy of a shard at another URL may have any version. A new object at the same URL is accepted if the
    /// index has checksums and they match the samples. If the index has no checksums,
    /// [`Index::without_versions`] makes it accept new objects. After a damaged sample whose offset is in the
    /// index, the rest of the slice is skipped.
    pub fn index(mut self, index: Index) -> Self {
        self.shards.index = Some(index);
        self
    }

    /// Loads a saved [index](DatasetBuilder::index). If the index is missing, or shards have changed, builds
    /// and saves it; only shards that are new or have changed are then indexed.
    ///
    /// [`build`](DatasetBuilder::build) expands the pattern once, with or without an index. A listing of a
    /// bucket or directory contains the size and version of each shard. If the index is up to date, `build`
    /// therefore reads only the listing and the index, and requests no shard. Shards that were not listed (a
    /// brace pattern, a list) need a request for one byte each. Shards of a web server that sends no versions
    /// are indexed by every call of `build`.
    ///
    /// The index covers the whole list, even if [`only`](DatasetBuilder::only) selects some of the shards.
    ///
    /// ```
    /// use shardstream::index::AutoIndex;
    /// use shardstream::prelude::*;
    ///
    /// let dir = tempfile::tempdir()?;
    /// let auto = AutoIndex::in_directory(dir.path()); // or beside the shards: AutoIndex::beside()
    /// let dataset = Dataset::builder("docs/data/digits-*.tar").auto_index(auto).build()?;
    /// assert_eq!((dataset.shards().len(), dataset.len()), (4, Some(40)));
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`build`](DatasetBuilder::build) also returns the errors of
    /// [`IndexBuilder::build`](crate::index::IndexBuilder::build): a damaged shard, for instance, cannot be
    /// indexed. If the index cannot be saved, `build` returns [`ErrorKind::Config`].
    pub fn auto_index(mut self, auto: AutoIndex) -> Self {
        self.shards.auto_index = Some(auto);
        self
    }

    /// Reads only this part of the samples: a fraction for experiments, or the training or validation samples
    /// of a split. Default: all.
    ///
    /// A part needs an [index](DatasetBuilder::index). The samples are chosen from the index alone, so the
    /// length, the number of steps and each rank's share are known exactly before a sample is read. A part
    /// [by key](DatasetPart::by_key) also reads the table of an opened key index. The samples keep their
    /// [positions](crate::Sample::position) and therefore their random numbers. With
    /// [`only`](DatasetBuilder::only), the part is chosen from the selected shards.
    ///
    /// ```
    /// use shardstream::index::DatasetPart;
    /// use shardstream::prelude::*;
    ///
    /// let shards = ShardList::expand("docs/data/digits-{000000..000003}.tar")?;
    /// let index = Index::builder().build(&shards)?;
    /// let dataset = Dataset::builder(shards).index(index);
    /// let train = dataset.clone().part(DatasetPart::fraction(0.0..0.9)).build()?;
    /// let val = dataset.part(DatasetPart::fraction(0.9..1.0)).build()?;
    /// assert_eq!((train.len(), val.len()), (Some(36), Some(4)));
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    pub fn part(mut self, part: DatasetPart) -> Self {
        self.shards.part = Some(part);
        self
    }

    /// Compares each sample with its CRC-32C in the [index](DatasetBuilder::index). A difference is
    /// [an error](ErrorKind::SampleChecksum). Default: false.
    ///
    /// A tar archive only has checksums of its headers: without this option, a flipped bit in a body is not
    /// detected.
    pub fn checksums(mut self, checksums: bool) -> Self {
        self.shards.checksums = checksums;
        self
    }

    /// The number of logical streams of all ranks together. It must be a multiple of the number of ranks
    /// times the number of workers. There must be at least one shard for each stream, or one sample if there
    /// is an [index](DatasetBuilder::index).
    ///
    /// The order depends on this number, and not on the number of ranks: set it, and do not change it, if the
    /// number of ranks may change. A loader reads several streams in parallel. Each stream has its own
    /// shuffle buffer, so a batch mixes samples of several shards. Choose a number of streams with many
    /// divisors: 48 streams work with 1, 2, 3, 4, 6, 8, 12, 16, 24 and 48 ranks. But more streams need more
    /// memory and threads if there are few ranks.
    ///
    /// The default depends on the order of the samples:
    /// - If shards are read in the listed order, there is one stream for each worker of each rank. A single
    ///   process then reads the shards one after the other.
    /// - If shards are shuffled or resampled, or a [sampler](DatasetBuilder::sampler) is set, the number is
    ///   the least common multiple of 8 and ranks times workers. The order is therefore the same on 1, 2, 4
    ///   and 8 ranks. There are fewer streams if there are fewer shards (with an index: fewer samples).
    pub fn streams(mut self, streams: usize) -> Self {
        self.streams = Some(streams);
        self
    }

    /// Whether each epoch permutes the shards of all ranks before they are split.
    ///
    /// Set this for training. If it is false, every epoch begins with the same shards, and a [shuffle
    /// buffer](crate::loader::LoaderBuilder::shuffle) mixes samples only with their neighbours.
    ///
    /// Default: false, so that evaluation and inspection get the samples in the listed order. A loader with a
    /// shuffle buffer and [epochs without end](crate::Loader::epochs) logs a warning if its shards are not
    /// shuffled.
    pub fn shuffle_shards(mut self, shuffle: bool) -> Self {
        self.shuffle = shuffle;
        self
    }

    /// Whether every stream has the same shards in all epochs (with an [index](DatasetBuilder::index), the
    /// same slices of shards). [Shuffling the shards](DatasetBuilder::shuffle_shards) then changes only their
    /// order within each stream. Default: false; each epoch distributes all shards among the streams anew.
    ///
    /// Set this if each node has a [cache](crate::store::Cache) that can hold all shards of its streams. From
    /// the second epoch on, such a node reads nothing from the network. Without this option, each of n nodes
    /// finds only about one n-th of the second epoch's shards in its cache. The disadvantage is less
    /// randomness: two samples of one batch are more often together in a batch of the next epoch than without
    /// this option. `shardstream plan` computes both effects.
    ///
    /// The option has no effect if shards are not shuffled: then every stream keeps its shards in any case.
    pub fn keep_shards(mut self, keep: bool) -> Self {
        self.keep = keep;
        self
    }

    /// Whether every stream draws its shards at random with replacement in each epoch: see
    /// [`Plan::resampled`]. For training in [epochs without end](crate::Loader::epochs). Default: false.
    ///
    /// If a shard is drawn twice in an epoch, its samples have the same [random numbers](crate::Sample::rng)
    /// both times.
    pub fn resample_shards(mut self, resample: bool) -> Self {
        self.resample = resample;
        self
    }

    /// Chooses the samples of an epoch one by one, instead of reading shards in order: all samples in random
    /// order, a weighted draw, or a list. See [`Sampler`] for its guarantees and its cost. A sampler needs an
    /// [index](DatasetBuilder::index) with the offset of each sample, so the shards cannot be compressed.
    /// Default: none.
    ///
    /// ```
    /// use shardstream::plan::Sampler;
    /// use shardstream::prelude::*;
    ///
    /// let shards = ShardList::expand("docs/data/digits-000000.tar")?;
    /// let index = Index::builder().build(&shards)?;
    /// let rare = Sampler::weighted([1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 91.0], 1000)?;
    /// let dataset = Dataset::builder(shards).index(index).sampler(rare).build()?;
    /// assert_eq!(dataset.len(), Some(1000));
    /// let nines = dataset.samples(0).results().filter(|it| it.as_ref().unwrap().key() == "000009");
    /// assert!((850..960).contains(&nines.count()));
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    pub fn sampler(mut self, sampler: Sampler) -> Self {
        self.sampler = Some(sampler);
        self
    }

    /// The seed of the order and of all random numbers. Default: 0.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Joins the samples of other shards by key: adds their fields to the samples of this dataset. See
    /// [`Side`]. Several sides are joined one after the other.
    ///
    /// Samples are joined first: filters, shuffle buffers, stages and batches get joined samples. Damage in a
    /// side is an error of the sample that lacks the side's fields. An outage while a side is read ends a
    /// loader's run, like an outage while the dataset itself is read.
    pub fn join(mut self, side: Side) -> Self {
        self.sides.push(side);
        self
    }

    /// The format of all shards. By default the name of a shard determines its format:
    /// [`JsonLines`](crate::formats::JsonLines) for `.jsonl` and `.ndjson`, also with `.gz` or `.zst`;
    /// otherwise a tar archive. Without an index, [`build`](DatasetBuilder::build) reads each shard's table
    /// of contents, if the format [has one](ShardFormat::reads_ranges).
    pub fn format(mut self, format: impl ShardFormat + 'static) -> Self {
        self.shards.format = FormatChoice::given(format);
        self
    }

    /// Limits for the shards: sizes, padding, concatenated archives. Default: [`Limits::default`].
    pub fn limits(mut self, limits: Limits) -> Self {
        self.shards.limits = limits;
        self
    }

    /// Expands the pattern, checks all options, and plans the streams. Blocks while the pattern's directory
    /// or bucket is listed, and while an index is loaded or built.
    ///
    /// # Errors
    /// - The pattern is malformed or matches nothing.
    /// - There are fewer shards than streams, or the ranks cannot share the streams evenly.
    /// - The topology is missing in a job of several ranks.
    /// - [`only`](DatasetBuilder::only) has a number that no shard has.
    /// - A [limit](Limits) is 0, or [`unsorted`](Limits::unsorted) is set.
    /// - Both [`index`](DatasetBuilder::index) and [`auto_index`](DatasetBuilder::auto_index) are set, or
    ///   [`checksums`](DatasetBuilder::checksums) is set without an index that has checksums.
    /// - [`keep_shards`](DatasetBuilder::keep_shards) is set with
    ///   [`resample_shards`](DatasetBuilder::resample_shards).
    /// - A [sampler](DatasetBuilder::sampler) is set together with an option for the order of shards or
    ///   without an index, or it was made for another number of samples.
    /// - A [side](DatasetBuilder::join) has another number of shards, or contradictory options.
    /// - [`auto_index`](DatasetBuilder::auto_index) fails.
    pub fn build(self) -> Result<Dataset> {
        let topology = match self.topology {
            Some(topology) => topology,
            None => default_topology()?,
        };
        self.shards.check()?;
        if self.keep && self.resample {
            let what = "`keep_shards` and `resample_shards` exclude each other: a stream that draws from \
                        all shards keeps none, so set only one of the two";
            return Err(ErrorKind::Config(what.into()).into());
        }
        if self.sampler.is_some() && (self.shuffle || self.keep || self.resample) {
            let what = "`sampler` chooses each sample, so that there is no order of shards: do not set \
                        `shuffle_shards`, `keep_shards` and `resample_shards`";
            return Err(ErrorKind::Config(what.into()).into());
        }
        if let Some(streams) = self.streams {
            Plan::new(streams, streams, self.seed)?.streams_of(&topology).map(drop)?;
        }
        let is_repeated = !self.resample && self.sampler.is_none() && (self.keep || !self.shuffle);
        let shards = ShardSetOptions { is_repeated, ..self.shards }.build()?;
        let (index, numbers) = (&shards.index, &shards.numbers);
        let readers = topology.readers();
        let random = self.shuffle || self.resample || self.sampler.is_some();
        if let Some(index) = index.as_ref().filter(|_| self.sampler.is_some()) {
            check_offsets(index)?;
        }
        let join = |side: Side| side.build(&shards.store, shards.list.len(), is_repeated).map(Arc::new);
        let sides = self.sides.into_iter().map(join).collect::<Result<Vec<Arc<ResolvedSide>>>>()?;
        let plan = match index {
            Some(index) => {
                let counts: Vec<u64> = index.iter().map(ShardIndex::samples).collect();
                let samples = counts.iter().fold(0u64, |sum, count| sum.saturating_add(*count));
                let chosen = self.sampler.as_ref().map_or(samples, |sampler| sampler.positions(samples));
                let samples = samples.min(chosen);
                let samples = usize::try_from(samples).unwrap_or(usize::MAX);
                let streams = self.streams.unwrap_or_else(|| default_streams(readers, samples, random));
                Plan::counted(counts, streams, self.seed)?
            }
            None => {
                let replicated = topology.data_parallel_size() != topology.world_size();
                let what = match (topology.workers() > 1, replicated) {
                    (true, _) => "workers of all ranks",
                    (false, true) => "data-parallel ranks",
                    (false, false) => "ranks",
                };
                check_enough(numbers.len(), readers, what)?;
                let streams = self.streams.unwrap_or_else(|| default_streams(readers, numbers.len(), random));
                Plan::new(numbers.len(), streams, self.seed)?
            }
        };
        let plan = plan.shuffled(self.shuffle).kept(self.keep).resampled(self.resample);
        let plan = match self.sampler {
            Some(sampler) => plan.sampled(sampler)?,
            None => plan,
        };
        let streams = plan.streams_of(&topology)?.collect();
        let counts = plan.counts().filter(|_| plan.is_complete()).unwrap_or_default();
        let empty = (0..counts.len()).filter(|planned| counts[*planned] == 0).collect();
        Ok(Dataset(Arc::new(DatasetState {
            shards: Arc::new(shards),
            empty,
            plan,
            streams,
            topology,
            seed: self.seed,
            number: 0,
            sides,
            versions: Versions::default(),
        })))
    }
}

/// Checks that the index has the offset of each sample, so that each sample can be read without the others.
fn check_offsets(index: &Index) -> Result<()> {
    let Some(shard) = index.iter().find(|shard| shard.range(0..shard.samples()).is_none()) else {
        return Ok(());
    };
    let what = "`sampler`: the index has no offsets of the samples of this shard, so that the shard would be \
                read from its beginning for each sample; give an index with layouts (not `Index::counts`), \
                and write compressed shards without compression (formats that read ranges have no layouts)";
    Err(Error::from(ErrorKind::Config(what.into())).in_shard(shard.url()))
}

/// The default number of streams.
fn default_streams(readers: usize, shards: usize, random: bool) -> usize {
    let mut streams = readers;
    if !random {
        return streams;
    }
    // At most three doublings lead to a multiple of 8.
    for doubled in iter::successors(Some(readers), |streams| streams.checked_mul(2)) {
        if doubled > shards {
            break;
        }
        streams = doubled;
        if streams.is_multiple_of(8) {
            break;
        }
    }
    streams
}

/// The default topology, a single process. It is an error if environment variables describe several
/// processes.
fn default_topology() -> Result<Topology> {
    let detected = Topology::detect()?;
    if detected.readers() > 1 {
        let message = format!(
            "the environment says that this is {detected}, but the dataset has no topology: give \
             it `.topology(Topology::detect()?)` to split the shards, or `.topology(Topology::single())` to \
             read all of them on every rank"
        );
        return Err(ErrorKind::Topology(message).into());
    }
    Ok(Topology::single())
}
