//! Measures how fast this machine reads a data set, without decoding it.
//!
//! ```text
//! cargo run --release --example throughput -- samples 'data/train-{000000..000009}.tar'
//! cargo run --release --example throughput -- stream 'data/train-{000000..000009}.tar'
//! cargo run --release --example throughput -- loader 'data/train-{000000..000009}.tar' \
//!     STREAMS THREADS SHUFFLE
//! cargo run --release --example throughput -- read 'data/train-{000000..000009}.tar'
//! ```
//!
//! Prints the number of samples, the bytes of their fields, the elapsed time, the time until the first sample
//! (or the first batch of 64), and a report of the transfers. `read` copies the same files into one buffer
//! and parses nothing: no reader can take less time. The scripts in `benches/compare` parse the first line.
//! To measure your own data, use `shardstream bench` (`crates/cli`).

use clap::{Parser, ValueEnum};
use futures::StreamExt as _;
use futures::executor::block_on_stream;
use shardstream::prelude::*;
use std::fs::File;
use std::io::Read as _;
use std::time::Instant;

/// Number of samples, number of bytes of their fields, and the time of the first sample.
#[derive(Default)]
struct Count {
    samples: usize,
    bytes: usize,
    first: Option<Instant>,
}

impl Count {
    fn add(&mut self, sample: &Sample) {
        self.first.get_or_insert_with(Instant::now);
        self.samples += 1;
        self.bytes += sample.size();
    }
}

/// Reads whole files into one buffer, and counts their bytes.
fn read(shards: &ShardList) -> std::io::Result<Count> {
    let (mut count, mut buffer) = (Count::default(), vec![0; 512 << 10]);
    for path in shards.iter() {
        let mut file = File::open(path.expose_secret())?;
        loop {
            match file.read(&mut buffer)? {
                0 => break,
                bytes => count.bytes += bytes,
            }
        }
    }
    Ok(count)
}

/// Measures how fast this machine reads a data set, without decoding it.
#[derive(Parser)]
struct Options {
    /// The API that reads.
    method: ReadMethod,
    /// Shards: a path or URL with braces or wildcards.
    pattern: String,
    /// Number of logical streams.
    #[arg(default_value_t = 1)]
    streams: usize,
    /// Number of threads of the loader.
    #[arg(default_value_t = 1)]
    threads: usize,
    /// Size of the loader's shuffle buffer in samples.
    #[arg(default_value_t = 0)]
    shuffle: usize,
}

/// The API that reads the shards.
#[derive(Clone, Copy, ValueEnum)]
enum ReadMethod {
    /// An iterator over samples.
    Samples,
    /// An asynchronous stream of samples.
    Stream,
    /// A loader, which reads batches of 64 on threads.
    Loader,
    /// The system call `read`, from local files into one buffer.
    Read,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let options = Options::parse();
    let dataset = Dataset::builder(options.pattern.as_str()).streams(options.streams).build()?;

    let store = dataset.store().clone();
    let start = Instant::now();
    let mut count = Count::default();
    let mut report = None;
    match options.method {
        ReadMethod::Samples => {
            for sample in dataset.samples(0) {
                count.add(&sample?);
            }
        }
        ReadMethod::Stream => {
            for sample in block_on_stream(dataset.stream(0).boxed()) {
                count.add(&sample?);
            }
        }
        ReadMethod::Loader => {
            let loader = Loader::builder(dataset).threads(options.threads).shuffle(options.shuffle);
            let mut batches = loader.batch(64).build()?.epoch(0);
            for batch in batches.by_ref() {
                batch?.iter().for_each(|sample| count.add(sample));
            }
            report = Some(batches.report());
        }
        ReadMethod::Read => count = read(dataset.shards())?,
    }
    let seconds = start.elapsed().as_secs_f64();
    let Count { samples, bytes, first } = count;
    let first_ms = first.map_or(0.0, |first| (first - start).as_secs_f64() * 1e3);
    let rate = samples as f64 / seconds;
    let megabytes = bytes as f64 / 1e6 / seconds;
    println!(
        "{samples} samples, {bytes} bytes, {seconds:.3} s, {rate:.0} samples/s, {megabytes:.1} MB/s, first \
         after {first_ms:.1} ms"
    );
    match report {
        Some(report) => eprintln!("{report}"),
        None if store.report().is_empty() => {}
        None => eprintln!("{}", store.report()),
    }
    Ok(())
}
