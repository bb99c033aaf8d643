//! Side datasets whose shards do not correspond to the shards of the main dataset. A key index locates the
//! samples of the side dataset.

use super::*;
use crate::support::Every;
use futures::StreamExt;
use futures::future::BoxFuture;
use proptest::prelude::*;
use shardstream::dataset::Missing;
use shardstream::store::{GetOptions, GetResponse, Source};
use shardstream::{ErrorKind, Result};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Writes samples with these keys as a side dataset, `size` samples per shard.
fn cut(pair: &JoinedPair, keys: &[String], size: usize) -> ShardList {
    let ending = if pair.compressed { ".gz" } else { "" };
    let url = |shard: usize| format!("mem://cut/{shard:03}.tar{ending}");
    let shards =
        keys.chunks(size).map(|keys| archive(&keys.iter().map(|key| caption(key)).collect::<Vec<_>>()));
    let shards: Vec<Vec<u8>> = shards.collect();
    for (shard, bytes) in shards.iter().enumerate() {
        put(&pair.others, &url(shard), &if pair.compressed { gzip(bytes) } else { bytes.clone() });
    }
    ShardList::from_urls((0..shards.len()).map(url))
}

fn keyed(pair: &JoinedPair, shards: &ShardList) -> Side {
    let keys = Index::builder().store(pair.others.clone()).build_keys(shards).unwrap();
    Side::new(shards.clone()).store(pair.others.clone()).keys(keys)
}

fn collect(items: impl Iterator<Item = Result<Sample>>) -> Vec<std::result::Result<SampleText, String>> {
    let described =
        |error: shardstream::Error| format!("{} {:?}", error.kind().name(), error.location().key());
    items.map(|item| item.map(|sample| shown(&sample)).map_err(described)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn samples_are_found_in_any_shard(
        sizes in prop::collection::vec(0usize..12, 1..5),
        has in prop::collection::vec(prop::bool::weighted(0.8), 60),
        missing in prop::sample::select(vec![Missing::Error, Missing::Skip, Missing::None]),
        (compressed, indexed, mixed) in any::<(bool, bool, bool)>(),
        (size, buffer) in (1usize..20, prop::sample::select(vec![1, 2000, 1 << 20])),
        seed in any::<u64>(),
    ) {
        prop_assume!(sizes.iter().sum::<usize>() > 0);
        let pair = JoinedPair::new(&sizes, compressed, |_| Vec::new());
        let all = (0..sizes.len()).flat_map(|shard| same(&sizes)(shard));
        let mut keys: Vec<String> = all.zip(&has).filter(|(_, has)| **has).map(|(key, _)| key).collect();
        keys.push("other".into());
        if mixed {
            let mix = |sum: u64, byte| (sum ^ u64::from(byte)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            keys.sort_by_key(|key| key.bytes().fold(seed, mix));
        }
        let side = keyed(&pair, &cut(&pair, &keys, size)).missing(missing).buffer_bytes(buffer);
        let primary = pair.primary();
        let primary = if indexed { primary.index(pair.index()) } else { primary };
        let known: BTreeSet<String> = keys.into_iter().collect();
        let model: Vec<_> = primary.clone().build().unwrap().samples(0).results().filter_map(|sample| {
            let sample = sample.unwrap();
            match (known.contains(sample.key()), missing) {
                (true, _) => Some(Ok(joined(&sample))),
                (false, Missing::None) => Some(Ok(shown(&sample))),
                (false, Missing::Skip) => None,
                (false, _) => Some(Err(format!("missing_sample {:?}", Some(sample.key())))),
            }
        }).collect();
        let dataset = primary.join(side).build().unwrap();
        prop_assert_eq!(collect(dataset.samples(0)), model.clone());
        let stream: Vec<_> = futures::executor::block_on(dataset.stream(0).collect());
        prop_assert_eq!(collect(stream.into_iter()), model);
    }
}

/// A source that counts its requests.
#[derive(Debug)]
struct Counted {
    content: Vec<Vec<u8>>,
    requests: Arc<AtomicU64>,
}

impl Source for Counted {
    fn get(&self, url: &str, options: GetOptions) -> BoxFuture<'static, Result<GetResponse>> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let shard: usize = url.trim_end_matches(".tar").rsplit('/').next().unwrap().parse().unwrap();
        let content = self.content[shard].clone();
        let length = content.len() as u64;
        let range = options.range.unwrap_or(0..length);
        let range = range.start.min(length)..range.end.min(length);
        let part = content[range.start as usize..range.end as usize].to_vec();
        let body = futures::stream::once(async { Ok(part.into()) }).boxed();
        Box::pin(async move { Ok(GetResponse::new(body).with_size(length).with_range(range)) })
    }
}

#[test]
fn a_keyed_side_in_the_same_order_is_read_in_lockstep() {
    let sizes = [50, 50, 50];
    let pair = JoinedPair::new(&sizes, false, |_| Vec::new());
    let mut all: Vec<String> = (0..3).flat_map(same(&sizes)).collect();
    all.insert(0, "other".into());
    let content =
        all.chunks(60).map(|keys| archive(&keys.iter().map(|key| caption(key)).collect::<Vec<_>>()));
    let counter = Arc::new(AtomicU64::new(0));
    let source = Counted { content: content.collect(), requests: Arc::clone(&counter) };
    let store = Store::builder().with_source("counted", Arc::new(source)).build().unwrap();
    let list = ShardList::from_urls((0..3).map(|shard| format!("counted://{shard}.tar")));
    let keys = Index::builder().store(store.clone()).build_keys(&list).unwrap();
    counter.store(0, Ordering::Relaxed);
    let dataset = pair.primary().join(Side::new(list).store(store).keys(keys)).build().unwrap();
    assert!(dataset.samples(0).every(|sample| sample.unwrap().get("txt").is_some()));
    let requests = counter.load(Ordering::Relaxed);
    // In the first shard, the first request is for the second sample only. Each further request is for twice
    // as many samples as the request before it. Each of the other two shards is read by one request.
    assert_eq!(requests, 6 + 2, "requests for 150 samples");
}

#[test]
fn unknown_and_repeated_keys_are_errors() {
    let sizes = [3, 2];
    let pair = JoinedPair::new(&sizes, false, |shard| vec![key(0, 0), key(1, shard)]);
    let error = Index::builder().store(pair.others.clone()).build_keys(&pair.side_list()).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Index(_)), "{error}");
    assert_eq!(error.location().shard(), Some(&*pair.side_url(1)));
    assert!(
        error.to_string().contains("its sample 0 has the key of sample 0 of mem://captions/000.tar"),
        "{error}"
    );
    let shards = cut(&pair, &[key(0, 0), key(0, 1)], 1);
    let turned = ShardList::from_urls(shards.iter().rev().map(|url| url.expose_secret().to_owned()));
    let keys = Index::builder().store(pair.others.clone()).build_keys(&shards).unwrap();
    assert_eq!((keys.len(), keys.is_empty(), keys.index().len()), (2, false, 2));
    let side = Side::new(turned).store(pair.others.clone()).keys(keys);
    let error = pair.primary().join(side).build().unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::Config(_)) && error.to_string().contains("`Side::keys`"),
        "{error}"
    );
}

