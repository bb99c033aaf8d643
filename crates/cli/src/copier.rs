//! Copies single objects, and compares the copies: by the checksums that stores keep, or by reading them
//! again.

use crate::failure::other_error;
use crate::files::is_taken;
use crate::interrupt::Stop;
use crate::progress::Progress;
use crate::source_identity::identity;
use serde::{Deserialize, Serialize};
use shardstream::store::{ObjectSums, ObjectVersion, PutCondition, RunningSums, Store, VersionComparison};
use shardstream::{ErrorKind, Result, SecretUrl};
use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;

/// An object to copy, and its target.
#[derive(Debug, Clone)]
pub(crate) struct CopyJob {
    pub(crate) from: SecretUrl,
    pub(crate) to: SecretUrl,
    pub(crate) name: String,
    /// The source as it is.
    pub(crate) object: StoredObject,
    /// The object that exists at the target.
    pub(crate) existing: Option<StoredObject>,
}

/// An object, and what its store says of its bytes.
#[derive(Debug, Clone, Default)]
pub(crate) struct StoredObject {
    pub(crate) version: ObjectVersion,
    pub(crate) sums: ObjectSums,
}

impl StoredObject {
    pub(crate) fn new((version, sums): (ObjectVersion, ObjectSums)) -> Self {
        StoredObject { version, sums }
    }
}

/// The document that records the copies of a directory, by name.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct CopyRecords {
    pub(crate) copies: BTreeMap<String, CopyRecord>,
}

/// The source of a copy, and what both were at the time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CopyRecord {
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
    /// `None` if the store made the copy, and keeps a checksum of another kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    crc32c: Option<u32>,
}

/// What was done for one object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CopyAction {
    Copied,
    /// Copied within a bucket, by its store.
    CopiedByStore,
    /// The same object existed at the target.
    Kept,
}

/// A finished copy, as `--json` reports it.
#[derive(Debug, Serialize)]
pub(crate) struct Copied {
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) crc32c: Option<String>,
    pub(crate) action: CopyAction,
    /// The record to save, with its name, if it is new.
    #[serde(skip)]
    pub(crate) record: Option<(String, CopyRecord)>,
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
pub(crate) struct CopySettings {
    pub(crate) existing: ExistingCopies,
    /// Whether the checksums of copies are compared.
    pub(crate) reread: bool,
    pub(crate) threads: usize,
}

/// Copies single objects.
pub(crate) struct Copier {
    pub(crate) store: Store,
    pub(crate) stop: Stop,
    pub(crate) progress: Arc<Progress>,
    pub(crate) settings: CopySettings,
    pub(crate) records: Arc<CopyRecords>,
}

impl Copier {
    /// Copies one object, or keeps the copy that exists.
    pub(crate) fn copy(&self, copy: &CopyJob) -> Result<Copied> {
        if self.settings.existing == ExistingCopies::KeepSame
            && let Some((record, is_new)) = self.same_object(copy)?
        {
            return Ok(self.copied(copy, record, CopyAction::Kept, is_new));
        }
        let (record, action) = match self.copy_by_store(copy)? {
            Some(record) => (record, CopyAction::CopiedByStore),
            None => (self.copy_bytes(copy)?, CopyAction::Copied),
        };
        Ok(self.copied(copy, record, action, true))
    }

    /// What must be at the target: what was there when it was looked up.
    fn condition(copy: &CopyJob) -> PutCondition {
        PutCondition::unchanged(copy.existing.as_ref().map(|existing| existing.version.clone()))
    }

