//! A training in two runs gives exactly what it gives in one, and a place that takes no checkpoint ends it.

use std::path::Path;
use std::process::Command;

/// The lines that a run of the program writes about its steps, without the paths of checkpoints.
fn run(steps: &str, dir: &Path) -> Vec<String> {
    let mut program = Command::new(env!("CARGO_BIN_EXE_train_pjrt"));
    let output = program.arg(steps).arg(dir).env_remove("PJRT_PLUGIN").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().filter(|line| line.starts_with("step ")).map(str::to_owned).collect()
}

/// Before the device is opened: the plugin that is named does not exist.
#[test]
fn a_directory_that_takes_no_checkpoint_fails_the_run_before_its_first_step() {
    let dir = tempfile::tempdir().unwrap();
    // Nobody can write a file over a directory, not even root.
    std::fs::create_dir(dir.path().join("writable")).unwrap();
    let mut program = Command::new(env!("CARGO_BIN_EXE_train_pjrt"));
    let output = program.arg("5").arg(dir.path()).env("PJRT_PLUGIN", "/nowhere/plugin.so").output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    let named = format!("error: no checkpoint can be written to {}: ", dir.path().display());
    assert!(!output.status.success() && error.starts_with(&named), "{error}");
    assert!(output.stdout.is_empty(), "{:?}", String::from_utf8_lossy(&output.stdout));
}

#[test]
#[ignore = "needs PJRT's CPU plugin, a download: see CONTRIBUTING.md"]
fn two_runs_give_what_one_gives() {
    let (once, twice) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let whole = run("80", once.path());
    // The first run stops within an epoch, which has 16 steps, and not where a checkpoint is due.
    let mut parts = run("37", twice.path());
    assert!(!twice.path().join("checkpoint-000080.tar").exists());
    parts.extend(run("43", twice.path()));

    assert_eq!(whole.len(), 8, "{whole:?}");
    assert_eq!(whole, parts);
    for step in [50, 80] {
        let checkpoint = |dir: &Path| std::fs::read(dir.join(format!("checkpoint-{step:06}.tar"))).unwrap();
        let whole = checkpoint(once.path());
        assert!(whole.len() > 4 * 768 * 64, "it has the weights");
        assert!(whole == checkpoint(twice.path()), "weights or state differ at step {step}");
    }
    assert_ne!(
        std::fs::read(once.path().join("checkpoint-000050.tar")).unwrap(),
        std::fs::read(once.path().join("checkpoint-000080.tar")).unwrap()
    );
    // It learns: guessing has a loss of ln 3 = 1.0986.
    let (_, rest) = whole[7].split_once("loss ").unwrap();
    let loss: f32 = rest.split_once(',').unwrap().0.parse().unwrap();
    assert!(loss < 0.7, "{whole:?}");
}
