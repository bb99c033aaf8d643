//! Mixtures whose weights change at given items of the job.

use super::{Found, all, good, next, rank, saved};
use crate::support::Every;
use crate::support::versioned_source::{VersionedSource, counts};
use shardstream::ErrorKind;
use shardstream::loader::{Batches, LastBatch, LoaderBuilder};
use shardstream::prelude::*;

const STREAMS: usize = 4;
/// The weights from items 27, 66 and 93 on: the second dataset joins at 27 and is alone from 66 to 93.
const CHANGES: [(u64, [u32; 2]); 3] = [(27, [2, 1]), (66, [0, 1]), (93, [1, 1])];
const SIZES: [usize; 5] = [9; 5];

/// A mix of two datasets of numbers. The numbers of the second dataset start at 100,000.
fn mix(
    threads: usize,
    topology: Topology,
    changes: &[(u64, [u32; 2])],
    last: LastBatch,
) -> LoaderBuilder<u64> {
    let part = |number: u64, weight| {
        let dataset = VersionedSource::of(&SIZES).dataset(SIZES.len()).streams(STREAMS).topology(topology);
        let dataset = dataset.index(counts(&SIZES)).shuffle_shards(true).seed(number);
        let items = super::numbers(dataset.build().unwrap()).shuffle(5).weight(weight).threads(threads);
        items.map(move |sample| Ok(100_000 * number + sample))
    };
    let mix = Loader::mix([part(0, 1), part(1, 0)]).last_batch(last);
    changes.iter().fold(mix, |mix, (item, weights)| mix.weights_from(*item, *weights))
}

fn is_second(item: &u64) -> bool {
    *item >= 100_000
}

/// The weights that apply to an item of the job.
fn weights(item: usize) -> [u32; 2] {
    let past = CHANGES.iter().take_while(|(from, _)| *from <= item as u64);
    past.last().map_or([1, 0], |(_, weights)| *weights)
}

#[test]
fn shares_are_exact_before_and_after_each_change() {
    let loader = mix(0, rank(0, 1), &CHANGES, LastBatch::Keep).batch(8).build().unwrap();
    let items: Vec<u64> = good(&all(loader.epochs(0), 20)).concat();
    for stream in 0..STREAMS {
        let (mut phase, mut window) = (weights(0), [0; 2]);
        for place in (stream..items.len()).step_by(STREAMS) {
            if phase != weights(place) {
                (phase, window) = (weights(place), [0; 2]);
            } else if window == phase {
                window = [0; 2];
            }
            window[usize::from(is_second(&items[place]))] += 1;
            assert!(window[0] <= phase[0] && window[1] <= phase[1], "item {place}: {window:?} of {phase:?}");
        }
    }
    assert!(!items[..27].iter().any(is_second) && items[66..93].iter().every(is_second));
}

#[test]
fn weights_change_at_the_same_item_on_any_ranks_and_threads() {
    let loader = |threads, number, ranks, batch: usize| {
        mix(threads, rank(number, ranks), &CHANGES, LastBatch::Keep).batch(batch / ranks).build().unwrap()
    };
    let whole = all(loader(0, 0, 1, 8).epochs(0), 18);
    let rows = good(&whole);
    assert_eq!(all(loader(3, 0, 1, 8).epochs(0), 18), whole, "on threads");
    // Another batch size gives the same order of items.
    let other = good(&all(loader(0, 0, 1, 12).epochs(0), 12)).concat();
    assert_eq!(other, rows.concat()[..other.len()]);
    for (at, (_, state)) in whole.iter().enumerate() {
        for (threads, ranks) in [(0, 1), (2, 1), (0, 2), (2, 4)] {
            let mut runs: Vec<Batches<_>> = (0..ranks)
                .map(|number| loader(threads, number, ranks, 8).restore(&saved(state)).unwrap())
                .collect();
            for (step, row) in rows[at + 1..].iter().enumerate() {
                let each: Vec<Vec<u64>> = runs.iter_mut().map(|run| next(run).unwrap().unwrap()).collect();
                let dealt: Vec<u64> = (0..8).map(|g| each[g % ranks][g / ranks]).collect();
                assert_eq!(dealt, *row, "after {at}, {threads} threads, {ranks} ranks, step {step}");
            }
        }
    }
}

