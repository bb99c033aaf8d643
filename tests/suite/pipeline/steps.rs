//! The end of an epoch: failed samples are replaced, batches are full, and all ranks take the same number of
//! steps.

use super::{Found, VersionedSource, all, errors, failing, good, next, number, numbers, rank, saved, url};
use crate::support::Every;
use crate::support::versioned_source::counts;
use crate::support::{member, shards::key};
use shardstream::State;
use shardstream::loader::{Failures, LastBatch, LoaderBuilder, OnError};
use shardstream::prelude::*;
use std::collections::VecDeque;
use std::sync::Arc;

const SHARDS: usize = 8;
const SIZE: usize = 12;
const STREAMS: usize = 4;
const LAST: [LastBatch; 4] = [LastBatch::Keep, LastBatch::Drop, LastBatch::Pad, LastBatch::Repeat];

/// Whether a sample has a duplicate member: sample 3 of shard 1, sample 5 of shard 4 and all samples but one
/// of shard 7.
fn is_damaged(number: u64) -> bool {
    matches!(number, 1003 | 4005) || number / 1000 == 7 && number != 7002
}

/// Whether a sample fails in `map`, after it was read.
fn fails(number: u64) -> bool {
    number % 5 == 1 || number / 1000 == 2 && !number.is_multiple_of(3)
}

/// The dataset, with an index that was made before the shards were damaged.
fn dataset(source: &Arc<VersionedSource>, topology: Topology) -> Dataset {
    let dataset = source.dataset(SHARDS).streams(STREAMS).topology(topology);
    dataset.index(counts(&[SIZE; SHARDS])).build().unwrap()
}

fn source() -> Arc<VersionedSource> {
    let source = VersionedSource::of(&[SIZE; SHARDS]);
    for shard in 0..SHARDS {
        let members = |sample: usize| {
            let times = if is_damaged((shard * 1000 + sample) as u64) { 2 } else { 1 };
            member(&format!("{}.cls", key(shard, sample)), tar::EntryType::Regular, b"1").repeat(times)
        };
        let mut bytes: Vec<u8> = (0..SIZE).flat_map(members).collect();
        bytes.resize(bytes.len() + 1024, 0);
        source.put(&url(shard), bytes, Some("v1"));
    }
    source
}

fn items(source: &Arc<VersionedSource>, topology: Topology) -> LoaderBuilder<u64> {
    failing(dataset(source, topology), fails)
}

/// The results of each stream: items, and causes of failures.
fn streams(source: &Arc<VersionedSource>) -> Vec<Vec<Result<u64, String>>> {
    let plan = dataset(source, rank(0, 1)).plan().clone();
    let one = |number: u64| match number {
        _ if is_damaged(number) => Err("duplicate_member".to_owned()),
        _ if fails(number) => Err(number.to_string()),
        _ => Ok(number),
    };
    let stream = |stream| {
        let slices = plan.stream(0, stream);
        assert!(slices.iter().every(|slice| slice.samples == (0..SIZE as u64)), "streams have whole shards");
        slices.iter().flat_map(|slice| (0..SIZE as u64).map(|n| one(slice.shard as u64 * 1000 + n))).collect()
    };
    (0..STREAMS).map(stream).collect()
}

/// The results that a rank should return in an epoch.
fn expected(
    source: &Arc<VersionedSource>,
    (rank, ranks): (usize, usize),
    batch: usize,
    last: LastBatch,
) -> Vec<Found> {
    let streams: Vec<_> = streams(source).into_iter().skip(rank).step_by(ranks).collect();
    let first = streams.iter().flatten().find_map(|one| one.clone().ok()).unwrap();
    let mut local_streams: Vec<_> = streams.iter().map(|stream| VecDeque::from(stream.clone())).collect();
    // According to the index, all streams have the same length.
    let all = SHARDS * SIZE / ranks;
    let steps = if last == LastBatch::Drop { all / batch } else { all.div_ceil(batch) };
    let refilled = matches!(last, LastBatch::Drop | LastBatch::Repeat);
    let (mut found, mut place) = (Vec::new(), 0);
    for _ in 0..steps {
        let mut items = Vec::new();
        for _ in 0..batch {
            let stream_number = place % local_streams.len();
            place += 1;
            loop {
                match local_streams[stream_number].pop_front() {
                    Some(Ok(item)) => items.push(item),
                    Some(Err(error)) => {
                        found.push(Err(error));
                        continue;
                    }
                    None if refilled => {
                        local_streams[stream_number].extend(streams[stream_number].iter().cloned());
                        continue;
                    }
                    None => {}
                }
                break;
            }
        }
        if last == LastBatch::Pad {
            let spare = items.last().copied().unwrap_or(first);
            items.resize(batch, spare);
        }
        if last != LastBatch::Keep || !items.is_empty() {
            found.push(Ok(items));
        }
    }
    found
}

