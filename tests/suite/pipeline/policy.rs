//! Skipped failures: which failures are skipped, the limits, and the ledger.

use super::{Found, VersionedSource, all, errors, failing, good, number, numbers, rank, saved, url};
use crate::support::{member, shards::key};
use shardstream::adapters::{Pack, Stage};
use shardstream::loader::{Failures, LoaderBuilder, OnError};
use shardstream::prelude::*;
use shardstream::state::Ledger;
use shardstream::{Error, ErrorKind, Result, State};
use std::sync::Arc;

const SIZES: [usize; 8] = [9, 9, 9, 9, 9, 9, 9, 9];

/// Sample 2 has a duplicate member in shards 1 and 6, and shard 5 is missing.
fn source() -> Arc<VersionedSource> {
    let source = VersionedSource::of(&SIZES);
    for shard in [1, 6] {
        let members = |sample: usize| {
            let times = if sample == 2 { 2 } else { 1 };
            member(&format!("{}.cls", key(shard, sample)), tar::EntryType::Regular, b"1").repeat(times)
        };
        let mut bytes: Vec<u8> = (0..9).flat_map(members).collect();
        bytes.resize(bytes.len() + 1024, 0);
        source.put(&url(shard), bytes, Some("v1"));
    }
    source.remove(&url(5));
    source
}

fn dataset(source: &Arc<VersionedSource>, topology: Topology) -> Dataset {
    source.dataset(8).streams(4).shuffle_shards(true).seed(3).topology(topology).build().unwrap()
}

/// The samples as numbers. Numbers that end in 4 fail to decode, and numbers that end in 7 fail in a step.
fn items(dataset: Dataset) -> LoaderBuilder<u64> {
    numbers(dataset).map(|number| match number % 10 {
        4 => Err(Error::decode("cls", "no number")),
        7 => Err(Error::step("bad luck")),
        _ => Ok(number),
    })
}

const ALL: [(Failures, &[&str]); 4] = [
    (Failures::damage(), &["duplicate_member"]),
    (Failures::decode(), &["decode"]),
    (Failures::step(), &["step"]),
    (Failures::missing_shards(), &["not_found"]),
];

/// The kinds of failures in a ledger, and the number of each.
fn kinds(ledger: &Ledger) -> Vec<(String, u64)> {
    ledger.by_kind().map(|(kind, count)| (kind.to_owned(), count)).collect()
}

#[test]
fn skipped_failures_are_in_the_ledger_and_others_are_items() {
    let source = source();
    let wanted = [("decode", 7), ("duplicate_member", 2), ("not_found", 1), ("step", 7)];
    let stopped =
        all(items(dataset(&source, rank(0, 1))).threads(0).batch(5).build().unwrap().epoch(0), usize::MAX);
    assert_eq!(errors(&stopped).len(), 17);
    for (number, (failures, names)) in ALL.into_iter().enumerate() {
        for threads in [0, 2] {
            let loader =
                items(dataset(&source, rank(0, 1))).on_error(OnError::skip(failures)).threads(threads);
            let found = all(loader.batch(5).build().unwrap().epoch(0), usize::MAX);
            // The batches have the same items, whether failures are skipped or reported.
            assert_eq!(good(&found), good(&stopped));
            let ledger = found.last().unwrap().1.ledger();
            let skipped: Vec<_> = wanted.iter().filter(|(name, _)| names.contains(name)).collect();
            let skipped: Vec<_> =
                skipped.into_iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
            assert_eq!(kinds(&ledger), skipped, "{number}");
            assert_eq!(ledger.skipped() as usize + errors(&found).len(), 17);
            let reported = errors(&found);
            assert!(names.iter().all(|name| !reported.iter().any(|error| error == name)), "{reported:?}");
        }
    }
    let loader = items(dataset(&source, rank(0, 1))).on_error(OnError::skip(Failures::all()));
    let found = all(loader.batch(5).build().unwrap().epoch(0), usize::MAX);
    assert!(errors(&found).is_empty());
    assert_eq!(
        kinds(&found.last().unwrap().1.ledger()),
        wanted.map(|(name, count)| (name.to_owned(), count))
    );
}

