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
use crate::sample_list::SampleList;
use crate::series::Series;
use crate::text;
use crate::write_options::{ShardLimits, WriteOptions};
use shardstream::shards::glob::Glob;
use std::collections::HashSet;
use std::sync::Arc;

/// Write samples into shards of another size, in another order, or with other fields.
///
/// The positions of the samples come from --index, or from the headers of the shards, which are then read
/// first. Samples are read by byte range; adjacent samples are read together, up to 4 MB. --shuffle puts all
/// samples into a random order, and reads each sample by itself: 1,000,000 samples in a bucket take 1,000,000
/// requests, 32 at a time. Memory: about 100 bytes per sample, plus its key without --index, and up to 8 MB
/// per concurrent read.
///
/// An index has no keys. With --index, each header is therefore assumed to be as long as in the input. Names
/// that are longer than 500 bytes or have non-ASCII characters, and compressed input, may need longer
/// headers. Shards may then become larger than --max-size; a note says so. With --index, a duplicate key in a
/// shard is found only when that shard is written.
///
/// Compressed shards have no byte ranges, and cannot be shuffled. They are read from beginning to end: once
/// for all threads, or once by each thread if the output is compressed.
///
/// If a shard is replaced while it is read, the command fails: it never mixes samples of two versions.
///
/// The plan is written beside the shards (out.plan.json for out-%06d.tar). A shard appears under its name
/// when it is complete. --resume keeps the shards that an interrupted run with the same plan has written; the
/// result is the same as without an interruption, byte by byte.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    patterns: Patterns,
    /// The names of the shards, such as 'out/train-%06d.tar'.
    #[arg(long, value_name = "NAMES")]
    to: String,
    #[command(flatten)]
    limits: ShardLimits,
    /// Shuffle all samples, over all shards, with this seed.
    #[arg(long, value_name = "SEED")]
    shuffle: Option<u64>,
    #[command(flatten)]
    index: IndexOption,
    /// Keep only samples whose key matches this pattern, such as 'n0144*/**'. Reads the headers of all
    /// shards.
    #[arg(long, value_name = "GLOB", conflicts_with = "index")]
    filter: Option<String>,
    /// Keep only samples whose key is in this file, one key per line; - is stdin. Reads the headers of all
    /// shards.
    #[arg(long, value_name = "FILE", conflicts_with = "index")]
    keys: Option<String>,
    /// Leave out the samples in this list, as `verify --to-list` writes it: lines of JSON with `shard` and
    /// `key`; - is stdin. Reads the headers of all shards.
    #[arg(long, value_name = "LIST", conflicts_with_all = ["index", "only"])]
    without: Option<String>,
    /// Keep only the samples in this list, such as the bad samples of `verify`. Reads the headers of all
    /// shards.
    #[arg(long, value_name = "LIST", conflicts_with = "index")]
    only: Option<String>,
    /// Leave out damaged samples, and list them on stderr. COUNT is the maximum number of samples that are
    /// left out [default: a thousandth of the samples, but at least 10]. If a header is damaged, the rest of
    /// its shard is left out too.
    #[arg(long, value_name = "COUNT", num_args = 0..=1, require_equals = true, conflicts_with = "index")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    skip_bad: Option<Option<u64>>,
    /// Number the samples: their keys become 000000000, 000000001 and so on, in the order of the output. Use
    /// this to merge series that have the same keys.
    #[arg(long)]
    rekey: bool,
    #[command(flatten)]
    edit: FieldEdit,
    /// Write the index of the new shards to this path or URL.
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
    let shards = patterns.shards(context)?;
    let input = match options.skip_bad {
        None => Input::load(&shards, loaded.as_ref(), threads, context)?,
        skip_bad => Input::load_undamaged(&shards, skip_bad, threads, context)?,
    };
    input.check_apart(&series)?;
    let input = Arc::new(input.check_unchanged(threads, context)?);
    let read = |place: &String| SampleList::read(place, context);
    let without = options.without.as_ref().map(read).transpose()?;
    let only = options.only.as_ref().map(read).transpose()?;
    let without = without.as_ref().map(|list| list.find(&input)).unwrap_or_default();
    let only = only.as_ref().map(|list| list.find(&input));
    let mut left_out = 0;
    let is_selected = |key: Option<&str>| {
        let matches_glob = glob.as_ref().is_none_or(|glob| key.is_some_and(|key| glob.matches(key)));
        let is_listed = listed.as_ref().is_none_or(|listed| key.is_some_and(|key| listed.contains(key)));
        matches_glob && is_listed
    };
    let mut order: Vec<SamplePosition> = Vec::new();
    for (shard, sample, key) in input.samples() {
        if without.has(shard, key) {
            left_out += 1;
        } else if is_selected(key) && only.as_ref().is_none_or(|only| only.has(shard, key)) {
            order.push((shard, sample));
        }
    }
    if let Some(listed) = &listed {
        let existing: HashSet<&str> = input.samples().filter_map(|(_, _, key)| key).collect();
        let missing = listed.iter().filter(|key| !existing.contains(**key)).count() as u64;
        if missing > 0 {
            note(format_args!("--keys names {} that no shard has", text::counted(missing, "key")));
        }
    }
    let rewrite = Rewrite {
        command: "reshard",
        limits: *limits,
        shuffle: *shuffle,
        edit,
        rekey: options.rekey,
        write_options,
        options: Vec::new(),
    };
    rewrite.check(&input)?;
    let job = rewrite.plan(series, &input, order, context)?;
    let mut outcome = rewrite.run(job, context)?;
    if options.without.is_some() || options.skip_bad.is_some() {
        outcome = outcome.leaving_out(left_out + input.damaged.unwrap_or(0));
    }
    outcome.save_index(to_index.as_deref(), context)?;
    Outcome::report(&[outcome], to_index.as_deref(), write_options.json, context)
}
