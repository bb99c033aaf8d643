//! Copies objects between stores. A copy appears whole or not at all, and is read again to check it.

use crate::context::Context;
use crate::failure::{Failure, other_error};
use crate::files::MAX_DOCUMENT;
use crate::interrupt::Stop;
use crate::options::{JsonOption, Patterns, ThreadsOption};
use crate::progress::{Progress, Unit};
use crate::saved_plan::put;
use crate::source_identity::identity;
use serde::{Deserialize, Serialize};
use shardstream::prelude::*;
use shardstream::store::{ObjectUrl, ObjectVersion, remove_partial_files};
use shardstream::{ErrorKind, Result, SecretUrl};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Name of the document beside the copies that records their sources.
const RECORDS: &str = ".shardstream-copies.json";
/// Time between two saves of the records while objects are copied.
const SAVE_INTERVAL: Duration = Duration::from_secs(5);

/// An object to copy, and its target.
#[derive(Debug, Clone)]
struct CopyJob {
    from: SecretUrl,
    to: SecretUrl,
    name: String,
    /// The source as it is.
    object: ObjectVersion,
    /// The object that exists at the target.
    existing: Option<ObjectVersion>,
}

/// The document that records the copies of a directory, by name.
#[derive(Debug, Default, Serialize, Deserialize)]
struct CopyRecords {
    copies: BTreeMap<String, CopyRecord>,
}

/// The source of a copy, and what both were at the time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct CopyRecord {
    from: String,
    /// Hash of the parameters that select an object of a web server, if there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    parameters: Option<String>,
    size: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    /// The version of the copy.
    #[serde(skip_serializing_if = "Option::is_none")]
    copy: Option<String>,
    crc32c: u32,
}

/// What was done for one object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum CopyAction {
    Copied,
    /// The same object existed at the target.
    Kept,
}

/// A finished copy, as `--json` reports it.
#[derive(Debug, Serialize)]
struct Copied {
    from: String,
    to: String,
    bytes: u64,
    crc32c: String,
    action: CopyAction,
    /// The record to save, with its name, if it is new.
    #[serde(skip)]
    record: Option<(String, CopyRecord)>,
}

/// Options that `cp` and `sync` share.
#[derive(Debug, clap::Args)]
pub(crate) struct CopyOptions {
    /// Objects, patterns or directories, and last the directory to copy them to. For a single object, `cp`
    /// also takes a target name.
    #[arg(value_name = "FROM|TO", required = true)]
    pub(crate) places: Vec<String>,
    /// Further objects to copy, after those of `places`.
    #[arg(skip)]
    pub(crate) documents: Vec<SecretUrl>,
    /// Do not read copies again; compare only their sizes.
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

/// What to do with objects that exist at the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExistingCopies {
    Refuse,
    /// Keep those that are the same, and replace others.
    KeepSame,
    Replace,
}

/// How objects are copied.
#[derive(Debug, Clone, Copy)]
struct CopySettings {
    existing: ExistingCopies,
    /// Whether copies are read again to compare them.
    reread: bool,
    threads: usize,
}

