//! `shardstream index`

mod build;
mod check;
mod info;
mod merge;
mod wids;

use crate::context::Context;
use crate::failure::Failure;
use shardstream::{Index, SecretUrl};

/// Build, check and merge indexes: what is where in the shards.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Build(build::Options),
    Check(check::Options),
    Merge(merge::Options),
    Info(info::Options),
    ImportWids(wids::Import),
    ExportWids(wids::Export),
}

pub(crate) fn run(options: Options, context: &Context) -> Result<(), Failure> {
    match options.command {
        Command::Build(options) => build::run(options, context),
        Command::Check(options) => check::run(options, context),
        Command::Merge(options) => merge::run(options, context),
        Command::Info(options) => info::run(options, context),
        Command::ImportWids(options) => wids::import(options, context),
        Command::ExportWids(options) => wids::export(options, context),
    }
}

/// Whether what is there is replaced.
#[derive(Debug, Clone, Copy, clap::Args)]
struct Force {
    /// Replace what is there under this name.
    #[arg(long)]
    force: bool,
}

/// Saves an index and says what is in it.
fn save(index: &Index, place: &str, context: &Context) -> Result<(), Failure> {
    index.save(&context.store, place)?;
    let (shards, samples) = (index.len() as u64, index.samples());
    let place = SecretUrl::from(place);
    context.output.line(format_args!(
        "{place}: {} of {}",
        crate::text::counted(shards, "shard"),
        crate::text::counted(samples, "sample")
    ))
}
