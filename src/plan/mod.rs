//! Pure functions that compute which shards each stream reads in each epoch, and in which order. Other
//! functions split a list of shards among ranks and workers.
//!
//! A [`Plan`] is a function of the number of shards, a seed, the epoch and the number of *logical streams*:
//! it does not depend on time or on which reader starts first. In each epoch, all shards are put into one
//! order and dealt to the streams in turn; each stream is read by one reader, from its first shard to its
//! last. If the number of samples of each shard is known, the order is instead cut into equal shares, one for
//! each stream, so that a few shards can serve many streams, and all streams get the same number of samples.
//!
//! If streams [keep their shards](Plan::kept), the shards are dealt once, and each epoch permutes the shards
//! of each stream: a node that reads the same streams in each epoch finds their shards in its cache.
//!
//! Ranks and workers read whole streams, and the number of streams does not depend on them. So the content of
//! stream 5 of epoch 3, and of a global batch made of all streams, is the same on 1, 2, 4 … nodes: a job can
//! be stopped on 8 nodes and resumed on 4, or be debugged on one, with the same data in the same order.

mod dataset_order;
mod order;
mod proportions;
mod sampler;
mod shapes;
mod split;
mod stream_lengths;
#[cfg(test)]
mod tests;
mod window;

pub(crate) use dataset_order::{DatasetOrder, WeightChange};
pub use proportions::temperature_weights;
#[cfg(feature = "mixture")]
pub(crate) use proportions::{check_temperature, temperature_shares, whole_weights};
pub use sampler::Sampler;
pub(crate) use shapes::Shapes;
pub(crate) use split::check_enough;
pub use split::{split_by, split_by_node, split_by_worker};
pub(crate) use stream_lengths::{ItemsLeft, StreamLengths};

use crate::error::{ErrorKind, Result};
use crate::rng::{Purpose, Rng};
use crate::topology::Topology;
use order::{EpochOrder, OrderCache, OrderKey};
use std::iter::StepBy;
use std::ops::Range;
use std::sync::Arc;

/// A range of samples of one shard.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Slice {
    /// The number of the shard.
    pub shard: usize,
    /// The numbers of the samples in the shard. The end is `u64::MAX` if the number of samples is unknown.
    pub samples: Range<u64>,
}

impl Slice {
    /// All samples of a shard.
    #[must_use]
    pub fn whole(shard: usize) -> Self {
        Slice { shard, samples: 0..u64::MAX }
    }
}

/// The shards that each stream reads in each epoch, in order. See the [module](self).
///
/// ```
/// use shardstream::Topology;
/// use shardstream::plan::Plan;
///
/// let plan = Plan::new(10, 4, 42)?;
/// assert_eq!(plan.stream(0, 1).len(), 3); // of 10 shards: 3, 3, 2, 2
///
/// // Of two nodes, the second reads streams 1 and 3. A single node reads all four streams.
/// assert!(plan.streams_of(&Topology::new(1, 2)?)?.eq([1, 3]));
/// assert!(plan.streams_of(&Topology::single())?.eq([0, 1, 2, 3]));
///
/// // Two shards, of 7 and 4 samples, for 4 streams.
/// let plan = Plan::counted([7, 4], 4, 42)?;
/// assert!((0..4).map(|stream| plan.samples(stream).unwrap()).eq([3, 3, 3, 2]));
/// # Ok::<(), shardstream::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Plan {
    shards: usize,
    /// Number of samples of each shard, if known.
    counts: Option<Arc<[u64]>>,
    /// The sum of `counts`.
    total: u64,
    streams: usize,
    seed: u64,
    /// The number of the dataset in a mixture. It seeds the random numbers too.
    dataset: u64,
    shuffled: bool,
    kept: bool,
    resampled: bool,
    sampler: Option<Sampler>,
    /// The orders of recent epochs.
    orders: OrderCache,
}

impl Plan {
    /// A plan of `shards` shards, shuffled by `seed`, for `streams` streams. Streams read whole shards.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for 0 streams, [`ErrorKind::TooFewShards`] for more streams than shards.
    pub fn new(shards: usize, streams: usize, seed: u64) -> Result<Self> {
        check_enough(shards, streams, "streams")?;
        Self::with(shards, None, 0, streams, seed)
    }

