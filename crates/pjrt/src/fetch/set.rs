//! Unpacks several wheels into one folder, as pip does, because some libraries in wheels load each other by
//! relative paths.

use super::error::FetchError;
use super::pinned::{Pinned, SCRATCH, hex, remove_abandoned};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use zip::result::ZipError;

/// Name of the lock file in the folder. A process locks this file while it installs the wheels.
const LOCK: &str = ".lock";

/// Several wheels to unpack into one folder.
#[derive(Debug, Clone, Copy)]
pub struct WheelSet<'a> {
    /// Prefix of the folder's name.
    pub name: &'a str,
    /// The wheels, in the order of their download.
    pub wheels: &'a [Pinned<'a>],
    /// Returns whether to unpack the file at a path in a wheel.
    pub wanted: fn(&str) -> bool,
    /// The main file, named by its path in its wheel. [`ensure`](Self::ensure) returns this file's path in
    /// the cache.
    pub member: &'a str,
    /// Size of all unpacked files in MB.
    pub unpacked_mb: u64,
    /// What to do when a wheel cannot be downloaded.
    pub advice: &'a str,
}

/// The record of an unpacked wheel, a JSON file: the wheel's hash, and the size of each unpacked file.
#[derive(Serialize, Deserialize)]
struct WheelSetRecord {
    wheel_sha256: String,
    files: BTreeMap<String, u64>,
}

