//! `shardstream index merge`

use crate::context::Context;
use crate::documents::check_new;
use crate::failure::Failure;
use crate::places::Places;
use shardstream::Index;
use shardstream::index::ShardIndex;
use shardstream::SecretUrl;

/// Merge several indexes into one, in their order.
///
/// A shard that is in several indexes, under any spelling of its URL, must have the same entry in all.
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
    let indexes = options.indexes.iter().map(|place| Index::load(&context.store, place));
    let indexes = indexes.collect::<shardstream::Result<Vec<Index>>>()?;
    let (mut shards, mut places): (Vec<&ShardIndex>, _) = (Vec::new(), Places::default());
    for shard in indexes.iter().flatten() {
        let before = places.same(shard.url()).next().map(|number| shards[number]);
        match before {
            None => {
                places.push(shard.url());
                shards.push(shard);
            }
            Some(before) if shard.clone().with_url(before.url()) == *before => {}
            Some(before) => {
                let what = SecretUrl::from(before.url());
                return Err(Failure::Failed(format!(
                    "two of the indexes have different entries of the shard {what}: build one of them again"
                )));
            }
        }
    }
    super::save::save(&shards.into_iter().cloned().collect(), &options.to, context)
}
