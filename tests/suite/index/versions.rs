//! Shards that were replaced after they were indexed or during an epoch. The new shards are as long as the
//! old ones, but have different samples.

use super::*;
use crate::support::Every;
use crate::support::{archive, member};
use shardstream::prelude::*;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::time::{Duration, SystemTime};
use tar::EntryType;

const SAMPLES: usize = 12;

/// A shard whose samples contain `version`. All versions have the same length and layout.
fn shard(number: usize, version: char) -> Vec<u8> {
    let sample = |i: usize| {
        let key = format!("{number}-{i:02}");
        Sample::new(key).with("v", version.to_string().into_bytes()).with("x", noise(i * 90))
    };
    archive(&(0..SAMPLES).map(sample).collect::<Vec<_>>())
}

/// The samples that were read, as keys and versions in order; and the errors.
#[derive(Debug, Default)]
struct Outcome {
    samples: Vec<(String, String)>,
    errors: Vec<shardstream::Error>,
}

impl FromIterator<Result<Sample>> for Outcome {
    fn from_iter<I: IntoIterator<Item = Result<Sample>>>(items: I) -> Self {
        items.into_iter().map(|item| item.and_then(|sample| shown(&sample))).collect()
    }
}

impl FromIterator<Result<(String, String)>> for Outcome {
    fn from_iter<I: IntoIterator<Item = Result<(String, String)>>>(items: I) -> Self {
        let mut outcome = Outcome::default();
        for item in items {
            match item {
                Ok(sample) => outcome.samples.push(sample),
                Err(error) => outcome.errors.push(error),
            }
        }
        outcome
    }
}

fn shown(sample: &Sample) -> Result<(String, String)> {
    let version = sample.field("v")?.as_bytes().unwrap().to_vec();
    Ok((sample.key().to_owned(), String::from_utf8(version).unwrap()))
}

impl Outcome {
    fn whole(self) -> Vec<(String, String)> {
        assert!(self.errors.is_empty(), "{:?}", self.errors);
        self.samples
    }

    /// Fails unless no sample was read and all errors say that this shard has changed.
    fn assert_stale(&self, url: &str) {
        assert!(self.samples.is_empty(), "{self:?}");
        self.assert_errors_are_stale(url);
    }

    /// Fails unless there are errors and all of them say that this shard has changed.
    fn assert_errors_are_stale(&self, url: &str) {
        assert!(!self.errors.is_empty(), "{self:?}");
        for error in &self.errors {
            assert!(matches!(error.kind(), ErrorKind::Stale { .. }), "{error}");
            assert_eq!(error.location().shard(), Some(url), "{error}");
        }
    }
}

fn list(urls: &[String]) -> ShardList {
    ShardList::from_urls(urls.iter().map(String::as_str))
}

fn dataset(store: &Store, urls: &[String], index: Option<Index>, streams: usize) -> Dataset {
    let builder = Dataset::builder(list(urls)).store(store.clone()).streams(streams);
    let builder = index.into_iter().fold(builder, |builder, index| builder.index(index));
    builder.topology(Topology::single()).build().unwrap()
}

fn loaded(dataset: &Dataset, threads: usize, epoch: u64) -> Outcome {
    let loader = Loader::builder(dataset.clone())
        .threads(threads)
        .map(|sample| shown(&sample))
        .batch(1)
        .build()
        .unwrap();
    loader.epoch(epoch).map(|batch| batch.map(|batch| batch.into_items().remove(0))).collect()
}

fn indexed(store: &Store, urls: &[String]) -> Index {
    Index::builder().store(store.clone()).build(&list(urls)).unwrap()
}

/// An old and a new archive of the same length. The new archive has twice as many samples as the old archive:
/// its files are empty, and each file of the old archive has a block of content.
fn twice_as_many(samples: usize) -> (Vec<u8>, Vec<u8>) {
    let end = [0; 1024];
    let old = (0..samples).flat_map(|i| member(&format!("a{i:02}.x"), EntryType::Regular, &[1; 512]));
    let new = (0..2 * samples).flat_map(|i| member(&format!("b{i:02}.x"), EntryType::Regular, &[]));
    (old.chain(end).collect(), new.chain(end).collect())
}