impl WheelSet<'_> {
    /// Returns the path of the main file. Downloads the wheels that are not in the cache, with pip. `report`
    /// is called with a line of progress before each slow step.
    ///
    /// If a download is interrupted, the next call downloads only the wheels that were not unpacked yet.
    pub fn ensure(&self, cache: &Path, report: &dyn Fn(&str)) -> Result<PathBuf, FetchError> {
        self.ensure_with(cache, report, |wheel, dir| wheel.pip_download(dir, self.advice, report))
    }

    /// Like [`ensure`](Self::ensure), with `download` instead of pip. `download` writes a wheel into the
    /// given directory and returns the wheel's path.
    pub fn ensure_with(
        &self,
        cache: &Path,
        report: &dyn Fn(&str),
        mut download: impl FnMut(&Pinned<'_>, &Path) -> Result<PathBuf, FetchError>,
    ) -> Result<PathBuf, FetchError> {
        let hashes: String = self.wheels.iter().map(|wheel| wheel.sha256).collect();
        let hash = hex(&Sha256::digest(hashes));
        let home = cache.join(format!("{}-{}", self.name, &hash[..12]));
        let missing = || -> Vec<&Pinned<'_>> {
            self.wheels.iter().filter(|wheel| !is_installed(&home, wheel)).collect()
        };
        let mut _lock = None;
        if !missing().is_empty() {
            fs::create_dir_all(&home).map_err(|cause| self.failed(cache, "its files", cause))?;
            remove_abandoned(cache);
            _lock = self.lock(&home, report);
        }
        // Another process may have installed the wheels while this one waited for the lock.
        let missing = missing();
        let all_mb: u64 = missing.iter().map(|wheel| u64::from(wheel.download_mb)).sum();
        if missing.len() > 1 {
            report(&format!("{}: {} wheels, {all_mb} MB to download", self.name, missing.len()));
        }
        for wheel in missing {
            self.install(cache, &home, wheel, report, &mut download)?;
        }
        let file = home.join(self.member);
        match file.is_file() {
            true => Ok(file),
            false => Err(FetchError::Unpack {
                wheel: self.name.into(),
                member: self.member.into(),
                cause: ZipError::FileNotFound,
            }),
        }
    }

    /// Waits until no other process installs these wheels in this cache. Returns `None` if the file system
    /// has no locks: processes then install the wheels independently.
    fn lock(&self, home: &Path, report: &dyn Fn(&str)) -> Option<File> {
        let file = File::create(home.join(LOCK)).ok()?;
        if let Err(TryLockError::WouldBlock) = file.try_lock() {
            report(&format!("{}: waiting for another process that downloads it", self.name));
            file.lock().ok()?;
        }
        Some(file)
    }

    fn install(
        &self,
        cache: &Path,
        home: &Path,
        wheel: &Pinned<'_>,
        report: &dyn Fn(&str),
        download: &mut impl FnMut(&Pinned<'_>, &Path) -> Result<PathBuf, FetchError>,
    ) -> Result<(), FetchError> {
        let failed = |cause| self.failed(cache, &wheel.name(), cause);
        // The scratch directory is in the cache, since files can be renamed only within one file system.
        // Dropping `scratch` deletes the directory.
        let scratch = tempfile::Builder::new().prefix(SCRATCH).tempdir_in(cache).map_err(failed)?;
        let archive = download(wheel, scratch.path())?;
        wheel.check(&archive).map_err(failed)??;
        let ready = scratch.path().join("ready");
        report(&format!("unpacking {}", wheel.name()));
        let files = self.unpack(&archive, &ready).map_err(|(member, cause)| match cause {
            ZipError::Io(cause) => failed(cause),
            cause => FetchError::Unpack { wheel: wheel.name(), member, cause },
        })?;
        // If the file system has no locks, another process may move the same files here at the same time.
        for path in files.keys() {
            let to = home.join(path);
            to.parent().map_or(Ok(()), fs::create_dir_all).map_err(failed)?;
            fs::rename(ready.join(path), to).map_err(failed)?;
        }
        let record = WheelSetRecord { wheel_sha256: wheel.sha256.into(), files };
        let json = serde_json::to_vec(&record).map_err(|e| failed(e.into()))?;
        let written = scratch.path().join("record");
        fs::write(&written, json).map_err(failed)?;
        fs::rename(written, record_of(home, wheel)).map_err(failed)
    }

    /// Unpacks the wanted files of a wheel below `to`. Returns the size of each file. An error has the name
    /// of the file that cannot be unpacked; the name is empty if the wheel itself cannot be read.
    fn unpack(&self, archive: &Path, to: &Path) -> Result<BTreeMap<String, u64>, (String, ZipError)> {
        let in_member = |member: &str| {
            let member = member.to_owned();
            move |cause: ZipError| (member, cause)
        };
        let of_wheel = |cause: io::Error| (String::new(), ZipError::Io(cause));
        let file = File::open(archive).map_err(of_wheel)?;
        let mut zip = zip::ZipArchive::new(file).map_err(in_member(""))?;
        let mut files = BTreeMap::new();
        for number in 0..zip.len() {
            let mut member = zip.by_index(number).map_err(in_member(""))?;
            let name = member.name().map_err(in_member(""))?.into_owned();
            if member.is_dir() || !(self.wanted)(&name) {
                continue;
            }
            // Refuses paths that lead out of the folder, and links, which may point out of it.
            let Some(path) = member.enclosed_name().filter(|_| !member.is_symlink()) else {
                return Err((name, ZipError::InvalidArchive("a path out of the folder".into())));
            };
            let target = to.join(path);
            let mut write = || -> io::Result<u64> {
                target.parent().map_or(Ok(()), fs::create_dir_all)?;
                let bytes = io::copy(&mut member, &mut File::create(&target)?)?;
                #[cfg(unix)]
                if member.unix_mode().is_some_and(|mode| mode & 0o100 != 0) {
                    use std::os::unix::fs::PermissionsExt;
                    fs::set_permissions(&target, fs::Permissions::from_mode(0o755))?;
                }
                Ok(bytes)
            };
            let bytes = write().map_err(|cause| in_member(&name)(cause.into()))?;
            files.insert(name, bytes);
        }
        Ok(files)
    }

    fn failed(&self, cache: &Path, wheel: &str, cause: io::Error) -> FetchError {
        if cause.kind() != io::ErrorKind::StorageFull {
            return FetchError::Cache { path: cache.into(), cause };
        }
        let largest = self.wheels.iter().map(|wheel| u64::from(wheel.download_mb)).max().unwrap_or(0);
        FetchError::Full {
            path: cache.into(),
            wheel: wheel.into(),
            needed_mb: self.unpacked_mb + 3 * largest,
            also: ". Set SHARDSTREAM_CACHE to a directory on a larger disk, or free space here; wheels that \
                   are unpacked already are kept",
        }
    }
}

