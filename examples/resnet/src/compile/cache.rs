//! The cache of compiled programs.
//!
//! An entry is a file `HASH.executable`. Its first line is the [`EntryHeader`] as JSON. The rest is the
//! executable as the plugin serialized it. A file gets this name only when it is complete, so any number of
//! processes may share a directory.

use super::key::{Key, Target};
use super::marker::{self, LoadMarker, SCRATCH};
use super::program::Program;
use crate::plugin::FoundPlugin;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use shardstream_pjrt::{Client, PjrtError, PluginOption};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Maximum size of a cache in bytes. Beyond it, the least recently used programs are removed.
pub const LIMIT: u64 = 4 << 30;
const ENDING: &str = "executable";
/// An unfinished file older than this is from a killed process.
const ABANDONED: Duration = Duration::from_secs(24 * 3600);

/// A directory of compiled programs, for the devices of one client.
#[derive(Debug)]
pub struct Cache {
    dir: PathBuf,
    target: Target,
    limit: u64,
}

/// The first line of an entry.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct EntryHeader {
    key: Key,
    /// Number of results of the program per device.
    outputs: usize,
    bytes: usize,
    /// Sha256 of `outputs` and the executable.
    sha256: String,
}

fn sha256(outputs: usize, executable: &[u8]) -> String {
    let hash = Sha256::new().chain_update((outputs as u64).to_le_bytes()).chain_update(executable);
    crate::hex(&hash.finalize())
}

/// The cached form of a program.
pub(super) struct CacheEntry {
    pub outputs: usize,
    pub executable: Vec<u8>,
}

/// The outcome of adding a program to the cache.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct StoreOutcome {
    pub bytes: u64,
    /// Number of older programs that were removed.
    pub removed: u64,
    /// Size of the removed programs in bytes.
    pub freed: u64,
}

impl Cache {
    /// Opens the cache for the devices of this client. `None` if [`Target::new`] cannot determine everything
    /// that programs for these devices depend on.
    pub fn open(
        dir: impl Into<PathBuf>,
        client: &Client,
        found: &FoundPlugin,
        options: &[PluginOption],
    ) -> Option<Self> {
        Target::new(client, &found.path, options).ok().flatten().map(|target| Self::new(dir, target))
    }

    /// A cache in the directory `dir`, which is created when the first program is stored.
    pub fn new(dir: impl Into<PathBuf>, target: Target) -> Self {
        Self { dir: dir.into(), target, limit: LIMIT }
    }

    /// Sets the maximum size in bytes; [`LIMIT`] by default.
    pub fn limit(self, bytes: u64) -> Self {
        Self { limit: bytes, ..self }
    }

    /// The directory of the programs.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The key of a program; `None` if the program is not to be cached.
    pub(super) fn key(&self, client: &Client, program: &Program<'_>) -> Result<Option<Key>, PjrtError> {
        if !self.target.keeps(program.span) {
            return Ok(None);
        }
        Key::new(&self.target, client, program).map(Some)
    }

    pub(super) fn path(&self, key: &Key) -> PathBuf {
        self.dir.join(format!("{}.{ENDING}", key.hash()))
    }

