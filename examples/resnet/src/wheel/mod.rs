//! Files out of Python wheels, fetched with pip, checked and kept in a cache.

mod set;

pub use set::WheelSet;

use crate::progress::Task;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Why a wheel's file cannot be had. The messages hold their causes, ahead of the advice.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no Python.
    #[error("cannot run python3, which is needed to download {wheel} with pip: {cause}\n{advice}")]
    NoPython {
        /// What was to be downloaded.
        wheel: String,
        /// Why.
        cause: io::Error,
        /// What to do.
        advice: String,
    },
    /// Pip failed: no network, no pip, no such wheel.
    #[error("pip could not download {wheel}: {message}\n{advice}")]
    Pip {
        /// What was to be downloaded.
        wheel: String,
        /// The end of what it said.
        message: String,
        /// What to do.
        advice: String,
    },
    /// Other bytes than those we trust.
    #[error(
        "{wheel} was downloaded but is not the file that is pinned (sha256 {got}, expected {expected}); \
         it was deleted and not used. Is a package mirror or proxy changing it?"
    )]
    Hash {
        /// What was downloaded.
        wheel: String,
        /// Pinned.
        expected: String,
        /// Found.
        got: String,
    },
    /// The disk is full.
    #[error("no space is left in the cache {path} for {wheel}: {needed_mb} MB are needed{also}")]
    Full {
        /// The directory.
        path: PathBuf,
        /// What was to be put there.
        wheel: String,
        /// For all of it, while it is unpacked.
        needed_mb: u64,
        /// What else to say.
        also: &'static str,
    },
    /// The wheel is no wheel, or lacks the file.
    #[error("cannot unpack {member} of {wheel}: {cause}")]
    Unpack {
        /// The wheel.
        wheel: String,
        /// The file in it.
        member: String,
        /// Why.
        cause: zip::result::ZipError,
    },
    /// The cache directory.
    #[error(
        "cannot use the cache {path}: {cause}\nSet SHARDSTREAM_CACHE to a directory that can be written."
    )]
    Cache {
        /// The directory.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
}

/// A wheel, pinned by hash.
#[derive(Debug, Clone, Copy)]
pub struct Pinned<'a> {
    /// Of the Python package.
    pub package: &'a str,
    /// Of the package.
    pub version: &'a str,
    /// Of the wheel for this platform.
    pub sha256: &'a str,
    /// For the user who waits.
    pub download_mb: u32,
}

/// A file in a wheel.
#[derive(Debug, Clone, Copy)]
pub struct Wheel<'a> {
    /// The wheel.
    pub pinned: Pinned<'a>,
    /// The path in the wheel of the file that is wanted.
    pub member: &'a str,
    /// What to do when it cannot be downloaded.
    pub advice: &'a str,
}

/// Stands beside an unpacked file and says from what it came.
#[derive(Serialize, Deserialize, PartialEq)]
struct Record {
    wheel_sha256: String,
    bytes: u64,
}

const RECORD: &str = "installed.json";
const SCRATCH: &str = ".unpack-";
/// No download takes as long.
const ABANDONED: Duration = Duration::from_secs(24 * 3600);