#[test]
fn an_old_index_reads_no_sample_of_a_rewritten_shard() {
    let noted = Arc::new(CountingSource::default());
    let (url, store) = ("noted://s.tar".to_owned(), noted.store());
    let (old, new) = twice_as_many(12);
    assert_eq!(old.len(), new.len());
    for replaced in [new, shard(0, '2')] {
        let old = if replaced.len() == old.len() { old.clone() } else { shard(0, '1') };
        noted.put(&url, old);
        let index = indexed(&store, std::slice::from_ref(&url));
        noted.put(&url, replaced);
        for streams in [1, 2, 5] {
            for index in [&index, &index.counts()] {
                let dataset = dataset(&store, std::slice::from_ref(&url), Some(index.clone()), streams);
                dataset.samples(0).collect::<Outcome>().assert_stale(&url);
                futures::executor::block_on_stream(dataset.stream(0)).collect::<Outcome>().assert_stale(&url);
                loaded(&dataset, 2, 0).assert_stale(&url);
            }
        }
    }
}

/// The versions are unknown, so only the layout of the samples can reveal the change.
#[test]
fn each_sample_of_a_slice_is_checked_against_the_index() {
    let directory = |name: &str| member(name, EntryType::Directory, &[]);
    let file = |name: &str, content: &[u8]| member(name, EntryType::Regular, content);
    let shard = |members: &[Vec<u8>]| [members.concat(), vec![0; 1024]].concat();
    let old = shard(&[
        file("a.cls", b"1"),
        directory("d1/"),
        file("b.cls", b"2"),
        file("b.txt", b"two"),
        file("c.cls", b"3"),
        directory("d2/"),
    ]);
    let (url, noted) = ("noted://s.tar".to_owned(), Arc::new(CountingSource::default()));
    let store = noted.store();
    noted.put(&url, old.clone());
    let index = indexed(&store, std::slice::from_ref(&url)).without_versions();
    assert_eq!(index.iter().next().unwrap().version(), None);
    let replaced = |at: usize, member: Vec<u8>| {
        let mut new = old.clone();
        new[at..at + member.len()].copy_from_slice(&member);
        new
    };
    let [d1, b_cls, b_txt, c_cls, d2] = [1024, 1536, 2560, 3584, 4608];
    assert!(
        old[d1..].starts_with(b"d1/") && old[b_txt..].starts_with(b"b.txt") && old[d2..].starts_with(b"d2/")
    );
    for (new, sound) in [
        // The new shard has an additional sample: after the last sample of a slice, or after the last sample
        // of the shard.
        (replaced(d1, file("aa.cls", b"")), ["a"].as_slice()),
        (replaced(d2, file("d.cls", b"")), &["a", "b", "c"]),
        // One sample fewer.
        (replaced(b_cls, file(".b.cls", b"2")), &["a"]),
        (replaced(c_cls, file(".c.cls", b"3")), &["a", "b"]),
        // A sample of the new shard has an additional field, lacks a field, or has a field whose name or size
        // has changed.
        (replaced(d1, file("a.txt", b"")), &[]),
        (replaced(b_txt, file(".b.txt", b"two")), &["a"]),
        (replaced(b_txt, file("b.txu", b"two")), &["a"]),
        (replaced(b_txt, file("b.txt", b"four")), &["a"]),
    ] {
        noted.put(&url, new);
        let dataset = |streams| dataset(&store, std::slice::from_ref(&url), Some(index.clone()), streams);
        let keys = |items: Vec<Result<Sample>>| {
            let (samples, errors): (Vec<_>, Vec<_>) = items.into_iter().partition(Result::is_ok);
            for error in errors.iter().filter_map(|error| error.as_ref().err()) {
                assert!(matches!(error.kind(), ErrorKind::Stale { .. }), "{error}");
            }
            let keys = samples.iter().flatten().map(|sample| sample.key().to_owned()).collect::<Vec<_>>();
            (keys, errors.len())
        };
        let (found, errors) = keys(dataset(1).samples(0).collect());
        assert_eq!((found.iter().map(String::as_str).collect::<Vec<_>>().as_slice(), errors), (sound, 1));
        // The samples of the other slices are still returned.
        let (found, errors) = keys(dataset(3).samples(0).collect());
        assert_eq!(errors, 1);
        assert!(found.iter().every(|key| ["a", "b", "c"].contains(&&**key)) && found.len() >= 2, "{found:?}");
    }
}

