//! Side datasets that are damaged, unavailable or hostile.

use super::*;
use crate::support::{member, noise};
use futures::StreamExt;
use futures::future::BoxFuture;
use shardstream::dataset::Missing;
use shardstream::loader::{Failures, OnError};
use shardstream::store::{Body, GetOptions, GetResponse, Source};
use shardstream::{ErrorKind, Result};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

const SIZES: [usize; 3] = [6, 6, 6];

fn pair() -> JoinedPair {
    JoinedPair::new(&SIZES, false, same(&SIZES))
}

fn policies() -> [Missing; 3] {
    [Missing::Error, Missing::Skip, Missing::None]
}

/// Returns the keys of the samples, and for each error its kind, key and shard. Fails unless every sample was
/// joined.
fn collect(items: impl Iterator<Item = Result<Sample>>) -> (Vec<String>, Vec<String>) {
    let (mut keys, mut errors) = (Vec::new(), Vec::new());
    for item in items {
        match item {
            Ok(sample) => {
                assert_eq!(
                    shown(&sample).1.get("txt"),
                    Some(&format!("about {}", sample.key())),
                    "a sample is whole"
                );
                keys.push(sample.key().to_owned());
            }
            Err(error) => {
                let at = error.location();
                let (key, shard) = (at.key().unwrap_or("-"), at.shard().unwrap_or("-"));
                errors.push(format!("{} {key} {}", error.kind().name(), shard.trim_start_matches("mem://")));
            }
        }
    }
    (keys, errors)
}

/// A shard of the side dataset. For each key it has one member, or two members with the same name.
fn members(keys: &[(&str, bool)]) -> Vec<u8> {
    let one =
        |key: &str| member(&format!("{key}.txt"), tar::EntryType::Regular, format!("about {key}").as_bytes());
    let mut bytes: Vec<u8> = Vec::new();
    for (key, twice) in keys {
        bytes.extend(one(key));
        if *twice {
            bytes.extend(one(key));
        }
    }
    bytes.resize(bytes.len() + 1024, 0);
    bytes
}

#[test]
fn damage_in_a_side_is_an_error_of_that_sample_only() {
    for missing in policies() {
        let pair = pair();
        let keys = ["01-000", "01-002", "01-001", "01-003", "01-004", "01-005"];
        let keys = keys.map(|key| (key, key == "01-002"));
        pair.put_side(1, &members(&keys));
        let (keys, errors) =
            collect(pair.primary().join(pair.side().missing(missing)).build().unwrap().samples(0));
        assert_eq!(errors, ["duplicate_member 01-002 captions/001.tar"], "{missing:?}");
        assert_eq!(keys.len(), 17);
    }
}

#[test]
fn samples_after_damage_are_errors_under_every_policy() {
    for (missing, indexed) in policies().into_iter().flat_map(|missing| [(missing, false), (missing, true)]) {
        let pair = pair();
        let index = pair.side_index();
        let all: Vec<Sample> = (0..6).map(|n| caption(&key(1, n))).collect();
        let mut bytes = archive(&all);
        // The corrupted byte is in the header of the fourth sample.
        bytes[3 * 1024 + 100] ^= 0x55;
        pair.put_side(1, &bytes);
        let side = pair.side().missing(missing);
        let side = if indexed { side.index(index.without_versions()) } else { side };
        let (keys, errors) = collect(pair.primary().join(side).build().unwrap().samples(0));
        // Six samples of the first shard, two samples of the damaged shard, and six samples of the last
        // shard. The third sample of the damaged shard is an error, as the end of that sample is not known.
        assert_eq!(keys.len(), 6 + 2 + 6, "{missing:?} {indexed} {errors:?}");
        assert_eq!(errors[0], "checksum 01-002 captions/001.tar", "{missing:?} {indexed}");
        let lost = (3..6).map(|n| format!("missing_sample {} captions/001.tar", key(1, n)));
        assert_eq!(errors[1..], lost.collect::<Vec<_>>());
    }
}

#[test]
fn a_missing_shard_of_a_side_is_an_error_of_its_samples() {
    let pair = pair();
    let gone = ShardList::from_urls([pair.side_url(0), "mem://captions/gone.tar".into(), pair.side_url(2)]);
    let side = || Side::new(gone.clone()).store(pair.others.clone()).missing(Missing::None);
    let dataset = pair.primary().join(side()).build().unwrap();
    let (keys, errors) = collect(dataset.samples(0));
    assert_eq!((keys.len(), errors.len()), (12, 6));
    assert_eq!(errors[0], "not_found 01-000 captions/gone.tar");
    assert_eq!(errors[5], "missing_sample 01-005 captions/gone.tar");
    let policy = OnError::skip(Failures::missing_shards() | Failures::damage());
    let loader = Loader::builder(dataset).batch(4).on_error(policy).build().unwrap();
    assert_eq!(loader.epoch(0).map(|batch| batch.unwrap().into_items().len()).sum::<usize>(), 12);
}

