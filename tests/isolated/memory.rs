//! All loaders of a process together exceed their memory budget only by a small amount.

use crate::alone;
use crate::support::Every;
use crate::support::archive;
#[cfg(feature = "http")]
use crate::support::server::{Reply, Server};
use bytes::Bytes;
use futures::future::{self, BoxFuture, FutureExt};
use futures::stream::{self, StreamExt};
use shardstream::codec::Array;
use shardstream::collate::ArrayColumn;
use shardstream::loader::Batches;
use shardstream::prelude::*;
use shardstream::store::{Budget, GetOptions, GetResponse, Source, Store};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

const LOADERS: usize = 20;
const THREADS: usize = 2;

/// Waits until a number stops growing, and returns the number. On a slow machine, this function may return a
/// number that is still too small. No test fails because of such a number: the tests only check that the
/// number is not above a limit.
fn wait_until_stable(number: impl Fn() -> u64) -> u64 {
    let mut seen = number();
    loop {
        thread::sleep(Duration::from_millis(300));
        match number() {
            // Reading `/proc/self/io` itself adds some bytes.
            now if now < seen + 4096 => return now,
            now => seen = now,
        }
    }
}

/// Starts loaders, takes one batch from each and keeps the loaders open.
fn open(dataset: &Dataset, batch: usize) -> Vec<Batches<Batch<Sample>>> {
    let loader = Loader::builder(dataset.clone()).threads(THREADS).batch(batch).prefetch(1).build().unwrap();
    let opened = (0..LOADERS).map(|_| {
        let mut batches = loader.clone().epochs(0);
        assert_eq!(batches.next().unwrap().unwrap().len(), batch);
        batches
    });
    opened.collect()
}

