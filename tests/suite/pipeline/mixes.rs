//! Mixed datasets, each with its own stages.

use super::{all, good, next, number, rank, saved};
use crate::support::Every;
use crate::support::versioned_source::VersionedSource;
use shardstream::adapters::random_mix;
use shardstream::loader::{Batches, LoaderBuilder};
use shardstream::prelude::*;
use std::sync::Arc;

/// The items of two datasets. Each dataset has stages of its own.
fn parts(threads: usize, topology: Topology) -> [LoaderBuilder<Vec<u64>>; 2] {
    let of = |sizes: &[usize], seed| {
        let dataset = VersionedSource::of(sizes).dataset(sizes.len()).streams(4).topology(topology);
        Loader::builder(dataset.shuffle_shards(true).seed(seed).build().unwrap()).threads(threads)
    };
    let web = of(&[30; 4], 1).shuffle(7).weight(3).filter(|sample| !number(sample).is_multiple_of(3));
    let web = web.flat_map(|sample| Ok(vec![vec![number(&sample)]; (number(&sample) % 3) as usize]));
    let books = of(&[12; 4], 2).passes(2).map(|sample| Ok(vec![100_000 + number(&sample); 5]));
    [web, books.chunked(7, 9)]
}

fn mix(threads: usize, topology: Topology) -> LoaderBuilder<Vec<u64>> {
    Loader::mix(parts(threads, topology))
}

fn is_book(item: &[u64]) -> bool {
    item.len() == 7
}

#[test]
fn each_dataset_of_a_mix_has_its_own_stages() {
    let loader = |threads, number, ranks| {
        let mix = mix(threads, rank(number, ranks)).uneven_steps(true);
        mix.batch(8 / ranks).build().unwrap()
    };
    let begin =
        |loader: &Loader<Batch<Vec<u64>>>, endless| if endless { loader.epochs(0) } else { loader.epoch(0) };
    for endless in [false, true] {
        let most = if endless { 30 } else { usize::MAX };
        let whole = all(begin(&loader(0, 0, 1), endless), most);
        let rows = good(&whole);
        assert_eq!(rows.len(), whole.len());
        // Every stream takes three items of the first dataset and then one item of the second dataset, until
        // a dataset ends.
        for turn in 0..3 {
            let stream = |local_stream: usize| (0..4).map(move |at| 16 * turn + 4 * at + local_stream);
            let item = |place: usize| &rows[place / 8][place % 8];
            assert!(
                (0..4)
                    .all(|local_stream| stream(local_stream).filter(|place| is_book(item(*place))).count()
                        == 1)
            );
        }
        for threads in [1, 3] {
            let found = all(begin(&loader(threads, 0, 1), endless), most);
            assert!(found == whole, "{threads} threads");
        }
        for (at, (_, state)) in whole.iter().enumerate() {
            for (threads, ranks) in [(0, 1), (2, 1), (0, 2), (2, 4)] {
                let mut runs: Vec<Batches<_>> = (0..ranks)
                    .map(|number| loader(threads, number, ranks).restore(&saved(state)).unwrap())
                    .collect();
                for (step, row) in rows[at + 1..].iter().enumerate().take(6) {
                    let each: Vec<_> =
                        runs.iter_mut().map(|run| next(run).unwrap_or(Ok(vec![])).unwrap()).collect();
                    if row.len() < 8 {
                        // The position of an empty slot in a batch cannot be seen, so shorter batches are not
                        // compared.
                        break;
                    }
                    let dealt: Vec<_> = (0..8).map(|g| each[g % ranks][g / ranks].clone()).collect();
                    assert_eq!(dealt, *row, "after {at}, {threads} threads, {ranks} ranks, step {step}");
                }
            }
        }
    }
}

