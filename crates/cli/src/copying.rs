//! Copies objects between stores, for `cp` and `sync`: resolves sources and targets, and records the copies.

use crate::context::Context;
use crate::copier::{
    Copied, Copier, CopyAction, CopyJob, CopyRecords, CopySettings, ExistingCopies, StoredObject,
};
use crate::failure::Failure;
use crate::files::MAX_DOCUMENT;
use crate::interrupt::Stop;
use crate::options::{JsonOption, Patterns, ThreadsOption};
use crate::progress::Unit;
use crate::saved_plan::put;
use shardstream::prelude::*;
use shardstream::store::{ObjectUrl, remove_partial_files};
use shardstream::{ErrorKind, Result, SecretUrl};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Name of the document, beside the copies, that records the source of each copy.
const RECORDS: &str = ".shardstream-copies.json";
/// Interval at which the records are saved while objects are copied.
const SAVE_INTERVAL: Duration = Duration::from_secs(5);

/// Options that `cp` and `sync` share.
#[derive(Debug, clap::Args)]
pub(crate) struct CopyOptions {
    /// The objects, patterns or directories to copy, followed by the directory to copy them to. For a single
    /// object, `cp` also takes a file name as target.
    #[arg(value_name = "FROM|TO", required = true)]
    pub(crate) places: Vec<String>,
    /// Further objects to copy, after those of `places`.
    #[arg(skip)]
    pub(crate) documents: Vec<SecretUrl>,
    /// Compare copies with their sources only by size, not by checksum.
    #[arg(long)]
    no_reread: bool,
    #[command(flatten)]
    threads: ThreadsOption,
    #[command(flatten)]
    json: JsonOption,
}

impl CopyOptions {
    /// Copies the objects and prints a report.
    pub(crate) fn run(self, existing: ExistingCopies, context: &Context) -> std::result::Result<(), Failure> {
        let settings = CopySettings { existing, reread: !self.no_reread, threads: self.threads.count() };
        report(&copy_all(self.places, self.documents, settings, context)?, self.json.json, context)
    }
}

/// The last of `places` is the target. Copies the objects of the other places, and then `documents`, to the
/// target. Returns the copies in this order.
fn copy_all(
    places: Vec<String>,
    documents: Vec<SecretUrl>,
    settings: CopySettings,
    context: &Context,
) -> std::result::Result<Vec<Copied>, Failure> {
    let copies = plan(places, documents, settings, context)?;
    let Some(first) = copies.first() else { return Ok(Vec::new()) };
    let directory = ObjectUrl::from(&first.to).split_last().0.to_owned();
    let place = format!("{directory}{RECORDS}");
    let records = read_records(&place, context)?;
    if settings.existing == ExistingCopies::Refuse {
        let existing: Vec<&CopyJob> = copies.iter().filter(|copy| copy.existing.is_some()).collect();
        if let Some(first) = existing.first() {
            return Err(Failure::Failed(format!(
                "{} of {} already exist, such as {}: --resume keeps those that are the same, --force \
                 replaces all",
                existing.len(),
                crate::text::counted(copies.len() as u64, "object"),
                first.to
            )));
        }
    }
    let names: BTreeSet<_> = copies.iter().map(|copy| ObjectUrl::from(&copy.to).file_name()).collect();
    remove_partial_files(&directory, |name| names.contains(name));
    let total = copies.iter().map(|copy| copy.object.version.size).sum::<Option<u64>>();
    let progress = Arc::new(context.progress("copying", Unit::Bytes, total));
    let records = Arc::new(records);
    let stop = Stop::new(&context.interrupt);
    let copier = Copier {
        store: context.store.clone(),
        stop: stop.clone(),
        progress,
        settings,
        records: Arc::clone(&records),
    };
    let flag = stop.clone();
    let source = copies.into_iter().take_while(move |_| !flag.is_set()).map(Ok);
    let flag = stop.clone();
    let done = source
        .pipeline()
        .par_map(settings.threads, move |copy: CopyJob| Ok(flag.guard(|| copier.copy(&copy))));
    let (mut copied, mut last_save) = (Vec::new(), Instant::now());
    let mut new_records = CopyRecords { copies: records.copies.clone() };
    // The loop continues after a failure, so that the finished copies of other threads are recorded.
    for item in done.ahead(settings.threads) {
        let Some(mut done) = item? else { continue };
        if let Some((name, record)) = done.record.take() {
            new_records.copies.insert(name, record);
            if last_save.elapsed() >= SAVE_INTERVAL {
                put(&place, &new_records, &context.store)?;
                last_save = Instant::now();
            }
        }
        copied.push(done);
    }
    if new_records.copies != records.copies {
        put(&place, &new_records, &context.store)?;
    }
    stop.finish()?;
    Ok(copied)
}

