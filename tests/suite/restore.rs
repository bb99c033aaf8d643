//! States that a loader refuses, with the texts of the errors. No JSON given as a state makes a loader panic
//! or run for ever.

use crate::support::versioned_source::{VersionedSource, counts, shard, url};
use futures::StreamExt;
use proptest::prelude::*;
use serde_json::{Value as Json, json};
use shardstream::dataset::DatasetBuilder;
use shardstream::loader::{Batches, Failures, LastBatch, LoaderBuilder, OnError};
use shardstream::prelude::*;
use shardstream::state::Changes;
use shardstream::{Error, ErrorKind, Result, State};
use std::sync::Arc;

const SIZES: [usize; 8] = [7, 12, 3, 9, 6, 1, 14, 5];

fn dataset(source: &Arc<VersionedSource>) -> DatasetBuilder {
    source.dataset(SIZES.len()).streams(4).shuffle_shards(true).seed(42)
}

fn items(dataset: DatasetBuilder) -> LoaderBuilder<String> {
    Loader::builder(dataset.build().unwrap()).shuffle(6).threads(0).map(|sample| Ok(sample.key().to_owned()))
}

/// The state after a few batches.
fn taken(mut batches: Batches<Batch<String>>, count: usize) -> State {
    assert_eq!(batches.by_ref().map(Result::unwrap).take(count).count(), count);
    batches.state()
}

fn refused<T>(found: Result<T>, whys: &[&str]) {
    let error = found.err().expect("it is refused");
    assert!(matches!(error.kind(), ErrorKind::State(_)), "{error:?}");
    whys.iter().for_each(|why| assert!(error.to_string().contains(why), "{why:?} in {error}"));
}

#[test]
fn a_state_of_another_job_is_refused_with_the_difference() {
    let source = VersionedSource::of(&SIZES);
    let state = taken(items(dataset(&source)).batch(4).build().unwrap().epoch(0), 3);
    let here = |dataset: DatasetBuilder| items(dataset);
    let list = |numbers: [usize; 8]| dataset(&source).only(numbers);
    let cases = [
        (here(dataset(&source).seed(43)), "the seed is 42 in the state, and 43 here"),
        (here(dataset(&source).streams(2)), "the number of streams is 4 in the state, and 2 here"),
        (here(list([1, 0, 2, 3, 4, 5, 6, 7])), "names or their order have changed"),
        (here(source.dataset(7).streams(4).seed(42)), "the number of shards is 8 in the state, and 7 here"),
        (here(dataset(&source).shuffle_shards(false)), "shuffled in the state, and listed here"),
        // For shards in the listed order, the default number of streams is one per rank and worker. The error
        // reports that the order differs, not that the number of streams differs.
        (here(dataset(&source).shuffle_shards(false).streams(1)), "shuffled in the state, and listed here"),
        (
            here(dataset(&source).keep_shards(true)),
            "`resample_shards`, `sampler`) is shuffled in the state, and shuffled within each stream here",
        ),
        (here(dataset(&source).resample_shards(true)), "shuffled in the state, and resampled here"),
        (here(dataset(&source).index(counts(&SIZES))), "without an index, and here is one"),
        (items(dataset(&source)).shuffle(7), "the shuffle buffer is 6 in the state, and 7 here"),
        (items(dataset(&source)).weight(2), "the weight is 1 in the state, and 2 here"),
        (items(dataset(&source)).passes(2), "the passes are 1 in the state, and 2 here"),
        (
            Loader::mix([items(dataset(&source)), items(dataset(&source))]),
            "the number of datasets is 1 in the state, and 2 here",
        ),
    ];
    for (other, why) in cases {
        refused(
            other.batch(4).build().unwrap().restore(&state),
            &[why, "restore it with the options that it was saved with, or begin an epoch anew"],
        );
    }
    let mixed = |weight| {
        Loader::mix([items(dataset(&source)), items(dataset(&source)).weight(weight)])
            .batch(4)
            .build()
            .unwrap()
    };
    refused(
        mixed(2).restore(&taken(mixed(3).epoch(0), 2)),
        &["dataset 1: the weight is 3 in the state, and 2 here"],
    );

    let counting = |sizes: &[usize]| items(dataset(&source).index(counts(sizes))).batch(4);
    let counted = |sizes: &[usize]| counting(sizes).build().unwrap();
    let indexed = taken(counted(&SIZES).epoch(0), 3);
    refused(
        items(dataset(&source)).batch(4).build().unwrap().restore(&indexed),
        &["with an index, and here is none"],
    );
    refused(
        counted(&[7, 12, 3, 9, 6, 1, 14, 6]).restore(&indexed),
        &["sizes, counts or versions of shards have changed"],
    );
    // An epoch that repeats samples to fill its last step differs from an epoch that does not repeat samples.
    let repeating = counting(&SIZES).last_batch(LastBatch::Repeat).build().unwrap();
    let repeated = taken(repeating.epoch(0), 3);
    let what = "repeated to fill the last step";
    refused(repeating.restore(&indexed), &["what is read is epoch 0 in the state", what]);
    refused(counted(&SIZES).restore(&repeated), &[what, "in the state, and epoch 0 here"]);
}

