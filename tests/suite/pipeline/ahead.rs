//! Skipped steps: the next batch is the batch of the step after the skipped steps, and the shards of skipped
//! samples are not read.

use super::{all, number, numbers, rank, saved, url};
use crate::support::versioned_source::{VersionedSource, counts};
use futures::future::BoxFuture;
use proptest::prelude::*;
use shardstream::loader::{Batches, Failures, LastBatch, LoaderBuilder, OnError};
use shardstream::prelude::*;
use shardstream::store::{GetOptions, GetResponse, Source};
use shardstream::{Error, ErrorKind, Index, Result, State};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// The epoch and the number of a sample.
type Item = (u64, u64);

#[derive(Debug, Clone)]
struct Job {
    /// For each dataset, the sizes of its shards, its weight and its number of passes.
    parts: Vec<(Vec<usize>, u32, u64)>,
    /// The weight schedule: for each change, the number of its first item, and the weights from there on.
    schedule: Vec<(u64, [u32; 2])>,
    places: bool,
    streams: usize,
    shuffle: usize,
    batch: usize,
    last: LastBatch,
    endless: bool,
}

impl Job {
    fn loader(&self, topology: Topology, threads: usize) -> Loader<Batch<Item>> {
        let part = |(seed, (sizes, weight, passes)): (usize, &(Vec<usize>, u32, u64))| {
            let source = VersionedSource::of(sizes);
            let index = match self.places {
                true => {
                    let list = ShardList::from_urls((0..sizes.len()).map(url));
                    Index::builder().store(source.store()).build(&list).unwrap()
                }
                false => counts(sizes),
            };
            let dataset = source.dataset(sizes.len()).streams(self.streams).topology(topology).index(index);
            let dataset = dataset.shuffle_shards(true).seed(seed as u64).build().unwrap();
            let items = Loader::builder(dataset).shuffle(self.shuffle).weight(*weight).passes(*passes);
            items.map(move |sample| Ok((sample.position().epoch, 100_000 * seed as u64 + number(&sample))))
        };
        let mix = Loader::mix(self.parts.iter().enumerate().map(part)).threads(threads);
        let change = |mix: LoaderBuilder<Item>, (item, weights): &(u64, [u32; 2])| {
            mix.weights_from(*item, weights.iter().copied().take(self.parts.len()))
        };
        let mix = self.schedule.iter().fold(mix, change);
        mix.last_batch(self.last).batch(self.batch / topology.world_size()).build().unwrap()
    }

    fn begin(&self, loader: &Loader<Batch<Item>>) -> Vec<(super::Found<Item>, State)> {
        match self.endless {
            true => all(loader.epochs(1), 30),
            false => all(loader.epoch(1), usize::MAX),
        }
    }
}

fn slots(state: &State) -> u64 {
    serde_json::to_value(state).unwrap()["next_number"].as_u64().unwrap()
}

/// The position of each stream: its dataset, pass, number of consumed samples, and length of the pass.
fn streams(state: &State) -> Vec<[Option<u64>; 4]> {
    let document = serde_json::to_value(state).unwrap();
    let stream = |at: &serde_json::Value| {
        let number = |name: &str| at["cursor"][name].as_u64();
        [at["dataset"].as_u64(), number("pass"), number("taken"), number("length")]
    };
    document["at"].as_array().unwrap().iter().map(stream).collect()
}

