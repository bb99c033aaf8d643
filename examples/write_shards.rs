//! Writes samples to a series of shards. Each shard has at most 1,000 samples and a maximum size in bytes.
//!
//! ```text
//! cargo run --example write_shards -- 'out/train-%06d.tar'
//! cargo run --features gcs --example write_shards -- 'gs://bucket/train-%06d.tar'
//! ```
//!
//! To make shards from folders of images or lists of files, use `shardstream create` (docs/cli-writing.md);
//! to make shards of CIFAR-10, use `examples/make_shards`.

#[path = "support/progress.rs"]
mod progress;

use clap::Parser;
use progress::Progress;
use shardstream::SecretUrl;
use shardstream::prelude::*;
use std::error::Error;

/// Writes shards of up to 1,000 small pictures with labels and captions.
#[derive(Parser)]
struct Options {
    /// Path or URL of the shards, in which a placeholder such as %06d is replaced by the shard's number.
    pattern: String,
    /// Number of samples.
    #[arg(long, default_value_t = 2500)]
    samples: i64,
}

fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::parse();
    let mut writer = ShardWriter::builder(options.pattern).max_count(1000).max_bytes(500_000_000).build()?;
    let mut progress = Progress::new()?;
    for n in 0..options.samples {
        // The value of a field is raw bytes, such as those of a file, or a value that the writer encodes in
        // the format of the field's extension.
        let pixels = (0..32 * 32 * 3).map(|at| (at * n / 97) as u8).collect::<Vec<u8>>();
        let image = Image::new(ImageMode::Rgb8, 32, pixels)?;
        let sample = Sample::new(format!("{n:06}")).with("png", image).with("cls", n % 10);
        let sample = sample.with("txt", format!("picture {n}"));
        progress.add(1, sample.size());
        writer.write(&sample)?;
    }
    let shards = writer.finish()?;
    println!("{}", progress.finish());
    for shard in shards {
        println!("{}: {} samples, {} bytes", SecretUrl::from(shard.url), shard.samples, shard.bytes);
    }
    println!("next: index the shards: cargo run --example index_shards -- --help");
    Ok(())
}
