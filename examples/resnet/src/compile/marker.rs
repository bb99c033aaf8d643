//! Markers of loads in progress. They detect that a plugin crashed while it loaded a program. Without
//! markers, the plugin would crash again at each start.
//!
//! While a process loads the entry `HASH.executable`, the file `HASH.loading-RANDOM` is beside it, and the
//! process holds a lock on that file. A marker without a lock is from a process that died during the load.

use crate::removed_at_end::RemovedAtEnd;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Prefix of the names of unfinished files.
pub(super) const SCRATCH: &str = ".new-";
const LOADING: &str = "loading-";
/// Markers older than this are ignored, so that the cache is used again. A marker does not prove that the
/// plugin crashed: a signal may have killed the process during the load.
const MAX_AGE: Duration = Duration::from_secs(24 * 3600);

/// Marks an entry of the cache that this process is loading. The marker's file is removed when this value is
/// dropped, or when a signal ends the process.
#[derive(Debug)]
pub(super) struct LoadMarker {
    /// This is the first field, so that the file is removed before the lock is released, as `is_left_over`
    /// expects.
    _removed: RemovedAtEnd,
    /// The file, which holds the lock.
    _file: File,
}

impl LoadMarker {
    /// Marks the entry as being loaded. Fails if the directory cannot be written, or its file system has no
    /// locks.
    pub fn create(entry: &Path) -> io::Result<Self> {
        let dir = entry.parent().unwrap_or(Path::new("."));
        let file = tempfile::Builder::new().prefix(SCRATCH).tempfile_in(dir)?;
        file.as_file().try_lock()?;
        // The file is renamed only after it is locked: without a lock, the file would look like the marker of
        // a dead process.
        let name = file.path().file_name().unwrap_or_default().to_string_lossy();
        let path = entry.with_extension(format!("{LOADING}{}", name.trim_start_matches(SCRATCH)));
        let removed = RemovedAtEnd::new(path.clone());
        let file = file.persist(path).map_err(|error| error.error)?;
        Ok(Self { _removed: removed, _file: file })
    }
}

/// The marker of a process that died within the last day while it loaded this entry.
pub(super) fn crash_marker(entry: &Path) -> Option<PathBuf> {
    let mut paths = fs::read_dir(entry.parent()?).ok()?.flatten().map(|file| file.path());
    paths.find(|path| {
        path.file_stem() == entry.file_stem() && is_marker(path) && !is_old(path) && is_left_over(path)
    })
}

/// Removes the marker of a dead process if the marker is older than `MAX_AGE`.
pub(super) fn remove_if_old(path: &Path) {
    if is_marker(path) && is_old(path) && is_left_over(path) {
        let _ = fs::remove_file(path);
    }
}

fn is_marker(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.to_string_lossy().starts_with(LOADING))
}

/// Whether the process that created the marker is dead.
fn is_left_over(path: &Path) -> bool {
    let Ok(file) = File::open(path) else { return false };
    // The lock is shared, so that two processes that check at the same time both get the lock.
    file.try_lock_shared().is_ok() && path.exists()
}

fn is_old(path: &Path) -> bool {
    let modified = fs::metadata(path).and_then(|metadata| metadata.modified());
    modified.is_ok_and(|modified| modified.elapsed().is_ok_and(|age| age > MAX_AGE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::SystemTime;

    fn entry() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let entry = dir.path().join("ab12.executable");
        (dir, entry)
    }

    /// The marker of a dead process.
    fn left_over(entry: &Path) -> PathBuf {
        let path = entry.with_extension("loading-dead");
        File::create(&path).unwrap();
        path
    }

    #[test]
    fn the_marker_of_a_living_process_is_not_a_crash() {
        let (dir, entry) = entry();
        let [first, second] = [LoadMarker::create(&entry).unwrap(), LoadMarker::create(&entry).unwrap()];
        assert_eq!(crash_marker(&entry), None);
        drop(first);
        assert_eq!(crash_marker(&entry), None);
        drop(second);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "both markers are removed");
    }

    #[test]
    fn the_marker_of_a_dead_process_counts_for_its_entry_for_a_day() {
        let (dir, entry) = entry();
        let marker = left_over(&entry);
        let _living = LoadMarker::create(&entry).unwrap();
        assert_eq!(crash_marker(&entry).as_ref(), Some(&marker));
        assert_eq!(crash_marker(&dir.path().join("cd34.executable")), None);
        remove_if_old(&marker);
        assert!(marker.exists());
        File::options()
            .write(true)
            .open(&marker)
            .unwrap()
            .set_modified(SystemTime::now() - 2 * MAX_AGE)
            .unwrap();
        assert_eq!(crash_marker(&entry), None);
        remove_if_old(&marker);
        assert!(!marker.exists());
    }

    #[test]
    fn processes_that_check_at_the_same_time_all_see_the_crash() {
        let (_dir, entry) = entry();
        let marker = left_over(&entry);
        let other = File::open(&marker).unwrap();
        other.try_lock_shared().unwrap();
        assert_eq!(crash_marker(&entry), Some(marker));
    }

    #[test]
    fn without_a_directory_there_is_neither_a_marker_nor_a_crash() {
        let (dir, entry) = entry();
        drop(dir);
        assert!(LoadMarker::create(&entry).is_err());
        assert_eq!(crash_marker(&entry), None);
    }
}
