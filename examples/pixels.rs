//! Measures the way from shards to batches for a device: samples per second, CPU time and memory.
//!
//! ```text
//! cargo run --release --example pixels -- imagenet 'data/imagenet-{00..15}.tar' --threads 2 --passes 3
//! ```
//!
//! | task | what is in the shards | what happens to it |
//! |---|---|---|
//! | `imagenet` | `jpg`, `cls` | RandomResizedCrop 224, flip, normalised `f32`, NCHW, batches of 64 |
//! | `cifar` | `png` of 32 x 32, `cls` | padding 4, crop, flip, normalised `f32`, NCHW, batches of 128 |
//! | `json` | `json` | the bytes of the documents, one after the other, in batches of 256 |
//! | `tokens` | `npy` of 1024 `uint16` | `i32[64, 1024]` |
//! | `raw` | anything | the samples as they are, in batches of 64 |
//!
//! It prints a line of JSON. `benches/compare/pixels.py` runs it beside other loaders.

use clap::Parser;
use shardstream::collate::Blob;
use shardstream::prelude::*;
use std::error::Error;
use std::time::{Duration, Instant};

const MEAN: [f32; 3] = [0.485, 0.456, 0.406];
const DEVIATION: [f32; 3] = [0.229, 0.224, 0.225];

/// The columns of a task, and its batch size.
fn columns(task: &str) -> Result<(Columns, usize), Box<dyn Error>> {
    let image = |field, size: u32| {
        let image = ImageColumn::new(field, size).layout(Layout::Chw).dtype(DType::F32);
        image.normalize(MEAN, DEVIATION)
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
        other => return Err(format!("{other} is none of imagenet, cifar, json, tokens, raw").into()),
    })
}

/// The peak memory of the process in megabytes, on Linux.
fn peak_megabytes() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.split_whitespace().next()?.parse::<f64>().ok()? / 1024.0)
}

/// Measures the way from shards to batches for a device.
#[derive(Parser)]
struct Options {
    /// The content of the shards: imagenet, cifar, json, tokens or raw.
    task: String,
    /// Shards: braces, wildcards, any URL.
    pattern: String,
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Number of epochs.
    #[arg(long, default_value_t = 1)]
    passes: u64,
}

/// The CPU time of this process; none where the system does not say.
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
    let Options { task, pattern, threads, passes } = Options::parse();
    let dataset = Dataset::builder(pattern.as_str()).shuffle_shards(true).build()?;
    let loader = Loader::builder(dataset).threads(threads);

    let (begun, cpu) = (Instant::now(), cpu_time());
    let (mut samples, mut bytes) = (0, 0);
    if task == "raw" {
        let loader = loader.batch(64).build()?;
        for batch in (0..passes).flat_map(|epoch| loader.epoch(epoch)) {
            let batch = batch?;
            samples += batch.len();
            bytes += batch.iter().map(Sample::size).sum::<usize>();
        }
    } else {
        let (columns, batch) = columns(&task)?;
        let loader = loader.batch(batch).collate(columns).build()?;
        for batch in (0..passes).flat_map(|epoch| loader.epoch(epoch)) {
            let batch = batch?;
            samples += batch.len();
            bytes += batch.iter().map(|(_, tensor)| tensor.size()).sum::<usize>();
        }
    }
    let (wall, cpu) = (begun.elapsed().as_secs_f64(), (cpu_time() - cpu).as_secs_f64());
    let report = serde_json::json!({
        "task": task,
        "variant": if cfg!(feature = "turbojpeg") { "turbojpeg" } else { "default" },
        "threads": threads,
        "samples": samples,
        "bytes": bytes,
        "samples_per_second": samples as f64 / wall,
        "mb_per_second": bytes as f64 / 1e6 / wall,
        "wall_s": wall,
        "cpu_s": cpu,
        "rss_mb": peak_megabytes(),
    });
    println!("{report}");
    Ok(())
}
