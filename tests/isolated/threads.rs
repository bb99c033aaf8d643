//! A loader stops and joins its threads whenever it is dropped, and its threads read ahead by a bounded
//! number of samples.

use crate::alone;
use crate::support::archive;
use crate::support::shards::{dataset, url};
use crate::support::versioned_source::{self, VersionedSource};
use bytes::Bytes;
use futures::future::{self, BoxFuture, FutureExt};
use futures::stream::{self, Stream, StreamExt};
use shardstream::collate::{Columns, Scalar};
use shardstream::feed::Feed;
use shardstream::loader::{Batches, Failures, LastBatch, LoaderBuilder, OnError};
use shardstream::prelude::*;
use shardstream::store::{Cache, GetOptions, GetResponse, Source, StoreBuilder};
use shardstream::{Error, Index, Result};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, RwLock, mpsc};
use std::thread;
use std::time::Duration;

/// Maximum number of samples in a chunk. A thread processes one chunk at a time.
const CHUNK: usize = 512;

/// Runs `test` on a thread and fails if it takes too long.
fn watched(test: impl FnOnce() + Send + 'static) {
    let _alone = alone();
    let (done, waiting) = mpsc::channel();
    let test = thread::spawn(move || {
        test();
        let _ = done.send(());
    });
    match waiting.recv_timeout(Duration::from_secs(120)) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("this hangs"),
        _ => test.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
    }
}

/// The names of the threads of loaders in this process. Threads for I/O are left out: they live as long as
/// the process.
#[cfg(target_os = "linux")]
fn threads() -> Vec<String> {
    let names = std::fs::read_dir("/proc/self/task").unwrap().filter_map(|task| {
        let name = std::fs::read_to_string(task.unwrap().path().join("comm")).ok()?;
        Some(name.trim().to_owned())
    });
    names.filter(|name| name.starts_with("shardstream-") && name != "shardstream-io").collect()
}

#[cfg(not(target_os = "linux"))]
fn threads() -> Vec<String> {
    Vec::new()
}

/// Fails if a loader's thread still exists after 5 s. This function waits, because the system may list a
/// thread for a moment after the thread was joined.
fn assert_no_threads() {
    for _ in 0..500 {
        if threads().is_empty() {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("left over: {:?}", threads());
}

/// How an object of a [`Custom`] source responds.
#[derive(Debug, Clone, Copy)]
enum Behaviour {
    /// No response, ever.
    Silent,
    /// The body has this many samples. After them, it sends no bytes and does not end.
    StallsAfter(usize),
    /// Endless samples.
    Endless,
}

#[derive(Debug)]
struct Custom {
    behaviour: Behaviour,
    /// Number of samples that all objects have produced.
    produced: Arc<AtomicUsize>,
    /// Number of requests.
    requests: Arc<AtomicUsize>,
}

impl Source for Custom {
    fn get(&self, _: &str, _: GetOptions) -> BoxFuture<'static, Result<GetResponse>> {
        self.requests.fetch_add(1, Ordering::SeqCst);
        let produced = Arc::clone(&self.produced);
        let samples = stream::iter(0..).map(move |i| {
            produced.fetch_add(1, Ordering::SeqCst);
            let mut bytes = archive(&[Sample::new(format!("{i:06}")).with("cls", i)]);
            bytes.truncate(1024); // one header and one body, without the end of an archive
            Ok(Bytes::from(bytes))
        });
        let body = match self.behaviour {
            Behaviour::Silent => return future::pending().boxed(),
            Behaviour::StallsAfter(count) => {
                // Like the samples, the stalled body holds a reference to the counter until the body is
                // dropped.
                let held = Arc::clone(&self.produced);
                let stall = stream::pending().inspect(move |_| drop(Arc::clone(&held)));
                samples.take(count).chain(stall).boxed()
            }
            Behaviour::Endless => samples.boxed(),
        };
        future::ready(Ok(GetResponse::new(body))).boxed()
    }
}

/// A dataset of two streams over a [`Custom`] source, and the number of samples that the source has produced.
fn custom(behaviour: Behaviour) -> (Dataset, Arc<AtomicUsize>) {
    let (produced, requests) = <(Arc<AtomicUsize>, Arc<AtomicUsize>)>::default();
    let source = Custom { behaviour, produced: Arc::clone(&produced), requests };
    (dataset_of(Store::builder(), source), produced)
}

fn dataset_of(store: StoreBuilder, source: Custom) -> Dataset {
    let store = store.with_source("test://", Arc::new(source)).build().unwrap();
    let dataset = Dataset::builder("test://a/{0..1}.tar").store(store).topology(Topology::single());
    dataset.streams(2).build().unwrap()
}

/// Drops a loader's iterator before its first batch and after some batches. Does the same with the
/// asynchronous stream, and also drops the stream while it waits for a batch.
fn drop_at_any_point(dataset: &Dataset, batches: &[usize]) {
    let alive = Arc::new(());
    let start = || -> Batches<Batch<Sample>> {
        let captured = Arc::clone(&alive);
        let items = Loader::builder(dataset.clone()).shuffle(3).threads(3).map(move |sample| {
            let _ = &captured;
            Ok(sample)
        });
        items.batch(4).prefetch(2).build().unwrap().epoch(0)
    };
    let ended = |moment: &str| {
        assert_eq!(Arc::strong_count(&alive), 1, "{moment}: what the threads held is dropped");
        assert_no_threads();
    };
    drop(start());
    drop(start().into_stream());
    ended("never started");
    for &count in batches {
        assert_eq!(start().take(count).map(Result::unwrap).count(), count);
        ended("some batches");
        let taken = start().into_stream().take(count).map(Result::unwrap).count();
        assert_eq!(futures::executor::block_on(taken), count);
        ended("some batches of the stream");
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async { assert_eq!(start().into_stream().take(count).count().await, count) });
        ended("some batches of the stream in tokio");
    }
    // The stream is polled once and dropped while it still waits for a batch.
    let mut stream = start().into_stream();
    let _ = stream.next().now_or_never();
    thread::sleep(Duration::from_millis(20));
    drop(stream);
    ended("while polled");
}

