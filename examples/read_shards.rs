//! Reads shards and prints their samples: keys, fields, sizes, and how fast it went.
//!
//! ```text
//! cargo run --example read_shards -- 'data/train-{000000..000009}.tar' 5
//! cargo run --features gcs --example read_shards -- 'gs://bucket/train-*.tar'
//! ```
//!
//! Without a pattern it writes a small shard first, and reads that.

use indicatif::{HumanBytes, ProgressBar};
use shardstream::prelude::*;
use std::error::Error;
use std::time::Instant;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let dir = tempfile::tempdir()?;
    let pattern = match arguments.next() {
        Some(pattern) => pattern,
        None => demo(&format!("{}/demo-%06d.tar", dir.path().display()))?,
    };
    let shown: usize = arguments.next().map_or(Ok(10), |count| count.parse())?;

    let dataset = Dataset::builder(pattern).build()?;
    println!("{} shards", dataset.shards().len());

    let progress = ProgressBar::new_spinner();
    let (start, mut samples, mut bytes) = (Instant::now(), 0, 0);
    for sample in progress.wrap_iter(dataset.samples(0)) {
        let sample = sample?;
        if samples < shown {
            let fields: Vec<String> =
                sample.fields().map(|(name, value)| format!("{name} ({} bytes)", value.size())).collect();
            progress.suspend(|| println!("{}  {}: {}", sample.shard(), sample.key(), fields.join(", ")));
        }
        samples += 1;
        bytes += sample.size() as u64;
    }
    progress.finish_and_clear();
    let seconds = start.elapsed().as_secs_f64();
    println!("{samples} samples, {} in {seconds:.2} s", HumanBytes(bytes));
    Ok(())
}

/// Writes a shard to look at, and returns where it is.
fn demo(pattern: &str) -> shardstream::Result<String> {
    let mut writer = ShardWriter::builder(pattern).build()?;
    for n in 0..20 {
        let text = format!("this is sample {n}");
        writer.write(&Sample::new(format!("{n:04}")).with("txt", text).with("cls", n % 10))?;
    }
    Ok(writer.finish()?.remove(0).url)
}