#[test]
fn a_changed_mixture_is_advised_only_where_it_is_allowed() {
    let source = VersionedSource::of(&SIZES);
    let loader = |seed, streams, weight| {
        let first = items(dataset(&source).seed(seed).streams(streams));
        let second = items(source.dataset(SIZES.len()).streams(streams));
        Loader::mix([first, second.weight(weight)]).batch(4).build().unwrap()
    };
    let whole = loader(42, 4, 1);
    let states = [taken(whole.epochs(0), 3), taken(whole.epoch(0), 3)];
    let others = [
        ("another seed", loader(43, 4, 1), [true, false]),
        ("other streams", loader(42, 2, 1), [false, false]),
        ("another weight", loader(42, 4, 2), [true, true]),
    ];
    for (what, other, expected) in others {
        for (state, expected) in states.iter().zip(expected) {
            let error = other.restore(state).map(drop).expect_err("it is refused").to_string();
            assert_eq!(error.contains("`Loader::restore_changed`"), expected, "{what}: {error}");
            let allowed = [Changes::new(), Changes::new().restarted("0")];
            let is_allowed = allowed.iter().any(|changes| other.restore_changed(state, changes).is_ok());
            assert_eq!(is_allowed, expected, "{what}");
        }
    }
}

#[test]
fn threads_and_batch_size_may_differ_on_a_restore() {
    let source = VersionedSource::of(&SIZES);
    let mut batches = items(dataset(&source)).batch(4).build().unwrap().epoch(0);
    assert_eq!(batches.by_ref().take(3).count(), 3);
    let state = batches.state();
    let rest = keys(batches);
    for (threads, batch, ahead) in [(0, 4, 1), (2, 4, 3), (1, 1, 2), (3, 32, 1)] {
        let loader = items(dataset(&source)).threads(threads).batch(batch).prefetch(ahead).build().unwrap();
        assert_eq!(keys(loader.restore(&state).unwrap()), rest);
    }
}

#[test]
fn states_cover_only_returned_batches_on_any_threads() {
    let source = VersionedSource::of(&SIZES);
    let texts = |batches: Batches<Batch<String>>| -> Vec<(Vec<String>, String)> {
        let shown = |batch: Batch<String>| (batch.to_vec(), batch.state().unwrap().to_string());
        batches.map(|batch| shown(batch.unwrap())).collect()
    };
    let loader =
        |threads, ahead| items(dataset(&source)).threads(threads).batch(4).prefetch(ahead).build().unwrap();
    let expected = texts(loader(0, 1).epoch(2));
    for (threads, ahead) in [(1, 1), (2, 3), (3, 9)] {
        assert_eq!(texts(loader(threads, ahead).epoch(2)), expected);
        for (stop, (_, state)) in expected.iter().enumerate() {
            let state: State = state.parse().unwrap();
            assert_eq!(texts(loader(threads, ahead).restore(&state).unwrap()), expected[stop + 1..]);
        }
    }
    let mut batches = loader(2, 3).epoch(2).into_stream();
    for (_, state) in &expected {
        assert!(futures::executor::block_on(batches.next()).unwrap().is_ok());
        assert_eq!(
            batches.get_ref().state().to_string(),
            *state,
            "a state does not depend on batches that are read ahead"
        );
    }
}

