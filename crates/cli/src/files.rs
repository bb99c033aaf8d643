//! Names of members as paths, and writing of small files.

use crate::failure::other_error;
use shardstream::store::{ObjectUrl, Store, WriteOptions};
use shardstream::{ErrorKind, Result};
use std::error::Error;
use std::path::{Component, Path};
use std::{fs, io};

/// Maximum number of bytes of a document that the program reads whole: a list of shards, a plan, a record.
pub(crate) const MAX_DOCUMENT: u64 = 1 << 30;

/// The reason why a name from a shard is not a path below a directory; `None` if it is one.
pub(crate) fn leads_out(name: &str) -> Option<&'static str> {
    // Includes separators and drives of other operating systems.
    if name.contains(['\0', '\\']) || name.split('/').next().is_some_and(|first| first.contains(':')) {
        return Some("has characters that a file name must not have");
    }
    let is_plain = |part: &str| !matches!(part, "" | "." | "..");
    let is_below = |component: Component<'_>| matches!(component, Component::Normal(_));
    match name.split('/').all(is_plain) && Path::new(name).components().all(is_below) {
        true => None,
        false => Some("leads out of the directory"),
    }
}

/// The path or URL of a name below a directory.
pub(crate) fn below(directory: &str, name: &str) -> String {
    format!("{}/{name}", directory.strip_suffix('/').unwrap_or(directory))
}

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

/// Writes a file or object whole. An existing local file is replaced if `replace` is set, and kept otherwise;
/// an existing object is replaced. Returns whether it was written.
///
/// A local file is not synced to the disk. After a power failure, extract again.
pub(crate) fn write(store: &Store, place: &str, bytes: &[u8], replace: bool) -> Result<bool> {
    let options = WriteOptions { sync: false, replace, ..WriteOptions::default() };
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

fn is_taken(error: &shardstream::Error) -> bool {
    matches!(error.kind(), ErrorKind::Io(why) if why.kind() == io::ErrorKind::AlreadyExists)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_there_is_left() {
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

    #[test]
    fn names_stay_in_the_directory() {
        for name in ["a.jpg", "a/b.jpg", "..a.jpg", "a/..b/c.jpg", "ä ö.txt", "a/b:c.jpg"] {
            assert_eq!(leads_out(name), None, "{name}");
        }
        for name in [
            "/a.jpg",
            "../a.jpg",
            "a/../../b.jpg",
            "a//b.jpg",
            "./a.jpg",
            "a/./b.jpg",
            "a\\b.jpg",
            "C:a.jpg",
            "a\0.jpg",
            "",
        ] {
            assert!(leads_out(name).is_some(), "{name}");
        }
    }
}
