//! Reports during and after a run. They name the stage that limits the run, and what its threads wait for.

use crate::support::archive;
use crate::support::shards::{dataset, memory, url, write};
use shardstream::adapters::Stage;
use shardstream::loader::{Diagnosis, Limit, LoaderBuilder};
use shardstream::prelude::*;
use shardstream::store::{GetOptions, GetResponse, Source};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

const PAUSE: Duration = Duration::from_millis(5);
const SIZES: [usize; 8] = [40; 8];

fn small() -> LoaderBuilder<Sample> {
    Loader::builder(dataset(&SIZES).streams(4).build().unwrap()).batch(10)
}

/// Writes shards of small samples into a directory, and returns it with the pattern.
fn files(shards: usize) -> (tempfile::TempDir, String) {
    let directory = tempfile::tempdir().unwrap();
    for shard in 0..shards {
        let samples: Vec<_> = (0..40).map(|n| Sample::new(format!("{shard}{n:04}")).with("cls", 7)).collect();
        std::fs::write(directory.path().join(format!("{shard}.tar")), archive(&samples)).unwrap();
    }
    let pattern = format!("{}/{{0..{}}}.tar", directory.path().display(), shards - 1);
    (directory, pattern)
}

#[test]
fn a_slow_map_on_local_files_is_named() {
    let (_directory, pattern) = files(8);
    for threads in [0, 2] {
        let dataset = Dataset::builder(pattern.as_str()).streams(4).build().unwrap();
        let slow = |sample: Sample| {
            thread::sleep(PAUSE);
            Ok(sample.key().to_owned())
        };
        let loader = Loader::builder(dataset).map(slow).threads(threads).batch(10).build().unwrap();
        let batches = loader.epoch(0);
        let reporter = batches.reporter();
        for batch in batches {
            batch.unwrap();
        }
        let report = reporter.report();
        assert_eq!(report.limit(), Limit::Map, "{threads} threads: {report}");
        assert_eq!((report.items, report.batches), (320, 32));
        assert!(report.times.map > report.elapsed.mul_f64(0.5), "{report}");
        assert_eq!(report.times.threads, threads);
        assert!(report.store.files.bytes > 0 && report.store.files.opened == 8, "{report}");
        let again = reporter.report();
        assert_eq!(again.elapsed, report.elapsed, "the run has ended");
    }
}

/// Neither the wait for the first batch nor a pause of the trainer counts as a wait for later batches.
#[test]
fn a_slow_trainer_is_named() {
    let slow_at_first = |sample: Sample| {
        if sample.position().shard == 0 && sample.position().sample == 0 {
            thread::sleep(100 * PAUSE);
        }
        Ok(sample)
    };
    let batches = small().threads(1).map(slow_at_first).build().unwrap().epoch(0);
    let reporter = batches.reporter();
    for (number, batch) in batches.enumerate() {
        batch.unwrap();
        thread::sleep(if number == 20 { 300 * PAUSE } else { 10 * PAUSE });
    }
    let report = reporter.report();
    assert_eq!(report.limit(), Limit::Trainer, "{report}");
    assert!(report.readiness() > 0.8 && report.first >= 100 * PAUSE, "{report}");
    assert!(report.rested >= 200 * PAUSE && report.rested < 310 * PAUSE, "{:?}", report.rested);
    assert!(report.times.await_trainer > report.times.collect, "{report:?}");
}

#[test]
fn a_slow_filter_is_named() {
    let slow = |_: &Sample| {
        thread::sleep(PAUSE);
        true
    };
    let run = |streams, threads| {
        let dataset = dataset(&SIZES).streams(streams).build().unwrap();
        let loader = Loader::builder(dataset).filter(slow).threads(threads).batch(10).build().unwrap();
        let mut batches = loader.epoch(0);
        assert_eq!(batches.by_ref().map(|batch| batch.unwrap().len()).sum::<usize>(), 320);
        batches.report()
    };
    let report = run(4, 2);
    assert_eq!(report.limit(), Limit::Filter, "{report}");
    // Only one thread at a time can read a stream.
    let report = run(1, 4);
    assert_eq!(report.limit(), Limit::Streams, "{report}");
}

