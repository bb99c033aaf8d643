//! Computes what each rank reads in an epoch.

use super::Options;
use crate::context::Context;
use crate::failure::Failure;
use serde::Serialize;
use shardstream::index::ShardIndex;
use shardstream::plan::{Plan, Slice};
use shardstream::prelude::*;
use std::ops::Range;

/// Default size of a request in bytes.
const REQUEST_BYTES: u64 = 8 << 20;

/// What one rank reads in an epoch.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct RankLoad {
    pub(super) rank: usize,
    pub(super) streams: usize,
    pub(super) samples: u64,
    pub(super) bytes: u64,
    /// Number of shards from which the rank reads samples.
    pub(super) shards: usize,
    pub(super) requests: u64,
    pub(super) steps: u64,
}

/// The datasets and loaders of a training with these options.
pub(super) struct Training<'a> {
    pub(super) options: &'a Options,
    /// The index of the shards, which gives the size and the number of samples of each shard.
    pub(super) shards: &'a Index,
    /// Whether the dataset has an index. Without an index, streams get whole shards.
    pub(super) is_indexed: bool,
    pub(super) streams: usize,
    pub(super) context: &'a Context,
}

impl Training<'_> {
    /// The dataset of one rank.
    fn dataset(&self, rank: usize) -> Result<Dataset, Failure> {
        let options = self.options;
        let dataset = Dataset::builder(self.shards.shards())
            .store(self.context.store.clone())
            .limits(self.context.reader.limits)
            .topology(Topology::new(rank, usize::from(options.world_size))?)
            .streams(self.streams)
            .shuffle_shards(true)
            .keep_shards(options.training.keep_shards)
            .seed(options.seed);
        let dataset = if self.is_indexed { dataset.index(self.shards.clone()) } else { dataset };
        Ok(dataset.build()?)
    }

    /// The plan of the shards, which is the same on all ranks.
    pub(super) fn plan(&self) -> Result<Plan, Failure> {
        Ok(self.dataset(0)?.plan().clone())
    }

    /// What each rank reads in the epoch of `--epoch`.
    pub(super) fn rank_loads(&self) -> Result<Vec<RankLoad>, Failure> {
        let (epoch, plan) = (self.options.epoch, self.plan()?);
        let shards: Vec<&ShardIndex> = self.shards.iter().collect();
        let counted = |slice: Slice| -> Option<(usize, Range<u64>)> {
            let samples = shards.get(slice.shard)?.samples();
            Some((slice.shard, slice.samples.start..slice.samples.end.min(samples)))
        };
        let streams: Vec<Vec<(usize, Range<u64>)>> = (0..plan.streams())
            .map(|stream| plan.stream(epoch, stream).into_iter().filter_map(counted).collect())
            .collect();
        let length = |slices: &Vec<(usize, Range<u64>)>| {
            slices.iter().map(|(_, samples)| samples.end - samples.start).sum()
        };
        let lengths: Vec<u64> = streams.iter().map(length).collect();
        let mut loads = Vec::new();
        for rank in 0..usize::from(self.options.world_size) {
            self.context.interrupt.check()?;
            let dataset = self.dataset(rank)?;
            let loader = Loader::builder(dataset.clone())
                .threads(1)
                .batch(self.options.batch as usize)
                .last_batch(self.options.last_batch.into())
                .uneven_steps(true)
                .build()?;
            let steps = loader.steps().unwrap_or_else(|| loader.steps_with(&lengths));
            let mut load = RankLoad { rank, steps, streams: dataset.streams().len(), ..RankLoad::default() };
            let mut read = vec![false; shards.len()];
            for (number, samples) in dataset.streams().iter().flat_map(|stream| &streams[*stream]) {
                let bytes = bytes_of(shards[*number], samples.clone());
                load.samples += samples.end - samples.start;
                load.bytes += bytes.end - bytes.start;
                load.requests += (bytes.end - bytes.start).div_ceil(REQUEST_BYTES).max(1);
                read[*number] = true;
            }
            load.shards = read.iter().filter(|read| **read).count();
            loads.push(load);
        }
        Ok(loads)
    }
}

/// The bytes that are read for a range of samples of a shard.
pub(super) fn bytes_of(shard: &ShardIndex, samples: Range<u64>) -> Range<u64> {
    if samples.is_empty() {
        return 0..0;
    }
    let (whole, end) = (shard.bytes().unwrap_or(0), samples.end);
    // A compressed shard is read from its beginning.
    let compressed = || 0..(whole as f64 * end as f64 / shard.samples().max(1) as f64) as u64;
    shard.range(samples).unwrap_or_else(compressed)
}