/// In an unsorted shard, members of other samples may be between the members of a sample. A join would then
/// only use the first members of the sample.
#[test]
fn scattered_samples_of_a_side_are_reported() {
    let pair = pair();
    let all: Vec<(String, &str)> =
        ["txt", "json"].iter().flat_map(|field| (0..6).map(move |n| (key(1, n), *field))).collect();
    let mut bytes: Vec<u8> = all
        .iter()
        .flat_map(|(key, field)| {
            let text = format!("about {key}");
            member(&format!("{key}.{field}"), tar::EntryType::Regular, text.as_bytes())
        })
        .collect();
    bytes.resize(bytes.len() + 1024, 0);
    pair.put_side(1, &bytes);
    let (keys, errors) = collect(pair.primary().join(pair.side()).build().unwrap().samples(0));
    let expected: Vec<String> =
        (0..6).map(|n| format!("scattered_sample {} captions/001.tar", key(1, n))).collect();
    assert_eq!((keys.len(), errors), (18, expected));
    // The second member of sample 01-000 is seen while sample 01-001 is read. Sample 01-001 is still whole.
    let late = ["01-000", "01-001", "01-000", "01-002", "01-003", "01-004", "01-005"];
    pair.put_side(1, &members(&late.map(|key| (key, false))));
    let dataset = pair.primary().join(pair.side().missing(Missing::None)).build().unwrap();
    let scattered = vec!["scattered_sample 01-000 captions/001.tar".to_owned()];
    let (keys, errors) = collect(dataset.samples(0));
    assert_eq!((keys.len(), errors), (18, scattered));
    let mut reader = dataset.read(0, 0);
    assert!(reader.by_ref().any(|item| item.is_err()));
    let rest: Vec<_> = futures::executor::block_on(reader.into_stream().collect());
    let (keys, _) = collect(rest.into_iter());
    assert_eq!(keys[..2], ["01-002", "01-003"]);
    // If the second half of a sample is seen before the sample is requested, the sample is an error.
    let turned: Vec<String> = [5, 4, 3, 2, 1, 0, 3].map(|n| key(1, n)).into();
    let turned: Vec<(&str, bool)> = turned.iter().map(|key| (key.as_str(), false)).collect();
    pair.put_side(1, &members(&[&turned[..6], &[("zz", false)], &turned[6..]].concat()));
    let more = pair.primary().join(pair.side().missing(Missing::Skip));
    let (keys, errors) = collect(more.build().unwrap().samples(0));
    assert_eq!((keys.len(), errors), (18, vec!["scattered_sample 01-003 captions/001.tar".to_owned()]));
    let turned = [("zz", false), ("01-003", false), ("01-002", false), ("01-003", false), ("01-000", false)];
    pair.put_side(1, &members(&turned));
    let (keys, errors) = collect(more_of(&pair).samples(0));
    assert_eq!((keys.len(), errors), (14, vec!["scattered_sample 01-003 captions/001.tar".to_owned()]));
}

/// A sample whose members are scattered is never joined with only some of its members, whatever the size of
/// the buffer.
#[test]
fn scattered_samples_are_never_joined_in_part() {
    let one = |key: &str, field: &str| {
        let text = format!("about {key}");
        member(&format!("{key}.{field}"), tar::EntryType::Regular, text.as_bytes())
    };
    let wanted = |order: [usize; 2], bytes: &[u8], buffer: usize| {
        let pair = JoinedPair::new(&[2], false, |_| Vec::new());
        let samples = order.map(|n| Sample::new(key(0, n)).with("cls", 1));
        put(&pair.store, &url(0), &archive(&samples));
        pair.put_side(0, bytes);
        collect(pair.primary().join(pair.side().buffer_bytes(buffer)).build().unwrap().samples(0))
    };
    let mut bytes: Vec<u8> = [("00-000", "txt"), ("zz", "txt"), ("00-000", "json"), ("00-001", "txt")]
        .iter()
        .flat_map(|(key, field)| one(key, field))
        .collect();
    bytes.resize(bytes.len() + 1024, 0);
    for buffer in [1, 600, 1 << 20] {
        // The sample is requested after both its halves were read.
        let (keys, errors) = wanted([1, 0], &bytes, buffer);
        assert_eq!((keys.len(), errors.len()), (1, 1), "{buffer}: {keys:?} {errors:?}");
        assert!(errors[0].starts_with("scattered_sample 00-000"), "{errors:?}");
        // The sample is returned before its second half is seen. Then the second half is an error of its own.
        let (keys, errors) = wanted([0, 1], &bytes, buffer);
        assert_eq!((keys.len(), errors.len()), (2, 1), "{buffer}: {keys:?} {errors:?}");
    }
}

