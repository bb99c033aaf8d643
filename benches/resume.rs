//! The cost of stopping and resuming, and how well a shuffle mixes samples, as tables in Markdown.
//!
//! `cargo bench --bench resume [-- restore|stages|state|shuffle]`. The shards are in memory, behind a source
//! that counts bytes and requests. For the times to the first batch, the source imitates a bucket: each
//! request waits for [`FIRST_BYTE`], and all requests together transfer [`BYTES_PER_SECOND`].
//! `benches/compare/resume.py` runs this benchmark and plots its first table.

use bytes::Bytes;
use futures::StreamExt as _;
use futures::future::{BoxFuture, FutureExt as _};
use futures::stream;
use shardstream::adapters::{Buckets, GroupBy, Pack, Stage};
use shardstream::loader::{Batches, LoaderBuilder};
use shardstream::prelude::*;
use shardstream::store::{GetOptions, GetResponse, Source};
use shardstream::{Result, Rng};
use std::collections::HashSet;
use std::fmt;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const STREAMS: usize = 8;
const SHARDS: usize = 128;
const BUFFER: usize = 1000;
const BATCH: usize = 64;
const ROUNDS: usize = 3;
const EPOCHS: u64 = 4;

const FIRST_BYTE: Duration = Duration::from_millis(20);
const BYTES_PER_SECOND: f64 = 1e9;
const CHUNK: usize = 1 << 20;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // `cargo test` runs this program too, without the argument.
    if !arguments.iter().any(|argument| argument == "--bench") {
        return;
    }
    let names: Vec<&str> = arguments.iter().map(String::as_str).filter(|a| !a.starts_with("--")).collect();
    let selected = |name| names.is_empty() || names.contains(&name);
    if selected("restore") {
        restore(&Shards::new("1 KB", 10_000, 1_000));
        restore(&Shards::new("100 KB", 1_000, 100_000));
    }
    if selected("stages") {
        stages(&Shards::new("1 KB", 400, 1_000).indexed());
    }
    if selected("state") {
        state(&Shards::new("1 KB", 10_000, 1_000));
    }
    if selected("shuffle") {
        shuffle(&Shards::new("", 10_000, 16));
        shuffle(&Shards::new("", 1_000, 16));
    }
}

/// Shards in memory, all with the same content.
#[derive(Clone)]
struct Shards {
    name: &'static str,
    samples: usize,
    bucket: Arc<Bucket>,
    list: ShardList,
    index: Option<Index>,
}

impl Shards {
    fn new(name: &'static str, samples: usize, size: usize) -> Self {
        let mut archive = tar::Builder::new(Vec::new());
        let body = vec![7; size];
        for sample in 0..samples {
            let mut header = tar::Header::new_ustar();
            header.set_size(size as u64);
            archive.append_data(&mut header, format!("{sample:08}.bin"), &body[..]).unwrap();
        }
        let bucket = Arc::new(Bucket::new(archive.into_inner().unwrap().into()));
        let list = ShardList::expand(&format!("memory://{{000..{:03}}}.tar", SHARDS - 1)).unwrap();
        Shards { name, samples, bucket, list, index: None }
    }

    fn store(&self) -> Store {
        Store::builder().with_source("memory", Arc::clone(&self.bucket) as Arc<dyn Source>).build().unwrap()
    }

    fn indexed(&self) -> Self {
        let index = Index::builder().store(self.store()).threads(4).build(&self.list).unwrap();
        Shards { index: Some(index), ..self.clone() }
    }

    fn samples(&self) -> usize {
        self.samples * SHARDS
    }

    fn dataset(&self, shuffled: bool) -> Dataset {
        let dataset = Dataset::builder(self.list.clone()).store(self.store()).streams(STREAMS);
        let dataset = dataset.shuffle_shards(shuffled).seed(42);
        match &self.index {
            Some(index) => dataset.index(index.clone()).build().unwrap(),
            None => dataset.build().unwrap(),
        }
    }

