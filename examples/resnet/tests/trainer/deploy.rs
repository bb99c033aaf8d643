//! The manifest for GKE against the types of JobSet's API.
//!
//! `SHARDSTREAM_TEST_PYTHON`, or `python3`, has them if `kubeflow-trainer-api` and `pyyaml` are installed.
//! The test is ignored unless it is asked for.

use std::path::Path;
use std::process::Command;

/// The output of the check of a manifest, and whether it is valid.
fn check(manifest: &Path) -> (bool, String) {
    let python = std::env::var("SHARDSTREAM_TEST_PYTHON").ok().filter(|python| !python.is_empty());
    let python = python.unwrap_or_else(|| "python3".into());
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/trainer/jobset.py");
    let output = Command::new(&python).arg(script).arg(manifest).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&said).into_owned())
}

#[test]
#[ignore = "needs Python with kubeflow-trainer-api: see CONTRIBUTING.md"]
fn the_jobset_is_one_of_its_api() {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/jobset.yaml");
    let (valid, said) = check(&manifest);
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
        let (valid, said) = check(&wrong);
        assert!(!valid && said.contains(path), "{mistake}: {said}");
    }
}
