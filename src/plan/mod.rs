//! In which order: the pure epoch plan and the splitters.
//!
//! Who reads which shard when is no matter of chance and of who comes first, but a function: of the number of shards,
//! a seed, the epoch and the number of *logical streams*. [`Plan`] is that function. An epoch puts all shards into
//! one order, and deals them to the streams like cards; each stream is read by one reader from its first shard to
//! its last.
//!
//! Ranks and workers only take up streams, and the number of streams is not theirs. So what is in stream 5 of epoch
//! 3, and therefore what a global batch that is made of all streams contains, is the same on 1, 2, 4 … nodes: a job
//! can be stopped on 8 nodes and go on with 4, or be debugged on one, with the same data in the same order.

mod split;

pub use split::{check_enough, split_by, split_by_node, split_by_worker};

use crate::error::{ErrorKind, Result};
use crate::rng::{Purpose, Rng};
use crate::topology::Topology;
use std::iter::StepBy;
use std::ops::Range;

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
/// # Ok::<(), shardstream::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Plan {
    shards: usize,
    streams: usize,
    seed: u64,
    shuffled: bool,
}

impl Plan {
    /// Plans `shards` shards, shuffled by `seed`, for `streams` streams.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for no streams, [`ErrorKind::TooFewShards`] for more streams than shards.
    pub fn new(shards: usize, streams: usize, seed: u64) -> Result<Self> {
        if streams == 0 {
            return Err(ErrorKind::Config("a plan needs at least one stream".into()).into());
        }
        check_enough(shards, streams, "streams")?;
        Ok(Plan { shards, streams, seed, shuffled: true })
    }

    /// Whether each epoch has an order of its own, as it is at first, or all have that of the shard list.
    #[must_use]
    pub fn shuffled(self, shuffled: bool) -> Self {
        Plan { shuffled, ..self }
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

    /// All shards of an epoch in the order in which they are dealt: the first to stream 0, the next to stream 1, and
    /// so on, round after round.
    #[must_use]
    pub fn order(&self, epoch: u64) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.shards).collect();
        if self.shuffled {
            Rng::keyed(Purpose::Shards, self.seed, epoch, 0).shuffle(&mut order);
        }
        order
    }

    /// The shards of one stream in the order in which it reads them. A stream beyond the last has none.
    ///
    /// This puts all shards into order first; to have many streams of a large plan, deal [`order`](Plan::order) once.
    #[must_use]
    pub fn stream(&self, epoch: u64, stream: usize) -> Vec<usize> {
        if stream >= self.streams {
            return Vec::new();
        }
        self.order(epoch).into_iter().skip(stream).step_by(self.streams).collect()
    }

    /// The streams that this worker of this rank reads: of W ranks, rank r takes the streams r, r + W, r + 2W …, and
    /// its N workers take every N-th of those each. All readers together read all streams, each once.
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
    /// let planned = plan.streams_of(&topology)?.flat_map(|stream| plan.stream(7, stream));
    /// let split = split_by_worker(split_by_node(plan.order(7), &topology), &topology);
    /// assert!(planned.eq(split));
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Config`] when the streams are not a multiple of the readers: then some would have more to do
    /// than others.
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
            "{streams} streams cannot be dealt evenly to {readers} readers ({} ranks with {} workers each): use \
             {multiples} streams, or a number of readers out of {}",
            topology.world_size(),
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

    /// These orders must never change: a job that goes on after an update would read some shards twice.
    #[test]
    fn golden() {
        let plan = Plan::new(10, 4, 42).unwrap();
        assert_eq!(plan.order(0), [4, 8, 7, 5, 1, 6, 0, 3, 9, 2]);
        assert_eq!(plan.order(1), [2, 9, 0, 6, 8, 7, 5, 1, 4, 3]);
        assert_eq!(Plan::new(10, 1, 43).unwrap().stream(0, 0), [4, 3, 8, 9, 2, 7, 6, 0, 5, 1]);
        assert_eq!(plan.stream(0, 1), [8, 6, 2]);
        assert_eq!(plan.stream(0, 3), [5, 3]);
    }

    #[test]
    fn unshuffled_is_the_list() {
        let plan = Plan::new(7, 3, 42).unwrap().shuffled(false);
        assert_eq!(plan.order(5), [0, 1, 2, 3, 4, 5, 6]);
        assert_eq!(plan.stream(5, 0), [0, 3, 6]);
        assert_eq!(plan.stream(6, 2), [2, 5]);
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
                .flat_map(|stream| plan.stream(epoch, stream))
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
                    .map(|stream| plan.stream(3, stream)[0])
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
                    plan.streams_of(&topology).unwrap().flat_map(|stream| plan.stream(epoch, stream)).collect();
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
    }
}
