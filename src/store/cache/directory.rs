//! The files of the cache, shared by all threads and processes that use the directory.
//!
//! Names change only under the lock of the directory, so that what one process finds there is not exchanged
//! by another in between. A file that is being filled is locked too, by the process that fills it, for as
//! long as that lives. Files of other names are left alone.

use super::file::{self, Content, TAIL};
use crate::secret_url::SecretUrl;
use crate::store::{ObjectVersion, local};
use fs4::{FileExt, TryLockError};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

const ENTRY: &str = "shard";
const PARTIAL: &str = "partial";
/// How long the lock of the directory is waited for: it is held for moments, unless its holder has been
/// stopped.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    max_bytes: u64,
    /// Bytes that can be written before the disk is full.
    #[cfg(test)]
    pub(super) disk: std::sync::atomic::AtomicU64,
    /// Whether a bit of everything that is written of an object is another one on the disk.
    #[cfg(test)]
    pub(super) flips: std::sync::atomic::AtomicBool,
}

/// What is under the name of an entry.
#[derive(Debug)]
pub(super) enum Entry {
    Absent,
    /// A file that is cut off, damaged where it can be seen at once, or of another layout.
    Unsound,
    Sound(Content),
}

/// The lock of the directory, which ends with it.
struct Locked(#[allow(dead_code, reason = "it is the lock")] File);

/// What has been found where an object is to be filled in.
#[derive(Debug)]
pub(super) enum Claim {
    /// An entry that was not there, or was another, when it was looked for.
    Entry,
    /// A file that another process fills, or another cache of this one.
    Busy(File),
    Mine(Partial),
}

/// A file that this process alone may fill.
#[derive(Debug)]
pub(super) struct Partial {
    key: String,
    file: File,
}

#[derive(Debug)]
pub(super) enum Room {
    Enough(Content),
    /// The object is too large, or others that are being filled leave no room for it.
    Short,
    /// Somebody else has just made an entry of the same object.
    Entry,
}

impl Directory {
    pub(super) fn new(path: PathBuf, max_bytes: u64) -> Self {
        Directory {
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

    /// Where the entry of a key is, or would be.
    pub(super) fn entry(&self, key: &str) -> PathBuf {
        self.path.join(key).with_extension(ENTRY)
    }

    fn partial(&self, key: &str) -> PathBuf {
        self.path.join(key).with_extension(PARTIAL)
    }

    fn lock(&self) -> io::Result<Locked> {
        let path = self.path.join("lock");
        let file = local::private_file().create(true).truncate(false).write(true).open(path)?;
        let begun = Instant::now();
        loop {
            match FileExt::try_lock(&file) {
                Ok(()) => return Ok(Locked(file)),
                Err(TryLockError::Error(error)) => return Err(error),
                Err(TryLockError::WouldBlock) if begun.elapsed() > PATIENCE => {
                    return Err(io::Error::new(
                        io::ErrorKind::TimedOut,
                        "its lock is held by another process",
                    ));
                }
                Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }

    /// Looks at the entry of a key. Its blocks are checked when they are read.
    pub(super) fn find(&self, key: &str) -> io::Result<Entry> {
        let Some(file) = existing(File::open(self.entry(key)))? else { return Ok(Entry::Absent) };
        Ok(match Content::of(file, key)? {
            Ok(content) if content.is_whole()? => Entry::Sound(content),
            _ => Entry::Unsound,
        })
    }

    /// Makes the entry the last to be removed. Where times can't be set, entries go in the order in which
    /// they came.
    pub(super) fn used(content: &Content) {
        let _ = content.file.set_modified(SystemTime::now());
    }

    /// Looks for whoever fills in the object, and if nobody does, begins to. `stale` is what an entry may be
    /// that is to be replaced.
    pub(super) fn claim(&self, key: &str, stale: Option<&ObjectVersion>) -> io::Result<Claim> {
        let _locked = self.lock()?;
        match self.find(key)? {
            Entry::Sound(content) if stale != Some(&content.object()) => return Ok(Claim::Entry),
            Entry::Sound(_) | Entry::Absent => {}
            Entry::Unsound => remove(&self.entry(key))?,
        }
        let path = self.partial(key);
        if let Some(file) = existing(File::open(&path))? {
            match free(&file)? {
                false => return Ok(Claim::Busy(file)),
                // The one that filled it has died.
                true => remove(&path)?,
            }
        }
        let file = local::private_file().create_new(true).read(true).write(true).open(&path)?;
        match FileExt::try_lock(&file) {
            Ok(()) => Ok(Claim::Mine(Partial { key: key.into(), file })),
            Err(error) => {
                let _ = remove(&path);
                Err(error.into())
            }
        }
    }

    /// Makes room for an object, and writes down which it is.
    pub(super) fn reserve(
        &self,
        partial: &Partial,
        url: &SecretUrl,
        object: &ObjectVersion,
    ) -> io::Result<Room> {
        let (Some(size), Some(version)) = (object.size, &object.version) else { return Ok(Room::Short) };
        let Some(head) = file::head(&partial.key, url, version, size) else { return Ok(Room::Short) };
        let total = (head.len() as u64 + TAIL).saturating_add(size);
        let _locked = self.lock()?;
        if matches!(self.find(&partial.key)?, Entry::Sound(content) if content.object() == *object) {
            return Ok(Room::Entry);
        }
        if !self.evict(total, &partial.key)? {
            return Ok(Room::Short);
        }
        self.write(partial, &head, 0)?;
        match Content::of(partial.file.try_clone()?, &partial.key)? {
            Ok(content) => Ok(Room::Enough(content)),
            Err(_) => Err(io::Error::other("what was written to it is not what can be read from it")),
        }
    }

    pub(super) fn write(&self, partial: &Partial, bytes: &[u8], at: u64) -> io::Result<()> {
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

    /// Writes bytes of the object from its byte `at` on.
    pub(super) fn write_content(
        &self,
        partial: &Partial,
        content: &Content,
        bytes: &[u8],
        at: u64,
    ) -> io::Result<()> {
        #[cfg(test)]
        if self.flips.load(std::sync::atomic::Ordering::SeqCst) {
            let mut bytes = bytes.to_vec();
            bytes.first_mut().into_iter().for_each(|byte| *byte ^= 0x10);
            return self.write(partial, &bytes, content.place(at));
        }
        self.write(partial, bytes, content.place(at))
    }

    /// Makes an entry of a file whose content is whole, unless a reader has found damage in it.
    pub(super) fn finish(&self, partial: &Partial, content: &Content) -> io::Result<()> {
        let (tail, at) = content.tail();
        self.write(partial, &tail, at)?;
        // Bytes before name: a crash must not leave the name on a file whose bytes never reached the disk.
        partial.file.sync_data()?;
        let _locked = self.lock()?;
        // A reader notes damage before it looks for the entry, under this lock.
        if content.is_damaged() {
            return Err(io::Error::other("what was written to it is not what can be read from it"));
        }
        fs::rename(self.partial(&partial.key), self.entry(&partial.key))?;
        Self::used(content);
        FileExt::unlock(&partial.file)
    }

    /// Gives up a file that isn't whole. Whoever reads it can continue with it.
    pub(super) fn abandon(&self, partial: &Partial) -> io::Result<()> {
        let _locked = self.lock()?;
        remove(&self.partial(&partial.key))?;
        FileExt::unlock(&partial.file)
    }

    /// Removes the entry of a key, unless the bytes from `at` on and before `end` can be read in it: others
    /// may have replaced the file in which damage was found. Says whether it was removed.
    pub(super) fn discard(&self, key: &str, at: u64, end: u64) -> io::Result<bool> {
        let _locked = self.lock()?;
        match self.find(key) {
            Ok(Entry::Absent) => return Ok(false),
            Ok(Entry::Sound(content))
                if at >= content.size || content.read(at, end, content.all()).is_ok() =>
            {
                return Ok(false);
            }
            _ => {}
        }
        remove(&self.entry(key)).map(|()| true)
    }

    /// Removes what processes left behind that have died, entries of other layouts, and the oldest entries of
    /// too many.
    pub(super) fn tidy(&self) -> io::Result<()> {
        let _locked = self.lock()?;
        for found in fs::read_dir(&self.path)? {
            let path = found?.path();
            if named(&path).is_some_and(|(_, extension)| extension == ENTRY)
                && let Some(file) = existing(File::open(&path))?
                && file::is_of_another_layout(&file)?
            {
                remove(&path)?;
            }
        }
        self.evict(0, "").map(drop)
    }

    /// Removes the entries that have not been used for the longest time until there is room for `bytes`,
    /// which take the place of the entry of `key`. Says whether there is.
    fn evict(&self, bytes: u64, key: &str) -> io::Result<bool> {
        let (mut entries, mut taken) = (Vec::new(), bytes);
        for found in fs::read_dir(&self.path)? {
            let path = found?.path();
            let Some((found, extension)) = named(&path) else { continue };
            if extension == ENTRY {
                // It may be in the way of nothing any more.
                let Some(metadata) = existing(fs::metadata(&path))? else { continue };
                let used = if found == key { None } else { metadata.modified().ok() };
                entries.push((used, metadata.len(), path));
            } else if found != key
                && let Some(file) = existing(File::open(&path))?
            {
                match free(&file)? {
                    true => remove(&path)?,
                    false => taken = taken.saturating_add(reserved(file, found)?),
                }
            }
        }
        if taken > self.max_bytes {
            return Ok(false);
        }
        entries.sort_unstable();
        let mut total = entries.iter().fold(taken, |total, (_, length, _)| total.saturating_add(*length));
        for (_, length, path) in entries {
            if total <= self.max_bytes {
                break;
            }
            // Where a file can't be removed while it is read, it goes with a later one.
            if remove(&path).is_ok() {
                total = total.saturating_sub(length);
            }
        }
        Ok(total <= self.max_bytes)
    }
}

/// The key of a file that is one of the cache's, and what it is.
fn named(path: &Path) -> Option<(&str, &str)> {
    let (key, extension) = path.file_name()?.to_str()?.split_once('.')?;
    let hexadecimal = |c: u8| c.is_ascii_digit() || (b'a'..=b'f').contains(&c);
    let ours = key.len() == 32 && key.bytes().all(hexadecimal) && [ENTRY, PARTIAL].contains(&extension);
    ours.then_some((key, extension))
}

/// How many bytes a file that is being filled will take, as far as it is known.
fn reserved(file: File, key: &str) -> io::Result<u64> {
    match Content::of(file, key)? {
        Ok(content) => Ok(content.total()),
        Err(file) => Ok(file.metadata()?.len()),
    }
}

/// Whether nobody fills the file.
pub(super) fn free(file: &File) -> io::Result<bool> {
    match FileExt::try_lock(file) {
        Ok(()) => FileExt::unlock(file).map(|()| true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

fn existing<T>(found: io::Result<T>) -> io::Result<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn remove(path: &Path) -> io::Result<()> {
    existing(fs::remove_file(path)).map(drop)
}
