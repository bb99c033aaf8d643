//! In which order: the pure epoch plan and the splitters.
//!
//! Who reads which shard when is no matter of chance and of who comes first, but a function: of the number of
//! shards, a seed, the epoch and the number of *logical streams*. [`Plan`] is that function. An epoch puts
//! all shards into one order, and deals them to the streams like cards; each stream is read by one reader
//! from its first shard to its last. Where it is known how many samples each shard has, the order is cut into
//! equal pieces instead, one for each stream, so that a few shards can serve many streams and all of them get
//! the same number of samples.
//!
//! Ranks and workers only take up streams, and the number of streams is not theirs. So what is in stream 5 of
//! epoch 3, and therefore what a global batch that is made of all streams contains, is the same on 1, 2, 4 …
//! nodes: a job can be stopped on 8 nodes and continue with 4, or be debugged on one, with the same data in
//! the same order.

mod order;
mod split;

pub use split::{check_enough, split_by, split_by_node, split_by_worker};

use crate::error::{ErrorKind, Result};
use crate::rng::{Purpose, Rng};
use crate::topology::Topology;
use order::{Order, Orders};
use std::iter::StepBy;
use std::ops::Range;
use std::sync::Arc;

/// A run of samples of one shard.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Slice {
    /// The number of the shard.
    pub shard: usize,
    /// Which of its samples, by number; to `u64::MAX` for a shard whose samples were not counted.
    pub samples: Range<u64>,
}

impl Slice {
    /// All samples of a shard.
    #[must_use]
    pub fn whole(shard: usize) -> Self {
        Slice { shard, samples: 0..u64::MAX }
    }
}

/// Which stream reads which shards in which order, in each epoch. See the [module](self).
///
/// ```
/// use shardstream::Topology;
/// use shardstream::plan::Plan;
///
/// let plan = Plan::new(10, 4, 42)?;
/// assert_eq!(plan.stream(0, 1).len(), 3); // of 10 shards: 3, 3, 2, 2
///
/// // On two nodes the second reads the streams 1 and 3, and on one node the only one reads them all.
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
    /// The samples of each shard, where they were counted.
    counts: Option<Arc<[u64]>>,
    /// Their sum.
    total: u64,
    streams: usize,
    seed: u64,
    shuffled: bool,
    resampled: bool,
    /// The orders of the epochs that are read.
    orders: Orders,
}

impl Plan {
    /// Plans `shards` shards, shuffled by `seed`, for `streams` streams. Whole shards are dealt.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for no streams, [`ErrorKind::TooFewShards`] for more streams than shards.
    pub fn new(shards: usize, streams: usize, seed: u64) -> Result<Self> {
        check_enough(shards, streams, "streams")?;
        Self::with(shards, None, 0, streams, seed)
    }

