//! `shardstream plan`

mod node_cache;
mod orders;
mod rank_load;
mod repeated_pairs;

use crate::context::Context;
use crate::failure::Failure;
use crate::input::Input;
use crate::options::TrainingOptions;
use crate::quantity::{amount, size};
use crate::table::Table;
use crate::text;
use orders::OrderComparison;
use rank_load::{RankLoad, Training};
use serde::Serialize;
use shardstream::index::ShardIndex;
use shardstream::prelude::*;

/// Maximum number of ranks in the table; `--json` has all ranks.
const MAX_LISTED: usize = 16;
/// The numbers of streams per rank that the report suggests.
const STREAMS_PER_RANK: [usize; 4] = [1, 2, 4, 8];

/// Show what a training will read, before it runs: ranks, balance, steps, memory, bandwidth, requests, cost.
///
/// The plan shows what a `Dataset` and a `Loader` with these options read. With --index, the dataset has this
/// index. Without --index, the dataset has no index, and this command reads the headers of all shards to
/// count their samples. Shards that have changed since the index was built are an error.
///
/// The last table compares two orders of the shards: either the shards are dealt to the streams anew in each
/// epoch, or each stream keeps its shards. For each order, the table shows which share of the bytes is read
/// from the nodes' caches, and `repeated pairs`: how often two samples of one global batch are in the same
/// global batch of the next epoch too, relative to a uniform shuffle. 1 is the best mix.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    training: TrainingOptions,
    /// Number of ranks.
    #[arg(long, value_name = "RANKS", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..))]
    world_size: u16,
    /// Number of samples in a batch of one rank.
    #[arg(long, value_name = "SAMPLES", default_value_t = 32)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    batch: u32,
    /// What is done with the last samples if they do not fill a batch.
    #[arg(long, value_enum, default_value_t = LastBatchOption::Keep)]
    last_batch: LastBatchOption,
    /// The seed of the order.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// The epoch to plan.
    #[arg(long, default_value_t = 0)]
    epoch: u64,
    /// Number of nodes, each with a cache that its ranks share [default: the number of ranks].
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..))]
    nodes: Option<u16>,
    /// Size of the cache of each node [default: no limit].
    #[arg(long, value_name = "SIZE", value_parser = size)]
    node_cache: Option<u64>,
    /// Samples per second of all ranks together. With this option, the report shows the bandwidth that the
    /// ranks need.
    #[arg(long, value_name = "COUNT", value_parser = amount)]
    samples_per_second: Option<f64>,
    /// Memory for the requests of one rank.
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = size)]
    budget: u64,
    /// The price of each GB that is read from the store.
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
    #[serde(flatten)]
    balance: Balance,
    /// For a dataset without an index: the balance that the dataset would have with an index.
    #[serde(skip_serializing_if = "Option::is_none")]
    with_index: Option<Balance>,
    /// Numbers of ranks by which the number of streams is divisible.
    fitting_world_sizes: Vec<usize>,
    /// Numbers of streams that are divisible by the number of ranks.
    fitting_streams: Vec<usize>,
    /// Memory of full shuffle buffers. A stream may have fewer samples than its buffer has room for.
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
    #[serde(flatten)]
    orders: OrderComparison,
    ranks: Vec<RankLoad>,
}

/// How evenly the ranks share an epoch.
#[derive(Debug, Serialize)]
struct Balance {
    /// Number of batches in an epoch, if it is the same on all ranks.
    steps: Option<u64>,
    fewest_steps: u64,
    most_steps: u64,
    /// The samples of the rank with the most samples, divided by the average, minus 1.
    imbalance: f64,
}

impl Balance {
    fn of(ranks: &[RankLoad]) -> Self {
        let steps = || ranks.iter().map(|rank| rank.steps);
        let (fewest_steps, most_steps) = (steps().min().unwrap_or(0), steps().max().unwrap_or(0));
        let largest = ranks.iter().map(|rank| rank.samples).max().unwrap_or(0);
        let average = ranks.iter().map(|rank| rank.samples).sum::<u64>() as f64 / ranks.len().max(1) as f64;
        Balance {
            steps: Some(most_steps).filter(|steps| *steps == fewest_steps),
            fewest_steps,
            most_steps,
            imbalance: if average > 0.0 { largest as f64 / average - 1.0 } else { 0.0 },
        }
    }

    /// The steps, as a line of the report.
    fn steps(&self) -> String {
        match self.steps {
            Some(steps) => format!("{} per epoch on each rank", text::number(steps)),
            None => {
                let [fewest, most] = [self.fewest_steps, self.most_steps].map(text::number);
                format!("{fewest} to {most} per epoch, depending on the rank")
            }
        }
    }

