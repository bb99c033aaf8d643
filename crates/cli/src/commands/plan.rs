//! `shardstream plan`

use crate::context::Context;
use crate::failure::Failure;
use crate::input::Input;
use crate::options::TrainingOptions;
use crate::quantity::{amount, size};
use crate::table::Table;
use crate::text;
use serde::Serialize;
use shardstream::index::ShardIndex;
use shardstream::plan::Slice;
use shardstream::prelude::*;

/// Default size of a request in bytes.
const REQUEST_BYTES: u64 = 8 << 20;
/// Number of ranks that the table shows; `--json` has all.
const MAX_LISTED: usize = 16;
/// Numbers of streams per rank that are suggested.
const STREAMS_PER_RANK: [usize; 4] = [1, 2, 4, 8];

/// Show what a training will read, before it runs: ranks, balance, steps, memory, bandwidth, requests, cost.
///
/// Uses the same plan as a `Dataset` and a `Loader` with these options. Loads the index, or reads the headers
/// of the shards. Shards that have changed since the index was built are an error.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    training: TrainingOptions,
    /// Number of ranks.
    #[arg(long, value_name = "RANKS", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..))]
    world_size: u16,
    /// Samples in a batch of one rank.
    #[arg(long, value_name = "SAMPLES", default_value_t = 32)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    batch: u32,
    /// How the last samples that fill no batch are handled.
    #[arg(long, value_enum, default_value_t = LastBatchOption::Keep)]
    last_batch: LastBatchOption,
    /// The seed of the order.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// The epoch to plan.
    #[arg(long, default_value_t = 0)]
    epoch: u64,
    /// Samples per second of all ranks together, to show the bandwidth that they need.
    #[arg(long, value_name = "COUNT", value_parser = amount)]
    samples_per_second: Option<f64>,
    /// Memory for the requests of one rank.
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = size)]
    budget: u64,
    /// The price of a GB that leaves the store.
    #[arg(long, value_name = "PRICE", value_parser = amount)]
    price_per_gb: Option<f64>,
    /// The price of 10,000 requests.
    #[arg(long, value_name = "PRICE", value_parser = amount)]
    price_per_10k_requests: Option<f64>,
}

/// [`LastBatch`] as an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum LastBatchOption {
    Keep,
    Drop,
    Pad,
}

impl From<LastBatchOption> for LastBatch {
    fn from(last: LastBatchOption) -> Self {
        match last {
            LastBatchOption::Keep => LastBatch::Keep,
            LastBatchOption::Drop => LastBatch::Drop,
            LastBatchOption::Pad => LastBatch::Pad,
        }
    }
}

/// What one rank reads in an epoch.
#[derive(Debug, Clone, Default, Serialize)]
struct RankLoad {
    rank: usize,
    streams: usize,
    samples: u64,
    bytes: u64,
    /// Number of shards that it reads from.
    shards: usize,
    requests: u64,
    steps: Option<u64>,
}

/// The document that `--json` writes.
#[derive(Debug, Serialize)]
struct PlanReport {
    shards: usize,
    samples: u64,
    bytes: u64,
    bytes_per_sample: f64,
    streams: usize,
    world_size: usize,
    batch: u32,
    /// Batches in an epoch, of each rank.
    steps: Option<u64>,
    /// By what share the rank with the most samples is above the average.
    imbalance: f64,
    /// Numbers of ranks that divide the streams.
    fitting_world_sizes: Vec<usize>,
    /// Numbers of streams that the ranks divide.
    fitting_streams: Vec<usize>,
    /// Memory of full shuffle buffers. A stream may have fewer samples than its buffer can hold.
    shuffle_bytes_per_rank: u64,
    budget_bytes_per_rank: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes_per_second: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes_per_second_per_rank: Option<f64>,
    requests_per_epoch: u64,
    bytes_per_epoch: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    price_per_epoch: Option<f64>,
    ranks: Vec<RankLoad>,
}

