//! Reads many epochs over a network with frequent faults: every sample arrives exactly once, and no resource
//! leaks.
//!
//! Two requests in a hundred get a reply with a fault. The test takes three seconds, or the number of seconds
//! that the environment sets:
//!
//! ```text
//! SHARDSTREAM_SOAK_SECONDS=1800 cargo test --release --all-features --test processes soak -- --nocapture
//! ```
//!
//! `SHARDSTREAM_SOAK_SEED` repeats the faults of an earlier run, as far as requests arrive in the same order.
//!
//! The shards are read in a separate process. The counts of memory, sockets and threads therefore exclude the
//! server, and the client of `gs://` can take the server's address from the environment.

use crate::support::child::child;
use crate::support::server::{Ending, Reply, Request, Server};
use crate::support::{archive, noise};
use shardstream::loader::Batches;
use shardstream::prelude::*;
use std::hash::{BuildHasher, RandomState};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

const SHARDS: u64 = 16;
const SAMPLES: u64 = 100;
/// One of this many requests gets a reply with a fault.
const FAULTS: u64 = 50;
/// How long a response may send nothing before the client gives up.
const STALL: Duration = Duration::from_millis(400);
/// Number of epochs before resources must stop growing.
const WARM_UP: u64 = 4;

/// The most connections that the budget of a process allows.
const CONNECTIONS: u64 = 64;

const BASE: &str = "SHARDSTREAM_TEST_BASE";

fn number(variable: &str) -> Option<u64> {
    env::var(variable).ok().map(|value| value.parse().unwrap_or_else(|_| panic!("{variable}={value}")))
}

fn seconds() -> u64 {
    number("SHARDSTREAM_SOAK_SECONDS").unwrap_or(3)
}