impl Wheel<'_> {
    /// The file, from the cache or through pip.
    pub fn ensure(&self, cache: &Path) -> Result<PathBuf, Error> {
        self.ensure_with(cache, |dir| self.pinned.pip_download(dir, self.advice))
    }

    /// As [`ensure`](Self::ensure), with `download` in the place of pip: it puts the wheel into the
    /// directory it is given and returns its path.
    pub fn ensure_with(
        &self,
        cache: &Path,
        download: impl FnOnce(&Path) -> Result<PathBuf, Error>,
    ) -> Result<PathBuf, Error> {
        // The hash is part of the name, so that platforms and versions do not meet in a shared home.
        let Pinned { package, version, sha256, .. } = self.pinned;
        let short = sha256.get(..12).unwrap_or(sha256);
        let home = cache.join(format!("{package}-{version}-{short}"));
        if let Some(file) = self.installed(&home) {
            return Ok(file);
        }
        let in_cache = |cause| Error::Cache { path: cache.into(), cause };
        fs::create_dir_all(cache).map_err(in_cache)?;
        remove_abandoned(cache);
        // In the cache, because only there can it be renamed to its place; deleted on every error.
        let scratch = tempfile::Builder::new().prefix(SCRATCH).tempdir_in(cache).map_err(in_cache)?;

        let wheel = download(scratch.path())?;
        self.pinned.check(&wheel).map_err(in_cache)??;
        let ready = scratch.path().join("ready");
        fs::create_dir(&ready).map_err(in_cache)?;
        let bytes = self.unpack(&wheel, &ready.join(self.file_name()))?;
        let record = Record { wheel_sha256: sha256.into(), bytes };
        let json = serde_json::to_vec(&record).map_err(|e| in_cache(e.into()))?;
        fs::write(ready.join(RECORD), json).map_err(in_cache)?;

        // Another process may have been faster: what it installed is as good.
        if self.installed(&home).is_none() {
            match fs::remove_dir_all(&home) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(in_cache(e)),
                _ => {}
            }
            if let Err(e) = fs::rename(&ready, &home) {
                return self.installed(&home).ok_or_else(|| in_cache(e));
            }
        }
        self.installed(&home).ok_or_else(|| in_cache(io::Error::other("the file is gone again")))
    }

    fn file_name(&self) -> &str {
        self.member.rsplit('/').next().unwrap_or(self.member)
    }

    /// The file if it is there and whole. The hash was checked before it was unpacked; that every time
    /// would take a second, so the size must do.
    fn installed(&self, home: &Path) -> Option<PathBuf> {
        let record: Record = serde_json::from_slice(&fs::read(home.join(RECORD)).ok()?).ok()?;
        let file = home.join(self.file_name());
        let bytes = fs::metadata(&file).ok()?.len();
        (record == Record { wheel_sha256: self.pinned.sha256.into(), bytes }).then_some(file)
    }

    fn unpack(&self, wheel: &Path, to: &Path) -> Result<u64, Error> {
        let unpack = || -> zip::result::ZipResult<u64> {
            let mut archive = zip::ZipArchive::new(File::open(wheel)?)?;
            let mut member = archive.by_name(self.member)?;
            let task = Task::bytes(&format!("unpacking {}", self.pinned.name()), member.size());
            let mut file = File::create(to)?;
            let bytes = copy(&mut member, &mut file, |n| task.add(n))?;
            task.done();
            Ok(bytes)
        };
        unpack().map_err(|cause| Error::Unpack {
            wheel: self.pinned.name(),
            member: self.member.into(),
            cause,
        })
    }
}

impl Pinned<'_> {
    fn name(&self) -> String {
        format!("{} {}", self.package, self.version)
    }

    /// Whether a file is this wheel.
    fn check(&self, wheel: &Path) -> io::Result<Result<(), Error>> {
        let got = sha256(wheel)?;
        Ok(match got == self.sha256 {
            true => Ok(()),
            false => Err(Error::Hash { wheel: self.name(), expected: self.sha256.into(), got }),
        })
    }

    /// Puts the wheel into a directory.
    fn pip_download(&self, dir: &Path, advice: &str) -> Result<PathBuf, Error> {
        let what = format!("downloading {} with pip ({} MB)", self.name(), self.download_mb);
        let task = Task::spinner(&what);
        let output = Command::new("python3")
            .args(["-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-input"])
            // Some have hundreds of megabytes, more than a small /tmp takes, and none is wanted twice.
            .args(["--disable-pip-version-check", "--no-cache-dir", "--progress-bar=off", "-d"])
            .arg(dir)
            .arg(format!("{}=={}", self.package, self.version))
            .env("TMPDIR", dir)
            .output()
            .map_err(|cause| Error::NoPython { wheel: self.name(), cause, advice: advice.into() })?;
        let failed = |message: String| Error::Pip { wheel: self.name(), message, advice: advice.into() };
        if !output.status.success() {
            return Err(failed(last_lines(&String::from_utf8_lossy(&output.stderr))));
        }
        let is_wheel = |path: &PathBuf| path.extension().is_some_and(|e| e == "whl");
        let files = fs::read_dir(dir).map_err(|e| failed(e.to_string()))?;
        let wheel = files.flatten().map(|f| f.path()).find(is_wheel);
        let wheel = wheel.ok_or_else(|| failed("it succeeded, but left no wheel".into()))?;
        task.done();
        Ok(wheel)
    }
}

