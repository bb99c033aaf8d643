//! Indexes shards from their headers, saves the index, and says what is in it.
//!
//! ```text
//! cargo run --example index_shards -- 'data/train-{000000..000009}.tar' data/train.json
//! cargo run --features gcs --example index_shards -- 'gs://bucket/train-*.tar' gs://bucket/train.json
//! ```
//!
//! Without arguments it writes a few small shards first, and indexes those.

use indicatif::{HumanBytes, ProgressBar, ProgressStyle};
use shardstream::SecretUrl;
use shardstream::dataset::Shards;
use shardstream::prelude::*;
use std::error::Error;
use std::time::Instant;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let dir = tempfile::tempdir()?;
    let dir = dir.path().display();
    let pattern = match arguments.next() {
        Some(pattern) => pattern,
        None => demo(&format!("{dir}/demo-%06d.tar"))?,
    };
    let place = arguments.next().unwrap_or(format!("{dir}/demo.json"));

    let store = Store::default();
    let shards = Shards::from(pattern).resolve(&store)?;
    let progress = ProgressBar::new(shards.len() as u64);
    progress.set_style(ProgressStyle::with_template("{bar:40} {pos}/{len} shards, {eta} left {msg}")?);
    let (shown, mut samples) = (progress.clone(), 0);
    let start = Instant::now();
    let index = Index::builder()
        .store(store.clone())
        .on_shard(move |shard| {
            samples += shard.samples();
            shown.set_message(format!("({samples} samples)"));
            shown.inc(1);
        })
        .build(&shards)?;
    progress.finish_and_clear();

    index.save(&store, &place)?;
    let bytes = index.iter().filter_map(|shard| shard.bytes()).sum();
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "{} shards of {} samples, {} in {seconds:.2} s",
        index.len(),
        index.samples(),
        HumanBytes(bytes)
    );
    println!("{}: {}", SecretUrl::from(&place), HumanBytes(store.open(&place)?.read_all()?.len() as u64));
    Ok(())
}

/// Writes shards to index, and returns their pattern.
fn demo(pattern: &str) -> shardstream::Result<String> {
    let mut writer = ShardWriter::builder(pattern).max_count(1000).build()?;
    for n in 0..5000_i64 {
        let image = vec![n as u8; 1000 + (n % 100) as usize];
        writer.write(&Sample::new(format!("{n:06}")).with("jpg", image).with("cls", n % 10))?;
    }
    writer.finish()?;
    Ok(pattern.replace("%06d", "{000000..000004}"))
}
