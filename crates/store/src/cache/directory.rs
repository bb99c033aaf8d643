//! The directory of a cache, shared by all threads and processes that use it.
//!
//! Files are created, renamed and removed only under the lock of the directory, so that no process replaces a
//! file that another one has just found. A file that is being filled is locked too, for as long as the
//! process that fills it lives. Files with other names are left alone.

use super::file::{self, CachedContent, TAIL};
use crate::secret_url::SecretUrl;
use crate::{ObjectVersion, local};
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

const ENTRY: &str = "shard";
const PARTIAL: &str = "partial";
/// Maximum time to wait for the lock of the directory. It is held for moments, unless its holder was
/// suspended.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);

/// The directory of a cache.
#[derive(Debug)]
pub(super) struct CacheDirectory {
    path: PathBuf,
    max_bytes: u64,
    /// Number of bytes that can be written before the simulated disk is full.
    #[cfg(test)]
    pub(super) disk: std::sync::atomic::AtomicU64,
    /// Whether the simulated disk flips a bit in each write of an object.
    #[cfg(test)]
    pub(super) flips: std::sync::atomic::AtomicBool,
}

/// The result of looking up an entry.
#[derive(Debug)]
pub(super) enum CacheEntry {
    Absent,
    /// A file that is truncated, visibly damaged, or of another format version.
    Invalid,
    Valid(CachedContent),
}

