//! `shardstream sync`

use crate::context::Context;
use crate::copying::{How, There, copy_all, report};
use crate::failure::Failure;
use crate::options::{Json, Threads};

/// Copy the shards, or any objects, that are missing or other ones in a directory.
///
/// As `cp --resume`: an object that is there is the same if sizes and versions are those of a recorded copy
/// (.shardstream-copies.json); without a record, objects of the same size are read and compared. Others are
/// replaced. Nothing is deleted.
#[derive(Debug, clap::Args)]
#[command(override_usage = "shardstream sync [OPTIONS] <FROM>... <TO>")]
pub(crate) struct Options {
    /// Objects, patterns or directories, and last the directory they are copied to.
    #[arg(value_name = "FROM|TO", required = true)]
    places: Vec<String>,
    /// Do not read copies again: their sizes are compared alone.
    #[arg(long)]
    no_reread: bool,
    #[command(flatten)]
    threads: Threads,
    #[command(flatten)]
    json: Json,
}

pub(crate) fn run(mut options: Options, context: &Context) -> Result<(), Failure> {
    if let Some(to) = options.places.last_mut().filter(|to| !to.ends_with('/')) {
        to.push('/');
    }
    let how = How { there: There::KeepSame, reread: !options.no_reread, threads: options.threads.count() };
    let copied = copy_all(options.places, how, context)?;
    report(&copied, options.json.json, context)
}
