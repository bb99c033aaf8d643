//! The requests of a restore. The samples of the shuffle buffer are scattered over many shards, and are
//! requested together.

use crate::support::archive;
use crate::support::server::{Reply, Request, Server};
use shardstream::loader::Batches;
use shardstream::prelude::*;
use shardstream::store::{Budget, StoreBuilder};
use shardstream::{Index, Result, State};
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

const SHARDS: usize = 40;
/// Number of samples per shard, and the bytes of each.
const SAMPLES: usize = 3;
const SIZE: usize = 20_000;
/// Number of samples in the shuffle buffer.
const BUFFER: usize = 9;

/// A time limit that also suffices on a machine under load.
const LONG: Duration = Duration::from_secs(60);

fn path(shard: usize) -> String {
    format!("/{shard:03}.tar")
}

fn bytes(shard: usize) -> Vec<u8> {
    let sample = |number| {
        let key = format!("{shard:03}-{number}");
        let content = format!("{key} ").repeat(SIZE / key.len());
        Sample::new(key).with("txt", content.into_bytes())
    };
    archive(&(0..SAMPLES).map(sample).collect::<Vec<_>>())
}

/// The requests that have no response yet, and the number of requests that must wait before any request is
/// answered.
#[derive(Default)]
struct Held {
    /// The current and the largest number of requests without a response.
    under_way: usize,
    most: usize,
    /// Once this number of requests wait, the waiting requests and all later requests are answered.
    wanted: usize,
    /// Whether the server withheld a response for `LONG`, because fewer than `wanted` requests arrived.
    is_late: bool,
    /// While this is true, the server answers no request.
    closed: bool,
    requests: Vec<(String, Option<(usize, usize)>)>,
}

/// A server of shards, which can withhold its responses and can fail.
struct Shelf {
    shards: usize,
    server: Server,
    held: Arc<(Mutex<Held>, Condvar)>,
}

impl Shelf {
    /// A server whose `script` may replace the response to a request.
    fn new(script: impl Fn(&Request) -> Option<Reply> + Send + Sync + 'static) -> Self {
        Self::of(SHARDS, script)
    }

    fn of(count: usize, script: impl Fn(&Request) -> Option<Reply> + Send + Sync + 'static) -> Self {
        let shards: HashMap<String, Vec<u8>> = (0..count).map(|shard| (path(shard), bytes(shard))).collect();
        let held = Arc::new((Mutex::new(Held::default()), Condvar::new()));
        let shared = Arc::clone(&held);
        let server = Server::start(move |request| {
            let (held, changed) = &*shared;
            let mut held = held.lock().unwrap();
            held.requests.push((request.path().to_owned(), request.range()));
            held.under_way += 1;
            held.most = held.most.max(held.under_way);
            if held.under_way >= held.wanted {
                held.wanted = 0;
            }
            changed.notify_all();
            let waits = |held: &mut Held| held.closed || held.wanted > 0;
            let (mut held, waited) = changed.wait_timeout_while(held, LONG, waits).unwrap();
            if waited.timed_out() {
                (held.wanted, held.is_late) = (0, true);
            }
            held.under_way -= 1;
            drop(held);
            let content = &shards[request.path()];
            script(request).unwrap_or_else(|| Reply::object(request, content, "\"v1\""))
        });
        Shelf { shards: count, server, held }
    }

    fn held<T>(&self, change: impl FnOnce(&mut Held) -> T) -> T {
        let changed = change(&mut self.held.0.lock().unwrap());
        self.held.1.notify_all();
        changed
    }

    /// Withholds responses until `wanted` requests wait.
    fn hold(&self, wanted: usize) {
        self.held(|held| {
            *held = Held { wanted, closed: held.closed, under_way: held.under_way, ..Held::default() };
        });
    }

    fn list(&self) -> ShardList {
        ShardList::from_urls((0..self.shards).map(|shard| self.server.url(&path(shard))))
    }

    fn index(&self) -> Index {
        Index::builder().build(&self.list()).unwrap()
    }

    /// A loader with a new store, which has not measured any latency yet.
    fn loader(&self, index: Option<&Index>, store: StoreBuilder) -> Loader<Batch<Sample>> {
        self.loader_with(BUFFER, index, store)
    }

