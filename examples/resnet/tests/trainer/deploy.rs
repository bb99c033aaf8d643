//! The manifest for GKE against the types of JobSet's API.
//!
//! `SHARDSTREAM_TEST_PYTHON`, or `python3`, has them if `kubeflow-trainer-api` and `pyyaml` are installed.
//! Without them the test says SKIPPED, and fails with `SHARDSTREAM_REQUIRE_PYTHON=1`.

use std::io::Write;
use std::path::Path;
use std::process::Command;

/// The output of the check of a manifest, and whether it is valid; `None` without the types.
fn check(manifest: &Path) -> Option<(bool, String)> {
    let python = std::env::var("SHARDSTREAM_TEST_PYTHON").ok().filter(|python| !python.is_empty());
    let python = python.unwrap_or_else(|| "python3".into());
    let has = Command::new(&python).args(["-c", "import kubeflow_trainer_api, yaml"]).output();
    if !has.is_ok_and(|output| output.status.success()) {
        let required = std::env::var("SHARDSTREAM_REQUIRE_PYTHON").is_ok_and(|value| value == "1");
        assert!(!required, "{python} has no kubeflow-trainer-api and pyyaml");
        // Not eprintln!, which the test harness swallows.
        let _ = writeln!(std::io::stderr(), "SKIPPED: {python} has no kubeflow-trainer-api and pyyaml");
        return None;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/trainer/jobset.py");
    let output = Command::new(&python).arg(script).arg(manifest).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    Some((output.status.success(), String::from_utf8_lossy(&said).into_owned()))
}

#[test]
fn the_jobset_is_one_of_its_api() {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/jobset.yaml");
    let Some((valid, said)) = check(&manifest) else { return };
    assert!(valid, "{said}");

    let text = std::fs::read_to_string(&manifest).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let wrong = dir.path().join("jobset.yaml");
    for (right, mistake, path) in [
        ("maxRestarts:", "maxRestart:", "failurePolicy.maxRestart: unknown"),
        ("nodeSelector:", "nodeSelectors:", "nodeSelectors: unknown"),
        ("- name: optionsOrTarget\n        action", "- action", "rules[0].name: missing"),
        ("replicas: 1", "replicas: one", "valid integer"),
    ] {
        assert!(text.contains(right), "{right}");
        std::fs::write(&wrong, text.replace(right, mistake)).unwrap();
        let (valid, said) = check(&wrong).unwrap();
        assert!(!valid && said.contains(path), "{mistake}: {said}");
    }
}
