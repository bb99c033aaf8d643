//! A loader returns the same batches with any number of threads. It returns every sample once, or an error in
//! its place.

use crate::support::Every;
use crate::support::shards::{all_keys, dataset, key, keys, memory, put, sorted, url, write};
use crate::support::{archive, member};
use futures::StreamExt;
use shardstream::loader::{Batches, LastBatch, LoaderBuilder};
use shardstream::prelude::*;
use shardstream::{Error, ErrorKind, Result};
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::Duration;
use tokio::runtime;

const SIZES: [usize; 8] = [7, 20, 3, 33, 16, 1, 40, 5];
const SAMPLES: usize = 125;

fn builder() -> shardstream::dataset::DatasetBuilder {
    dataset(&SIZES).streams(4).shuffle_shards(true).seed(42)
}

/// Maps each sample to its key and a random number, after a pause of random length.
fn augmented(dataset: Dataset) -> LoaderBuilder<(String, u64)> {
    let seed = dataset.seed();
    Loader::builder(dataset).shuffle(10).map(move |sample| {
        thread::sleep(Duration::from_micros(RandomState::new().hash_one(0) % 300));
        Ok((sample.key().to_owned(), sample.rng(seed).below(1 << 40)))
    })
}

fn collect<T>(batches: impl Iterator<Item = Result<Batch<T>>>) -> Vec<Vec<T>> {
    batches.map(|batch| batch.unwrap().into_items()).collect()
}

/// All batches of a loader, through its asynchronous stream.
async fn collect_stream<T: Send + 'static>(batches: Batches<Batch<T>>) -> Vec<Vec<T>> {
    batches.into_stream().map(|batch| batch.unwrap().into_items()).collect().await
}

/// Without threads, the loader parses samples ahead if their bytes are in memory, but it calls the caller's
/// functions only for the requested batch.
#[test]
fn without_threads_functions_are_called_only_for_the_requested_batch() {
    static FILTERED: AtomicUsize = AtomicUsize::new(0);
    static MAPPED: AtomicUsize = AtomicUsize::new(0);
    let filter = |_: &Sample| FILTERED.fetch_add(1, Relaxed) < usize::MAX;
    let map = |sample: Sample| {
        MAPPED.fetch_add(1, Relaxed);
        Ok(sample)
    };
    let loader = Loader::builder(dataset(&[40; 8]).streams(4).build().unwrap()).filter(filter).map(map);
    let mut batches = loader.threads(0).batch(10).build().unwrap().epoch(0);
    for taken in [10, 20, 30] {
        assert_eq!(batches.next().unwrap().unwrap().len(), 10);
        assert_eq!((FILTERED.load(Relaxed), MAPPED.load(Relaxed)), (taken, taken));
    }
}

#[test]
fn threads_prefetch_and_async_iteration_change_no_batch() {
    let dataset = builder().build().unwrap();
    let batches = |threads, prefetch| {
        augmented(dataset.clone()).threads(threads).batch(8).prefetch(prefetch).build().unwrap().epoch(3)
    };
    let expected = collect(batches(1, 1));
    assert_eq!(expected.iter().map(Vec::len).sum::<usize>(), SAMPLES);
    for (threads, prefetch) in [(1, 1), (1, 100), (2, 1), (3, 2), (8, 1), (8, 5)] {
        assert_eq!(collect(batches(threads, prefetch)), expected, "{threads} threads, {prefetch} ahead");
    }
    for threads in [1, 2, 3, 8] {
        let stream = || collect_stream(batches(threads, 2));
        assert_eq!(futures::executor::block_on(stream()), expected);
        assert_eq!(runtime::Builder::new_current_thread().build().unwrap().block_on(stream()), expected);
        let many = runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
        assert_eq!(many.block_on(async { tokio::spawn(stream()).await.unwrap() }), expected);
    }
    let mut begun = batches(2, 2);
    let mut found = vec![begun.next().unwrap().unwrap().into_items()];
    found.extend(futures::executor::block_on(collect_stream(begun)));
    assert_eq!(found, expected, "iteration changes from blocking to asynchronous midway");
}

#[test]
fn seeds_and_epochs_change_the_order_and_the_random_numbers() {
    let batches = |seed, epoch| {
        collect(augmented(builder().seed(seed).build().unwrap()).batch(8).build().unwrap().epoch(epoch))
            .concat()
    };
    let expected = batches(42, 0);
    assert_eq!(batches(42, 0), expected);
    let numbers: BTreeMap<_, _> = expected.iter().cloned().collect();
    for (seed, epoch) in [(42, 1), (43, 0), (42, 2), (0, 0)] {
        let other = batches(seed, epoch);
        assert!(!other.iter().map(|(key, _)| key).eq(expected.iter().map(|(key, _)| key)), "{seed} {epoch}");
        assert!(other.iter().every(|(key, number)| numbers[key] != *number), "{seed} {epoch}");
        let keys = |items: &[(String, u64)]| sorted(items.iter().map(|(key, _)| key.clone()).collect());
        assert_eq!(keys(&other), keys(&expected));
    }
}

