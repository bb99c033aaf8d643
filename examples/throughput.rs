//! How fast a data set can be read on this machine, before anything is decoded.
//!
//! ```text
//! cargo run --release --example throughput -- samples 'data/train-{000000..000009}.tar'
//! cargo run --release --example throughput -- stream 'data/train-{000000..000009}.tar'
//! cargo run --release --example throughput -- loader 'data/train-{000000..000009}.tar' STREAMS THREADS SHUFFLE
//! cargo run --release --example throughput -- read 'data/train-{000000..000009}.tar'
//! ```
//!
//! It counts the samples and the bytes of their fields, and prints them with the seconds that passed, how long the first
//! sample took to come, or the first batch of 64, and what was transferred. `read` looks at no samples: it is what the
//! system takes to copy the same files into one buffer, which no reader can do without.

use futures::StreamExt as _;
use futures::executor::block_on_stream;
use shardstream::prelude::*;
use std::fs::File;
use std::io::Read as _;
use std::time::Instant;

/// Samples, and the bytes of their fields.
#[derive(Default)]
struct Count {
    samples: usize,
    bytes: usize,
    /// When the first came.
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

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [how, pattern, numbers @ ..] = &arguments[..] else {
        return Err(
            "usage: throughput samples|stream|loader|read PATTERN [STREAMS [THREADS [SHUFFLE]]]".into()
        );
    };
    let number = |at: usize, default| numbers.get(at).map_or(Ok(default), |number| number.parse());
    let dataset = Dataset::builder(pattern.as_str()).streams(number(0, 1)?).build()?;

    let store = dataset.store().clone();
    let begun = Instant::now();
    let mut count = Count::default();
    match how.as_str() {
        "samples" => {
            for sample in dataset.samples(0) {
                count.add(&sample?);
            }
        }
        "stream" => {
            for sample in block_on_stream(dataset.stream(0).boxed()) {
                count.add(&sample?);
            }
        }
        "loader" => {
            let loader = Loader::builder(dataset).threads(number(1, 1)?).shuffle(number(2, 0)?);
            let loader = loader.batch(64).build()?;
            for batch in loader.epoch(0) {
                batch?.iter().for_each(|sample| count.add(sample));
            }
        }
        "read" => count = read(dataset.shards())?,
        other => return Err(format!("{other} is none of samples, stream, loader, read").into()),
    }
    let seconds = begun.elapsed().as_secs_f64();
    let Count { samples, bytes, first } = count;
    let first = first.map_or(0.0, |first| (first - begun).as_secs_f64() * 1e3);
    let rate = samples as f64 / seconds;
    println!(
        "{samples} samples, {bytes} bytes, {seconds:.3} s, {rate:.0} samples/s, first after {first:.1} ms"
    );
    let report = store.report();
    if !report.sources.is_empty() {
        eprintln!("{report}");
    }
    Ok(())
}
