//! Measures loading from shards to tensor batches: samples per second, CPU time and memory.
//!
//! ```text
//! cargo run --release --example pixels -- imagenet 'data/imagenet-{00..15}.tar' --threads 2 --passes 3
//! ```
//!
//! | task | fields of the samples | batches |
//! |---|---|---|
//! | `imagenet` | `jpg`, `cls` | RandomResizedCrop 224, flip, normalised `f32`, NCHW, batches of 64 |
//! | `cifar` | `png` of 32 x 32, `cls` | padding 4, crop, flip, normalised `f32`, NCHW, batches of 128 |
//! | `json` | `json` | the bytes of the documents, one after the other, in batches of 256 |
//! | `tokens` | `npy` of 1024 `uint16` | `i32[64, 1024]` |
//! | `raw` | any | undecoded samples, in batches of 64 |
//!
//! The program prints one line of JSON. `benches/compare/pixels.py` runs it beside other loaders. With
//! `--seconds`, epochs follow each other without a pause until the time is over, and the line includes the
//! loader's report.

use clap::Parser;
use shardstream::collate::Blob;
use shardstream::loader::Report;
use shardstream::prelude::*;
use std::error::Error;
use std::time::{Duration, Instant};

const MEAN: [f32; 3] = [0.485, 0.456, 0.406];
const DEVIATION: [f32; 3] = [0.229, 0.224, 0.225];

/// The columns of a task, and its batch size.
fn columns(task: &str, verify: bool) -> Result<(Columns, usize), Box<dyn Error>> {
    let image = |field, size: u32| {
        let image = ImageColumn::new(field, size).layout(Layout::Chw).dtype(DType::F32);
        image.normalize(MEAN, DEVIATION).verify(verify)
    };
    let label = Scalar::<i64>::new("cls");
    Ok(match task {
        "imagenet" => {
            let crop = RandomResizedCrop::new(224)?;
            let image = image("jpg", 224).then(crop).then(RandomHorizontalFlip::new(0.5)?);
            (Columns::new().with("image", image).with("label", label), 64)
        }
        "cifar" => {
            let crop = RandomCrop::new(32)?.padding(4);
            let image = image("png", 32).then(crop).then(RandomHorizontalFlip::new(0.5)?);
            (Columns::new().with("image", image).with("label", label), 128)
        }
        "json" => (Columns::new().with("json", Blob::new("json")), 256),
        "tokens" => (Columns::new().with("tokens", Tokens::<i32>::new("npy", 1024)), 64),
        other => {
            return Err(format!("unknown task {other}: imagenet, cifar, json, tokens or raw").into());
        }
    })
}

/// The peak memory of the process in MiB; `None` if the system is not Linux.
fn peak_megabytes() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.split_whitespace().next()?.parse::<f64>().ok()? / 1024.0)
}

/// Measures loading from shards to tensor batches.
#[derive(Parser)]
struct Options {
    /// The content of the shards: imagenet, cifar, json, tokens or raw.
    task: String,
    /// Shards: a path or URL with braces or wildcards.
    pattern: String,
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Number of epochs.
    #[arg(long, default_value_t = 1)]
    passes: u64,
    /// Seconds to read for, instead of a number of epochs.
    #[arg(long, conflicts_with = "passes")]
    seconds: Option<f64>,
    /// Decode JPEG files only as far as the crop needs, and do not verify the rest.
    #[arg(long)]
    unverified: bool,
    /// Number of streams, instead of the default.
    #[arg(long)]
    streams: Option<usize>,
}

/// The results of a measurement.
#[derive(Default)]
struct Totals {
    samples: usize,
    bytes: usize,
    wall: Duration,
    cpu: Duration,
    report: Option<Report>,
}

/// Reads the batches of a loader. `count` returns the number of samples and bytes of a batch.
fn read<B: Send + 'static>(
    loader: &Loader<B>,
    options: &Options,
    count: impl Fn(&B) -> (usize, usize),
) -> Result<Totals, Box<dyn Error>> {
    let (start, cpu) = (Instant::now(), cpu_time());
    let mut totals = Totals::default();
    let mut add = |batch: shardstream::Result<B>| -> Result<(), Box<dyn Error>> {
        let (samples, bytes) = count(&batch?);
        totals.samples += samples;
        totals.bytes += bytes;
        Ok(())
    };
    match options.seconds {
        None => (0..options.passes).flat_map(|epoch| loader.epoch(epoch)).try_for_each(add)?,
        Some(seconds) => {
            let mut batches = loader.epochs(0);
            while start.elapsed().as_secs_f64() < seconds {
                batches.next().map_or(Ok(()), &mut add)?;
            }
            // The times are taken before `batches` is dropped, since dropping it ends the threads and frees
            // the batches that are ready.
            totals.wall = start.elapsed();
            totals.cpu = cpu_time() - cpu;
            totals.report = Some(batches.report());
            return Ok(totals);
        }
    }
    totals.wall = start.elapsed();
    totals.cpu = cpu_time() - cpu;
    Ok(totals)
}

/// The CPU time of this process; zero on systems other than Unix.
fn cpu_time() -> Duration {
    #[cfg(unix)]
    {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    }
    #[cfg(not(unix))]
    Duration::ZERO
}

fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::parse();
    let dataset = Dataset::builder(options.pattern.as_str()).shuffle_shards(true);
    let dataset = match options.streams {
        Some(streams) => dataset.streams(streams),
        None => dataset,
    };
    let loader = Loader::builder(dataset.build()?).threads(options.threads);

    let Totals { samples, bytes, wall, cpu, report } = if options.task == "raw" {
        let size = |batch: &Batch<Sample>| (batch.len(), batch.iter().map(Sample::size).sum());
        read(&loader.batch(64).build()?, &options, size)?
    } else {
        let (columns, batch) = columns(&options.task, !options.unverified)?;
        let size = |batch: &TensorBatch| (batch.len(), batch.iter().map(|(_, tensor)| tensor.size()).sum());
        read(&loader.batch(batch).collate(columns).build()?, &options, size)?
    };
    let (wall, cpu) = (wall.as_secs_f64(), cpu.as_secs_f64());
    let report = serde_json::json!({
        "task": options.task,
        "variant": if cfg!(feature = "turbojpeg") { "turbojpeg" } else { "default" },
        "threads": options.threads,
        "samples": samples,
        "bytes": bytes,
        "samples_per_second": samples as f64 / wall,
        "mb_per_second": bytes as f64 / 1e6 / wall,
        "wall_s": wall,
        "cpu_s": cpu,
        "rss_mb": peak_megabytes(),
        "report": report,
    });
    println!("{report}");
    Ok(())
}
