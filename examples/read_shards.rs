//! Reads shards, and prints their samples (keys, fields, sizes) and the rate.
//!
//! ```text
//! cargo run --example read_shards -- 'data/train-{000000..000009}.tar' 5
//! cargo run --features gcs --example read_shards -- 'gs://bucket/train-*.tar'
//! ```

#[path = "support/progress.rs"]
mod progress;

use clap::Parser;
use progress::Progress;
use shardstream::prelude::*;
use std::error::Error;

/// Reads shards, and prints their samples (keys, fields, sizes) and the rate.
#[derive(Parser)]
struct Options {
    /// Pattern of the shards: a path or URL with braces or wildcards. Without a pattern, a small shard is
    /// first written to a temporary directory.
    pattern: Option<String>,
    /// Number of samples to print.
    #[arg(default_value_t = 10)]
    shown: usize,
}

fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::parse();
    let dir = tempfile::tempdir()?;
    let pattern = match options.pattern {
        Some(pattern) => pattern,
        None => demo(&format!("{}/demo-%06d.tar", dir.path().display()))?,
    };

    let dataset = Dataset::builder(pattern).build()?;
    println!("{} shards", dataset.shards().len());

    let mut progress = Progress::new()?;
    for (number, sample) in dataset.samples(0).enumerate() {
        let sample = sample?;
        if number < options.shown {
            let fields: Vec<String> =
                sample.fields().map(|(name, value)| format!("{name} ({} bytes)", value.size())).collect();
            progress.print(&format!("{}  {}: {}", sample.shard(), sample.key(), fields.join(", ")));
        }
        progress.add(1, sample.size());
    }
    println!("{}", progress.finish());
    println!("next: read on several threads and measure: cargo run --release --example throughput -- --help");
    Ok(())
}

/// Writes a small shard, and returns its path.
fn demo(pattern: &str) -> shardstream::Result<String> {
    let mut writer = ShardWriter::builder(pattern).build()?;
    for n in 0..20 {
        let text = format!("this is sample {n}");
        writer.write(&Sample::new(format!("{n:04}")).with("txt", text).with("cls", n % 10))?;
    }
    Ok(writer.finish()?.remove(0).url)
}
