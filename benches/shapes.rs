//! Packing and bucketing: share of padding, cost per document, and samples that a restore reads again.
//!
//! `cargo bench --bench shapes --no-default-features` prints tables in Markdown. The lengths of documents are
//! log-normal: the logarithm has mean 6 and standard deviation 1 (median 403, a tenth above 1,450).

use shardstream::adapters::{Buckets, Fit, IteratorExt, Pack};
use shardstream::loader::LoaderBuilder;
use shardstream::prelude::*;
use shardstream::{Result, Rng};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

const ROW: usize = 2048;
const LIMITS: [usize; 5] = [128, 256, 512, 1024, 2048];

fn lengths(count: usize) -> Vec<usize> {
    let mut rng = Rng::new(7, 0, 0);
    let mut normal = || (0..12).map(|_| rng.unit()).sum::<f64>() - 6.0;
    (0..count).map(|_| ((6.0 + normal()).exp() as usize + 1).min(ROW)).collect()
}

fn main() -> Result<()> {
    let lengths = lengths(100_000);
    let total: usize = lengths.iter().sum();
    println!(
        "## Rows of {ROW} tokens, {} documents\n\n| | filled | ns per document |\n|---|--:|--:|",
        lengths.len()
    );
    for (fit, look_ahead) in [
        (Fit::First, 100),
        (Fit::First, 1000),
        (Fit::First, 4000),
        (Fit::Best, 100),
        (Fit::Best, 1000),
        (Fit::Best, 4000),
        (Fit::Contiguous, 1),
    ] {
        let documents: Vec<Vec<i32>> = lengths.iter().map(|length| vec![1; *length]).collect();
        let start = Instant::now();
        let rows =
            documents.into_iter().map(Ok).pipeline().pack(Pack::new(ROW).look_ahead(look_ahead).fit(fit));
        let rows = rows.map(|row| Ok(row.len())).collect::<Result<Vec<_>>>()?;
        let cost = start.elapsed().as_nanos() as f64 / lengths.len() as f64;
        let filled = total as f64 / (rows.len() * ROW) as f64;
        println!("| {fit:?}, look-ahead {look_ahead} | {:.2} % | {cost:.0} |", 100.0 * filled);
    }
    bucket_fill(&lengths, total)?;
    restores()
}

/// Compares scheduled buckets with unscheduled buckets. Without a schedule, each rank returns a batch as soon
/// as one of its buckets is full, as `tf.data.Dataset.bucket_by_sequence_length` does.
fn bucket_fill(lengths: &[usize], total: usize) -> Result<()> {
    let budget = 8 * ROW;
    println!(
        "\n## Batches of {budget} tokens in the shapes {LIMITS:?}\n\n| | filled | batches |\n|---|--:|--:|"
    );
    let longest = lengths.chunks(8).map(|batch| 8 * batch.iter().max().unwrap_or(&0)).sum::<usize>();
    println!(
        "| 8 documents, padded to {ROW} | {:.2} % | {} |",
        percent(total, lengths.len() * ROW),
        lengths.len() / 8
    );
    println!(
        "| 8 documents, padded to the longest (any shape) | {:.2} % | {} |",
        percent(total, longest),
        lengths.len() / 8
    );
    let bucket = |length: &usize| LIMITS.iter().position(|limit| length <= limit).unwrap_or(0);
    let (mut capacity, mut batches) = (0, 0);
    for (number, limit) in LIMITS.iter().enumerate() {
        let items = lengths.iter().filter(|length| bucket(length) == number).copied().map(Ok);
        for group in items.pipeline().group_by(budget / limit, |_: &usize| Ok(0)) {
            group?;
            (capacity, batches) = (capacity + budget, batches + 1);
        }
    }
    println!("| the bucket that is full first | {:.2} % | {batches} |", percent(total, capacity));
    for ranks in [1, 4] {
        let (mut used, mut capacity, mut batch_count) = (0, 0, 0);
        let start = Instant::now();
        for rank in 0..ranks {
            let dir = tempfile::tempdir().map_err(shardstream::Error::step)?;
            let loader = bucket_loader(&dir, lengths, Topology::new(rank, ranks)?)?;
            let mut batches = loader.epoch(0);
            batch_count += batches.by_ref().filter(Result::is_ok).count();
            let fill = batches.report().fill.unwrap_or_default();
            (used, capacity) = (used + fill.used, capacity + fill.capacity);
        }
        let (share, seconds) = (percent(used as usize, capacity as usize), start.elapsed().as_secs_f64());
        println!(
            "| by schedule, {ranks} ranks, to the end of the epoch | {share:.2} % | {} ({seconds:.1} s) |",
            batch_count
        );
    }
    Ok(())
}

