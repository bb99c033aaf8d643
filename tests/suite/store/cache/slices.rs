//! Reads ranges of cached objects. Some tests replace an object by a new version, or read different objects
//! at the same URL from two sources. The tests check which blocks are read from the cache directory and which
//! bytes are requested.

use super::fixture::{CacheFixture, ControlledSource, URL, VERSION};
use crate::store::conformance::{read, small_ranges};
use crate::support::shards;
use crate::support::{archive, content, noise};
use shardstream::prelude::*;
use shardstream::store::object_store::memory::InMemory;
use shardstream::store::{Budget, Cache, ObjectVersion, Store};
use shardstream::{ErrorKind, Index, Result, ShardList};
use std::ops::Range;
use std::sync::Arc;

fn sorted(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_by_key(|range| range.start);
    ranges
}

#[track_caller]
fn assert_only(requested: Vec<Range<u64>>, range: Range<u64>) {
    assert_eq!((requested.len(), requested.first()), (1, Some(&range)));
}

#[test]
fn a_range_is_read_and_kept_in_whole_blocks() {
    let fixture = CacheFixture::with(|cache| cache.revalidate(false));
    fixture.read_range(1500..2600);
    assert_eq!(sorted(fixture.source.requested()), [1000..2000, 2000..3000]);
    assert_eq!(fixture.numbers(), [1, 2]);
    // The next range only requests the block that is missing.
    fixture.read_range(2600..3400);
    assert_only(fixture.source.requested(), 3000..4000);
    fixture.read_range(1000..4000);
    assert_eq!(fixture.source.requested(), []);
    fixture.read();
    assert_eq!(sorted(fixture.source.requested()), [0..1000, 4000..4500]);
    assert_eq!(fixture.numbers(), [0, 1, 2, 3, 4]);
    for range in [0..4500, 4400..9000, 4499..4500, 4500..4600, 0..1, 999..1001] {
        fixture.read_range(range);
    }
    assert_eq!((fixture.source.requested(), fixture.cache.warning()), (vec![], None));
}

/// A short request, such as the request that `stat` makes, would take longer if it fetched the whole block.
#[test]
fn a_short_range_is_requested_without_the_rest_of_its_block() {
    for revalidate in [false, true] {
        let fixture = CacheFixture::with(|cache| cache.revalidate(revalidate));
        fixture.read_range(2010..2050);
        assert_only(fixture.source.requested(), 2010..2050);
        assert_eq!(fixture.numbers(), [0; 0]);
        fixture.read();
        fixture.source.requested();
        fixture.read_range(2010..2050);
        match revalidate {
            // The first request is for the range itself: no earlier request asks for the version.
            true => assert_only(fixture.source.requested(), 2010..2050),
            false => assert_eq!(fixture.source.requested(), []),
        }
    }
}

#[test]
fn a_short_range_that_is_opened_ahead_is_requested_without_the_rest_of_its_block() {
    for prefetch in [0, 1 << 20] {
        let fixture = CacheFixture::with(|cache| cache.revalidate(false).prefetch(prefetch));
        let mut body = fixture.store.open_range(URL, 2010..2050, &ObjectVersion::any()).unwrap();
        body.begin();
        while fixture.source.0.lock().unwrap().requested.is_empty() {
            std::thread::yield_now();
        }
        assert!(body.read_all().unwrap() == fixture.content[2010..2050]);
        fixture.cache.flush();
        assert_only(fixture.source.requested(), 2010..2050);
        assert_eq!(fixture.numbers(), [0; 0]);
    }
}

/// Several runs of blocks are missing. Each run is fetched once, and the blocks between the runs are read
/// from the directory.
#[test]
fn each_run_of_missing_blocks_is_fetched_once() {
    let mut fixture = CacheFixture::of(40_000, 1000, |cache| cache.revalidate(false));
    fixture.read_range(0..1);
    for start in (0..40_000).step_by(4000) {
        fixture.read_range(start..start + 1500);
    }
    assert_eq!(fixture.numbers().len(), 20);
    fixture.source.requested();
    fixture.read();
    assert_eq!(fixture.source.requested().len(), 20);
    assert_eq!(fixture.numbers().len(), 40);
    fixture = fixture.again();
    fixture.read_range(700..39_999);
    assert_eq!(fixture.source.requested(), []);
}

/// The cache has some blocks of an earlier version. A read returns the bytes of one version only.
#[test]
fn blocks_of_two_versions_are_never_joined() {
    for (range, revalidate) in [(0..4500, true), (0..4500, false), (1500..2600, true), (1500..2600, false)] {
        let mut fixture = CacheFixture::with(|cache| cache.revalidate(revalidate));
        fixture.read_range(1000..2000);
        let after: Vec<u8> = noise(4500).iter().map(|byte| !byte).collect();
        fixture.source.put(URL, &after, Some("v2"));
        let read = || {
            fixture
                .store
                .open_range(URL, range.start as u64..range.end as u64, &ObjectVersion::any())
                .unwrap()
                .read_all()
        };
        match read() {
            Ok(bytes) => assert!(bytes == after[range.clone()]),
            // A cached block was returned before the response revealed the new version.
            Err(error) => assert!(matches!(error.kind(), ErrorKind::Changed { .. }) && !revalidate),
        }
        fixture.cache.flush();
        assert!(read().unwrap() == after[range.clone()], "the blocks of the earlier version are gone");
        fixture.cache.flush();
        fixture.content = after;
        fixture.read();
        assert_eq!(fixture.numbers(), [0, 1, 2, 3, 4]);
    }
}