#[test]
fn a_ledger_entry_says_what_was_skipped_and_where() {
    let source = VersionedSource::of(&[3, 3]);
    let dataset = source.dataset(2).streams(2).build().unwrap();
    let skip = OnError::skip(Failures::all());
    let items = failing(dataset, |number| number == 1001).on_error(skip).batch(2).build().unwrap();
    let mut batches = items.epoch(7);
    assert_eq!(batches.by_ref().map(|batch| batch.unwrap().len()).sum::<usize>(), 5);
    let ledger = batches.state().ledger();
    let [entry] = ledger.entries() else { panic!("{ledger:?}") };
    assert_eq!((entry.dataset, entry.epoch, entry.stream, entry.number), (0, 7, 1, 0));
    assert_eq!((entry.shard.as_deref(), entry.key.as_deref()), (Some(&*url(1)), Some("01-001")));
    assert_eq!((&*entry.kind, entry.member.as_deref()), ("step", None));
    assert!(entry.message.contains("1001"), "{entry}");
    let text = ledger.to_string();
    assert!(text.starts_with("1 skipped: 1 step\n  epoch 7, stream 1: "), "{text}");
    assert!(text.ends_with(&format!("(shard {}, sample 01-001)", url(1))), "{text}");
    let whole = serde_json::to_string(&ledger).unwrap();
    assert_eq!(serde_json::from_str::<Ledger>(&whole).unwrap(), ledger);
}

#[test]
fn ledgers_of_ranks_merge_into_that_of_the_job() {
    let source = source();
    let skip = || OnError::skip(Failures::all());
    let ended = |number, ranks, batch| {
        let loader = items(dataset(&source, rank(number, ranks))).on_error(skip()).shuffle(4);
        let loader = loader.uneven_steps(true).batch(batch);
        let mut batches = loader.build().unwrap().epoch(2);
        batches.by_ref().for_each(|batch| drop(batch.unwrap()));
        batches.state()
    };
    // With batches of 1, no rank counts failures in advance while it fills a batch.
    let whole = ended(0, 1, 1).ledger();
    for ranks in [2, 4] {
        let states: Vec<State> = (0..ranks).map(|number| ended(number, ranks, 1)).collect();
        let summed = states.iter().map(State::ledger).fold(Ledger::default(), Ledger::merge);
        assert_eq!(summed, whole, "{ranks} ranks");
        assert_eq!(State::merge(states).unwrap().ledger(), whole, "{ranks} ranks");
    }
    assert!(whole.entries().is_sorted_by_key(|entry| (entry.stream, entry.number)));
}

#[test]
fn no_skip_is_counted_twice_after_a_restore() {
    let source = source();
    let cases = [(0, false), (5, false), (0, true), (5, true)];
    for ((shuffle, endless), staged) in
        cases.into_iter().zip([false; 4]).chain(cases.into_iter().zip([true; 4]))
    {
        let loader = |threads| {
            let items =
                items(dataset(&source, rank(0, 1))).on_error(OnError::skip(Failures::all())).shuffle(shuffle);
            let items = if staged { items.stage("kept", || Passing) } else { items };
            items.threads(threads).batch(3).build().unwrap()
        };
        let begin = |loader: &Loader<Batch<u64>>| if endless { loader.epochs(1) } else { loader.epoch(1) };
        let most = if endless { 45 } else { usize::MAX };
        let whole = all(begin(&loader(0)), most);
        assert!(whole.last().unwrap().1.ledger().skipped() > 10);
        for (at, (_, state)) in whole.iter().enumerate() {
            for threads in [0, 2] {
                let most = if endless { whole.len() - at - 1 } else { usize::MAX };
                let rest = all(loader(threads).restore(&saved(state)).unwrap(), most);
                // The state contains the ledger.
                assert!(
                    rest == whole[at + 1..],
                    "after {at}, shuffle {shuffle}, endless {endless}, staged {staged}"
                );
            }
        }
        if endless {
            let ledger = whole.last().unwrap().1.ledger();
            let epochs: Vec<u64> = ledger.entries().iter().map(|entry| entry.epoch).collect();
            assert!([1, 2].iter().all(|epoch| epochs.contains(epoch)), "{epochs:?}");
        }
    }
}

/// A stage that returns its items unchanged. It does not implement `save` or `is_fresh`. A restore therefore
/// pushes all items of the pass into it again.
struct Passing;

impl Stage<u64> for Passing {
    type Out = u64;

    fn push(&mut self, item: u64) -> Option<Result<u64>> {
        Some(Ok(item))
    }
}

