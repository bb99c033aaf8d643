//! Shards that are fetched into the cache before their streams reach them.

use super::fixture::{ControlledSource, VERSION, files};
use crate::store::conformance::small_ranges;
use crate::support::{archive, content, noise};
use shardstream::dataset::DatasetBuilder;
use shardstream::prelude::*;
use shardstream::store::{Budget, Cache, CacheBuilder, RequestReport, Store, StoreReport};
use shardstream::{Index, Result, ShardList};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

const SHARDS: usize = 6;
const SAMPLES: usize = 20;
const BLOCK: u64 = 5000;
/// Memory for bytes that were requested and not read yet.
const MEMORY: u64 = 20_000;
/// How long to wait for requests that should not be made.
const REST: Duration = Duration::from_millis(300);

fn url(shard: usize) -> String {
    format!("test://d/{shard}.tar")
}

fn sample(number: usize) -> Sample {
    Sample::new(format!("{number:03}")).with("bin", noise(2000 + number % 7 * 300))
}

/// A source of shards, a cache that prefetches, and a budget with less memory than a whole shard.
struct PrefetchFixture {
    directory: tempfile::TempDir,
    source: Arc<ControlledSource>,
    cache: Cache,
    store: Store,
    sizes: Vec<u64>,
}

impl PrefetchFixture {
    fn new(settings: impl FnOnce(CacheBuilder) -> CacheBuilder) -> Self {
        Self::with_memory(MEMORY, settings)
    }

    fn with_memory(memory: u64, settings: impl FnOnce(CacheBuilder) -> CacheBuilder) -> Self {
        let (directory, source) = (tempfile::tempdir().unwrap(), Arc::new(ControlledSource::default()));
        let mut sizes = Vec::new();
        for shard in 0..SHARDS {
            let samples: Vec<_> = (shard * SAMPLES..(shard + 1) * SAMPLES).map(sample).collect();
            let bytes = archive(&samples);
            sizes.push(bytes.len() as u64);
            source.put(&url(shard), &bytes, Some("v1"));
        }
        let cache = Cache::builder(directory.path()).block_size(BLOCK).prefetch(1 << 30).revalidate(false);
        let cache = settings(cache).build().unwrap();
        let store = source.builder(&cache).range_size(3000).budget(Budget::new(16, memory)).retries(4);
        let store = store.build().unwrap();
        PrefetchFixture { directory, source, cache, store, sizes }
    }

    fn dataset(&self) -> Dataset {
        self.dataset_with(|dataset| dataset)
    }

    fn dataset_with(&self, options: impl FnOnce(DatasetBuilder) -> DatasetBuilder) -> Dataset {
        let dataset = Dataset::builder(ShardList::from_urls((0..SHARDS).map(url)));
        let dataset = dataset.store(self.store.clone()).streams(1).topology(Topology::single());
        options(dataset).build().unwrap()
    }

    fn report(&self) -> StoreReport {
        self.store.report()
    }

    /// Number of blocks of these shards in the directory.
    fn blocks(&self, shards: Range<usize>) -> usize {
        let files = files(self.directory.path())
            .into_iter()
            .filter(|file| file.extension() == Some("block".as_ref()));
        let headers: Vec<String> = files
            .filter_map(|file| {
                let content = std::fs::read(file).ok()?;
                Some(String::from_utf8_lossy(&content[..content.len().min(500)]).into_owned())
            })
            .collect();
        shards.map(|shard| headers.iter().filter(|header| header.contains(&url(shard))).count()).sum()
    }

