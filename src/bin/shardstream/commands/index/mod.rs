//! `shardstream index`

mod build;
mod check;
mod info;
mod merge;
mod saving;
mod wids;

use crate::context::Context;
use crate::failure::Failure;

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