#[test]
fn dropping_ends_all_threads() {
    watched(|| {
        drop_at_any_point(&dataset(&[30, 2, 0, 40, 25]).streams(5).build().unwrap(), &[0, 1, 2, 10, 25]);
        drop_at_any_point(&custom(Behaviour::Endless).0, &[0, 1, 7, 50]);
    });
}

#[test]
fn dropping_ends_reads_blocked_forever() {
    watched(|| {
        drop_at_any_point(&custom(Behaviour::Silent).0, &[0]);
        // At most two batches can be taken before the stall: the parser holds the last sample back until it
        // sees the next member, and the shuffle buffer and the current chunk hold other samples.
        drop_at_any_point(&custom(Behaviour::StallsAfter(3 * CHUNK)).0, &[0, 1, 2]);
    });
}

/// Drops the result of `make` while its threads wait for a source that stalls before or after its first
/// bytes.
fn drop_while_silent<S: Stream + Unpin>(what: &str, make: impl Fn(Dataset, Arc<()>) -> S) {
    let home = tempfile::tempdir().unwrap();
    for behaviour in [Behaviour::Silent, Behaviour::StallsAfter(3)] {
        for (cached, wait) in [(false, 0), (false, 30), (true, 30)] {
            let (produced, requests) = <(Arc<AtomicUsize>, Arc<AtomicUsize>)>::default();
            let source = Custom { behaviour, produced, requests: Arc::clone(&requests) };
            let store = match cached {
                true => Store::builder().cache(Cache::builder(home.path()).build().unwrap()),
                false => Store::builder(),
            };
            let alive = Arc::new(());
            let mut made = make(dataset_of(store, source), Arc::clone(&alive));
            // Starts the threads.
            while matches!(made.next().now_or_never(), Some(Some(_))) {}
            while requests.load(Ordering::SeqCst) == 0 {
                thread::yield_now();
            }
            thread::sleep(Duration::from_millis(wait));
            drop(made);
            assert_eq!(Arc::strong_count(&alive), 1, "{what}: what the threads held is dropped");
            assert_no_threads();
        }
    }
}