    /// A plan of shards with these numbers of samples. Shards are cut into slices so that the numbers of
    /// samples of any two streams differ by one at most.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for 0 streams, or for fewer samples than streams.
    pub fn counted(samples: impl Into<Arc<[u64]>>, streams: usize, seed: u64) -> Result<Self> {
        let counts = samples.into();
        let total = counts.iter().try_fold(0u64, |sum, count| sum.checked_add(*count));
        match total {
            None => Err(ErrorKind::Config("more samples than can be counted".into()).into()),
            Some(total) if total < streams as u64 => {
                Err(ErrorKind::Config(format!("{streams} streams for {total} samples")).into())
            }
            Some(total) => Self::with(counts.len(), Some(counts), total, streams, seed),
        }
    }

    fn with(
        shards: usize,
        counts: Option<Arc<[u64]>>,
        total: u64,
        streams: usize,
        seed: u64,
    ) -> Result<Self> {
        if streams == 0 {
            return Err(ErrorKind::Config("a plan needs at least one stream".into()).into());
        }
        Ok(Plan {
            shards,
            counts,
            total,
            streams,
            seed,
            dataset: 0,
            shuffled: true,
            kept: false,
            resampled: false,
            sampler: None,
            orders: OrderCache::default(),
        })
    }

    /// The plan for dataset number `dataset` of a mixture. The number seeds the random numbers.
    pub(crate) fn of_dataset(self, dataset: u64) -> Self {
        Plan { dataset, orders: OrderCache::default(), ..self }
    }

    /// Whether each epoch shuffles the shards anew. If false, every epoch has the order of the shard list.
    /// Default: true.
    #[must_use]
    pub fn shuffled(self, shuffled: bool) -> Self {
        Plan { shuffled, orders: OrderCache::default(), ..self }
    }

    /// Whether every stream reads the same shards (or slices of shards) in all epochs. The shards are dealt
    /// once, in an order that depends on the seed, and each epoch permutes the shards of each stream. A
    /// process that reads the same streams in each epoch then reads the same bytes, which are in its
    /// [cache](crate::store::Cache) from the second epoch on. Samples never move to another stream;
    /// [`guide::determinism`](crate::guide::determinism) says how much randomness is lost. Default: false.
    ///
    /// In a plan that is not [shuffled](Plan::shuffled), streams always read the same shards. A plan that
    /// draws [with replacement](Plan::resampled) ignores this option.
    ///
    /// ```
    /// use shardstream::plan::{Plan, Slice};
    /// use std::collections::HashSet;
    ///
    /// let plan = Plan::counted([70, 40, 90, 20, 50], 3, 42)?.kept(true);
    /// let of_epoch = |epoch| plan.stream(epoch, 1).into_iter().collect::<HashSet<Slice>>();
    /// assert!((1..5).all(|epoch| of_epoch(epoch) == of_epoch(0)));
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    #[must_use]
    pub fn kept(self, kept: bool) -> Self {
        Plan { kept, orders: OrderCache::default(), ..self }
    }

    /// Whether every stream draws its shards at random with replacement in each epoch, instead of getting its
    /// share of all shards. A shard may then occur several times in an epoch, or not at all. The number of
    /// draws is the number of shards that the stream would get otherwise. Python's webdataset calls this
    /// `resampled`. This option and a [sampler](Plan::sampled) exclude each other: the later call counts.
    /// Default: false.
    #[must_use]
    pub fn resampled(self, resampled: bool) -> Self {
        let sampler = self.sampler.filter(|_| !resampled);
        Plan { resampled, sampler, ..self }
    }

    /// Reads the samples that a sampler chooses, instead of all samples in the order of the shards. Position
    /// `p` of an epoch belongs to stream `p % streams`.
    ///
    /// ```
    /// use shardstream::plan::{Plan, Sampler};
    ///
    /// let plan = Plan::counted([3, 4], 2, 42)?.sampled(Sampler::listed([6, 0, 3, 5]))?;
    /// let chosen = |stream| plan.stream(0, stream).into_iter().map(|slice| (slice.shard, slice.samples));
    /// assert!(chosen(0).eq([(1, 3..4), (1, 0..1)])); // the samples 6 and 3
    /// assert!(chosen(1).eq([(0, 0..1), (1, 2..3)])); // the samples 0 and 5
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if the plan is not [counted](Plan::counted), if the sampler was made for another
    /// number of samples, or if there are fewer positions than streams.
    pub fn sampled(self, sampler: Sampler) -> Result<Self> {
        let config = |what: String| Err(ErrorKind::Config(what).into());
        if self.counts.is_none() {
            return config("a sampler needs the number of samples of each shard: give an index".into());
        }
        sampler.check(self.total)?;
        let positions = sampler.positions(self.total);
        if positions < self.streams as u64 {
            return config(format!("{} streams for {positions} samples", self.streams));
        }
        Ok(Plan { sampler: Some(sampler), resampled: false, orders: OrderCache::default(), ..self })
    }