    fn loader_with(
        &self,
        buffer: usize,
        index: Option<&Index>,
        store: StoreBuilder,
    ) -> Loader<Batch<Sample>> {
        let dataset = Dataset::builder(self.list()).store(store.build().unwrap()).streams(1).seed(5);
        let dataset = dataset.shuffle_shards(true).topology(Topology::single());
        let dataset = index.into_iter().fold(dataset, |dataset, index| dataset.index(index.clone()));
        Loader::builder(dataset.build().unwrap()).shuffle(buffer).threads(2).batch(4).build().unwrap()
    }
}

fn store() -> StoreBuilder {
    Store::builder().budget(Budget::new(64, 64 << 20)).retries(2).retry_pause(Duration::from_millis(1))
}

/// The keys and contents of a batch's samples, and the state after it.
type ReadBatch = (Vec<(String, Vec<u8>)>, State);

fn read(batches: Batches<Batch<Sample>>) -> Vec<ReadBatch> {
    let sample =
        |sample: &Sample| (sample.key().to_owned(), sample.get("txt").unwrap().as_bytes().unwrap().to_vec());
    let batch = |batch: Result<Batch<Sample>>| {
        let batch = batch.unwrap();
        (batch.iter().map(sample).collect(), batch.state().unwrap().clone())
    };
    batches.map(batch).collect()
}

/// Number of batches before the saved state. The samples of the state's buffer are scattered over many
/// shards.
const TAKEN: usize = 15;

/// Number of shards that were read to their ends before the state was saved, but still have samples in the
/// state's shuffle buffer.
fn scattered(loader: &Loader<Batch<Sample>>, rest: &[ReadBatch]) -> usize {
    let finished = (TAKEN * 4 + BUFFER - 1) / SAMPLES;
    let plan = loader.datasets().next().unwrap().plan().stream(0, 0);
    let is_left = |shard: usize| {
        let key = format!("{shard:03}-");
        rest.iter().flat_map(|(samples, _)| samples).any(|(sample, _)| sample.starts_with(&key))
    };
    let left = plan[..finished].iter().filter(|slice| is_left(slice.shard)).count();
    assert!((4..12).contains(&left), "{left} shards");
    left
}

/// Waits until the server has at least `left` unanswered requests. Waits another 200 ms, and then answers all
/// requests. Returns the requested shards that the stream reads after its current shard.
fn requested_behind(loader: &Loader<Batch<Sample>>, shelf: &Shelf, left: usize) -> Vec<String> {
    let plan = loader.datasets().next().unwrap().plan().stream(0, 0);
    let behind: Vec<_> =
        plan[(TAKEN * 4 + BUFFER) / SAMPLES + 1..].iter().map(|slice| path(slice.shard)).collect();
    let begun = Instant::now();
    while shelf.held(|held| held.under_way) < left {
        assert!(begun.elapsed() < LONG, "{left} requests are under way together");
        thread::sleep(Duration::from_millis(2));
    }
    thread::sleep(Duration::from_millis(200));
    let requested = shelf.held(|held| held.requests.iter().map(|(path, _)| path.clone()).collect::<Vec<_>>());
    shelf.held(|held| held.closed = false);
    requested.into_iter().filter(|path| behind.contains(path)).collect()
}

#[test]
fn a_restore_requests_the_samples_of_its_buffers_together() {
    let shelf = Shelf::new(|_| None);
    let index = shelf.index();
    for index in [Some(&index), None] {
        let whole = read(shelf.loader(index, store()).epoch(0));
        assert_eq!(whole.len(), SHARDS * SAMPLES / 4);
        let loader = shelf.loader(index, store());
        let left = scattered(&loader, &whole[TAKEN..]);
        // No request is answered before all requests have arrived.
        shelf.held(|held| held.closed = true);
        shelf.hold(left);
        let mut batches = loader.restore(&whole[TAKEN - 1].1).unwrap();
        batches.start();
        let behind = requested_behind(&loader, &shelf, left);
        assert_eq!(behind, Vec::<String>::new(), "no later shard is requested during the refill");
        let rest = read(batches);
        assert!(rest == whole[TAKEN..], "the order, the contents and the states are the same");
        let (most, requests) = shelf.held(|held| (held.most, held.requests.clone()));
        let together = most >= left && !shelf.held(|held| held.is_late);
        assert!(together, "at most {most} requests were under way together, for {left} shards");
        println!("samples of {left} shards: {most} of {} requests together", requests.len());
        let distinct: BTreeSet<_> = requests.iter().collect();
        assert_eq!(distinct.len(), requests.len(), "no range is requested twice: {requests:?}");
    }
}