pub(crate) fn run(options: Options, context: &Context) -> Result<(), Failure> {
    let training = &options.training;
    let loaded = training.index.load(context)?;
    let threads = training.threads.count().max(16);
    let input = Input::load(&training.patterns, loaded.as_ref(), threads, context)?;
    let input = input.check_unchanged(threads, context)?;
    if input.shards.iter().all(|shard| shard.samples() == 0) {
        let shards = text::counted(input.shards.len() as u64, "shard");
        return Err(Failure::Failed(format!("there is nothing to plan: no samples in {shards}")));
    }
    let report = report(&options, &input.shards, context)?;
    if training.json.json {
        return context.output.document(&report);
    }
    show(&options, &report, context)
}

fn report(options: &Options, shards: &[ShardIndex], context: &Context) -> Result<PlanReport, Failure> {
    let world_size = usize::from(options.world_size);
    let streams = options.training.streams(world_size);
    let index: Index = shards.iter().cloned().collect();
    let mut ranks = Vec::new();
    for rank in 0..world_size {
        context.interrupt.check()?;
        ranks.push(rank_load(options, &index, streams, rank, context)?);
    }
    let samples = index.samples();
    let bytes: u64 = index.iter().filter_map(ShardIndex::bytes).sum();
    let bytes_per_sample = bytes as f64 / samples.max(1) as f64;
    let (read, requests): (u64, u64) =
        ranks.iter().fold((0, 0), |sum, rank| (sum.0 + rank.bytes, sum.1 + rank.requests));
    let largest = ranks.iter().map(|rank| rank.samples).max().unwrap_or(0);
    let average = ranks.iter().map(|rank| rank.samples).sum::<u64>() as f64 / world_size as f64;
    let of_rank = ranks.iter().map(|rank| rank.streams).max().unwrap_or(0) as u64;
    let buffered = u64::from(options.training.shuffle).min(samples.div_ceil(streams as u64));
    let per_second = options.samples_per_second.map(|samples| samples * bytes_per_sample);
    let price = match (options.price_per_gb, options.price_per_10k_requests) {
        (None, None) => None,
        (gb, requested) => {
            Some(gb.unwrap_or(0.0) * read as f64 / 1e9 + requested.unwrap_or(0.0) * requests as f64 / 1e4)
        }
    };
    Ok(PlanReport {
        shards: index.len(),
        samples,
        bytes,
        bytes_per_sample,
        streams,
        world_size,
        batch: options.batch,
        steps: ranks.first().and_then(|rank| rank.steps),
        imbalance: if average > 0.0 { largest as f64 / average - 1.0 } else { 0.0 },
        fitting_world_sizes: (1..=streams).filter(|ranks| streams.is_multiple_of(*ranks)).collect(),
        fitting_streams: STREAMS_PER_RANK.iter().map(|times| times * world_size).collect(),
        shuffle_bytes_per_rank: (of_rank as f64 * buffered as f64 * bytes_per_sample) as u64,
        budget_bytes_per_rank: options.budget,
        bytes_per_second: per_second,
        bytes_per_second_per_rank: per_second.map(|bytes| bytes / world_size as f64),
        requests_per_epoch: requests,
        bytes_per_epoch: read,
        price_per_epoch: price,
        ranks,
    })
}

/// What a rank reads, according to the dataset and the loader that it would have.
fn rank_load(
    options: &Options,
    index: &Index,
    streams: usize,
    rank: usize,
    context: &Context,
) -> Result<RankLoad, Failure> {
    let dataset = Dataset::builder(index.shards())
        .store(context.store.clone())
        .limits(context.reader.limits)
        .index(index.clone())
        .topology(Topology::new(rank, usize::from(options.world_size))?)
        .streams(streams)
        .shuffle_shards(true)
        .seed(options.seed)
        .build()?;
    let loader = Loader::builder(dataset.clone())
        .threads(1)
        .batch(options.batch as usize)
        .last_batch(options.last_batch.into())
        .build()?;
    let mut load =
        RankLoad { rank, steps: loader.steps(), streams: dataset.streams().len(), ..RankLoad::default() };
    let mut shards = vec![false; index.len()];
    for &stream in dataset.streams() {
        for Slice { shard: number, samples, .. } in dataset.plan().stream(options.epoch, stream) {
            let Some(shard) = index.iter().nth(number) else { continue };
            let bytes = bytes_of(shard, samples.start..samples.end.min(shard.samples()));
            load.samples += samples.end.min(shard.samples()) - samples.start;
            load.bytes += bytes;
            load.requests += bytes.div_ceil(REQUEST_BYTES).max(1);
            if let Some(shard) = shards.get_mut(number) {
                *shard = true;
            }
        }
    }
    load.shards = shards.iter().filter(|read| **read).count();
    Ok(load)
}