/// The key index is older than the side dataset.
#[test]
fn a_side_that_has_changed_is_an_error() {
    let sizes = [3];
    for compressed in [false, true] {
        let pair = JoinedPair::new(&sizes, compressed, |_| Vec::new());
        let keys = same(&sizes)(0);
        let shards = cut(&pair, &keys, 5);
        let side = keyed(&pair, &shards).missing(Missing::None);
        // The new shard has the same sizes as the old shard, so no header differs. But the in-memory store
        // reports a new version.
        let keys: Vec<String> = keys.iter().rev().cloned().collect();
        cut(&pair, &keys, 5);
        let found = collect(pair.primary().join(side).build().unwrap().samples(0));
        assert!(found.iter().every(|item| item.is_err()), "{found:?}");
        assert!(found[0].as_ref().unwrap_err().starts_with("stale"), "{found:?}");
    }
}

/// A key index that is older than the side dataset's index lacks the samples that were added in between. If
/// it were accepted, these samples would be left out without an error.
#[test]
fn keys_that_are_older_than_the_index_of_the_side_are_an_error() {
    let sizes = [4];
    let pair = JoinedPair::new(&sizes, false, |_| Vec::new());
    let keys = same(&sizes)(0);
    let shards = cut(&pair, &keys[..3], 5);
    let old = Index::builder().store(pair.others.clone()).build_keys(&shards).unwrap();
    let side = |keys| Side::new(shards.clone()).store(pair.others.clone()).keys(keys).missing(Missing::Skip);
    let refused = |side| {
        let error = pair.primary().join(side).build().map(drop).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Index(_)), "{error}");
        error.to_string()
    };
    let index = || Index::builder().store(pair.others.clone());
    let dir = tempfile::tempdir().unwrap();
    // The side dataset has gained a sample, or has the same samples in another order.
    let turned: Vec<String> = keys[..3].iter().rev().cloned().collect();
    for now in [&keys[..], &turned] {
        cut(&pair, now, 5);
        let error = refused(side(old.clone()).index(index().build(&shards).unwrap()));
        assert!(error.contains("is older than this shard or its index"), "{error}");
        let error = refused(side(old.clone()).auto_index(AutoIndex::in_directory(dir.path())));
        assert!(error.contains("is older than this shard or its index"), "{error}");
    }
    // The key index `all` and the index `some` are of the same shard. `all` numbers all its samples, `some`
    // only the selected ones. The same sample therefore has different numbers in the two.
    let all = index().build_keys(&shards).unwrap();
    let first = keys[0].clone();
    let some = index().select("some", move |sample: &Sample| sample.key() != first).build(&shards).unwrap();
    assert!(refused(side(all.clone()).index(some)).contains("has other samples of this shard"));
    let whole = side(all).index(index().build(&shards).unwrap());
    assert_eq!(pair.primary().join(whole).build().unwrap().samples(0).count(), 3);
}

