//! `shardstream index check`

use crate::context::Context;
use crate::failure::Failure;
use crate::options::{JsonOption, Patterns, VersionsOption};
use crate::parallel::for_each_shard;
use crate::progress::Unit;
use crate::shard_reader::ShardReader;
use crate::text;
use serde::Serialize;
use shardstream::error::FailureClass;
use shardstream::index::ShardIndex;
use shardstream::store::{ObjectUrl, ObjectVersion};
use shardstream::{ErrorKind, Result, SecretUrl};

/// Compare an index with the current shards.
///
/// Finds shards that are missing, or whose size or version has changed since they were indexed; with
/// patterns, also shards that are not in the index. Unlike `verify --index`, this does not read the shards,
/// with one exception: if only the version of a shard has changed and the index has checksums, its samples
/// are compared with the checksums. The exit code is 3 if anything was found.
#[derive(Debug, clap::Args)]
pub(super) struct Options {
    /// The index: a path or URL.
    #[arg(value_name = "INDEX")]
    index: String,
    #[command(flatten)]
    versions: VersionsOption,
    #[command(flatten)]
    patterns: OtherPatterns,
    #[command(flatten)]
    json: JsonOption,
}

/// Optional patterns.
#[derive(Debug, clap::Args)]
struct OtherPatterns {
    /// Shards that should be in the index.
    #[arg(value_name = "PATTERN")]
    patterns: Vec<String>,
}

/// A shard that differs from the index.
#[derive(Debug, Serialize)]
struct IndexMismatch {
    shard: String,
    /// `missing`, `changed` or `new`.
    found: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    then: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    now: Option<String>,
}

pub(super) fn run(options: Options, context: &Context) -> std::result::Result<(), Failure> {
    context.output.ignore_closed_pipe();
    let index = options.versions.load(&options.index, context)?;
    let shards = index.shards();
    let mut findings = Vec::new();
    let progress = context.progress("check", Unit::Shards, Some(shards.len() as u64));
    let (reader, known) = (context.reader.clone(), index.clone());
    let work = move |_: usize, url: &SecretUrl| match reader.store.stat(url.expose_secret()) {
        Ok(now) => match known.get(url.expose_secret()) {
            Some(shard) => compare(shard, url, &now, &reader),
            None => Ok(None),
        },
        Err(error) if matches!(error.kind(), ErrorKind::NotFound(_)) => {
            Ok(Some(IndexMismatch { shard: url.to_string(), found: "missing", then: None, now: None }))
        }
        Err(error) => Err(error),
    };
    for_each_shard(&shards, 16, &context.interrupt, work, |_, found| {
        progress.add(1);
        findings.extend(found);
        Ok(())
    })?;
    drop(progress);
    if !options.patterns.patterns.is_empty() {
        let listed = Patterns::of(options.patterns.patterns).shards(context)?;
        let is_indexed = |url: &&SecretUrl| {
            let indexed = index.get(url.expose_secret());
            indexed.is_some_and(|shard| ObjectUrl::from(*url).is_same_place(&ObjectUrl::parse(shard.url())))
        };
        let new = listed.iter().filter(|url| !is_indexed(url)).map(ToString::to_string);
        findings.extend(new.map(|shard| IndexMismatch { shard, found: "new", then: None, now: None }));
    }
    for finding in &findings {
        match options.json.json {
            true => context.output.record(finding)?,
            false => context.output.line(line(finding))?,
        }
    }
    match findings.len() {
        0 if options.json.json => Ok(()),
        0 => context.output.line(format_args!("{}: as indexed", text::counted(shards.len() as u64, "shard"))),
        _ => Err(Failure::Damage),
    }
}

/// Compares a shard with its index. Returns `None` if the shard has not changed. If only its version has
/// changed, its samples are compared with the checksums of the index.
fn compare(
    shard: &ShardIndex,
    url: &SecretUrl,
    now: &ObjectVersion,
    reader: &ShardReader,
) -> Result<Option<IndexMismatch>> {
    let mut checked = shard.check_object(url.expose_secret(), now);
    if checked.is_ok() && shard.object_at(url.expose_secret()).compare(now).is_different() {
        let mut samples = 0;
        checked = reader.samples(url)?.try_for_each(|sample| {
            samples += 1;
            shard.check(&sample?)
        });
        if checked.is_ok() && samples < shard.stored_samples() {
            let (then, now) = (format!("{} samples", shard.stored_samples()), samples.to_string());
            checked = Err(ErrorKind::Stale { then, now }.into());
        }
    }
    let Err(error) = checked else { return Ok(None) };
    let (then, now) = match error.kind() {
        ErrorKind::Stale { then, now } => (then.clone(), now.clone()),
        kind if kind.failure_class() == Some(FailureClass::Damage) => {
            (shard.object().to_string(), format!("{now}, and a sample with other bytes"))
        }
        _ => return Err(error),
    };
    Ok(Some(IndexMismatch { shard: url.to_string(), found: "changed", then: Some(then), now: Some(now) }))
}

fn line(found: &IndexMismatch) -> String {
    match (&found.then, &found.now) {
        (Some(then), Some(now)) => format!("{}: {}: it had {then}, it has {now}", found.shard, found.found),
        _ => format!("{}: {}", found.shard, found.found),
    }
}
