//! States of joined datasets. A job that stops after any batch and resumes returns the same samples as a job
//! that does not stop. A state that was saved with other side datasets is refused.

use super::*;
use shardstream::dataset::Missing;
use shardstream::loader::{Failures, OnError};
use shardstream::{ErrorKind, Result, State};

const SIZES: [usize; 5] = [7, 12, 3, 9, 6];

/// The keys of a shard of the side dataset. Every fourth key of the main dataset is missing. Every second
/// shard has its keys in reverse order. Each shard has one extra key.
fn keys(shard: usize) -> Vec<String> {
    let mut keys: Vec<String> =
        (0..SIZES[shard]).filter(|n| (n + shard) % 4 != 1).map(|n| key(shard, n)).collect();
    if shard.is_multiple_of(2) {
        keys.reverse();
    }
    keys.insert(keys.len() / 2, format!("extra-{shard}"));
    keys
}

type Seen = (String, Option<String>, u64);

fn loader(dataset: Dataset, shuffle: usize, threads: usize) -> Loader<Batch<Seen>> {
    Loader::builder(dataset)
        .shuffle(shuffle)
        .threads(threads)
        .map(|sample| {
            let shown = shown(&sample);
            Ok((shown.0, shown.1.get("txt").cloned(), shown.3))
        })
        .on_error(OnError::skip(Failures::all()))
        .batch(3)
        .build()
        .unwrap()
}

fn items(batches: impl Iterator<Item = Result<Batch<Seen>>>) -> Vec<Seen> {
    batches.flat_map(|batch| batch.unwrap().into_items()).collect()
}

#[test]
fn a_job_resumes_after_any_batch() {
    for (missing, compressed, indexed, shuffle) in [
        (Missing::Error, false, true, 5),
        (Missing::Skip, true, true, 5),
        (Missing::Skip, false, false, 0),
        (Missing::None, true, false, 8),
        (Missing::None, false, true, 0),
    ] {
        let pair = JoinedPair::new(&SIZES, compressed, keys);
        let dataset = |buffer: usize, threads: usize| {
            let side = pair.side().missing(missing).buffer_bytes(buffer);
            let side = if indexed { side.index(pair.side_index()) } else { side };
            let primary = pair.primary().streams(2).shuffle_shards(true).seed(9);
            let primary = if indexed { primary.index(pair.index()) } else { primary };
            loader(primary.join(side).build().unwrap(), shuffle, threads)
        };
        let first = dataset(1 << 20, 0);
        let whole = items(first.epoch(2));
        assert_eq!(whole, items(dataset(1, 2).epoch(2)), "the buffer makes no difference");
        let count = if missing == Missing::None { 37 } else { 28 };
        assert_eq!((whole.len(), whole.iter().filter(|item| item.1.is_some()).count()), (count, 28));
        let mut batches = first.epoch(2);
        let mut before = Vec::new();
        loop {
            let state: State = batches.state().to_string().parse().unwrap();
            let mut resumed = before.clone();
            resumed.extend(items(dataset(700, 1).restore(&state).unwrap()));
            assert_eq!(resumed, whole, "{missing:?} {compressed} {indexed} {shuffle}");
            match batches.next() {
                Some(batch) => before.extend(batch.unwrap().into_items()),
                None => break,
            }
        }
    }
}

#[test]
fn ranks_share_one_sequence() {
    let pair = JoinedPair::new(&SIZES, false, keys);
    let of = |rank: usize, ranks: usize| {
        let side = pair.side().missing(Missing::None);
        let primary = pair.primary().topology(Topology::new(rank, ranks).unwrap()).streams(4);
        loader(primary.index(pair.index()).join(side).build().unwrap(), 4, 0)
    };
    let sorted = |mut items: Vec<Seen>| {
        items.sort();
        items
    };
    let whole = sorted(items(of(0, 1).epoch(0)));
    for ranks in [2, 4] {
        let all = (0..ranks).flat_map(|rank| items(of(rank, ranks).epoch(0))).collect();
        assert_eq!(sorted(all), whole);
    }
}

#[test]
fn a_state_with_another_side_is_refused_with_the_difference() {
    let pair = JoinedPair::new(&SIZES, false, keys);
    let side = || pair.side().missing(Missing::None);
    let of = |sides: Vec<Side>| {
        let primary = sides.into_iter().fold(pair.primary(), |primary, side| primary.join(side));
        loader(primary.build().unwrap(), 2, 0)
    };
    let state = of(vec![side()]).epoch(0).state();
    let buffers = side().buffer_bytes(1000).key_bytes(5000);
    assert!(of(vec![buffers]).restore(&state).is_ok(), "sizes of buffers make no difference");
    let others = ShardList::from_urls((0..SIZES.len()).map(|shard| pair.side_url(4 - shard)));
    let others = Side::new(others).store(pair.others.clone()).missing(Missing::None);
    for (sides, why) in [
        (vec![], "the number of sides that are joined is 1 in the state, and 0 here"),
        (
            vec![side(), side().prefix("b")],
            "the number of sides that are joined is 1 in the state, and 2 here",
        ),
        (vec![others], "side 0: the list of shards differs"),
        (vec![side().missing(Missing::Skip)], "side 0: samples that it lacks are \"none\" in the state"),
        (vec![side().prefix("a.")], "side 0: the prefix of its fields is \"\" in the state, and \"a.\" here"),
        (
            vec![side().index(pair.side_index())],
            "side 0: the state was taken with no index, and here is an index",
        ),
    ] {
        let error = of(sides).restore(&state).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::State(_)), "{error:?}");
        assert!(error.to_string().contains(why), "{why:?} in {error}");
    }
    // The state of a dataset without sides does not mention sides.
    let plain = loader(pair.primary().build().unwrap(), 2, 0);
    assert!(!plain.epoch(0).state().to_string().contains("sides"));
}