fn more_of(pair: &JoinedPair) -> Dataset {
    pair.primary().join(pair.side().missing(Missing::Skip)).build().unwrap()
}

#[test]
fn damage_after_the_last_sample_of_a_side_is_reported() {
    let pair = pair();
    let mut bytes = archive(&(0..6).map(|n| caption(&key(1, n))).collect::<Vec<_>>());
    bytes.truncate(6 * 1024);
    pair.put_side(1, &bytes);
    let (keys, errors) = collect(pair.primary().join(pair.side()).build().unwrap().samples(0));
    assert_eq!((keys.len(), errors.len()), (17, 1), "{errors:?}");
    assert!(errors[0].starts_with("truncated 01-005"), "{errors:?}");
    // The main dataset has fewer samples than the side dataset. All its samples can be joined, but the
    // truncated end of the side dataset is still an error.
    let sizes = [6, 5, 6];
    let shorter = JoinedPair::new(&sizes, false, same(&SIZES));
    shorter.put_side(1, &bytes);
    let (keys, errors) = collect(shorter.primary().join(shorter.side()).build().unwrap().samples(0));
    assert_eq!((keys.len(), errors.len()), (17, 1), "{errors:?}");
    assert!(errors[0].starts_with("truncated"), "{errors:?}");
}

#[test]
fn damage_found_only_by_checksums_is_an_error() {
    let pair = pair();
    let index = Index::builder().store(pair.others.clone()).checksums(true).build(&pair.side_list()).unwrap();
    let mut bytes = archive(&(0..6).map(|n| caption(&key(1, n))).collect::<Vec<_>>());
    bytes[2 * 1024 + 512] ^= 1;
    pair.put_side(1, &bytes);
    let side = pair.side().index(index.without_versions()).checksums(true).missing(Missing::None);
    let (keys, errors) = collect(pair.primary().join(side).build().unwrap().samples(0));
    assert_eq!(keys.len(), 6 + 2 + 6);
    assert_eq!(errors[0], "sample_checksum 01-002 captions/001.tar");
}

#[test]
fn a_replaced_side_is_an_error() {
    let pair = pair();
    let index = pair.side_index();
    pair.put_side(1, &archive(&[caption("01-000")]));
    let side = pair.side().index(index).missing(Missing::None);
    let (keys, errors) = collect(pair.primary().join(side).build().unwrap().samples(0));
    assert_eq!((keys.len(), &*errors[0]), (12, "stale 01-000 captions/001.tar"));
}

/// A source of a side dataset whose shards never end. It counts the chunks that are read.
#[derive(Debug, Default)]
struct Endless(Arc<AtomicU64>);

impl Source for Endless {
    fn get(&self, _: &str, _: GetOptions) -> BoxFuture<'static, Result<GetResponse>> {
        let requests = Arc::clone(&self.0);
        let chunk = move |number: u64| {
            requests.fetch_add(1, Ordering::Relaxed);
            let name = |part| format!("{number}-{part}.txt");
            let members = (0..64).flat_map(|part| member(&name(part), tar::EntryType::Regular, &noise(100)));
            Ok(members.collect::<Vec<u8>>().into())
        };
        let body = futures::stream::iter((0..).map(chunk)).boxed();
        Box::pin(async move { Ok(GetResponse::new(body)) })
    }
}

#[test]
fn an_endless_side_is_an_error() {
    let (pair, source) = (pair(), Arc::new(Endless::default()));
    let store = Store::builder().with_source("endless", Arc::clone(&source) as _).build().unwrap();
    let list = ShardList::from_urls((0..3).map(|shard| format!("endless://captions/{shard}.tar")));
    let side = Side::new(list).store(store).key_bytes(1 << 20).buffer_bytes(1 << 20).missing(Missing::None);
    let mut samples = pair.primary().join(side).build().unwrap().samples(0);
    let error = samples.next().unwrap().unwrap_err();
    assert_eq!(error.kind().name(), "too_large", "{error}");
    assert!(error.to_string().contains("`Side::key_bytes`"), "{error}");
    assert_eq!(error.location().shard(), Some("endless://captions/0.tar"));
    let requests = source.0.load(Ordering::Relaxed);
    assert!(requests < 600, "{requests} chunks were read");
    let (keys, errors) = collect(samples);
    assert_eq!((keys.len(), errors.len()), (0, 17));
}

/// A source that a test can make fail.
#[derive(Debug)]
struct Failing {
    content: Mutex<BTreeMap<String, Vec<u8>>>,
    fails: AtomicBool,
}