    fn loader(&self) -> Loader<Batch<usize>> {
        self.builder().build().unwrap()
    }

    fn builder(&self) -> LoaderBuilder<usize> {
        Loader::builder(self.dataset(true))
            .shuffle(BUFFER)
            .threads(1)
            .map(|sample| Ok(sample.size()))
            .batch(BATCH)
    }
}

/// Serves one content under every name, and counts bytes and requests.
struct Bucket {
    content: Bytes,
    requests: AtomicU64,
    bytes: Arc<AtomicU64>,
    /// Whether requests have the latency and bandwidth of a bucket.
    remote: AtomicBool,
    /// The time at which the simulated link is free again.
    link_free: Arc<Mutex<Instant>>,
}

impl Bucket {
    fn new(content: Bytes) -> Self {
        Bucket {
            content,
            requests: AtomicU64::default(),
            bytes: Arc::default(),
            remote: AtomicBool::default(),
            link_free: Arc::new(Mutex::new(Instant::now())),
        }
    }

    fn reset(&self, remote: bool) {
        self.requests.store(0, Relaxed);
        self.bytes.store(0, Relaxed);
        self.remote.store(remote, Relaxed);
    }
}

impl fmt::Debug for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Bucket")
    }
}

/// Waits for the transfer of this many bytes over the simulated link.
async fn transfer(link_free: &Mutex<Instant>, bytes: usize) {
    let done = {
        let mut free = link_free.lock().unwrap();
        *free = (*free).max(Instant::now()) + Duration::from_secs_f64(bytes as f64 / BYTES_PER_SECOND);
        *free
    };
    tokio::time::sleep_until(done.into()).await;
}

impl Source for Bucket {
    fn get(&self, _: &str, options: GetOptions) -> BoxFuture<'static, shardstream::Result<GetResponse>> {
        self.requests.fetch_add(1, Relaxed);
        let size = self.content.len() as u64;
        let range = options.range.unwrap_or(0..size);
        let range = range.start.min(size)..range.end.min(size);
        let content = self.content.slice(range.start as usize..range.end as usize);
        let (bytes, link_free) = (Arc::clone(&self.bytes), Arc::clone(&self.link_free));
        let remote = self.remote.load(Relaxed);
        let chunks = (0..content.len()).step_by(CHUNK).map({
            let content = content.clone();
            move |start| content.slice(start..content.len().min(start + CHUNK))
        });
        let body = stream::iter(chunks).then(move |chunk| {
            let (bytes, link_free) = (Arc::clone(&bytes), Arc::clone(&link_free));
            async move {
                if remote {
                    transfer(&link_free, chunk.len()).await;
                }
                bytes.fetch_add(chunk.len() as u64, Relaxed);
                Ok(chunk)
            }
        });
        async move {
            if remote {
                tokio::time::sleep(FIRST_BYTE).await;
            }
            Ok(GetResponse::new(body.boxed()).with_size(size).with_range(range).with_version("1"))
        }
        .boxed()
    }
}

/// The cost of reading batches, from the start or the restore up to a given batch.
#[derive(Clone, Copy)]
struct Cost {
    seconds: f64,
    bytes: u64,
    requests: u64,
}

/// For each field, the median over all costs.
fn medians(mut costs: Vec<Cost>) -> Cost {
    let mut median = |field: fn(&Cost) -> f64| {
        costs.sort_by(|a, b| field(a).total_cmp(&field(b)));
        costs[costs.len() / 2]
    };
    Cost {
        seconds: median(|cost| cost.seconds).seconds,
        bytes: median(|cost| cost.bytes as f64).bytes,
        requests: median(|cost| cost.requests as f64).requests,
    }
}