/// Resolves the sources and targets, and looks up the objects at both.
fn plan(
    mut places: Vec<String>,
    documents: Vec<SecretUrl>,
    settings: CopySettings,
    context: &Context,
) -> std::result::Result<Vec<CopyJob>, Failure> {
    let Some(to) = places.pop().filter(|_| !places.is_empty()) else {
        return Err(Failure::Usage("give the objects to copy, and the target last".into()));
    };
    let mut sources: Vec<SecretUrl> = Patterns::of(places).shards(context)?.iter().cloned().collect();
    sources.extend(documents);
    let target = ObjectUrl::parse(&to);
    let is_directory = || Ok::<_, Failure>(target.local_path()?.is_some_and(|path| path.is_dir()));
    let into = to.ends_with('/') || sources.len() > 1 || is_directory()?;
    let (mut names, mut copies) = (BTreeSet::new(), Vec::new());
    for from in &sources {
        let name = ObjectUrl::from(from).file_name().into_owned();
        let url = match into {
            true if name.contains('/') => {
                return Err(Failure::Usage(format!(
                    "the name of {from} has a slash: copy it alone, with a file name as target"
                )));
            }
            true => target.join(&name).map_err(|error| error.in_shard(from))?,
            false => SecretUrl::from(&to),
        };
        if ObjectUrl::from(&url).is_same_place(&from.into()) {
            return Err(Failure::Usage(format!("{from} would be copied onto itself")));
        }
        if !names.insert(name.clone()) {
            return Err(Failure::Usage(format!(
                "two objects have the name {name}: copy them to different directories"
            )));
        }
        let (from, to) = (from.clone(), url);
        copies.push(CopyJob { from, to, name, object: StoredObject::default(), existing: None });
    }
    let (store, flag) = (context.store.clone(), context.interrupt.clone());
    let source = copies.into_iter().take_while(move |_| !flag.is_set()).map(Ok);
    let found = source.pipeline().par_map(settings.threads.max(16), move |mut copy: CopyJob| {
        copy.object = StoredObject::new(store.stat_sums(copy.from.expose_secret())?);
        copy.existing = match store.stat_sums(copy.to.expose_secret()) {
            Ok(existing) => Some(StoredObject::new(existing)),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound(_)) => None,
            Err(error) => return Err(error),
        };
        Ok(copy)
    });
    let copies = found.collect::<Result<Vec<_>>>();
    context.interrupt.check()?;
    Ok(copies?)
}

fn read_records(place: &str, context: &Context) -> std::result::Result<CopyRecords, Failure> {
    let text = match context.store.open(place)?.read_at_most(MAX_DOCUMENT) {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound(_)) => return Ok(CopyRecords::default()),
        text => text?,
    };
    serde_json::from_slice(&text).map_err(|error| {
        let place = SecretUrl::from(place);
        Failure::Failed(format!("{place} is not a record of copies ({error}): remove it"))
    })
}

/// Prints the copies as JSON, or their number in one line.
fn report(copied: &[Copied], json: bool, context: &Context) -> std::result::Result<(), Failure> {
    if json {
        return copied.iter().try_for_each(|copy| context.output.record(copy));
    }
    let count = |action: CopyAction| copied.iter().filter(|copy| copy.action == action).count() as u64;
    let counted = |count: u64| crate::text::counted(count, "object");
    let [kept, by_store] = [CopyAction::Kept, CopyAction::CopiedByStore].map(count);
    let new = copied.iter().filter(|copy| copy.action != CopyAction::Kept);
    let mut line = format!(
        "{} copied, {}",
        counted(copied.len() as u64 - kept),
        crate::text::bytes(new.map(|copy| copy.bytes).sum())
    );
    if by_store > 0 {
        line += &format!(", {by_store} of them by the store itself");
    }
    if kept > 0 {
        line += &format!("; {} the same already", counted(kept));
    }
    context.output.line(line)
}