/// Number of bytes read for a range of samples of a shard.
fn bytes_of(shard: &ShardIndex, samples: std::ops::Range<u64>) -> u64 {
    let whole = shard.bytes().unwrap_or(0);
    if samples.is_empty() {
        return 0;
    }
    match shard.range(samples.clone()) {
        Some(range) => range.end - range.start,
        // A compressed shard is read from its beginning.
        None => (whole as f64 * samples.end as f64 / shard.samples().max(1) as f64) as u64,
    }
}

fn show(options: &Options, report: &PlanReport, context: &Context) -> Result<(), Failure> {
    let line = |what: &str, value: String| context.output.line(format_args!("{what:<18}{value}"));
    let list = |numbers: &[usize]| numbers.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
    let counted = |count: usize, what| text::counted(count as u64, what);
    line(
        "data",
        format!(
            "{} in {}, {} ({} a sample)",
            text::counted(report.samples, "sample"),
            counted(report.shards, "shard"),
            text::bytes(report.bytes),
            text::bytes(report.bytes_per_sample as u64)
        ),
    )?;
    line(
        "read by",
        format!(
            "{}, dealt to {}, batches of {}",
            counted(report.streams, "stream"),
            counted(report.world_size, "rank"),
            text::number(report.batch.into())
        ),
    )?;
    let steps = report.steps.map_or_else(|| "not known".to_owned(), text::number);
    line("steps", format!("{steps} an epoch on each rank"))?;
    let more = 100.0 * report.imbalance;
    line("balance", format!("the rank of most samples has {more:.1} % more than the average"))?;
    line("ranks that fit", format!("{} (they divide the streams)", list(&report.fitting_world_sizes)))?;
    line("streams that fit", format!("{} and other multiples of the ranks", list(&report.fitting_streams)))?;
    line(
        "memory of a rank",
        format!(
            "{} in shuffle buffers of {}, up to {} for requests",
            text::bytes(report.shuffle_bytes_per_rank),
            text::counted(options.training.shuffle.into(), "sample"),
            text::bytes(report.budget_bytes_per_rank)
        ),
    )?;
    if let (Some(all), Some(each), Some(rate)) =
        (report.bytes_per_second, report.bytes_per_second_per_rank, options.samples_per_second)
    {
        let (all, each) = (text::bytes_per_second(all), text::bytes_per_second(each));
        line("bandwidth", format!("{all} for {rate} samples/s, {each} for each rank"))?;
    }
    line(
        "an epoch",
        format!(
            "{} in {} of up to 8.4 MB, if nothing is cached",
            text::bytes(report.bytes_per_epoch),
            text::counted(report.requests_per_epoch, "request")
        ),
    )?;
    if let Some(price) = report.price_per_epoch {
        line("price of an epoch", if price < 1.0 { format!("{price:.6}") } else { format!("{price:.2}") })?;
    }
    let mut table = Table::new(&[">rank", ">streams", ">shards", ">samples", ">bytes", ">requests"]);
    for rank in report.ranks.iter().take(MAX_LISTED) {
        let numbers = [rank.rank, rank.streams, rank.shards].map(|number| text::number(number as u64));
        let more = [text::number(rank.samples), text::bytes(rank.bytes), text::number(rank.requests)];
        table.row(numbers.into_iter().chain(more));
    }
    context.output.lines(format_args!("\n{table}"))?;
    match report.ranks.len().saturating_sub(MAX_LISTED) {
        0 => Ok(()),
        more => context.output.line(format_args!("and {} more: --json has all", counted(more, "rank"))),
    }
}