/// For all ranks together, the number of slots of an epoch for which streams have no sample left.
fn filled(source: &Arc<VersionedSource>, steps: usize, batch: usize) -> u64 {
    let places = |stream_number: usize| {
        (stream_number..steps * batch).step_by(STREAMS).take(SHARDS * SIZE / STREAMS).count()
    };
    let items = |stream: &Vec<Result<u64, String>>| stream.iter().flatten().count();
    let missing = streams(source)
        .iter()
        .enumerate()
        .map(|(stream_number, stream)| places(stream_number).saturating_sub(items(stream)))
        .sum::<usize>();
    missing as u64
}

/// The number of slots that the ledger counts as padded, and as filled from the start of the epoch.
fn padded_and_repeated(state: &State) -> (u64, u64) {
    (state.ledger().padded(), state.ledger().repeated())
}

fn good_of(found: &[Found]) -> Vec<&Vec<u64>> {
    found.iter().flatten().collect()
}

/// The failed numbers without duplicates: a sample may fail again when another pass fills slots.
fn failed(found: &[Found]) -> Vec<&String> {
    let mut failed: Vec<_> = found.iter().filter_map(|item| item.as_ref().err()).collect();
    failed.sort_unstable();
    failed.dedup();
    failed
}

#[test]
fn failures_are_replaced_under_every_last_batch_option() {
    let source = source();
    for last in LAST {
        for batch in [3, 4, 5, 7] {
            let expected = expected(&source, (0, 1), batch, last);
            for threads in [0, 1, 3] {
                let loader = items(&source, rank(0, 1))
                    .threads(threads)
                    .last_batch(last)
                    .batch(batch)
                    .build()
                    .unwrap();
                let what = format!("{last:?}, batches of {batch}, {threads} threads");
                let mut batches = loader.epoch(0);
                let found: Vec<Found> = std::iter::from_fn(|| next(&mut batches)).collect();
                assert_eq!(good_of(&found), good_of(&expected), "{what}");
                assert_eq!(failed(&found), failed(&expected), "{what}");
                // Until a stream has ended, all errors are at their exact positions. With `LastBatch::Keep`,
                // later errors are, too, because no slots of ended streams are filled.
                let ordered = if last == LastBatch::Keep { found.len() } else { 12 };
                assert_eq!(found[..ordered], expected[..ordered], "{what}");
                let full = good_of(&found).iter().filter(|items| items.len() == batch).count();
                assert!(full == good_of(&found).len() || last == LastBatch::Keep, "{what}");
                let steps = loader.steps().unwrap() as usize;
                assert!(steps == good_of(&found).len() || last == LastBatch::Keep, "{what}: {steps} steps");
                let filled = filled(&source, steps, batch);
                let expected = match last {
                    LastBatch::Drop | LastBatch::Repeat => (0, filled),
                    LastBatch::Pad => (filled, 0),
                    _ => (0, 0),
                };
                assert_eq!(padded_and_repeated(&batches.state()), expected, "{what}");
            }
        }
    }
}

/// One sample fails in each of the three passes. It fails a fourth time when the epoch's first samples are
/// read again to replace failed ones. The ledger lists this fourth failure under the epoch of the last pass.
#[test]
fn the_ledger_lists_skips_in_the_order_of_epochs() {
    let dataset = VersionedSource::of(&[4]).dataset(1).index(counts(&[4])).build().unwrap();
    let items = failing(dataset, |number| number == 1).passes(3).last_batch(LastBatch::Drop);
    let loader = items.on_error(OnError::skip(Failures::all())).threads(0).batch(1).build().unwrap();
    let mut batches = loader.epoch(2);
    assert_eq!(batches.by_ref().count(), 12);
    let epochs: Vec<u64> = saved(&batches.state()).ledger().entries().iter().map(|skip| skip.epoch).collect();
    assert_eq!(epochs, [6, 7, 8, 8]);
}