/// Reads `skip + 1` batches. Returns the cost of these batches, and the state after the last batch.
fn take_batches(
    shards: &Shards,
    remote: bool,
    skip: usize,
    begin: impl FnOnce() -> Batches<Batch<usize>>,
) -> (Cost, State) {
    shards.bucket.reset(remote);
    let start = Instant::now();
    let mut batches = begin();
    for batch in batches.by_ref().take(skip + 1) {
        black_box(batch.unwrap().len());
    }
    let seconds = start.elapsed().as_secs_f64();
    let (bytes, requests) = (shards.bucket.bytes.load(Relaxed), shards.bucket.requests.load(Relaxed));
    (Cost { seconds, bytes, requests }, batches.state())
}

fn restore(shards: &Shards) {
    let total = (shards.bucket.content.len() * SHARDS) as f64;
    println!(
        "\n### Samples of {}: {SHARDS} shards of {} samples, {:.2} GB\n",
        shards.name,
        shards.samples,
        total / 1e9
    );
    println!("| at | way | MB received | of the epoch | requests | s to the first batch | s from memory |");
    println!("|--:|---|--:|--:|--:|--:|--:|");
    let row =
        |at: usize, way: &str, skip: usize, shards: &Shards, begin: &dyn Fn() -> Batches<Batch<usize>>| {
            let rounds = |remote| (0..ROUNDS).map(|_| take_batches(shards, remote, skip, begin).0).collect();
            let (remote, memory) = (medians(rounds(true)), medians(rounds(false)));
            println!(
                "| {at} % | {way} | {:.0} | {:.1} % | {} | {:.2} | {:.2} |",
                remote.bytes as f64 / 1e6,
                remote.bytes as f64 / total * 100.0,
                remote.requests,
                remote.seconds,
                memory.seconds
            );
        };
    let (plain, indexed) = (shards, &shards.indexed());
    row(0, "an epoch begins", 0, plain, &|| plain.loader().epoch(0));
    for at in [10, 90] {
        let skip = plain.samples() / BATCH * at / 100;
        for (way, shards) in [("restore, index", indexed), ("restore, no index", plain)] {
            let loader = shards.loader();
            let (_, state) = take_batches(shards, false, skip - 1, || loader.epoch(0));
            let (_, uninterrupted) = take_batches(shards, false, skip, || loader.epoch(0));
            let (_, restored) = take_batches(shards, false, 0, || loader.restore(&state).unwrap());
            assert_eq!(restored.digest(), uninterrupted.digest(), "the restored sequence differs");
            row(at, way, 0, shards, &|| loader.restore(&state).unwrap());
        }
        row(at, "from the start, skipping", skip, plain, &|| plain.loader().epoch(0));
    }
}

/// A stage that returns each item unchanged. Its `is_fresh` returns true only if the number of items so far
/// is a multiple of `period`.
struct FreshEvery {
    period: usize,
    items: usize,
}

impl FreshEvery {
    fn new(period: usize) -> Self {
        FreshEvery { period, items: 0 }
    }
}

impl Stage<usize> for FreshEvery {
    type Out = usize;

    fn push(&mut self, item: usize) -> Option<Result<usize>> {
        self.items += 1;
        Some(Ok(item))
    }

    fn is_fresh(&self) -> bool {
        self.items.is_multiple_of(self.period)
    }
}

