//! Packs the texts of Parquet files into rows of equal length, and resumes from a state in the middle.
//!
//! ```text
//! cargo run -p shardstream-parquet --example pack_texts
//! cargo run -p shardstream-parquet --example pack_texts -- 'hf://datasets/OWNER/NAME/data/*.parquet' text
//! ```

use shardstream::prelude::*;
use shardstream_parquet::Parquet;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let here = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/files/data/texts-*.parquet");
    let files = arguments.next().unwrap_or_else(|| here.into());
    let column = arguments.next().unwrap_or_else(|| "text".into());

    let dataset = Dataset::builder(files).format(Parquet::new().columns([&*column]));
    let dataset = dataset.shuffle_shards(true).seed(42).build()?;
    println!("{} texts in {} files", dataset.len().unwrap_or_default(), dataset.shards().len());
    // A real tokenizer returns the numbers of its tokens. Here, each byte is a token.
    let tokens = move |sample: Sample| {
        let text = sample.field(&column)?.as_bytes().cloned().unwrap_or_default();
        Ok(text.iter().map(|byte| u32::from(*byte)).collect::<Vec<_>>())
    };
    let loader = Loader::builder(dataset).shuffle(100).map(tokens).pack(512).batch(4).build()?;

    let mut batches = loader.epoch(0);
    let mut rows = 0;
    for batch in batches.by_ref().take(3) {
        rows += batch?.len();
    }
    let state = batches.state();
    drop(batches);
    for batch in loader.restore(&state)? {
        rows += batch?.len();
    }
    println!("{rows} rows of 512 tokens, with a restore after 3 batches");
    Ok(())
}