fn jobs() -> impl Strategy<Value = Job> {
    // Small datasets repeat many times to fill the slots at the end of an epoch.
    let sizes = prop_oneof![prop::collection::vec(1usize..3, 4..6), prop::collection::vec(1usize..12, 4..8)];
    let part = (sizes, 1u32..4, 1u64..5);
    let last =
        prop::sample::select(vec![LastBatch::Keep, LastBatch::Drop, LastBatch::Pad, LastBatch::Repeat]);
    let streams = prop::sample::select(vec![1usize, 2, 4]);
    let shuffle = prop_oneof![Just(0usize), 2usize..30];
    let changes = prop::collection::btree_map(1u64..80, [1u32..4, 0u32..4], 0..4);
    let parts = (prop::collection::vec(part, 1..3), changes);
    (parts, any::<bool>(), streams, shuffle, 1usize..5, last, any::<bool>()).prop_map(
        |((parts, schedule), places, streams, shuffle, batch, last, endless)| Job {
            parts,
            schedule: schedule.into_iter().collect(),
            places,
            streams,
            shuffle,
            batch: 4 * batch,
            last,
            endless,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..Default::default() })]

    #[test]
    fn skipping_steps_equals_consuming_them(
        job in jobs(),
        stops in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 6),
        threads in 0usize..3,
    ) {
        let loader = job.loader(rank(0, 1), 0);
        let whole = job.begin(&loader);
        prop_assert!(whole.iter().all(|(item, _)| item.is_ok()));
        for (stop, skip) in stops {
            // Skips from the start of the epoch, or after a batch.
            let stop = stop.index(whole.len() + 1);
            let begun = if job.endless { loader.epochs(1) } else { loader.epoch(1) };
            let state = if stop == 0 { begun.state() } else { whole[stop - 1].1.clone() };
            // The number of skipped steps is at most the number of remaining batches.
            let steps = skip.index(whole.len() - stop + 1) as u64;
            let skipped = saved(&state.clone().skip(steps / 2).skip(steps - steps / 2));
            let ends_at = whole[..stop + steps as usize].last().map_or(0, |(_, state)| slots(state));
            let ends_at = if steps == 0 { slots(&state) } else { ends_at };
            let expected: Vec<Vec<Item>> =
                whole[stop + steps as usize..].iter().map(|(item, _)| item.clone().unwrap()).collect();
            let mut rest = job.loader(rank(0, 1), threads).restore(&skipped).unwrap();
            let reached = rest.state();
            prop_assert_eq!(slots(&reached), ends_at);
            prop_assert_eq!(reached.batches(), state.batches() + steps);
            let there = whole.iter().find(|(_, state)| slots(state) == slots(&reached));
            if let Some((_, there)) = there {
                prop_assert_eq!(streams(&reached), streams(there));
                let digest = reached.digest();
                prop_assert_eq!(digest.samples() + digest.skipped(), there.digest().samples());
                prop_assert_eq!(digest.samples(), state.digest().samples());
            }
            let found = rest.by_ref().take(expected.len());
            let found: Vec<_> = found.map(|batch| batch.unwrap().into_items()).collect();
            prop_assert_eq!(&found, &expected, "{} after {}", steps, stop);
            prop_assert!(job.endless || rest.next().is_none());
            if !job.endless && stop == 0 {
                let at = loader.at(1, steps).unwrap();
                let at: Vec<_> = at.map(|batch| batch.unwrap().into_items()).collect();
                prop_assert_eq!(&at, &expected, "at {}", steps);
            }
            // Each rank skips the same number of its own steps.
            let ranks = job.streams;
            let by_rank: Vec<Vec<Vec<Item>>> = (0..ranks)
                .map(|number| {
                    let rest = job.loader(rank(number, ranks), 0).restore(&skipped).unwrap();
                    rest.take(expected.len()).map(|batch| batch.unwrap().into_items()).collect()
                })
                .collect();
            for (step, batch) in expected.iter().enumerate() {
                if batch.len() < job.batch || job.last == LastBatch::Pad {
                    break;
                }
                let dealt: Vec<Item> = (0..job.batch).map(|g| by_rank[g % ranks][step][g / ranks]).collect();
                prop_assert_eq!(&dealt, batch, "{} ranks, {} after {}, step {}", ranks, steps, stop, step);
            }
        }
    }
}

