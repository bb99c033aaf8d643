//! `shardstream reshard`

use crate::context::Context;
use crate::documents::check_index;
use crate::failure::Failure;
use crate::field_edit::FieldEdit;
use crate::input::Input;
use crate::options::{IndexOption, Patterns, read_text};
use crate::outcome::Outcome;
use crate::output::note;
use crate::range_samples::SamplePosition;
use crate::rewrite::Rewrite;
use crate::series::Series;
use crate::text;
use crate::write_options::{ShardLimits, WriteOptions};
use shardstream::shards::glob::Glob;
use std::collections::HashSet;
use std::sync::Arc;

/// Write samples into shards of another size, in another order, or with other fields.
///
/// The places of the samples are taken from --index, or the headers of the shards are read first. Then
/// samples are read by their ranges of bytes, in runs of up to 4 MB where they are adjacent. With --shuffle
/// the order is a random one of all samples, and each sample is a read, or a request, of its own: 1,000,000
/// samples of a bucket are 1,000,000 requests, 32 of them at a time. Memory: some 100 bytes for each sample,
/// its key in addition without --index, and up to 8 MB for each read at a time.
///
/// An index does not have the names of samples. With --index, a member is taken to need headers as long as in
/// the input, so shards may be larger than --max-size where names are not ASCII or have over 500 bytes, and
/// where the input is compressed: a note on stderr says so. A key that comes twice in a shard is then found
/// when that shard is written, and not before.
///
/// Compressed shards have no ranges: they are read from their beginning for each shard that is written of
/// them, and cannot be shuffled.
///
/// The plan is written beside the shards (out.plan.json for out-%06d.tar). A shard appears under its name
/// when it is whole; --resume keeps those that the same plan wrote, and the shards are the same, byte by
/// byte.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    patterns: Patterns,
    /// The names of the shards, such as 'out/train-%06d.tar'.
    #[arg(long, value_name = "NAMES")]
    to: String,
    #[command(flatten)]
    limits: ShardLimits,
    /// Write the samples in a random order over all shards.
    #[arg(long, value_name = "SEED")]
    shuffle: Option<u64>,
    #[command(flatten)]
    index: IndexOption,
    /// Keep only samples whose keys match this pattern, such as 'n0144*/**'. Reads the headers of all shards.
    #[arg(long, value_name = "GLOB", conflicts_with = "index")]
    filter: Option<String>,
    /// Keep only samples whose keys are in this file, one a line; - is stdin. Reads the headers of all
    /// shards.
    #[arg(long, value_name = "FILE", conflicts_with = "index")]
    keys: Option<String>,
    #[command(flatten)]
    edit: FieldEdit,
    /// Write the index of the new shards here.
    #[arg(long, value_name = "INDEX")]
    to_index: Option<String>,
    #[command(flatten)]
    write_options: WriteOptions,
}

pub(crate) fn run(options: Options, context: &Context) -> Result<(), Failure> {
    let Options { patterns, limits, shuffle, index, edit, to_index, write_options, .. } = &options;
    write_options.check(to_index.is_some())?;
    let series = Series::new(&options.to)?;
    check_index(to_index.as_deref(), &series, write_options, context)?;
    let glob = options.filter.as_ref().map(|filter| Glob::new(filter)).transpose()?;
    let listed = options.keys.as_ref().map(|file| read_text(file, context)).transpose()?;
    let listed: Option<HashSet<&str>> =
        listed.as_ref().map(|text| text.lines().map(str::trim).filter(|line| !line.is_empty()).collect());
    let loaded = index.load(context)?;
    let threads = write_options.threads.count().max(16);
    let input = Input::load(patterns, loaded.as_ref(), threads, context)?;
    input.check_apart(&series)?;
    let input = Arc::new(input.check_unchanged(threads, context)?);
    let is_wanted = |key: Option<&str>| {
        let matches = |wanted: &dyn Fn(&str) -> bool| key.is_some_and(wanted);
        glob.as_ref().is_none_or(|glob| matches(&|key| glob.matches(key)))
            && listed.as_ref().is_none_or(|listed| matches(&|key| listed.contains(key)))
    };
    let wanted = input.samples().filter(|(_, _, key)| is_wanted(*key));
    let order: Vec<SamplePosition> = wanted.map(|(shard, sample, _)| (shard, sample)).collect();
    if let Some(listed) = &listed {
        let found: HashSet<&str> = input.samples().filter_map(|(_, _, key)| key).collect();
        let missing = listed.iter().filter(|key| !found.contains(**key)).count() as u64;
        if missing > 0 {
            note(format_args!("--keys names {} that no shard has", text::counted(missing, "key")));
        }
    }
    let rewrite = Rewrite {
        command: "reshard",
        limits: *limits,
        shuffle: *shuffle,
        edit,
        write_options,
        options: Vec::new(),
    };
    rewrite.check(&input)?;
    let job = rewrite.plan(series, &input, order, context)?;
    let outcome = rewrite.run(job, context)?;
    outcome.save_index(to_index.as_deref(), context)?;
    Outcome::report(&[outcome], to_index.as_deref(), write_options.json, context)
}