/// A source that replaces its objects after a number of requests.
#[derive(Debug)]
struct Replaced {
    old: CountingSource,
    new: CountingSource,
    after: usize,
    requests: AtomicUsize,
}

impl Replaced {
    fn store(urls: &[String], after: usize) -> Store {
        let (old, new) = (CountingSource::default(), CountingSource::default());
        for (number, url) in urls.iter().enumerate() {
            old.put(url, shard(number, '1'));
            new.put(url, shard(number, '2'));
        }
        let source = Replaced { old, new, after, requests: AtomicUsize::new(0) };
        Store::builder().with_source("noted", Arc::new(source)).range_size(4096).build().unwrap()
    }
}

impl Source for Replaced {
    fn get(&self, url: &str, options: GetOptions) -> BoxFuture<'static, Result<GetResponse>> {
        let old = self.requests.fetch_add(1, Ordering::SeqCst) < self.after;
        if old { self.old.get(url, options) } else { self.new.get(url, options) }
    }
}

/// No matter in which order slices are opened, all samples of a shard have one version. Without errors, all
/// samples of the shard are read.
#[test]
fn versions_are_never_mixed_in_an_epoch() {
    let urls: Vec<String> = (0..2).map(|shard| format!("noted://{shard}.tar")).collect();
    let sound = Replaced::store(&urls, usize::MAX);
    let index = indexed(&sound, &urls).without_versions();
    let (mut mixed, mut moved) = (0, 0);
    type Read = dyn Fn(&Dataset) -> Outcome;
    let ways: [&Read; 5] = [
        &|dataset| dataset.samples(3).collect(),
        &|dataset| futures::executor::block_on_stream(dataset.stream(3)).collect(),
        &|dataset| dataset.streams().iter().flat_map(|stream| dataset.read(3, *stream)).collect(),
        &|dataset| loaded(dataset, 0, 3),
        &|dataset| loaded(dataset, 3, 3),
    ];
    for (way, read) in ways.iter().enumerate() {
        for (kind, index) in [Some(index.clone()), Some(index.counts()), None].into_iter().enumerate() {
            let dataset = |store: &Store| {
                let builder = Dataset::builder(list(&urls)).store(store.clone());
                let builder = builder.topology(Topology::single()).seed(7);
                match &index {
                    Some(index) => builder.streams(5).shuffle_shards(true).index(index.clone()),
                    // Streams draw shards with replacement, so two streams may read the same shard.
                    None => builder.streams(2).resample_shards(true),
                }
            };
            let expected = read(&dataset(&sound).build().unwrap()).whole();
            for after in 0..40 {
                let outcome = read(&dataset(&Replaced::store(&urls, after)).build().unwrap());
                let mut versions: BTreeMap<&str, &str> = BTreeMap::new();
                for (key, version) in &outcome.samples {
                    let first = versions.entry(&key[..1]).or_insert(version);
                    assert_eq!(first, version, "way {way}, kind {kind}, after {after} requests: {outcome:?}");
                }
                let changed = |error: &shardstream::Error| matches!(error.kind(), ErrorKind::Changed { .. });
                assert!(outcome.errors.iter().all(changed), "{:?}", outcome.errors);
                mixed += outcome.errors.len();
                if outcome.errors.is_empty() {
                    let keys = |samples: &[(String, String)]| -> Vec<String> {
                        samples.iter().map(|(key, _)| key.clone()).collect()
                    };
                    assert_eq!(
                        keys(&outcome.samples),
                        keys(&expected),
                        "way {way}, kind {kind}, after {after}"
                    );
                    moved += usize::from(outcome.samples.iter().any(|(_, version)| version == "2"));
                }
            }
        }
    }
    assert!(mixed > 0 && moved > 0, "{mixed} {moved}");
}

