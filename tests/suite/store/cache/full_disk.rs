//! A cache on a file system that is too small for the object.

use super::fixture::{ControlledSource, URL, files};
use crate::support::noise;
use shardstream::store::Cache;
use std::path::Path;
use std::process::Command;

/// A small file system in memory. It is mounted at a directory and unmounted when this value is dropped.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    /// Mounts the file system; `None` if this process may not mount one.
    fn mount(bytes: usize) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let options = format!("size={bytes}");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &options, "tmpfs"])
            .arg(directory.path())
            .output()
            .unwrap();
        if !mounted.status.success() {
            eprintln!("skipped: {}", String::from_utf8_lossy(&mounted.stderr).trim());
            return None;
        }
        Some(SmallDisk(directory))
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg("--lazy").arg(self.path()).status();
        assert!(unmounted.is_ok_and(|status| status.success()));
    }
}

#[test]
#[ignore = "needs to mount a file system"]
fn readers_continue_when_the_disk_is_full() {
    let Some(disk) = SmallDisk::mount(200_000) else { return };
    let content = noise(500_000);
    let source = ControlledSource::of(&content);
    let cache = || {
        let directory = disk.path().join("cache");
        Cache::builder(directory).block_size(10_000).revalidate(false).build().unwrap()
    };
    let shared = cache();
    let store = source.store(&shared);
    for _ in 0..3 {
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| assert!(store.open(URL).unwrap().read_all().unwrap() == content));
            }
        });
        shared.flush();
    }
    let warning = shared.warning().unwrap();
    assert!(warning.contains(disk.path().to_str().unwrap()), "{warning}");
    assert!(warning.contains("No space left on device"), "{warning}");
    let left = files(disk.path());
    assert!(!left.is_empty() && left.iter().all(|file| file.extension().unwrap() == "block"), "{left:?}");
    // Another process finds the blocks for which there was room in the cache, and requests the other blocks.
    let second = cache();
    let again = source.store(&second);
    assert!(again.open(URL).unwrap().read_all().unwrap() == content);
    let report = again.report().total();
    assert!(report.cached > 100_000 && report.cached < 200_000, "{report}");
    second.flush();
    // Once there is room again, blocks are cached as usual.
    std::fs::remove_dir_all(disk.path().join("cache")).unwrap();
    let short = &content[..100_000];
    source.put(URL, short, Some("v2"));
    let after = cache();
    assert!(source.store(&after).open(URL).unwrap().read_all().unwrap() == short);
    after.flush();
    assert_eq!((after.warning(), files(disk.path()).len()), (None, 10));
}