/// Deletes what processes that were killed have left; they are hundreds of megabytes each.
fn remove_abandoned(cache: &Path) {
    for entry in fs::read_dir(cache).into_iter().flatten().flatten() {
        let scratch = entry.file_name().to_string_lossy().starts_with(SCRATCH);
        let age = entry.metadata().and_then(|m| m.modified()).ok().and_then(|at| at.elapsed().ok());
        if scratch && age.is_some_and(|age| age > ABANDONED) {
            // What cannot be deleted is in nobody's way.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// The end of an error output, where the reason is.
fn last_lines(text: &str) -> String {
    let lines: Vec<_> = text.lines().filter(|l| !l.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(4)..].join("\n")
}

fn sha256(path: &Path) -> io::Result<String> {
    let mut hash = Sha256::new();
    copy(&mut File::open(path)?, &mut HashWriter(&mut hash), |_| {})?;
    Ok(crate::hex(&hash.finalize()))
}

struct HashWriter<'a>(&'a mut Sha256);

impl Write for HashWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// `io::copy` that tells how far it is.
fn copy(from: &mut dyn Read, to: &mut dyn Write, mut progress: impl FnMut(u64)) -> io::Result<u64> {
    let mut buffer = vec![0; 1 << 18];
    let mut total = 0;
    loop {
        let n = match from.read(&mut buffer) {
            Ok(0) => return Ok(total),
            Ok(n) => n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(e),
        };
        to.write_all(&buffer[..n])?;
        total += n as u64;
        progress(n as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use zip::write::SimpleFileOptions;

    const MEMBER: &str = "plugins/fake/fake.so";
    const CONTENT: &[u8] = b"not really a library, but long enough to be deflated deflated deflated";

    /// A wheel in memory and its hash.
    fn fake(member: &str) -> (Vec<u8>, String) {
        let mut zip = zip::ZipWriter::new(io::Cursor::new(Vec::new()));
        zip.start_file("plugins/fake/__init__.py", SimpleFileOptions::default()).unwrap();
        zip.start_file(member, SimpleFileOptions::default()).unwrap();
        zip.write_all(CONTENT).unwrap();
        let bytes = zip.finish().unwrap().into_inner();
        let hash = crate::hex(&Sha256::digest(&bytes));
        (bytes, hash)
    }

    fn wheel(sha256: &str) -> Wheel<'_> {
        let pinned = Pinned { package: "fake", version: "1.0", sha256, download_mb: 1 };
        Wheel { pinned, member: MEMBER, advice: "" }
    }

    fn put(bytes: &[u8]) -> impl Fn(&Path) -> Result<PathBuf, Error> {
        move |dir| {
            let path = dir.join("fake-1.0-py3-none-any.whl");
            fs::write(&path, bytes).unwrap();
            Ok(path)
        }
    }

    fn never(_: &Path) -> Result<PathBuf, Error> {
        panic!("nothing should be downloaded")
    }

    #[test]
    fn unpacks_once_then_takes_it_from_the_cache() {
        let (bytes, hash) = fake(MEMBER);
        let cache = tempfile::tempdir().unwrap();
        let nested = cache.path().join("not/yet/there");
        let file = wheel(&hash).ensure_with(&nested, put(&bytes)).unwrap();
        assert_eq!(fs::read(&file).unwrap(), CONTENT);
        assert_eq!(wheel(&hash).ensure_with(&nested, never).unwrap(), file);
        assert_eq!(fs::read_dir(&nested).unwrap().count(), 1, "no scratch directory is left");
    }

    #[test]
    fn other_bytes_are_refused_and_leave_nothing() {
        let (mut bytes, hash) = fake(MEMBER);
        *bytes.last_mut().unwrap() ^= 1;
        let cache = tempfile::tempdir().unwrap();
        let e = wheel(&hash).ensure_with(cache.path(), put(&bytes)).unwrap_err();
        assert!(matches!(&e, Error::Hash { expected, got, .. } if *expected == hash && got != expected));
        assert_eq!(fs::read_dir(cache.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_damaged_installation_is_replaced() {
        let (bytes, hash) = fake(MEMBER);
        let cache = tempfile::tempdir().unwrap();
        let file = wheel(&hash).ensure_with(cache.path(), put(&bytes)).unwrap();
        let downloads = Cell::new(0);
        let counted = |dir: &Path| {
            downloads.set(downloads.get() + 1);
            put(&bytes)(dir)
        };
        fs::write(&file, &CONTENT[1..]).unwrap();
        wheel(&hash).ensure_with(cache.path(), counted).unwrap();
        assert_eq!(fs::read(&file).unwrap(), CONTENT);
        fs::remove_file(file.with_file_name(RECORD)).unwrap();
        wheel(&hash).ensure_with(cache.path(), counted).unwrap();
        assert_eq!(downloads.get(), 2);
    }

    #[test]
    fn what_a_killed_process_left_is_deleted_after_a_day() {
        let (bytes, hash) = fake(MEMBER);
        let cache = tempfile::tempdir().unwrap();
        let [old, new, other] = [".unpack-old", ".unpack-new", "other"].map(|name| cache.path().join(name));
        for dir in [&old, &new, &other] {
            fs::create_dir(dir).unwrap();
        }
        let long_ago = std::time::SystemTime::now() - 2 * ABANDONED;
        for dir in [&old, &other] {
            File::open(dir).unwrap().set_modified(long_ago).unwrap();
        }
        wheel(&hash).ensure_with(cache.path(), put(&bytes)).unwrap();
        assert_eq!([old, new, other].map(|dir| dir.exists()), [false, true, true]);
    }

    #[test]
    fn another_pin_is_another_installation() {
        let (bytes, hash) = fake(MEMBER);
        let cache = tempfile::tempdir().unwrap();
        wheel(&hash).ensure_with(cache.path(), put(&bytes)).unwrap();
        let (other, other_hash) = {
            let mut other = bytes.clone();
            other.splice(..0, *b"prefix"); // a zip file may have something before it
            let hash = crate::hex(&Sha256::digest(&other));
            (other, hash)
        };
        wheel(&other_hash).ensure_with(cache.path(), put(&other)).unwrap();
        assert_eq!(fs::read_dir(cache.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_wheel_without_the_file_is_an_error() {
        let (bytes, hash) = fake("plugins/fake/other.so");
        let cache = tempfile::tempdir().unwrap();
        let e = wheel(&hash).ensure_with(cache.path(), put(&bytes)).unwrap_err();
        assert!(matches!(e, Error::Unpack { .. }), "{e}");
        let hash = crate::hex(&Sha256::digest(b"no zip"));
        let e = wheel(&hash).ensure_with(cache.path(), put(b"no zip")).unwrap_err();
        assert!(matches!(e, Error::Unpack { .. }), "{e}");
    }

    #[test]
    fn only_the_end_of_a_long_complaint_is_shown() {
        assert_eq!(last_lines("a\n\nb\nc\nd\ne\n"), "b\nc\nd\ne");
        assert_eq!(last_lines(""), "");
    }
}
