//! Files that are removed when the process ends, even if it ends without running destructors.

use std::fs;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

static FILES: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

fn files() -> MutexGuard<'static, Vec<PathBuf>> {
    FILES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A file that is removed when this value is dropped, or by [`remove_all`].
#[derive(Debug)]
pub(crate) struct RemovedAtEnd(PathBuf);

impl RemovedAtEnd {
    /// Registers a file, which need not exist yet.
    pub(crate) fn new(path: PathBuf) -> Self {
        files().push(path.clone());
        RemovedAtEnd(path)
    }
}

impl Drop for RemovedAtEnd {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
        files().retain(|path| *path != self.0);
    }
}

/// Removes all registered files. Called before the process ends without running destructors.
pub(crate) fn remove_all() {
    for path in files().drain(..) {
        let _ = fs::remove_file(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropping_the_value_removes_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let removed = RemovedAtEnd::new(path.clone());
        fs::write(&path, b"").unwrap();
        assert!(files().contains(&path));
        drop(removed);
        assert!(!path.exists() && !files().contains(&path));
    }
}