fn record_of(home: &Path, wheel: &Pinned<'_>) -> PathBuf {
    home.join(format!("installed-{}.json", wheel.package))
}

/// Whether all files of a wheel exist with their recorded sizes. Hashes are not checked again: they would
/// take minutes.
fn is_installed(home: &Path, wheel: &Pinned<'_>) -> bool {
    let record = fs::read(record_of(home, wheel)).ok().and_then(|json| serde_json::from_slice(&json).ok());
    record.is_some_and(|record: WheelSetRecord| {
        let has_its_size = |(path, bytes): (&String, &u64)| {
            fs::metadata(home.join(path)).is_ok_and(|file| file.len() == *bytes)
        };
        record.wheel_sha256 == wheel.sha256 && record.files.iter().all(has_its_size)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::io::Write;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;
    use zip::write::SimpleFileOptions;

    const PLUGIN: &str = "plugins/gpu/plugin.so";

    /// A wheel with these files, and the wheel's hash. The content of each file is its path.
    fn fake(files: &[&str]) -> (Vec<u8>, String) {
        let mut zip = zip::ZipWriter::new(io::Cursor::new(Vec::new()));
        for file in files {
            let mode = if file.contains("/bin/") { 0o755 } else { 0o644 };
            zip.start_file(*file, SimpleFileOptions::default().unix_permissions(mode)).unwrap();
            zip.write_all(file.as_bytes()).unwrap();
        }
        let bytes = zip.finish().unwrap().into_inner();
        let hash = hex(&Sha256::digest(&bytes));
        (bytes, hash)
    }

    fn pinned<'a>(package: &'a str, sha256: &'a str) -> Pinned<'a> {
        Pinned { package, version: "1.0", sha256, download_mb: 1 }
    }

    fn set<'a>(wheels: &'a [Pinned<'a>]) -> WheelSet<'a> {
        let wanted = |path: &str| !path.ends_with(".py");
        WheelSet { name: "gpu", wheels, wanted, member: PLUGIN, unpacked_mb: 1, advice: "" }
    }

    fn quiet(_: &str) {}

    fn folders(cache: &Path) -> usize {
        fs::read_dir(cache).unwrap().count()
    }

    #[test]
    fn an_interrupted_installation_resumes_with_the_next_wheel() {
        let plugin = fake(&["plugins/gpu/__init__.py", PLUGIN]);
        let library = fake(&["nvidia/blas/lib/libblas.so.12", "nvidia/nvcc/bin/ptxas"]);
        let wheels = [pinned("plugin", &plugin.1), pinned("library", &library.1)];
        let cache = tempfile::tempdir().unwrap();
        let downloads = RefCell::new(Vec::new());
        let download = |works: bool| {
            let (plugin, library, downloads) = (&plugin.0, &library.0, &downloads);
            move |wheel: &Pinned<'_>, dir: &Path| {
                downloads.borrow_mut().push(wheel.package.to_owned());
                let bytes = if wheel.package == "plugin" { plugin } else { library };
                if wheel.package == "library" && !works {
                    return Err(FetchError::Pip {
                        wheel: wheel.name(),
                        message: "no network".into(),
                        advice: String::new(),
                    });
                }
                let path = dir.join("x.whl");
                fs::write(&path, bytes).unwrap();
                Ok(path)
            }
        };
        let set = set(&wheels);
        assert!(matches!(
            set.ensure_with(cache.path(), &quiet, download(false)),
            Err(FetchError::Pip { .. })
        ));
        let file = set.ensure_with(cache.path(), &quiet, download(true)).unwrap();
        assert_eq!(set.ensure_with(cache.path(), &quiet, download(true)).unwrap(), file);
        assert_eq!(*downloads.borrow(), ["plugin", "library", "library"]);
        assert_eq!(fs::read(&file).unwrap(), PLUGIN.as_bytes());
        let blas = file.ancestors().nth(3).unwrap().join("nvidia/blas/lib/libblas.so.12");
        assert!(blas.is_file() && !file.with_file_name("__init__.py").exists());
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let ptxas = file.ancestors().nth(3).unwrap().join("nvidia/nvcc/bin/ptxas");
            assert_eq!(fs::metadata(ptxas).unwrap().permissions().mode() & 0o777, 0o755);
        }
        assert_eq!(folders(cache.path()), 1, "no scratch directory is left");
        // The wheel of a truncated file is downloaded again.
        fs::write(&blas, "").unwrap();
        set.ensure_with(cache.path(), &quiet, download(true)).unwrap();
        assert_eq!(downloads.borrow().len(), 4);
        assert!(fs::metadata(&blas).unwrap().len() > 0);
    }

    #[test]
    fn processes_that_share_a_cache_download_once() {
        let plugin = fake(&[PLUGIN]);
        let wheels = [pinned("plugin", &plugin.1)];
        let cache = tempfile::tempdir().unwrap();
        let (set, downloads) = (set(&wheels), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let download = |_: &Pinned<'_>, dir: &Path| {
                        downloads.fetch_add(1, Ordering::SeqCst);
                        std::thread::sleep(Duration::from_millis(50));
                        let path = dir.join("x.whl");
                        fs::write(&path, &plugin.0).unwrap();
                        Ok(path)
                    };
                    let file = set.ensure_with(cache.path(), &quiet, download).unwrap();
                    assert_eq!(fs::read(file).unwrap(), PLUGIN.as_bytes());
                });
            }
        });
        assert_eq!(downloads.into_inner(), 1);
    }

    #[test]
    fn wheels_with_another_hash_or_paths_out_of_the_folder_are_refused() {
        let (bytes, hash) = fake(&["../../outside.so", PLUGIN]);
        let cache = tempfile::tempdir().unwrap();
        let put = |_: &Pinned<'_>, dir: &Path| {
            let path = dir.join("x.whl");
            fs::write(&path, &bytes).unwrap();
            Ok(path)
        };
        let wheels = [pinned("plugin", &hash)];
        let error = set(&wheels).ensure_with(cache.path(), &quiet, put).unwrap_err();
        assert!(matches!(&error, FetchError::Unpack { member, .. } if member.contains("outside")), "{error}");
        let zeros = "0".repeat(64);
        let wheels = [pinned("plugin", &zeros)];
        assert!(matches!(set(&wheels).ensure_with(cache.path(), &quiet, put), Err(FetchError::Hash { .. })));
        let outside = cache.path().parent().unwrap().join("outside.so");
        assert!(!outside.exists() && !cache.path().join("outside.so").exists());
    }

    #[test]
    fn wheels_without_the_main_file_are_an_error() {
        let (bytes, hash) = fake(&["nvidia/blas/lib/libblas.so.12"]);
        let cache = tempfile::tempdir().unwrap();
        let put = |_: &Pinned<'_>, dir: &Path| {
            let path = dir.join("x.whl");
            fs::write(&path, &bytes).unwrap();
            Ok(path)
        };
        let wheels = [pinned("library", &hash)];
        assert!(matches!(
            set(&wheels).ensure_with(cache.path(), &quiet, put),
            Err(FetchError::Unpack { .. })
        ));
    }
}
