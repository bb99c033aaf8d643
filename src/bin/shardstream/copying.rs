//! Copying objects between stores: whole or not at all, and read again.

use crate::context::Context;
use crate::failure::{Failure, other_error};
use crate::files::{local_path, normalised};
use crate::interrupt::Stop;
use crate::options::{JsonOption, Patterns, ThreadsOption};
use crate::progress::{Progress, Unit};
use crate::saved_plan::put;
use crate::series::remove_partial;
use serde::{Deserialize, Serialize};
use shardstream::prelude::*;
use shardstream::store::ObjectVersion;
use shardstream::{ErrorKind, Result, SecretUrl};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The document beside the copies that says of what they are copies.
const RECORDS: &str = ".shardstream-copies.json";
/// Time between two writes of the records while objects are copied.
const EVERY: Duration = Duration::from_secs(5);

/// An object and where it is copied to.
#[derive(Debug, Clone)]
struct CopyJob {
    from: SecretUrl,
    to: SecretUrl,
    name: String,
    size: Option<u64>,
    version: Option<String>,
    /// What is at the target.
    there: Option<ObjectVersion>,
}

/// What was copied: beside the copies, by their names.
#[derive(Debug, Default, Serialize, Deserialize)]
struct CopyRecords {
    copies: BTreeMap<String, CopyRecord>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct CopyRecord {
    from: String,
    size: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    /// The version of the copy.
    #[serde(skip_serializing_if = "Option::is_none")]
    copy: Option<String>,
    crc32c: u32,
}

/// What was done for an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum CopyAction {
    Copied,
    /// The same object was there.
    Kept,
}

/// An object that is there now.
#[derive(Debug, Serialize)]
struct Copied {
    from: String,
    to: String,
    bytes: u64,
    crc32c: String,
    action: CopyAction,
    #[serde(skip)]
    record: Option<(String, CopyRecord)>,
}

/// What is copied, and how, for `cp` and `sync`.
#[derive(Debug, clap::Args)]
pub(crate) struct CopyOptions {
    /// Objects, patterns or directories, and last the directory that they are copied to. `cp` takes a name
    /// for a single object too.
    #[arg(value_name = "FROM|TO", required = true)]
    pub(crate) places: Vec<String>,
    /// Do not read copies again: compare their sizes only.
    #[arg(long)]
    no_reread: bool,
    #[command(flatten)]
    threads: ThreadsOption,
    #[command(flatten)]
    json: JsonOption,
}

impl CopyOptions {
    /// Copies the objects, and reports what is there now.
    pub(crate) fn run(self, there: ExistingCopies, context: &Context) -> std::result::Result<(), Failure> {
        let how = CopySettings { there, reread: !self.no_reread, threads: self.threads.count() };
        report(&copy_all(self.places, how, context)?, self.json.json, context)
    }
}

/// What is done with objects that are there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExistingCopies {
    Refuse,
    /// Those that are the same are kept.
    KeepSame,
    Replace,
}

/// How objects are copied.
#[derive(Debug, Clone, Copy)]
struct CopySettings {
    there: ExistingCopies,
    /// Whether copies are read again.
    reread: bool,
    threads: usize,
}

