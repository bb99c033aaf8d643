//! Tests that a training in two runs ends exactly as a training in one run, and that a directory that cannot
//! be written is an error at the start.

use std::path::Path;
use std::process::Command;

/// Runs the program, and returns its lines about steps.
fn run(steps: &str, dir: &Path) -> Vec<String> {
    let mut program = Command::new(env!("CARGO_BIN_EXE_train_pjrt"));
    let output = program.arg(steps).arg(dir).env_remove("PJRT_PLUGIN").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().filter(|line| line.starts_with("step ")).map(str::to_owned).collect()
}

/// The plugin of this test does not exist, and yet the error is about the directory. So the program checks
/// the directory before it opens the device.
#[test]
fn a_directory_that_cannot_be_written_fails_the_run_before_its_first_step() {
    let dir = tempfile::tempdir().unwrap();
    // Nobody can write a file over a directory, not even root.
    std::fs::create_dir(dir.path().join("writable")).unwrap();
    let mut program = Command::new(env!("CARGO_BIN_EXE_train_pjrt"));
    let output = program.arg("5").arg(dir.path()).env("PJRT_PLUGIN", "/nowhere/plugin.so").output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    let expected = format!("error: no checkpoint can be written to {}: ", dir.path().display());
    assert!(!output.status.success() && error.starts_with(&expected), "{error}");
    assert!(output.stdout.is_empty(), "{:?}", String::from_utf8_lossy(&output.stdout));
}

#[test]
#[ignore = "needs PJRT's CPU plugin, a download: see CONTRIBUTING.md"]
fn a_training_in_two_runs_equals_a_training_in_one() {
    let (once, twice) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let whole = run("80", once.path());
    // The first run stops in the middle of an epoch of 16 steps, and at a step without a regular checkpoint.
    let mut parts = run("37", twice.path());
    assert!(!twice.path().join("checkpoint-000080.tar").exists());
    parts.extend(run("43", twice.path()));

    assert_eq!(whole.len(), 8, "{whole:?}");
    assert_eq!(whole, parts);
    for step in [50, 80] {
        let checkpoint = |dir: &Path| std::fs::read(dir.join(format!("checkpoint-{step:06}.tar"))).unwrap();
        let whole = checkpoint(once.path());
        assert!(whole.len() > 4 * 768 * 64, "the checkpoint has the weights");
        assert!(whole == checkpoint(twice.path()), "weights or state differ at step {step}");
    }
    assert_ne!(
        std::fs::read(once.path().join("checkpoint-000050.tar")).unwrap(),
        std::fs::read(once.path().join("checkpoint-000080.tar")).unwrap()
    );
    // The network learns: guessing has a loss of ln 3 = 1.0986.
    let (_, rest) = whole[7].split_once("loss ").unwrap();
    let loss: f32 = rest.split_once(',').unwrap().0.parse().unwrap();
    assert!(loss < 0.7, "{whole:?}");
}
