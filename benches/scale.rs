//! Start-up cost of a job with a million shards, as a table in Markdown.
//!
//! `cargo bench --bench scale [-- SHARDS...]`: by default, 10^4, 10^5 and 10^6 shards of 1,000 samples each,
//! on 4,096 ranks with 1 and with 8 streams. No shard is stored: a source serves the same archive under every
//! name. Each size runs in a process of its own, since peak memory is measured per process. Only the
//! allocations of the measuring thread are counted.

use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt as _, ready};
use futures::stream::{self, StreamExt as _};
use serde_json::Value;
use shardstream::loader::Batches;
use shardstream::prelude::*;
use shardstream::store::{GetOptions, GetResponse, Source};
use shardstream::{Index, State};
use std::fmt::{self, Write as _};
use std::hint::black_box;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Instant;

const SHARDS: [usize; 3] = [10_000, 100_000, 1_000_000];
const SAMPLES: usize = 1_000;
const RANKS: usize = 4_096;
/// The rank that is measured.
const RANK: usize = 1_234;
const BATCH: usize = 64;
/// Number of repetitions of a repeatable step. The median is reported.
const ROUNDS: usize = 3;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // `cargo test` runs this program too, without the argument.
    if !arguments.iter().any(|argument| argument == "--bench") {
        return;
    }
    let numbers: Vec<usize> = arguments.iter().filter_map(|argument| argument.parse().ok()).collect();
    if let Ok(streams) = std::env::var("SCALE_STREAMS") {
        return measure(numbers[0], streams.parse().unwrap());
    }
    println!(
        "| shards | streams for each rank | step | s | MB, most | MB, kept |\n|--:|--:|---|--:|--:|--:|"
    );
    for &shards in if numbers.is_empty() { &SHARDS[..] } else { &numbers } {
        for streams in [1, 8] {
            let mut child = Command::new(std::env::current_exe().unwrap());
            let child =
                child.env("SCALE_STREAMS", streams.to_string()).args(["--bench", &shards.to_string()]);
            assert!(child.status().unwrap().success());
        }
    }
}

/// Prints the rows of one table.
struct Table {
    shards: usize,
    streams: usize,
}

impl Table {
    /// Measures a step that cannot be repeated.
    fn once<T>(&self, step: &str, work: impl FnOnce() -> T) -> T {
        let mut result = None;
        let mut seconds = 0.0;
        let memory = allocation_counter::measure(|| {
            let start = Instant::now();
            result = Some(work());
            seconds = start.elapsed().as_secs_f64();
        });
        self.row(step, seconds, Some((memory.bytes_max, memory.bytes_current)));
        result.unwrap()
    }

    /// Measures a step several times. Reports the median time, and the memory of the last repetition.
    fn repeated<T>(&self, step: &str, mut work: impl FnMut() -> T) -> T {
        let mut times = Vec::new();
        let mut result = None;
        let mut memory = None;
        for _ in 0..ROUNDS {
            drop(result.take());
            let used = allocation_counter::measure(|| {
                let start = Instant::now();
                result = Some(black_box(work()));
                times.push(start.elapsed().as_secs_f64());
            });
            memory = Some((used.bytes_max, used.bytes_current));
        }
        times.sort_by(f64::total_cmp);
        self.row(step, times[ROUNDS / 2], memory);
        result.unwrap()
    }

    fn row(&self, step: &str, seconds: f64, memory: Option<(u64, i64)>) {
        let mb = |bytes: f64| format!("{:.1}", bytes / 1e6);
        let (most, kept) =
            memory.map_or(Default::default(), |(most, kept)| (mb(most as f64), mb(kept as f64)));
        println!("| {} | {} | {step} | {seconds:.4} | {most} | {kept} |", self.shards, self.streams);
    }
}