/// Each run reads the current version of the shards, whatever version an earlier run read.
#[test]
fn a_new_run_reads_the_current_version() {
    let (noted, url) = (Arc::new(CountingSource::default()), "noted://0.tar".to_owned());
    let store = noted.store();
    noted.put(&url, shard(0, '1'));
    let dataset = dataset(&store, std::slice::from_ref(&url), None, 1);
    let loader =
        Loader::builder(dataset.clone()).threads(0).map(|sample| shown(&sample)).batch(5).build().unwrap();
    let all = |version: &str| -> Vec<(String, String)> {
        (0..SAMPLES).map(|i| (format!("0-{i:02}"), version.to_owned())).collect()
    };
    for version in ["1", "2", "3"] {
        noted.put(&url, shard(0, version.chars().next().unwrap()));
        assert_eq!(dataset.samples(0).collect::<Outcome>().whole(), all(version));
        assert_eq!(loaded(&dataset, 1, 0).whole(), all(version));
    }
    // Each epoch of a run without an end reads the version that is current at its start.
    let mut batches = loader.epochs(0);
    let mut take = |count: usize| -> Vec<(String, String)> {
        batches.by_ref().take(count).flat_map(|batch| batch.unwrap().into_items()).collect()
    };
    assert_eq!(take(2), all("3")[..10]);
    noted.put(&url, shard(0, '4'));
    let next = take(3);
    assert_eq!(next, [&all("3")[10..], &all("4"), &all("4")[..1]].concat());
    // All reads of an epoch's streams expect the same version of a shard, as long as the epoch's plan is
    // alive.
    assert_eq!(dataset.read(0, 0).collect::<Outcome>().whole(), all("4"));
    noted.put(&url, shard(0, '5'));
    let again: Outcome = dataset.read(0, 0).collect();
    assert!(again.samples.is_empty() && matches!(again.errors[0].kind(), ErrorKind::Changed { .. }));
    assert_eq!(dataset.read(1, 0).collect::<Outcome>().whole(), all("5"));
}

fn touch(path: &str, seconds: u64) {
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
}

#[test]
fn rewriting_a_local_shard_in_place_is_detected() {
    let dir = tempfile::tempdir().unwrap();
    let urls: Vec<String> =
        (0..2).map(|i| dir.path().join(format!("{i}.tar")).display().to_string()).collect();
    let put = |version: char, time: u64| {
        for (number, url) in urls.iter().enumerate() {
            fs::write(url, shard(number, version)).unwrap();
            touch(url, time);
        }
    };
    put('1', 1000);
    let store = Store::default();
    let index = indexed(&store, &urls);
    let sound = dataset(&store, &urls, Some(index.clone()), 3).samples(0).collect::<Outcome>().whole();
    assert_eq!(sound.len(), 2 * SAMPLES);
    // The shards are replaced after stream 1 was read. Streams 0 and 2 have other samples of the same shards.
    for index in [index.without_versions(), index.counts().without_versions()] {
        put('1', 1000);
        let dataset = dataset(&store, &urls, Some(index), 3);
        let first = dataset.read(0, 1).collect::<Outcome>().whole();
        assert_eq!(first.iter().map(|(key, _)| &key[..1]).collect::<String>(), "00001111");
        put('2', 2000);
        for stream in [0, 2] {
            let outcome: Outcome = dataset.read(0, stream).collect();
            assert!(outcome.samples.is_empty(), "{outcome:?}");
            assert!(
                matches!(outcome.errors[..], [ref error] if matches!(error.kind(), ErrorKind::Changed { .. }))
            );
        }
        let versions = dataset.samples(0).collect::<Outcome>().whole();
        assert!(versions.iter().every(|(_, version)| version == "2"));
    }
    // The index contains the modification times. The change is therefore noticed before a sample is read.
    let dataset = dataset(&store, &urls, Some(index), 3);
    let outcome: Outcome = dataset.samples(0).collect();
    assert!(outcome.samples.is_empty());
    for error in &outcome.errors {
        assert!(matches!(error.kind(), ErrorKind::Stale { .. }), "{error}");
        assert!(error.to_string().contains("version 1000.000000000"), "{error}");
    }
    put('1', 1000);
    assert_eq!(dataset.samples(0).collect::<Outcome>().whole(), sound);
}

