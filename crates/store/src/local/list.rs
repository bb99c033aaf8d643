//! Lists the files in a directory.

use super::partial::is_partial;
use super::{info, store_error};
use crate::Result;
use crate::source::ObjectInfo;
use std::fs;
use std::path::Path;

/// Lists the files under `root`, at most `depth` directories below it, in no particular order. `name`
/// converts a path to a URL.
///
/// Links to files are followed, links to directories below `root` are not. Partial files and directories are
/// left out.
pub(crate) fn list(
    root: &Path,
    depth: usize,
    name: impl Fn(&Path) -> Result<String>,
) -> Result<Vec<ObjectInfo>> {
    let mut files = Vec::new();
    let mut directories = vec![(root.to_owned(), depth)];
    while let Some((directory, depth)) = directories.pop() {
        for entry in fs::read_dir(&directory).map_err(store_error)? {
            let entry = entry?;
            let path = entry.path();
            // A partial file may be renamed at any moment; reading its metadata would then fail.
            if is_partial(&path) {
                continue;
            }
            if entry.file_type()?.is_dir() {
                directories.extend(depth.checked_sub(1).map(|depth| (path, depth)));
                continue;
            }
            let at_path = |error| store_error(error).in_shard(path.to_string_lossy());
            let metadata = fs::metadata(&path).map_err(at_path)?;
            if metadata.is_file() {
                files.push(info(name(&path)?, &metadata));
            }
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn a_partial_file_that_disappears_does_not_fail_a_listing() {
        let directory = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("gone", directory.path().join(".f.1-0.partial")).unwrap();
        assert!(list(directory.path(), usize::MAX, |_| unreachable!()).unwrap().is_empty());
    }
}