fn measure(shards: usize, streams: usize) {
    let table = Table { shards, streams };
    let bucket = Arc::new(Bucket::new());
    let store =
        Store::builder().with_source("memory", Arc::clone(&bucket) as Arc<dyn Source>).build().unwrap();
    let pattern =
        format!("memory://bucket/datasets/train/shard-{{0000000..{:07}}}-of-{shards:07}.tar", shards - 1);

    let list = table.repeated("expand the list of shards", || ShardList::expand(&pattern).unwrap());
    let document = index_document(&list, bucket.content.len());
    drop(list);
    let index =
        table.repeated("read the index (JSON)", || Index::from_json(document.as_bytes(), "").unwrap());
    println!("| | | the document: {:.1} MB | | | |", document.len() as f64 / 1e6);
    drop(document);
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("index.json");
    let local = Store::default();
    table.repeated("write the index (JSON)", || index.save(&local, path.to_str().unwrap()).unwrap());
    let path = home.path().join("index.shidx");
    table.repeated("write the index (compact)", || index.save(&local, path.to_str().unwrap()).unwrap());
    let load = || Index::load(&local, path.to_str().unwrap()).unwrap();
    assert!(table.repeated("read the index (compact)", load) == index);
    println!("| | | the compact document: {:.1} MB | | | |", path.metadata().unwrap().len() as f64 / 1e6);

    let build = || {
        let topology = Topology::new(RANK, RANKS).unwrap();
        let dataset = Dataset::builder(pattern.as_str()).index(index.clone()).store(store.clone());
        dataset.topology(topology).streams(RANKS * streams).shuffle_shards(true).seed(42).build().unwrap()
    };
    let dataset = table.repeated("build the dataset of a rank", build);
    for epoch in 0..2 {
        let plan = || dataset.streams().iter().map(|stream| dataset.plan().stream(epoch, *stream)).collect();
        let slices: Vec<Vec<_>> = table.once(&format!("plan epoch {epoch} of a rank"), plan);
        assert!(slices.iter().all(|slices| !slices.is_empty()));
    }

    let loader = || Loader::builder(dataset.clone()).shuffle(100).threads(2).batch(BATCH).build().unwrap();
    let loader = table.repeated("build the loader", loader);
    let take = |step: &str, begin: &dyn Fn() -> Batches<Batch<Sample>>| {
        bucket.reset();
        let start = Instant::now();
        let mut batches = begin();
        let created = start.elapsed().as_secs_f64();
        let first = batches.next().unwrap().unwrap();
        let first_batch = start.elapsed().as_secs_f64();
        assert_eq!(first.len(), BATCH);
        let first_request = (bucket.first_request().unwrap() - start).as_secs_f64();
        table.row(&format!("{step}: created"), created, None);
        table.row(&format!("{step}: first request"), first_request, None);
        table.row(&format!("{step}: first batch"), first_batch, None);
        batches.state()
    };
    take("epoch 2", &|| loader.epochs(2));
    let state = take("epoch 3", &|| loader.epochs(3));

    let text = table.repeated("state of a rank: to JSON", || state.to_string());
    table.repeated("state of a rank: from JSON", || text.parse::<State>().unwrap());
    println!("| | | state of a rank: {:.4} MB | | | |", text.len() as f64 / 1e6);
    let states = rank_states(&text, streams);
    let job =
        table.repeated("merge the states of all ranks", || State::merge(states.iter().cloned()).unwrap());
    drop(states);
    let text = table.repeated("state of the job: to JSON", || job.to_string());
    table.repeated("state of the job: from JSON", || text.parse::<State>().unwrap());
    println!("| | | state of the job: {:.1} MB | | | |", text.len() as f64 / 1e6);
    take("restore the state of the job", &|| loader.restore(&job).unwrap());
    println!("| | | the process at most: {} MB of memory | | | |", peak_memory() / 1024);
}

/// A JSON index, written without reading shards.
fn index_document(list: &ShardList, bytes: usize) -> String {
    let mut text =
        String::from(r#"{"__kind__":"wids-shard-index-v1","wids_version":1,"name":"index","shardlist":["#);
    for (number, url) in list.iter().enumerate() {
        let comma = if number > 0 { ",\n" } else { "\n" };
        let (url, version) = (url.expose_secret(), 1_764_000_000_000_000_u64 + number as u64);
        write!(
            text,
            r#"{comma}{{"url":"{url}","nsamples":{SAMPLES},"filesize":{bytes},"version":"{version}"}}"#
        )
        .unwrap();
    }
    text.push_str("\n]}\n");
    text
}

/// The states of all ranks, derived from the state of one rank.
fn rank_states(text: &str, streams: usize) -> Vec<State> {
    let document: Value = serde_json::from_str(text).unwrap();
    let of_rank = |rank: usize| {
        let mut document = document.clone();
        for (local_stream, at) in (0..streams).zip(document["at"].as_array_mut().unwrap()) {
            at["stream"] = (rank + local_stream * RANKS).into();
        }
        document.to_string().parse().unwrap()
    };
    (0..RANKS).map(of_rank).collect()
}

/// Peak memory of the process, in KiB.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// Serves one archive under every name, and records the time of the first request.
struct Bucket {
    content: Bytes,
    first_request: Mutex<Option<Instant>>,
}

impl Bucket {
    fn new() -> Self {
        let mut archive = tar::Builder::new(Vec::new());
        for sample in 0..SAMPLES {
            let mut header = tar::Header::new_ustar();
            header.set_size(100);
            archive.append_data(&mut header, format!("{sample:08}.bin"), &[7; 100][..]).unwrap();
        }
        Bucket { content: archive.into_inner().unwrap().into(), first_request: Mutex::default() }
    }

    fn reset(&self) {
        *self.first_request.lock().unwrap() = None;
    }

    fn first_request(&self) -> Option<Instant> {
        *self.first_request.lock().unwrap()
    }
}

impl fmt::Debug for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Bucket")
    }
}

impl Source for Bucket {
    fn get(&self, _: &str, options: GetOptions) -> BoxFuture<'static, shardstream::Result<GetResponse>> {
        self.first_request.lock().unwrap().get_or_insert_with(Instant::now);
        let size = self.content.len() as u64;
        let range = options.range.unwrap_or(0..size);
        let range = range.start.min(size)..range.end.min(size);
        let content = self.content.slice(range.start as usize..range.end as usize);
        let body = stream::iter([Ok(content)]).boxed();
        ready(Ok(GetResponse::new(body).with_size(size).with_range(range))).boxed()
    }
}