/// To fill the slots at the end of an epoch, each dataset makes as many further passes as it needs.
#[test]
fn steps_can_be_skipped_into_repeated_passes() {
    for (passes, sizes) in [([2, 2], [5, 17]), ([1, 3], [5, 5]), ([4, 1], [5, 19])] {
        let parts = sizes.iter().zip(passes).map(|(size, passes)| (vec![*size], 1, passes)).collect();
        let (places, streams, batch, shuffle) = (true, 4, 4, 3);
        let schedule = vec![(3, [1, 0]), (9, [2, 1])];
        let job =
            Job { parts, schedule, places, streams, shuffle, batch, last: LastBatch::Repeat, endless: false };
        let loader = job.loader(rank(0, 1), 0);
        let whole = job.begin(&loader);
        let items: u64 = sizes.iter().zip(passes).map(|(size, passes)| *size as u64 * passes).sum();
        assert!(4 * whole.len() as u64 > items + 3, "{} batches of {items} items", whole.len());
        let states =
            std::iter::once(loader.epoch(1).state()).chain(whole.iter().map(|(_, state)| state.clone()));
        for (stop, state) in states.enumerate() {
            for steps in 0..=whole.len() - stop {
                let rest = loader.restore(&saved(&state.clone().skip(steps as u64))).unwrap();
                let found: Vec<_> = rest.map(|batch| Ok(batch.unwrap().into_items())).collect();
                let expected: Vec<_> = whole[stop + steps..].iter().map(|(item, _)| item.clone()).collect();
                assert_eq!(found, expected, "{steps} after {stop} of {passes:?} passes of {sizes:?}");
            }
        }
    }
}

/// If samples fail, samples from the start of the epoch fill their slots, even with `LastBatch::Drop`.
#[test]
fn steps_can_be_skipped_into_replacements_of_lost_samples() {
    let source = VersionedSource::of(&[10]);
    let loader = |fails: usize| {
        let left = AtomicUsize::new(fails);
        let dataset = source.dataset(1).index(counts(&[10])).build().unwrap();
        let items = numbers(dataset).passes(2).map(move |number| {
            match left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)) {
                Ok(_) => Err(Error::step("it passes")),
                Err(_) => Ok(number),
            }
        });
        let items = items.last_batch(LastBatch::Drop).on_error(OnError::skip(Failures::all()));
        items.threads(0).batch(1).build().unwrap()
    };
    let whole = all(loader(3).epoch(0), 100);
    let numbers: Vec<u64> = super::good(&whole).concat();
    assert_eq!(numbers, (3..10).chain(0..10).chain(0..3).collect::<Vec<_>>());
    for (at, (_, state)) in whole.iter().enumerate() {
        for steps in 0..whole.len() - at {
            // No sample fails in the restored loader, so it also returns the samples that had failed.
            let rest = loader(0).restore(&saved(&state.clone().skip(steps as u64))).unwrap();
            let rest: Vec<u64> = super::good(&all(rest, 100)).concat();
            assert_eq!(rest, numbers[at + 1 + steps..], "{steps} after {at}");
        }
    }
}

/// At the end of a pass, a state lists no open slice, but it may record that the pass was shorter than the
/// index says.
#[test]
fn steps_after_a_pass_that_lost_samples_cannot_be_skipped() {
    let source = VersionedSource::of(&[10]);
    let dataset = source.dataset(1).index(counts(&[10])).build().unwrap();
    let loader = numbers(dataset).shuffle(2).threads(0).batch(1).build().unwrap();
    let mut batches = loader.epochs(0);
    batches.by_ref().take(10).for_each(|batch| drop(batch.unwrap()));
    let text = batches.state().to_string();
    assert!(text.contains("\"taken\":10,\"length\":10"), "{text}");
    let lost = text.replace("\"taken\":10,\"length\":10", "\"taken\":9,\"length\":9");
    let lost: State = lost.replace("\"samples\":10", "\"samples\":9").parse().unwrap();
    assert!(loader.restore(&batches.state().skip(2)).is_ok());
    let error = loader.restore(&lost.skip(2)).unwrap_err();
    assert!(error.to_string().contains("could not be read in this epoch"), "{error}");
}