/// The results of one stream in batches of 1. `fails` selects the numbers for which `map` fails.
fn limited(
    policy: OnError,
    fails: impl Fn(u64) -> bool + Send + Sync + Clone + 'static,
) -> Vec<(Found, State)> {
    let source = VersionedSource::of(&[40]);
    let run = |threads| {
        let dataset = source.dataset(1).streams(1).build().unwrap();
        let loader = failing(dataset, fails.clone()).on_error(policy.clone()).threads(threads).batch(1);
        let loader = loader.build().unwrap();
        let mut batches = loader.epoch(0);
        let mut found = Vec::new();
        while let Some(item) = batches.next() {
            let item = item.map(Batch::into_items).map_err(|error| {
                let ErrorKind::TooManySkipped { limit, skipped, .. } = error.kind() else {
                    panic!("{error:?}")
                };
                assert!(error.location().key().is_some(), "it says where: {error}");
                let last = std::error::Error::source(&error).unwrap().to_string();
                format!("{limit}; {skipped}; {last}")
            });
            found.push((item, batches.state()));
        }
        assert!(batches.next().is_none());
        found
    };
    let found = run(0);
    assert_eq!(found, run(2));
    found
}

#[test]
fn exceeding_a_limit_ends_the_run_and_names_the_limit() {
    let skip = || OnError::skip(Failures::step());
    // Two failures, then two, then three in a row.
    let rows = |n: u64| [5, 6, 10, 11, 20, 21, 22, 30].contains(&n);
    let found = limited(skip().in_a_row(2), rows);
    let (last, before) = found.split_last().unwrap();
    assert_eq!(good(before).concat(), (0..20).filter(|n| !rows(*n)).collect::<Vec<_>>());
    let error = last.0.as_ref().unwrap_err();
    assert!(error.starts_with("2 in a row; 2; ") && error.contains("22"), "{error}");
    assert_eq!(good(&limited(skip().in_a_row(3), rows)).len(), 32);

    let found = limited(skip().total(7), rows);
    let error = found.last().unwrap().0.as_ref().unwrap_err();
    assert!(error.starts_with("7 in total; 7; ") && error.contains("30"), "{error}");
    assert_eq!(good(&found).concat().last(), Some(&29));
    assert_eq!(good(&limited(skip().total(8), rows)).len(), 32);

    // Until there are more than 12 items and failures, the number of failures is divided by 12. The 4th
    // failure (4/12) exceeds a share of 0.3, and the 2nd failure (2/12) exceeds a share of 0.1.
    for (largest, skipped, last) in [(0.3, 3, "11"), (0.1, 1, "6")] {
        let found = limited(skip().share(largest, 12), rows);
        let error = found.last().unwrap().0.as_ref().unwrap_err();
        let limit = format!("a share of {largest} of 12 items and failures; {skipped}; ");
        assert!(error.starts_with(&limit) && error.contains(last), "{error}");
    }
    assert_eq!(good(&limited(skip().share(0.34, 12), rows)).len(), 32);

    // By default, a hundred failures in a row end the run.
    let found = limited(skip(), |_| true);
    assert!(good(&found).is_empty() && errors(&found).len() <= 1, "{:?}", errors(&found));
}

/// A sample that succeeds between two failures separates them, even if no item is returned for that sample
/// yet.
#[test]
fn failures_with_sound_samples_between_them_are_not_in_a_row() {
    let source = VersionedSource::of(&[100]);
    let items = || Loader::builder(source.dataset(1).streams(1).build().unwrap()).threads(0);
    let policy = |items: LoaderBuilder<Vec<u64>>| items.on_error(OnError::skip(Failures::all()).in_a_row(3));
    for sound in [2, 1000] {
        let fails = move |number: u64| !number.is_multiple_of(sound);
        let fail = move |sample: Sample| match fails(number(&sample)) {
            true => Err(Error::step("on purpose")),
            false => Ok(number(&sample)),
        };
        let rows = policy(
            items()
                .map(fail)
                .map(|number| Ok(vec![number]))
                .stage("pack", || Pack::new(100))
                .map(|row| Ok(row.tokens().to_vec())),
        );
        let shuffled = items().before_shuffle(move |sample| match fails(number(&sample)) {
            true => Err(Error::step("on purpose")),
            false => Ok(Some(sample)),
        });
        let dropped = shuffled.clone().filter_map(|_| Ok(None::<Vec<u64>>));
        let shuffled = policy(shuffled.shuffle(40).map(|sample| Ok(vec![number(&sample)])));
        for (what, loader) in [("rows", rows), ("shuffled", shuffled), ("dropped", policy(dropped))] {
            let found = all(loader.batch(1).build().unwrap().epoch(0), usize::MAX);
            let expected: &[&str] = if sound == 2 { &[] } else { &["too_many_skipped"] };
            assert_eq!(errors(&found), expected, "{what}, one of {sound} is sound");
            let items: usize = good(&found).concat().iter().map(Vec::len).sum();
            assert!(sound > 2 || items == 50 || what == "dropped", "{what}: {items}");
        }
    }
}

