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
    /// Begins a dataset of `shards`: a pattern such as `gs://bucket/train-{000000..000146}.tar` or
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

    /// Where the shards are opened. Default: [`Store::default`].
    pub fn store(mut self, store: Store) -> Self {
        self.shards.store = Some(store);
        self
    }

    /// Which rank and worker this process is. Default: the only one, unless the environment says that there
    /// are several ranks or workers: then this option is required, so that no job reads everything on every
    /// rank by mistake. Pass [`Topology::detect`] to split the shards, [`Topology::single`] to read them all.
    /// If ranks of tensor or pipeline parallelism read the same data, add [`Topology::with_data_parallel`].
    pub fn topology(mut self, topology: Topology) -> Self {
        self.topology = Some(topology);
        self
    }

    /// Reads only the shards with these numbers in the list, in this order: for a part of a dataset, or for a
    /// splitter of your own. Default: all.
    ///
    /// The samples keep their [positions](crate::Sample::position) in the whole list, and with them their
    /// random numbers. The selected shards are dealt by the [topology](DatasetBuilder::topology) as usual, so
    /// that a splitter which has split by rank is used with a single one:
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

    /// The index of the shards. With it, shards are cut into slices, so that all streams, and with them all
    /// ranks, get the same number of samples (one more or less), few shards can feed many ranks, and
    /// [`Dataset::len`] is known. It must contain all shards that are read. Default: none; whole shards are
    /// dealt.
    ///
    /// The order depends on whether there is an index. A shard that is not as it was indexed is [an
    /// error](ErrorKind::Stale) when it is read: if its size or version differs, if a slice has other
    /// samples, or if there are samples where the index has none. The version of a copy in another place is
    /// not compared; for a copy in the same place, the checksums of the index decide if it has them, and
    /// otherwise there is [`Index::without_versions`]. After a damaged
    /// sample whose place is in the index, the rest of the slice is left out.
    pub fn index(mut self, index: Index) -> Self {
        self.shards.index = Some(index);
        self
    }

    /// Loads the [index](DatasetBuilder::index) from where it is saved. If it is missing, or the shards have
    /// changed, builds and saves it; only shards that are new or have changed are then indexed.
    ///
    /// The pattern is listed once, as without an index. Where the listing has the size and version of each
    /// shard, as those of buckets and directories do, a start with a current index takes the listing and the
    /// index, and no request for a shard. Shards that were not listed (a brace pattern, a list) take a
    /// request for one byte each. Shards of a web server that sends no versions are indexed at every start.
    ///
    /// The index covers the whole list, even if [`only`](DatasetBuilder::only) a part of it is read.
    ///
    /// ```
    /// use shardstream::index::AutoIndex;
    /// use shardstream::prelude::*;
    ///
    /// # let dir = tempfile::tempdir()?;
    /// # let pattern = format!("{}/val-%06d.tar", dir.path().display());
    /// # let mut writer = ShardWriter::builder(pattern).max_count(2).build()?;
    /// # (0..5).try_for_each(|i| writer.write(&Sample::new(format!("{i:04}")).with("cls", i)))?;
    /// # writer.finish()?;
    /// # let pattern = format!("{}/val-*.tar", dir.path().display());
    /// // let pattern = "gs://bucket/val-*.tar";
    /// let dataset = Dataset::builder(pattern).auto_index(AutoIndex::beside()).build()?;
    /// assert_eq!((dataset.shards().len(), dataset.len()), (3, Some(5)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`build`](DatasetBuilder::build) returns those of
    /// [`IndexBuilder::build`](crate::index::IndexBuilder::build), since a damaged shard has no index, and
    /// [`ErrorKind::Config`] where the index cannot be saved.
    pub fn auto_index(mut self, auto: AutoIndex) -> Self {
        self.shards.auto_index = Some(auto);
        self
    }

    /// Reads only this part of the samples: a fraction for experiments, or one side of a split into training
    /// and validation. It needs an [index](DatasetBuilder::index), and no sample is read to choose it (only
    /// the table of an opened key index, [by key](DatasetPart::by_key)), so that lengths, steps and each
    /// rank's share are exact. Default: all.
    ///
    /// The samples keep their [positions](crate::Sample::position), and with them their random numbers. With
    /// [`only`](DatasetBuilder::only), it is a part of those shards.
    ///
    /// ```
    /// use shardstream::index::{AutoIndex, DatasetPart};
    /// use shardstream::prelude::*;
    ///
    /// # let dir = tempfile::tempdir()?;
    /// # let pattern = format!("{}/train-%06d.tar", dir.path().display());
    /// # let mut writer = ShardWriter::builder(pattern).max_count(20).build()?;
    /// # (0..40).try_for_each(|i| writer.write(&Sample::new(format!("{i:04}")).with("cls", i)))?;
    /// # writer.finish()?;
    /// # let pattern = format!("{}/train-*.tar", dir.path().display());
    /// // let pattern = "gs://bucket/train-*.tar";
    /// let dataset = Dataset::builder(pattern).auto_index(AutoIndex::beside());
    /// let train = dataset.clone().part(DatasetPart::fraction(0.0..0.9)).build()?;
    /// let val = dataset.part(DatasetPart::fraction(0.9..1.0)).build()?;
    /// assert_eq!((train.len(), val.len()), (Some(36), Some(4)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn part(mut self, part: DatasetPart) -> Self {
        self.shards.part = Some(part);
        self
    }

    /// Compares each sample with its CRC-32C in the [index](DatasetBuilder::index). A difference is
    /// [an error](ErrorKind::SampleChecksum). Default: no.
    ///
    /// A tar archive has checksums of its headers alone, so that a flipped bit in a body goes unnoticed
    /// without this option.
    pub fn checksums(mut self, checksums: bool) -> Self {
        self.shards.checksums = checksums;
        self
    }

    /// The number of logical streams of all ranks together. It must be a multiple of the ranks times the
    /// workers, and there must be at least as many shards, or samples with an [index](DatasetBuilder::index).
    ///
    /// The order depends on this number, and not on the number of ranks: set it, and keep it, if the number
    /// of ranks may change. A loader reads several streams in parallel, each with a shuffle buffer of its
    /// own, which mixes samples of several shards. More streams divide evenly among more numbers of ranks (48
    /// among 1, 2, 3, 4, 6, 8, 12, 16, 24 and 48), but take memory and threads if there are few ranks.
    ///
    /// Default: for shards in the order of the list, one per rank and worker, so that one process reads them
    /// as they are listed. For shuffled or resampled shards, 8, so that the order is the same on 1, 2, 4 and
    /// 8 ranks; for other numbers of ranks and workers, the least number that they and 8 divide; fewer if
    /// there are fewer shards.
    pub fn streams(mut self, streams: usize) -> Self {
        self.streams = Some(streams);
        self
    }

    /// Whether each epoch permutes the shards, across all ranks, before they are dealt.
    ///
    /// Training wants it: without it, every epoch begins with the same shards, and a
    /// [shuffle buffer](crate::loader::LoaderBuilder::shuffle) mixes samples only with their neighbours.
    ///
    /// Default: no, so that evaluation, and whoever looks at a dataset, gets the samples in the order in
    /// which they are listed. A loader with a shuffle buffer and [epochs without end](crate::Loader::epochs)
    /// warns in the log if its shards are not shuffled.
    pub fn shuffle_shards(mut self, shuffle: bool) -> Self {
        self.shuffle = shuffle;
        self
    }

    /// Whether every stream keeps its shards (with an [index](DatasetBuilder::index), its slices of shards)
    /// in all epochs, and each epoch of [shuffled shards](DatasetBuilder::shuffle_shards) permutes only those
    /// within each stream. Default: no; each epoch deals all shards anew.
    ///
    /// For a [cache](crate::store::Cache) that can hold the shards of its node: from the second epoch on,
    /// nothing is read from the network, on any number of nodes. Of shards that are dealt anew, a node finds
    /// only its share in the cache in the second epoch. The price is less randomness: samples of different
    /// streams meet in the same batches in each epoch more often. `shardstream plan` computes both.
    ///
    /// Has no effect if shards are not shuffled: every stream then keeps its shards in any case.
    pub fn keep_shards(mut self, keep: bool) -> Self {
        self.keep = keep;
        self
    }

    /// Whether every stream draws its shards at random with replacement in each epoch, instead of being dealt
    /// some: see [`Plan::resampled`]. For training [without an end](crate::Loader::epochs). Default: no.
    ///
    /// If a shard is drawn twice in an epoch, its samples have the same [random numbers](crate::Sample::rng)
    /// both times.
    pub fn resample_shards(mut self, resample: bool) -> Self {
        self.resample = resample;
        self
    }

    /// Chooses the samples of an epoch one by one, in place of the order of the shards: all in random order,
    /// a weighted draw, or a list. See [`Sampler`] for the guarantees, and for what it costs. It needs an
    /// [index](DatasetBuilder::index) that says where each sample is, so no compressed shards. Default: none.
    ///
    /// ```
    /// use shardstream::index::AutoIndex;
    /// use shardstream::plan::Sampler;
    /// use shardstream::prelude::*;
    ///
    /// # let dir = tempfile::tempdir()?;
    /// # let pattern = format!("{}/train-%06d.tar", dir.path().display());
    /// # let mut writer = ShardWriter::builder(pattern).max_count(2).build()?;
    /// # (0..5).try_for_each(|i| writer.write(&Sample::new(format!("{i:04}")).with("cls", i)))?;
    /// # writer.finish()?;
    /// # let pattern = format!("{}/train-*.tar", dir.path().display());
    /// let builder = Dataset::builder(pattern).auto_index(AutoIndex::beside()); // "/data/train-*.tar"
    /// let rare = Sampler::weighted([1.0, 1.0, 1.0, 1.0, 96.0], 1000)?;
    /// let dataset = builder.sampler(rare).build()?;
    /// assert_eq!(dataset.len(), Some(1000));
    /// let of_the_last = dataset.samples(0).results().filter(|it| it.as_ref().unwrap().key() == "0004");
    /// assert!((900..1000).contains(&of_the_last.count()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn sampler(mut self, sampler: Sampler) -> Self {
        self.sampler = Some(sampler);
        self
    }

    /// The seed of the order. Default: 0.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Adds the fields of other shards' samples to the samples of the same keys: see [`Side`]. Several sides
    /// are joined one after the other.
    ///
    /// The join comes first: filters, shuffle buffers, stages and batches get joined samples. Damage in a
    /// side is an error of the sample that lacks its fields. An outage while a side is read ends a loader's
    /// run, as an outage of the dataset itself does.
    pub fn join(mut self, side: Side) -> Self {
        self.sides.push(side);
        self
    }

    /// The format of all shards. Default: what the name of each shard says, which is
    /// [`JsonLines`](crate::formats::JsonLines) for `.jsonl` and `.ndjson`, also with `.gz` or `.zst`, and
    /// otherwise a tar archive. Without an index, [`build`](DatasetBuilder::build) reads the tables of a
    /// format that [has them](ShardFormat::reads_ranges).
    pub fn format(mut self, format: impl ShardFormat + 'static) -> Self {
        self.shards.format = FormatChoice::given(format);
        self
    }

    /// Limits on what is accepted of a shard: sizes, padding, concatenated archives. Default:
    /// [`Limits::default`].
    pub fn limits(mut self, limits: Limits) -> Self {
        self.shards.limits = limits;
        self
    }

    /// Expands the pattern (which lists a directory or bucket where it has wildcards, and blocks) and deals
    /// the shards.
    ///
    /// # Errors
    /// A pattern that is malformed or matches nothing, fewer shards than streams, a number of streams that
    /// the ranks cannot share evenly, a missing topology in a job of several ranks,
    /// [`only`](DatasetBuilder::only) with a number that no shard has, [limits](Limits) of 0 or with
    /// [`unsorted`](Limits::unsorted), [`checksums`](DatasetBuilder::checksums) without an index that has
    /// them, two indexes, [`keep_shards`](DatasetBuilder::keep_shards) of shards that are
    /// [drawn](DatasetBuilder::resample_shards), a [sampler](DatasetBuilder::sampler) with an order of
    /// shards, without an index or with another number of samples, a [side](DatasetBuilder::join) with
    /// another number of shards or options that make no sense, or what
    /// [`auto_index`](DatasetBuilder::auto_index) meets.
    pub fn build(self) -> Result<Dataset> {
        let topology = match self.topology {
            Some(topology) => topology,
            None => default_topology()?,
        };
        self.shards.check()?;
        if self.keep && self.resample {
            let what = "`keep_shards` and `resample_shards` exclude each other: a stream that draws its \
                        shards from all of them keeps none, so set only one of the two";
            return Err(ErrorKind::Config(what.into()).into());
        }
        if self.sampler.is_some() && (self.shuffle || self.keep || self.resample) {
            let what = "`sampler` chooses each sample, so that there is no order of shards: leave out \
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
            check_places(index)?;
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

/// Checks that each sample can be read by itself.
fn check_places(index: &Index) -> Result<()> {
    let Some(shard) = index.iter().find(|shard| shard.range(0..shard.samples()).is_none()) else {
        return Ok(());
    };
    let what = "`sampler`: the index does not say where the samples of this shard are, so that it would be \
                read from its beginning for each sample; give an index with layouts (not `Index::counts`), \
                and write compressed shards without compression (formats that read ranges have no layouts)";
    Err(Error::from(ErrorKind::Config(what.into())).in_shard(shard.url()))
}

/// The default number of streams.
fn default_streams(readers: usize, shards: usize, random: bool) -> usize {
    let doubled = iter::successors(Some(readers), |streams| streams.checked_mul(2));
    let enough = |streams: &usize| streams.is_multiple_of(8);
    let upto = doubled.take_while(|streams| random && *streams <= shards);
    let mut found = readers;
    for streams in upto {
        found = streams;
        if enough(&streams) {
            break;
        }
    }
    found
}

/// The default topology: a single process, which is an error if the environment has several.
fn default_topology() -> Result<Topology> {
    let found = Topology::detect()?;
    if found.readers() > 1 {
        let message = format!(
            "the environment says that this is {found}, and the dataset has no topology: give \
             it `.topology(Topology::detect()?)` to split the shards, or `.topology(Topology::single())` to \
             read all of them here and everywhere else"
        );
        return Err(ErrorKind::Topology(message).into());
    }
    Ok(Topology::single())
}
