//! A network outage ends a run with an error. After a restore, the job continues with the sample that could
//! not be read.

use super::{Found, all, cause, good, next, numbers, saved, url};
use crate::support::Every;
use crate::support::versioned_source::{VersionedSource, counts};
use futures::StreamExt;
use futures::future::BoxFuture;
use shardstream::dataset::DatasetBuilder;
use shardstream::loader::{Failures, OnError};
use shardstream::prelude::*;
use shardstream::store::{GetOptions, GetResponse, Source};
use shardstream::{ErrorKind, Result, State};
use std::sync::{Arc, Mutex};

const SIZES: [usize; 8] = [7, 12, 3, 9, 6, 1, 14, 5];

/// A shard's URL, and the function that makes the error for it.
type Fault = (String, fn() -> ErrorKind);

/// A source that fails for one of its shards.
#[derive(Debug)]
struct Failing {
    source: Arc<VersionedSource>,
    fault: Mutex<Option<Fault>>,
}

impl Failing {
    fn new() -> Arc<Self> {
        Arc::new(Failing { source: VersionedSource::of(&SIZES), fault: Mutex::default() })
    }

    fn fails(&self, shard: usize, kind: fn() -> ErrorKind) {
        *self.fault.lock().unwrap() = Some((url(shard), kind));
    }

    fn mend(&self) {
        *self.fault.lock().unwrap() = None;
    }

    fn dataset(self: &Arc<Self>) -> DatasetBuilder {
        let store = Store::builder().retries(0).with_source("shelf", Arc::clone(self) as _).build().unwrap();
        let list = ShardList::from_urls((0..SIZES.len()).map(url));
        let dataset = Dataset::builder(list).store(store).topology(Topology::single());
        dataset.streams(2).shuffle_shards(true).seed(5)
    }
}

impl Source for Failing {
    fn get(&self, url: &str, options: GetOptions) -> BoxFuture<'static, Result<GetResponse>> {
        let fault = self.fault.lock().unwrap().clone();
        match fault {
            Some((fails, kind)) if fails == url => Box::pin(async move { Err(kind().into()) }),
            _ => self.source.get(url, options),
        }
    }
}