/// Covers every public type that has threads of its own, each with every stage that may wait for bytes.
#[test]
fn dropping_ends_every_stage_waiting_for_a_silent_source() {
    /// A function that returns items unchanged, and holds a reference to `alive`.
    fn held<T>(alive: Arc<()>) -> impl Fn(T) -> Result<T> + Send + Sync + 'static {
        move |item| {
            let _ = &alive;
            Ok(item)
        }
    }
    let loader = |dataset, alive, threads| {
        Loader::builder(dataset).shuffle(3).threads(threads).map(held(alive)).batch(2).build().unwrap()
    };
    watched(move || {
        drop_while_silent("prefetch", |dataset, alive| {
            dataset.samples(0).map(held(alive)).prefetch(2).into_stream()
        });
        drop_while_silent("par_map", |dataset, alive| {
            dataset.samples(0).par_map(3, held(alive)).into_stream()
        });
        drop_while_silent("threads of threads", |dataset, alive| {
            let samples = dataset.samples(0).prefetch(1).par_map(2, Ok).batch(2).prefetch(1);
            samples.par_map(2, held(alive)).into_stream()
        });
        drop_while_silent("a stream", |dataset, alive| {
            let samples = futures::executor::block_on_stream(dataset.stream(0));
            samples.pipeline().map(held(alive)).prefetch(1).into_stream()
        });
        drop_while_silent("ignored errors", |dataset, alive| {
            let samples = dataset.samples(0).results().filter_map(Result::ok).filter(|_| false).map(Ok);
            samples.pipeline().prefetch(1).par_map(2, held(alive)).into_stream()
        });
        for threads in [0, 2] {
            drop_while_silent("batches", |dataset, alive| {
                loader(dataset, alive, threads).epoch(0).into_stream()
            });
            drop_while_silent("batches on a thread", |dataset, alive| {
                loader(dataset, alive, threads).epochs(0).pipeline().prefetch(1).into_stream()
            });
            drop_while_silent("a stream of batches that a thread polls", |dataset, alive| {
                let batches = loader(dataset, alive, threads).epochs(0).into_stream();
                futures::executor::block_on_stream(batches).pipeline().prefetch(1).into_stream()
            });
            drop_while_silent("batches with ignored errors", |dataset, alive| {
                let batches = loader(dataset, alive, threads).epochs(0);
                batches.filter_map(Result::ok).filter(|_| false).map(Ok).pipeline().prefetch(1).into_stream()
            });
            drop_while_silent("a feed", |dataset, alive| {
                Feed::new(loader(dataset, alive, threads).epoch(0), Ok).into_stream()
            });
            drop_while_silent("a feed of tensors", |dataset, alive| {
                let columns = Columns::new().with("label", Scalar::<i64>::new("cls"));
                let batches = Loader::builder(dataset)
                    .threads(threads)
                    .batch(2)
                    .collate(columns)
                    .build()
                    .unwrap()
                    .epoch(0);
                Feed::new(batches, held(alive)).into_stream()
            });
        }
        drop_while_silent("a feed of samples", |dataset, alive| {
            Feed::new(dataset.samples(0), held(alive)).into_stream()
        });
    });
}

/// The source is endless and every sample is skipped, so that threads never wait.
#[test]
fn dropping_ends_stages_that_skip_every_sample() {
    fn nothing(items: LoaderBuilder<Sample>, stage: usize) -> LoaderBuilder<Sample> {
        match stage {
            0 => items.filter(|_| false),
            1 => items.filter_map(|_| Ok(None)),
            2 => items.flat_map(|_| Ok([])),
            3 => items
                .map(|_| Err(Error::step("no")))
                .on_error(OnError::skip(Failures::all()).in_a_row(u64::MAX)),
            _ => {
                let rows = items.map(|_| Ok(vec![1])).chunked(usize::MAX, None);
                rows.map(|_| Ok(Sample::new("row")))
            }
        }
    }
    watched(|| {
        for (stage, threads) in (0..5).flat_map(|stage| [0, 1, 3].map(|threads| (stage, threads))) {
            let (dataset, produced) = custom(Behaviour::Endless);
            let items = nothing(Loader::builder(dataset).threads(threads), stage);
            let mut batches = items.batch(4).build().unwrap().epochs(0).into_stream();
            assert!(batches.next().now_or_never().is_none());
            while produced.load(Ordering::SeqCst) < 2000 && stage < 4 {
                thread::yield_now();
            }
            drop(batches);
            assert_no_threads();
        }
    });
}