    /// Has the store copy an object within a bucket, without its bytes passing through this process. Returns
    /// `None` if it does not, or if the copy could then only be compared by reading both.
    fn copy_by_store(&self, copy: &CopyJob) -> Result<Option<CopyRecord>> {
        let StoredObject { version: object, sums } = &copy.object;
        if !object.is_strong() || self.settings.reread && sums.is_empty() {
            return Ok(None);
        }
        let (from, to) = (copy.from.expose_secret(), copy.to.expose_secret());
        let mut is_ours = true;
        let is_copied = match self.store.copy(from, to, Self::condition(copy)) {
            // What may not or cannot be copied may be read and written.
            Err(error) if matches!(error.kind(), ErrorKind::Store(_) | ErrorKind::Denied(_)) => false,
            // The response to a first request may have been lost, or another process has made the same copy.
            Err(error) if is_taken(&error) && self.is_copy(copy)? => {
                is_ours = false;
                true
            }
            copied => copied?,
        };
        if !is_copied {
            return Ok(None);
        }
        // The store copied what was there at the time.
        let now = self.store.stat(from)?;
        if !object.compare(&now).is_same() {
            if is_ours {
                self.store.delete(to)?;
            }
            return Err(object.changed_to(&now).in_shard(&copy.from));
        }
        let written = StoredObject::new(self.store.stat_sums(to)?);
        if object.size != written.version.size {
            return Err(self.reject(copy, &format!("it has {}, and the source {object}", written.version)));
        }
        let mut crc32c = sums.crc32c;
        let comparison = match self.settings.reread {
            true => sums.compare(&written.sums),
            false => VersionComparison::Same,
        };
        match comparison {
            VersionComparison::Same => {}
            VersionComparison::Different => {
                return Err(self.reject(copy, "the store says that their checksums differ"));
            }
            // The copy has a checksum of another kind.
            VersionComparison::Unknown => {
                let (read, _) = self.sum(to, RunningSums::comparable_to(sums), false)?;
                let is_same = match read.compare(sums) {
                    VersionComparison::Unknown => {
                        self.sum(from, RunningSums::default(), false)?.0.crc32c == read.crc32c
                    }
                    comparison => comparison.is_same(),
                };
                if !is_same {
                    return Err(self.reject(copy, "it was read, and has another checksum"));
                }
                crc32c = read.crc32c;
            }
        }
        let size = object.size.unwrap_or(0);
        self.progress.add(size);
        Ok(Some(record(copy, size, object.version.clone(), written.version.version, crc32c)))
    }

    /// Whether the target has the checksum of the source.
    fn is_copy(&self, copy: &CopyJob) -> Result<bool> {
        let written = StoredObject::new(self.store.stat_sums(copy.to.expose_secret())?);
        Ok(copy.object.sums.compare(&written.sums).is_same())
    }

    /// Reads an object, writes it, and compares the copy: by the checksum that its store keeps, or by reading
    /// it again.
    fn copy_bytes(&self, copy: &CopyJob) -> Result<CopyRecord> {
        let (from, to) = (copy.from.expose_secret(), copy.to.expose_secret());
        let mut body = self.store.open_stored(from)?.of_version(&copy.object.version);
        let mut object = self.store.create_if(to, Self::condition(copy))?;
        let mut sums = RunningSums::for_upload(to, copy.object.version.size);
        for chunk in body.by_ref() {
            self.stop.check()?;
            let chunk = chunk?;
            sums.add(&chunk);
            object.write_all(&chunk).map_err(|error| shardstream::Error::from(error).in_shard(&copy.to))?;
            self.progress.add(chunk.len() as u64);
        }
        let version = body.object().and_then(|object| object.version);
        let written = object.finish()?;
        let (sums, size) = sums.finish();
        if written.size != size {
            let what = format!("{size} bytes were written, but it has {}", written.size);
            return Err(self.reject(copy, &what));
        }
        if self.settings.reread {
            self.check_written(copy, &sums, size, written.version.as_deref())?;
        }
        Ok(record(copy, size, version, written.version, sums.crc32c))
    }

    /// Compares the object at the target with what was written there, as this version if the store named it.
    fn check_written(
        &self,
        copy: &CopyJob,
        sums: &ObjectSums,
        size: u64,
        version: Option<&str>,
    ) -> Result<()> {
        let to = copy.to.expose_secret();
        let stored = StoredObject::new(self.store.stat_sums(to)?);
        let written = ObjectVersion::new(Some(size), version);
        let is_replaced = version.is_some() && written.compare(&stored.version).is_different();
        if is_replaced && stored.version.size == Some(size) && stored.sums.compare(sums).is_different() {
            // Another process has replaced the copy: its object is not removed.
            return Err(written.changed_to(&stored.version).in_shard(&copy.to));
        }
        let is_of_size = stored.version.size.is_none_or(|stored| stored == size);
        let what = match stored.sums.compare(sums) {
            VersionComparison::Same if is_of_size => return Ok(()),
            VersionComparison::Same | VersionComparison::Different => {
                format!(
                    "the store says that it has {}, and another checksum than was written",
                    stored.version
                )
            }
            VersionComparison::Unknown => {
                let (again, bytes) = self.sum(to, RunningSums::default(), false)?;
                if (again.crc32c, bytes) == (sums.crc32c, size) {
                    return Ok(());
                }
                let shown =
                    |sums: &ObjectSums| sums.crc32c.map(|sum| format!("{sum:08x}")).unwrap_or_default();
                format!(
                    "{size} bytes with CRC-32C {} were written, but {bytes} bytes with {} read",
                    shown(sums),
                    shown(&again)
                )
            }
        };
        Err(self.reject(copy, &what))
    }