#[test]
fn all_ranks_take_the_same_number_of_steps() {
    let source = source();
    for last in [LastBatch::Drop, LastBatch::Pad, LastBatch::Repeat] {
        for (ranks, batch) in [(2, 3), (2, 5), (4, 1), (4, 5)] {
            for threads in [0, 2] {
                let found: Vec<Vec<Found>> = (0..ranks)
                    .map(|number| {
                        let items = items(&source, rank(number, ranks)).threads(threads).last_batch(last);
                        let loader = items.batch(batch).build().unwrap();
                        let mut batches = loader.epoch(0);
                        let found: Vec<_> = std::iter::from_fn(|| next(&mut batches)).collect();
                        assert_eq!(loader.steps(), Some(good_of(&found).len() as u64));
                        found
                    })
                    .collect();
                for (number, found) in found.iter().enumerate() {
                    let expected = expected(&source, (number, ranks), batch, last);
                    let what = format!("{last:?}, rank {number} of {ranks}, batches of {batch}");
                    assert_eq!(good_of(found), good_of(&expected), "{what}");
                    assert!(good_of(found).iter().every(|items| items.len() == batch), "{what}");
                    assert_eq!(good_of(found).len(), good_of(&expected).len(), "{what}");
                }
            }
        }
    }
}

#[test]
fn a_filled_epoch_resumes_after_any_batch_on_any_ranks() {
    let source = source();
    for last in [LastBatch::Drop, LastBatch::Repeat, LastBatch::Pad] {
        let loader = |threads, number, ranks, shuffle| {
            let items = items(&source, rank(number, ranks)).shuffle(shuffle).threads(threads);
            items.last_batch(last).batch(8 / ranks).build().unwrap()
        };
        for shuffle in [0, 9] {
            let whole = all(loader(0, 0, 1, shuffle).epoch(0), usize::MAX);
            let states: Vec<_> =
                whole.iter().filter(|(item, _)| item.is_ok()).map(|(_, state)| state).collect();
            let rows = good(&whole);
            for (at, state) in states.iter().enumerate() {
                let what = format!("{last:?} after {at}, shuffle {shuffle}");
                for threads in [0, 2] {
                    let rest =
                        all(loader(threads, 0, 1, shuffle).restore(&saved(state)).unwrap(), usize::MAX);
                    assert_eq!(good(&rest), rows[at + 1..], "{what}, {threads} threads");
                    let ends = [rest.last(), whole.last()].map(|last| last.map(|(_, state)| state.digest()));
                    assert!(rest.is_empty() || ends[0] == ends[1], "{what}");
                }
                for ranks in [2, 4] {
                    let rest: Vec<_> = (0..ranks)
                        .map(|number| {
                            let loader = loader(2, number, ranks, shuffle);
                            good(&all(loader.restore(&saved(state)).unwrap(), usize::MAX))
                        })
                        .collect();
                    assert!(rest.iter().every(|rows| rows.len() == rest[0].len()), "{what}: as many steps");
                    // The padding of a batch differs between ranks.
                    if last == LastBatch::Pad {
                        continue;
                    }
                    for (step, row) in rows[at + 1..].iter().enumerate() {
                        let dealt: Vec<u64> = (0..8).map(|g| rest[g % ranks][step][g / ranks]).collect();
                        assert_eq!(dealt, *row, "{what}, {ranks} ranks, step {step}");
                    }
                }
            }
        }
    }
}

#[test]
fn states_of_ranks_with_replaced_failures_merge() {
    let source = source();
    let loader = |number, ranks| {
        let items = items(&source, rank(number, ranks)).shuffle(5).threads(0).last_batch(LastBatch::Drop);
        items.batch(8 / ranks).build().unwrap()
    };
    let whole = good(&all(loader(0, 1).epoch(2), usize::MAX));
    let ranks_found: Vec<_> = (0..4).map(|number| all(loader(number, 4).epoch(2), usize::MAX)).collect();
    let ends = ranks_found.iter().map(|found| found.last().unwrap().1.clone());
    assert_eq!(padded_and_repeated(&State::merge(ends).unwrap()), (0, filled(&source, whole.len(), 8)));
    for step in 0..whole.len() {
        let state = |found: &Vec<(Found, State)>| {
            found.iter().filter(|(item, _)| item.is_ok()).nth(step).map(|(_, state)| state.clone()).unwrap()
        };
        let merged = saved(&State::merge(ranks_found.iter().map(state)).unwrap());
        assert_eq!(
            good(&all(loader(0, 1).restore(&merged).unwrap(), usize::MAX)),
            whole[step + 1..],
            "{step}"
        );
    }
}

