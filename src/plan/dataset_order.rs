//! `DatasetOrder`: from which dataset of a mixture each item of a stream comes.

use super::window::{MAX_WINDOW, WeightedWindow, WindowKey, window_length};
use crate::error::{ErrorKind, Result};
use crate::rng::Purpose;
use serde::{Deserialize, Serialize};

/// New weights of all datasets, and the item of the job from which they apply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WeightChange {
    /// The sequence number of the first item to which the weights apply.
    pub(crate) from: u64,
    pub(crate) weights: Vec<u32>,
}

/// Says for each index of a loader's stream from which dataset the item comes.
/// [`random_mix`](crate::adapters::random_mix) uses it for its single stream, with its sources in place of
/// the datasets.
///
/// The items are divided into [windows](super::window) whose length is the sum of the weights. In a window,
/// the number of items of each dataset is exactly the dataset's weight. Their order is random, and depends
/// only on the seed, the stream and the first index of the window. A change of the weights starts a new
/// window, so that the order after the change does not depend on the earlier weights.
#[derive(Debug, Clone)]
pub(crate) struct DatasetOrder {
    /// The phases, sorted by their first index. The first phase starts at index 0.
    phases: Vec<WeightPhase>,
    seed: u64,
    stream: u64,
    window: WeightedWindow,
}

/// A range of items with the same weights.
#[derive(Debug, Clone)]
struct WeightPhase {
    /// The first index.
    from: u64,
    weights: Vec<u32>,
    /// Number of items in a window; 0 only if there are no datasets.
    length: u64,
}

impl DatasetOrder {
    /// The order of stream `stream` with weights that never change.
    ///
    /// # Errors
    /// As [`check`](DatasetOrder::check).
    pub(crate) fn new(weights: &[u32], seed: u64, stream: usize) -> Result<Self> {
        Self::check(weights, &[])?;
        Ok(Self::scheduled(weights, &[], None, stream, 1, seed))
    }

    /// The order of stream `stream`, one of `streams`. It starts with `weights` and applies `changes`.
    ///
    /// Index `i` of stream `s` has the sequence number `i * streams + s`. A change at sequence number `n`
    /// applies to each stream from the stream's first index whose sequence number is at least `n`. If
    /// `origin` is a sequence number, a new window starts there. Items before `origin` have the weights that
    /// apply at `origin`.
    pub(crate) fn scheduled(
        weights: &[u32],
        changes: &[WeightChange],
        origin: Option<u64>,
        stream: usize,
        streams: usize,
        seed: u64,
    ) -> Self {
        let index = |item: u64| item.saturating_sub(stream as u64).div_ceil(streams.max(1) as u64);
        let begun = changes.partition_point(|change| origin.is_some_and(|origin| change.from <= origin));
        let (past, later) = changes.split_at(begun);
        let first = past.last().map_or(weights, |change| &change.weights);
        let mut phases: Vec<WeightPhase> = Vec::with_capacity(later.len() + 2);
        let origin = origin.map(|origin| (index(origin), first));
        let later = later.iter().map(|change| (index(change.from), change.weights.as_slice()));
        for (from, weights) in [(0, first)].into_iter().chain(origin).chain(later) {
            // If two changes are less than `streams` items apart, some streams have no item between the two
            // changes.
            phases.pop_if(|last| last.from == from);
            let length = window_length(weights).unwrap_or_default();
            phases.push(WeightPhase { from, weights: weights.to_vec(), length });
        }
        DatasetOrder { phases, seed, stream: stream as u64, window: WeightedWindow::default() }
    }