/// A source of objects in memory, whose bytes arrive after a pause or never.
#[derive(Debug)]
struct Slow {
    store: Store,
    pause: Duration,
    /// The object whose responses wait, and the lock that they wait for.
    silent: Option<(String, Arc<Mutex<()>>)>,
}

impl Source for Slow {
    fn get(
        &self,
        url: &str,
        options: GetOptions,
    ) -> futures::future::BoxFuture<'static, shardstream::Result<GetResponse>> {
        let (store, pause, url) = (self.store.clone(), self.pause, url.replace("slow:", "mem:"));
        let silent =
            self.silent.as_ref().filter(|(silent, _)| *silent == url).map(|(_, lock)| Arc::clone(lock));
        Box::pin(async move {
            tokio::task::spawn_blocking(move || {
                thread::sleep(pause);
                drop(silent.as_ref().map(|lock| lock.lock().unwrap()));
                let all = store.open(&url)?.read_all()?;
                let size = all.len() as u64;
                let range = options.range.unwrap_or(0..size);
                let range = range.start.min(size)..range.end.min(size);
                let part = all.slice(range.start as usize..range.end as usize);
                let body = futures::stream::iter([Ok(part)]);
                let mut response = GetResponse::new(Box::pin(body)).with_size(size);
                response.version = Some("1".into());
                response.range = Some(range);
                Ok(response)
            })
            .await
            .unwrap()
        })
    }
}

fn slow_store(pause: Duration, silent: Option<(String, Arc<Mutex<()>>)>) -> (Store, Vec<String>) {
    let store = memory();
    write(&store, &SIZES);
    let urls = (0..SIZES.len()).map(|shard| url(shard).replace("mem:", "slow:")).collect();
    let source = Slow { store, pause, silent };
    (Store::builder().with_source("slow:", Arc::new(source)).build().unwrap(), urls)
}

#[test]
fn a_slow_network_is_named() {
    let (store, urls) = slow_store(Duration::from_millis(300), None);
    let dataset = Dataset::builder(ShardList::from_urls(urls)).streams(2).store(store).build().unwrap();
    let mut batches = Loader::builder(dataset).threads(2).batch(10).build().unwrap().epoch(0);
    batches.by_ref().for_each(|batch| drop(batch.unwrap()));
    let report = batches.report();
    assert_eq!(report.limit(), Limit::Network, "{report}");
    assert!(report.times.await_bytes > report.elapsed, "{report:?}");
}

/// The first warning that contains this text. On a busy machine, warnings without this text may come first.
fn stall_with(stalls: &Receiver<Diagnosis>, part: &str) -> Diagnosis {
    loop {
        let stall =
            stalls.recv_timeout(Duration::from_secs(20)).unwrap_or_else(|_| panic!("no stall with {part}"));
        if stall.to_string().lines().next().unwrap().contains(part) {
            return stall;
        }
        eprintln!("another stall: {stall}");
    }
}

fn warned(builder: LoaderBuilder<Sample>) -> (LoaderBuilder<Sample>, Receiver<Diagnosis>) {
    let (sender, receiver) = channel();
    let sender = Mutex::new(sender);
    let tell = move |stall: &Diagnosis| drop(sender.lock().unwrap().send(stall.clone()));
    (builder.stall_after(Duration::from_millis(500)).on_stall(tell), receiver)
}