/// The index counts 12 samples per shard, but only three of them pass `map`. It therefore takes several
/// passes to fill the batches of an epoch.
#[test]
fn an_epoch_repeats_until_its_batches_are_full() {
    let source = VersionedSource::of(&[12, 12]);
    let few = |number: u64| number % 1000 > 2;
    for threads in [0, 2] {
        let dataset = source.dataset(2).streams(2).index(counts(&[12, 12])).build().unwrap();
        let loader =
            failing(dataset, few).threads(threads).last_batch(LastBatch::Drop).batch(4).build().unwrap();
        let whole = all(loader.epoch(0), usize::MAX);
        let rounds = [[0, 1000, 1, 1001], [2, 1002, 0, 1000], [1, 1001, 2, 1002]];
        assert_eq!(good(&whole), [rounds, rounds].concat());
        for (at, (_, state)) in whole.iter().enumerate() {
            let left: Vec<_> = good(&whole[at + 1..]);
            assert_eq!(good(&all(loader.restore(&saved(state)).unwrap(), usize::MAX)), left, "after {at}");
        }
    }
}

/// Without an index, the number of steps is unknown. Each rank fills its batches and drops the last
/// incomplete one.
#[test]
fn batches_are_full_without_an_index_too() {
    let source = source();
    let dataset = source.dataset(SHARDS).streams(STREAMS).build().unwrap();
    for threads in [0, 2] {
        let items = failing(dataset.clone(), fails).threads(threads).last_batch(LastBatch::Drop);
        let loader = items.batch(7).build().unwrap();
        assert_eq!(loader.steps(), None);
        let found = all(loader.epoch(0), usize::MAX);
        let sound = (0..SHARDS as u64).flat_map(|shard| (0..SIZE as u64).map(move |n| shard * 1000 + n));
        let sound = sound.filter(|number| !is_damaged(*number) && !fails(*number)).count();
        assert!(good(&found).iter().every(|items| items.len() == 7));
        assert_eq!(good(&found).len(), sound / 7);
        assert_eq!(errors(&found).len(), SHARDS * SIZE - sound);
    }
}

/// After a stream has ended, its slots stay empty, also with a single rank: a global batch must not depend on
/// the number of ranks. With an index, all streams have the same length.
#[test]
fn without_an_index_an_epoch_has_more_and_smaller_batches_at_its_end() {
    let sizes = [80; 147];
    let source = VersionedSource::of(&sizes);
    let batches = |indexed: bool, last| {
        let dataset = source.dataset(sizes.len()).streams(8).shuffle_shards(true);
        let dataset = if indexed { dataset.index(counts(&sizes)) } else { dataset };
        let loader = numbers(dataset.build().unwrap()).threads(0).last_batch(last).batch(32).build().unwrap();
        let sizes: Vec<usize> = good(&all(loader.epoch(0), usize::MAX)).iter().map(Vec::len).collect();
        sizes
    };
    let bare = batches(false, LastBatch::Keep);
    assert_eq!((bare.len(), &bare[359..361], bare[379]), (380, &[32, 12][..], 12));
    assert_eq!(batches(false, LastBatch::Drop), [32; 367]);
    let indexed = batches(true, LastBatch::Keep);
    assert_eq!((indexed.len(), indexed[367]), (368, 16));
}

#[test]
fn each_dataset_of_a_mix_is_repeated_by_itself() {
    let part = |sizes: &[usize], seed| {
        let dataset =
            VersionedSource::of(sizes).dataset(sizes.len()).streams(1).index(counts(sizes)).seed(seed);
        numbers(dataset.build().unwrap())
    };
    let mix = |threads, last| {
        let other = part(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 1], 2).weight(1);
        let mix = Loader::mix([part(&[9, 8], 1).weight(3), other]).threads(threads);
        mix.last_batch(last).batch(6).build().unwrap()
    };
    let kept: Vec<u64> = good(&all(mix(0, LastBatch::Keep).epoch(0), usize::MAX)).concat();
    assert_eq!(kept.len(), 22);
    for threads in [0, 2] {
        let loader = mix(threads, LastBatch::Repeat);
        assert_eq!(loader.steps(), Some(4));
        let whole = all(loader.epoch(0), usize::MAX);
        let found = good(&whole);
        assert!(found.len() == 4 && found.iter().all(|items| items.len() == 6), "{found:?}");
        assert_eq!(found.concat()[..22], kept);
        // The items that follow the first 22 are from the start of each dataset.
        for is_first in [true, false] {
            let of = |items: &[u64]| -> Vec<u64> {
                items.iter().copied().filter(|number| (*number < 9000) == is_first).collect()
            };
            assert!(of(&kept).starts_with(&of(&found.concat()[22..])), "{found:?}");
        }
        for (at, (_, state)) in whole.iter().enumerate() {
            let rest = good(&all(loader.restore(&saved(state)).unwrap(), usize::MAX));
            assert_eq!(rest, found[at + 1..]);
        }
    }
}