    /// The imbalance, as a line of the report.
    fn imbalance(&self) -> String {
        format!("the rank with the most samples has {:.1} % more than the average", 100.0 * self.imbalance)
    }
}

pub(crate) fn run(options: Options, context: &Context) -> Result<(), Failure> {
    let training = &options.training;
    let loaded = training.index.load(context)?;
    let threads = training.threads.count().max(16);
    let input = Input::load(&training.patterns.shards(context)?, loaded.as_ref(), threads, context)?;
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
    let is_indexed = options.training.index.is_given();
    let training = Training { options, shards: &index, is_indexed, streams, context };
    let ranks = training.rank_loads()?;
    let orders = OrderComparison::of(&training)?;
    let samples = index.samples();
    let bytes: u64 = index.iter().filter_map(ShardIndex::bytes).sum();
    let bytes_per_sample = bytes as f64 / samples.max(1) as f64;
    let (read, requests): (u64, u64) =
        ranks.iter().fold((0, 0), |sum, rank| (sum.0 + rank.bytes, sum.1 + rank.requests));
    let streams_per_rank = ranks.iter().map(|rank| rank.streams).max().unwrap_or(0) as u64;
    let buffered = u64::from(options.training.shuffle).min(samples.div_ceil(streams as u64));
    let bytes_per_second = options.samples_per_second.map(|samples| samples * bytes_per_sample);
    let price = match (options.price_per_gb, options.price_per_10k_requests) {
        (None, None) => None,
        (per_gb, per_10k_requests) => Some(
            per_gb.unwrap_or(0.0) * read as f64 / 1e9
                + per_10k_requests.unwrap_or(0.0) * requests as f64 / 1e4,
        ),
    };
    let indexed = Training { is_indexed: true, ..training };
    // With an index, a dataset with fewer samples than streams has no plan.
    let has_plan = !is_indexed && samples >= streams as u64;
    let with_index = if has_plan { Some(indexed.rank_loads()?) } else { None };
    Ok(PlanReport {
        shards: index.len(),
        samples,
        bytes,
        bytes_per_sample,
        streams,
        world_size,
        batch: options.batch,
        balance: Balance::of(&ranks),
        with_index: with_index.map(|ranks| Balance::of(&ranks)),
        fitting_world_sizes: (1..=streams).filter(|ranks| streams.is_multiple_of(*ranks)).collect(),
        fitting_streams: STREAMS_PER_RANK.iter().map(|times| times * world_size).collect(),
        shuffle_bytes_per_rank: (streams_per_rank as f64 * buffered as f64 * bytes_per_sample) as u64,
        budget_bytes_per_rank: options.budget,
        bytes_per_second,
        bytes_per_second_per_rank: bytes_per_second.map(|bytes| bytes / world_size as f64),
        requests_per_epoch: requests,
        bytes_per_epoch: read,
        price_per_epoch: price,
        orders,
        ranks,
    })
}

fn show(options: &Options, report: &PlanReport, context: &Context) -> Result<(), Failure> {
    let line = |what: &str, value: String| context.output.line(format_args!("{what:<18}{value}"));
    let list = |numbers: &[usize]| numbers.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
    let counted = |count: usize, what| text::counted(count as u64, what);
    line(
        "data",
        format!(
            "{} in {}, {} ({} per sample)",
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
    let unknown =
        if report.with_index.is_some() { "; a loader without an index does not know them" } else { "" };
    line("steps", report.balance.steps() + unknown)?;
    line("balance", report.balance.imbalance())?;
    if let Some(indexed) = &report.with_index {
        line("with an index", format!("{}; {}", indexed.steps(), indexed.imbalance()))?;
    }
    line("ranks that fit", format!("{} (they divide the streams)", list(&report.fitting_world_sizes)))?;
    let fitting = list(&report.fitting_streams);
    line("streams that fit", format!("{fitting} and other multiples of the number of ranks"))?;
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
    line("cache of a node", report.orders.cache_of_a_node(report.bytes))?;
    let titles = [">rank", ">streams", ">shards", ">samples", ">bytes", ">requests", ">steps"];
    let mut table = Table::new(&titles);
    for rank in report.ranks.iter().take(MAX_LISTED) {
        let numbers = [rank.rank, rank.streams, rank.shards].map(|number| text::number(number as u64));
        let more = [text::number(rank.samples), text::bytes(rank.bytes), text::number(rank.requests)];
        table.row(numbers.into_iter().chain(more).chain([text::number(rank.steps)]));
    }
    context.output.lines(format_args!("\n{table}"))?;
    if let more @ 1.. = report.ranks.len().saturating_sub(MAX_LISTED) {
        context.output.line(format_args!("and {} more: --json has all", counted(more, "rank")))?;
    }
    report.orders.show(context)
}
