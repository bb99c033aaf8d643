//! Tests of a training's second start, which loads its programs from the cache.

use crate::common::{losses, plugin, synthetic};
use std::path::Path;
use std::process::Command;

/// Runs a training of one epoch with the compile cache `cache`, and returns its output.
fn run(cache: &str) -> String {
    let shards = &synthetic().0;
    let mut program = Command::new(env!("CARGO_BIN_EXE_resnet"));
    program.arg("--plugin").arg(plugin()).arg("--work-dir").arg(Path::new(&shards.train).parent().unwrap());
    program.args(["--shards", &shards.train, "--val-shards", &shards.validation, "--threads", "2"]);
    program.args(["--epochs", "1", "--log-steps", "1", "--shuffle", "50", "--artifact", "resnet8-x8"]);
    let output = program.args(["--compile-cache", cache]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
#[ignore = "needs PJRT's CPU plugin, a download: see CONTRIBUTING.md"]
fn programs_from_the_cache_compute_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("compiled");
    let cache = path.to_str().unwrap();
    let compiled = run(cache);
    assert!(compiled.contains("programs: init, step, eval compiled in "), "{compiled}");
    assert!(compiled.contains(" MB put into the cache in "), "{compiled}");
    let loaded = run(cache);
    assert!(loaded.contains("programs: init, step, eval loaded from the cache in "), "{loaded}");
    assert_eq!(losses(&compiled).len(), 10);
    assert_eq!(losses(&loaded), losses(&compiled));
    let accuracy =
        |log: &str| log.lines().find(|line| line.contains("validation accuracy")).unwrap().to_owned();
    let counts = |log: &str| accuracy(log).split(" in ").next().unwrap().to_owned();
    assert_eq!(counts(&loaded), counts(&compiled));
    // A damaged entry is compiled again.
    for file in
        std::fs::read_dir(&path).unwrap().map(|file| file.unwrap().path()).filter(|file| file.is_file())
    {
        let mut bytes = std::fs::read(&file).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(&file, bytes).unwrap();
    }
    let again = run(cache);
    assert_eq!(again.matches("cannot be used, and is compiled again").count(), 3, "{again}");
    assert_eq!(losses(&again), losses(&compiled));
    assert!(run(cache).contains("loaded from the cache"));
}