    /// The cached program; `None` if it is not in the cache. An error says why the entry cannot be used.
    pub(super) fn get(&self, key: &Key) -> Result<Option<CacheEntry>, String> {
        let path = self.path(key);
        let mut file = match fs::read(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.to_string()),
        };
        let end = file.iter().position(|byte| *byte == b'\n').ok_or("it has no header")?;
        let header: EntryHeader =
            serde_json::from_slice(&file[..end]).map_err(|e| format!("bad header: {e}"))?;
        if header.key != *key {
            return Err("it belongs to another program".into());
        }
        let executable = file.split_off(end + 1);
        if executable.len() != header.bytes {
            return Err(format!("it has {} bytes instead of {}", executable.len(), header.bytes));
        }
        if sha256(header.outputs, &executable) != header.sha256 {
            return Err("its bytes do not match the sha256 in its header".into());
        }
        // The modification time records the last use: the programs with the oldest times are removed first.
        // The directory may be read-only, so a failure is ignored.
        let _ = File::options().write(true).open(&path).and_then(|f| f.set_modified(SystemTime::now()));
        Ok(Some(CacheEntry { outputs: header.outputs, executable }))
    }

    /// Marks the program's entry as being loaded, until the marker is dropped. `None` if the directory cannot
    /// be written, or its file system has no locks; a crash during the load is then not detected.
    pub(super) fn mark_load(&self, key: &Key) -> Option<LoadMarker> {
        LoadMarker::create(&self.path(key)).ok()
    }

    /// If a process died while it loaded this program, removes the program's entry and returns the marker of
    /// that process.
    pub(super) fn discard_crashed(&self, key: &Key) -> Option<PathBuf> {
        let path = self.path(key);
        let marker = marker::crash_marker(&path)?;
        let _ = fs::remove_file(path);
        Some(marker)
    }

    /// Adds or replaces a program. If the cache is then larger than its limit, removes other programs.
    pub(super) fn put(&self, key: &Key, entry: &CacheEntry) -> Result<StoreOutcome, String> {
        self.write(key, entry).map_err(|error| error.to_string())
    }

    fn write(&self, key: &Key, CacheEntry { outputs, executable }: &CacheEntry) -> io::Result<StoreOutcome> {
        let header = EntryHeader {
            key: key.clone(),
            outputs: *outputs,
            bytes: executable.len(),
            sha256: sha256(*outputs, executable),
        };
        let mut head = serde_json::to_vec(&header)?;
        head.push(b'\n');
        let bytes = (head.len() + executable.len()) as u64;
        if bytes > self.limit {
            return Err(io::Error::other(format!(
                "{bytes} bytes are more than the {} of the cache",
                self.limit
            )));
        }
        fs::create_dir_all(&self.dir)?;
        let mut file = tempfile::Builder::new().prefix(SCRATCH).tempfile_in(&self.dir)?;
        file.write_all(&head)?;
        file.write_all(executable)?;
        let path = self.path(key);
        file.persist(&path).map_err(|error| error.error)?;
        let (removed, freed) = self.remove_oldest(&path)?;
        Ok(StoreOutcome { bytes, removed, freed })
    }

    /// Removes the least recently used programs until the cache is within its limit, but keeps `newest`. Also
    /// removes files that killed processes have left. Returns the number of removed programs and their total
    /// size in bytes.
    fn remove_oldest(&self, newest: &Path) -> io::Result<(u64, u64)> {
        let mut programs = Vec::new();
        let mut total = 0;
        for entry in fs::read_dir(&self.dir)?.flatten() {
            // Another process may have removed the file.
            let Ok(metadata) = entry.metadata() else { continue };
            let (path, modified) = (entry.path(), metadata.modified()?);
            if path.extension().is_some_and(|ending| ending == ENDING) {
                total += metadata.len();
                programs.push((modified, path, metadata.len()));
            } else if entry.file_name().to_string_lossy().starts_with(SCRATCH)
                && modified.elapsed().is_ok_and(|age| age > ABANDONED)
            {
                let _ = fs::remove_file(path);
            } else {
                marker::remove_if_old(&path);
            }
        }
        programs.sort();
        let (mut removed, mut freed) = (0, 0);
        for (_, path, bytes) in programs.into_iter().filter(|(_, path, _)| path != newest) {
            if total - freed <= self.limit {
                break;
            }
            match fs::remove_file(path) {
                Ok(()) => removed += 1,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
            freed += bytes;
        }
        Ok((removed, freed))
    }
}

#[cfg(test)]
mod tests {
    use super::super::key::tests::{key, target};
    use super::*;

    fn cache() -> (tempfile::TempDir, Cache) {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::new(dir.path().join("not/yet/there"), target());
        (dir, cache)
    }

    fn entry(bytes: &[u8]) -> CacheEntry {
        CacheEntry { outputs: 2, executable: bytes.into() }
    }