    /// Plans shards of which it is known how many samples each has. They are cut into slices where that makes
    /// all streams equally long: none is more than one sample longer than another.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for no streams, or for fewer samples than streams.
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
        let orders = Orders::default();
        Ok(Plan { shards, counts, total, streams, seed, shuffled: true, resampled: false, orders })
    }

    /// Whether each epoch has an order of its own, as it is at first, or all have that of the shard list.
    #[must_use]
    pub fn shuffled(self, shuffled: bool) -> Self {
        Plan { shuffled, orders: Orders::default(), ..self }
    }

    /// Whether every stream draws its shards at random with replacement, each epoch anew, instead of being
    /// dealt some: then a shard may come several times in an epoch, or not at all. An epoch has as many draws
    /// as it would deal shards. Python's webdataset knows this as `resampled`.
    #[must_use]
    pub fn resampled(self, resampled: bool) -> Self {
        Plan { resampled, ..self }
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

    /// How many samples each shard has, if it was [said](Plan::counted).
    #[must_use]
    pub fn counts(&self) -> Option<&[u64]> {
        self.counts.as_deref()
    }

    /// Whether the order differs between epochs.
    #[must_use]
    pub fn is_shuffled(&self) -> bool {
        self.shuffled
    }

    /// Whether shards are drawn with replacement.
    #[must_use]
    pub fn is_resampled(&self) -> bool {
        self.resampled
    }

    /// How many samples a stream has in every epoch; none where samples were not counted, or are drawn with
    /// replacement.
    #[must_use]
    pub fn samples(&self, stream: usize) -> Option<u64> {
        self.counts.as_ref().filter(|_| !self.resampled)?;
        let piece = self.piece(stream);
        Some(piece.end - piece.start)
    }

    /// All shards of an epoch in the order in which they are dealt: the first to stream 0, the next to stream
    /// 1, and so on, round after round; or in which their samples are in the row that is cut into pieces.
    #[must_use]
    pub fn order(&self, epoch: u64) -> Vec<usize> {
        let order = self.ordered(epoch);
        (0..order.len()).map(|place| order.at(place)).collect()
    }

    /// What one stream reads, in this order. A stream beyond the last reads nothing.
    ///
    /// The plan and its clones keep the order of the last two epochs that were asked for, in 4 bytes for each
    /// shard: the first stream of an epoch works it out, and the others look up what is theirs.
    #[must_use]
    pub fn stream(&self, epoch: u64, stream: usize) -> Vec<Slice> {
        if stream >= self.streams {
            return Vec::new();
        }
        if self.resampled {
            return self.drawn(epoch, stream);
        }
        let order = self.ordered(epoch);
        match &self.counts {
            None => {
                let places = (stream..order.len()).step_by(self.streams);
                places.map(|place| Slice::whole(order.at(place))).collect()
            }
            Some(counts) => {
                let slices = order.slices(counts, self.piece(stream)).into_iter();
                slices.map(|(shard, samples)| Slice { shard, samples }).collect()
            }
        }
    }

    fn ordered(&self, epoch: u64) -> Arc<Order> {
        let epoch = if self.shuffled { epoch } else { 0 };
        let key = self.shuffled.then_some((self.seed, epoch));
        self.orders.of(epoch, || Order::new(self.shards, key, self.counts.as_deref()))
    }

    fn drawn(&self, epoch: u64, stream: usize) -> Vec<Slice> {
        let mut rng = Rng::keyed(Purpose::Resample, self.seed, epoch, stream as u64);
        let draws = self.shards.saturating_sub(stream).div_ceil(self.streams).max(1);
        let draw = |_| {
            let shard = rng.below(self.shards as u64) as usize;
            let count = self.counts.as_ref().and_then(|counts| counts.get(shard).copied());
            Slice { shard, samples: 0..count.unwrap_or(u64::MAX) }
        };
        (0..draws).map(draw).collect()
    }

    /// The piece of the row of all samples that is a stream's.
    fn piece(&self, stream: usize) -> Range<u64> {
        let streams = self.streams as u64;
        let (each, left) = (self.total / streams, self.total % streams);
        let start = |stream: u64| stream * each + stream.min(left);
        let stream = (stream as u64).min(streams);
        start(stream)..start((stream + 1).min(streams))
    }

    /// The streams that this worker of this rank reads: of W ranks, rank r takes the streams r, r + W, r + 2W
    /// …, and its N workers take every N-th of those each. All readers together read all streams, each once.
    /// Ranks are data-parallel ranks here: those that [read the same](Topology::with_data_parallel) are one.
    ///
    /// With one stream for each reader this is [`split_by_node`] and then [`split_by_worker`] on the
    /// [order](Plan::order) of the epoch:
    ///
    /// ```
    /// use shardstream::Topology;
    /// use shardstream::plan::{Plan, split_by_node, split_by_worker};
    ///
    /// let topology = Topology::new(2, 3)?.with_worker(1, 2)?;
    /// let plan = Plan::new(100, topology.readers(), 42)?;
    /// let planned = plan.streams_of(&topology)?.flat_map(|stream| plan.stream(7, stream)).map(|slice| slice.shard);
    /// let split = split_by_worker(split_by_node(plan.order(7), &topology), &topology);
    /// assert!(planned.eq(split));
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Config`] when the streams are not a multiple of the readers: then some would have more to
    /// do than others.
    pub fn streams_of(&self, topology: &Topology) -> Result<StepBy<Range<usize>>> {
        let readers = topology.readers();
        if !self.streams.is_multiple_of(readers) {
            return Err(ErrorKind::Config(self.uneven(topology)).into());
        }
        Ok((topology.reader()..self.streams).step_by(readers))
    }

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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn topologies(world_size: usize, workers: usize) -> impl Iterator<Item = Topology> {
        (0..world_size * workers).map(move |reader| {
            let topology = Topology::new(reader % world_size, world_size).unwrap();
            topology.with_worker(reader / world_size, workers).unwrap()
        })
    }

    fn shards(slices: Vec<Slice>) -> Vec<usize> {
        slices.into_iter().map(|slice| slice.shard).collect()
    }

    /// These orders must never change: a job that resumes after an update would read some shards twice.
    #[test]
    fn golden() {
        let plan = Plan::new(10, 4, 42).unwrap();
        assert_eq!(plan.order(0), [4, 8, 7, 5, 1, 6, 0, 3, 9, 2]);
        assert_eq!(plan.order(1), [2, 9, 0, 6, 8, 7, 5, 1, 4, 3]);
        assert_eq!(shards(Plan::new(10, 1, 43).unwrap().stream(0, 0)), [4, 3, 8, 9, 2, 7, 6, 0, 5, 1]);
        assert_eq!(shards(plan.stream(0, 1)), [8, 6, 2]);
        assert_eq!(shards(plan.stream(0, 3)), [5, 3]);
        let drawn = plan.resampled(true);
        assert_eq!(shards(drawn.stream(0, 1)), [1, 8, 4]);
        assert_eq!(shards(drawn.stream(1, 1)), [6, 2, 6]);
    }

    #[test]
    fn unshuffled_is_the_list() {
        let plan = Plan::new(7, 3, 42).unwrap().shuffled(false);
        assert_eq!(plan.order(5), [0, 1, 2, 3, 4, 5, 6]);
        assert_eq!(shards(plan.stream(5, 0)), [0, 3, 6]);
        assert_eq!(shards(plan.stream(6, 2)), [2, 5]);
        assert!(plan.stream(6, 3).is_empty());
    }

    #[test]
    fn each_stream_needs_a_shard() {
        assert!(matches!(Plan::new(5, 0, 1).unwrap_err().kind(), ErrorKind::Config(_)));
        for (shards, streams) in [(0, 1), (3, 4)] {
            let error = Plan::new(shards, streams, 1).unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::TooFewShards { what: "streams", .. }), "{error}");
        }
    }

    #[test]
    fn uneven_readers_are_told_what_would_do() {
        let topology = Topology::new(0, 4).unwrap().with_worker(1, 2).unwrap();
        let error = Plan::new(100, 12, 1).unwrap().streams_of(&topology).unwrap_err().to_string();
        assert!(error.contains("8 readers (4 ranks with 2 workers each)"), "{error}");
        assert!(error.contains("8 or 16 streams") && error.contains("1, 2, 3, 4, 6, 12"), "{error}");
        let error = Plan::new(100, 3, 1).unwrap().streams_of(&topology).unwrap_err().to_string();
        assert!(error.contains("use 8 streams"), "{error}");
    }

    proptest! {
        #[test]
        fn the_union_of_all_readers_is_the_dataset(
            world_size in 1usize..6, workers in 1usize..4, rounds in 1usize..4, more in 0usize..40,
            seed: u64, epoch: u64, shuffled: bool,
        ) {
            let streams = world_size * workers * rounds;
            let plan = Plan::new(streams + more, streams, seed).unwrap().shuffled(shuffled);
            let mut read: Vec<usize> = topologies(world_size, workers)
                .flat_map(|topology| plan.streams_of(&topology).unwrap())
                .flat_map(|stream| shards(plan.stream(epoch, stream)))
                .collect();
            read.sort_unstable();
            prop_assert_eq!(read, (0..plan.shards()).collect::<Vec<_>>());
        }

        #[test]
        fn a_round_of_all_streams_is_the_same_on_any_number_of_nodes(
            world_size in 1usize..6, workers in 1usize..4, rounds in 1usize..4, more in 0usize..40, seed: u64,
        ) {
            let streams = world_size * workers * rounds;
            let plan = Plan::new(streams + more, streams, seed).unwrap();
            // The first shard of each stream, taken up by readers of the same plan on other numbers of nodes.
            let firsts = |world_size, workers| {
                let mut firsts: Vec<usize> = topologies(world_size, workers)
                    .flat_map(|topology| plan.streams_of(&topology).unwrap())
                    .map(|stream| plan.stream(3, stream)[0].shard)
                    .collect();
                firsts.sort_unstable();
                firsts
            };
            prop_assert_eq!(firsts(world_size, workers), firsts(1, 1));
            prop_assert_eq!(firsts(world_size, 1), firsts(1, workers));
        }

        #[test]
        fn one_stream_for_each_reader_is_the_two_splitters(
            world_size in 1usize..6, workers in 1usize..4, more in 0usize..40, seed: u64, epoch: u64,
        ) {
            let streams = world_size * workers;
            let plan = Plan::new(streams + more, streams, seed).unwrap();
            for topology in topologies(world_size, workers) {
                let planned: Vec<usize> =
                    plan.streams_of(&topology).unwrap().flat_map(|stream| shards(plan.stream(epoch, stream))).collect();
                let split = split_by_worker(split_by_node(plan.order(epoch), &topology), &topology);
                prop_assert_eq!(planned, split.collect::<Vec<_>>());
            }
        }

        #[test]
        fn epochs_and_seeds_differ(seed in 0..u64::MAX, epoch in 0..u64::MAX) {
            // One in 50! orders is another by chance.
            let order = |seed, epoch| Plan::new(50, 1, seed).unwrap().order(epoch);
            prop_assert_ne!(order(seed, epoch), order(seed, epoch + 1));
            prop_assert_ne!(order(seed, epoch), order(seed + 1, epoch));
            prop_assert_eq!(order(seed, epoch), order(seed, epoch));
        }

        #[test]
        fn counted_shards_are_cut_into_equal_pieces(
            counts in prop::collection::vec(0u64..9, 1..12), streams in 1usize..20, seed: u64, epoch: u64,
        ) {
            let total: u64 = counts.iter().sum();
            let Ok(plan) = Plan::counted(counts.clone(), streams, seed) else {
                prop_assert!(total < streams as u64);
                return Ok(());
            };
            let mut read = Vec::new();
            for stream in 0..streams {
                let slices = plan.stream(epoch, stream);
                let samples: Vec<(usize, u64)> = slices
                    .iter()
                    .flat_map(|slice| slice.samples.clone().map(|sample| (slice.shard, sample)))
                    .collect();
                prop_assert_eq!(Some(samples.len() as u64), plan.samples(stream));
                prop_assert!((total / streams as u64..=total.div_ceil(streams as u64)).contains(&(samples.len() as u64)));
                read.extend(samples);
            }
            // One after the other the pieces are the shards in the order of the epoch.
            let row = plan.order(epoch).into_iter().flat_map(|shard| (0..counts[shard]).map(move |n| (shard, n)));
            prop_assert_eq!(read, row.collect::<Vec<_>>());
        }
    }
}