    /// Checks weights and changes.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if all weights are 0, the weight of a dataset is always 0, the sum of the
    /// weights is above [`MAX_WINDOW`], or changes are out of order or for another number of datasets.
    pub(crate) fn check(weights: &[u32], changes: &[WeightChange]) -> Result<()> {
        let config = |what: String| Err(ErrorKind::Config(what).into());
        let changed = changes.iter().map(|change| (change.from, change.weights.as_slice()));
        let phases = || std::iter::once((0, weights)).chain(changed.clone());
        for (from, here) in phases().skip(1) {
            if here.len() != weights.len() {
                let (given, count) = (here.len(), weights.len());
                return config(format!(
                    "the weights {here:?} from item {from} on are {given}, but there are {count} datasets: \
                     give one weight for each, in the order of the mix"
                ));
            }
        }
        if let Some(pair) = changes.windows(2).find(|pair| pair[0].from >= pair[1].from) {
            let [first, second] = [&pair[0], &pair[1]].map(|change| change.from);
            return config(format!(
                "the weights from item {second} on follow those from item {first} on: set the changes in \
                 ascending order of items, each item once"
            ));
        }
        if changes.first().is_some_and(|change| change.from == 0) {
            return config(
                "weights from item 0 on: set the first weights by `weight` of each dataset".into(),
            );
        }
        if changes.is_empty() && weights.contains(&0) {
            return config(format!(
                "the weights {weights:?}: use whole numbers from 1 up, or change a weight of 0 later by \
                 `weights_from`"
            ));
        }
        for (from, here) in phases() {
            if window_length(here).is_none() && !here.is_empty() {
                return config(format!(
                    "the weights {here:?} from item {from} on: use whole numbers, not all of them 0, whose \
                     sum is at most {MAX_WINDOW}"
                ));
            }
        }
        let never = |dataset: &usize| phases().all(|(_, weights)| weights.get(*dataset) == Some(&0));
        if let Some(dataset) = (0..weights.len()).find(never) {
            return config(format!(
                "dataset {dataset} always has the weight 0: leave it out, or change its weight later by \
                 `weights_from`"
            ));
        }
        Ok(())
    }

    /// Counts one or more items: the item at `index`, and possibly items after it, all before `until`. Adds
    /// the number of items of each dataset to `counts`, and subtracts it from `left`, the number of items
    /// that each dataset has left. Returns the number of items counted.
    pub(crate) fn count_items(
        &mut self,
        index: u64,
        until: u64,
        left: &mut [u64],
        counts: &mut [u64],
    ) -> u64 {
        let number = self.phase_of(index);
        let end = self.phases.get(number + 1).map_or(until, |next| next.from.min(until));
        if let Some(WeightPhase { from, weights, length }) =
            self.phases.get(number).filter(|phase| phase.length > 0)
        {
            let weighted = left.iter().zip(weights).filter(|(_, weight)| **weight > 0);
            let whole = weighted.map(|(left, weight)| left / u64::from(*weight)).min();
            let windows = whole.unwrap_or(0).min((end - index) / length);
            if (index - from).is_multiple_of(*length) && windows > 0 {
                // Whole windows are counted at once.
                for ((left, count), weight) in left.iter_mut().zip(counts).zip(weights) {
                    let items = windows * u64::from(*weight);
                    *left -= items;
                    *count += items;
                }
                return windows * length;
            }
        }
        let dataset = self.dataset_at(index, |at| left.get(at) == Some(&0));
        // If all other datasets have ended, all items are of this dataset.
        let mut running = left.iter().enumerate().filter(|(_, left)| **left > 0);
        let items = match (running.next(), running.next()) {
            (Some((_, left)), None) => (*left).min(until - index),
            _ => 1,
        };
        left[dataset] -= items;
        counts[dataset] += items;
        items
    }

    /// The dataset of the item at this index. If that dataset has ended, the next dataset with a weight above
    /// 0 replaces it. If all datasets with such a weight have ended, the next dataset with weight 0 replaces
    /// it, because an epoch contains all samples.
    pub(crate) fn dataset_at(&mut self, index: u64, ended: impl Fn(usize) -> bool) -> usize {
        let drawn = self.drawn_at(index);
        if !ended(drawn) {
            return drawn;
        }
        let weights = self.phases.get(self.phase_of(index)).map_or(&[][..], |phase| &phase.weights);
        let count = weights.len();
        let running = || (1..count).map(|step| (drawn + step) % count).filter(|at| !ended(*at));
        running().find(|at| weights[*at] > 0).or_else(|| running().next()).unwrap_or(drawn)
    }

    /// Number of the phase that contains an index of the stream.
    fn phase_of(&self, index: u64) -> usize {
        self.phases.partition_point(|phase| phase.from <= index).saturating_sub(1)
    }