/// A stream that has read all its samples waits until the loader decides whether the streams repeat them.
#[test]
fn dropping_ends_streams_that_may_start_another_pass() {
    watched(|| {
        for (threads, taken) in
            [0, 2].into_iter().flat_map(|threads| [0, 1, 4, 9].map(|taken| (threads, taken)))
        {
            let half = |sample: Sample| {
                let odd = sample.key().ends_with(['1', '3', '5', '7', '9']);
                if odd { Err(Error::step("odd")) } else { Ok(sample) }
            };
            let entry = |n: usize| serde_json::json!({"url": url(n), "nsamples": 40});
            let index = serde_json::json!({"wids_version": 1, "shardlist": [entry(0), entry(1)]});
            let index = Index::from_json(index.to_string().as_bytes(), "").unwrap();
            let dataset = dataset(&[40, 40]).streams(2).index(index).build().unwrap();
            let items = Loader::builder(dataset).threads(threads).map(half).last_batch(LastBatch::Drop);
            let mut batches = items.batch(8).build().unwrap().epoch(0);
            assert_eq!(batches.by_ref().filter_map(Result::ok).take(taken).count(), taken);
            thread::sleep(Duration::from_millis(20));
            drop(batches);
            assert_no_threads();
        }
    });
}

/// Drops a feed while it holds samples. The feed then uploads no further batch.
#[test]
fn a_dropped_feed_uploads_nothing() {
    watched(|| {
        let (dataset, _) = custom(Behaviour::StallsAfter(5));
        let uploaded = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&uploaded);
        let mut feed = Feed::new(dataset.samples(0).batch(7), move |batch| {
            counter.fetch_add(1, Ordering::SeqCst);
            Ok(batch)
        });
        assert_eq!(feed.next().unwrap().unwrap().len(), 7);
        // The two streams have 5 samples each. After the batch of 7, the last 3 samples are too few for
        // another batch.
        let before = wait_until_stable(&uploaded);
        drop(feed);
        assert_eq!(uploaded.load(Ordering::SeqCst), before, "a dropped feed uploads no further batch");
        assert_no_threads();
    });
}

#[test]
fn a_blocked_consumer_wakes_when_the_batches_end() {
    watched(|| {
        let two_streams = dataset(&[40, 40]).streams(2).build().unwrap();
        let loader = Loader::builder(two_streams).threads(2).batch(9).build().unwrap();
        let reader = thread::spawn(move || loader.epoch(0).map(|batch| batch.unwrap().len()).sum::<usize>());
        assert_eq!(reader.join().unwrap(), 80);
        assert_no_threads();
    });
}

#[test]
fn dropping_waits_only_for_calls_in_progress() {
    watched(|| {
        let (dataset, produced) = custom(Behaviour::StallsAfter(2 * CHUNK));
        let (begun, begins) = mpsc::channel();
        let gate = Arc::new(RwLock::new(()));
        let closed = gate.write().unwrap();
        let passed = Arc::clone(&gate);
        let items = Loader::builder(dataset).threads(2).map(move |sample| {
            let _ = begun.send(());
            drop(passed.read().unwrap());
            Ok(sample)
        });
        let mut stream = items.batch(10 * CHUNK).build().unwrap().epoch(0).into_stream();
        assert!(stream.next().now_or_never().is_none());
        for _ in 0..2 {
            begins.recv().unwrap();
        }
        let dropping = thread::spawn(move || drop(stream));
        // Once the readers have stopped, only the source and this test hold the counter.
        while Arc::strong_count(&produced) > 2 {
            thread::yield_now();
        }
        drop(closed);
        dropping.join().unwrap();
        assert_eq!(begins.iter().count(), 0, "samples were mapped after the drop");
    });
}

/// Waits until a counter stops changing, and returns it.
fn wait_until_stable(counter: &AtomicUsize) -> usize {
    let mut seen = counter.load(Ordering::SeqCst);
    loop {
        thread::sleep(Duration::from_millis(200));
        match counter.load(Ordering::SeqCst) {
            now if now == seen => return now,
            now => seen = now,
        }
    }
}