/// A source that records the requested URLs.
#[derive(Debug)]
struct RecordingSource {
    source: Arc<VersionedSource>,
    requests: Mutex<BTreeSet<String>>,
}

impl Source for RecordingSource {
    fn get(&self, url: &str, options: GetOptions) -> BoxFuture<'static, Result<GetResponse>> {
        self.requests.lock().unwrap().insert(url.into());
        self.source.get(url, options)
    }
}

#[test]
fn skipped_shards_are_not_read() {
    const SIZES: [usize; 10] = [8; 10];
    let recording =
        Arc::new(RecordingSource { source: VersionedSource::of(&SIZES), requests: Mutex::default() });
    let store = Store::builder().with_source("shelf", Arc::clone(&recording) as _).build().unwrap();
    let list = ShardList::from_urls((0..10).map(url));
    let index = Index::builder().store(store.clone()).build(&list).unwrap();
    let dataset = Dataset::builder(list).store(store).index(index).topology(Topology::single()).streams(1);
    let loader = numbers(dataset.build().unwrap()).shuffle(4).threads(0).batch(4).build().unwrap();
    let whole: Vec<Vec<u64>> = super::good(&all(loader.epoch(0), usize::MAX));
    recording.requests.lock().unwrap().clear();
    let rest: Vec<Vec<u64>> = super::good(&all(loader.at(0, 17).unwrap(), usize::MAX));
    assert_eq!(rest, whole[17..]);
    let requests = recording.requests.lock().unwrap().clone();
    // The 17 skipped batches have 68 of the first 72 samples. The other four samples are in the shuffle
    // buffer, and all of them are from shard 8. Only the shards 8 and 9 are therefore read.
    assert_eq!(requests, [8, 9].map(url).into(), "only shards of the buffer's samples and later ones");
}

fn refused<B>(found: Result<Batches<B>>, kind: fn(&ErrorKind) -> bool, why: &str) {
    let Err(error) = found else { panic!("it is refused") };
    assert!(kind(error.kind()), "{error:?}");
    assert!(error.to_string().contains(why), "{why:?} in {error}");
}

#[test]
fn steps_that_cannot_be_skipped_are_refused() {
    let sizes = [9, 9];
    let source = VersionedSource::of(&sizes);
    let bare = || numbers(source.dataset(2).build().unwrap());
    let counted = || numbers(source.dataset(2).index(counts(&sizes)).build().unwrap());
    let at = |items: LoaderBuilder<u64>, step| items.batch(2).build().unwrap().at(0, step);
    let config: fn(&ErrorKind) -> bool = |kind| matches!(kind, ErrorKind::Config(_));
    let state: fn(&ErrorKind) -> bool = |kind| matches!(kind, ErrorKind::State(_));
    refused(at(bare(), 1), config, "give each dataset an index");
    refused(
        at(counted().filter_map(|number| Ok(Some(number))), 1),
        config,
        "no stage that changes the number of items",
    );
    let selected = Loader::builder(source.dataset(2).index(counts(&sizes)).build().unwrap()).filter(|_| true);
    refused(
        at(selected.map(|sample| Ok(number(&sample))), 1),
        config,
        "no stage that changes the number of items",
    );
    refused(at(counted(), 10), state, "10 steps are to be skipped, but the epoch has only 9 more");
    refused(at(counted(), u64::MAX), state, "");
    // Skipping no steps is possible without an index.
    assert_eq!(at(bare(), 0).unwrap().count(), 9);
    assert_eq!(at(counted(), 9).unwrap().count(), 0);
    let loader = counted().batch(2).build().unwrap();
    let third = loader.epoch(0).nth(2).unwrap().unwrap().state().unwrap().clone();
    refused(
        loader.restore(&third.clone().skip(7)),
        state,
        "7 steps are to be skipped, but the epoch has only 6 more",
    );
    assert_eq!(loader.restore(&third.skip(6)).unwrap().count(), 0);
}