#[test]
fn a_request_without_a_response_is_named() {
    for threads in [0, 2] {
        let lock = Arc::new(Mutex::new(()));
        let held = lock.lock().unwrap();
        let silent = Some((url(1), Arc::clone(&lock)));
        let (store, urls) = slow_store(Duration::ZERO, silent);
        let dataset = Dataset::builder(ShardList::from_urls(urls)).streams(2).store(store).build().unwrap();
        let (builder, stalls) = warned(Loader::builder(dataset).threads(threads).batch(20));
        let batches = builder.build().unwrap().epoch(0);
        let reporter = batches.reporter();
        let trainer = thread::spawn(move || batches.map(|batch| batch.unwrap().len()).sum::<usize>());
        let shard = url(1).replace("mem:", "slow:");
        let stall = stall_with(&stalls, &shard);
        let text = stall.to_string();
        assert!(stall.waited >= Some(Duration::from_millis(500)));
        for part in ["no batch for ", "stream 1", &*format!("shard {shard}"), "bytes 0-", "no response yet"] {
            assert!(text.contains(part), "{threads} threads: no `{part}` in: {text}");
        }
        // A report while the threads wait.
        let report = reporter.report();
        assert!(report.waited >= Duration::from_millis(500) && report.waited <= report.elapsed, "{report}");
        assert_eq!(report.limit(), Limit::Network, "{report}");
        assert!(reporter.diagnose().to_string().contains(&shard));
        // Each wait is reported once.
        assert!(stalls.recv_timeout(Duration::from_millis(800)).is_err());
        drop(held);
        assert_eq!(trainer.join().unwrap(), 320);
        assert_eq!(reporter.diagnose().waited, None);
    }
}

#[test]
fn a_hanging_map_is_named_with_its_sample() {
    for threads in [0, 3] {
        let lock = Arc::new(Mutex::new(()));
        let held = lock.lock().unwrap();
        let waits = Arc::clone(&lock);
        let builder = Loader::builder(dataset(&SIZES).streams(2).build().unwrap()).threads(threads).batch(20);
        let hangs = move |sample: Sample| {
            if (sample.position().shard, sample.position().sample) == (3, 7) {
                drop(waits.lock().unwrap());
            }
            Ok(sample)
        };
        let (builder, stalls) = warned(builder.map(hangs));
        let batches = builder.build().unwrap().epoch(0);
        let trainer = thread::spawn(move || batches.map(|batch| batch.unwrap().len()).sum::<usize>());
        let text = stall_with(&stalls, "sample 7 of shard 3").to_string();
        for part in ["mapping a sample", "stream 1"] {
            assert!(text.lines().next().unwrap().contains(part), "{threads} threads: no `{part}` in: {text}");
        }
        drop(held);
        assert_eq!(trainer.join().unwrap(), 320);
    }
}

/// A stage that hangs or is slow at one sample.
struct Hangs(Arc<Mutex<()>>);

impl Stage<Sample> for Hangs {
    type Out = Sample;

    fn push(&mut self, sample: Sample) -> Option<shardstream::Result<Sample>> {
        if (sample.position().shard, sample.position().sample) == (3, 7) {
            drop(self.0.lock().unwrap());
        }
        Some(Ok(sample))
    }
}

/// Stateful stages, and functions after them, run on the thread that collects batches.
#[test]
fn a_hanging_stage_is_named_with_its_sample() {
    for (threads, behind) in [(0, false), (3, false), (2, true)] {
        let lock = Arc::new(Mutex::new(()));
        let held = lock.lock().unwrap();
        let waits = Arc::clone(&lock);
        let builder = Loader::builder(dataset(&SIZES).streams(2).build().unwrap()).threads(threads).batch(20);
        let (builder, stalls) = warned(builder);
        let stage_lock = if behind { Arc::default() } else { Arc::clone(&lock) };
        let builder = builder.stage("hangs", move || Hangs(Arc::clone(&stage_lock))).map(move |sample| {
            if behind && (sample.position().shard, sample.position().sample) == (3, 7) {
                drop(waits.lock().unwrap());
            }
            Ok(sample)
        });
        let batches = builder.build().unwrap().epoch(0);
        let reporter = batches.reporter();
        let trainer = thread::spawn(move || batches.map(|batch| batch.unwrap().len()).sum::<usize>());
        let text = stall_with(&stalls, "sample 7 of shard 3").to_string();
        for part in ["running a stage", "stream 1"] {
            assert!(text.lines().next().unwrap().contains(part), "{threads} threads: no `{part}` in: {text}");
        }
        let report = reporter.report();
        assert_eq!(report.limit(), Limit::Stage, "{report}");
        assert!(!report.limit().advice().contains("collate"));
        drop(held);
        assert_eq!(trainer.join().unwrap(), 320);
    }
}

