//! Where a shard goes: something that appears whole, or not at all.

use crate::error::Result;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Takes the bytes of a shard. Nothing is published before `finish`; when it is dropped before, nothing ever is.
pub(super) trait ShardSink: Write + Send {
    /// Publishes the shard.
    fn finish(self: Box<Self>) -> Result<()>;
}

/// A file that gets its name when it is whole.
pub(super) struct LocalSink {
    file: File,
    partial: PathBuf,
    target: PathBuf,
}

impl LocalSink {
    pub(super) fn create(target: &str) -> Result<Box<dyn ShardSink>> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let target = PathBuf::from(target);
        let mut partial = std::ffi::OsString::from(".");
        partial.push(target.file_name().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidFilename))?);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        partial.push(format!(".{}-{number}.partial", std::process::id()));
        let partial = target.with_file_name(partial);
        let file = OpenOptions::new().write(true).create_new(true).open(&partial)?;
        Ok(Box::new(LocalSink { file, partial, target }))
    }
}

impl Write for LocalSink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl ShardSink for LocalSink {
    fn finish(self: Box<Self>) -> Result<()> {
        self.file.sync_all()?;
        fs::rename(&self.partial, &self.target)?;
        sync_dir(&self.target)?;
        Ok(())
    }
}

impl Drop for LocalSink {
    fn drop(&mut self) {
        // After a rename there is nothing left to remove; otherwise there is nobody left to tell.
        let _ = fs::remove_file(&self.partial);
    }
}

/// Makes the new name outlive a crash. Directories cannot be opened everywhere.
fn sync_dir(file: &Path) -> io::Result<()> {
    if cfg!(unix) {
        let dir = file.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(dir)?.sync_all()?;
    }
    Ok(())
}