/// The random numbers of a sample depend on its shard's number.
#[test]
fn the_same_shards_under_other_numbers_are_refused() {
    let source = VersionedSource::of(&SIZES);
    let part = || items(source.dataset(8).only([4, 5, 6, 7])).batch(4).build().unwrap();
    let state = taken(part().epoch(0), 2);
    let alone = Dataset::builder(ShardList::from_urls((4..8).map(url))).store(source.store());
    refused(
        items(alone.topology(Topology::single())).batch(4).build().unwrap().restore(&state),
        &["the list of shards differs"],
    );
    assert!(part().restore(&state).is_ok());
}

fn keys(batches: Batches<Batch<String>>) -> Vec<String> {
    batches.flat_map(|batch| batch.unwrap().into_items()).collect()
}

#[test]
fn streams_that_are_missing_are_named() {
    let source = VersionedSource::of(&SIZES);
    let rank = |rank, ranks| {
        let items = items(dataset(&source).topology(Topology::new(rank, ranks).unwrap()));
        items.uneven_steps(true).batch(2).build().unwrap()
    };
    let states: Vec<State> = (0..2).map(|number| taken(rank(number, 2).epoch(0), 3)).collect();
    let whys = ["it does not have stream 1, which this rank reads: merge the states of all ranks"];
    refused(rank(1, 2).restore(&states[0]), &whys);
    refused(rank(0, 1).restore(&states[0]), &whys);
    assert!(rank(1, 2).restore(&states[1]).is_ok());
    // Rank 2 of 4 reads one of the two streams that rank 0 of 2 has read, so the state of rank 0 suffices.
    assert!(rank(2, 4).restore(&states[0]).is_ok());
    let whole = State::merge(states).unwrap();
    for (ranks, number) in [(1, 0), (2, 1), (4, 3)] {
        assert!(rank(number, ranks).restore(&whole).is_ok());
    }
}

/// The loader of one rank of a job with two ranks. The dataset has no index, and its shards are in the order
/// of the list.
fn rank_of_two(
    source: &Arc<VersionedSource>,
    shards: usize,
    streams: usize,
    rank: usize,
) -> LoaderBuilder<String> {
    let dataset = source.dataset(shards).streams(streams).topology(Topology::new(rank, 2).unwrap());
    items(dataset).shuffle(0).uneven_steps(true)
}

#[test]
fn ranks_with_other_batch_sizes_do_not_merge() {
    let source = VersionedSource::of(&SIZES);
    let state =
        |rank, batch| taken(rank_of_two(&source, 8, 4, rank).batch(batch).build().unwrap().epochs(0), 3);
    let merged = State::merge([state(0, 2), state(1, 4)]);
    refused(merged, &["4 items by state 0, and 8 by state 1: give all ranks batches of the same size"]);
    assert!(State::merge([state(0, 4), state(1, 4)]).is_ok());
}