/// Copies the objects of all places but the last to the last one. Returns the copies in order.
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
        let taken: Vec<&CopyJob> = copies.iter().filter(|copy| copy.existing.is_some()).collect();
        if let Some(first) = taken.first() {
            return Err(Failure::Failed(format!(
                "{} of {} already exist, such as {}: --resume keeps those that are the same, --force \
                 replaces them",
                taken.len(),
                crate::text::counted(copies.len() as u64, "object"),
                first.to
            )));
        }
    }
    let names: BTreeSet<_> = copies.iter().map(|copy| ObjectUrl::from(&copy.to).file_name()).collect();
    remove_partial_files(&directory, |name| names.contains(name));
    let total = copies.iter().map(|copy| copy.object.size).sum::<Option<u64>>();
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
    let (mut copied, mut saved) = (Vec::new(), Instant::now());
    let mut now = CopyRecords { copies: records.copies.clone() };
    // After a failure as well, so that the copies of the other threads are recorded.
    for item in done.ahead(settings.threads) {
        let Some(mut done) = item? else { continue };
        if let Some((name, record)) = done.record.take() {
            now.copies.insert(name, record);
            if saved.elapsed() >= SAVE_INTERVAL {
                put(&place, &now, &context.store)?;
                saved = Instant::now();
            }
        }
        copied.push(done);
    }
    if now.copies != records.copies {
        put(&place, &now, &context.store)?;
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
                    "the name of {from} has a slash: copy it alone, and give the name of the copy"
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
                "two objects have the name {name}: copy them to places of their own"
            )));
        }
        let (from, to) = (from.clone(), url);
        copies.push(CopyJob { from, to, name, object: ObjectVersion::default(), existing: None });
    }
    let (store, flag) = (context.store.clone(), context.interrupt.clone());
    let source = copies.into_iter().take_while(move |_| !flag.is_set()).map(Ok);
    let found = source.pipeline().par_map(settings.threads.max(16), move |mut copy: CopyJob| {
        copy.object = store.stat(copy.from.expose_secret())?;
        copy.existing = match store.stat(copy.to.expose_secret()) {
            Ok(existing) => Some(existing),
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

/// Copies single objects.
struct Copier {
    store: Store,
    stop: Stop,
    progress: Arc<Progress>,
    settings: CopySettings,
    records: Arc<CopyRecords>,
}

impl Copier {
    /// Copies one object, or keeps the copy that exists.
    fn copy(&self, copy: &CopyJob) -> Result<Copied> {
        if self.settings.existing == ExistingCopies::KeepSame
            && let Some((record, is_new)) = self.same_object(copy)?
        {
            return Ok(self.copied(copy, record, CopyAction::Kept, is_new));
        }
        let from = copy.from.expose_secret();
        let mut body = self.store.open_stored(from)?;
        let mut object = self.store.create(copy.to.expose_secret())?;
        let (mut crc32c, mut size) = (0, 0);
        for chunk in body.by_ref() {
            self.stop.check()?;
            let chunk = chunk?;
            crc32c = crc32c::crc32c_append(crc32c, &chunk);
            object.write_all(&chunk).map_err(|error| shardstream::Error::from(error).in_shard(&copy.to))?;
            size += chunk.len() as u64;
            self.progress.add(chunk.len() as u64);
        }
        let version = body.object().and_then(|object| object.version);
        let written = object.finish()?;
        if written.size != size {
            return self.reject(copy, &format!("{size} bytes were written, but it has {}", written.size));
        }
        if self.settings.reread {
            let (again, bytes) = self.sum(copy.to.expose_secret(), false)?;
            if (again, bytes) != (crc32c, size) {
                let what = format!(
                    "{size} bytes with CRC-32C {crc32c:08x} were written, but {bytes} bytes with \
                     {again:08x} read"
                );
                return self.reject(copy, &what);
            }
        }
        let (from, parameters) = identity(&copy.from);
        let record = CopyRecord { from, parameters, size, version, copy: written.version, crc32c };
        Ok(self.copied(copy, record, CopyAction::Copied, true))
    }

    /// Removes a copy that differs from its source, and returns the error.
    fn reject(&self, copy: &CopyJob, what: &str) -> Result<Copied> {
        self.store.delete(copy.to.expose_secret())?;
        Err(other_error(format!("the copy differs from the source, and was removed: {what}"))
            .in_shard(&copy.to))
    }

    /// The record of the existing object if it equals the source, and whether the record is new.
    ///
    /// The object is the same if both versions are the recorded ones. Without a record, both are read.
    fn same_object(&self, copy: &CopyJob) -> Result<Option<(CopyRecord, bool)>> {
        let CopyJob { object, existing: Some(existing), .. } = copy else { return Ok(None) };
        if object.size.is_none() || object.size != existing.size {
            return Ok(None);
        }
        let (from, parameters) = identity(&copy.from);
        let was = |record: &CopyRecord, version: &Option<String>, now: &ObjectVersion| {
            ObjectVersion::new(Some(record.size), version.as_deref()).compare(now).is_same()
        };
        if let Some(record) = self
            .records
            .copies
            .get(&copy.name)
            .filter(|record| record.from == from && record.parameters == parameters)
            && was(record, &record.version, object)
            && was(record, &record.copy, existing)
        {
            self.progress.add(record.size);
            return Ok(Some((record.clone(), false)));
        }
        let (crc32c, size) = self.sum(copy.from.expose_secret(), true)?;
        if (crc32c, size) != self.sum(copy.to.expose_secret(), false)? {
            return Ok(None);
        }
        let (version, copied) = (object.version.clone(), existing.version.clone());
        Ok(Some((CopyRecord { from, parameters, size, version, copy: copied, crc32c }, true)))
    }

    /// CRC-32C and length of an object. `counts` says whether its bytes count as progress.
    fn sum(&self, url: &str, counts: bool) -> Result<(u32, u64)> {
        let (mut crc32c, mut size) = (0, 0);
        for chunk in self.store.open_stored(url)? {
            self.stop.check()?;
            let chunk = chunk?;
            crc32c = crc32c::crc32c_append(crc32c, &chunk);
            size += chunk.len() as u64;
            if counts {
                self.progress.add(chunk.len() as u64);
            }
        }
        Ok((crc32c, size))
    }

    fn copied(&self, copy: &CopyJob, record: CopyRecord, action: CopyAction, is_new: bool) -> Copied {
        Copied {
            from: copy.from.to_string(),
            to: copy.to.to_string(),
            bytes: record.size,
            crc32c: format!("{:08x}", record.crc32c),
            action,
            record: is_new.then(|| (copy.name.clone(), record)),
        }
    }
}

/// Prints the copies as JSON, or their number in one line.
fn report(copied: &[Copied], json: bool, context: &Context) -> std::result::Result<(), Failure> {
    if json {
        return copied.iter().try_for_each(|copy| context.output.record(copy));
    }
    let of = |action: CopyAction| copied.iter().filter(move |copy| copy.action == action);
    let counted = |action: CopyAction| crate::text::counted(of(action).count() as u64, "object");
    let bytes = crate::text::bytes(of(CopyAction::Copied).map(|copy| copy.bytes).sum());
    let kept = match of(CopyAction::Kept).count() {
        0 => String::new(),
        _ => format!("; {} the same already", counted(CopyAction::Kept)),
    };
    context.output.line(format_args!("{} copied, {bytes}{kept}", counted(CopyAction::Copied)))
}