/// Measures how much a restore reads and maps again up to the first batch, for each stage that holds samples.
fn stages(shards: &Shards) {
    type Make = fn(LoaderBuilder<usize>) -> LoaderBuilder<usize>;
    let stages: [(&str, Make); 8] = [
        ("no stage", |items| items),
        ("`flat_map`, 3 items", |items| items.flat_map(|n| Ok([n; 3]))),
        ("`chunked`, rows of 64 of documents of 1 to 50", |items| {
            items.map(|n| Ok(vec![n; 1 + n % 50])).chunked(64, 0).map(|row| Ok(row.len()))
        }),
        ("`Pack`, best fit of 256 documents into 64", |items| {
            let documents = items.map(|n| Ok(vec![n; 1 + n % 50]));
            documents.stage("pack", || Pack::new(64).look_ahead(256)).map(|row| Ok(row.len()))
        }),
        ("`GroupBy`, 8 of one of 16 keys", |items| {
            let groups = items.stage("group", || GroupBy::new(8, |n: &usize| Ok(n % 16)).max_waiting(256));
            groups.map(|group| Ok(group.len()))
        }),
        ("buckets of 16, 32 and 64, look-ahead 256", |items| {
            items.buckets(Buckets::lengths([16, 32, 64]).look_ahead(256), |n| Ok([1 + n % 64]))
        }),
        ("a stage that is fresh every 50 items", |items| items.stage("fresh", || FreshEvery::new(50))),
        ("a stage that is never fresh again", |items| items.stage("never", || FreshEvery::new(usize::MAX))),
    ];
    println!("\n### Stages that hold samples: {SHARDS} shards of {} samples, index\n", shards.samples);
    println!("| stage | at | samples mapped | requests | MB received |");
    println!("|---|--:|--:|--:|--:|");
    for (name, make) in stages {
        let mapped = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&mapped);
        let items = Loader::builder(shards.dataset(true)).shuffle(100).threads(0).map(move |sample| {
            counter.fetch_add(1, Relaxed);
            Ok(sample.key().parse().unwrap_or(0))
        });
        let loader = make(items).batch(BATCH).build().unwrap();
        let mut batches = loader.epoch(0);
        for at in [10, 90] {
            while mapped.load(Relaxed) < (shards.samples() * at / 100) as u64 {
                black_box(batches.next().unwrap().unwrap());
            }
            let (state, before) = (batches.state(), mapped.load(Relaxed));
            let (cost, _) = take_batches(shards, false, 0, || loader.restore(&state).unwrap());
            println!(
                "| {name} | {at} % | {} | {} | {:.1} |",
                mapped.swap(before, Relaxed) - before,
                cost.requests,
                cost.bytes as f64 / 1e6
            );
        }
    }
}

fn state(shards: &Shards) {
    println!("\n### A state\n");
    println!(
        "| streams | index | prefetch | `batch.state().clone()` | `batches.state()` | `to_string()` | \
         `parse()` | bytes |"
    );
    println!("|--:|---|--:|--:|--:|--:|--:|--:|");
    for (index, shards) in [("no", shards.clone()), ("yes", shards.indexed())] {
        for prefetch in [2, 200] {
            let mut batches = shards.builder().prefetch(prefetch).build().unwrap().epoch(0);
            let last = batches.by_ref().take(4000).last().unwrap().unwrap();
            let text = batches.state().to_string();
            let row = [
                nanoseconds(|| black_box(last.state().cloned()).is_some()),
                nanoseconds(|| black_box(batches.state()).samples() > 0),
                nanoseconds(|| !black_box(batches.state().to_string()).is_empty()),
                nanoseconds(|| black_box(text.parse::<State>()).is_ok()),
            ];
            let [clone, state, format, parse] = row.map(|ns| match ns {
                ..10_000 => format!("{ns} ns"),
                _ => format!("{} µs", ns / 1000),
            });
            println!(
                "| {STREAMS} | {index} | {prefetch} | {clone} | {state} | {format} | {parse} | {} |",
                text.len()
            );
        }
    }
}

/// Median time of a function, over many runs.
fn nanoseconds(mut run: impl FnMut() -> bool) -> u64 {
    let mut times: Vec<u64> = (0..51)
        .map(|_| {
            let start = Instant::now();
            assert!((0..200).all(|_| run()));
            start.elapsed().as_nanos() as u64 / 200
        })
        .collect();
    times.sort_unstable();
    times[times.len() / 2]
}

