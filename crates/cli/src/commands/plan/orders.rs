//! Compares two orders of the shards: each epoch deals them to the streams anew, or each stream has the same
//! shards in every epoch.

use super::node_cache::{EPOCHS, Nodes};
use super::rank_load::{Training, bytes_of};
use super::repeated_pairs::Shuffling;
use crate::context::Context;
use crate::failure::Failure;
use crate::table::Table;
use crate::text;
use serde::Serialize;
use shardstream::index::ShardIndex;
use shardstream::plan::Slice;

/// Figures of both orders, and of the nodes' caches.
#[derive(Debug, Serialize)]
pub(super) struct OrderComparison {
    nodes: usize,
    /// The size of each node's cache; `None` if it has no limit.
    node_cache_bytes: Option<u64>,
    /// The cache size that holds everything that one node reads, if each stream has the same shards in every
    /// epoch.
    kept_bytes_per_node: u64,
    orders: Vec<OrderReport>,
}

/// Figures of one order.
#[derive(Debug, Serialize)]
struct OrderReport {
    keep_shards: bool,
    /// For each epoch, the share of the read bytes that are in a cache already. Before the first epoch, the
    /// caches are empty.
    hit_rates: Vec<f64>,
    /// See [`Shuffling::repeated_pairs`].
    repeated_pairs: f64,
}

impl OrderComparison {
    pub(super) fn of(training: &Training<'_>) -> Result<Self, Failure> {
        let (options, plan) = (training.options, training.plan()?);
        let world_size = usize::from(options.world_size);
        let nodes = options.nodes.map_or(world_size, usize::from);
        if !world_size.is_multiple_of(nodes) {
            let what = format!(
                "--nodes {nodes}: {world_size} ranks cannot be divided evenly among the nodes: give a \
                 divisor of --world-size"
            );
            return Err(Failure::Usage(what));
        }
        let shards: Vec<&ShardIndex> = training.shards.iter().collect();
        let sizes: Vec<u64> = shards.iter().map(|shard| shard.bytes().unwrap_or(0)).collect();
        let counts: Vec<u64> = shards.iter().map(|shard| shard.samples()).collect();
        let bytes_of = |slice: &Slice| {
            shards.get(slice.shard).map_or(0..0, |shard| {
                bytes_of(shard, slice.samples.start..slice.samples.end.min(shard.samples()))
            })
        };
        let nodes = Nodes {
            sizes: &sizes,
            bytes_of: &bytes_of,
            nodes,
            world_size,
            cache_bytes: options.node_cache.unwrap_or(u64::MAX),
            first_epoch: options.epoch,
            interrupt: &training.context.interrupt,
        };
        let shuffling = Shuffling {
            counts: &counts,
            buffer: u64::from(options.training.shuffle),
            batch: u64::from(options.batch) * u64::from(options.world_size),
            seed: options.seed,
            first_epoch: options.epoch,
        };
        let order = |keep_shards| {
            let plan = plan.clone().kept(keep_shards);
            let hit_rates = nodes.hit_rates(&plan)?;
            let repeated_pairs = shuffling.repeated_pairs(&plan, &training.context.interrupt)?;
            Ok(OrderReport { keep_shards, hit_rates, repeated_pairs })
        };
        Ok(OrderComparison {
            nodes: nodes.nodes,
            node_cache_bytes: options.node_cache,
            kept_bytes_per_node: nodes.epoch_bytes(&plan.clone().kept(true)),
            orders: [false, true].map(order).into_iter().collect::<Result<_, Failure>>()?,
        })
    }

    /// Writes a table of both orders.
    pub(super) fn show(&self, context: &Context) -> Result<(), Failure> {
        let epochs: Vec<String> = (1..=EPOCHS).map(|epoch| format!(">epoch {epoch}")).collect();
        let mut titles = vec!["order of shards"];
        titles.extend(epochs.iter().map(String::as_str));
        titles.push(">repeated pairs");
        let mut table = Table::new(&titles);
        for order in &self.orders {
            let name = if order.keep_shards { "kept: --keep-shards" } else { "dealt anew" };
            let mut cells = vec![name.to_owned()];
            cells.extend(order.hit_rates.iter().map(|rate| format!("{:.1} %", 100.0 * rate)));
            cells.push(format!("{:.2}", order.repeated_pairs));
            table.row(cells);
        }
        let limit =
            self.node_cache_bytes.map_or("of any size".into(), |bytes| format!("of {}", text::bytes(bytes)));
        context.output.lines(format_args!(
            "\nfound in the caches of {} ({limit}, empty before epoch 1):\n{table}",
            text::counted(self.nodes as u64, "node"),
        ))
    }

    /// The size of the cache that a node needs, as a line of the report.
    pub(super) fn cache_of_a_node(&self, all: u64) -> String {
        let (kept, all) = (text::bytes(self.kept_bytes_per_node), text::bytes(all));
        format!("{kept} for the shards of its streams with --keep-shards, {all} for all shards")
    }
}