/// This order must never change: otherwise, a job that resumes after an update would repeat some samples and
/// lose others.
#[test]
fn the_order_of_a_loader_never_changes() {
    let dataset = dataset(&[3, 4, 2, 3]).streams(2).shuffle_shards(true).seed(42).build().unwrap();
    assert_eq!(
        keys(dataset.samples(0)).join(" "),
        "01-000 02-000 01-001 02-001 01-002 00-000 01-003 00-001 03-000 00-002 03-001 03-002"
    );
    let loader = Loader::builder(dataset)
        .shuffle(3)
        .map(|sample| Ok(sample.key().to_owned()))
        .batch(5)
        .build()
        .unwrap();
    let shown = |epoch| collect(loader.epoch(epoch)).iter().map(|batch| batch.join(" ")).collect::<Vec<_>>();
    assert_eq!(
        shown(0),
        ["01-002 00-000 01-003 02-000 03-000", "00-002 01-001 02-001 03-002 00-001", "01-000 03-001"]
    );
    assert_eq!(
        shown(1),
        ["02-001 00-001 02-000 01-000 03-002", "00-000 03-000 01-001 03-001 00-002", "01-002 01-003"]
    );
}

#[test]
fn a_loader_returns_the_samples_of_its_dataset() {
    for streams in [1, 2, 4, 8] {
        let dataset = builder().streams(streams).build().unwrap();
        let expected = keys(dataset.samples(5));
        let loaded = Loader::builder(dataset.clone()).threads(3).batch(1).build().unwrap().epoch(5);
        assert_eq!(keys(loaded.map(|batch| Ok(batch?.into_items().remove(0)))), expected);
        let streamed = dataset.stream(5).results().map(|sample| sample.unwrap().key().to_owned());
        assert_eq!(futures::executor::block_on(streamed.collect::<Vec<_>>()), expected);
        assert_eq!(sorted(expected), all_keys(&SIZES));
    }
}

#[test]
fn the_last_batch_is_kept_dropped_or_padded() {
    let dataset = dataset(&[5, 5]).build().unwrap();
    let items = Loader::builder(dataset).map(|sample| Ok(sample.key().to_owned())).batch(4);
    let batches = |last| items.clone().last_batch(last).build().unwrap().epoch(0).map(Result::unwrap);
    let shape =
        |last| -> Vec<(usize, usize)> { batches(last).map(|batch| (batch.len(), batch.valid())).collect() };
    assert_eq!(shape(LastBatch::Keep), [(4, 4), (4, 4), (2, 2)]);
    assert_eq!(shape(LastBatch::Drop), [(4, 4), (4, 4)]);
    assert_eq!(shape(LastBatch::Pad), [(4, 4), (4, 4), (4, 2)]);
    let last = batches(LastBatch::Pad).last().unwrap().into_items();
    assert_eq!(last, [key(1, 3), key(1, 4), key(1, 4), key(1, 4)]);
}

#[test]
fn epochs_follow_each_other_and_are_reshuffled() {
    let items = || Loader::builder(builder().build().unwrap()).shuffle(5);
    let loader = items()
        .map(|sample| Ok((sample.position().epoch, sample.key().to_owned())))
        .batch(25)
        .build()
        .unwrap();
    let found: Vec<_> = collect(loader.epochs(7).take(60));
    assert!(found.iter().every(|batch| batch.len() == 25), "no batch is short");
    for epoch in [7, 8] {
        let of = |loader: &Loader<Batch<(u64, String)>>| -> Vec<(u64, String)> {
            collect(loader.epoch(epoch)).into_iter().flatten().collect()
        };
        let seen: Vec<_> = found.iter().flatten().filter(|(at, _)| *at == epoch).cloned().collect();
        assert_eq!(sorted(seen.clone()), sorted(of(&loader)), "each sample once in an epoch");
        assert_eq!(seen.len(), SAMPLES);
    }
    let keys_of = |epoch| found.iter().flatten().filter(move |(at, _)| *at == epoch).map(|(_, key)| key);
    assert!(!keys_of(7).eq(keys_of(8)));

    let empty = Loader::builder(dataset(&[0, 0, 0]).build().unwrap()).batch(2).build().unwrap();
    assert_eq!(empty.epoch(0).count(), 0);
    let found: Vec<_> = empty.epochs(0).take(1000).collect();
    let [Err(error)] = &found[..] else { panic!("{found:?}") };
    assert!(matches!(error.kind(), ErrorKind::NoShards(_)), "{error}");
    let last = collect(loader.epochs(u64::MAX).take(1000));
    assert_eq!(last.iter().flatten().count(), SAMPLES, "there is no epoch after the last");
}

/// The keys and errors of each shard, by its URL.
type Found = BTreeMap<String, (Vec<String>, Vec<Error>)>;

fn by_shard(samples: impl Iterator<Item = Result<Sample>>) -> Found {
    let mut found = Found::new();
    for sample in samples {
        let shard = match &sample {
            Ok(sample) => sample.shard().to_owned(),
            Err(error) => error.location().shard().expect("an error knows its shard").to_owned(),
        };
        let (keys, errors) = found.entry(shard).or_default();
        match sample {
            Ok(sample) => keys.push(sample.key().to_owned()),
            Err(error) => errors.push(error),
        }
    }
    found
}

