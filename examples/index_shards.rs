//! Indexes shards by reading their tar headers, saves the index, and prints a summary.
//!
//! ```text
//! cargo run --example index_shards -- 'data/train-{000000..000009}.tar' data/train.json
//! cargo run --features gcs --example index_shards -- 'gs://bucket/train-*.tar' gs://bucket/train.json
//! ```

use clap::Parser;
use indicatif::{HumanBytes, ProgressBar, ProgressStyle};
use shardstream::SecretUrl;
use shardstream::dataset::Shards;
use shardstream::prelude::*;
use std::error::Error;
use std::time::Instant;

/// Indexes shards by reading their tar headers, saves the index, and prints a summary.
#[derive(Parser)]
struct Options {
    /// Pattern of the shards: a path or URL with braces or wildcards. Without a pattern, five small shards
    /// are first written to a temporary directory.
    pattern: Option<String>,
    /// Path or URL for the index.
    index: Option<String>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::parse();
    let dir = tempfile::tempdir()?;
    let dir = dir.path().display();
    let pattern = match options.pattern {
        Some(pattern) => pattern,
        None => demo(&format!("{dir}/demo-%06d.tar"))?,
    };
    let index_url = options.index.unwrap_or(format!("{dir}/demo.json"));

    let store = Store::default();
    let shards = Shards::from(pattern).resolve(&store)?;
    let progress = ProgressBar::new(shards.len() as u64);
    progress.set_style(ProgressStyle::with_template("{bar:40} {pos}/{len} shards, {eta} left {msg}")?);
    let bar = progress.clone();
    let mut samples = 0;
    let start = Instant::now();
    let index = Index::builder()
        .store(store.clone())
        .on_shard(move |shard| {
            samples += shard.samples();
            bar.set_message(format!("({samples} samples)"));
            bar.inc(1);
        })
        .build(&shards)?;
    progress.finish_and_clear();

    index.save(&store, &index_url)?;
    let bytes = index.iter().filter_map(|shard| shard.bytes()).sum();
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "{} shards with {} samples and {}, indexed in {seconds:.2} s from the headers: {:.0} samples/s, \
         {:.1} MB/s",
        index.len(),
        index.samples(),
        HumanBytes(bytes),
        index.samples() as f64 / seconds,
        bytes as f64 / 1e6 / seconds
    );
    let index_bytes = store.open(&index_url)?.read_all()?.len() as u64;
    println!("{}: {}", SecretUrl::from(&index_url), HumanBytes(index_bytes));
    println!(
        "next: pass the index to `DatasetBuilder::index`, so that all ranks get the same number of samples \
         (docs/guide.md, section 10)"
    );
    Ok(())
}

/// Writes five small shards, and returns their pattern.
fn demo(pattern: &str) -> shardstream::Result<String> {
    let mut writer = ShardWriter::builder(pattern).max_count(1000).build()?;
    for n in 0..5000_i64 {
        let image = vec![n as u8; 1000 + (n % 100) as usize];
        writer.write(&Sample::new(format!("{n:06}")).with("jpg", image).with("cls", n % 10))?;
    }
    writer.finish()?;
    Ok(pattern.replace("%06d", "{000000..000004}"))
}
