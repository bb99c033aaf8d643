//! Copies single objects, and compares each copy with its source: by the checksums that the stores keep, or
//! by reading the copy again.

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
    /// The source object.
    pub(crate) object: StoredObject,
    /// The object that exists at the target already.
    pub(crate) existing: Option<StoredObject>,
}

/// The version of an object, and the checksums that its store keeps.
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

/// The document beside the copies. It records the source of each copy, by the copy's name.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct CopyRecords {
    pub(crate) copies: BTreeMap<String, CopyRecord>,
}

/// The source of a copy, and the versions that source and copy had when copying ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CopyRecord {
    from: String,
    /// Hash of the URL's query parameters that select an object on a web server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    parameters: Option<String>,
    size: u64,
    /// The version of the source.
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    /// The version of the copy.
    #[serde(skip_serializing_if = "Option::is_none")]
    copy: Option<String>,
    /// The CRC-32C, which is the same for the source and the copy. `None` if the store made the copy and
    /// keeps a checksum of another kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    crc32c: Option<u32>,
}

/// What was done for one object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CopyAction {
    Copied,
    /// The store copied the object within a bucket.
    CopiedByStore,
    /// The target had the same object already.
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
    /// The name of the copy and the record to save. `None` if the record was saved before.
    #[serde(skip)]
    pub(crate) record: Option<(String, CopyRecord)>,
}

/// What to do with objects that exist at the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExistingCopies {
    Refuse,
    /// Keep objects that are the same as the source, and replace all other objects.
    KeepSame,
    Replace,
}

