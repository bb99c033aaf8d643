//! Downloads wheels that are pinned by hash.

use super::error::FetchError;
use sha2::{Digest, Sha256};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Prefix of the names of scratch directories.
pub(super) const SCRATCH: &str = ".unpack-";
/// A scratch directory older than this is from a killed process.
pub(super) const ABANDONED: Duration = Duration::from_secs(24 * 3600);

/// A wheel, pinned by hash.
#[derive(Debug, Clone, Copy)]
pub struct Pinned<'a> {
    /// Name of the Python package.
    pub package: &'a str,
    /// Version of the package.
    pub version: &'a str,
    /// Sha256 of the wheel for this platform.
    pub sha256: &'a str,
    /// Size of the download in MB.
    pub download_mb: u32,
}

impl Pinned<'_> {
    pub(super) fn name(&self) -> String {
        format!("{} {}", self.package, self.version)
    }

    /// Checks the hash of a downloaded wheel. The outer error means that the file cannot be read, the inner
    /// error that its hash is wrong.
    pub(super) fn check(&self, wheel: &Path) -> io::Result<Result<(), FetchError>> {
        let got = sha256(wheel)?;
        Ok(match got == self.sha256 {
            true => Ok(()),
            false => Err(FetchError::Hash { wheel: self.name(), expected: self.sha256.into(), got }),
        })
    }

    /// Downloads the wheel into a directory.
    pub(super) fn pip_download(
        &self,
        dir: &Path,
        advice: &str,
        report: &dyn Fn(&str),
    ) -> Result<PathBuf, FetchError> {
        report(&format!("downloading {} with pip ({} MB)", self.name(), self.download_mb));
        let output = Command::new("python3")
            .args(["-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-input"])
            // `TMPDIR` is set below because some wheels have hundreds of megabytes, more than a small /tmp
            // can hold. Pip's own cache would be no use: no wheel is downloaded twice.
            .args(["--disable-pip-version-check", "--no-cache-dir", "--progress-bar=off", "-d"])
            .arg(dir)
            .arg(format!("{}=={}", self.package, self.version))
            .env("TMPDIR", dir)
            .output()
            .map_err(|cause| FetchError::NoPython { wheel: self.name(), cause, advice: advice.into() })?;
        let failed = |message: String| FetchError::Pip { wheel: self.name(), message, advice: advice.into() };
        if !output.status.success() {
            return Err(failed(last_lines(&String::from_utf8_lossy(&output.stderr))));
        }
        let is_wheel = |path: &PathBuf| path.extension().is_some_and(|e| e == "whl");
        let files = fs::read_dir(dir).map_err(|e| failed(e.to_string()))?;
        let wheel = files.flatten().map(|f| f.path()).find(is_wheel);
        wheel.ok_or_else(|| failed("pip succeeded, but wrote no wheel".into()))
    }
}

/// Deletes the scratch directories that killed processes have left. Each may hold hundreds of megabytes.
pub(super) fn remove_abandoned(cache: &Path) {
    for entry in fs::read_dir(cache).into_iter().flatten().flatten() {
        let is_scratch = entry.file_name().to_string_lossy().starts_with(SCRATCH);
        let age = entry.metadata().and_then(|m| m.modified()).ok().and_then(|at| at.elapsed().ok());
        if is_scratch && age.is_some_and(|age| age > ABANDONED) {
            // A directory that cannot be deleted only takes space.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// The last four lines of pip's error output: these lines say why pip failed.
fn last_lines(text: &str) -> String {
    let lines: Vec<_> = text.lines().filter(|l| !l.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(4)..].join("\n")
}

fn sha256(path: &Path) -> io::Result<String> {
    let mut hash = Sha256::new();
    io::copy(&mut File::open(path)?, &mut HashWriter(&mut hash))?;
    Ok(hex(&hash.finalize()))
}

/// Lower-case hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_lines_of_a_long_error_are_shown() {
        assert_eq!(last_lines("a\n\nb\nc\nd\ne\n"), "b\nc\nd\ne");
        assert_eq!(last_lines(""), "");
    }
}
