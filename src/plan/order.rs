//! `EpochOrder`: the order of the shards in an epoch, computed once for all streams.

use crate::rng::{Purpose, Rng};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// Number of epochs whose order is cached. There are two, because streams start the next epoch at different
/// times.
const MAX_EPOCHS: usize = 2;

/// Number of shards between two cached sums of samples.
const STRIDE: usize = 64;

/// The shards of an epoch in order, at 4 bytes per shard, and sums of their sample counts.
pub(super) struct EpochOrder {
    shards: OrderedShards,
    /// Number of samples before every [`STRIDE`]-th shard; empty if the numbers of samples are not known.
    sums: Vec<u64>,
}

enum OrderedShards {
    Listed(usize),
    Shuffled(Box<[u32]>),
    /// Shuffled shards whose numbers do not fit into 32 bits.
    ShuffledWide(Box<[usize]>),
}

impl EpochOrder {
    /// The order of `shards` shards: shuffled by the key, or, without a key, the order of the shard list.
    pub(super) fn new(shards: usize, shuffled: Option<OrderKey>, counts: Option<&[u64]>) -> Self {
        let shards = match (shuffled, u32::try_from(shards)) {
            (None, _) => OrderedShards::Listed(shards),
            (Some(key), Ok(shards)) => OrderedShards::Shuffled(shuffle((0..shards).collect(), key)),
            (Some(key), Err(_)) => OrderedShards::ShuffledWide(shuffle((0..shards).collect(), key)),
        };
        let mut order = EpochOrder { shards, sums: Vec::new() };
        if let Some(counts) = counts {
            order.sums.reserve_exact(order.len().div_ceil(STRIDE));
            let mut sum = 0;
            for number in 0..order.len() {
                if number % STRIDE == 0 {
                    order.sums.push(sum);
                }
                sum += counts.get(order.at(number)).copied().unwrap_or_default();
            }
        }
        order
    }

    pub(super) fn len(&self) -> usize {
        match &self.shards {
            OrderedShards::Listed(shards) => *shards,
            OrderedShards::Shuffled(shards) => shards.len(),
            OrderedShards::ShuffledWide(shards) => shards.len(),
        }
    }

    /// The shard with number `number` in the order. `number` must be less than [`len`](EpochOrder::len).
    pub(super) fn at(&self, number: usize) -> usize {
        match &self.shards {
            OrderedShards::Listed(_) => number,
            OrderedShards::Shuffled(shards) => shards[number] as usize,
            OrderedShards::ShuffledWide(shards) => shards[number],
        }
    }

    /// Splits `share`, a range of sample numbers, at the boundaries of shards. Samples are numbered through
    /// all shards, in the order of the epoch. Returns each shard that has samples in `share`, with the range
    /// of these samples in the shard.
    pub(super) fn slices(&self, counts: &[u64], share: Range<u64>) -> Vec<(usize, Range<u64>)> {
        let mut slices = Vec::new();
        let Some(block) = self.sums.partition_point(|sum| *sum <= share.start).checked_sub(1) else {
            return slices;
        };
        let mut at = self.sums[block];
        for shard in (block * STRIDE..self.len()).map(|number| self.at(number)) {
            if at >= share.end {
                break;
            }
            let count = counts.get(shard).copied().unwrap_or_default();
            let in_shard = |bound: u64| bound.clamp(at, at + count) - at;
            let samples = in_shard(share.start)..in_shard(share.end);
            if !samples.is_empty() {
                slices.push((shard, samples));
            }
            at += count;
        }
        slices
    }
}

/// The values on which the order of an epoch depends, besides the number of shards.
#[derive(Debug, Clone, Copy)]
pub(super) struct OrderKey {
    pub(super) purpose: Purpose,
    pub(super) dataset: u64,
    pub(super) seed: u64,
    pub(super) epoch: u64,
}