    /// The number of shards.
    #[must_use]
    pub fn shards(&self) -> usize {
        self.shards
    }

    /// The number of streams.
    #[must_use]
    pub fn streams(&self) -> usize {
        self.streams
    }

    /// Number of samples of each shard, in a [counted](Plan::counted) plan.
    #[must_use]
    pub fn counts(&self) -> Option<&[u64]> {
        self.counts.as_deref()
    }

    /// Whether each epoch shuffles the shards.
    #[must_use]
    pub fn is_shuffled(&self) -> bool {
        self.shuffled
    }

    /// Whether each stream reads the same shards in every epoch, each time in a new order.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        self.kept && self.shuffled && !self.resampled
    }

    /// Whether shards are drawn with replacement.
    #[must_use]
    pub fn is_resampled(&self) -> bool {
        self.resampled
    }

    /// The sampler that chooses the samples, if there is one.
    #[must_use]
    pub fn sampler(&self) -> Option<&Sampler> {
        self.sampler.as_ref()
    }

    /// Whether each epoch has every sample of every shard once.
    pub(crate) fn is_complete(&self) -> bool {
        !self.resampled && self.sampler.as_ref().is_none_or(Sampler::is_permutation)
    }

    /// Number of samples of a stream in every epoch. `None` if the plan is not [counted](Plan::counted) or
    /// draws with replacement.
    #[must_use]
    pub fn samples(&self, stream: usize) -> Option<u64> {
        self.counts.as_ref().filter(|_| !self.resampled)?;
        if let Some(sampler) = &self.sampler {
            if stream >= self.streams {
                return Some(0);
            }
            let positions = sampler.positions(self.total).saturating_sub(stream as u64);
            return Some(positions.div_ceil(self.streams as u64));
        }
        let share = self.share(stream);
        Some(share.end - share.start)
    }

    /// All shards of an epoch in order. The first shard is dealt to stream 0, the next to stream 1, and so on
    /// in turn. In a [counted](Plan::counted) plan, the samples of the shards in this order are cut into
    /// shares. If streams [keep their shards](Plan::kept), the shards were dealt in this order, which is the
    /// same in each epoch. A [sampler](Plan::sampled) numbers the samples of the shards in this order.
    #[must_use]
    pub fn order(&self, epoch: u64) -> Vec<usize> {
        if self.sampler.is_some() {
            return (0..self.shards).collect();
        }
        let order = self.ordered(epoch);
        (0..order.len()).map(|number| order.at(number)).collect()
    }

    /// The slices that one stream reads, in order. Empty if there is no stream of this number.
    ///
    /// The plan and its clones cache the order of the last two epochs, in 4 bytes for each shard. The order
    /// is computed for the first stream of an epoch, and looked up for the other streams.
    #[must_use]
    pub fn stream(&self, epoch: u64, stream: usize) -> Vec<Slice> {
        if stream >= self.streams {
            return Vec::new();
        }
        if self.resampled {
            return self.drawn(epoch, stream);
        }
        if let (Some(sampler), Some(counts)) = (&self.sampler, &self.counts) {
            return self.chosen(sampler, counts, epoch, stream);
        }
        let order = self.ordered(epoch);
        let mut slices: Vec<Slice> = match &self.counts {
            None => {
                let numbers = (stream..order.len()).step_by(self.streams);
                numbers.map(|number| Slice::whole(order.at(number))).collect()
            }
            Some(counts) => {
                let slices = order.slices(counts, self.share(stream)).into_iter();
                slices.map(|(shard, samples)| Slice { shard, samples }).collect()
            }
        };
        if self.is_kept() {
            let purpose = Purpose::KeptShards;
            Rng::of_dataset(self.dataset, purpose, self.seed, epoch, stream as u64).shuffle(&mut slices);
        }
        slices
    }

    /// The samples that a sampler chooses for a stream. Consecutive samples of a shard form one slice.
    fn chosen(&self, sampler: &Sampler, counts: &[u64], epoch: u64, stream: usize) -> Vec<Slice> {
        let listed = EpochOrder::new(self.shards, None, Some(counts));
        let key = OrderKey { purpose: Purpose::Samples, dataset: self.dataset, seed: self.seed, epoch };
        let mut slices: Vec<Slice> = Vec::new();
        for sample in sampler.choose(self.total, key, &self.orders, stream as u64, self.streams) {
            for (shard, samples) in listed.slices(counts, sample..sample + 1) {
                match slices.last_mut() {
                    Some(last) if last.shard == shard && last.samples.end == samples.start => {
                        last.samples.end = samples.end;
                    }
                    _ => slices.push(Slice { shard, samples }),
                }
            }
        }
        slices
    }

    fn ordered(&self, epoch: u64) -> Arc<EpochOrder> {
        let epoch = if self.shuffled && !self.kept { epoch } else { 0 };
        let (purpose, dataset, seed) = (Purpose::Shards, self.dataset, self.seed);
        let key = self.shuffled.then_some(OrderKey { purpose, dataset, seed, epoch });
        self.orders.get_or_make(epoch, || EpochOrder::new(self.shards, key, self.counts.as_deref()))
    }

    fn drawn(&self, epoch: u64, stream: usize) -> Vec<Slice> {
        let mut rng = Rng::of_dataset(self.dataset, Purpose::Resample, self.seed, epoch, stream as u64);
        let draws = self.shards.saturating_sub(stream).div_ceil(self.streams).max(1);
        let draw = |_| {
            let shard = rng.below(self.shards as u64) as usize;
            let count = self.counts.as_ref().and_then(|counts| counts.get(shard).copied());
            Slice { shard, samples: 0..count.unwrap_or(u64::MAX) }
        };
        (0..draws).map(draw).collect()
    }

    /// The range of sample numbers that belongs to a stream. Sample numbers run through all shards, in the
    /// order of the epoch.
    fn share(&self, stream: usize) -> Range<u64> {
        let streams = self.streams as u64;
        // The first `longer` streams have one sample more than the other streams.
        let shorter_share = self.total / streams;
        let longer = self.total % streams;
        let start = |stream: u64| stream * shorter_share + stream.min(longer);
        let stream = (stream as u64).min(streams);
        start(stream)..start((stream + 1).min(streams))
    }

    /// The streams that this worker of this rank reads. Of W ranks, rank r reads the streams r, r + W, r + 2W
    /// …, and each of its N workers reads every N-th of these streams. All readers together read each stream
    /// once. Here a rank is a data-parallel rank: ranks that [read the same
    /// samples](Topology::with_data_parallel) count as one.
    ///
    /// With one stream for each reader, this equals [`split_by_node`] followed by [`split_by_worker`] on the
    /// [order](Plan::order) of the epoch, unless streams [keep their shards](Plan::kept):
    ///
    /// ```
    /// use shardstream::Topology;
    /// use shardstream::plan::{Plan, split_by_node, split_by_worker};
    ///
    /// let topology = Topology::new(2, 3)?.with_worker(1, 2)?;
    /// let plan = Plan::new(100, topology.readers(), 42)?;
    /// let slices = plan.streams_of(&topology)?.flat_map(|stream| plan.stream(7, stream));
    /// let planned = slices.map(|slice| slice.shard);
    /// let split = split_by_worker(split_by_node(plan.order(7), &topology), &topology);
    /// assert!(planned.eq(split));
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if the number of streams is not a multiple of the number of readers, so that
    /// some readers would have more streams than others.
    pub fn streams_of(&self, topology: &Topology) -> Result<StepBy<Range<usize>>> {
        let readers = topology.readers();
        if !self.streams.is_multiple_of(readers) {
            return Err(ErrorKind::Config(self.uneven(topology)).into());
        }
        Ok((topology.reader()..self.streams).step_by(readers))
    }

    /// The message for a number of streams that is not a multiple of the number of readers.
    fn uneven(&self, topology: &Topology) -> String {
        let (streams, readers) = (self.streams, topology.readers());
        let fitting: Vec<String> =
            (1..=streams).filter(|n| streams.is_multiple_of(*n)).map(|n| n.to_string()).collect();
        let below = streams / readers * readers;
        let multiples = match below {
            0 => format!("{readers}"),
            _ => format!("{below} or {}", below.saturating_add(readers)),
        };
        format!(
            "{streams} streams cannot be dealt evenly to {readers} readers ({} {} with {} workers each): use \
             {multiples} streams, or a number of readers out of {}",
            topology.data_parallel_size(),
            if topology.data_parallel_size() == topology.world_size() {
                "ranks"
            } else {
                "data-parallel ranks"
            },
            topology.workers(),
            fitting.join(", "),
        )
    }
}
