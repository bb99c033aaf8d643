//! Writes samples to a series of shards, limited by number of samples and size.
//!
//! ```text
//! cargo run --example write_shards -- 'out/train-%06d.tar'
//! cargo run --features gcs --example write_shards -- 'gs://bucket/train-%06d.tar'
//! ```
//!
//! Folders of images and lists of files become shards by `shardstream create` (docs/cli-writing.md), CIFAR-10
//! by `examples/make_shards`.

#[path = "support/progress.rs"]
mod progress;

use clap::Parser;
use progress::Progress;
use shardstream::SecretUrl;
use shardstream::prelude::*;
use std::error::Error;

/// Writes shards of small pictures with labels and captions, up to 1,000 in each.
#[derive(Parser)]
struct Options {
    /// The target: a path or URL with a number such as %06d in its name.
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
        // A field is raw bytes, such as those of a file, or a value that is encoded by the field's name.
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
    println!("next: an index of them: cargo run --example index_shards -- --help");
    Ok(())
}