fn shuffle(shards: &Shards) {
    println!("\n### Mixing: {SHARDS} shards of {} samples, {EPOCHS} epochs\n", shards.samples);
    println!(
        "| order | moved, mean | by tenths of the epoch, % | distance of neighbours, median | below 64, 1 \
         000, 10 000, 100 000, beyond, % | shards in a batch of {BATCH} |"
    );
    println!("|---|--:|---|--:|---|--:|");
    let (plain, indexed) = (shards, &shards.indexed());
    mixing_row("shards listed, no buffer", shards, |epoch| epoch_order(plain, false, 0, epoch));
    mixing_row("shards listed, buffer 1000", shards, |epoch| epoch_order(plain, false, BUFFER, epoch));
    mixing_row("shards shuffled, no buffer", shards, |epoch| epoch_order(plain, true, 0, epoch));
    mixing_row("**shards shuffled, buffer 1000**", shards, |epoch| epoch_order(plain, true, BUFFER, epoch));
    mixing_row("the same with an index", shards, |epoch| epoch_order(indexed, true, BUFFER, epoch));
    mixing_row("shards shuffled, buffer 10000", shards, |epoch| epoch_order(plain, true, 10 * BUFFER, epoch));
    mixing_row("a random permutation", shards, |epoch| {
        let mut permutation: Vec<usize> = (0..shards.samples()).collect();
        let mut rng = Rng::new(42, epoch, 0);
        for last in (1..permutation.len()).rev() {
            permutation.swap(last, rng.below(last as u64 + 1) as usize);
        }
        permutation
    });
}

/// The samples of an epoch in order, numbered by their positions in the concatenated shards.
fn epoch_order(shards: &Shards, shuffled: bool, buffer: usize, epoch: u64) -> Vec<usize> {
    let samples = shards.samples;
    let number = move |sample: Sample| {
        let position = sample.position();
        Ok(position.shard as usize * samples + position.sample as usize)
    };
    let loader =
        Loader::builder(shards.dataset(shuffled)).shuffle(buffer).threads(1).map(number).batch(BATCH);
    loader.build().unwrap().epoch(epoch).flat_map(|batch| batch.unwrap().into_items()).collect()
}

/// Prints how far the order of [`EPOCHS`] epochs is from the order of the shards.
fn mixing_row(name: &str, shards: &Shards, order: impl Fn(u64) -> Vec<usize>) {
    let count = shards.samples();
    let (mut moved, mut distances) = (Vec::new(), Vec::new());
    let (mut batch_shards, mut batches) = (0, 0);
    for order in (0..EPOCHS).map(order) {
        let mut place_of = vec![usize::MAX; count];
        order.iter().enumerate().for_each(|(place, sample)| place_of[*sample] = place);
        assert!(order.len() == count && !place_of.contains(&usize::MAX), "not each sample once");
        moved.extend(place_of.iter().enumerate().map(|(sample, place)| sample.abs_diff(*place)));
        let neighbours = (1..count).filter(|sample| sample % shards.samples > 0);
        distances.extend(neighbours.map(|sample| place_of[sample].abs_diff(place_of[sample - 1])));
        for batch in order.chunks_exact(BATCH) {
            batch_shards += batch.iter().map(|sample| sample / shards.samples).collect::<HashSet<_>>().len();
            batches += 1;
        }
    }
    distances.sort_unstable();
    let mean = moved.iter().sum::<usize>() as f64 / moved.len() as f64 / count as f64;
    let tenths: Vec<usize> = (1..=10).map(|tenth| count * tenth / 10).collect();
    println!(
        "| {name} | {:.1} % | {} | {} | {} | {:.1} |",
        mean * 100.0,
        histogram(&moved, &tenths),
        distances[distances.len() / 2],
        histogram(&distances, &[64, 1_000, 10_000, 100_000, usize::MAX]),
        f64::from(batch_shards as u32) / f64::from(batches)
    );
}

/// For each bound, the percentage of the numbers that are below it but not below the previous bound.
fn histogram(numbers: &[usize], bounds: &[usize]) -> String {
    let mut counts = vec![0_u32; bounds.len()];
    for number in numbers {
        counts[bounds.partition_point(|bound| bound <= number).min(bounds.len() - 1)] += 1;
    }
    let shares =
        counts.iter().map(|&count| format!("{:.0}", f64::from(count) / numbers.len() as f64 * 100.0));
    shares.collect::<Vec<_>>().join(" ")
}