type Named = (&'static str, fn() -> ErrorKind);

fn outages() -> [Named; 7] {
    [
        ("denied", || ErrorKind::Denied("no".into())),
        ("io", || ErrorKind::Io(std::io::ErrorKind::TimedOut.into())),
        ("store", || ErrorKind::Store("the network is down".into())),
        ("busy", || ErrorKind::Busy { retry_after: None, source: "slow down".into() }),
        ("length", || ErrorKind::Length { expected: 9, received: 5 }),
        ("damaged_cache", || ErrorKind::DamagedCache {
            file: "block".into(),
            expected: "a".into(),
            received: "b".into(),
        }),
        ("source_panicked", || panic!("on purpose")),
    ]
}

#[test]
fn an_outage_ends_the_run_and_its_state_resumes() {
    let source = Failing::new();
    for (name, kind) in outages() {
        for (threads, shuffle, indexed) in [(0, 0, false), (2, 0, true), (0, 6, true), (2, 6, false)] {
            let dataset = if indexed { source.dataset().index(counts(&SIZES)) } else { source.dataset() };
            // An outage is not skipped, not even with `Failures::all`.
            let items = numbers(dataset.build().unwrap()).on_error(OnError::skip(Failures::all()));
            let loader = items.shuffle(shuffle).threads(threads).batch(4).build().unwrap();
            let whole = good(&all(loader.epoch(1), usize::MAX));
            for shard in 0..SIZES.len() {
                let what =
                    format!("{name} of shard {shard}, {threads} threads, shuffle {shuffle}, {indexed}");
                source.fails(shard, kind);
                let mut batches = loader.epoch(1);
                let mut found: Vec<Found> = std::iter::from_fn(|| next(&mut batches)).collect();
                source.mend();
                assert!(next(&mut batches).is_none(), "{what}: nor after it is mended");
                assert_eq!(found.pop(), Some(Err(name.to_owned())), "{what}");
                let found: Vec<Vec<u64>> = found.into_iter().map(|item| item.expect(&what)).collect();
                assert_eq!(found, whole[..found.len()], "{what}");
                let state = saved(&batches.state());
                assert_eq!(state.batches(), found.len() as u64, "{what}");
                assert!(state.ledger().is_empty(), "{what}");
                let rest = good(&all(loader.restore(&state).unwrap(), usize::MAX));
                assert_eq!(rest, whole[found.len()..], "{what}");
            }
        }
    }
}

/// An outage ends the run of one rank, which takes no further step. The other rank may have taken more steps
/// than the failed rank.
#[test]
fn states_of_ranks_merge_after_an_outage_of_one() {
    let source = Failing::new();
    let loader = |number, ranks| {
        let dataset = source.dataset().topology(super::rank(number, ranks)).build().unwrap();
        numbers(dataset).threads(0).batch(4 / ranks).uneven_steps(true).build().unwrap()
    };
    let mut whole: Vec<u64> = good(&all(loader(0, 1).epoch(1), usize::MAX)).concat();
    whole.sort_unstable();
    for shard in 0..SIZES.len() {
        for take in [0, 3, 100] {
            source.fails(shard, || ErrorKind::Denied("no".into()));
            let mut found = Vec::new();
            let states: Vec<State> = (0..2)
                .map(|number| {
                    let mut batches = loader(number, 2).epoch(1);
                    let taken = all(&mut batches, usize::MAX);
                    let has_failed = taken.last().is_some_and(|(found, _)| found.is_err());
                    if has_failed {
                        found.extend(good(&taken).concat());
                        return saved(&batches.state());
                    }
                    let mut batches = loader(number, 2).epoch(1);
                    found.extend(good(&all(&mut batches, take)).concat());
                    saved(&batches.state())
                })
                .collect();
            source.mend();
            // The states merge only if the rank without an error has taken at least as many steps as the
            // failed rank. Otherwise, merging is refused: the rank without an error has to catch up first.
            let Ok(merged) = State::merge(states.clone()) else {
                let [first, second] = [&states[0], &states[1]].map(State::batches);
                assert!(take < 100 && first != second, "shard {shard}: {first} and {second}");
                continue;
            };
            found.extend(good(&all(loader(0, 1).restore(&saved(&merged)).unwrap(), usize::MAX)).concat());
            found.sort_unstable();
            assert_eq!(found, whole, "shard {shard}, {take} batches");
        }
    }
}

/// The run ends with the error, and a run that resumes from the last state ends with the same error.
#[test]
fn a_rank_without_a_readable_shard_ends_with_an_error_after_a_restore_too() {
    let source = Failing::new();
    for policy in [OnError::stop(), OnError::skip(Failures::all()).in_a_row(10_000)] {
        let dataset = source.dataset().topology(super::rank(1, 2)).shuffle_shards(false).build().unwrap();
        let loader = numbers(dataset).on_error(policy).batch(2).threads(0).build().unwrap();
        (0..SIZES.len()).for_each(|shard| source.source.remove(&url(shard)));
        let mut batches = loader.epochs(0);
        let begun = all(&mut batches, usize::MAX);
        assert_eq!(begun.last().unwrap().0, Err("no_shards".into()));
        let state = saved(&batches.state());
        let again = all(loader.restore(&state).unwrap(), usize::MAX);
        assert_eq!(again.last().map(|(found, _)| found), Some(&Err("no_shards".to_owned())));
    }
}

#[test]
fn an_outage_names_its_shard_in_both_iterations() {
    let source = Failing::new();
    let loader = numbers(source.dataset().build().unwrap()).threads(2).batch(4).build().unwrap();
    source.fails(6, outages()[2].1);
    let error = loader.epochs(0).find_map(Result::err).unwrap();
    assert_eq!(error.location().shard(), Some(&*url(6)));
    let streamed = futures::executor::block_on(loader.epochs(0).into_stream().collect::<Vec<_>>());
    let (last, before) = streamed.split_last().unwrap();
    assert!(before.iter().every(Result::is_ok));
    assert_eq!(cause(last.as_ref().unwrap_err()), "store");
}

/// A missing or changed shard is not an outage: the run continues with the other shards.
#[test]
fn a_fault_of_one_shard_does_not_end_the_run() {
    let source = Failing::new();
    let missing: fn() -> ErrorKind = || ErrorKind::NotFound("no such object".into());
    for threads in [0, 2] {
        for shard in 0..SIZES.len() {
            source.fails(shard, missing);
            let loader =
                numbers(source.dataset().build().unwrap()).threads(threads).batch(1).build().unwrap();
            let found = all(loader.epoch(0), usize::MAX);
            let errors: Vec<_> = found.iter().filter_map(|(item, _)| item.as_ref().err()).collect();
            assert_eq!(errors, ["not_found"]);
            let mut numbers = good(&found).concat();
            numbers.sort_unstable();
            let others = (0..SIZES.len()).filter(|other| *other != shard);
            let expected: Vec<u64> =
                others.flat_map(|other| (0..SIZES[other]).map(move |n| (other * 1000 + n) as u64)).collect();
            assert_eq!(numbers, expected);
        }
    }
    source.mend();
    // The index has one sample more than the shard.
    let mut sizes = SIZES;
    sizes[3] += 1;
    let loader = numbers(source.dataset().index(counts(&sizes)).build().unwrap()).batch(1).build().unwrap();
    let found = all(loader.epoch(0), usize::MAX);
    assert_eq!(found.iter().filter(|(item, _)| *item == Err("stale".into())).count(), 1);
    assert_eq!(good(&found).len(), SIZES.iter().sum::<usize>());
}

/// An outage while padding is read ends the run with one error, like any other outage. The job resumes from
/// the last state. No step is lost.
#[test]
fn an_outage_while_padding_is_read_ends_the_run_and_its_state_resumes() {
    let source = Failing::new();
    for threads in [0, 2] {
        let sound: u64 = SIZES[..4].iter().sum::<usize>() as u64;
        let dataset = source.dataset().streams(1).shuffle_shards(false).index(counts(&SIZES));
        // From shard 4 on, all samples fail, so that batches need padding.
        let items = numbers(dataset.build().unwrap()).map(|number| match number / 1000 {
            ..4 => Ok(number),
            _ => Err(shardstream::Error::step("no")),
        });
        let items = items.on_error(OnError::skip(Failures::all())).last_batch(LastBatch::Pad).batch(4);
        let loader = items.threads(threads).prefetch(1).build().unwrap();
        let steps = loader.steps().unwrap();
        let whole = good(&all(loader.epoch(0), usize::MAX));
        assert_eq!(whole.len() as u64, steps);
        let mut batches = loader.epoch(0);
        let mut found: Vec<Found> = Vec::new();
        while let Some(item) = next(&mut batches) {
            found.push(item);
            // The first read of the first shard has succeeded. The second read, for padding, fails.
            source.fails(0, outages()[0].1);
        }
        source.mend();
        assert_eq!(found.pop(), Some(Err("denied".into())), "{threads} threads");
        let found: Vec<Vec<u64>> = found.into_iter().map(std::result::Result::unwrap).collect();
        assert_eq!(found, whole[..sound.div_ceil(4) as usize]);
        let state = saved(&batches.state());
        assert_eq!(state.batches(), found.len() as u64);
        let rest = good(&all(loader.restore(&state).unwrap(), usize::MAX));
        assert_eq!(rest, whole[found.len()..]);
    }
}