fn shuffle<T>(mut shards: Box<[T]>, key: OrderKey) -> Box<[T]> {
    let OrderKey { purpose, dataset, seed, epoch } = key;
    Rng::of_dataset(dataset, purpose, seed, epoch, 0).shuffle(&mut shards);
    shards
}

/// A cache of the orders of the last epochs. Clones share it. All caches compare as equal, because the cache
/// is no part of the value of a plan.
#[derive(Clone, Default)]
pub(super) struct OrderCache(Arc<Mutex<CachedOrders>>);

/// Epochs and their orders, the most recently used first.
type CachedOrders = Vec<(u64, Arc<EpochOrder>)>;

impl OrderCache {
    /// The order of an epoch. Waits while another thread makes it.
    pub(super) fn get_or_make(&self, epoch: u64, make: impl FnOnce() -> EpochOrder) -> Arc<EpochOrder> {
        let mut cached = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let order = match cached.iter().position(|(cached_epoch, _)| *cached_epoch == epoch) {
            Some(at) => cached.remove(at).1,
            None => {
                cached.truncate(MAX_EPOCHS - 1);
                Arc::new(make())
            }
        };
        cached.insert(0, (epoch, Arc::clone(&order)));
        order
    }
}

impl PartialEq for OrderCache {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for OrderCache {}

impl Hash for OrderCache {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

impl fmt::Debug for OrderCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OrderCache")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::cell::Cell;

    #[test]
    fn an_order_is_made_once_while_its_epoch_is_read() {
        let orders = OrderCache::default();
        let made = Cell::new(0);
        let read = |epoch| {
            orders.get_or_make(epoch, || {
                made.set(made.get() + 1);
                EpochOrder::new(
                    9,
                    Some(OrderKey { purpose: Purpose::Shards, dataset: 0, seed: 42, epoch }),
                    None,
                )
            })
        };
        // Streams start the next epoch at different times.
        for epoch in [0, 0, 0, 1, 0, 1, 1, 0, 1] {
            read(epoch);
        }
        assert_eq!(made.get(), 2);
        for epoch in [2, 1, 2, 1] {
            read(epoch);
        }
        assert_eq!(made.get(), 3);
        read(0);
        assert_eq!(made.get(), 4, "the cache has the last two epochs only");
        assert_eq!(orders.0.lock().unwrap().len(), MAX_EPOCHS);
    }

    #[test]
    fn numbers_of_any_width_are_shuffled_into_the_same_order() {
        let key = OrderKey { purpose: Purpose::Shards, dataset: 0, seed: 42, epoch: 7 };
        let narrow: Box<[u32]> = shuffle((0..1000).collect(), key);
        let wide: Box<[usize]> = shuffle((0..1000).collect(), key);
        assert!(narrow.iter().map(|shard| *shard as usize).eq(wide.iter().copied()));
    }

    proptest! {
        #[test]
        fn slices_equal_those_of_a_walk_over_all_shards(
            counts in prop::collection::vec(prop_oneof![Just(0u64), 0u64..5], 0..300),
            shuffled: bool, start in 0u64..700, length in 0u64..700,
        ) {
            let key = OrderKey { purpose: Purpose::Shards, dataset: 3, seed: 1, epoch: 2 };
            let order = EpochOrder::new(counts.len(), shuffled.then_some(key), Some(&counts));
            let shards = (0..order.len()).map(|number| order.at(number));
            let samples = shards.flat_map(|shard| (0..counts[shard]).map(move |sample| (shard, sample)));
            let expected: Vec<_> = samples.skip(start as usize).take(length as usize).collect();
            let slices = order.slices(&counts, start..start + length);
            prop_assert!(slices.iter().all(|(_, samples)| !samples.is_empty()));
            let slices = slices.into_iter();
            let samples = slices.flat_map(|(shard, samples)| samples.map(move |sample| (shard, sample)));
            prop_assert_eq!(samples.collect::<Vec<_>>(), expected);
        }
    }
}