#[test]
fn a_short_wait_is_no_stall() {
    let (builder, stalls) = warned(small().threads(1));
    let begun = Instant::now();
    let count = builder.build().unwrap().epoch(0).count();
    assert_eq!(count, 32);
    if begun.elapsed() < Duration::from_millis(500) {
        assert!(stalls.try_recv().is_err());
    }
}

#[test]
fn a_report_serializes_to_a_document() {
    let mut batches = small().threads(1).build().unwrap().epoch(0);
    batches.by_ref().for_each(|batch| drop(batch.unwrap()));
    let report = batches.report();
    let document: serde_json::Value = serde_json::from_str(&report.to_json()).unwrap();
    assert_eq!((&document["items"], &document["batches"]), (&320.into(), &32.into()));
    for key in
        ["limit", "advice", "readiness", "rate", "waited", "times", "queues", "store", "memory", "ledger"]
    {
        assert!(!document[key].is_null(), "{key} in {document}");
    }
    let later = batches.report().since(&report);
    assert_eq!((later.items, later.batches, later.waited), (0, 0, Duration::ZERO));
}

#[test]
fn an_index_gives_the_number_of_remaining_batches() {
    let store = memory();
    let shards = write(&store, &SIZES);
    let index = Index::builder().store(store.clone()).build(&shards).unwrap();
    let dataset = Dataset::builder(shards).index(index).store(store).streams(4).build().unwrap();
    for threads in [0, 1] {
        let loader = Loader::builder(dataset.clone()).threads(threads).batch(10).build().unwrap();
        let mut batches = loader.epoch(0);
        assert_eq!(batches.steps_left(), Some(32));
        let state = batches.nth(9).unwrap().unwrap().state().unwrap().clone();
        assert_eq!(batches.steps_left(), Some(22));
        assert_eq!(batches.by_ref().count(), 22);
        assert_eq!((batches.steps_left(), batches.size_hint()), (Some(0), (0, Some(0))));
        assert_eq!(loader.restore(&state).unwrap().steps_left(), Some(22));
        // 100 of 320 items were taken before the state was saved.
        let larger = Loader::builder(dataset.clone()).threads(threads).batch(20).build().unwrap();
        let restored = larger.restore(&state).unwrap();
        assert_eq!((restored.steps_left(), restored.count()), (Some(11), 11));
        assert_eq!(loader.epochs(0).steps_left(), None);
    }
    assert_eq!(small().build().unwrap().epoch(0).steps_left(), None);
}

/// Named pipes that are filled slowly take the place of a slow disk.
#[cfg(unix)]
#[test]
fn slow_files_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let body = vec![7; 100_000];
    let mut writers = Vec::new();
    for shard in 0..2 {
        let samples: Vec<_> =
            (0..20).map(|n| Sample::new(format!("{shard}{n:04}")).with("bin", body.clone())).collect();
        let path = directory.path().join(format!("{shard}.pipe"));
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        writers.push(thread::spawn(move || {
            let (bytes, mut pipe) = (archive(&samples), std::fs::File::create(path).unwrap());
            for part in bytes.chunks(64 << 10) {
                thread::sleep(4 * PAUSE);
                std::io::Write::write_all(&mut pipe, part).unwrap();
            }
        }));
    }
    let pattern = format!("{}/{{0..1}}.pipe", directory.path().display());
    let dataset = Dataset::builder(pattern).streams(2).build().unwrap();
    let mut batches = Loader::builder(dataset).threads(2).batch(5).build().unwrap().epoch(0);
    assert_eq!(batches.by_ref().map(|batch| batch.unwrap().len()).sum::<usize>(), 40);
    let report = batches.report();
    assert_eq!(report.limit(), Limit::Files, "{report}");
    assert!(report.store.files.bytes > 4_000_000 && report.store.total().requests == 0, "{report}");
    writers.into_iter().for_each(|writer| writer.join().unwrap());
}