    fn wait_until(&self, is_so: impl Fn() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !is_so() {
            assert!(Instant::now() < deadline, "{} {:?}", self.report(), self.store.requests());
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// The shards from which bytes were requested since the last call.
    fn requested(&self) -> Vec<String> {
        let requested = std::mem::take(&mut self.source.0.lock().unwrap().requested);
        let of_bytes = |(url, range): (String, Range<u64>)| (range != VERSION).then_some(url);
        requested.into_iter().filter_map(of_bytes).collect()
    }

    fn bytes_behind_the_first(&self) -> u64 {
        self.sizes[1..].iter().sum()
    }

    fn blocks_behind_the_first(&self) -> usize {
        self.sizes[1..].iter().map(|size| size.div_ceil(BLOCK) as usize).sum()
    }
}

fn all() -> Vec<Sample> {
    (0..SHARDS * SAMPLES).map(sample).collect()
}

/// The consumer takes one sample and pauses. The samples after it are then read from the disk, in the same
/// order.
#[test]
fn a_slow_consumer_finds_the_next_shards_in_the_cache() -> Result<()> {
    for asynchronous in [false, true] {
        // The memory has only room for the bytes that the reader waits for.
        let fixture = PrefetchFixture::with_memory(1, |cache| cache);
        let mut reader = fixture.dataset().read(0, 0);
        let mut read = vec![reader.next().unwrap()?];
        fixture.wait_until(|| fixture.blocks(1..SHARDS) == fixture.blocks_behind_the_first());
        fixture.requested();
        match asynchronous {
            true => {
                use futures::StreamExt;
                let rest: Vec<_> = futures::executor::block_on(reader.into_stream().collect());
                for sample in rest {
                    read.push(sample?);
                }
            }
            false => {
                for sample in reader {
                    read.push(sample?);
                }
            }
        }
        assert!(content(&read) == content(&all()));
        let requested = fixture.requested();
        assert!(requested.iter().all(|requested| *requested == url(0)), "{requested:?}");
        let total = fixture.report().total();
        // If the reader reaches a shard while a block of it is being written, that block does not count as a
        // hit. This may happen to the last block.
        assert!(total.cached >= fixture.bytes_behind_the_first(), "{total}");
        assert!(total.prefetch_hits + BLOCK >= fixture.bytes_behind_the_first(), "{total}");
        assert!(total.to_string().contains("MB prefetched, of which"), "{total}");
        assert_eq!((fixture.cache.warning(), fixture.report().cache_warning), (None, None));
    }
    Ok(())
}

/// A request for an empty object returns no bytes, so prefetching must not wait for any.
#[test]
fn an_empty_shard_does_not_stop_prefetching() -> Result<()> {
    let fixture = PrefetchFixture::with_memory(1, |cache| cache);
    fixture.source.put(&url(1), &[], Some("v1"));
    let mut reader = fixture.dataset().read(0, 0);
    reader.next().unwrap()?;
    let expected: usize = fixture.sizes[2..].iter().map(|size| size.div_ceil(BLOCK) as usize).sum();
    fixture.wait_until(|| fixture.blocks(2..SHARDS) == expected);
    fixture.requested();
    std::thread::sleep(REST);
    assert_eq!(fixture.requested(), Vec::<String>::new());
    Ok(())
}

/// Several streams read slices of the shards, with an index.
#[test]
fn slices_are_prefetched_in_whole_blocks() -> Result<()> {
    let fixture = PrefetchFixture::new(|cache| cache.revalidate(true));
    let plain = small_ranges().with_source("test", Arc::clone(&fixture.source) as _).build()?;
    let index = Index::builder().store(plain).build(&ShardList::from_urls((0..SHARDS).map(url)))?;
    let dataset = fixture.dataset_with(|dataset| dataset.index(index).streams(4));
    let mut streams: Vec<_> = (0..4).map(|stream| dataset.read(0, stream)).collect();
    let mut read: Vec<Sample> =
        streams.iter_mut().map(|stream| stream.next().unwrap()).collect::<Result<_>>()?;
    fixture.wait_until(|| fixture.report().total().prefetched > fixture.bytes_behind_the_first() / 2);
    for stream in streams {
        for sample in stream {
            read.push(sample?);
        }
    }
    read.sort_by(|one, other| one.key().cmp(other.key()));
    assert!(content(&read) == content(&all()));
    assert!(fixture.report().total().prefetch_hits > 0);
    assert_eq!(fixture.cache.warning(), None);
    Ok(())
}

#[test]
fn prefetching_stops_at_its_limit() -> Result<()> {
    let fixture = PrefetchFixture::with_memory(1, |cache| cache.prefetch(3 * BLOCK));
    let mut reader = fixture.dataset().read(0, 0);
    let mut read = vec![reader.next().unwrap()?];
    fixture.wait_until(|| fixture.blocks(1..SHARDS) == 3);
    std::thread::sleep(REST);
    assert_eq!(fixture.blocks(1..SHARDS), 3);
    // Reading a prefetched shard makes room for further blocks.
    while read.len() < SAMPLES + 2 {
        read.push(reader.next().unwrap()?);
    }
    fixture.wait_until(|| fixture.blocks(2..SHARDS) > 0);
    for sample in reader {
        read.push(sample?);
    }
    assert!(content(&read) == content(&all()));
    Ok(())
}

/// While a reader waits for bytes or has a request in flight, nothing is prefetched.
#[test]
fn nothing_is_prefetched_while_the_link_is_busy() -> Result<()> {
    let fixture = PrefetchFixture::new(|cache| cache);
    fixture.source.hold(Some(0));
    let reader = fixture.dataset().read(0, 0);
    let reading = std::thread::spawn(move || reader.collect::<Result<Vec<_>>>());
    fixture.wait_until(|| !fixture.store.requests().is_empty());
    // Waits for a prefetch request that should not be made.
    std::thread::sleep(REST);
    let total = fixture.report().total();
    assert_eq!((total.prefetched, files(fixture.directory.path()).len()), (0, 0));
    fixture.source.hold(None);
    assert!(content(&reading.join().unwrap()?) == content(&all()));
    Ok(())
}

/// Nothing is evicted for prefetched blocks, and nothing is requested that would not fit.
#[test]
fn nothing_is_prefetched_into_a_full_cache() -> Result<()> {
    let fixture = PrefetchFixture::with_memory(1, |cache| cache.max_bytes(2 * (BLOCK + 1500)));
    fixture.source.put("test://d/other", &noise(2 * BLOCK as usize), Some("v1"));
    assert!(fixture.store.open("test://d/other")?.read_all()? == noise(2 * BLOCK as usize));
    fixture.cache.flush();
    let before = files(fixture.directory.path());
    assert_eq!(before.len(), 2);
    let mut reader = fixture.dataset().read(0, 0);
    let first = reader.next().unwrap()?;
    std::thread::sleep(REST);
    let requested = fixture.requested();
    assert!(!requested.iter().any(|requested| (1..SHARDS).any(|shard| *requested == url(shard))));
    assert_eq!(fixture.report().total().prefetched, 0);
    assert_eq!((files(fixture.directory.path()), fixture.cache.warning()), (before, None));
    let read = std::iter::once(Ok(first)).chain(reader).collect::<Result<Vec<_>>>()?;
    assert!(content(&read) == content(&all()));
    Ok(())
}

#[test]
fn streams_that_keep_their_shards_request_nothing_after_an_epoch_that_was_prefetched() -> Result<()> {
    let fixture = PrefetchFixture::new(|cache| cache);
    let dataset = fixture.dataset_with(|dataset| dataset.shuffle_shards(true).keep_shards(true).streams(2));
    let keys = |epoch| -> Result<Vec<String>> {
        let mut keys = Vec::new();
        for sample in dataset.samples(epoch) {
            keys.push(sample?.key().to_owned());
            // A slow consumer.
            if keys.len() % SAMPLES == 1 {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        fixture.cache.flush();
        Ok(keys)
    };
    let plain = small_ranges().with_source("test", Arc::clone(&fixture.source) as _).build()?;
    let plain = Dataset::builder(ShardList::from_urls((0..SHARDS).map(url))).store(plain);
    let plain =
        plain.shuffle_shards(true).keep_shards(true).streams(2).topology(Topology::single()).build()?;
    for epoch in 0..3 {
        fixture.requested();
        let expected: Vec<String> =
            plain.samples(epoch).map(|sample| Ok(sample.key().to_owned())).collect::<Result<_>>()?;
        fixture.requested();
        assert_eq!(keys(epoch)?, expected);
        assert!(epoch == 0 || fixture.requested().is_empty());
    }
    Ok(())
}

#[test]
fn a_restored_job_reads_the_prefetched_shards() -> Result<()> {
    let loader = |fixture: &PrefetchFixture| {
        let dataset = fixture.dataset_with(|dataset| dataset.shuffle_shards(true).streams(2));
        Loader::builder(dataset).shuffle(15).batch(8).threads(2).build()
    };
    let keys = |batch: shardstream::adapters::Batch<Sample>| -> Vec<String> {
        batch.iter().map(|sample| sample.key().to_owned()).collect()
    };
    let plain = PrefetchFixture::new(|cache| cache.prefetch(0));
    let mut expected = Vec::new();
    for batch in loader(&plain)?.epoch(0) {
        expected.extend(keys(batch?));
    }
    for taken in [1, 5] {
        let fixture = PrefetchFixture::new(|cache| cache);
        let (mut read, loader) = (Vec::new(), loader(&fixture)?);
        let mut batches = loader.epoch(0);
        for batch in batches.by_ref().take(taken) {
            read.extend(keys(batch?));
        }
        let state = batches.state();
        drop(batches);
        fixture.cache.flush();
        for batch in loader.restore(&state)? {
            read.extend(keys(batch?));
        }
        assert_eq!(read, expected);
        assert_eq!(fixture.cache.warning(), None);
    }
    Ok(())
}

#[test]
fn prefetching_ends_when_the_reader_is_dropped() -> Result<()> {
    let fixture = PrefetchFixture::new(|cache| cache);
    // Without prefetching, the reader requests no bytes after this offset. These bytes are withheld, so that
    // a prefetch request for them does not end by itself.
    fixture.source.hold(Some(30_000));
    let mut reader = fixture.dataset().read(0, 0);
    reader.next().unwrap()?;
    let is_held = |request: &RequestReport| request.range.as_ref().is_some_and(|range| range.end > 30_000);
    fixture.wait_until(|| fixture.report().total().prefetched > 0);
    fixture.wait_until(|| fixture.store.requests().iter().any(is_held));
    drop(reader);
    fixture.wait_until(|| fixture.store.requests().is_empty());
    fixture.cache.flush();
    let prefetched = fixture.report().total().prefetched;
    fixture.source.hold(None);
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(fixture.report().total().prefetched, prefetched);
    assert_eq!(fixture.store.budget().in_use(), 0);
    Ok(())
}

/// Requests for a shard fail during prefetching, but not when the shard is read.
#[test]
fn a_shard_that_cannot_be_prefetched_is_a_warning() -> Result<()> {
    let fixture = PrefetchFixture::new(|cache| cache);
    fixture.source.0.lock().unwrap().failing = Some(url(3));
    let mut reader = fixture.dataset().read(0, 0);
    let mut read = vec![reader.next().unwrap()?];
    fixture.wait_until(|| fixture.cache.warning().is_some());
    let warning = fixture.cache.warning().unwrap();
    assert!(warning.contains(&url(3)) && warning.contains("not prefetched"), "{warning}");
    assert!(fixture.report().to_string().ends_with(&warning));
    fixture.source.0.lock().unwrap().failing = None;
    for sample in reader {
        read.push(sample?);
    }
    assert!(content(&read) == content(&all()));
    Ok(())
}
