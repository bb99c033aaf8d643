//! Simulates the caches of the nodes over several epochs.

use crate::failure::Failure;
use crate::interrupt::Interrupt;
use shardstream::plan::{Plan, Slice};
use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::Range;

/// Number of epochs that are simulated.
pub(super) const EPOCHS: u64 = 5;
/// Maximum number of nodes that are simulated.
const MAX_NODES: usize = 8;
/// Size of the blocks that a cache keeps. For a large dataset, larger blocks are simulated.
const BLOCK_BYTES: u64 = 1 << 20;
/// Maximum number of blocks of all shards together. If there would be more, larger blocks are simulated.
const MAX_BLOCKS: u64 = 200_000;

/// The nodes of a job, each with a cache that its ranks share.
pub(super) struct Nodes<'a> {
    /// The size of each shard in bytes.
    pub(super) sizes: &'a [u64],
    /// Returns the byte range that a slice reads in its shard.
    pub(super) bytes_of: &'a dyn Fn(&Slice) -> Range<u64>,
    pub(super) nodes: usize,
    pub(super) world_size: usize,
    /// The size of each cache; `u64::MAX` if it has no limit.
    pub(super) cache_bytes: u64,
    /// The first epoch that is simulated.
    pub(super) first_epoch: u64,
    pub(super) interrupt: &'a Interrupt,
}

/// The number of a shard, and the number of a block in it.
type BlockNumber = (usize, u64);

/// A read of some bytes of a block.
#[derive(Debug, Clone, Copy)]
struct BlockRead {
    block: BlockNumber,
    /// Number of bytes that are read.
    bytes: u64,
    /// Size of the whole block, which the cache keeps.
    stored: u64,
}

impl Nodes<'_> {
    /// For each epoch of this plan, the share of the read bytes that are in a cache already.
    ///
    /// The caches behave as the store's cache. If each stream reads the same shards in every epoch, a full
    /// cache keeps its blocks and adds none. Otherwise it evicts the least recently used block.
    pub(super) fn hit_rates(&self, plan: &Plan) -> Result<Vec<f64>, Failure> {
        let mut hits = vec![0_u64; EPOCHS as usize];
        let mut reads = vec![0_u64; EPOCHS as usize];
        for node in self.simulated() {
            let mut cache = BlockCache::new(self.cache_bytes, !plan.is_kept());
            for (epoch, (hits, reads)) in (self.first_epoch..).zip(hits.iter_mut().zip(&mut reads)) {
                self.interrupt.check()?;
                for read in self.reads(node, plan, epoch) {
                    *reads += read.bytes;
                    *hits += if cache.has(read) { read.bytes } else { 0 };
                }
            }
        }
        Ok(hits.iter().zip(&reads).map(|(hits, reads)| *hits as f64 / (*reads).max(1) as f64).collect())
    }

    /// The cache size that holds everything that one node reads in an epoch, whichever node it is.
    pub(super) fn epoch_bytes(&self, plan: &Plan) -> u64 {
        let of_node = |node| {
            let reads = self.reads(node, plan, self.first_epoch).into_iter();
            let blocks: HashSet<(BlockNumber, u64)> = reads.map(|read| (read.block, read.stored)).collect();
            blocks.into_iter().map(|(_, stored)| stored).sum()
        };
        self.simulated().map(of_node).max().unwrap_or(0)
    }

    /// The numbers of the nodes that are simulated.
    fn simulated(&self) -> impl Iterator<Item = usize> {
        (0..self.nodes).step_by(self.nodes.div_ceil(MAX_NODES))
    }

    /// The reads of a node in an epoch. The node's streams take turns: each reads one slice at a time.
    fn reads(&self, node: usize, plan: &Plan, epoch: u64) -> Vec<BlockRead> {
        let ranks = self.world_size / self.nodes;
        let is_here = |stream: &usize| stream % self.world_size / ranks == node;
        let streams: Vec<Vec<Slice>> =
            (0..plan.streams()).filter(is_here).map(|stream| plan.stream(epoch, stream)).collect();
        let rounds = streams.iter().map(Vec::len).max().unwrap_or(0);
        let in_turn =
            (0..rounds).flat_map(|round| streams.iter().filter_map(move |slices| slices.get(round)));
        let block_bytes = BLOCK_BYTES.max(self.sizes.iter().sum::<u64>() / MAX_BLOCKS);
        in_turn.flat_map(|slice| self.blocks(slice, block_bytes)).collect()
    }

    fn blocks(&self, slice: &Slice, block_bytes: u64) -> impl Iterator<Item = BlockRead> + use<> {
        let (shard, range) = (slice.shard, (self.bytes_of)(slice));
        let size = self.sizes.get(shard).copied().unwrap_or(0).max(range.end);
        (range.start / block_bytes..range.end.div_ceil(block_bytes)).map(move |block| {
            let (start, end) = (block * block_bytes, (block + 1) * block_bytes);
            let bytes = range.end.min(end) - range.start.max(start);
            BlockRead { block: (shard, block), bytes, stored: size.min(end) - start }
        })
    }
}