#[test]
fn limits_keep_counting_after_a_restore() {
    let source = VersionedSource::of(&[40]);
    let rows = |n: u64| [5, 6, 10, 11, 20, 21, 22, 30].contains(&n);
    for policy in [OnError::skip(Failures::step()).in_a_row(2), OnError::skip(Failures::step()).total(6)] {
        let dataset = source.dataset(1).streams(1).build().unwrap();
        let loader = failing(dataset, rows).on_error(policy).batch(1).build().unwrap();
        let whole = all(loader.epoch(0), usize::MAX);
        assert_eq!(errors(&whole), ["too_many_skipped"]);
        for (at, (_, state)) in whole.iter().enumerate() {
            let rest = all(loader.restore(&saved(state)).unwrap(), usize::MAX);
            let from = at + 1 - usize::from(whole[at].0.is_err());
            assert!(rest == whole[from..], "after {at}");
        }
    }
}

#[test]
fn the_rest_of_a_damaged_shard_is_skipped_on_request() {
    let source = source();
    let damage = || OnError::skip(Failures::damage() | Failures::missing_shards());
    for (shuffle, threads) in [(0, 0), (0, 2), (6, 2)] {
        let run = |policy: OnError| {
            let items =
                numbers(dataset(&source, rank(0, 1))).on_error(policy).shuffle(shuffle).threads(threads);
            let mut batches = items.batch(1).build().unwrap().epoch(0);
            let mut found: Vec<u64> =
                batches.by_ref().flat_map(|batch| batch.unwrap().into_items()).collect();
            found.sort_unstable();
            (found, batches.state())
        };
        let sound = |number: &u64| number / 1000 != 5 && ![1002, 6002].contains(number);
        let every = (0..8).flat_map(|shard| (0..9).map(move |n| shard * 1000 + n)).filter(sound);
        assert_eq!(run(damage()).0, every.clone().collect::<Vec<_>>());
        let (found, state) = run(damage().rest_of_shard(true));
        let kept = |number: &u64| ![1, 6].contains(&(number / 1000)) || number % 1000 < 2;
        assert_eq!(found, every.filter(kept).collect::<Vec<_>>());
        assert_eq!(kinds(&state.ledger()), [("duplicate_member".into(), 2), ("not_found".into(), 1)]);
    }
}

#[test]
fn an_abandoned_shard_stays_abandoned_after_a_restore() {
    let source = source();
    let policy = || OnError::skip(Failures::all()).rest_of_shard(true);
    for shuffle in [0, 6] {
        let items = numbers(dataset(&source, rank(0, 1))).on_error(policy()).shuffle(shuffle).threads(0);
        let loader = items.batch(2).build().unwrap();
        let whole = all(loader.epoch(0), usize::MAX);
        for (at, (_, state)) in whole.iter().enumerate() {
            let rest = all(loader.restore(&saved(state)).unwrap(), usize::MAX);
            assert!(
                rest == whole[at + 1..],
                "after {at}, shuffle {shuffle}: {:?}, {:?}",
                good(&rest),
                good(&whole[at + 1..])
            );
        }
    }
}

#[test]
fn panics_are_skipped_only_on_request() {
    let source = VersionedSource::of(&[9]);
    let run = |failures| {
        let items = Loader::builder(source.dataset(1).build().unwrap()).map(|sample| {
            assert!(number(&sample) != 4, "on purpose");
            Ok(number(&sample))
        });
        all(items.on_error(OnError::skip(failures)).batch(4).build().unwrap().epoch(0), usize::MAX)
    };
    let found = run(Failures::step());
    assert_eq!((errors(&found), good(&found).concat().len()), (vec!["panicked".to_owned()], 8));
    let found = run(Failures::panics());
    assert!(errors(&found).is_empty());
    assert_eq!(kinds(&found.last().unwrap().1.ledger()), [("panicked".to_owned(), 1)]);
}
