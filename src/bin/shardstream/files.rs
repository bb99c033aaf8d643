//! Files that are written by the names in a shard.

use shardstream::store::Store;
use shardstream::{ErrorKind, Result};
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::path::{Component, Path};

/// Why a name out of a shard is not one of a file below a directory, if it is not.
pub(crate) fn leads_out(name: &str) -> Option<&'static str> {
    // Also what only another system takes for a separator or a drive.
    if name.contains(['\0', '\\']) || name.split('/').next().is_some_and(|first| first.contains(':')) {
        return Some("has characters that no file's name should have");
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

/// Whether a path is of the local file system.
fn is_local(place: &str) -> bool {
    !place.contains("://") && !place.starts_with("file:")
}

/// Whether there is a file or object at a path or URL.
pub(crate) fn exists(store: &Store, place: &str) -> Result<bool> {
    if is_local(place) {
        return Ok(fs::symlink_metadata(place).is_ok());
    }
    match store.stat(place) {
        Ok(_) => Ok(true),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound(_)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Writes a file or object, which appears under its name when it is whole; whether it was written. Where a
/// local file is there already, it is replaced or left as it is.
///
/// Unlike [`Store::create`] it does not wait until a local file is on the disk, which would take most of the
/// time for many small ones: after a power failure, extract again.
pub(crate) fn write(store: &Store, place: &str, bytes: &[u8], replace: bool) -> Result<bool> {
    if !is_local(place) {
        let mut object = store.create(place)?;
        object.write_all(bytes)?;
        object.finish()?;
        return Ok(true);
    }
    let path = Path::new(place);
    let directory = path.parent().unwrap_or(Path::new("."));
    // The store leaves such names out where it lists a directory.
    let random = RandomState::new().hash_one(place);
    let partial = directory.join(format!(".{random:016x}.partial"));
    let write = || fs::File::create_new(&partial).and_then(|mut file| file.write_all(bytes));
    let written = match write() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            fs::create_dir_all(directory).and_then(|()| write())
        }
        written => written,
    };
    let done =
        written.and_then(|()| if replace { fs::rename(&partial, path) } else { publish(&partial, path) });
    if !replace || done.is_err() {
        // An error is worth more than what is left of the file, and a link has left it.
        drop(fs::remove_file(&partial));
    }
    match done {
        Ok(()) => Ok(true),
        Err(error) if !replace && error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(io::Error::new(error.kind(), format!("cannot write {place}: {error}")).into()),
    }
}

/// Gives a file a name that no file has: where one has it, that is an error, also if another thread has just
/// written it.
fn publish(partial: &Path, path: &Path) -> io::Result<()> {
    match fs::hard_link(partial, path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {}
        done => return done,
    }
    // Some file systems have no links: there an empty file takes the name first.
    drop(fs::File::create_new(path)?);
    fs::rename(partial, path).inspect_err(|_| drop(fs::remove_file(path)))
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
