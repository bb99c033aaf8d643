//! The directory of a cache, shared by all threads and processes that use it.
//!
//! It has a subdirectory for each object, with a file for each block. A file is written under a temporary
//! name and then renamed. Processes need no other coordination: a file that has the name of a block is
//! complete. Files that the cache did not write are left alone.

use super::block::{self, BlockError, BlockFile, CachedObject};
use super::room::{Eviction, Room};
use crate::{ObjectVersion, local};
use bytes::Bytes;
use std::collections::{BTreeMap, HashSet};
use std::fs::{self, File};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

const BLOCK: &str = "block";
const PARTIAL: &str = "partial";
/// Age from which a partial file is a leftover. Writing a file takes only moments.
const MAX_PARTIAL_AGE: Duration = Duration::from_secs(300);
/// Number of attempts to create a file in an object's directory: other processes may remove the directory
/// while it is empty.
const MAX_ATTEMPTS: usize = 3;

/// The directory of a cache.
#[derive(Debug)]
pub(super) struct CacheDirectory {
    path: PathBuf,
    max_bytes: u64,
    room: Mutex<Room>,
    /// For each block that was found since `room` was last locked, there is the time of the block's previous
    /// use. This field is the earliest of these times. It has a lock of its own: `room` is locked while all
    /// files are listed, and readers must not wait for the listing.
    found: Mutex<Option<SystemTime>>,
    /// Locked while a damaged file is verified and removed. Otherwise, a reader could remove a block that was
    /// stored again after the reader had found damage in the old file.
    discarding: Mutex<()>,
    /// Number of bytes that can be written before the simulated disk is full.
    #[cfg(test)]
    pub(super) disk: std::sync::atomic::AtomicU64,
    /// Whether the simulated disk flips a bit in each block.
    #[cfg(test)]
    pub(super) flips: std::sync::atomic::AtomicBool,
}

/// The blocks of one object in the directory. Maps the name of each version of the object to the numbers of
/// that version's blocks.
#[derive(Debug, Default)]
pub(super) struct ObjectBlocks(BTreeMap<String, HashSet<u64>>);

/// A file of the directory.
struct DirectoryEntry {
    used: SystemTime,
    length: u64,
    path: PathBuf,
}

