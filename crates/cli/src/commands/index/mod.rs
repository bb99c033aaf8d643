//! `shardstream index`

mod build;
mod check;
mod info;
mod merge;
mod save;
mod wids;

use crate::context::Context;
use crate::failure::Failure;

/// Build, check and merge indexes, which say where each sample is in its shard.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    command: IndexCommand,
}

#[derive(Debug, clap::Subcommand)]
enum IndexCommand {
    Build(build::Options),
    Check(check::Options),
    Merge(merge::Options),
    Info(info::Options),
    ImportWids(wids::ImportOptions),
    ExportWids(wids::ExportOptions),
}

pub(crate) fn run(options: Options, context: &Context) -> Result<(), Failure> {
    match options.command {
        IndexCommand::Build(options) => build::run(options, context),
        IndexCommand::Check(options) => check::run(options, context),
        IndexCommand::Merge(options) => merge::run(options, context),
        IndexCommand::Info(options) => info::run(options, context),
        IndexCommand::ImportWids(options) => wids::import(options, context),
        IndexCommand::ExportWids(options) => wids::export(options, context),
    }
}
