//! Files that do not outlive the process, however it ends on its own account.

use std::fs;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

static FILES: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

fn files() -> MutexGuard<'static, Vec<PathBuf>> {
    FILES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A file that is removed when this is dropped, or by [`remove_all`].
#[derive(Debug)]
pub(crate) struct RemovedAtEnd(PathBuf);

impl RemovedAtEnd {
    /// The file need not exist yet.
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

/// Removes all of them: for a process that ends without running destructors.
pub(crate) fn remove_all() {
    for path in files().drain(..) {
        let _ = fs::remove_file(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_removed_by_a_drop() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let removed = RemovedAtEnd::new(path.clone());
        fs::write(&path, b"").unwrap();
        assert!(files().contains(&path));
        drop(removed);
        assert!(!path.exists() && !files().contains(&path));
    }
}