/// Stream 1 ends early, so rank 1 leaves out the batches that would only have had items of stream 1.
#[test]
fn ranks_at_different_steps_resume_in_the_global_order() {
    let source = VersionedSource::of(&[6, 1, 6, 9]);
    let whole = |last: LastBatch| {
        let loader = items(source.dataset(4).streams(4)).shuffle(0).batch(2);
        loader.last_batch(last).build().unwrap()
    };
    let order = keys(whole(LastBatch::Keep).epoch(0));
    for last in [LastBatch::Keep, LastBatch::Drop] {
        for steps in 0..=14 {
            let mut before = Vec::new();
            let ranks = [0, 1].map(|rank| {
                let loader = rank_of_two(&source, 4, 4, rank).batch(1);
                let mut batches = loader.last_batch(last).build().unwrap().epoch(0);
                before.extend(batches.by_ref().take(steps).flat_map(|batch| batch.unwrap().into_items()));
                batches.state()
            });
            let merged: State = State::merge(ranks).unwrap().to_string().parse().unwrap();
            let mut rest = whole(last).restore(&merged).unwrap();
            let found: Vec<_> = rest.by_ref().flat_map(|batch| batch.unwrap().into_items()).collect();
            let left: Vec<_> = order.iter().filter(|key| !before.contains(key)).collect();
            let all = if last == LastBatch::Drop { left.len() / 2 * 2 } else { left.len() };
            assert_eq!(found.iter().collect::<Vec<_>>(), left[..all], "{last:?} after {steps}");
            if last == LastBatch::Keep {
                let mut batches = whole(LastBatch::Keep).epoch(0);
                assert_eq!(batches.by_ref().map(Result::unwrap).map(|batch| batch.len()).sum::<usize>(), 22);
                assert_eq!(rest.state().digest(), batches.state().digest());
            }
        }
    }
}

/// A shard that is cut within its last sample.
fn cut(number: usize, size: usize) -> Vec<u8> {
    let (mut whole, kept) = (shard(number, size), shard(number, size - 1).len() - 1024);
    whole.truncate(kept + 512);
    whole
}

#[test]
fn a_rank_whose_last_item_failed_is_at_its_end() {
    for threads in [0, 2] {
        let source = VersionedSource::of(&[6, 5]);
        source.put(&url(1), cut(1, 5), Some("v1"));
        let loader = |rank| rank_of_two(&source, 2, 2, rank).threads(threads).batch(2).build().unwrap();
        let mut errors = Vec::new();
        let states = [0, 1].map(|rank| {
            let mut batches = loader(rank).epoch(0);
            errors.push(batches.by_ref().filter_map(Result::err).count());
            batches.state()
        });
        assert_eq!(errors, [0, 1]);
        assert_eq!([0, 1].map(|rank: usize| states[rank].batches()), [3, 2]);
        let whole = State::merge(states).unwrap();
        assert_eq!(whole.samples(), 10);
        assert!(loader(0).restore(&whole).unwrap().next().is_none());
        assert!(loader(1).restore(&whole).unwrap().next().is_none());
    }
}

/// The state of rank 0 is neither at the other rank's step nor at the end of rank 0's run, so merging is
/// refused. If an error has ended rank 0's run, the state is accepted.
#[test]
fn a_rank_that_stopped_early_is_not_at_its_end() {
    for threads in [0, 2] {
        let source = VersionedSource::of(&[9, 9]);
        let loader = |rank| rank_of_two(&source, 2, 2, rank).threads(threads).batch(2).build().unwrap();
        let first = taken(loader(0).epoch(0), 1);
        let other = taken(loader(1).epoch(0), 5);
        refused(State::merge([first.clone(), other.clone()]), &["after 1 batches and before its end"]);
        source.put(&url(0), shard(0, 9), Some("v2"));
        let mut broken = loader(0).restore(&first).unwrap();
        assert!(matches!(broken.next().unwrap().unwrap_err().kind(), ErrorKind::Stale { .. }));
        assert!(broken.next().is_none());
        let merged = State::merge([broken.state(), other]).unwrap();
        let merged: State = merged.to_string().parse().unwrap();
        assert_eq!((merged.batches(), merged.samples()), (5, first.samples() + 9));
        source.put(&url(0), shard(0, 9), Some("v1"));
        let rest: usize = loader(0).restore(&merged).unwrap().map(|batch| batch.unwrap().len()).sum();
        assert_eq!(rest as u64, 9 - first.samples());
        assert_eq!(loader(1).restore(&merged).unwrap().count(), 0);
    }
}