/// Copies what matches the places before the last to the last, and returns what is there now, in order.
fn copy_all(places: Vec<String>, how: CopySettings, context: &Context) -> std::result::Result<Vec<Copied>, Failure> {
    let copies = plan(places, how, context)?;
    let Some(directory) = copies.first().map(|copy| directory(copy.to.expose_secret()).to_owned()) else {
        return Ok(Vec::new());
    };
    let place = format!("{directory}{RECORDS}");
    let records = read_records(&place, context)?;
    if how.there == ExistingCopies::Refuse {
        let taken: Vec<&CopyJob> = copies.iter().filter(|copy| copy.there.is_some()).collect();
        if let Some(first) = taken.first() {
            return Err(Failure::Failed(format!(
                "{} of {} there already, such as {}: --resume keeps those that are the same, --force \
                 replaces them",
                taken.len(),
                crate::text::counted(copies.len() as u64, "object"),
                first.to
            )));
        }
    }
    if how.there == ExistingCopies::KeepSame {
        let names: BTreeSet<String> = copies.iter().map(|copy| stored_name(&copy.to)).collect();
        remove_partial(&directory, |name| names.contains(name));
    }
    let total = copies.iter().map(|copy| copy.size).sum::<Option<u64>>();
    let progress = Arc::new(context.progress("copying", Unit::Bytes, total));
    let records = Arc::new(records);
    let stop = Stop::new(&context.interrupt);
    let copier = Copier {
        store: context.store.clone(),
        stop: stop.clone(),
        progress,
        how,
        records: Arc::clone(&records),
    };
    let flag = stop.clone();
    let source = copies.into_iter().take_while(move |_| !flag.is_set()).map(Ok);
    let flag = stop.clone();
    let done = source.par_map(how.threads, move |copy: CopyJob| Ok(flag.guard(|| copier.copy(&copy))));
    let (mut copied, mut saved) = (Vec::new(), Instant::now());
    let mut now = CopyRecords { copies: records.copies.clone() };
    // After a failure too: what others have copied is recorded.
    for item in done.ahead(how.threads) {
        let Some(mut done) = item? else { continue };
        if let Some((name, record)) = done.record.take() {
            now.copies.insert(name, record);
            if saved.elapsed() >= EVERY {
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

/// Which objects are copied to where.
fn plan(mut places: Vec<String>, how: CopySettings, context: &Context) -> std::result::Result<Vec<CopyJob>, Failure> {
    let Some(to) = places.pop().filter(|_| !places.is_empty()) else {
        return Err(Failure::Usage("give what is copied, and last where to".into()));
    };
    let sources = Patterns::of(places).shards(context)?;
    let into = to.ends_with('/') || sources.len() > 1 || Path::new(&to).is_dir();
    let (mut names, mut copies) = (BTreeSet::new(), Vec::new());
    for from in &sources {
        let name = file_name(from.expose_secret()).to_owned();
        let url = match into {
            true => format!("{}/{name}", to.trim_end_matches('/')),
            false => to.clone(),
        };
        if normalised(&url) == normalised(from.expose_secret()) {
            return Err(Failure::Usage(format!("{from} would be copied onto itself")));
        }
        if !names.insert(name.clone()) {
            return Err(Failure::Usage(format!(
                "two objects have the name {name}: copy them to places of their own"
            )));
        }
        let (from, to) = (from.clone(), SecretUrl::from(url));
        copies.push(CopyJob { from, to, name, size: None, version: None, there: None });
    }
    let (store, flag) = (context.store.clone(), context.interrupt.clone());
    let source = copies.into_iter().take_while(move |_| !flag.is_set()).map(Ok);
    let looked = source.par_map(how.threads.max(16), move |mut copy: CopyJob| {
        let from = store.stat(copy.from.expose_secret())?;
        (copy.size, copy.version) = (from.size, from.version);
        copy.there = match store.stat(copy.to.expose_secret()) {
            Ok(there) => Some(there),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound(_)) => None,
            Err(error) => return Err(error),
        };
        Ok(copy)
    });
    let copies = looked.collect::<Result<Vec<_>>>();
    context.interrupt.check()?;
    Ok(copies?)
}

fn read_records(place: &str, context: &Context) -> std::result::Result<CopyRecords, Failure> {
    let text = match context.store.open(place)?.read_all() {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound(_)) => return Ok(CopyRecords::default()),
        text => text?,
    };
    serde_json::from_slice(&text).map_err(|error| {
        let place = SecretUrl::from(place);
        Failure::Failed(format!("{place} does not say what was copied ({error}): remove it"))
    })
}

/// What is before the name, with its slash.
fn directory(url: &str) -> &str {
    &url[..url.rfind('/').map_or(0, |slash| slash + 1)]
}

/// The last part of a URL, without the query of a web address.
fn file_name(url: &str) -> &str {
    let path = match url.starts_with("http://") || url.starts_with("https://") {
        true => url.split(['?', '#']).next().unwrap_or(url),
        false => url,
    };
    path.rsplit('/').next().unwrap_or(path)
}

/// The name of the file or object at a place: without percent-encoding for a `file:` URL.
fn stored_name(url: &SecretUrl) -> String {
    let path = local_path(url.expose_secret());
    let name = path.as_deref().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
    name.unwrap_or_else(|| file_name(url.expose_secret()).to_owned())
}

struct Copier {
    store: Store,
    stop: Stop,
    progress: Arc<Progress>,
    how: CopySettings,
    records: Arc<CopyRecords>,
}

impl Copier {
    fn copy(&self, copy: &CopyJob) -> Result<Copied> {
        if self.how.there == ExistingCopies::KeepSame
            && let Some((record, is_new)) = self.same(copy)?
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
            return self.refuse(copy, &format!("{size} bytes were written, and it has {}", written.size));
        }
        if self.how.reread {
            let (again, bytes) = self.sum(copy.to.expose_secret(), false)?;
            if (again, bytes) != (crc32c, size) {
                let what = format!(
                    "{size} bytes of CRC-32C {crc32c:08x} were written, and {bytes} of {again:08x} are read"
                );
                return self.refuse(copy, &what);
            }
        }
        let from = copy.from.to_string();
        let record = CopyRecord { from, size, version, copy: written.version, crc32c };
        Ok(self.copied(copy, record, CopyAction::Copied, true))
    }

    /// Removes a copy that is none.
    fn refuse(&self, copy: &CopyJob, what: &str) -> Result<Copied> {
        self.store.delete(copy.to.expose_secret())?;
        Err(other_error(format!("the copy is not what was copied, and was removed: {what}")).in_shard(&copy.to))
    }

    /// The record of the object that is there, if it is the same, and whether it is new.
    ///
    /// It is the same as was recorded, with the same versions; without a record both are read.
    fn same(&self, copy: &CopyJob) -> Result<Option<(CopyRecord, bool)>> {
        let Some(there) = copy.there.as_ref().filter(|there| there.size.is_some() && there.size == copy.size)
        else {
            return Ok(None);
        };
        let from = copy.from.to_string();
        if let Some(record) = self.records.copies.get(&copy.name).filter(|record| record.from == from)
            && Some(record.size) == copy.size
            && copy.version.is_some()
            && (&record.version, &record.copy) == (&copy.version, &there.version)
        {
            self.progress.add(record.size);
            return Ok(Some((record.clone(), false)));
        }
        let (crc32c, size) = self.sum(copy.from.expose_secret(), true)?;
        if (crc32c, size) != self.sum(copy.to.expose_secret(), false)? {
            return Ok(None);
        }
        let (version, copied) = (copy.version.clone(), there.version.clone());
        Ok(Some((CopyRecord { from, size, version, copy: copied, crc32c }, true)))
    }

    /// The CRC-32C and the length of an object.
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

/// Says what is there now.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_directories() {
        assert_eq!(file_name("https://host/a/b.tar?signature=x/y"), "b.tar");
        assert_eq!((file_name("s3://b/a?b.tar"), file_name("b.tar")), ("a?b.tar", "b.tar"));
        assert_eq!((directory("s3://b/d/a.tar"), directory("a.tar")), ("s3://b/d/", ""));
    }
}