/// Damaged samples are replaced like samples that fail in `map`, also in a loader without a `map`.
#[test]
fn damaged_samples_are_replaced_without_stages_too() {
    let source = source();
    let samples = Loader::builder(dataset(&source, rank(0, 1))).last_batch(LastBatch::Drop).batch(8);
    for threads in [0, 2] {
        let loader = samples.clone().threads(threads).build().unwrap();
        let (good, failed): (Vec<_>, Vec<_>) = loader.epoch(0).partition(Result::is_ok);
        let sizes: Vec<usize> = good.iter().flatten().map(|batch| batch.len()).collect();
        assert_eq!(sizes, [8; 12]);
        assert!(
            failed
                .iter()
                .flat_map(|error| error.as_ref().err())
                .all(|error| error.location().shard().is_some())
        );
        let found = good.iter().flatten().flat_map(|batch| batch.iter().map(number));
        assert!(!found.into_iter().any(is_damaged));
    }
}

/// Rank 1 has one item, of the second dataset. Its other batches are padded from the first dataset that has
/// an item on any rank. In that dataset, the rank's own streams are searched before those of other ranks.
#[test]
fn an_empty_batch_is_padded_from_the_first_dataset_with_an_item() {
    let part = |fails: fn(u64) -> bool| {
        let dataset = VersionedSource::of(&[4, 4]).dataset(2).streams(2).index(counts(&[4, 4]));
        failing(dataset.topology(rank(1, 2)).build().unwrap(), fails)
    };
    type Fails = fn(u64) -> bool;
    let firsts: [(Fails, u64); 2] = [(|number| number >= 1000, 0), (|_| true, 1000)];
    for (threads, (fails, first)) in
        [0, 2].into_iter().flat_map(|threads| firsts.map(|first| (threads, first)))
    {
        let mix = Loader::mix([part(fails), part(|number| number > 1000)]).threads(threads);
        let loader = mix.last_batch(LastBatch::Pad).batch(2).build().unwrap();
        let whole = all(loader.epoch(0), usize::MAX);
        let expected = [[1000, 1000], [first; 2], [first; 2], [first; 2]];
        assert_eq!(good(&whole), expected, "{:?}", errors(&whole));
        let state = whole.iter().find(|(item, _)| item.is_ok()).map(|(_, state)| saved(state)).unwrap();
        assert_eq!(good(&all(loader.restore(&state).unwrap(), usize::MAX)), expected[1..]);
    }
}

/// Both datasets have far fewer sound samples than their index says, and both are repeated.
#[test]
fn a_filled_mix_resumes_after_any_batch() {
    let part = |seed: u64, weight, threads| {
        let dataset = VersionedSource::of(&[9, 9]).dataset(2).streams(2).index(counts(&[9, 9])).seed(seed);
        let keeps = move |number: u64| number % 1000 < 2 + seed;
        failing(dataset.build().unwrap(), move |number| !keeps(number)).weight(weight).threads(threads)
    };
    let loader = |threads| {
        let mix = Loader::mix([part(0, 3, threads), part(1, 1, threads)]).last_batch(LastBatch::Drop);
        mix.batch(3).build().unwrap()
    };
    let whole = all(loader(0).epoch(0), usize::MAX);
    let rows = good(&whole);
    assert_eq!(rows.iter().map(Vec::len).collect::<Vec<_>>(), [3; 12]);
    // A stream has 2 items of the first dataset and 3 items of the second dataset. It returns all five items
    // before it repeats any of them.
    for round in rows.concat().chunks_exact(10) {
        let mut round = round.to_vec();
        round.sort_unstable();
        assert_eq!(round, [0, 0, 1, 1, 2, 1000, 1000, 1001, 1001, 1002], "{rows:?}");
    }
    for (at, (_, state)) in whole.iter().enumerate() {
        for threads in [0, 2] {
            let rest = good(&all(loader(threads).restore(&saved(state)).unwrap(), usize::MAX));
            assert_eq!(rest, good(&whole[at + 1..]), "after {at}");
        }
    }
}
