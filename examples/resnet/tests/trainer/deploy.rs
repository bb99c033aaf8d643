//! Checks the manifest for GKE against the types of JobSet's API.
//!
//! The types are in the Python package `kubeflow-trainer-api`. The Python interpreter,
//! `SHARDSTREAM_TEST_PYTHON` or `python3`, must have this package and `pyyaml`. The test is ignored by
//! default.

use std::path::Path;
use std::process::Command;

/// Checks a manifest. Returns whether it is valid, and the output of the check.
fn check(manifest: &Path) -> (bool, String) {
    let python = std::env::var("SHARDSTREAM_TEST_PYTHON").ok().filter(|python| !python.is_empty());
    let python = python.unwrap_or_else(|| "python3".into());
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/trainer/jobset.py");
    let output = Command::new(&python).arg(script).arg(manifest).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

#[test]
#[ignore = "needs Python with kubeflow-trainer-api: see CONTRIBUTING.md"]
fn the_jobset_manifest_is_valid() {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/jobset.yaml");
    let (is_valid, output) = check(&manifest);
    assert!(is_valid, "{output}");

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
        let (is_valid, output) = check(&wrong);
        assert!(!is_valid && output.contains(path), "{mistake}: {output}");
    }
}
