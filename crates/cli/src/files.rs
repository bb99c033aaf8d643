//! Names of members as paths, comparison of paths and URLs, and atomic writing of small files.

use shardstream::store::Store;
use shardstream::{ErrorKind, Result, SecretUrl};
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::path::{self, Component, Path, PathBuf};

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

/// Whether a place is a plain local path, and not a URL.
fn is_local(place: &str) -> bool {
    !place.contains("://") && !place.starts_with("file:")
}

/// The local path of a plain path or a `file:` URL; `None` for other URLs.
pub(crate) fn local_path(place: &str) -> Option<PathBuf> {
    let scheme = place.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
    let url = match scheme.as_deref() {
        Some("file") => place.get("file:".len()..)?,
        Some(_) => return None,
        None => match place.strip_prefix("file:") {
            Some(url) => url,
            None => return Some(place.into()),
        },
    };
    let path = url.strip_prefix("//localhost/").map(|path| format!("/{path}"));
    let path = path.unwrap_or_else(|| url.strip_prefix("//").unwrap_or(url).to_owned());
    Some(PathBuf::from(&*percent_encoding::percent_decode_str(&path).decode_utf8_lossy()))
}

/// A normal form in which different spellings of one place compare equal: for a local file the absolute path,
/// with symbolic links in its directories resolved; for an object its URL without secrets.
pub(crate) fn normalised(place: &str) -> String {
    let Some(path) = local_path(place) else {
        let url = SecretUrl::from(place).to_string();
        let (scheme, rest) = url.split_once("://").unwrap_or(("", &url));
        let scheme = scheme.to_ascii_lowercase();
        return format!("{}://{rest}", if scheme == "s3a" { "s3" } else { &scheme });
    };
    let mut plain = PathBuf::new();
    for part in path::absolute(&path).unwrap_or(path).components() {
        match part {
            // The parent of a symbolic link is the parent of its target.
            Component::ParentDir => {
                plain = fs::canonicalize(&plain).unwrap_or(plain);
                plain.pop();
            }
            part => plain.push(part),
        }
    }
    let directory = plain.parent().unwrap_or(Path::new("/"));
    let resolved = directory.ancestors().find_map(|above| {
        let rest = directory.strip_prefix(above).ok()?;
        Some(fs::canonicalize(above).ok()?.join(rest))
    });
    let whole = resolved.as_deref().unwrap_or(directory).join(plain.file_name().unwrap_or_default());
    whole.to_string_lossy().replace(path::MAIN_SEPARATOR, "/")
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

/// Writes a file or object, which appears under its name when it is complete. An existing local file is
/// replaced if `replace` is set, and kept otherwise; an existing object is replaced. Returns whether it was
/// written.
///
/// Unlike [`Store::create`], it does not sync a local file to the disk, which would take most of the time for
/// many small files. After a power failure, extract again.
pub(crate) fn write(store: &Store, place: &str, bytes: &[u8], replace: bool) -> Result<bool> {
    if !is_local(place) {
        let mut object = store.create(place)?;
        object.write_all(bytes)?;
        object.finish()?;
        return Ok(true);
    }
    let path = Path::new(place);
    let directory = path.parent().unwrap_or(Path::new("."));
    // The store hides names with this ending when it lists a directory.
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
        // A hard link leaves the partial file behind, and so does an error.
        drop(fs::remove_file(&partial));
    }
    match done {
        Ok(()) => Ok(true),
        Err(error) if !replace && error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(io::Error::new(error.kind(), format!("cannot write {place}: {error}")).into()),
    }
}

/// Gives a partial file its name.
///
/// # Errors
/// If a file with the name exists, even one that another thread has just written.
fn publish(partial: &Path, path: &Path) -> io::Result<()> {
    match fs::hard_link(partial, path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {}
        done => return done,
    }
    // Some file systems have no hard links. There, an empty file reserves the name first.
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
    fn one_place_under_several_names() {
        let here = normalised("a/b.tar");
        for other in ["./a/b.tar", "a/./b.tar", "a/../a/b.tar", "file:a/b.tar", "a//b.tar"] {
            assert_eq!(normalised(other), here, "{other}");
        }
        assert_eq!(normalised(&format!("file://{here}")), here);
        assert_eq!(normalised("s3a://b/a.tar"), normalised("S3://b/a.tar"));
        assert_ne!(normalised("gs://b/a.tar"), normalised("gs://c/a.tar"));
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
