//! The order of an epoch, worked out once for all streams that read it.

use crate::rng::{Purpose, Rng};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// Number of epochs whose order is kept: streams enter the next epoch one after the other.
const KEPT: usize = 2;

/// Number of shards from one sum of samples that is kept to the next.
const STRIDE: usize = 64;

/// The shards of an epoch in order, in 4 bytes each, and how many samples come before them.
pub(super) struct Order {
    shards: Numbers,
    /// The samples before every [`STRIDE`]-th shard; empty where samples were not counted.
    sums: Vec<u64>,
}

enum Numbers {
    Listed(usize),
    Shuffled(Box<[u32]>),
    /// More than 32 bits can number.
    Many(Box<[usize]>),
}

impl Order {
    /// The order of `shards` shards, listed or shuffled by this seed and epoch.
    pub(super) fn new(shards: usize, shuffled: Option<(u64, u64)>, counts: Option<&[u64]>) -> Self {
        let shards = match (shuffled, u32::try_from(shards)) {
            (None, _) => Numbers::Listed(shards),
            (Some(key), Ok(shards)) => Numbers::Shuffled(shuffle((0..shards).collect(), key)),
            (Some(key), Err(_)) => Numbers::Many(shuffle((0..shards).collect(), key)),
        };
        let mut order = Order { shards, sums: Vec::new() };
        if let Some(counts) = counts {
            order.sums.reserve_exact(order.len().div_ceil(STRIDE));
            let mut sum = 0;
            for place in 0..order.len() {
                if place % STRIDE == 0 {
                    order.sums.push(sum);
                }
                sum += counts.get(order.at(place)).copied().unwrap_or_default();
            }
        }
        order
    }

    pub(super) fn len(&self) -> usize {
        match &self.shards {
            Numbers::Listed(shards) => *shards,
            Numbers::Shuffled(shards) => shards.len(),
            Numbers::Many(shards) => shards.len(),
        }
    }

    /// The shard at a place, which is less than [`len`](Order::len).
    pub(super) fn at(&self, place: usize) -> usize {
        match &self.shards {
            Numbers::Listed(_) => place,
            Numbers::Shuffled(shards) => shards[place] as usize,
            Numbers::Many(shards) => shards[place],
        }
    }

    /// The shards that have samples in `piece` of the row of all samples, each with those that it has there.
    pub(super) fn slices(&self, counts: &[u64], piece: Range<u64>) -> Vec<(usize, Range<u64>)> {
        let mut found = Vec::new();
        let Some(block) = self.sums.partition_point(|sum| *sum <= piece.start).checked_sub(1) else {
            return found;
        };
        let mut at = self.sums[block];
        for shard in (block * STRIDE..self.len()).map(|place| self.at(place)) {
            if at >= piece.end {
                break;
            }
            let count = counts.get(shard).copied().unwrap_or_default();
            let inside = |bound: u64| bound.clamp(at, at + count) - at;
            let samples = inside(piece.start)..inside(piece.end);
            if !samples.is_empty() {
                found.push((shard, samples));
            }
            at += count;
        }
        found
    }
}

fn shuffle<T>(mut shards: Box<[T]>, (seed, epoch): (u64, u64)) -> Box<[T]> {
    Rng::keyed(Purpose::Shards, seed, epoch, 0).shuffle(&mut shards);
    shards
}

/// The orders of the epochs that were asked for last. Clones share them. They are no part of what a plan is,
/// so that any two are equal.
#[derive(Clone, Default)]
pub(super) struct Orders(Arc<Mutex<Kept>>);

/// Orders with their epochs.
type Kept = Vec<(u64, Arc<Order>)>;

impl Orders {
    /// The order of an epoch. Whoever asks while another thread makes it waits.
    pub(super) fn of(&self, epoch: u64, make: impl FnOnce() -> Order) -> Arc<Order> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = kept.iter().position(|(of, _)| *of == epoch).map(|at| kept.remove(at));
        let (epoch, order) = found.unwrap_or_else(|| {
            kept.truncate(KEPT - 1);
            (epoch, Arc::new(make()))
        });
        // The one that was asked for last comes first.
        kept.insert(0, (epoch, Arc::clone(&order)));
        order
    }
}

impl PartialEq for Orders {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Orders {}

impl Hash for Orders {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

impl fmt::Debug for Orders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Orders")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::cell::Cell;

    #[test]
    fn an_order_is_made_once_while_its_epoch_is_read() {
        let (orders, made) = (Orders::default(), Cell::new(0));
        let ask = |epoch| {
            orders.of(epoch, || {
                made.set(made.get() + 1);
                Order::new(9, Some((42, epoch)), None)
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
        assert_eq!(orders.0.lock().unwrap().len(), KEPT);
    }

    #[test]
    fn numbers_of_any_width_are_shuffled_alike() {
        let narrow: Box<[u32]> = shuffle((0..1000).collect(), (42, 7));
        let wide: Box<[usize]> = shuffle((0..1000).collect(), (42, 7));
        assert!(narrow.iter().map(|shard| *shard as usize).eq(wide.iter().copied()));
    }

    proptest! {
        #[test]
        fn slices_are_found_as_by_walking_all_shards(
            counts in prop::collection::vec(prop_oneof![Just(0u64), 0u64..5], 0..300),
            shuffled: bool, start in 0u64..700, length in 0u64..700,
        ) {
            let order = Order::new(counts.len(), shuffled.then_some((1, 2)), Some(&counts));
            let row = (0..order.len()).map(|place| order.at(place));
            let row = row.flat_map(|shard| (0..counts[shard]).map(move |sample| (shard, sample)));
            let expected: Vec<_> = row.skip(start as usize).take(length as usize).collect();
            let slices = order.slices(&counts, start..start + length);
            prop_assert!(slices.iter().all(|(_, samples)| !samples.is_empty()));
            let found = slices.into_iter().flat_map(|(shard, samples)| samples.map(move |sample| (shard, sample)));
            prop_assert_eq!(found.collect::<Vec<_>>(), expected);
        }
    }
}
