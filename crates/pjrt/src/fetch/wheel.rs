//! Downloads a wheel and unpacks one file from it.

use super::error::FetchError;
use super::pinned::{Pinned, SCRATCH, remove_abandoned};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// A wheel, and the one file to unpack from it.
#[derive(Debug, Clone, Copy)]
pub struct Wheel<'a> {
    /// The wheel.
    pub pinned: Pinned<'a>,
    /// The path of the file in the wheel.
    pub member: &'a str,
    /// What to do when the wheel cannot be downloaded.
    pub advice: &'a str,
}

/// The content of the JSON file that is written beside an unpacked file: the hash of the wheel, and the size
/// of the unpacked file.
#[derive(Serialize, Deserialize, PartialEq)]
struct WheelRecord {
    wheel_sha256: String,
    bytes: u64,
}

const RECORD: &str = "installed.json";

impl Wheel<'_> {
    /// Returns the path of the file. If the file is not in the cache, downloads the wheel with pip. `report`
    /// is called with a line of progress before each slow step.
    pub fn ensure(&self, cache: &Path, report: &dyn Fn(&str)) -> Result<PathBuf, FetchError> {
        self.ensure_with(cache, report, |dir| self.pinned.pip_download(dir, self.advice, report))
    }

    /// Like [`ensure`](Self::ensure), with `download` instead of pip. `download` writes the wheel into the
    /// given directory and returns the wheel's path.
    pub fn ensure_with(
        &self,
        cache: &Path,
        report: &dyn Fn(&str),
        download: impl FnOnce(&Path) -> Result<PathBuf, FetchError>,
    ) -> Result<PathBuf, FetchError> {
        // The directory's name includes the wheel's hash: machines of several platforms may share this cache
        // in a user's home directory, and each platform has its own wheel.
        let Pinned { package, version, sha256, .. } = self.pinned;
        let short = sha256.get(..12).unwrap_or(sha256);
        let home = cache.join(format!("{package}-{version}-{short}"));
        if let Some(file) = self.installed(&home) {
            return Ok(file);
        }
        let in_cache = |cause| FetchError::Cache { path: cache.into(), cause };
        fs::create_dir_all(cache).map_err(in_cache)?;
        remove_abandoned(cache);
        // The scratch directory is in the cache, since files can be renamed only within one file system.
        // Dropping `scratch` deletes the directory.
        let scratch = tempfile::Builder::new().prefix(SCRATCH).tempdir_in(cache).map_err(in_cache)?;

        let wheel = download(scratch.path())?;
        self.pinned.check(&wheel).map_err(in_cache)??;
        let ready = scratch.path().join("ready");
        fs::create_dir(&ready).map_err(in_cache)?;
        report(&format!("unpacking {}", self.pinned.name()));
        let bytes = self.unpack(&wheel, &ready.join(self.file_name()))?;
        let record = WheelRecord { wheel_sha256: sha256.into(), bytes };
        let json = serde_json::to_vec(&record).map_err(|e| in_cache(e.into()))?;
        fs::write(ready.join(RECORD), json).map_err(in_cache)?;

        // Another process may have installed the file since the first check.
        if self.installed(&home).is_none() {
            match fs::remove_dir_all(&home) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(in_cache(e)),
                _ => {}
            }
            if let Err(e) = fs::rename(&ready, &home) {
                return self.installed(&home).ok_or_else(|| in_cache(e));
            }
        }
        self.installed(&home).ok_or_else(|| in_cache(io::Error::other("another process deleted the file")))
    }

    fn file_name(&self) -> &str {
        self.member.rsplit('/').next().unwrap_or(self.member)
    }

    /// The path of the file, if it exists with the recorded size. The hash of the wheel was checked before
    /// the file was unpacked; checking a hash each time would take a second.
    fn installed(&self, home: &Path) -> Option<PathBuf> {
        let record: WheelRecord = serde_json::from_slice(&fs::read(home.join(RECORD)).ok()?).ok()?;
        let file = home.join(self.file_name());
        let bytes = fs::metadata(&file).ok()?.len();
        if record != (WheelRecord { wheel_sha256: self.pinned.sha256.into(), bytes }) {
            return None;
        }
        Some(file)
    }

    fn unpack(&self, wheel: &Path, to: &Path) -> Result<u64, FetchError> {
        let unpack = || -> zip::result::ZipResult<u64> {
            let mut archive = zip::ZipArchive::new(File::open(wheel)?)?;
            let mut member = archive.by_name(self.member)?;
            let mut file = File::create(to)?;
            Ok(io::copy(&mut member, &mut file)?)
        };
        unpack().map_err(|cause| FetchError::Unpack {
            wheel: self.pinned.name(),
            member: self.member.into(),
            cause,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::pinned::{ABANDONED, hex};
    use super::*;
    use sha2::{Digest, Sha256};
    use std::cell::Cell;
    use std::io::Write;
    use zip::write::SimpleFileOptions;

    const MEMBER: &str = "plugins/fake/fake.so";
    /// The content of the file in the wheel, long enough that zip compresses it.
    const CONTENT: &[u8] = b"not really a library, but long enough to be deflated deflated deflated";

    /// A wheel in memory, and the wheel's hash.
    fn fake(member: &str) -> (Vec<u8>, String) {
        let mut zip = zip::ZipWriter::new(io::Cursor::new(Vec::new()));
        zip.start_file("plugins/fake/__init__.py", SimpleFileOptions::default()).unwrap();
        zip.start_file(member, SimpleFileOptions::default()).unwrap();
        zip.write_all(CONTENT).unwrap();
        let bytes = zip.finish().unwrap().into_inner();
        let hash = hex(&Sha256::digest(&bytes));
        (bytes, hash)
    }

    fn wheel(sha256: &str) -> Wheel<'_> {
        let pinned = Pinned { package: "fake", version: "1.0", sha256, download_mb: 1 };
        Wheel { pinned, member: MEMBER, advice: "" }
    }

    fn put(bytes: &[u8]) -> impl Fn(&Path) -> Result<PathBuf, FetchError> {
        move |dir| {
            let path = dir.join("fake-1.0-py3-none-any.whl");
            fs::write(&path, bytes).unwrap();
            Ok(path)
        }
    }

    fn quiet(_: &str) {}

    fn never(_: &Path) -> Result<PathBuf, FetchError> {
        panic!("nothing should be downloaded")
    }

    #[test]
    fn a_file_is_unpacked_once_and_then_read_from_the_cache() {
        let (bytes, hash) = fake(MEMBER);
        let cache = tempfile::tempdir().unwrap();
        let nested = cache.path().join("not/yet/there");
        let file = wheel(&hash).ensure_with(&nested, &quiet, put(&bytes)).unwrap();
        assert_eq!(fs::read(&file).unwrap(), CONTENT);
        assert_eq!(wheel(&hash).ensure_with(&nested, &quiet, never).unwrap(), file);
        assert_eq!(fs::read_dir(&nested).unwrap().count(), 1, "no scratch directory is left");
    }

    #[test]
    fn a_wheel_with_another_hash_is_refused_and_deleted() {
        let (mut bytes, hash) = fake(MEMBER);
        *bytes.last_mut().unwrap() ^= 1;
        let cache = tempfile::tempdir().unwrap();
        let e = wheel(&hash).ensure_with(cache.path(), &quiet, put(&bytes)).unwrap_err();
        assert!(matches!(&e, FetchError::Hash { expected, got, .. } if *expected == hash && got != expected));
        assert_eq!(fs::read_dir(cache.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_damaged_installation_is_replaced() {
        let (bytes, hash) = fake(MEMBER);
        let cache = tempfile::tempdir().unwrap();
        let file = wheel(&hash).ensure_with(cache.path(), &quiet, put(&bytes)).unwrap();
        let downloads = Cell::new(0);
        let counted = |dir: &Path| {
            downloads.set(downloads.get() + 1);
            put(&bytes)(dir)
        };
        fs::write(&file, &CONTENT[1..]).unwrap();
        wheel(&hash).ensure_with(cache.path(), &quiet, counted).unwrap();
        assert_eq!(fs::read(&file).unwrap(), CONTENT);
        fs::remove_file(file.with_file_name(RECORD)).unwrap();
        wheel(&hash).ensure_with(cache.path(), &quiet, counted).unwrap();
        assert_eq!(downloads.get(), 2);
    }

    #[test]
    fn scratch_directories_of_killed_processes_are_deleted_after_a_day() {
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
        wheel(&hash).ensure_with(cache.path(), &quiet, put(&bytes)).unwrap();
        assert_eq!([old, new, other].map(|dir| dir.exists()), [false, true, true]);
    }

    #[test]
    fn wheels_with_different_hashes_are_installed_side_by_side() {
        let (bytes, hash) = fake(MEMBER);
        let cache = tempfile::tempdir().unwrap();
        wheel(&hash).ensure_with(cache.path(), &quiet, put(&bytes)).unwrap();
        let (other, other_hash) = {
            let mut other = bytes.clone();
            other.splice(..0, *b"prefix"); // a zip file may have other bytes before it
            let hash = hex(&Sha256::digest(&other));
            (other, hash)
        };
        wheel(&other_hash).ensure_with(cache.path(), &quiet, put(&other)).unwrap();
        assert_eq!(fs::read_dir(cache.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_wheel_without_the_file_is_an_error() {
        let (bytes, hash) = fake("plugins/fake/other.so");
        let cache = tempfile::tempdir().unwrap();
        let e = wheel(&hash).ensure_with(cache.path(), &quiet, put(&bytes)).unwrap_err();
        assert!(matches!(e, FetchError::Unpack { .. }), "{e}");
        let hash = hex(&Sha256::digest(b"no zip"));
        let e = wheel(&hash).ensure_with(cache.path(), &quiet, put(b"no zip")).unwrap_err();
        assert!(matches!(e, FetchError::Unpack { .. }), "{e}");
    }
}