impl CacheDirectory {
    pub(super) fn new(path: PathBuf, max_bytes: u64) -> Self {
        CacheDirectory {
            path,
            max_bytes,
            room: Mutex::new(Room::new(max_bytes)),
            found: Mutex::default(),
            discarding: Mutex::default(),
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

    /// Path of the file of a block, which need not exist.
    pub(super) fn file(&self, object: &CachedObject, number: u64) -> PathBuf {
        self.path.join(&object.key).join(format!("{}-{number}.{BLOCK}", object.name()))
    }

    pub(super) fn blocks(&self, key: &str) -> io::Result<ObjectBlocks> {
        let mut blocks = ObjectBlocks::default();
        for path in entries(&self.path.join(key))? {
            if let Some((version, Some(number))) = parse_name(&path) {
                blocks.0.entry(version.into()).or_default().insert(number);
            }
        }
        Ok(blocks)
    }

    /// Finds the blocks of `version`. If `version` is `None`, finds the blocks of the version that was used
    /// last. Returns the object, as the header of one of these blocks describes it, and the numbers of the
    /// blocks.
    pub(super) fn find(
        &self,
        key: &str,
        mut blocks: ObjectBlocks,
        version: Option<&ObjectVersion>,
    ) -> io::Result<Option<(CachedObject, HashSet<u64>)>> {
        let path = |name: &str, number: u64| self.path.join(key).join(format!("{name}-{number}.{BLOCK}"));
        let name = match version {
            Some(version) => version.version.as_deref().map(block::version_name),
            None if blocks.0.len() > 1 => {
                let used = |(name, numbers): (&String, &HashSet<u64>)| {
                    let times = numbers.iter().map(|number| path(name, *number).metadata()?.modified());
                    (times.flatten().max(), name.clone())
                };
                blocks.0.iter().map(used).max().map(|(_, name)| name)
            }
            None => blocks.0.keys().next().cloned(),
        };
        let Some((name, numbers)) = name.and_then(|name| blocks.0.remove_entry(&name)) else {
            return Ok(None);
        };
        for number in &numbers {
            let Some(mut file) = existing(File::open(path(&name, *number)))? else { continue };
            match block::read_object(&mut file) {
                Ok(object) if object.key == key && object.name() == name => {
                    let differs = version.is_some_and(|version| !version.compare(&object.object()).is_same());
                    if !differs {
                        // The block counts as used now: blocks that are fetched before this block is read
                        // must not replace it.
                        self.note_found(file.metadata()?.modified()?);
                    }
                    return Ok((!differs).then_some((object, numbers)));
                }
                // Reading the block will detect and handle the damage.
                Ok(_) | Err(BlockError::Damaged { .. }) => {}
                Err(BlockError::Io(error)) => return Err(error),
            }
        }
        Ok(None)
    }

    pub(super) fn open(&self, object: &CachedObject, number: u64) -> Result<BlockFile, BlockError> {
        let block = BlockFile::open(File::open(self.file(object, number))?, object, number)?;
        self.note_found(block.used);
        block.mark_used();
        Ok(block)
    }

    /// Writes a block, unless it exists already. Returns false if there is no room for it.
    pub(super) fn store(
        &self,
        object: &CachedObject,
        number: u64,
        chunks: &[Bytes],
        eviction: Eviction,
    ) -> io::Result<bool> {
        let path = self.file(object, number);
        let Some(header) = block::header(object, number, chunks) else { return Ok(false) };
        let length = chunks.iter().fold(header.len(), |length, chunk| length + chunk.len()) as u64;
        if path.exists() {
            return Ok(true);
        }
        if !self.make_room(length, eviction)? {
            return Ok(false);
        }
        let (partial, mut file) = self.create_partial(&path)?;
        let mut write = || {
            self.write(&mut file, &header)?;
            chunks.iter().try_for_each(|chunk| self.write_content(&mut file, chunk))?;
            block::mark_used(&file);
            fs::rename(&partial, &path)
        };
        let written: io::Result<()> = write();
        if written.is_err() {
            let _ = remove(&partial);
        }
        written.map(|()| true)
    }

    /// Creates a partial file, to be written and renamed to `path`.
    fn create_partial(&self, path: &Path) -> io::Result<(PathBuf, File)> {
        // A name that no other thread or process uses: each new `RandomState` has its own random keys.
        let number = RandomState::new().build_hasher().finish();
        let partial = path.with_extension(format!("{number:016x}.{PARTIAL}"));
        let create = || local::private_file().create_new(true).write(true).open(&partial);
        for _ in 0..MAX_ATTEMPTS {
            if let Some(file) = existing(create())? {
                return Ok((partial, file));
            }
            // Does not recreate the directory of the cache itself: somebody has removed it on purpose.
            fs::metadata(&self.path)?;
            path.parent().map_or(Ok(()), local::create_private_dir)?;
        }
        create().map(|file| (partial.clone(), file))
    }

    fn write(&self, file: &mut File, bytes: &[u8]) -> io::Result<()> {
        #[cfg(test)]
        {
            use std::sync::atomic::Ordering::SeqCst;
            let length = bytes.len() as u64;
            let left = |disk: u64| disk.checked_sub(length);
            if self.disk.fetch_update(SeqCst, SeqCst, left).is_err() {
                return Err(io::ErrorKind::StorageFull.into());
            }
        }
        file.write_all(bytes)
    }

    fn write_content(&self, file: &mut File, bytes: &[u8]) -> io::Result<()> {
        #[cfg(test)]
        if self.flips.load(std::sync::atomic::Ordering::SeqCst) {
            let mut bytes = bytes.to_vec();
            bytes.first_mut().into_iter().for_each(|byte| *byte ^= 0x10);
            return self.write(file, &bytes);
        }
        self.write(file, bytes)
    }

    /// Removes the file of a damaged block, unless another reader has replaced it by an intact one. Returns
    /// whether a file was removed.
    pub(super) fn discard(&self, object: &CachedObject, number: u64) -> io::Result<bool> {
        let _discarding = self.discarding.lock().unwrap_or_else(PoisonError::into_inner);
        let Range { mut start, end } = object.block(number);
        let mut verify = || {
            let mut block = self.open(object, number)?;
            while start < end {
                start += block.read(start, end)?.len() as u64;
            }
            Ok(())
        };
        match verify() {
            Ok(()) => Ok(false),
            Err(error) if BlockError::is_missing(&error) => Ok(false),
            Err(_) => Ok(existing(fs::remove_file(self.file(object, number)))?.is_some()),
        }
    }

    /// Removes the blocks of an object whose version has the name `version`; if `others` is true, removes the
    /// blocks of all other versions instead.
    pub(super) fn forget(&self, key: &str, version: &str, others: bool) -> io::Result<()> {
        for path in entries(&self.path.join(key))? {
            if parse_name(&path).is_some_and(|(found, _)| (found == version) != others) {
                remove(&path)?;
            }
        }
        Ok(())
    }

    /// Removes files that earlier versions of this crate have written, leftovers of killed processes, and the
    /// least recently used blocks beyond the maximum size.
    pub(super) fn clean_up(&self) -> io::Result<()> {
        for path in entries(&self.path)? {
            if is_of_earlier_version(&path) {
                remove(&path)?;
            }
        }
        self.make_room(0, Eviction::LeastRecent).map(drop)
    }

    /// Locks the room, and records in it the blocks that were found since the last lock.
    fn room(&self) -> MutexGuard<'_, Room> {
        let mut room = self.room.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(used) = self.found.lock().unwrap_or_else(PoisonError::into_inner).take() {
            room.note_found(used);
        }
        room
    }

    /// Records that a block was found, and the time of the block's last use before it was found.
    fn note_found(&self, used: SystemTime) {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        *found = Some(found.map_or(used, |before| before.min(used)));
    }

    /// Whether there is room for `bytes` without removing a block.
    pub(super) fn has_room(&self, bytes: u64) -> io::Result<bool> {
        self.make_room(bytes, Eviction::Never)
    }

    /// Removes blocks that `eviction` permits, the least recently used first, until there is room for
    /// `bytes`. Returns whether there is room for `bytes`.
    fn make_room(&self, bytes: u64, eviction: Eviction) -> io::Result<bool> {
        let mut room = self.room();
        if let Some(has_room) = room.known(bytes, eviction) {
            return Ok(has_room);
        }
        let mut files = self.files()?;
        let mut total = files.iter().fold(0, |total: u64, file| total.saturating_add(file.length));
        if total.saturating_add(bytes) > self.max_bytes {
            files.sort_unstable_by(|one, other| (one.used, &one.path).cmp(&(other.used, &other.path)));
            let wanted = room.bytes_after_eviction(bytes);
            for file in files {
                if total <= wanted || !room.may_evict(file.used, eviction) {
                    break;
                }
                // Some systems cannot remove a file while it is read. Then the loop removes a later file
                // instead.
                if remove(&file.path).is_ok() {
                    total = total.saturating_sub(file.length);
                    // Succeeds only if the directory is empty, after the last file of an object was removed.
                    let _ = file.path.parent().map(fs::remove_dir);
                }
            }
        }
        Ok(room.record_listing(total, bytes, eviction))
    }

    /// Lists the files of all objects, and removes leftover partial files.
    fn files(&self) -> io::Result<Vec<DirectoryEntry>> {
        let mut files = Vec::new();
        for directory in entries(&self.path)?.filter(|path| is_key(path)) {
            for path in entries(&directory)? {
                let Some((_, number)) = parse_name(&path) else { continue };
                // The file may have been removed since the directory was listed.
                let Some(metadata) = existing(fs::metadata(&path))? else { continue };
                let (used, length) = (metadata.modified()?, metadata.len());
                if number.is_none() && used.elapsed().is_ok_and(|age| age > MAX_PARTIAL_AGE) {
                    remove(&path)?;
                    continue;
                }
                files.push(DirectoryEntry { used, length, path });
            }
        }
        Ok(files)
    }
}

impl ObjectBlocks {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether there are blocks of a version other than `version`.
    pub(super) fn has_others(&self, version: &str) -> bool {
        self.0.keys().any(|name| name != version)
    }
}

fn is_hex(text: &str, length: usize) -> bool {
    text.len() == length && text.bytes().all(|c| c.is_ascii_digit() || (b'a'..=b'f').contains(&c))
}

/// Whether this is the directory of an object.
fn is_key(path: &Path) -> bool {
    path.file_name().and_then(|name| name.to_str()).is_some_and(|name| is_hex(name, 64))
}

/// Splits the name of a file in an object's directory into the name of the version and the number of the
/// block. A partial file has no number. `None` if the cache did not write the file.
fn parse_name(path: &Path) -> Option<(&str, Option<u64>)> {
    let (name, extension) = path.file_name()?.to_str()?.split_once('.')?;
    let (version, number) = name.split_once('-').filter(|(version, _)| is_hex(version, 32))?;
    match extension {
        BLOCK => Some((version, Some(number.parse().ok()?))),
        _ => extension.ends_with(PARTIAL).then_some((version, None)),
    }
}

/// Whether earlier versions of this crate wrote this file: a whole object, or the lock of the directory.
fn is_of_earlier_version(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let (key, extension) = name.split_once('.').unwrap_or((name, ""));
    name == "lock" || is_hex(key, 32) && ["shard", PARTIAL].contains(&extension)
}

/// The paths in a directory; empty if there is no such directory.
fn entries(directory: &Path) -> io::Result<impl Iterator<Item = PathBuf> + use<>> {
    let entries = match fs::read_dir(directory) {
        // The path is a file and not a directory, so the cache did not make it.
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => None,
        entries => existing(entries)?,
    };
    Ok(entries.into_iter().flatten().flatten().map(|entry| entry.path()))
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