/// Two servers, or two accounts of a server, may have different objects under one URL.
#[test]
fn sources_of_different_places_share_nothing() {
    let mut one = CacheFixture::with(|cache| cache.revalidate(false));
    one.source.0.lock().unwrap().place = "https://one".into();
    one.read();
    let other = ControlledSource::of(&noise(9000)[4500..]);
    other.0.lock().unwrap().place = "https://other".into();
    let store = other.store(&one.cache);
    assert!(store.open(URL).unwrap().read_all().unwrap() == noise(9000)[4500..]);
    one.cache.flush();
    assert_eq!(one.files().len(), 10);
    // A later process keeps the objects of the two sources apart, too.
    one = one.again();
    one.source.requested();
    one.read();
    assert!(other.store(&one.cache).open(URL).unwrap().read_all().unwrap() == noise(9000)[4500..]);
    assert_eq!((one.source.requested(), other.bodies()), (vec![], 5));
}

#[test]
fn blocks_are_not_shared_between_sizes() {
    let fixture = CacheFixture::with(|cache| cache.revalidate(false));
    fixture.read();
    let other = Cache::builder(fixture.directory.path()).revalidate(false).block_size(800).build().unwrap();
    let store = fixture.source.store(&other);
    for _ in 0..2 {
        assert!(read(&store, URL).unwrap() == fixture.content);
        other.flush();
    }
    fixture.source.requested();
    fixture.read();
    assert!(read(&store, URL).unwrap() == fixture.content);
    assert_eq!(fixture.source.requested(), []);
}

/// The setup that the documentation recommends: an index, and several streams that read slices.
#[test]
fn a_second_epoch_with_an_index_and_several_streams_requests_nothing() -> Result<()> {
    let directory = tempfile::tempdir().unwrap();
    let memory = Arc::new(InMemory::new());
    let plain = small_ranges().with_object_store("mem://", Arc::clone(&memory) as _).build()?;
    let sample = |n: usize| Sample::new(format!("{n:03}")).with("bin", noise(700 + n % 7 * 300));
    for shard in 0..5 {
        let samples: Vec<_> = (shard * 50..shard * 50 + 50).map(sample).collect();
        shards::put(&plain, &shards::url(shard), &archive(&samples));
    }
    let list = ShardList::from_urls((0..5).map(shards::url));
    let index = Index::builder().store(plain).build(&list)?;
    for block in [700, 20_000, 1 << 20] {
        let cache = Cache::builder(directory.path()).block_size(block).build()?;
        let store = || -> Result<Store> {
            let store = small_ranges().with_object_store("mem://", Arc::clone(&memory) as _);
            store.budget(Budget::new(16, 64 << 20)).cache(cache.clone()).build()
        };
        let epoch = |store: &Store, epoch, rank, ranks| -> Result<Vec<Sample>> {
            let topology = Topology::new(rank, ranks)?;
            let dataset = Dataset::builder(list.clone()).index(index.clone()).streams(12);
            let dataset = dataset.topology(topology).store(store.clone()).build()?;
            let samples: Vec<_> = dataset.samples(epoch).collect::<Result<_>>()?;
            cache.flush();
            Ok(samples)
        };
        let first = store()?;
        let read = epoch(&first, 0, 0, 1)?;
        assert_eq!(read.len(), 250);
        let received = first.report().total();
        assert!(received.requests > 0 && received.hit_rate() < 1.0, "{received}");
        for (number, ranks) in [(1, 1), (2, 3)] {
            let again = store()?;
            let mut read = Vec::new();
            for rank in 0..ranks {
                read.extend(epoch(&again, number, rank, ranks)?);
            }
            read.sort_by(|one, other| one.key().cmp(other.key()));
            let expected: Vec<_> = (0..250).map(sample).collect();
            assert!(content(&read) == content(&expected));
            let report = again.report().total();
            assert_eq!((report.requests, report.bytes, report.hit_rate()), (0, 0, 1.0), "{report}");
            assert!(report.to_string().contains("from the cache (100.0 %)"), "{report}");
        }
        assert_eq!(cache.warning(), None);
    }
    Ok(())
}