#[test]
fn an_idle_consumer_stops_the_readers() {
    const STREAMS: usize = 2;
    const THREADS: usize = 3;
    watched(|| {
        for (shuffle, batch, prefetch) in [(0, 4, 1), (100, 4, 2), (0, 50, 4)] {
            let (dataset, produced) = custom(Behaviour::Endless);
            let mapped = Arc::new(AtomicUsize::new(0));
            let counter = Arc::clone(&mapped);
            let items = Loader::builder(dataset).shuffle(shuffle).threads(THREADS).map(move |sample| {
                counter.fetch_add(1, Ordering::SeqCst);
                Ok(sample)
            });
            let mut batches = items.batch(batch).prefetch(prefetch).build().unwrap().epoch(0);
            assert_eq!(wait_until_stable(&produced), 0, "nothing is read before the first call");
            for taken in 1..=3 {
                batches.next().unwrap().unwrap();
                // The samples in batches: in returned batches, in prefetched batches, and in the batch that
                // is being built.
                let batched = (taken + prefetch + 1) * batch;
                // The samples in chunks: the chunk that is being batched, the chunks in the queue, and one
                // chunk in each thread.
                let in_map = batched + (1 + 2 * THREADS + THREADS) * CHUNK;
                // Per stream: the current chunk, two chunks that were read ahead, and the chunk being filled;
                // the samples of the shuffle buffer; and the pieces of the body that are in transit, with
                // one sample in each.
                let in_streams = in_map + STREAMS * (4 * CHUNK + shuffle + 32);
                let (produced, mapped) = (wait_until_stable(&produced), mapped.load(Ordering::SeqCst));
                assert!((taken * batch..=in_map).contains(&mapped), "{mapped} mapped, at most {in_map}");
                assert!((mapped..=in_streams).contains(&produced), "{produced} read, at most {in_streams}");
            }
            drop(batches);
            assert_no_threads();
        }
    });
}

#[test]
fn epochs_leave_no_threads() {
    watched(|| {
        let dataset = dataset(&[10, 10]).streams(2).build().unwrap();
        let items = Loader::builder(dataset).threads(2);
        let mut epochs = items.clone().batch(6).build().unwrap().epochs(0);
        assert_eq!(epochs.by_ref().take(30).map(Result::unwrap).count(), 30);
        drop(epochs);
        assert_no_threads();
        let failing = items.map(|_| Err::<(), _>(Error::step("no"))).batch(6).build().unwrap();
        assert!(failing.epoch(0).next().unwrap().is_err());
        assert_no_threads();
    });
}

/// A source that counts the threads of the process whenever a shard is requested.
#[derive(Debug)]
struct CountingThreads {
    shards: Arc<VersionedSource>,
    most: AtomicUsize,
}

impl Source for CountingThreads {
    fn get(&self, url: &str, options: GetOptions) -> BoxFuture<'static, Result<GetResponse>> {
        self.most.fetch_max(threads().len(), Ordering::SeqCst);
        self.shards.get(url, options)
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_restore_of_many_streams_starts_few_threads() {
    const STREAMS: usize = 500;
    watched(|| {
        let source = |shards| Arc::new(CountingThreads { shards, most: AtomicUsize::new(0) });
        let source = source(VersionedSource::of(&[8; STREAMS]));
        let store = Store::builder().with_source("shelf", Arc::clone(&source) as _).build().unwrap();
        let list = ShardList::from_urls((0..STREAMS).map(versioned_source::url));
        let dataset = Dataset::builder(list).store(store).topology(Topology::single()).streams(STREAMS);
        let loader = Loader::builder(dataset.build().unwrap()).shuffle(4).threads(2).batch(STREAMS);
        let loader = loader.build().unwrap();
        let state = loader.epoch(0).nth(1).unwrap().unwrap().state().unwrap().clone();
        assert_no_threads();
        source.most.store(0, Ordering::SeqCst);
        let mut restored = loader.restore(&state).unwrap();
        assert_eq!(restored.next().unwrap().unwrap().len(), STREAMS);
        // Two threads that map, one thread that collects batches, one thread that samples the activity of the
        // threads, and 16 threads that resume streams.
        let most = source.most.load(Ordering::SeqCst);
        assert!((4..=20).contains(&most), "{most} threads");
        drop(restored);
        assert_no_threads();
    });
}