type Build = dyn Fn(&Arc<VersionedSource>) -> LoaderBuilder<String>;

/// Fails unless the only result is the error that the shard has changed.
fn assert_stale(loader: &Loader<Batch<String>>, state: &State, shard: usize, then: &str, now: &str) {
    let found: Vec<_> = loader.restore(state).unwrap().take(1000).collect();
    let [Err(error)] = &found[..] else { panic!("{found:?}") };
    assert!(matches!(error.kind(), ErrorKind::Stale { .. }), "{error:?}");
    let text = error.to_string();
    assert!(text.contains(then) && text.contains(now) && text.contains(&url(shard)), "{text}");
    assert!(text.contains("put it back, or build the index again and begin an epoch anew"), "{text}");
}

#[test]
fn a_changed_open_shard_is_the_only_error_of_a_restore() {
    for threads in [0, 2] {
        let loaders: [&Build; 4] = [
            &|source| items(dataset(source)).shuffle(0),
            &|source| items(dataset(source)),
            &|source| items(dataset(source).index(counts(&SIZES))),
            &|source| items(dataset(source).index(counts(&SIZES))).shuffle(0),
        ];
        for (kind, builder) in loaders.iter().enumerate() {
            let source = VersionedSource::of(&SIZES);
            let loader = builder(&source).threads(threads).batch(4).build().unwrap();
            let state = taken(loader.epoch(0), 2);
            // The shard that stream 0 was reading.
            let document: Json = serde_json::from_str(&state.to_string()).unwrap();
            let slice = document["at"][0]["cursor"]["open"].as_array().unwrap().last().unwrap()["slice"]
                .as_u64()
                .unwrap();
            let number = loader.datasets().next().unwrap().plan().stream(0, 0)[slice as usize].shard;
            let (content, longer) = (shard(number, SIZES[number]), shard(number, SIZES[number] + 40));
            let rest = keys(loader.restore(&state).unwrap());

            source.put(&url(number), content.clone(), Some("v2"));
            assert_stale(&loader, &state, number, "version v1", "version v2");
            source.put(&url(number), longer.clone(), None);
            let sizes = [content.len(), longer.len()].map(|size| format!("{size} bytes"));
            assert_stale(&loader, &state, number, &sizes[0], &sizes[1]);
            // Without a version, and with the same size, the shard is accepted.
            source.put(&url(number), content.clone(), None);
            assert_eq!(keys(loader.restore(&state).unwrap()), rest, "{kind}");
            source.put(&url(number), content, Some("v1"));
            assert_eq!(keys(loader.restore(&state).unwrap()), rest, "{kind}");
        }
    }
}

/// Values that a test puts into the JSON of a state, at random places. At most places, most values are
/// invalid.
fn values() -> impl Strategy<Value = Json> {
    let near =
        prop::sample::select(vec![0u64, 1, 2, 3, 5, 8, 13, 21, 1 << 20, 1 << 47, 1 << 48, 1 << 63, u64::MAX]);
    prop_oneof![
        8 => near.prop_map(|number| json!(number)),
        1 => any::<i64>().prop_map(|number| json!(number)),
        1 => Just(json!(null)),
        1 => Just(json!([])),
        1 => Just(json!({"epoch": u64::MAX})),
        1 => "[0-9a-f]{0,17}".prop_map(|text| json!(text)),
    ]
}

/// Collects the JSON pointers of all values of a document.
fn places(document: &Json, at: &str, found: &mut Vec<String>) {
    found.push(at.into());
    match document {
        Json::Object(object) => {
            object.iter().for_each(|(key, value)| places(value, &format!("{at}/{key}"), found))
        }
        Json::Array(array) => {
            array
                .iter()
                .enumerate()
                .for_each(|(number, value)| places(value, &format!("{at}/{number}"), found));
        }
        _ => {}
    }
}