/// Eight nodes, each with its own cache, over five epochs; with whole shards and with slices.
#[test]
fn nodes_whose_streams_keep_their_shards_request_nothing_after_the_first_epoch() -> Result<()> {
    let memory = Arc::new(InMemory::new());
    let plain = small_ranges().with_object_store("mem://", Arc::clone(&memory) as _).build()?;
    let sample = |n: usize| Sample::new(format!("{n:03}")).with("bin", noise(300 + n % 7 * 300));
    for shard in 0..24 {
        let samples: Vec<_> = (shard * 8..shard * 8 + 8).map(sample).collect();
        shards::put(&plain, &shards::url(shard), &archive(&samples));
    }
    let list = ShardList::from_urls((0..24).map(shards::url));
    let index = Index::builder().store(plain).build(&list)?;
    for index in [None, Some(index)] {
        let requests_by_epoch = |keep: bool| -> Result<Vec<u64>> {
            let directories: Vec<_> = (0..8).map(|_| tempfile::tempdir().unwrap()).collect();
            let mut requests = Vec::new();
            for epoch in 0..5 {
                requests.push(0);
                let mut keys = Vec::new();
                for (rank, directory) in directories.iter().enumerate() {
                    let cache =
                        Cache::builder(directory.path()).block_size(1000).revalidate(false).build()?;
                    let store = small_ranges().with_object_store("mem://", Arc::clone(&memory) as _);
                    let store = store.cache(cache.clone()).build()?;
                    let dataset = Dataset::builder(list.clone()).shuffle_shards(true).keep_shards(keep);
                    let mut dataset =
                        dataset.streams(16).topology(Topology::new(rank, 8)?).store(store.clone());
                    if let Some(index) = &index {
                        dataset = dataset.index(index.clone());
                    }
                    for sample in dataset.build()?.samples(epoch) {
                        keys.push(sample?.key().to_owned());
                    }
                    cache.flush();
                    assert_eq!(cache.warning(), None);
                    *requests.last_mut().unwrap() += store.report().total().requests;
                }
                keys.sort();
                assert_eq!(keys, (0..192).map(|n| format!("{n:03}")).collect::<Vec<_>>());
            }
            Ok(requests)
        };
        let kept = requests_by_epoch(true)?;
        assert!(kept[0] > 0 && kept[1..] == [0; 4], "{kept:?}");
        let dealt = requests_by_epoch(false)?;
        assert!(dealt[1] > dealt[0] / 2, "{dealt:?}");
    }
    Ok(())
}

/// The cache has room for two fifths of the bytes that a node reads.
#[test]
fn a_cache_that_is_too_small_has_hits_in_every_epoch() -> Result<()> {
    let memory = Arc::new(InMemory::new());
    let plain = small_ranges().with_object_store("mem://", Arc::clone(&memory) as _).build()?;
    let mut bytes = 0;
    for shard in 0..40 {
        let samples: Vec<_> =
            (0..4).map(|n| Sample::new(format!("{shard:02}-{n}")).with("bin", noise(3000))).collect();
        let shard_bytes = archive(&samples);
        bytes += shard_bytes.len() as u64;
        shards::put(&plain, &shards::url(shard), &shard_bytes);
    }
    let list = ShardList::from_urls((0..40).map(shards::url));
    for (keep, shuffle) in [(true, true), (false, false)] {
        let directory = tempfile::tempdir().unwrap();
        let mut rates = Vec::new();
        for epoch in 0..6 {
            // The job is restarted after every second epoch.
            let cache = Cache::builder(directory.path()).block_size(2000).max_bytes(bytes * 2 / 5);
            let cache = cache.revalidate(false).build()?;
            for epoch in [2 * epoch, 2 * epoch + 1] {
                let store = small_ranges().with_object_store("mem://", Arc::clone(&memory) as _);
                let store = store.cache(cache.clone()).build()?;
                let dataset = Dataset::builder(list.clone()).shuffle_shards(shuffle).keep_shards(keep);
                let dataset = dataset.streams(4).topology(Topology::single()).store(store.clone()).build()?;
                assert_eq!(dataset.samples(epoch).count(), 160);
                cache.flush();
                rates.push(store.report().total().hit_rate());
            }
            assert_eq!(cache.warning(), None);
        }
        // The headers of files, and blocks at the ends of shards, take some of the room.
        assert!(rates[0] == 0.0 && rates[1] > 0.2 && rates[1] < 0.4, "{rates:?}");
        assert!(rates[2..].iter().all(|rate| *rate > 0.6 * rates[1] && *rate < 0.4), "{rates:?}");
        let unbroken = rates.iter().skip(1).step_by(2);
        assert!(unbroken.copied().all(|rate| rate > 0.9 * rates[1]), "{rates:?}");
    }
    Ok(())
}

/// Without an index, only the version is requested.
#[test]
fn revalidation_requests_no_bytes_of_slices() {
    let fixture = CacheFixture::new();
    for range in [0..1200, 1200..3100, 3100..4500] {
        fixture.read_range(range);
    }
    fixture.source.requested();
    for range in [0..1200, 1200..3100, 3100..4500] {
        fixture.read_range(range);
    }
    assert_eq!(fixture.source.requested(), [VERSION, VERSION, VERSION]);
}