/// A restore reads the samples of the shuffle buffer again, here from a slow source.
#[test]
fn a_slow_restore_is_named() {
    let loader = |pause| {
        let (store, urls) = slow_store(pause, None);
        let dataset = Dataset::builder(ShardList::from_urls(urls)).streams(1).store(store).build().unwrap();
        Loader::builder(dataset).shuffle(200).threads(2).batch(10)
    };
    let mut batches = loader(Duration::ZERO).build().unwrap().epoch(0);
    let expected = batches.nth(9).unwrap().unwrap();
    let state = batches.nth(4).unwrap().unwrap().state().unwrap().clone();
    assert_eq!(expected.len(), 10);
    let (builder, stalls) = warned(loader(Duration::from_secs(1)));
    let mut batches = builder.build().unwrap().restore(&state).unwrap();
    let reporter = batches.reporter();
    assert_eq!(batches.next().unwrap().unwrap().len(), 10);
    let stall = stall_with(&stalls, "no response yet");
    assert!(stall.to_string().contains("shardstream-resume-0: waiting for bytes"), "{stall}");
    let report = reporter.report();
    assert_eq!(report.limit(), Limit::Network, "{report}");
}

/// A restore reads with at most 16 threads, even if the loader has more streams.
#[test]
fn a_restore_starts_few_threads() {
    let sizes = [4; 60];
    let store = memory();
    write(&store, &sizes);
    let urls = (0..sizes.len()).map(|shard| url(shard).replace("mem:", "slow:"));
    let source = Slow { store, pause: PAUSE, silent: None };
    let store = Store::builder().with_source("slow:", Arc::new(source)).build().unwrap();
    let dataset = Dataset::builder(ShardList::from_urls(urls)).streams(sizes.len()).store(store);
    let loader = Loader::builder(dataset.build().unwrap()).shuffle(3).threads(2).batch(60).build().unwrap();
    let mut batches = loader.epoch(0);
    let state = batches.next().unwrap().unwrap().state().unwrap().clone();
    let expected: Vec<usize> = batches.map(|batch| batch.unwrap().len()).collect();
    let batches = loader.restore(&state).unwrap();
    let reporter = batches.reporter();
    let trainer = thread::spawn(move || batches.map(|batch| batch.unwrap().len()).collect::<Vec<_>>());
    let mut most = 0;
    while !trainer.is_finished() {
        let diagnosis = serde_json::to_value(reporter.diagnose()).unwrap();
        let threads = diagnosis["threads"].as_array().unwrap().iter();
        let names = threads.map(|thread| thread["name"].as_str().unwrap());
        most = most.max(names.filter(|name| name.contains("-resume-")).count());
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(trainer.join().unwrap(), expected);
    assert!((1..=16).contains(&most), "{most} threads");
}

/// An asynchronous stream that is not polled while a batch is ready does not count as waiting.
#[test]
fn an_unpolled_stream_does_not_count_as_waiting() {
    let (builder, stalls) = warned(small().threads(1));
    let mut batches = builder.build().unwrap().epoch(0).into_stream();
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let _ = futures::StreamExt::poll_next_unpin(&mut batches, &mut context);
    assert!(stalls.recv_timeout(Duration::from_secs(1)).is_err());
    let report = batches.get_ref().report();
    assert!(report.waited < Duration::from_millis(800), "{report}");
    let rest = futures::executor::block_on(futures::StreamExt::count(batches));
    assert!((31..=32).contains(&rest), "{rest}");
}
