//! Options of the commands that write shards.

use crate::failure::Failure;
use crate::machine_options::{MachineOptions, MachineRank};
use crate::options::{JsonOption, ThreadsOption};
use crate::quantity::size;
use crate::sample_shrinker::ShrinkOptions;
use crate::saved_plan::ExistingShards;

/// Limits on the size of a shard.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct ShardLimits {
    /// Maximum number of samples in a shard.
    #[arg(long, visible_alias = "count", value_name = "SAMPLES", default_value_t = 10_000)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) max_count: u64,
    /// Maximum size of a shard before compression, such as 500M. A larger sample gets a shard of its own.
    #[arg(long, visible_alias = "size", value_name = "SIZE", default_value = "500M")]
    #[arg(value_parser = at_least_one)]
    pub(crate) max_size: u64,
}

fn at_least_one(text: &str) -> Result<u64, String> {
    size(text)
        .and_then(|bytes| if bytes == 0 { Err("a shard needs at least a byte".into()) } else { Ok(bytes) })
}

/// Options of a command that writes a series of shards.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct WriteOptions {
    #[command(flatten)]
    pub(crate) shrink: ShrinkOptions,
    /// Resume an interrupted run with the same options: existing shards are kept.
    #[arg(long, conflicts_with = "force")]
    pub(crate) resume: bool,
    /// Replace the existing shards of this series, and its index and list of classes, when all new shards are
    /// complete. A local disk needs space for the old and the new shards.
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) machines: MachineOptions,
    #[command(flatten)]
    pub(crate) threads: ThreadsOption,
    #[command(flatten)]
    pub(crate) json: JsonOption,
}

impl WriteOptions {
    /// Checks the options before anything is read. `index` says whether an index is written too.
    ///
    /// # Errors
    /// [`Failure::Usage`] if several machines would write an index or use `--force`.
    pub(crate) fn check(&self, index: bool) -> Result<(), Failure> {
        let usage = |what: &str| Err(Failure::Usage(what.into()));
        match self.machines.rank()? {
            MachineRank { world_size: 2.., .. } if index => usage(
                "the index needs all shards: when all machines are done, write it by a run with --resume, \
                 but without --rank and --world-size",
            ),
            MachineRank { world_size: 2.., .. } if self.force => {
                usage("--force is for one machine: it would remove the shards of the other machines")
            }
            _ => Ok(()),
        }
    }

    /// What to do with existing shards.
    pub(crate) fn existing(&self) -> ExistingShards {
        match self {
            WriteOptions { force: true, .. } => ExistingShards::Remove,
            WriteOptions { resume: true, .. } => ExistingShards::Resume,
            _ if self.machines.are_several() => ExistingShards::Resume,
            _ => ExistingShards::Refuse,
        }
    }
}
