//! Writes small files, and asks whether files exist.

use crate::failure::other_error;
use shardstream::store::{ObjectUrl, PutCondition, Store, WriteOptions};
use shardstream::{ErrorKind, Result};
use std::error::Error;
use std::{fs, io};

/// Maximum size, in bytes, of a document that is read whole: a list of shards, a plan, a record of copies.
pub(crate) const MAX_DOCUMENT: u64 = 1 << 30;

/// Whether there is a file or object at a path or URL.
pub(crate) fn exists(store: &Store, place: &str) -> Result<bool> {
    if let Some(path) = ObjectUrl::parse(place).local_path()? {
        return Ok(fs::symlink_metadata(path).is_ok());
    }
    match store.stat(place) {
        Ok(_) => Ok(true),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound(_)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether there is an empty local file at a path or URL.
pub(crate) fn is_empty(place: &str) -> Result<bool> {
    let path = ObjectUrl::parse(place).local_path()?;
    let metadata = path.and_then(|path| fs::symlink_metadata(path).ok());
    Ok(metadata.is_some_and(|file| file.is_file() && file.len() == 0))
}

/// Writes a file or object whole. An existing file or object is replaced if `replace` is set, and kept
/// otherwise. Returns whether the bytes were written.
///
/// A local file is not synced to the disk: [`sync_file_system`] syncs all written files at once.
pub(crate) fn write(store: &Store, place: &str, bytes: &[u8], replace: bool) -> Result<bool> {
    let condition = if replace { PutCondition::Any } else { PutCondition::Absent };
    let options = WriteOptions { sync: false, condition, ..WriteOptions::default() };
    match store.put_with(place, bytes, options) {
        Ok(_) => Ok(true),
        Err(error) if is_taken(&error) => Ok(false),
        Err(error) if ObjectUrl::parse(place).is_local() => {
            let why = error.source().map_or_else(|| error.kind().to_string(), ToString::to_string);
            Err(other_error(format!("cannot write {place}: {why}")))
        }
        Err(error) => Err(error),
    }
}

/// Syncs the whole file system of a local directory to the disk with one call. Syncing small files one by one
/// would take most of a command's time. Does nothing for a bucket.
///
/// # Errors
/// If data that was written before cannot be stored on the disk.
pub(crate) fn sync_file_system(directory: &str) -> Result<()> {
    #[cfg(target_os = "linux")]
    if let Some(path) = ObjectUrl::parse(directory).local_path()?
        && let Ok(opened) = fs::File::open(&path)
    {
        let synced = rustix::fs::syncfs(opened).map_err(io::Error::from);
        synced.map_err(|error| shardstream::Error::from(error).in_shard(directory))?;
    }
    #[cfg(not(target_os = "linux"))]
    let _ = directory;
    Ok(())
}

/// Whether a write failed because another process has written to the URL since the object there was looked
/// up.
pub(crate) fn is_overtaken(error: &shardstream::Error) -> bool {
    is_taken(error) || matches!(error.kind(), ErrorKind::Changed { .. })
}

/// Whether a write failed because an object exists at the URL already.
pub(crate) fn is_taken(error: &shardstream::Error) -> bool {
    matches!(error.kind(), ErrorKind::Io(why) if why.kind() == io::ErrorKind::AlreadyExists)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_existing_file_is_kept_unless_replace_is_set() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("down/a.txt");
        let write =
            |bytes: &[u8], replace| write(&Store::default(), path.to_str().unwrap(), bytes, replace).unwrap();
        assert!(write(b"one", false));
        assert!(!write(b"two", false));
        assert_eq!(fs::read(&path).unwrap(), b"one");
        assert!(write(b"three", true));
        assert_eq!(fs::read(&path).unwrap(), b"three");
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }
}
