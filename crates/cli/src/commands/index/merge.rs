//! `shardstream index merge`

use crate::context::Context;
use crate::documents::check_new;
use crate::failure::Failure;
use shardstream::Index;
use shardstream::index::ShardIndex;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// Merge several indexes into one, in their order.
///
/// A shard that is in several indexes must have the same entry in all.
#[derive(Debug, clap::Args)]
pub(super) struct Options {
    /// Indexes: paths or URLs.
    #[arg(value_name = "INDEX", required = true)]
    indexes: Vec<String>,
    /// Where to write the index: a path or URL.
    #[arg(long, value_name = "INDEX")]
    to: String,
    #[command(flatten)]
    force: super::save::ForceOption,
}

pub(super) fn run(options: Options, context: &Context) -> Result<(), Failure> {
    check_new(&options.to, options.force.force, "", context)?;
    let mut shards: Vec<ShardIndex> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    for place in &options.indexes {
        for shard in &Index::load(&context.store, place)? {
            match places.entry(shard.url().to_owned()) {
                Entry::Vacant(entry) => {
                    entry.insert(shards.len());
                    shards.push(shard.clone());
                }
                Entry::Occupied(entry) if shards[*entry.get()] == *shard => {}
                Entry::Occupied(_) => {
                    let url = shardstream::SecretUrl::from(shard.url());
                    return Err(Failure::Failed(format!("two of the indexes disagree on the shard {url}")));
                }
            }
        }
    }
    super::save::save(&shards.into_iter().collect(), &options.to, context)
}
