//! `shardstream cp`

use crate::context::Context;
use crate::copying::{How, There, copy_all, report};
use crate::failure::Failure;
use crate::options::{Json, Threads};

/// Copy shards, or any objects, between stores.
///
/// A copy appears under its name when it is whole, and is then read again and compared with what was copied,
/// by its length and CRC-32C. Several objects go into the directory TO. The file .shardstream-copies.json
/// beside the copies records of which versions they are copies.
#[derive(Debug, clap::Args)]
#[command(override_usage = "shardstream cp [OPTIONS] <FROM>... <TO>")]
pub(crate) struct Options {
    /// Objects, patterns or directories, and last where they are copied to: a directory, or a name for a
    /// single object.
    #[arg(value_name = "FROM|TO", required = true)]
    places: Vec<String>,
    /// Keep objects that are there and the same. Those of a copy that was recorded are told by their sizes
    /// and versions; others are read and compared.
    #[arg(long, conflicts_with = "force")]
    resume: bool,
    /// Replace objects that are there.
    #[arg(long)]
    force: bool,
    /// Do not read copies again: their sizes are compared alone.
    #[arg(long)]
    no_reread: bool,
    #[command(flatten)]
    threads: Threads,
    #[command(flatten)]
    json: Json,
}

pub(crate) fn run(options: Options, context: &Context) -> Result<(), Failure> {
    let there = match (options.resume, options.force) {
        (true, _) => There::KeepSame,
        (_, true) => There::Replace,
        _ => There::Refuse,
    };
    let how = How { there, reread: !options.no_reread, threads: options.threads.count() };
    let copied = copy_all(options.places, how, context)?;
    report(&copied, options.json.json, context)
}