/// The finalizer of SplitMix64, which the hashes of keys use.
fn mixed(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Two keys of 16 letters and digits that have the same hash.
pub(crate) fn alike() -> [String; 2] {
    let begin = mixed(mixed(0) ^ 16);
    let behind =
        |word: &str| mixed(mixed(mixed(begin) ^ u64::from_le_bytes(word.as_bytes().try_into().unwrap())));
    let (first, second) = ("aaaaaaaa", "bbbbbbbb");
    let end = behind(first) ^ u64::from_le_bytes(second.as_bytes().try_into().unwrap());
    let mut words = (0u64..).map(|number| format!("{number:08x}"));
    let other = words.find_map(|word| {
        let bytes = (end ^ behind(&word)).to_le_bytes();
        bytes
            .iter()
            .all(u8::is_ascii_alphanumeric)
            .then(|| format!("{word}{}", String::from_utf8_lossy(&bytes)))
    });
    [format!("{first}{second}"), other.unwrap()]
}

#[test]
fn keys_with_equal_hashes_are_told_apart() {
    let [there, other] = alike();
    let pair = JoinedPair::new(&[2], false, |_| Vec::new());
    let both: Vec<Sample> = [&other, &there].map(|key| Sample::new(key.as_str()).with("cls", 1)).into();
    put(&pair.store, &url(0), &archive(&both));
    let side = |missing| keyed(&pair, &cut(&pair, std::slice::from_ref(&there), 5)).missing(missing);
    let found = collect(pair.primary().join(side(Missing::Error)).build().unwrap().samples(0));
    assert_eq!(found[0], Err(format!("missing_sample {:?}", Some(&other))));
    assert_eq!(found[1].as_ref().unwrap().1["txt"], format!("about {there}"));
    // The hashes are equal.
    let shards = cut(&pair, &[there, other], 5);
    let error = Index::builder().store(pair.others.clone()).build_keys(&shards).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Index(_)), "{error}");
}

/// The side dataset has a damaged sample whose key the main dataset does not have. All other samples are
/// joined, whether a requested range begins before the damaged sample or after it.
#[test]
fn a_damaged_sample_loses_no_other_sample() {
    let pair = JoinedPair::new(&[5, 5], false, |_| Vec::new());
    let all: Vec<String> =
        same(&[5, 5])(0).into_iter().chain(["zz".into()]).chain(same(&[5, 5])(1)).collect();
    let list = ShardList::from_urls(["counted://0.tar"]);
    let store = |content: &[u8]| {
        let source = Counted { content: vec![content.to_vec()], requests: Arc::default() };
        Store::builder().with_source("counted", Arc::new(source)).build().unwrap()
    };
    let mut bytes = archive(&all.iter().map(|key| caption(key)).collect::<Vec<_>>());
    let keys = Index::builder().store(store(&bytes)).checksums(true).build_keys(&list).unwrap();
    bytes[5 * 1024 + 512] ^= 1;
    let side = || Side::new(list.clone()).store(store(&bytes)).keys(keys.clone()).checksums(true);
    let found = |primary: DatasetBuilder| collect(primary.join(side()).build().unwrap().samples(0));
    let whole = found(pair.primary());
    assert!(whole.len() == 10 && whole.iter().all(std::result::Result::is_ok), "{whole:?}");
    let keys = |found: &[std::result::Result<SampleText, String>]| -> Vec<String> {
        found.iter().map(|shown| shown.as_ref().unwrap().0.clone()).collect()
    };
    assert_eq!(keys(&found(pair.primary().only([1]))), keys(&whole[5..]));
}