/// Fails unless all memory is released within 5 s, including the memory of requests that are still being
/// cancelled.
fn assert_nothing_in_use(budget: &Budget) {
    for _ in 0..500 {
        if budget.in_use() == 0 {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("{} bytes are left", budget.in_use());
}

/// The most bytes that the queues of all loaders hold while no batch is taken: a quarter of the budget, plus
/// the small chunks that the budget grants even if it has no room.
fn queues(budget: u64, streams: usize, chunk: u64) -> u64 {
    // The budget grants these chunks even if it is full. Per stream: the current chunk and one that was read
    // ahead. Per loader: one chunk, and one for each thread.
    budget / 4 + (LOADERS * (2 * streams + 1 + THREADS)) as u64 * chunk
}

/// A source of endless archives that counts the bytes it has produced.
#[derive(Debug)]
struct Endless(Arc<AtomicUsize>);

const LARGE: usize = 64 << 10;

impl Source for Endless {
    fn get(&self, _: &str, _: GetOptions) -> BoxFuture<'static, shardstream::Result<GetResponse>> {
        let produced = Arc::clone(&self.0);
        let samples = stream::iter(0..).map(move |at| {
            let mut bytes = archive(&[Sample::new(format!("{at:06}")).with("bin", vec![1; LARGE])]);
            bytes.truncate(512 + LARGE);
            produced.fetch_add(bytes.len(), Ordering::SeqCst);
            Ok(Bytes::from(bytes))
        });
        future::ready(Ok(GetResponse::new(samples.boxed()))).boxed()
    }
}

#[test]
fn loaders_of_one_process_share_the_budget() {
    const STREAMS: usize = 2;
    const BUDGET: u64 = 16 << 20;
    let _alone = alone();
    let produced = Arc::<AtomicUsize>::default();
    let budget = Budget::new(64, BUDGET);
    let store = Store::builder().budget(budget.clone());
    let store = store.with_source("test://", Arc::new(Endless(Arc::clone(&produced)))).build().unwrap();
    let dataset = Dataset::builder("test://a/{0..1}.tar").store(store).topology(Topology::single());
    let open = open(&dataset.streams(STREAMS).build().unwrap(), 1);
    let read = wait_until_stable(|| produced.load(Ordering::SeqCst) as u64);
    let sample = LARGE as u64 + 4096;
    // Per stream, outside of the queues: two chunks that wait to be read, one chunk held at each end of the
    // queue, and one chunk being parsed. Per loader: the batch that was taken, the prefetched batch and the
    // batch being built.
    let on_the_way = BUDGET + (LOADERS * (STREAMS * 5 + 3)) as u64 * sample;
    let most = on_the_way + queues(BUDGET, STREAMS, sample);
    assert!(read < most, "{} MB were read, at most {} MB may be", read >> 20, most >> 20);
    // For an object of unknown length, the budget counts the granted range instead of the bytes in transit.
    // While the budget has no room, it grants ranges of 64 KiB.
    let counted = queues(BUDGET, STREAMS, sample) + BUDGET + ((LOADERS * STREAMS) << 16) as u64;
    assert!(budget.in_use() < counted, "{} MB are in use", budget.in_use() >> 20);
    drop(open);
    assert_nothing_in_use(&budget);
}

/// If objects cannot be read in ranges, the budget grants memory to only one reader at a time.
#[test]
fn readers_of_whole_objects_share_the_budget() {
    const READERS: usize = 8;
    let _alone = alone();
    let produced = Arc::<AtomicUsize>::default();
    let store = Store::builder().budget(Budget::new(64, 4 << 20));
    let store = store.with_source("test://", Arc::new(Endless(Arc::clone(&produced)))).build().unwrap();
    let mut bodies: Vec<_> =
        (0..READERS).map(|at| store.open(&format!("test://{at}.tar")).unwrap()).collect();
    bodies.iter_mut().for_each(|body| assert!(body.next().unwrap().is_ok()));
    let chunks = wait_until_stable(|| produced.load(Ordering::SeqCst) as u64) / (LARGE as u64 + 512);
    // The largest number of chunks that a reader can hold: one chunk was read, one chunk is held by the
    // sending task, and four chunks are in the queue, because the first reader was alone when its memory was
    // granted (later readers have two chunks in the queue).
    assert!(chunks <= (READERS * (2 + 4)) as u64, "{chunks} chunks");
}

#[cfg(target_os = "linux")]
#[test]
fn loaders_of_local_files_share_the_budget() {
    const STREAMS: usize = 4;
    const SAMPLE: usize = 3000;
    const BUDGET: u64 = 16 << 20;
    /// Number of bytes that this process has read from files.
    fn read() -> u64 {
        let counters = std::fs::read_to_string("/proc/self/io").unwrap();
        counters.lines().find_map(|line| line.strip_prefix("rchar: ")).unwrap().parse().unwrap()
    }
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let pattern = format!("{}/%06d.tar", dir.path().display());
    let mut writer = ShardWriter::builder(&pattern).max_count(85).build().unwrap();
    for at in 0..STREAMS * 85 {
        writer.write(&Sample::new(format!("{at:06}")).with("bin", vec![1; SAMPLE])).unwrap();
    }
    let shard = writer.finish().unwrap()[0].bytes;
    let budget = Budget::new(64, BUDGET);
    let shards = pattern.replace("%06d", "{000000..000003}");
    let dataset = Dataset::builder(shards).store(Store::builder().budget(budget.clone()).build().unwrap());
    let dataset = dataset.topology(Topology::single()).streams(STREAMS).build().unwrap();
    let before = read();
    let open = open(&dataset, 16);
    let (most_held, held) =
        (queues(BUDGET, STREAMS, (64 << 10) + 4 * 4096), wait_until_stable(|| budget.in_use()));
    assert!(held < most_held, "{} MB in queues, at most {} MB may be", held >> 20, most_held >> 20);
    // Each stream reads its file repeatedly. Besides the samples in its queues, it may have read as many
    // bytes as the whole file has.
    let read = wait_until_stable(read) - before;
    let batches = (LOADERS * 3 * 16 * SAMPLE * 2) as u64;
    let most = most_held * 5 / 4 + (LOADERS * STREAMS) as u64 * shard + batches;
    assert!(read < most, "{} MB were read, at most {} MB may be", read >> 20, most >> 20);
    drop(open);
    assert_nothing_in_use(&budget);
}

/// Returns the largest number of bytes in use while `work` runs or at its end, and the result of `work`.
#[cfg(feature = "http")]
fn most_in_use<T>(budget: &Budget, work: impl FnOnce() -> T) -> (u64, T) {
    let running = Arc::new(());
    let (watched, observed) = (Arc::downgrade(&running), budget.clone());
    let watcher = thread::spawn(move || {
        let mut most = 0;
        while watched.strong_count() > 0 {
            most = observed.in_use().max(most);
            thread::sleep(Duration::from_micros(100));
        }
        most
    });
    let result = work();
    let last = budget.in_use();
    drop(running);
    (watcher.join().unwrap().max(last), result)
}

/// Opens loaders one after the other. The test takes four batches from each loader, so that the loader
/// requests larger ranges, and then no more batches. Each stream may exceed the budget by one range of 64
/// KiB. With threads, it may also exceed the budget by two chunks that were read ahead.
#[cfg(feature = "http")]
#[test]
fn many_streams_over_http_exceed_the_budget_by_little_each() {
    const STREAMS: usize = 8;
    const BUDGET: u64 = 8 << 20;
    const SAMPLE: usize = 20_000;
    const LEAST: u64 = 64 << 10;
    let _alone = alone();
    let samples: Vec<Sample> =
        (0..200).map(|at| Sample::new(format!("{at:06}")).with("bin", vec![1; SAMPLE])).collect();
    let shard = archive(&samples);
    let server = Server::forgetful(move |request| Reply::object(request, &shard, "\"v1\""));
    let shards = server.url("/{000000..000007}.tar");
    for threads in [0, 1] {
        let budget = Budget::new(64, BUDGET);
        let store = Store::builder().budget(budget.clone()).build().unwrap();
        let dataset = Dataset::builder(shards.as_str()).store(store).topology(Topology::single());
        let dataset = dataset.streams(STREAMS).build().unwrap();
        let loader = Loader::builder(dataset).threads(threads).batch(STREAMS * 10).prefetch(1);
        let loader = loader.build().unwrap();
        let (most, open) = most_in_use(&budget, || {
            let open = (0..LOADERS).map(|_| {
                let mut batches = loader.clone().epochs(0);
                (0..4).for_each(|_| assert!(batches.next().unwrap().is_ok()));
                batches
            });
            let open: Vec<_> = open.collect();
            wait_until_stable(|| budget.in_use());
            open
        });
        let streams = (LOADERS * STREAMS) as u64;
        let chunks = (threads * LOADERS * (2 * STREAMS + 1 + threads)) as u64 * (LEAST + SAMPLE as u64);
        let bound = BUDGET + streams * LEAST + chunks;
        assert!(most <= bound, "{threads}: {} KiB of at most {}", most >> 10, bound >> 10);
        drop(open);
        assert_nothing_in_use(&budget);
    }
}

/// The first request for an object whose version is unknown is for 64 KiB. If the server responds with the
/// whole object, the budget grants that response the memory of a range, unless it has too little room.
#[cfg(feature = "http")]
#[test]
fn a_single_response_has_the_memory_of_a_range() {
    let _alone = alone();
    let content = vec![7; 4 << 20]; // Less than a range.
    let server = Server::start(move |_| Reply::new(200, content.clone()));
    for (limit, expected) in [(64 << 20, 4 << 20), (64 << 10, 64 << 10)] {
        let budget = Budget::new(64, limit);
        let store = Store::builder().budget(budget.clone()).build().unwrap();
        let mut body = store.open(&server.url("/a.tar")).unwrap();
        let mut size = body.next().unwrap().unwrap().len();
        assert_eq!(budget.in_use(), expected);
        size += body.map(|chunk| chunk.unwrap().len()).sum::<usize>();
        assert_eq!(size, 4 << 20);
        assert_nothing_in_use(&budget);
    }
}

/// Each loader reports the memory it holds. The sum of the reports equals the budget's memory in use.
#[test]
fn a_report_splits_memory_into_network_and_samples() {
    const STREAMS: usize = 2;
    let _alone = alone();
    let produced = Arc::<AtomicUsize>::default();
    let budget = Budget::new(64, 16 << 20);
    let store = Store::builder().budget(budget.clone());
    let store = store.with_source("test://", Arc::new(Endless(Arc::clone(&produced)))).build().unwrap();
    let dataset = Dataset::builder("test://a/{0..1}.tar").store(store).topology(Topology::single());
    let dataset = dataset.streams(STREAMS).build().unwrap();
    let open = open(&dataset, 1);
    wait_until_stable(|| produced.load(Ordering::SeqCst) as u64);
    let reports: Vec<_> = open.iter().map(|batches| batches.report().memory).collect();
    let (network, samples) =
        (reports.iter().map(|memory| memory.network), reports.iter().map(|memory| memory.samples));
    assert!(samples.clone().every(|samples| samples >= LARGE as u64), "{reports:?}");
    assert!(samples.clone().sum::<u64>() <= queues(16 << 20, STREAMS, LARGE as u64 + 4096));
    assert!(network.clone().every(|network| network >= STREAMS as u64 * (64 << 10)), "{reports:?}");
    assert_eq!(network.sum::<u64>() + samples.sum::<u64>(), budget.in_use());
    assert!(reports.iter().every(|memory| (memory.shuffled, memory.tensors) == (0, 0)));
    drop(open);
    assert_nothing_in_use(&budget);
}

#[test]
fn shuffle_buffers_and_tensors_are_counted() {
    const STREAMS: usize = 2;
    const SAMPLE: usize = 3000;
    const SHUFFLE: usize = 10;
    const ROWS: usize = 4;
    const PREFETCH: u64 = 2;
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let pattern = format!("{}/%06d.tar", dir.path().display());
    let mut writer = ShardWriter::builder(&pattern).max_count(500).build().unwrap();
    for at in 0..STREAMS * 500 {
        writer.write(&Sample::new(format!("{at:06}")).with("bin", vec![1; SAMPLE])).unwrap();
    }
    writer.finish().unwrap();
    let budget = Budget::new(64, 1 << 20);
    let dataset = Dataset::builder(pattern.replace("%06d", "{000000..000001}"));
    let dataset = dataset.store(Store::builder().budget(budget.clone()).build().unwrap());
    let dataset = dataset.topology(Topology::single()).streams(STREAMS).build().unwrap();
    let columns = Columns::new().with("x", ArrayColumn::new("bin", DType::U8, [SAMPLE]));
    let loader = Loader::builder(dataset).threads(1).shuffle(SHUFFLE).prefetch(PREFETCH as usize);
    let raw = |sample: Sample| {
        let bytes = sample.get("bin").unwrap().as_bytes().unwrap().to_vec();
        Ok(Sample::new(sample.key()).with("bin", Array::new(DType::U8, vec![SAMPLE], bytes)?))
    };
    let mut batches = loader.map(raw).collate(columns).batch(ROWS).build().unwrap().epochs(0);
    let batch = batches.next().unwrap().unwrap();
    wait_until_stable(|| budget.in_use());
    let memory = batches.report().memory;
    // Each shuffle buffer has returned one sample and has not refilled its slot yet.
    assert_eq!(memory.shuffled, (STREAMS * (SHUFFLE - 1) * SAMPLE) as u64);
    assert_eq!((memory.network, memory.samples), (0, budget.in_use()));
    assert!(memory.samples > 0 && memory.read_buffers > 0);
    // The counted batches: the batch that was taken, the batches in the queue, and one batch that waits for
    // room in the queue.
    let (size, most) = ((ROWS * SAMPLE) as u64, (ROWS * SAMPLE + 256) as u64);
    let count = 1 + PREFETCH + 1;
    assert!((count * size..=count * most).contains(&memory.tensors), "{memory:?}");
    drop(batch);
    let after = batches.report().memory;
    assert!(((count - 1) * size..=(count - 1) * most).contains(&after.tensors), "{after:?}");
    assert_eq!(after.tensors + after.idle_tensors, memory.tensors + memory.idle_tensors);
    let report = batches.report().to_string();
    assert!(report.contains("memory: samples 0."), "{report}");
    drop(batches);
    assert_nothing_in_use(&budget);
}