/// The lock of the directory, released on drop.
pub(super) struct DirectoryLock(#[allow(dead_code, reason = "closing the file releases the lock")] File);

/// The result of claiming the file of an object.
#[derive(Debug)]
pub(super) enum Claim {
    /// An entry has appeared or changed since it was looked up.
    Entry,
    /// Another process fills this file, or another cache of this process.
    Busy(File),
    /// The caller fills this file.
    Mine(PartialEntry),
}

/// A file that only this process may fill.
#[derive(Debug)]
pub(super) struct PartialEntry {
    key: String,
    file: File,
}

/// The result of reserving space for an object.
#[derive(Debug)]
pub(super) enum Reservation {
    Reserved(CachedContent),
    /// The object is too large, others that are being filled leave no space for it, or it has no size or no
    /// strong version.
    NoSpace,
    /// Another process has just created an entry of the same object.
    Entry,
}

impl CacheDirectory {
    pub(super) fn new(path: PathBuf, max_bytes: u64) -> Self {
        CacheDirectory {
            path,
            max_bytes,
            #[cfg(test)]
            disk: u64::MAX.into(),
            #[cfg(test)]
            flips: false.into(),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn max_bytes(&self) -> u64 {
        self.max_bytes
    }

    /// Path of the entry of a key, whether it exists or not.
    pub(super) fn entry(&self, key: &str) -> PathBuf {
        self.path.join(key).with_extension(ENTRY)
    }

    fn partial(&self, key: &str) -> PathBuf {
        self.path.join(key).with_extension(PARTIAL)
    }

    pub(super) fn lock(&self) -> io::Result<DirectoryLock> {
        let path = self.path.join("lock");
        let file = local::private_file().create(true).truncate(false).write(true).open(path)?;
        let begun = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(DirectoryLock(file)),
                Err(TryLockError::Error(error)) => return Err(error),
                Err(TryLockError::WouldBlock) if begun.elapsed() > LOCK_TIMEOUT => {
                    return Err(io::Error::new(
                        io::ErrorKind::TimedOut,
                        "its lock is held by another process",
                    ));
                }
                Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }

    /// Looks up the entry of a key. Its blocks are verified when they are read.
    pub(super) fn find(&self, key: &str) -> io::Result<CacheEntry> {
        let Some(file) = existing(File::open(self.entry(key)))? else { return Ok(CacheEntry::Absent) };
        Ok(match CachedContent::open(file, key)? {
            Ok(content) if content.is_complete()? => CacheEntry::Valid(content),
            _ => CacheEntry::Invalid,
        })
    }

    /// Marks an entry as the most recently used. Where times cannot be set, entries are evicted in the order
    /// in which they were created.
    pub(super) fn mark_used(content: &CachedContent) {
        let _ = content.file.set_modified(SystemTime::now());
    }

    /// Claims the file of an object for filling, unless there is an entry or another process fills it. An
    /// entry of the version `stale` is ignored: it is to be replaced.
    pub(super) fn claim(&self, key: &str, stale: Option<&ObjectVersion>) -> io::Result<Claim> {
        let _lock = self.lock()?;
        match self.find(key)? {
            CacheEntry::Valid(content)
                if !stale.is_some_and(|stale| stale.is_identical(&content.object())) =>
            {
                return Ok(Claim::Entry);
            }
            CacheEntry::Valid(_) | CacheEntry::Absent => {}
            CacheEntry::Invalid => remove(&self.entry(key))?,
        }
        let path = self.partial(key);
        if let Some(file) = existing(File::open(&path))? {
            match is_unlocked(&file)? {
                false => return Ok(Claim::Busy(file)),
                // The process that filled it has died.
                true => remove(&path)?,
            }
        }
        let file = local::private_file().create_new(true).read(true).write(true).open(&path)?;
        match file.try_lock() {
            Ok(()) => Ok(Claim::Mine(PartialEntry { key: key.into(), file })),
            Err(error) => {
                let _ = remove(&path);
                Err(error.into())
            }
        }
    }

    /// Evicts entries to make space for an object, and writes the head of its file.
    pub(super) fn reserve(
        &self,
        partial: &PartialEntry,
        url: &SecretUrl,
        object: &ObjectVersion,
    ) -> io::Result<Reservation> {
        let (Some(size), Some(version)) = (object.size, object.strong()) else {
            return Ok(Reservation::NoSpace);
        };
        let Some(head) = file::head(&partial.key, url, version, size) else {
            return Ok(Reservation::NoSpace);
        };
        let total = (head.len() as u64 + TAIL).saturating_add(size);
        let _lock = self.lock()?;
        let same = |content: &CachedContent| content.object().compare(object).is_same();
        if matches!(self.find(&partial.key)?, CacheEntry::Valid(content) if same(&content)) {
            return Ok(Reservation::Entry);
        }
        if !self.evict(total, &partial.key)? {
            return Ok(Reservation::NoSpace);
        }
        self.write(partial, &head, 0)?;
        match CachedContent::open(partial.file.try_clone()?, &partial.key)? {
            Ok(content) => Ok(Reservation::Reserved(content)),
            Err(_) => Err(io::Error::other("its content differs from what was written to it")),
        }
    }

    pub(super) fn write(&self, partial: &PartialEntry, bytes: &[u8], at: u64) -> io::Result<()> {
        #[cfg(test)]
        {
            use std::sync::atomic::Ordering::SeqCst;
            let length = bytes.len() as u64;
            let left = |disk: u64| disk.checked_sub(length);
            if self.disk.fetch_update(SeqCst, SeqCst, left).is_err() {
                return Err(io::ErrorKind::StorageFull.into());
            }
        }
        file::write_at(&partial.file, bytes, at)
    }

    /// Writes bytes of the object, beginning at its byte `at`.
    pub(super) fn write_content(
        &self,
        partial: &PartialEntry,
        content: &CachedContent,
        bytes: &[u8],
        at: u64,
    ) -> io::Result<()> {
        #[cfg(test)]
        if self.flips.load(std::sync::atomic::Ordering::SeqCst) {
            let mut bytes = bytes.to_vec();
            bytes.first_mut().into_iter().for_each(|byte| *byte ^= 0x10);
            return self.write(partial, &bytes, content.offset(at));
        }
        self.write(partial, bytes, content.offset(at))
    }

    /// Turns a complete file into an entry, unless a reader has found damage in it.
    pub(super) fn finish(&self, partial: &PartialEntry, content: &CachedContent) -> io::Result<()> {
        let (tail, at) = content.tail();
        self.write(partial, &tail, at)?;
        // Data before the rename: a crash must not leave the name on a file whose data never reached the
        // disk.
        partial.file.sync_data()?;
        let _lock = self.lock()?;
        // Under this lock, since a reader sets the mark before it looks up the entry.
        if content.is_damaged() {
            return Err(io::Error::other("its content differs from what was written to it"));
        }
        fs::rename(self.partial(&partial.key), self.entry(&partial.key))?;
        Self::mark_used(content);
        partial.file.unlock()
    }

    /// Removes an incomplete file. Readers that have it open can continue.
    pub(super) fn abandon(&self, partial: &PartialEntry) -> io::Result<()> {
        let _lock = self.lock()?;
        remove(&self.partial(&partial.key))?;
        partial.file.unlock()
    }

    /// Removes the entry of a key, unless its bytes `at..end` can be read: another process may have replaced
    /// the file in which damage was found. Returns whether an entry was removed.
    pub(super) fn discard(&self, key: &str, at: u64, end: u64) -> io::Result<bool> {
        let _lock = self.lock()?;
        match self.find(key) {
            Ok(CacheEntry::Absent) => return Ok(false),
            Ok(CacheEntry::Valid(content))
                if at >= content.size || content.read(at, end, content.all()).is_ok() =>
            {
                return Ok(false);
            }
            _ => {}
        }
        remove(&self.entry(key)).map(|()| true)
    }

    /// Removes files of processes that have died, entries of other format versions, and the least recently
    /// used entries beyond the maximum size.
    pub(super) fn clean_up(&self) -> io::Result<()> {
        let _lock = self.lock()?;
        for file in fs::read_dir(&self.path)? {
            let path = file?.path();
            if parse_name(&path).is_some_and(|(_, extension)| extension == ENTRY)
                && let Some(file) = existing(File::open(&path))?
                && file::has_other_format(&file)?
            {
                remove(&path)?;
            }
        }
        self.evict(0, "").map(drop)
    }

    /// Removes the least recently used entries until there is space for `bytes`, which replace the entry of
    /// `key`. Returns whether there is.
    fn evict(&self, bytes: u64, key: &str) -> io::Result<bool> {
        let (mut entries, mut reserved) = (Vec::new(), bytes);
        for file in fs::read_dir(&self.path)? {
            let path = file?.path();
            let Some((found, extension)) = parse_name(&path) else { continue };
            if extension == ENTRY {
                // It may have been removed since the directory was listed.
                let Some(metadata) = existing(fs::metadata(&path))? else { continue };
                let used = if found == key { None } else { metadata.modified().ok() };
                entries.push((used, metadata.len(), path));
            } else if found != key
                && let Some(file) = existing(File::open(&path))?
            {
                match is_unlocked(&file)? {
                    true => remove(&path)?,
                    false => reserved = reserved.saturating_add(reserved_bytes(file, found)?),
                }
            }
        }
        if reserved > self.max_bytes {
            return Ok(false);
        }
        entries.sort_unstable();
        let mut total = entries.iter().fold(reserved, |total, (_, length, _)| total.saturating_add(*length));
        for (_, length, path) in entries {
            if total <= self.max_bytes {
                break;
            }
            // Some systems cannot remove a file while it is read. Then a later entry is removed instead.
            if remove(&path).is_ok() {
                total = total.saturating_sub(length);
            }
        }
        Ok(total <= self.max_bytes)
    }
}

/// Splits the name of a file of the cache into its key and extension; `None` for other files.
fn parse_name(path: &Path) -> Option<(&str, &str)> {
    let (key, extension) = path.file_name()?.to_str()?.split_once('.')?;
    let hexadecimal = |c: u8| c.is_ascii_digit() || (b'a'..=b'f').contains(&c);
    let ours = key.len() == 32 && key.bytes().all(hexadecimal) && [ENTRY, PARTIAL].contains(&extension);
    ours.then_some((key, extension))
}

/// Number of bytes that a file being filled will take, as far as it is known.
fn reserved_bytes(file: File, key: &str) -> io::Result<u64> {
    match CachedContent::open(file, key)? {
        Ok(content) => Ok(content.file_size()),
        Err(file) => Ok(file.metadata()?.len()),
    }
}

/// Whether no process fills the file.
pub(super) fn is_unlocked(file: &File) -> io::Result<bool> {
    match file.try_lock() {
        Ok(()) => file.unlock().map(|()| true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Turns [`NotFound`](io::ErrorKind::NotFound) into `None`.
fn existing<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn remove(path: &Path) -> io::Result<()> {
    existing(fs::remove_file(path)).map(drop)
}
