//! Partial files: files and directories that have a temporary name until they are complete.
//!
//! The process that writes a partial file holds a lock on it. The system releases the lock when the process
//! ends, even if it is killed. So a partial file without a lock is a leftover of a killed process, and can be
//! removed. On a file system without locks, leftovers cannot be recognised, and are kept.

use super::directory;
use crate::ObjectUrl;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::{Path, PathBuf};

const PARTIAL: &str = ".partial";
/// Maximum number of bytes of the target's name in the name of a partial file.
const MAX_SHOWN: usize = 96;

/// A partial file, which is removed on drop. It is locked while its [`File`] is open.
#[derive(Debug)]
pub(super) struct PartialFile(pub(super) PathBuf);

impl PartialFile {
    /// Creates the partial file of `target` in the same directory, which must exist.
    pub(super) fn create(target: &Path, open: &OpenOptions) -> io::Result<(Self, File)> {
        let name = target.file_name().unwrap_or_default();
        loop {
            let path = directory(target).join(partial_name(name));
            let file = open.open(&path)?;
            let partial = PartialFile(path);
            if is_locked_by_us(&file, &partial.0) {
                return Ok((partial, file));
            }
        }
    }
}

impl Drop for PartialFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// A directory for files that are later moved to their final directory together. Listings leave it out. It is
/// removed on drop, with its content.
#[doc(hidden)]
#[derive(Debug)]
pub struct PartialDirectory {
    path: PathBuf,
    /// The open directory, which has the lock.
    _lock: Option<File>,
}

impl PartialDirectory {
    /// Creates a partial directory in the directory of `target`, and missing parents.
    ///
    /// # Errors
    /// If the directory cannot be created.
    pub fn create(target: &Path) -> io::Result<Self> {
        fs::create_dir_all(directory(target))?;
        loop {
            let path = directory(target).join(partial_name(target.file_name().unwrap_or_default()));
            fs::create_dir(&path)?;
            // Some systems cannot open a directory. On these systems, the leftovers of a killed process are
            // kept.
            let lock = File::open(&path).ok();
            if lock.as_ref().is_none_or(|lock| is_locked_by_us(lock, &path)) {
                return Ok(PartialDirectory { path, _lock: lock });
            }
        }
    }

    /// The path of the directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for PartialDirectory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Locks a new partial file. Returns false if another process removed it as a leftover before it was locked.
fn is_locked_by_us(file: &File, path: &Path) -> bool {
    !matches!(file.try_lock(), Err(TryLockError::WouldBlock)) && fs::symlink_metadata(path).is_ok()
}

/// A name for the partial file of `name`. It contains only the beginning of `name`, which may be as long as
/// the file system allows.
fn partial_name(name: &OsStr) -> OsString {
    let shown = name.to_string_lossy();
    let mut end = shown.len().min(MAX_SHOWN);
    while !shown.is_char_boundary(end) {
        end -= 1;
    }
    // The name has a random number, not the process ID: in containers every process may have ID 1, and a
    // killed process leaves its file behind.
    let random = RandomState::new().hash_one(name);
    format!(".{}.{random:016x}{PARTIAL}", &shown[..end]).into()
}

pub(super) fn is_partial(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().as_encoded_bytes();
    name.starts_with(b".") && name.ends_with(PARTIAL.as_bytes())
}

/// Removes partial files and directories that killed processes left in a local directory, if `is_ours`
/// accepts the name of their target. Partial files of a running process are kept. Leftovers do no harm, so
/// one that cannot be removed is not an error.
///
/// ```
/// # mod shardstream { pub use shardstream_base::*; pub mod store { pub use shardstream_store::*; } }
/// use shardstream::store::remove_partial_files;
///
/// let directory = tempfile::tempdir()?;
/// let partial = directory.path().join(".train-000000.tar.0123456789abcdef.partial");
/// std::fs::write(&partial, "the first half")?;
/// remove_partial_files(directory.path().to_str().unwrap(), |name| name == "train-000000.tar");
/// assert!(!partial.exists());
/// # Ok::<(), shardstream::Error>(())
/// ```
#[doc(hidden)]
pub fn remove_partial_files(directory: &str, is_ours: impl Fn(&str) -> bool) {
    let Ok(Some(mut directory)) = ObjectUrl::parse(directory).local_path() else { return };
    if directory == Path::new("") {
        directory.push(".");
    }
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let file = entry.file_name();
        let name = file.to_str().and_then(|name| name.strip_prefix('.')?.strip_suffix(PARTIAL));
        let name = name.and_then(|name| name.rsplit_once('.')).map(|(name, _)| name);
        let is_directory = || entry.file_type().is_ok_and(|kind| kind.is_dir());
        match name.is_some_and(&is_ours) {
            false => {}
            true if is_directory() => {
                remove_unlocked(&entry.path(), OpenOptions::new().read(true), |path| fs::remove_dir_all(path))
            }
            // Some network file systems can lock a file only if it is open for writing.
            true => {
                remove_unlocked(&entry.path(), OpenOptions::new().write(true), |path| fs::remove_file(path))
            }
        }
    }
}

fn remove_unlocked(path: &Path, open: &OpenOptions, remove: impl Fn(&Path) -> io::Result<()>) {
    if let Ok(file) = open.open(path)
        && file.try_lock().is_ok()
    {
        let _ = remove(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partial_files_of_a_running_process_are_kept() {
        let home = tempfile::tempdir().unwrap();
        let text = home.path().to_str().unwrap();
        let target = home.path().join("a.tar");
        let open = OpenOptions::new().write(true).create_new(true).clone();
        let (file, lock) = PartialFile::create(&target, &open).unwrap();
        let directory = PartialDirectory::create(&target).unwrap();
        fs::write(directory.path().join("b.tar"), "b").unwrap();
        remove_partial_files(text, |name| name == "a.tar");
        assert!(file.0.exists() && directory.path().join("b.tar").exists());
        let paths = [file.0.clone(), directory.path().to_owned()];
        drop((file, lock, directory));
        assert!(paths.iter().all(|path| !path.exists()));
    }

    #[test]
    fn leftovers_are_removed() {
        let home = tempfile::tempdir().unwrap();
        fs::write(home.path().join(".a.tar.0123456789abcdef.partial"), "half").unwrap();
        fs::create_dir(home.path().join(".a.tar.abcdef0123456789.partial")).unwrap();
        fs::write(home.path().join(".a.tar.abcdef0123456789.partial/x"), "half").unwrap();
        fs::write(home.path().join(".b.tar.0123456789abcdef.partial"), "half").unwrap();
        remove_partial_files(home.path().to_str().unwrap(), |name| name == "a.tar");
        let left: Vec<_> =
            fs::read_dir(home.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, [".b.tar.0123456789abcdef.partial"]);
    }
}
