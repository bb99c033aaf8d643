//! `shardstream ls`

use crate::context::Context;
use crate::failure::Failure;
use crate::options::{JsonOption, Patterns, ThreadsOption, shards_of};
use crate::parallel::for_each_shard;
use crate::table::Table;
use crate::text;
use serde::Serialize;
use shardstream::store::{ObjectUrl, ObjectVersion, Store};
use shardstream::{SecretUrl, ShardList};
use std::collections::{BTreeSet, HashMap};

/// List the shards that match patterns.
///
/// Braces are expanded without a check that the shards exist. For wildcards and directories, the store is
/// listed. With -l or --json, each shard is looked up, and a missing shard is an error.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    patterns: Patterns,
    /// Show sizes and a total.
    #[arg(short, long)]
    long: bool,
    #[command(flatten)]
    json: JsonOption,
    #[command(flatten)]
    threads: ThreadsOption,
}

/// A shard in the output of `--json`.
#[derive(Debug, Serialize)]
struct ListedShard {
    url: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
}

pub(crate) fn run(options: Options, context: &Context) -> Result<(), Failure> {
    let patterns = options.patterns.given(context)?;
    let shards = shards_of(&patterns, &context.store)?;
    if !options.long && !options.json.json {
        return shards.iter().try_for_each(|url| context.output.line(url));
    }
    let known = sizes_of_listings(&patterns, &shards, context)?;
    let mut table = Table::new(&[">bytes", "shard"]);
    let (mut total, mut unknown) = (0_u64, 0_u64);
    let store = context.store.clone();
    let look = move |_: usize, url: &SecretUrl| object(url, &known, &store);
    let threads = options.threads.count().max(16);
    for_each_shard(&shards, threads, &context.interrupt, look, |number, object| {
        let url = shards[number].to_string();
        let bytes = object.size;
        total = total.saturating_add(bytes.unwrap_or(0));
        unknown += u64::from(bytes.is_none());
        if options.json.json {
            return context.output.record(&ListedShard { url, bytes, version: object.version });
        }
        table.row([bytes.map_or_else(|| "?".into(), text::number), url]);
        Ok(())
    })?;
    if options.json.json {
        return Ok(());
    }
    context.output.lines(&table)?;
    let without = match unknown {
        0 => String::new(),
        _ => format!(", without {} of unknown size", text::counted(unknown, "shard")),
    };
    context.output.line(format_args!(
        "{}, {} ({} bytes){without}",
        text::counted(shards.len() as u64, "shard"),
        text::bytes(total),
        text::number(total)
    ))
}

/// The size of a shard, if it is known; otherwise the size and version, which are looked up in the store.
fn object(
    url: &SecretUrl,
    known: &HashMap<String, u64>,
    store: &Store,
) -> shardstream::Result<ObjectVersion> {
    match known.get(url.expose_secret()) {
        Some(bytes) => Ok(ObjectVersion::new(Some(*bytes), None)),
        None => store.stat(url.expose_secret()),
    }
}

/// Lists directories of buckets to get the sizes of shards. A listing needs one request for a thousand
/// objects; looking up each object needs a thousand requests. Directories are listed only if a pattern was
/// resolved by a listing: then most objects of the directories are shards.
fn sizes_of_listings(
    patterns: &[SecretUrl],
    shards: &ShardList,
    context: &Context,
) -> Result<HashMap<String, u64>, Failure> {
    let is_bucket = |url: &str| {
        let url = ObjectUrl::parse(url);
        !url.is_local() && !url.is_web()
    };
    let is_listed = |url: &str| is_bucket(url) && (url.ends_with('/') || url.contains(['*', '?', '[']));
    if !patterns.iter().any(|pattern| is_listed(pattern.expose_secret())) {
        return Ok(HashMap::new());
    }
    let urls = shards.iter().map(SecretUrl::expose_secret).filter(|url| is_bucket(url));
    let directories: BTreeSet<&str> = urls.map(|url| ObjectUrl::parse(url).split_last().0).collect();
    let mut known = HashMap::new();
    let mut last: Option<&str> = None;
    for directory in directories {
        // A listing includes subdirectories, which sort after their parent.
        if last.is_some_and(|above| directory.starts_with(above)) {
            continue;
        }
        context.interrupt.check()?;
        known.extend(context.store.list(directory)?.into_iter().map(|object| (object.url, object.size)));
        last = Some(directory);
    }
    Ok(known)
}