impl Source for Failing {
    fn get(&self, url: &str, options: GetOptions) -> BoxFuture<'static, Result<GetResponse>> {
        let content = self.content.lock().unwrap()[url].clone();
        let fails = self.fails.load(Ordering::Relaxed) && url.ends_with("001.tar");
        Box::pin(async move {
            if fails {
                return Err(ErrorKind::Io(std::io::ErrorKind::TimedOut.into()).into());
            }
            let length = content.len() as u64;
            let range = options.range.unwrap_or(0..length);
            let range = range.start.min(length)..range.end.min(length);
            let part = content[range.start as usize..range.end as usize].to_vec();
            let body = futures::stream::once(async { Ok(part.into()) }).boxed();
            Ok(GetResponse::new(body).with_size(length).with_range(range))
        })
    }
}

#[test]
fn an_outage_of_a_side_ends_the_run_and_its_state_resumes() {
    let pair = pair();
    let content = (0..3).map(|shard| {
        let all: Vec<Sample> = (0..6).map(|n| caption(&key(shard, n))).collect();
        (format!("failing://captions/{shard:03}.tar"), archive(&all))
    });
    let source = Failing { content: Mutex::new(content.collect()), fails: AtomicBool::new(false) };
    let source = Arc::new(source);
    let store = Store::builder().retries(0).with_source("failing", Arc::clone(&source) as _).build().unwrap();
    let list = ShardList::from_urls((0..3).map(|shard| format!("failing://captions/{shard:03}.tar")));
    for (shuffle, threads) in [(0, 0), (4, 2)] {
        for missing in policies() {
            let side = Side::new(list.clone()).store(store.clone()).missing(missing);
            let dataset = pair.primary().join(side).build().unwrap();
            let loader = Loader::builder(dataset).shuffle(shuffle).threads(threads).map(|sample| {
                assert!(sample.get("txt").is_some());
                Ok(sample.key().to_owned())
            });
            // An outage is not skipped under any policy.
            let loader = loader.on_error(OnError::skip(Failures::all())).batch(2).build().unwrap();
            let items = |batches: &mut dyn Iterator<Item = Result<Batch<String>>>| -> Vec<String> {
                batches.flat_map(|batch| batch.unwrap().into_items()).collect()
            };
            let whole = items(&mut loader.epoch(0));
            source.fails.store(true, Ordering::Relaxed);
            let mut batches = loader.epoch(0);
            let mut before = Vec::new();
            let error = loop {
                match batches.next().unwrap() {
                    Ok(batch) => before.extend(batch.into_items()),
                    Err(error) => break error,
                }
            };
            assert!(matches!(error.kind(), ErrorKind::Io(_)), "{error:?}");
            assert_eq!(error.location().shard(), Some("failing://captions/001.tar"));
            assert!(batches.next().is_none(), "the run ends after an outage");
            source.fails.store(false, Ordering::Relaxed);
            before.extend(items(&mut loader.restore(&batches.state()).unwrap()));
            assert_eq!(before, whole);
        }
    }
}

/// If the side dataset has its samples in the order of the main dataset, each of its shards is requested
/// once.
#[test]
fn a_side_in_the_same_order_is_read_once() {
    let (mut pair, requests) = (pair(), Arc::new(AtomicU64::new(0)));
    let content = (0..3).map(|shard| archive(&(0..6).map(|n| caption(&key(shard, n))).collect::<Vec<_>>()));
    let content: Vec<Vec<u8>> = content.collect();
    let counted = Counted { content, requests: Arc::clone(&requests) };
    pair.others = Store::builder().with_source("counted", Arc::new(counted)).build().unwrap();
    let list = ShardList::from_urls((0..3).map(|shard| format!("counted://captions/{shard}.tar")));
    let side = Side::new(list).store(pair.others.clone()).missing(Missing::None);
    let dataset = pair.primary().join(side).build().unwrap();
    let (keys, _) = collect(dataset.samples(0));
    assert_eq!((keys.len(), requests.load(Ordering::Relaxed)), (18, 3));
    // The report of a loader also has the bytes that were read from the side dataset.
    let mut batches = Loader::builder(dataset).threads(0).batch(6).build().unwrap().epoch(0);
    assert_eq!(batches.by_ref().map(|batch| batch.unwrap().len()).sum::<usize>(), 18);
    let report = batches.report();
    assert!(report.store.sources.iter().any(|place| place.source.contains("counted")), "{report}");
}

#[derive(Debug)]
struct Counted {
    content: Vec<Vec<u8>>,
    requests: Arc<AtomicU64>,
}

impl Source for Counted {
    fn get(&self, url: &str, _: GetOptions) -> BoxFuture<'static, Result<GetResponse>> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let shard: usize = url.trim_end_matches(".tar").rsplit('/').next().unwrap().parse().unwrap();
        let body = Body::from_chunks([Ok(self.content[shard].clone().into())]).into_stream().boxed();
        Box::pin(async move { Ok(GetResponse::new(body)) })
    }
}