#[test]
fn damage_is_reported_and_other_samples_are_read() {
    const SAMPLE: usize = 1024; // a header, and content that is padded
    let store = memory();
    let shards = write(&store, &[6; 7]);
    // Shard 7 is missing.
    let shards: Vec<String> = shards.iter().map(|url| url.to_string()).chain([url(7)]).collect();
    let sound = |shard| {
        archive(&(0..6).map(|i| Sample::new(key(shard, i)).with("cls", i as i64)).collect::<Vec<_>>())
    };
    put(&store, &url(1), &sound(1)[..3 * SAMPLE + 100]);
    let mut corrupt = sound(2);
    corrupt[2 * SAMPLE + 10] ^= 1;
    put(&store, &url(2), &corrupt);
    put(
        &store,
        &url(3),
        b"not a tar archive, but an error page that says so in many words".repeat(20).as_slice(),
    );
    put(&store, &url(4), &sound(4)[..6 * SAMPLE]); // without its end marker
    let twice = member("k.cls", tar::EntryType::Regular, b"1").repeat(2);
    put(&store, &url(5), &[twice, sound(5)].concat());

    let dataset = Dataset::builder(ShardList::from_urls(shards)).store(store).topology(Topology::single());
    let dataset = dataset.streams(2).build().unwrap();
    let loader = Loader::builder(dataset.clone()).threads(3).batch(1).build().unwrap();
    let loaded = || loader.epoch(0).map(|batch| Ok(batch?.into_items().remove(0)));

    let found = by_shard(loaded());
    let good = |shard: usize| found[&url(shard)].0.len();
    let error = |shard: usize| match &found[&url(shard)].1[..] {
        [error] => (error.kind(), error.location().offset().expect("an error knows its offset")),
        errors => panic!("{errors:?}"),
    };
    assert_eq!([0, 1, 2, 3, 4, 5, 6, 7].map(good), [6, 2, 1, 0, 5, 6, 6, 0]);
    assert!(found[&url(0)].1.is_empty() && found[&url(6)].1.is_empty());
    assert!(matches!(error(1), (ErrorKind::Truncated { .. }, 3172)), "{:?}", error(1));
    assert!(matches!(error(2), (ErrorKind::Checksum, 2048)), "{:?}", error(2));
    assert!(matches!(error(3), (_, 0)), "{:?}", error(3));
    assert!(matches!(error(4), (ErrorKind::Truncated { .. }, 6144)), "{:?}", error(4));
    assert!(matches!(error(5), (ErrorKind::DuplicateMember { .. }, 1024)), "{:?}", error(5));
    assert!(matches!(error(7), (ErrorKind::NotFound(_), 0)), "{:?}", error(7));

    // Errors are at the same positions in blocking and asynchronous reading, with and without threads. In a
    // loader, an error takes no slot of a batch, so the order differs there.
    let shown =
        |sample: Result<Sample>| sample.map_or_else(|error| error.to_string(), |s| s.key().to_owned());
    let expected: Vec<String> = dataset.samples(0).results().map(shown).collect();
    assert_eq!(
        futures::executor::block_on(dataset.stream(0).results().map(shown).collect::<Vec<_>>()),
        expected
    );
    let loaded: Vec<String> = loaded().map(shown).collect();
    assert_eq!(sorted(loaded.clone()), sorted(expected));
    let here = Loader::builder(dataset).threads(0).batch(1).build().unwrap().epoch(0);
    assert_eq!(here.map(|batch| shown(batch.map(|b| b.into_items().remove(0)))).collect::<Vec<_>>(), loaded);
}

#[test]
fn an_error_or_panic_of_the_map_loses_one_sample() {
    for threads in [1, 4] {
        let items = Loader::builder(builder().build().unwrap()).threads(threads).map(|sample| {
            assert!(sample.key() != "03-017", "on purpose");
            if sample.key() == "06-020" { Err(Error::step("bad luck")) } else { Ok(sample) }
        });
        let (mut good, mut errors) = (Vec::new(), Vec::new());
        for batch in items.batch(7).build().unwrap().epoch(0) {
            match batch {
                Ok(batch) => good.extend(batch.into_items().iter().map(|sample| sample.key().to_owned())),
                Err(error) => errors.push(error),
            }
        }
        assert_eq!(good.len(), SAMPLES - 2);
        assert!(!good.contains(&"03-017".into()) && !good.contains(&"06-020".into()));
        errors.sort_by_key(|error| error.location().key().map(String::from));
        let places: Vec<_> =
            errors.iter().map(|e| (e.location().key().unwrap(), e.location().shard().unwrap())).collect();
        assert_eq!(places, [("03-017", url(3).as_str()), ("06-020", url(6).as_str())]);
        assert!(matches!(errors[0].kind(), ErrorKind::Panicked(message) if message == "on purpose"));
        assert!(matches!(errors[1].kind(), ErrorKind::Step(_)));
    }
}