    /// The dataset that is drawn for this index of the stream, whether or not this dataset has ended.
    fn drawn_at(&mut self, index: u64) -> usize {
        let Some(WeightPhase { from, weights, length }) = self.phases.get(self.phase_of(index)) else {
            return 0;
        };
        let [_, _, ..] = weights[..] else { return 0 };
        // Windows have at least one item, so no two windows have the same number.
        let number = from + (index - from) / length + 1;
        let at = ((index - from) % length) as usize;
        let key = WindowKey { purpose: Purpose::Mix, seed: self.seed, number, stream: self.stream };
        self.window.enter(weights, key);
        self.window.choice(at).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn change(from: u64, weights: &[u32]) -> WeightChange {
        WeightChange { from, weights: weights.to_vec() }
    }

    /// The datasets of the first `count` items, if no dataset ends.
    fn datasets(order: &mut DatasetOrder, count: u64) -> Vec<usize> {
        (0..count).map(|index| order.dataset_at(index, |_| false)).collect()
    }

    #[test]
    fn bad_weights_are_errors() {
        let wrong = |weights: &[u32], changes: &[WeightChange]| {
            DatasetOrder::check(weights, changes).unwrap_err().to_string()
        };
        for weights in [&[u32::MAX, u32::MAX][..], &[1 << 16, 1]] {
            assert!(wrong(weights, &[]).contains("whose sum is at most 65536"), "{weights:?}");
        }
        for weights in [&[0][..], &[0, 0], &[1, 0]] {
            assert!(wrong(weights, &[]).contains("whole numbers from 1 up"), "{weights:?}");
        }
        assert!(wrong(&[1, 0], &[change(5, &[2, 0])]).contains("dataset 1 always has the weight 0"));
        assert!(DatasetOrder::check(&[1, 0], &[change(5, &[0, 1])]).is_ok());
        assert!(wrong(&[1, 1], &[change(5, &[0, 0])]).contains("[0, 0] from item 5 on"));
        assert!(wrong(&[1, 1], &[change(5, &[1])]).contains("are 1, but there are 2 datasets"));
        assert!(wrong(&[1, 1], &[change(0, &[1, 2])]).contains("by `weight` of each dataset"));
        for second in [4, 5] {
            let error = wrong(&[1, 1], &[change(5, &[1, 2]), change(second, &[2, 1])]);
            assert!(error.contains("in ascending order of items"), "{error}");
        }
    }

    #[test]
    fn every_item_of_the_job_from_a_change_on_has_the_new_weights() {
        // The change at item 5 of a job with 3 streams applies from index 2 in the streams 0 and 1, and from
        // index 1 in stream 2.
        for (stream, first) in [(0, 2), (1, 2), (2, 1)] {
            let changes = [change(5, &[0, 1])];
            let mut order = DatasetOrder::scheduled(&[1, 0], &changes, None, stream, 3, 7);
            let datasets = datasets(&mut order, 6);
            assert_eq!(datasets.iter().position(|dataset| *dataset == 1), Some(first), "stream {stream}");
            assert!(datasets[first..].iter().all(|dataset| *dataset == 1));
        }
    }

    #[test]
    fn a_change_does_not_affect_earlier_windows() {
        let plain = datasets(&mut DatasetOrder::new(&[3, 2], 42, 3).unwrap(), 40);
        let changes = [change(23, &[1, 4])];
        let changed = datasets(&mut DatasetOrder::scheduled(&[3, 2], &changes, None, 3, 1, 42), 40);
        assert_eq!(changed[..20], plain[..20], "stream 3 of a job with one stream starts at item 3");
        assert_ne!(changed[20..], plain[20..]);
    }

    #[test]
    fn the_order_after_an_origin_does_not_depend_on_earlier_weights() {
        let after = |weights: &[u32], changes: &[WeightChange], origin| {
            datasets(&mut DatasetOrder::scheduled(weights, changes, origin, 0, 2, 42), 40)[10..].to_vec()
        };
        let expected = after(&[9, 9], &[change(20, &[3, 1]), change(50, &[1, 1])], None);
        assert_eq!(after(&[3, 1], &[change(50, &[1, 1])], Some(20)), expected);
        assert_eq!(after(&[0, 1], &[change(11, &[3, 1]), change(50, &[1, 1])], Some(20)), expected);
        assert_eq!(after(&[9, 9], &[change(20, &[3, 1]), change(50, &[1, 1])], Some(20)), expected);
    }

    #[test]
    fn a_dataset_with_a_weight_replaces_one_that_has_ended() {
        let mut order = DatasetOrder::scheduled(&[1, 0, 1], &[change(9, &[1, 1, 1])], None, 0, 1, 0);
        assert!((0..9).all(|index| order.dataset_at(index, |at| at == 0) == 2));
        let all_but_1_ended = |at: usize| at != 1;
        assert!((0..9).all(|index| order.dataset_at(index, all_but_1_ended) == 1));
    }

    fn schedules() -> impl Strategy<Value = (Vec<u32>, Vec<WeightChange>)> {
        let weights = |count| prop::collection::vec(0u32..5, count);
        let changes = move |count| prop::collection::vec((1u64..40, weights(count)), 0..4);
        let all = (1usize..4).prop_flat_map(move |count| (weights(count), changes(count)));
        all.prop_filter_map("valid weights", |(weights, changes)| {
            let mut from = 0;
            let changes = changes.into_iter().map(|(after, weights)| {
                from += after;
                WeightChange { from, weights }
            });
            let changes: Vec<_> = changes.collect();
            DatasetOrder::check(&weights, &changes).ok().map(|()| (weights, changes))
        })
    }

    proptest! {
        /// The test computes the expected shares separately for each item of the job.
        #[test]
        fn every_window_of_every_phase_has_the_shares(
            (weights, changes) in schedules(), streams in 1usize..5, origin in prop::option::of(0u64..150),
        ) {
            for stream in 0..streams {
                let make = || DatasetOrder::scheduled(&weights, &changes, origin, stream, streams, 42);
                let found = datasets(&mut make(), 200 / streams as u64);
                let (mut last, mut window) = (None, vec![0; weights.len()]);
                for (index, dataset) in found.iter().enumerate() {
                    let item = (index * streams + stream) as u64;
                    let begun = |item: u64| changes.iter().filter(|change| change.from <= item).count();
                    // Items before the origin have the weights that apply at the origin.
                    let (phase, begins) = match origin {
                        Some(origin) if item < origin => (begun(origin), false),
                        Some(origin) => (begun(item), item >= origin),
                        None => (begun(item), false),
                    };
                    let weights = if phase == 0 { &weights } else { &changes[phase - 1].weights };
                    if last.replace((phase, begins)) != Some((phase, begins)) || window == *weights {
                        window.fill(0);
                    }
                    window[*dataset] += 1;
                    prop_assert!(
                        window.iter().zip(weights).all(|(given, weight)| given <= weight),
                        "index {} of stream {}: {:?} of {:?}", index, stream, window, weights
                    );
                }
                // The order can be continued from any index.
                let at = |index: usize| make().dataset_at(index as u64, |_| false);
                prop_assert!(found.iter().enumerate().all(|(index, dataset)| at(index) == *dataset));
            }
        }

        #[test]
        fn counting_many_items_at_once_equals_counting_one_by_one(
            (weights, changes) in schedules(), left in prop::collection::vec(0u64..60, 3),
            (from, until) in (0u64..50, 0u64..150),
        ) {
            let make = || DatasetOrder::scheduled(&weights, &changes, None, 1, 2, 7);
            let left = &left[..weights.len()];
            let (mut order, mut expected) = (make(), vec![0; left.len()]);
            for index in from..until {
                if expected == left {
                    break;
                }
                let at = order.dataset_at(index, |at| expected[at] == left[at]);
                expected[at] += 1;
            }
            let mut order = make();
            let mut index = from;
            let mut counts = vec![0; left.len()];
            let mut left = left.to_vec();
            while index < until && left.iter().any(|left| *left > 0) {
                index += order.count_items(index, until, &mut left, &mut counts);
            }
            prop_assert_eq!(counts, expected);
        }
    }
}