/// A shard that was rewritten after the stop is refused, even if no stream was reading the shard at the stop.
#[test]
fn a_restored_job_checks_shards_against_its_index() {
    let dir = tempfile::tempdir().unwrap();
    let urls: Vec<String> =
        (0..4).map(|i| dir.path().join(format!("{i}.tar")).display().to_string()).collect();
    for (number, url) in urls.iter().enumerate() {
        fs::write(url, shard(number, '1')).unwrap();
        touch(url, 1000);
    }
    let store = Store::default();
    let dataset = dataset(&store, &urls, Some(indexed(&store, &urls)), 1);
    let loader = Loader::builder(dataset).threads(0).map(|sample| shown(&sample)).batch(5).build().unwrap();
    let mut batches = loader.epoch(0);
    let before: Vec<_> = batches.by_ref().take(2).flat_map(|batch| batch.unwrap().into_items()).collect();
    let state = batches.state();
    let rest: Vec<_> = batches.flat_map(|batch| batch.unwrap().into_items()).collect();
    assert_eq!((before.len(), rest.len()), (10, 38));
    for (changed, sound) in [(0, 0), (2, 14)] {
        fs::write(&urls[changed], shard(changed, '2')).unwrap();
        let mut found = Vec::new();
        let error = loader.restore(&state).unwrap().find_map(|batch| match batch {
            Ok(batch) => {
                found.extend(batch.into_items());
                None
            }
            Err(error) => Some(error),
        });
        let error = error.unwrap();
        assert!(matches!(error.kind(), ErrorKind::Stale { .. }), "{error}");
        assert_eq!(error.location().shard(), Some(&*urls[changed]));
        assert_eq!(found, rest[..found.len()]);
        assert!(found.len() <= sound, "{} of {sound}", found.len());
        fs::write(&urls[changed], shard(changed, '1')).unwrap();
        touch(&urls[changed], 1000);
    }
    let again: Vec<_> =
        loader.restore(&state).unwrap().flat_map(|batch| batch.unwrap().into_items()).collect();
    assert_eq!(again, rest);
}

/// Copies of shards have other times, names and stores than the original.
#[test]
fn the_index_of_the_original_reads_copies() {
    let homes = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let paths = |home: usize| -> Vec<String> {
        (0..2).map(|i| homes[home].path().join(format!("{i}.tar")).display().to_string()).collect()
    };
    let (there, here, store) = (paths(0), paths(1), Store::default());
    for number in 0..2 {
        fs::write(&there[number], shard(number, '1')).unwrap();
        touch(&there[number], 1000);
        fs::copy(&there[number], &here[number]).unwrap();
        touch(&here[number], 2000);
    }
    let index = indexed(&store, &there);
    let read = |urls: &[String], index: &Index| -> Outcome {
        dataset(&store, urls, Some(index.clone()), 3).samples(0).collect()
    };
    let expected = read(&there, &index).whole();
    // The shards are copied, and the index still names the originals.
    assert_eq!(read(&here, &index).whole(), expected);
    // The index was copied too, and names the copies beside it.
    let place = |home: usize| homes[home].path().join("index.json").display().to_string();
    index.save(&store, &place(0)).unwrap();
    fs::copy(place(0), place(1)).unwrap();
    let moved = Index::load(&store, &place(1)).unwrap();
    let outcome = read(&here, &moved);
    assert!(outcome.samples.is_empty() && !outcome.errors.is_empty());
    for error in &outcome.errors {
        assert!(matches!(error.kind(), ErrorKind::Stale { .. }), "{error}");
        assert!(error.to_string().contains("`Index::without_versions`"), "{error}");
    }
    assert_eq!(read(&here, &moved.without_versions()).whole(), expected);
    assert!(outcome.errors[0].to_string().contains("`--without-versions`"), "{}", outcome.errors[0]);
    // An index that was made from a bucket contains ETags. If the index is downloaded together with the
    // shards, it is accepted for the downloaded files, which have no ETags.
    let text = fs::read_to_string(place(1)).unwrap().replace("1000.000000000", "\\\"d41d8cd9\\\"");
    let downloaded = Index::from_json(text.as_bytes(), homes[1].path().to_str().unwrap()).unwrap();
    assert_eq!(downloaded.iter().next().unwrap().version(), Some("\"d41d8cd9\""));
    assert_eq!(read(&here, &downloaded).whole(), expected);
    // A copy of another length is refused.
    let mut longer = shard(1, '1');
    longer.resize(longer.len() + 10_240, 0);
    fs::write(&here[1], longer).unwrap();
    for index in [&index, &moved.without_versions()] {
        let outcome = read(&here, index);
        assert!(outcome.errors.iter().every(|error| error.location().shard() == Some(&*here[1])));
        assert_eq!(
            outcome.samples,
            expected.iter().filter(|(key, _)| key.starts_with('0')).cloned().collect::<Vec<_>>()
        );
    }
}