    /// Removes a copy that differs from its source. Returns the error.
    fn reject(&self, copy: &CopyJob, what: &str) -> shardstream::Error {
        match self.store.delete(copy.to.expose_secret()) {
            Ok(()) => other_error(format!("the copy differs from the source, and was removed: {what}"))
                .in_shard(&copy.to),
            Err(error) => error,
        }
    }

    /// The record of the existing object if it equals the source, and whether the record is new.
    ///
    /// The object is the same if both versions are the recorded ones. Without a record, the checksums that
    /// the stores keep are compared, and what has none is read.
    fn same_object(&self, copy: &CopyJob) -> Result<Option<(CopyRecord, bool)>> {
        let CopyJob { object, existing: Some(existing), .. } = copy else { return Ok(None) };
        let Some(size) = object.version.size.filter(|size| existing.version.size == Some(*size)) else {
            return Ok(None);
        };
        let (from, parameters) = identity(&copy.from);
        let was = |record: &CopyRecord, version: &Option<String>, now: &ObjectVersion| {
            ObjectVersion::new(Some(record.size), version.as_deref()).compare(now).is_same()
        };
        if let Some(record) = self
            .records
            .copies
            .get(&copy.name)
            .filter(|record| record.from == from && record.parameters == parameters)
            && was(record, &record.version, &object.version)
            && was(record, &record.copy, &existing.version)
        {
            self.progress.add(record.size);
            return Ok(Some((record.clone(), false)));
        }
        let crc32c = match object.sums.compare(&existing.sums) {
            VersionComparison::Different => return Ok(None),
            VersionComparison::Same => {
                self.progress.add(size);
                object.sums.crc32c.or(existing.sums.crc32c)
            }
            VersionComparison::Unknown => match self.read_same(copy, existing, size)? {
                Some(crc32c) => crc32c,
                None => return Ok(None),
            },
        };
        let (version, copied) = (object.version.version.clone(), existing.version.version.clone());
        Ok(Some((record(copy, size, version, copied, crc32c), true)))
    }

    /// Compares a copy with its source where their stores keep no checksums of one kind: reads the source,
    /// and the copy if its checksum does not decide. Returns the CRC-32C if they are the same.
    fn read_same(&self, copy: &CopyJob, existing: &StoredObject, size: u64) -> Result<Option<Option<u32>>> {
        let (from, to) = (copy.from.expose_secret(), copy.to.expose_secret());
        // The side to read, and what is known of the other one.
        let (first, kept, second) = match existing.sums.is_empty() {
            true => (to, &copy.object.sums, from),
            false => (from, &existing.sums, to),
        };
        let (read, bytes) = self.sum(first, RunningSums::comparable_to(kept), true)?;
        let is_same = match read.compare(kept) {
            VersionComparison::Unknown => {
                let (other, of_other) = self.sum(second, RunningSums::default(), false)?;
                (other.crc32c, of_other) == (read.crc32c, bytes)
            }
            comparison => comparison.is_same() && bytes == size,
        };
        Ok(is_same.then_some(read.crc32c))
    }

    /// Checksums and length of an object. `counts` says whether its bytes count as progress.
    fn sum(&self, url: &str, mut sums: RunningSums, counts: bool) -> Result<(ObjectSums, u64)> {
        for chunk in self.store.open_stored(url)? {
            self.stop.check()?;
            let chunk = chunk?;
            sums.add(&chunk);
            if counts {
                self.progress.add(chunk.len() as u64);
            }
        }
        Ok(sums.finish())
    }

    fn copied(&self, copy: &CopyJob, record: CopyRecord, action: CopyAction, is_new: bool) -> Copied {
        Copied {
            from: copy.from.to_string(),
            to: copy.to.to_string(),
            bytes: record.size,
            crc32c: record.crc32c.map(|sum| format!("{sum:08x}")),
            action,
            record: is_new.then(|| (copy.name.clone(), record)),
        }
    }
}

/// The record of a copy.
fn record(
    copy: &CopyJob,
    size: u64,
    version: Option<String>,
    copied: Option<String>,
    crc32c: Option<u32>,
) -> CopyRecord {
    let (from, parameters) = identity(&copy.from);
    CopyRecord { from, parameters, size, version, copy: copied, crc32c }
}