/// Two datasets with the same shards and the same seed still have different orders, shuffles and random
/// numbers in a mix. An earlier version of the mix gave both datasets the same random numbers.
#[test]
fn equal_datasets_of_a_mix_share_no_random_numbers() {
    /// The samples of each of two equal datasets: shard, sample, and a random number. `stages` is applied to
    /// the samples of both.
    fn mixed(
        stages: impl Fn(LoaderBuilder<Sample>) -> LoaderBuilder<Sample>,
        dataset: impl Fn(Arc<VersionedSource>) -> shardstream::dataset::DatasetBuilder,
    ) -> [Vec<(u64, u64, u64)>; 2] {
        let part = || stages(Loader::builder(dataset(VersionedSource::of(&[9; 8])).build().unwrap()));
        let loader = Loader::mix([part(), part()]).batch(4).build().unwrap();
        let items: Vec<(u64, (u64, u64, u64))> = loader
            .epoch(3)
            .flat_map(|batch| batch.unwrap().into_items())
            .map(|sample| {
                let at = sample.position();
                (at.dataset, (at.shard, at.sample, sample.rng(42).below(1 << 40)))
            })
            .collect();
        assert_eq!(items.len(), 144);
        [0, 1].map(|number| items.iter().filter(|item| item.0 == number).map(|item| item.1).collect())
    }
    let order = |items: &[(u64, u64, u64)]| items.iter().map(|item| (item.0, item.1)).collect::<Vec<_>>();
    let shards = |items: &[(u64, u64, u64)]| items.iter().map(|item| item.0).collect::<Vec<_>>();
    let listed = |source: Arc<VersionedSource>| source.dataset(8).streams(1).seed(5);

    let [first, second] = mixed(|items| items, listed);
    assert_eq!(order(&first), order(&second), "nothing is shuffled");
    assert!(first.iter().zip(&second).every(|(one, other)| one.2 != other.2), "samples draw other numbers");

    let [first, second] = mixed(|items| items, |source| listed(source).shuffle_shards(true));
    assert_ne!(shards(&first), shards(&second), "another permutation of shards");

    let [first, second] = mixed(|items| items.shuffle(20), listed);
    assert_ne!(order(&first), order(&second), "another shuffle");

    let [first, second] = mixed(|items| items, |source| listed(source).resample_shards(true));
    assert_ne!(shards(&first), shards(&second), "other draws of shards");
}

#[test]
fn the_items_of_a_dataset_do_not_depend_on_the_others_of_its_mix() {
    let run = |items: LoaderBuilder<Vec<u64>>| {
        good(&all(items.uneven_steps(true).batch(1).build().unwrap().epoch(1), usize::MAX)).concat()
    };
    for stream in 0..4 {
        let here = rank(stream, 4);
        let (books, web): (Vec<_>, Vec<_>) = run(mix(2, here)).into_iter().partition(|item| is_book(item));
        // In the mix, the first dataset has the same order as in a loader of its own.
        let [web_alone, _] = parts(2, here);
        assert_eq!(web, run(web_alone), "stream {stream}");
        let [more_web, same_books] = parts(2, here);
        let beside = run(Loader::mix([more_web.weight(9), same_books]));
        assert_eq!(books, beside.into_iter().filter(|item| is_book(item)).collect::<Vec<_>>());
        // Two passes of 12 documents with 5 tokens and a separator each: 10 rows of 7 per pass.
        assert_eq!(books.len(), 2 * 10);
    }
}

#[test]
fn random_mix_gives_the_order_of_a_mix_of_datasets() {
    let weights = [3, 1, 2];
    let dataset = || VersionedSource::of(&[90]).dataset(1).streams(1).seed(7).build().unwrap();
    let part = |(number, weight): (u64, u32)| {
        Loader::builder(dataset())
            .threads(0)
            .weight(weight)
            .map(move |sample| Ok((number, super::number(&sample))))
    };
    let mix = Loader::mix((0..).zip(weights).map(part)).batch(1).build().unwrap();
    let expected: Vec<(u64, u64)> = mix.epoch(0).map(|batch| batch.unwrap()[0]).collect();
    let source = |number: u64| {
        dataset().samples(0).results().map(move |sample| (number, super::number(&sample.unwrap())))
    };
    let mixed = random_mix((0..).map(source).zip(weights), 7).unwrap();
    assert!(mixed.longest().eq(expected));
}
