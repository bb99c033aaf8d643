//! The cost of random access to samples: by number and by key, one at a time and many together.
//!
//! `cargo bench --bench single -- DIRECTORY [COUNT]` reads the shards of a directory. The directory must have
//! the `index.json` and the `index.json.shkeys` that `shardstream index build --keys` writes. For each way of
//! access, the benchmark prints a line: its name, the microseconds of the first sample (including the time to
//! open the dataset), and the mean microseconds per sample of COUNT random samples.
//! `benches/compare/single.py` writes such a directory, and compares this crate with Python's `wids`.

use shardstream::index::KeyIndex;
use shardstream::prelude::*;
use shardstream::{Result, Rng};
use std::hint::black_box;
use std::time::Instant;

fn main() -> Result<()> {
    let arguments: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    // `cargo test` runs this program too, without a directory.
    let Some(directory) = arguments.first() else { return Ok(()) };
    let count = arguments.get(1).map_or(1000, |count| count.parse().expect("a number"));
    let (store, index_path) = (Store::default(), format!("{directory}/index.json"));
    let open = || {
        let index = Index::load(&store, &index_path)?;
        Dataset::builder(index.shards()).store(store.clone()).index(index).build()
    };
    let samples = open()?.indexed_view()?;
    let mut rng = Rng::new(0, 0, 0);
    let numbers: Vec<u64> = (0..count).map(|_| rng.below(samples.len())).collect();
    let keys: Vec<String> =
        numbers.iter().map(|number| Ok(samples.get(*number)?.key().to_owned())).collect::<Result<_>>()?;

    let start = Instant::now();
    black_box(open()?.indexed_view()?.get(numbers[0])?);
    let first = start.elapsed();
    let start = Instant::now();
    for number in &numbers {
        black_box(samples.get(*number)?);
    }
    report("by number", first, start, count);

    // Keeps all samples in memory at once, as `get_many` does.
    let start = Instant::now();
    let kept: Vec<_> = numbers.iter().map(|number| samples.get(*number)).collect::<Result<_>>()?;
    report("by number, all kept", first, start, count);
    drop(kept);

    let start = Instant::now();
    black_box(open()?.indexed_view()?.get_many(&numbers[..1])?);
    let first = start.elapsed();
    let start = Instant::now();
    black_box(samples.get_many(&numbers)?);
    report("many together", first, start, count);

    let start = Instant::now();
    let table = KeyIndex::open(&store, &format!("{index_path}.shkeys"))?;
    black_box(open()?.by_key(&table, &keys[0])?);
    let first = start.elapsed();
    let start = Instant::now();
    for key in &keys {
        black_box(samples.dataset().by_key(&table, key)?);
    }
    report("by key", first, start, count);
    Ok(())
}

fn report(name: &str, first: std::time::Duration, start: Instant, count: usize) {
    let each = start.elapsed().as_secs_f64() * 1e6 / count as f64;
    println!("{name}\t{:.0}\t{each:.1}", first.as_secs_f64() * 1e6);
}