/// The buffer has samples of more shards than a restore opens at a time. A restore opens further shards as it
/// finishes others, and opens each shard once.
#[test]
fn a_restore_of_more_than_64_open_shards_reads_each_once() {
    let (shelf, buffer, taken) = (Shelf::of(200, |_| None), 150, 75);
    let index = shelf.index();
    for index in [Some(&index), None] {
        let loader = |budget| shelf.loader_with(buffer, index, store().budget(budget));
        let whole = read(loader(Budget::new(64, 64 << 20)).epoch(0));
        let rest = &whole[taken..];
        let of = |(key, _): &(String, Vec<u8>)| key[..3].to_owned();
        let shards =
            |batches: &[ReadBatch]| batches.iter().flat_map(|(samples, _)| samples).map(of).collect();
        let (before, after): (BTreeSet<_>, BTreeSet<_>) = (shards(&whole[..taken]), shards(rest));
        let open = before.intersection(&after).count();
        assert!(open > 64, "{open} shards were open");
        for budget in [Budget::new(64, 64 << 20), Budget::new(2, 1 << 20)] {
            shelf.hold(0);
            let resumed = read(loader(budget.clone()).restore(&whole[taken - 1].1).unwrap());
            assert!(resumed == rest, "the order, the contents and the states are the same");
            let requests = shelf.held(|held| held.requests.clone());
            let distinct: BTreeSet<_> = requests.iter().collect();
            assert_eq!(distinct.len(), requests.len(), "no range is requested twice: {requests:?}");
            assert_in_use(&budget, 0);
        }
    }
}

/// With one connection and little memory, a restore makes one request after the other, and does not deadlock.
#[test]
fn a_restore_keeps_to_the_budget() {
    let shelf = Shelf::new(|_| None);
    let index = shelf.index();
    for index in [Some(&index), None] {
        let whole = read(shelf.loader(index, store()).epoch(0));
        let budget = Budget::new(1, 1 << 20);
        shelf.hold(0);
        let loader = shelf.loader(index, store().budget(budget.clone()));
        let rest = read(loader.restore(&whole[TAKEN - 1].1).unwrap());
        assert!(rest == whole[TAKEN..]);
        assert_eq!((shelf.held(|held| held.most), budget.in_use()), (1, 0));
    }
}

#[test]
fn a_range_of_a_restore_that_fails_is_retried_or_named() {
    // The shard whose next request fails, and the shard whose requests always fail.
    let failing: Arc<Mutex<(Option<String>, Option<String>)>> = Arc::default();
    let shelf = Shelf::new({
        let failing = Arc::clone(&failing);
        move |request| {
            let mut failing = failing.lock().unwrap();
            let once = failing.0.take_if(|path| path == request.path());
            let always = failing.1.as_ref().is_some_and(|path| path == request.path());
            (once.is_some() || always).then(|| Reply::new(if always { 403 } else { 503 }, ""))
        }
    });
    let index = shelf.index();
    let whole = read(shelf.loader(Some(&index), store()).epoch(0));
    let state = &whole[TAKEN - 1].1;
    shelf.hold(0);
    assert!(read(shelf.loader(Some(&index), store()).restore(state).unwrap()) == whole[TAKEN..]);
    // Requests are made in the order of the samples.
    let requested = shelf.held(|held| held.requests.clone());
    let middle = requested[2].0.clone();

    failing.lock().unwrap().0 = Some(middle.clone());
    assert!(read(shelf.loader(Some(&index), store()).restore(state).unwrap()) == whole[TAKEN..]);
    assert!(failing.lock().unwrap().0.is_none(), "the request was made, and has failed");

    failing.lock().unwrap().1 = Some(middle.clone());
    let budget = Budget::new(64, 64 << 20);
    let mut rest = shelf.loader(Some(&index), store().budget(budget.clone())).restore(state).unwrap();
    let error = rest.next().unwrap().unwrap_err();
    let (shard, offset) = (error.location().shard().unwrap_or_default(), error.location().offset());
    assert!(shard.ends_with(&middle) && offset.is_some(), "{error:?}");
    assert!(rest.next().is_none(), "the run ends, as its sequence would lack a sample");
    drop(rest);
    assert_in_use(&budget, 0);
}