/// A cache of blocks.
struct BlockCache {
    max_bytes: u64,
    /// Whether a full cache evicts the least recently used block. If false, a full cache keeps its blocks and
    /// adds no block.
    evicts: bool,
    bytes: u64,
    /// Number of reads.
    reads: u64,
    /// For each block in the cache, its size and the number of its last read.
    blocks: HashMap<BlockNumber, (u64, u64)>,
    /// The reads in their order, each with the block and the number of the read. If the cache is too
    /// large, reads are removed from the front. A block is evicted when its last read is removed.
    order: VecDeque<(BlockNumber, u64)>,
}

impl BlockCache {
    fn new(max_bytes: u64, evicts: bool) -> Self {
        BlockCache { max_bytes, evicts, bytes: 0, reads: 0, blocks: HashMap::new(), order: VecDeque::new() }
    }

    /// Whether a block is in the cache. If the block is not in the cache, the cache may add the block.
    fn has(&mut self, read: BlockRead) -> bool {
        if !self.evicts {
            let has_room = self.bytes.saturating_add(read.stored) <= self.max_bytes;
            let is_hit = self.blocks.contains_key(&read.block);
            if has_room && !is_hit {
                self.blocks.insert(read.block, (read.stored, 0));
                self.bytes += read.stored;
            }
            return is_hit;
        }
        self.reads += 1;
        self.order.push_back((read.block, self.reads));
        let is_hit = self.blocks.insert(read.block, (read.stored, self.reads)).is_some();
        if !is_hit {
            self.bytes += read.stored;
        }
        while self.bytes > self.max_bytes {
            let Some((block, number)) = self.order.pop_front() else { break };
            if let Some((stored, last)) = self.blocks.get(&block).copied()
                && last == number
            {
                self.blocks.remove(&block);
                self.bytes -= stored;
            }
        }
        is_hit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls `check` with 8 nodes that read 160 shards of 4 MiB in 16 streams.
    fn of_8_nodes<T>(cache_bytes: u64, check: impl Fn(&Nodes<'_>, Plan) -> T) -> T {
        let (sizes, bytes_of) = (vec![4 << 20; 160], |slice: &Slice| {
            let samples = &slice.samples;
            samples.start << 20..samples.end.min(4) << 20
        });
        let interrupt = Interrupt::default();
        let nodes = Nodes {
            sizes: &sizes,
            bytes_of: &bytes_of,
            nodes: 8,
            world_size: 16,
            cache_bytes,
            first_epoch: 3,
            interrupt: &interrupt,
        };
        check(&nodes, Plan::new(160, 16, 42).unwrap())
    }

    #[test]
    fn a_cache_has_the_shards_that_streams_keep_if_they_fit() {
        let epoch_bytes = of_8_nodes(0, |nodes, plan| nodes.epoch_bytes(&plan.kept(true)));
        assert_eq!(epoch_bytes, 20 * (4 << 20));
        let kept = |bytes| of_8_nodes(bytes, |nodes, plan| nodes.hit_rates(&plan.kept(true)).unwrap());
        assert_eq!(kept(epoch_bytes), [0.0, 1.0, 1.0, 1.0, 1.0]);
        assert_eq!(kept(0), [0.0; 5]);
        // A cache that is too small keeps the blocks that it stored first, and evicts none.
        assert_eq!(kept(epoch_bytes / 2), [0.0, 0.5, 0.5, 0.5, 0.5]);
        assert_eq!(kept(epoch_bytes / 5), [0.0, 0.2, 0.2, 0.2, 0.2]);
    }

    /// If k of 8 nodes have read a shard, the node that reads the shard next has the shard in its cache with
    /// a probability of k / 8.
    #[test]
    fn a_cache_has_shards_that_are_dealt_anew_only_by_chance() {
        let dealt = of_8_nodes(u64::MAX, |nodes, plan| nodes.hit_rates(&plan).unwrap());
        for (rate, expected) in dealt.iter().zip([0.0, 0.125, 0.234, 0.330, 0.414]) {
            assert!((rate - expected).abs() < 0.1, "{dealt:?}");
        }
    }

    #[test]
    fn slices_in_the_same_block_share_it() {
        let plan = Plan::counted([4; 10], 4, 1).unwrap().kept(true);
        let (sizes, bytes_of) =
            (vec![4 << 18; 10], |slice: &Slice| slice.samples.start << 18..slice.samples.end << 18);
        let interrupt = Interrupt::default();
        let nodes = Nodes {
            sizes: &sizes,
            bytes_of: &bytes_of,
            nodes: 1,
            world_size: 1,
            cache_bytes: u64::MAX,
            first_epoch: 0,
            interrupt: &interrupt,
        };
        assert_eq!(nodes.epoch_bytes(&plan), 10 << 20);
        let rates = nodes.hit_rates(&plan).unwrap();
        // In the first epoch, if two slices share a block, the second slice finds it in the cache.
        assert!(rates[0] > 0.0 && rates[0] < 0.5 && rates[1..].iter().all(|rate| *rate == 1.0), "{rates:?}");
    }
}