    #[test]
    fn an_entry_is_read_as_it_was_written() {
        let (_dir, cache) = cache();
        assert!(cache.get(&key("step")).unwrap().is_none());
        cache.put(&key("step"), &entry(b"code\n\ncode")).unwrap();
        let read = cache.get(&key("step")).unwrap().unwrap();
        assert_eq!((read.outputs, read.executable.as_slice()), (2, &b"code\n\ncode"[..]));
        assert!(cache.get(&key("eval")).unwrap().is_none());
        cache.put(&key("step"), &entry(b"")).unwrap();
        assert_eq!(cache.get(&key("step")).unwrap().unwrap().executable, b"");
        assert_eq!(fs::read_dir(cache.dir()).unwrap().count(), 1, "no scratch file is left");
    }

    #[test]
    fn damage_of_any_byte_is_detected() {
        let (_dir, cache) = cache();
        cache.put(&key("step"), &entry(b"machine code")).unwrap();
        let path = cache.path(&key("step"));
        let whole = fs::read(&path).unwrap();
        for at in (0..whole.len()).step_by(7).chain([whole.len() - 1]) {
            let mut damaged = whole.clone();
            damaged[at] ^= 4;
            fs::write(&path, &damaged).unwrap();
            assert!(cache.get(&key("step")).is_err(), "byte {at}");
            fs::write(&path, &whole[..at]).unwrap();
            assert!(cache.get(&key("step")).is_err(), "the first {at} bytes");
        }
        fs::write(&path, [whole.as_slice(), b"more"].concat()).unwrap();
        assert!(cache.get(&key("step")).is_err());
        fs::write(cache.path(&key("eval")), &whole).unwrap();
        let reason = cache.get(&key("eval")).err().unwrap();
        assert!(reason.contains("another program"), "{reason}");
        cache.put(&key("step"), &entry(b"machine code")).unwrap();
        assert!(cache.get(&key("step")).unwrap().is_some(), "the damaged entry is replaced");
    }

    #[test]
    fn the_least_recently_used_programs_are_removed() {
        let (_dir, cache) = cache();
        let kilobyte = || entry(&[7; 1000]);
        let put = |cache: &Cache, name: &str| cache.put(&key(name), &kilobyte()).unwrap();
        let size = put(&cache, "a").bytes;
        let cache = cache.limit(3 * size + 100);
        let age = |name: &str, hours: u64| {
            let time = SystemTime::now() - Duration::from_secs(3600 * hours);
            File::options().write(true).open(cache.path(&key(name))).unwrap().set_modified(time).unwrap();
        };
        put(&cache, "b");
        assert_eq!(put(&cache, "c"), StoreOutcome { bytes: size, removed: 0, freed: 0 });
        age("a", 3);
        age("b", 2);
        age("c", 1);
        assert!(cache.get(&key("a")).unwrap().is_some(), "now a is the most recently used");
        assert_eq!(put(&cache, "d"), StoreOutcome { bytes: size, removed: 1, freed: size });
        let exists = ["a", "b", "c", "d"].map(|name| cache.path(&key(name)).exists());
        assert_eq!(exists, [true, false, true, true]);
        let e = cache.limit(100).put(&key("e"), &kilobyte()).unwrap_err();
        assert!(e.contains("more than the 100 of the cache"), "{e}");
    }

    #[test]
    fn unfinished_files_of_killed_processes_are_removed_after_a_day() {
        let (_dir, cache) = cache();
        cache.put(&key("a"), &entry(b"")).unwrap();
        let [old, new] = [".new-old", ".new-new"].map(|name| cache.dir().join(name));
        fs::write(&new, "").unwrap();
        File::create(&old).unwrap().set_modified(SystemTime::now() - 2 * ABANDONED).unwrap();
        cache.put(&key("b"), &entry(b"")).unwrap();
        assert!(!old.exists() && new.exists());
    }

    #[test]
    fn a_directory_that_cannot_be_created_is_an_error() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let cache = Cache::new(file.path().join("below"), target());
        assert!(cache.get(&key("a")).is_err());
        assert!(cache.put(&key("a"), &entry(b"")).is_err());
    }
}
