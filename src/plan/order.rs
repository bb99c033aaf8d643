//! The order of an epoch, computed once for all streams that read it.

use crate::rng::{Purpose, Rng};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// Number of epochs whose order is cached: streams enter the next epoch one after the other.
const MAX_EPOCHS: usize = 2;

/// Number of shards between two cached sums of samples.
const STRIDE: usize = 64;

/// The shards of an epoch in order, in 4 bytes each, with the number of samples before them.
pub(super) struct EpochOrder {
    shards: OrderedShards,
    /// Number of samples before every [`STRIDE`]-th shard; empty if samples are not counted.
    sums: Vec<u64>,
}

enum OrderedShards {
    Listed(usize),
    Shuffled(Box<[u32]>),
    /// Shuffled shards whose numbers do not fit into 32 bits.
    ShuffledWide(Box<[usize]>),
}

impl EpochOrder {
    /// The order of `shards` shards, listed or shuffled by this key.
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

    /// The shard at `number` in the order, which is less than [`len`](EpochOrder::len).
    pub(super) fn at(&self, number: usize) -> usize {
        match &self.shards {
            OrderedShards::Listed(_) => number,
            OrderedShards::Shuffled(shards) => shards[number] as usize,
            OrderedShards::ShuffledWide(shards) => shards[number],
        }
    }

    /// The shards with samples in `share`, a range of the samples of all shards in this order, each with its
    /// samples in that range.
    pub(super) fn slices(&self, counts: &[u64], share: Range<u64>) -> Vec<(usize, Range<u64>)> {
        let mut found = Vec::new();
        let Some(block) = self.sums.partition_point(|sum| *sum <= share.start).checked_sub(1) else {
            return found;
        };
        let mut at = self.sums[block];
        for shard in (block * STRIDE..self.len()).map(|number| self.at(number)) {
            if at >= share.end {
                break;
            }
            let count = counts.get(shard).copied().unwrap_or_default();
            let inside = |bound: u64| bound.clamp(at, at + count) - at;
            let samples = inside(share.start)..inside(share.end);
            if !samples.is_empty() {
                found.push((shard, samples));
            }
            at += count;
        }
        found
    }
}

/// What the order of an epoch depends on, apart from the number of shards.
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

/// The orders of the last epochs that were asked for. Clones share them. All caches are equal, since a cache
/// does not change what a plan is.
#[derive(Clone, Default)]
pub(super) struct OrderCache(Arc<Mutex<CachedOrders>>);

/// Orders with their epochs.
type CachedOrders = Vec<(u64, Arc<EpochOrder>)>;

impl OrderCache {
    /// The order of an epoch. Waits while another thread makes it.
    pub(super) fn get_or_make(&self, epoch: u64, make: impl FnOnce() -> EpochOrder) -> Arc<EpochOrder> {
        let mut cached = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = cached.iter().position(|(of, _)| *of == epoch).map(|at| cached.remove(at));
        let (epoch, order) = found.unwrap_or_else(|| {
            cached.truncate(MAX_EPOCHS - 1);
            (epoch, Arc::new(make()))
        });
        // The most recent order comes first.
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
        let (orders, made) = (OrderCache::default(), Cell::new(0));
        let ask = |epoch| {
            orders.get_or_make(epoch, || {
                made.set(made.get() + 1);
                EpochOrder::new(
                    9,
                    Some(OrderKey { purpose: Purpose::Shards, dataset: 0, seed: 42, epoch }),
                    None,
                )
            })
        };
        // Streams go from epoch to epoch at different times.
        for epoch in [0, 0, 0, 1, 0, 1, 1, 0, 1] {
            ask(epoch);
        }
        assert_eq!(made.get(), 2);
        for epoch in [2, 1, 2, 1] {
            ask(epoch);
        }
        assert_eq!(made.get(), 3);
        ask(0);
        assert_eq!(made.get(), 4, "epochs that nobody reads are forgotten");
        assert_eq!(orders.0.lock().unwrap().len(), MAX_EPOCHS);
    }

    #[test]
    fn numbers_of_any_width_are_shuffled_alike() {
        let key = OrderKey { purpose: Purpose::Shards, dataset: 0, seed: 42, epoch: 7 };
        let narrow: Box<[u32]> = shuffle((0..1000).collect(), key);
        let wide: Box<[usize]> = shuffle((0..1000).collect(), key);
        assert!(narrow.iter().map(|shard| *shard as usize).eq(wide.iter().copied()));
    }

    proptest! {
        #[test]
        fn slices_are_found_as_by_walking_all_shards(
            counts in prop::collection::vec(prop_oneof![Just(0u64), 0u64..5], 0..300),
            shuffled: bool, start in 0u64..700, length in 0u64..700,
        ) {
            let key = OrderKey { purpose: Purpose::Shards, dataset: 3, seed: 1, epoch: 2 };
            let order = EpochOrder::new(counts.len(), shuffled.then_some(key), Some(&counts));
            let row = (0..order.len()).map(|number| order.at(number));
            let row = row.flat_map(|shard| (0..counts[shard]).map(move |sample| (shard, sample)));
            let expected: Vec<_> = row.skip(start as usize).take(length as usize).collect();
            let slices = order.slices(&counts, start..start + length);
            prop_assert!(slices.iter().all(|(_, samples)| !samples.is_empty()));
            let slices = slices.into_iter();
            let found = slices.flat_map(|(shard, samples)| samples.map(move |sample| (shard, sample)));
            prop_assert_eq!(found.collect::<Vec<_>>(), expected);
        }
    }
}