#[test]
fn dropping_a_restore_cancels_its_requests() {
    let shelf = Shelf::new(|_| None);
    let index = shelf.index();
    for (index, is_stream) in [(Some(&index), false), (None, true)] {
        let whole = read(shelf.loader(index, store()).epoch(0));
        let budget = Budget::new(64, 64 << 20);
        let loader = shelf.loader(index, store().budget(budget.clone()));
        let left = scattered(&loader, &whole[TAKEN..]);
        shelf.held(|held| held.closed = true);
        shelf.hold(0);
        let mut rest = loader.restore(&whole[TAKEN - 1].1).unwrap();
        rest.start();
        let begun = Instant::now();
        while shelf.held(|held| held.under_way) <= left {
            assert!(begun.elapsed() < LONG, "the requests are under way");
            thread::sleep(Duration::from_millis(2));
        }
        if is_stream {
            drop(rest.into_stream());
        } else {
            drop(rest);
        }
        assert_in_use(&budget, 0);
        let requests = shelf.held(|held| held.requests.len());
        shelf.held(|held| held.closed = false);
        thread::sleep(Duration::from_millis(50));
        assert_eq!(shelf.held(|held| held.requests.len()), requests, "nothing is requested any more");
    }
}

/// Waits until exactly `bytes` are in use: a request returns its memory when its task ends.
fn assert_in_use(budget: &Budget, bytes: u64) {
    let begun = Instant::now();
    while budget.in_use() != bytes {
        assert!(begun.elapsed() < LONG, "{} bytes are in use", budget.in_use());
        thread::sleep(Duration::from_millis(2));
    }
}

/// `start` reads ahead without a consumer, and stops when the queues are full.
#[test]
fn start_reads_batches_before_the_first_is_requested() {
    let shelf = Shelf::new(|_| None);
    let index = shelf.index();
    let whole = read(shelf.loader(Some(&index), store()).epoch(0));
    let dataset = || {
        let dataset = Dataset::builder(shelf.list()).index(index.clone()).streams(1).seed(5);
        let dataset = dataset.store(store().build().unwrap()).shuffle_shards(true);
        dataset.topology(Topology::single()).build().unwrap()
    };
    let made = Arc::new(Mutex::new(0));
    let loader = || {
        let made = Arc::clone(&made);
        let items = Loader::builder(dataset()).shuffle(BUFFER).threads(2).prefetch(2).map(move |sample| {
            *made.lock().unwrap() += 1;
            Ok(sample)
        });
        items.batch(4).build().unwrap()
    };
    shelf.hold(0);
    let never = loader().epoch(0);
    thread::sleep(Duration::from_millis(50));
    assert_eq!(shelf.held(|held| held.requests.len()), 0, "batches are lazy");
    drop(never);

    let mut batches = loader().epoch(0);
    batches.start();
    batches.start();
    // Waits until the number of mapped samples stays the same for 300 ms.
    let settled = || {
        let (mut last, mut since, begun) = (0, Instant::now(), Instant::now());
        while since.elapsed() < Duration::from_millis(300) || last == 0 {
            assert!(begun.elapsed() < LONG, "the number of mapped samples keeps changing");
            let now = *made.lock().unwrap();
            if now != last {
                (last, since) = (now, Instant::now());
            }
            thread::sleep(Duration::from_millis(5));
        }
        last
    };
    let before = settled();
    assert!((12..SHARDS * SAMPLES).contains(&before), "{before} samples were mapped");
    assert!(shelf.held(|held| held.requests.len()) > 0);
    assert_eq!(batches.state().batches(), 0, "a state counts what was returned");
    let mut stream = loader().epoch(0).into_stream();
    stream.get_mut().start();
    let begun = Instant::now();
    while *made.lock().unwrap() == before {
        assert!(begun.elapsed() < LONG, "the stream has not begun");
        thread::sleep(Duration::from_millis(2));
    }
    drop(stream);
    assert!(read(batches) == whole);
}
