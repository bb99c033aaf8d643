//! Reads shards through the asynchronous API: a `Stream` on tokio, with the stages of the blocking API.
//!
//! ```text
//! cargo run --example async_stream -- 'data/train-{000000..000009}.tar'
//! ```
//!
//! The stream works on any executor, not only on tokio.

#[path = "support/progress.rs"]
mod progress;

use clap::Parser;
use futures::TryStreamExt;
use progress::Progress;
use shardstream::prelude::*;
use shardstream::store::object_store::memory::InMemory;
use std::error::Error;
use std::sync::Arc;

/// Streams shards on tokio: first on one task, then with a loader's threads.
#[derive(Parser)]
struct Options {
    /// Pattern of shards with the fields `txt` and `cls`. Without a pattern, a small shard is first written
    /// to memory.
    pattern: Option<String>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::parse();
    let store = Store::builder().with_object_store("mem", Arc::new(InMemory::new())).build()?;
    let pattern = match options.pattern {
        Some(pattern) => pattern,
        None => demo(&store)?,
    };
    let dataset = Dataset::builder(pattern).store(store).seed(42).build()?;

    // On the caller's task: read, parse, shuffle, decode and batch, one sample at a time.
    let batches = dataset
        .stream(0)
        .shuffle(100)
        .decode(Decoder::new())
        .to_tuple::<(String, i64)>(["txt", "cls"])
        .batch(8);
    batches
        .try_for_each(async |batch| {
            let (texts, labels): (Vec<String>, Vec<i64>) = batch.unzip();
            println!("{labels:?}  {:?} …", texts[0]);
            Ok(())
        })
        .await?;

    // A loader does the same on threads, ahead of the consumer.
    let loader = Loader::builder(dataset).shuffle(100).decode(Decoder::new()).batch(8).build()?;
    let mut batches = loader.epoch(0).into_stream();
    let mut progress = Progress::new()?;
    while let Some(batch) = batches.try_next().await? {
        progress.add(batch.len(), batch.iter().map(Sample::size).sum());
    }
    println!("{}", progress.finish());
    println!("{}", batches.get_ref().report());
    println!("next: a loader with columns of tensors: docs/recipes.md");
    Ok(())
}

/// Writes a small shard, and returns its URL.
fn demo(store: &Store) -> shardstream::Result<String> {
    let mut writer = ShardWriter::builder("mem://demo/%06d.tar").store(store.clone()).build()?;
    for n in 0..40 {
        let text = format!("this is sample {n}");
        writer.write(&Sample::new(format!("{n:04}")).with("txt", text).with("cls", n % 10))?;
    }
    Ok(writer.finish()?.remove(0).url)
}