/// The shard has the size that the index says, but another version. The checksums in the index decide whether
/// it is the same shard.
#[test]
fn an_index_with_checksums_reads_copies_in_the_indexed_place() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::default();
    let urls: Vec<String> =
        (0..2).map(|i| directory.path().join(format!("{i}.tar")).display().to_string()).collect();
    for (number, url) in urls.iter().enumerate() {
        fs::write(url, shard(number, '1')).unwrap();
        touch(url, 1000);
    }
    let index = Index::builder().checksums(true).build(&list(&urls)).unwrap();
    let expected: Outcome = dataset(&store, &urls, Some(index.clone()), 3).samples(0).collect();
    let expected = expected.whole();
    for url in &urls {
        touch(url, 2000);
    }
    let found: Outcome = dataset(&store, &urls, Some(index.clone()), 3).samples(0).collect();
    assert_eq!(found.whole(), expected);
    // A job that read the original shards can also be restored from its state and read the copies.
    let loader = |index: &Index| {
        let loader = Loader::builder(dataset(&store, &urls, Some(index.clone()), 1)).threads(0);
        loader.map(|sample| shown(&sample)).batch(1).build().unwrap()
    };
    let mut batches = loader(&index).epoch(0);
    batches.next().unwrap().unwrap();
    let state = batches.state();
    let restored = loader(&index).restore(&state).unwrap().map(Result::unwrap).count();
    assert_eq!(restored, expected.len() - 1);
    // The shard is replaced by a shard with the same layout, but with different content and checksums.
    fs::write(&urls[1], shard(1, '2')).unwrap();
    for threads in [0, 2] {
        let outcome = loaded(&dataset(&store, &urls, Some(index.clone()), 3), threads, 0);
        outcome.assert_errors_are_stale(&urls[1]);
        let of_first = outcome.samples.iter().every(|(key, _)| key.starts_with('0'));
        assert!(of_first && outcome.samples.iter().all(|sample| expected.contains(sample)), "{outcome:?}");
    }
}

#[test]
fn an_index_entry_with_zero_samples_hides_no_shard() {
    let noted = Arc::new(CountingSource::default());
    let store = noted.store();
    let urls: Vec<String> = (0..4).map(|shard| format!("noted://{shard}.tar")).collect();
    for (number, url) in urls.iter().enumerate() {
        // Only the last shard has no samples.
        noted.put(url, if number == 3 { archive(&[]) } else { shard(number, '1') });
    }
    let mut entries =
        serde_json::to_value(indexed(&store, &urls).iter().cloned().collect::<Vec<_>>()).unwrap();
    let index = |entries: &serde_json::Value| -> Index {
        serde_json::from_value::<Vec<ShardIndex>>(entries.clone()).unwrap().into_iter().collect()
    };
    let sound = index(&entries);
    for number in [1, 3] {
        // An entry in the format of `wids`.
        entries[number] = serde_json::json!({"url": urls[number], "nsamples": 0});
        for (streams, threads) in [(1, 0), (3, 2), (4, 0)] {
            let dataset = dataset(&store, &urls, Some(index(&entries)), streams);
            for outcome in [dataset.samples(0).collect(), loaded(&dataset, threads, 0)] {
                let Outcome { samples, errors } = outcome;
                let [error] = &errors[..] else { panic!("{errors:?}") };
                assert!(matches!(error.kind(), ErrorKind::Stale { .. }), "{error}");
                assert_eq!(error.location().shard(), Some(&*urls[1]));
                assert!(error.to_string().contains("it had no sample"), "{error}");
                assert_eq!(samples.len(), 2 * SAMPLES);
            }
        }
    }
    // The last shard has no samples, which is not an error.
    assert_eq!(sound.iter().map(ShardIndex::samples).collect::<Vec<_>>(), [12, 12, 12, 0]);
    let whole = loaded(&dataset(&store, &urls, Some(sound), 2), 2, 0).whole();
    assert_eq!(whole.len(), 3 * SAMPLES);
}