fn percent(used: usize, capacity: usize) -> f64 {
    100.0 * used as f64 / capacity.max(1) as f64
}

/// A loader that collects documents in buckets by length. The only field of a document is its length.
fn bucket_loader(
    dir: &tempfile::TempDir,
    lengths: &[usize],
    topology: Topology,
) -> Result<Loader<Batch<usize>>> {
    let shards = write_shards(dir, lengths)?;
    let dataset = Dataset::builder(shards).streams(8).topology(topology).build()?;
    let buckets =
        Buckets::lengths(LIMITS).budget(8 * ROW).count(lengths[..10_000].iter().map(|length| [*length]));
    items(dataset).shuffle(1000).buckets(buckets, |length| Ok([*length])).build()
}

fn items(dataset: Dataset) -> LoaderBuilder<usize> {
    let loader = Loader::builder(dataset).threads(0).decode(Decoder::new());
    loader.map(|mut sample| Ok(sample.take::<i64>("cls")? as usize))
}

fn write_shards(dir: &tempfile::TempDir, lengths: &[usize]) -> Result<ShardList> {
    let pattern = format!("{}/%06d.tar", dir.path().display());
    let mut writer = ShardWriter::builder(pattern).max_count(lengths.len() as u64 / 16 + 1).build()?;
    for (number, length) in lengths.iter().enumerate() {
        writer.write(&Sample::new(format!("{number:06}")).with("cls", *length as i64))?;
    }
    Ok(ShardList::from_urls(writer.finish()?.into_iter().map(|shard| shard.url)))
}

/// Measures how many samples a restore reads again, and its time to the first batch.
fn restores() -> Result<()> {
    let lengths = lengths(40_000);
    let dir = tempfile::tempdir().map_err(shardstream::Error::step)?;
    let shards = write_shards(&dir, &lengths)?;
    println!(
        "\n## A restore, 8 streams, 40,000 documents with an index\n\n\
         | | state, bytes | samples read again, at 10 % | ms | at 90 % | ms |\n|---|--:|--:|--:|--:|--:|"
    );
    let mapped = Arc::new(AtomicUsize::new(0));
    for kind in ["map", "chunked", "Fit::Best", "Fit::Contiguous", "group_by", "buckets"] {
        let index = shardstream::index::AutoIndex::in_directory(dir.path());
        let dataset = Dataset::builder(shards.clone()).auto_index(index).streams(8).build()?;
        let counter = Arc::clone(&mapped);
        let items = items(dataset).shuffle(1000).map(move |length| {
            counter.fetch_add(1, Relaxed);
            Ok(length)
        });
        let documents = |items: LoaderBuilder<usize>| items.map(|length| Ok(vec![1u8; length]));
        let pack = |fit| Pack::new(ROW).fit(fit);
        let rows = |row: shardstream::adapters::PackedRow<u8>| Ok(row.len());
        let buckets = Buckets::lengths(LIMITS).count(lengths[..10_000].iter().map(|length| [*length]));
        let loader = match kind {
            "map" => items,
            "chunked" => documents(items).chunked(ROW, None).map(|row| Ok(row.len())),
            "Fit::Best" => documents(items).pack(pack(Fit::Best)).map(rows),
            "Fit::Contiguous" => documents(items).pack(pack(Fit::Contiguous)).map(rows),
            "group_by" => items.group_by(4, |length| Ok(length % 100)).map(|group| Ok(group.len())),
            _ => items.buckets(buckets, |length| Ok([*length])),
        };
        let loader = loader.batch(8).build()?;
        let count = loader.epoch(0).count();
        print!("| `{kind}` ");
        for (number, share) in [10, 90].into_iter().enumerate() {
            let mut batches = loader.epoch(0);
            batches.by_ref().take(count * share / 100).try_for_each(|batch| batch.map(drop))?;
            let state = batches.state().to_string();
            if number == 0 {
                print!("| {} ", state.len());
            }
            mapped.store(0, Relaxed);
            let start = Instant::now();
            let first = loader.restore(&state.parse()?)?.next().transpose()?;
            assert!(first.is_some());
            print!("| {} | {:.1} ", mapped.load(Relaxed), start.elapsed().as_secs_f64() * 1e3);
        }
        println!("|");
    }
    Ok(())
}