#[test]
fn an_epoch_has_all_samples_under_any_weights() {
    for changes in [&[(27, [1, 1]), (40, [1, 0])][..], &[(1, [0, 1])], &[(80, [1, 1])]] {
        let each: Vec<u64> = {
            let numbers = (0..5).flat_map(|shard| (0..9).map(move |sample| 1000 * shard + sample));
            let first: Vec<u64> = numbers.collect();
            first.iter().copied().chain(first.iter().map(|number| 100_000 + number)).collect()
        };
        let loader = mix(0, rank(0, 1), changes, LastBatch::Keep).batch(8).build().unwrap();
        let mut found = good(&all(loader.epoch(3), usize::MAX)).concat();
        found.sort_unstable();
        assert_eq!(found, each, "{changes:?}");
        assert_eq!(loader.steps(), Some(12));
        // Steps can be skipped across changes of weights and ends of datasets.
        let rows: Vec<Found> = loader.epoch(3).map(|batch| Ok(batch.unwrap().into_items())).collect();
        for step in 0..=rows.len() {
            let later = all(loader.at(3, step as u64).unwrap(), usize::MAX);
            assert!(later.iter().map(|(row, _)| row).eq(&rows[step..]), "{changes:?}, step {step}");
        }
    }
}

#[test]
fn a_state_of_another_schedule_is_refused() {
    let loader =
        |changes: &[(u64, [u32; 2])]| mix(0, rank(0, 1), changes, LastBatch::Keep).batch(8).build().unwrap();
    let state = loader(&CHANGES).epochs(0).next().unwrap().unwrap().state().unwrap().clone();
    let other = |changes: &[(u64, [u32; 2])]| {
        let error = loader(changes).restore(&saved(&state)).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::State(_)), "{error:?}");
        error.to_string()
    };
    let there = "the changes of weights are [2, 1] from item 27 on, [0, 1] from item 66 on, [1, 1] from item \
                 93 on in the state, and ";
    let found = other(&CHANGES[..2]);
    assert!(
        found.contains(&format!("{there}[2, 1] from item 27 on, [0, 1] from item 66 on here")),
        "{found}"
    );
    let plain = mix(0, rank(0, 1), &[(27, [2, 1])], LastBatch::Keep).batch(8).build().unwrap();
    let mut document = serde_json::to_value(plain.epochs(0).state()).unwrap();
    document["of"]["schedule"] = serde_json::json!([{"from": 27, "weights": [2, 2]}]);
    let state: shardstream::State = document.to_string().parse().unwrap();
    assert!(plain.restore(&state).unwrap_err().to_string().contains("[2, 2] from item 27 on in the state"));
    // The state of a loader without a weight schedule does not mention a weight schedule.
    let none =
        super::numbers(VersionedSource::of(&[9]).dataset(1).build().unwrap()).batch(3).build().unwrap();
    assert!(!none.epoch(0).state().to_string().contains("schedule"));
}

#[test]
fn a_bad_schedule_is_an_error_of_build() {
    let refused = |builder: LoaderBuilder<u64>| {
        let error = builder.batch(2).build().unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Config(_)), "{error:?}");
        error.to_string()
    };
    let mix = || mix(0, rank(0, 1), &[(27, [2, 1])], LastBatch::Keep);
    assert!(refused(mix().weights_from(30, [1])).contains("are 1, but there are 2 datasets"));
    assert!(refused(mix().weights_from(27, [1, 1])).contains("in ascending order of items"));
    assert!(refused(mix().weights_from(30, [0, 0])).contains("not all of them 0"));
    assert!(
        refused(self::mix(0, rank(0, 1), &[], LastBatch::Keep)).contains("[1, 0]: use whole numbers from 1")
    );
    let never = self::mix(0, rank(0, 1), &[(27, [2, 0])], LastBatch::Keep);
    assert!(refused(never).contains("dataset 1 always has the weight 0"));
    assert!(refused(Loader::mix([mix()])).contains("`weights_from` are options of the mix"));
}