/// How objects are copied.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CopySettings {
    pub(crate) existing: ExistingCopies,
    /// Whether the checksums of copies are compared, and not only their sizes.
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

    /// The condition for writing the target: the target still has the object that was found there, or still
    /// has no object.
    fn condition(copy: &CopyJob) -> PutCondition {
        PutCondition::unchanged(copy.existing.as_ref().map(|existing| existing.version.clone()))
    }

    /// Lets the store copy an object within a bucket, so that its bytes do not pass through this process.
    /// Returns `None` if the store cannot copy the object, or if the copy could be compared with its source
    /// only by reading both objects.
    fn copy_by_store(&self, copy: &CopyJob) -> Result<Option<CopyRecord>> {
        let StoredObject { version: object, sums } = &copy.object;
        if !object.is_strong() || self.settings.reread && sums.is_empty() {
            return Ok(None);
        }
        let (from, to) = (copy.from.expose_secret(), copy.to.expose_secret());
        let mut is_ours = true;
        let is_copied = match self.store.copy(from, to, Self::condition(copy)) {
            // The store refuses to copy the object; reading and writing it may still be allowed.
            Err(error) if matches!(error.kind(), ErrorKind::Store(_) | ErrorKind::Denied(_)) => false,
            // The target has the copy already: the response to a first request was lost, or another process
            // has made the same copy.
            Err(error) if is_taken(&error) && self.is_copy(copy)? => {
                is_ours = false;
                true
            }
            copied => copied?,
        };
        if !is_copied {
            return Ok(None);
        }
        // The store copies the current version of the source, which may not be the planned one.
        let now = self.store.stat(from)?;
        if !object.compare(&now).is_same() {
            if is_ours {
                self.store.delete(to)?;
            }
            return Err(object.changed_to(&now).in_shard(&copy.from));
        }
        let written = StoredObject::new(self.store.stat_sums(to)?);
        if object.size != written.version.size {
            let what = format!("the copy has {}, and the source {object}", written.version);
            return Err(self.reject(copy, &what));
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
            // The store keeps different kinds of checksums for source and copy: read the copy.
            VersionComparison::Unknown => {
                let (read, _) = self.sum(to, RunningSums::comparable_to(sums), false)?;
                let is_same = match read.compare(sums) {
                    VersionComparison::Unknown => {
                        self.sum(from, RunningSums::default(), false)?.0.crc32c == read.crc32c
                    }
                    comparison => comparison.is_same(),
                };
                if !is_same {
                    return Err(self.reject(copy, "the copy was read, and has another checksum"));
                }
                crc32c = read.crc32c;
            }
        }
        let size = object.size.unwrap_or(0);
        self.progress.add(size);
        Ok(Some(record(copy, size, object.version.clone(), written.version.version, crc32c)))
    }

    /// Whether the target has the same checksum as the source.
    fn is_copy(&self, copy: &CopyJob) -> Result<bool> {
        let written = StoredObject::new(self.store.stat_sums(copy.to.expose_secret())?);
        Ok(copy.object.sums.compare(&written.sums).is_same())
    }

    /// Reads an object, writes it to the target, and compares the copy: by the checksum that the store keeps,
    /// or by reading the copy again.
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
            let what = format!("{size} bytes were written, but the copy has {}", written.size);
            return Err(self.reject(copy, &what));
        }
        if self.settings.reread {
            self.check_written(copy, &sums, size, written.version.as_deref())?;
        }
        Ok(record(copy, size, version, written.version, sums.crc32c))
    }

    /// Compares the object at the target with the checksums and size that were written. `version` is the
    /// version that the store returned for the written object, if it returned one.
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
            // Another process has replaced the copy by its own object. Do not remove that object.
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

    /// Removes a copy that differs from its source, and returns the error to report.
    fn reject(&self, copy: &CopyJob, what: &str) -> shardstream::Error {
        match self.store.delete(copy.to.expose_secret()) {
            Ok(()) => other_error(format!("the copy differs from the source, and was removed: {what}"))
                .in_shard(&copy.to),
            Err(error) => error,
        }
    }

    /// Compares the existing object with the source. If they are equal, returns the record of the copy, and
    /// whether this record is new.
    ///
    /// If an earlier record has the versions of both objects, they are equal, and nothing is read. Otherwise,
    /// the checksums that the stores keep are compared; an object without a checksum is read.
    fn same_object(&self, copy: &CopyJob) -> Result<Option<(CopyRecord, bool)>> {
        let CopyJob { object, existing: Some(existing), .. } = copy else { return Ok(None) };
        let Some(size) = object.version.size.filter(|size| existing.version.size == Some(*size)) else {
            return Ok(None);
        };
        let (from, parameters) = identity(&copy.from);
        let is_recorded = |size: u64, version: &Option<String>, now: &ObjectVersion| {
            ObjectVersion::new(Some(size), version.as_deref()).compare(now).is_same()
        };
        if let Some(record) = self.records.copies.get(&copy.name)
            && record.from == from
            && record.parameters == parameters
            && is_recorded(record.size, &record.version, &object.version)
            && is_recorded(record.size, &record.copy, &existing.version)
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

    /// Compares a copy with its source when their stores do not keep the same kind of checksum. Reads one of
    /// the two objects. If the stored checksum of the other object cannot be compared, reads that object too.
    /// Returns `None` if the objects differ; otherwise their CRC-32C, if it is known.
    fn read_same(&self, copy: &CopyJob, existing: &StoredObject, size: u64) -> Result<Option<Option<u32>>> {
        let (from, to) = (copy.from.expose_secret(), copy.to.expose_secret());
        // Read one object, and compare it with the stored checksums of the other object. If the copy has no
        // stored checksums, read the copy.
        let (first, second, stored_sums) = match existing.sums.is_empty() {
            true => (to, from, &copy.object.sums),
            false => (from, to, &existing.sums),
        };
        let (first_sums, first_bytes) = self.sum(first, RunningSums::comparable_to(stored_sums), true)?;
        let is_same = match first_sums.compare(stored_sums) {
            VersionComparison::Unknown => {
                let (second_sums, second_bytes) = self.sum(second, RunningSums::default(), false)?;
                (second_sums.crc32c, second_bytes) == (first_sums.crc32c, first_bytes)
            }
            comparison => comparison.is_same() && first_bytes == size,
        };
        Ok(is_same.then_some(first_sums.crc32c))
    }

    /// Reads an object and returns its checksums and length. `counts` says whether the bytes count as
    /// progress.
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

/// Makes the record of a copy. `version` is the version of the source, and `copied` is the version of the
/// copy.
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