/// A random number that depends only on the arguments.
fn random(seed: u64, number: u64, purpose: u64) -> u64 {
    let mut z =
        seed.wrapping_add(number.wrapping_mul(8).wrapping_add(purpose).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A shard of about 600 KB, with samples of various sizes.
fn shard(shard: u64) -> Vec<u8> {
    let sample = |n| {
        let content = noise((random(shard, n, 0) % 12_000) as usize);
        Sample::new(format!("{shard:02}/{n:03}")).with("bin", content).with("cls", n as i64)
    };
    archive(&(0..SAMPLES).map(sample).collect::<Vec<_>>())
}

/// The key of a sample, and a hash of its fields.
fn known(sample: &Sample) -> (String, u64) {
    let field = |(name, value): (&str, &shardstream::Value)| {
        let bytes = value.as_bytes().expect("fields are read as raw bytes");
        let words = bytes.iter().chain(name.as_bytes());
        words.fold(0, |hash, byte| random(hash, u64::from(*byte), 1))
    };
    (sample.key().to_owned(), sample.fields().map(field).fold(0, u64::wrapping_add))
}

/// Adds a random fault to a reply: a cut, a reset, silence, slow bytes or an error status.
fn fault(seed: u64, number: u64, reply: Reply) -> Reply {
    let place = (random(seed, number, 2) % (reply.body.len() as u64 + 1)) as usize;
    match random(seed, number, 3) % 12 {
        0..3 => reply.cut(place),
        3..5 => reply.cut(place).ending(Ending::Reset),
        5 => reply.cut(place).ending(Ending::Silent(Duration::from_secs(60))),
        6 => {
            thread::sleep(2 * STALL);
            reply
        }
        7 => reply.dripping(4000, Duration::from_millis(5)),
        8 => Reply::new(503, "slow down").with("Retry-After", 0),
        9 if random(seed, number, 4).is_multiple_of(8) => Reply::new(503, "slow down").with("Retry-After", 1),
        9 | 10 => Reply::new(503, "slow down"),
        _ => Reply::new([429, 500, 502, 504][place % 4], "no"),
    }
}

/// Serves the shards. Responses for `plain/` have neither ETag nor modification time.
fn serve(seed: u64, faults: Arc<AtomicU64>) -> Server {
    let shards: Vec<_> = (0..SHARDS).map(shard).collect();
    Server::forgetful(move |request: &Request| {
        let path = percent_encoding::percent_decode_str(request.path()).decode_utf8_lossy();
        let name = path.rsplit('/').next().and_then(|name| name.strip_suffix(".tar"));
        let shard = name.and_then(|name| name.parse::<usize>().ok()).and_then(|number| shards.get(number));
        let Some(shard) = shard else { return Reply::new(404, "") };
        let mut reply = Reply::object(request, shard, "\"v1\"");
        if path.contains("/plain/") {
            reply = reply.without("ETag").without("Last-Modified");
        }
        let number = request.number as u64;
        if !random(seed, number, 5).is_multiple_of(FAULTS) {
            return reply;
        }
        faults.fetch_add(1, Ordering::Relaxed);
        fault(seed, number, reply)
    })
}

#[test]
fn soak() {
    let seed = number("SHARDSTREAM_SOAK_SEED").unwrap_or_else(|| RandomState::new().hash_one(0));
    println!("seed {seed}");
    let faults = Arc::new(AtomicU64::new(0));
    let server = serve(seed, Arc::clone(&faults));
    let child = child(module_path!(), "reader_in_child")
        .env("STORAGE_EMULATOR_HOST", server.url(""))
        .env(BASE, server.url(""))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .output();
    let output = child.unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    let faults = faults.load(Ordering::Relaxed);
    println!("{text}{faults} faults");
    assert!(output.status.success() && text.contains("1 passed"), "seed {seed}");
    assert!(faults > 0);
}

/// The resources that must not grow: resident memory in MB, open files, threads.
#[derive(Debug, Clone, Copy, Default)]
struct Usage {
    memory: u64,
    files: u64,
    threads: u64,
}

impl Usage {
    /// The usage of this process; zeros on a system that does not report it.
    fn now() -> Self {
        let entries = |directory: &str| fs::read_dir(directory).map_or(0, |entries| entries.count() as u64);
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let memory = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.split_whitespace().next());
        let memory = memory.and_then(|memory| memory.parse::<u64>().ok()).unwrap_or_default() / 1024;
        Usage { memory, files: entries("/proc/self/fd"), threads: entries("/proc/self/task") }
    }

    fn most(self, other: Usage) -> Usage {
        Usage {
            memory: self.memory.max(other.memory),
            files: self.files.max(other.files),
            threads: self.threads.max(other.threads),
        }
    }
}

/// The loaders that are run in turn, and the store that they share.
fn loaders() -> (Store, Vec<Loader<Batch<Sample>>>) {
    let store =
        Store::builder().range_size(64 << 10).retry_pause(Duration::from_millis(2)).stall_timeout(STALL);
    let store = store.build().unwrap();
    let base = env::var(BASE).unwrap();
    let web = cfg!(feature = "http").then(|| [format!("{base}/web"), format!("{base}/plain")]);
    let bucket = cfg!(feature = "gcs").then(|| "gs://bucket".to_owned());
    let loader = |base: String| {
        let dataset = Dataset::builder(format!("{base}/{{0..{}}}.tar", SHARDS - 1)).store(store.clone());
        let dataset = dataset.streams(8).shuffle_shards(true).seed(7).topology(Topology::single());
        Loader::builder(dataset.build().unwrap()).shuffle(50).batch(16).build().unwrap()
    };
    let loaders = web.into_iter().flatten().chain(bucket).map(loader).collect();
    (store, loaders)
}

fn read(batches: Batches<Batch<Sample>>, most: usize) -> Vec<(String, u64)> {
    let mut seen = Vec::new();
    for batch in batches.take(most) {
        seen.extend(batch.unwrap_or_else(|error| panic!("{error:#}")).iter().map(known));
    }
    seen
}

#[test]
#[ignore = "run by the other test, with environment variables that it sets"]
fn reader_in_child() {
    let clean = (0..SHARDS).flat_map(|number| crate::support::read_bytes(&shard(number)));
    let mut expected: Vec<_> = clean.map(|sample| known(&sample.unwrap())).collect();
    expected.sort_unstable();
    let (store, loaders) = loaders();
    // Few connections are open at the beginning of a short run. At its end, all connections of the budget may
    // be open, though idle.
    let most_files = Usage::now().files + CONNECTIONS;
    let (begun, time) = (Instant::now(), Duration::from_secs(seconds()));
    let (mut epochs, mut told, mut warm, mut last) = (0, Duration::ZERO, Usage::default(), Usage::default());
    while begun.elapsed() < time || epochs < 2 * WARM_UP {
        let loader = &loaders[epochs as usize % loaders.len()];
        // One epoch in five is dropped before its end.
        if random(epochs, 0, 6).is_multiple_of(5) {
            read(loader.epoch(epochs), (random(epochs, 0, 7) % 90) as usize);
        }
        let mut seen = read(loader.epoch(epochs), usize::MAX);
        seen.sort_unstable();
        assert!(seen == expected, "epoch {epochs}: {} samples of {}", seen.len(), expected.len());
        epochs += 1;
        last = Usage::now();
        if epochs <= WARM_UP || begun.elapsed() < time / 6 {
            warm = warm.most(last);
        }
        if begun.elapsed() - told > time / 20 {
            told = begun.elapsed();
            println!("{:>5} s {epochs:>6} epochs {last:?}", told.as_secs());
        }
    }
    println!("{epochs} epochs; warm {warm:?}, at the end {last:?}\n{}", store.report());
    assert!(last.memory <= warm.memory + warm.memory / 4 + 32, "memory grows: {warm:?}, {last:?}");
    assert!(last.files <= warm.files.max(most_files) + 32, "files stay open: {warm:?}, {last:?}");
    assert!(last.threads <= warm.threads + 4, "threads stay: {warm:?}, {last:?}");
}