fn selected(dataset: DatasetBuilder) -> LoaderBuilder<String> {
    let items = Loader::builder(dataset.build().unwrap()).shuffle(6).threads(0);
    items.filter(|sample| !sample.key().ends_with('3')).map(|sample| Ok(sample.key().to_owned()))
}

fn skipping(items: LoaderBuilder<String>) -> LoaderBuilder<String> {
    let fail = |key: String| if key.ends_with('2') { Err(Error::step("bad luck")) } else { Ok(key) };
    items.map(fail).on_error(OnError::skip(Failures::all()))
}

/// Valid states as JSON, each with its loader.
fn sound() -> Vec<(Loader<Batch<String>>, Json)> {
    let source = VersionedSource::of(&SIZES);
    let loaders = [
        (items(dataset(&source)).batch(4), false),
        (items(dataset(&source)).batch(4), true),
        (items(dataset(&source)).shuffle(0).batch(4), false),
        (items(dataset(&source).index(counts(&SIZES))).batch(4).last_batch(LastBatch::Pad), false),
        (Loader::mix([items(dataset(&source)), items(dataset(&source)).passes(2)]).batch(4), false),
        (selected(dataset(&source)).batch(4), false),
        // The ledgers of these states list failures. The states are saved in the middle of a sample or
        // document.
        (
            skipping(items(dataset(&source))).flat_map(|key| Ok([key.clone(), key.clone(), key])).batch(4),
            true,
        ),
        (skipping(items(dataset(&source).index(counts(&SIZES)))).last_batch(LastBatch::Drop).batch(3), false),
        (
            skipping(items(dataset(&source)))
                .map(|key| Ok(key.into_bytes()))
                .chunked(5, b'|')
                .map(|row| Ok(String::from_utf8_lossy(&row).into_owned()))
                .batch(4),
            false,
        ),
    ];
    let document = |(items, endless): (LoaderBuilder<String>, bool)| {
        let loader = items.build().unwrap();
        let batches = if endless { loader.epochs(1) } else { loader.epoch(1) };
        let state = taken(batches, if endless { 17 } else { 6 });
        (loader, serde_json::from_str(&state.to_string()).unwrap())
    };
    loaders.into_iter().map(document).collect()
}

/// Each run of the test tries different changes of the states, as one run cannot try all.
#[test]
fn no_state_makes_a_loader_panic_or_run_forever() {
    let sound = sound();
    let changes = || prop::collection::vec((any::<prop::sample::Index>(), values(), 0..4), 1..4);
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: 600,
        failure_persistence: None,
        ..Default::default()
    });
    let outcome = runner.run(&(any::<prop::sample::Index>(), changes()), |(which, changes)| {
        let (loader, document) = which.get(&sound);
        let mut document = document.clone();
        for (place, value, kind) in changes {
            let mut found = Vec::new();
            places(&document, "", &mut found);
            let place = document.pointer_mut(&found[place.index(found.len())]).unwrap();
            match (kind, place) {
                // Small changes of a number are the hardest to detect.
                (0, Json::Number(number)) if number.as_u64().is_some_and(|number| number < 1000) => {
                    let few = value.as_u64().unwrap_or_default() % 9;
                    *number = (number.as_u64().unwrap() + few).saturating_sub(4).into();
                }
                (1, Json::Array(array)) if !array.is_empty() => drop(array.remove(0)),
                (2, Json::Array(array)) if !array.is_empty() => array.push(array[0].clone()),
                (_, place) => *place = value,
            }
        }
        let Ok(state) = document.to_string().parse::<State>() else { return Ok(()) };
        let _ =
            (state.is_whole(), state.samples(), state.epoch(), state.digest(), state.ledger().to_string());
        let _ = State::merge([state.clone(), state.clone()]);
        let _ = State::merge([state.clone()]);
        prop_assert_eq!(&state.to_string().parse::<State>().unwrap(), &state);
        if let Ok(mut batches) = loader.restore(&state) {
            let _ = batches.by_ref().take(3).count();
            let _ = batches.state().to_string();
        }
        Ok(())
    });
    outcome.unwrap();
}

/// If a machine is lost, the job resumes on another machine with copies of the shards. Each rank may have
/// copies of its own.
#[test]
fn a_state_resumes_on_copies_of_local_shards() {
    let homes = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let loader = |home: &tempfile::TempDir, written: u64| {
        let pattern = format!("{}/%d.tar", home.path().display());
        let mut writer = ShardWriter::builder(pattern).max_count(10).build().unwrap();
        (0..60).for_each(|i| writer.write(&Sample::new(format!("{i:02}")).with("cls", i)).unwrap());
        let shards = ShardList::from_urls(writer.finish().unwrap().into_iter().map(|shard| shard.url));
        for shard in shards.iter() {
            let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(written);
            std::fs::File::options()
                .write(true)
                .open(shard.expose_secret())
                .unwrap()
                .set_modified(time)
                .unwrap();
        }
        let index = shardstream::Index::builder().build(&shards).unwrap();
        items(Dataset::builder(shards).streams(4).shuffle_shards(true).index(index)).batch(5).build().unwrap()
    };
    let [there, here] = [loader(&homes[0], 1_000_000), loader(&homes[1], 2_000_000)];
    let mut batches = there.epoch(1);
    let state = {
        batches.by_ref().take(4).for_each(|batch| drop(batch.unwrap()));
        batches.state()
    };
    let rest: Vec<_> = batches.collect::<Result<_>>().unwrap();
    assert_eq!(here.restore(&state).unwrap().collect::<Result<Vec<_>>>().unwrap(), rest);
}

/// With tiny shards, the shuffle buffer holds samples of many shards. At the end of an epoch, a state needs
/// none of these shards.
#[test]
fn the_state_of_a_finished_epoch_lists_no_shard() {
    let sizes = [1; 60];
    let source = VersionedSource::of(&sizes);
    for indexed in [false, true] {
        let dataset = source.dataset(60).streams(2).shuffle_shards(true);
        let dataset = if indexed { dataset.index(counts(&sizes)) } else { dataset };
        let loader = items(dataset).shuffle(25).batch(4).build().unwrap();
        let mut batches = loader.epoch(0);
        let states: Vec<State> =
            batches.by_ref().map(|batch| batch.unwrap().state().unwrap().clone()).collect();
        let open = |state: &State| {
            let document = serde_json::to_value(state).unwrap();
            let streams = document["at"].as_array().unwrap().iter();
            streams.map(|at| at["cursor"]["open"].as_array().map_or(0, Vec::len)).sum::<usize>()
        };
        assert!(open(&states[3]) > 40, "{}", open(&states[3]));
        let end: State = batches.state().to_string().parse().unwrap();
        assert_eq!((open(&states[14]), open(&end)), (0, 0));
        for state in [&states[14], &end] {
            let state: State = state.to_string().parse().unwrap();
            assert!(loader.restore(&state).unwrap().next().is_none());
        }
        // In a run without an end, a state at the start of the next epoch lists no shard either.
        let mut endless = loader.epochs(0);
        let whole: Vec<_> = endless.by_ref().take(40).map(Result::unwrap).collect();
        let over = whole.iter().filter(|batch| open(batch.state().unwrap()) == 0).count();
        assert!(over > 0, "some batch ends with a pass");
        for (at, batch) in whole.iter().enumerate() {
            let state: State = batch.state().unwrap().to_string().parse().unwrap();
            let left = &whole[at + 1..];
            let left = &left[..left.len().min(3)];
            let rest: Vec<_> = loader.restore(&state).unwrap().take(left.len()).map(Result::unwrap).collect();
            assert_eq!(rest, left, "after {at}");
        }
    }
}
