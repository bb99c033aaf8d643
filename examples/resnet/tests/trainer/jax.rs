//! Compares the trainer with JAX: the same batches, seed and hyperparameters give the same losses.
//!
//! `SHARDSTREAM_TEST_JAX` is a Python interpreter with the packages of `export/requirements.txt`. The tests
//! are ignored by default.

use crate::common::{client, lock_devices, synthetic};
use resnet::artifact::Artifact;
use resnet::data::{HostBatch, Source, Split};
use resnet::model::{Hyper, Model};
use std::path::PathBuf;
use std::process::Command;

/// Tolerance for losses of about 2. Both programs compute in float32, but their versions of XLA compute in
/// different orders, and training amplifies the differences from step to step. The largest difference that
/// was observed is 0.0042.
const TOLERANCE: f32 = 0.01;

const SEED: i32 = 7;

fn python() -> PathBuf {
    std::env::var_os("SHARDSTREAM_TEST_JAX").expect("SHARDSTREAM_TEST_JAX is a Python with JAX").into()
}

/// The 20 batches of two epochs.
fn batches() -> Vec<HostBatch> {
    let source = &synthetic().1;
    let epochs = (0..2).flat_map(|epoch| source.batches(Split::Train, epoch).unwrap());
    epochs.map(Result::unwrap).collect()
}

/// The hyperparameters of a step. All four change from step to step.
fn hyper(step: usize) -> Hyper {
    let part = step as f32 / 20.0;
    Hyper {
        rate: 0.02 + 0.05 * part,
        weight_decay: 1e-2 * (1.0 - part),
        label_smoothing: 0.2 * part,
        momentum: 0.9 - 0.2 * part,
    }
}

/// Runs the exported programs. Returns the loss and the number of correct samples of each step.
fn exported(artifact: &Artifact, batches: &[HostBatch]) -> Vec<(f32, u64)> {
    let client = client(artifact.manifest.devices as i64);
    let _lock = lock_devices(&client);
    let mut model = Model::new(&client, artifact, SEED).unwrap();
    let upload = model.uploader();
    let mut step = |(i, batch)| model.step(&upload.upload(batch).unwrap(), hyper(i)).unwrap().read().unwrap();
    batches.iter().enumerate().map(&mut step).collect()
}

/// Trains with JAX. Returns the loss and the number of correct samples of each step.
fn jax(python: PathBuf, artifact: &Artifact, batches: &[HostBatch]) -> Vec<(f32, u64)> {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: Vec<u8>| {
        let path = dir.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    };
    let images = batches.iter().flat_map(|b| b.images.to_vec()).collect();
    let labels = batches.iter().flat_map(|b| &b.labels).flat_map(|label| label.to_le_bytes()).collect();
    let hyper =
        (0..batches.len()).map(hyper).map(|h| [h.rate, h.weight_decay, h.label_smoothing, h.momentum]);
    let request = serde_json::json!({
        "model": artifact.manifest.model,
        "batch": artifact.manifest.batch,
        "devices": artifact.manifest.devices,
        "seed": SEED,
        "hyper": hyper.collect::<Vec<_>>(),
        "images": file("images", images),
        "labels": file("labels", labels),
    });
    let request = file("request.json", request.to_string().into());
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/export/train_jax.py");
    let output = Command::new(python).arg("-B").arg(script).arg(request).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn compare(name: &str) {
    let python = python();
    let artifact = Artifact::open(name).unwrap();
    let batches = batches();
    assert_eq!(batches.len(), 20);
    let ours = exported(&artifact, &batches);
    let theirs = jax(python, &artifact, &batches);
    let differences = differences(&ours, &theirs);
    println!("{name}: losses {} to {}, with differences {differences:?}", ours[0].0, ours[19].0);
    assert!(differences[..5].iter().all(|difference| *difference < TOLERANCE / 20.0), "{differences:?}");
    assert!(differences.iter().all(|difference| *difference < TOLERANCE), "{differences:?}");
    // The predictions may differ for a few of the 64 samples: those whose two largest logits are nearly
    // equal.
    for (step, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
        assert!(ours.1.abs_diff(theirs.1) <= 3, "step {step}: {} and {} are correct", ours.1, theirs.1);
    }
    assert!(ours[19].0 < 0.8 * ours[0].0, "the network learns: {ours:?}");
}

/// The difference between the two losses of each step.
fn differences(ours: &[(f32, u64)], theirs: &[(f32, u64)]) -> Vec<f32> {
    assert_eq!(ours.len(), theirs.len());
    ours.iter().zip(theirs).map(|(a, b)| (a.0 - b.0).abs()).collect()
}

#[test]
#[ignore = "needs Python with JAX, and PJRT's CPU plugin: see CONTRIBUTING.md"]
fn the_losses_equal_those_of_jax() {
    compare("resnet8");
}

#[test]
#[ignore = "needs Python with JAX, and PJRT's CPU plugin: see CONTRIBUTING.md"]
fn the_losses_of_eight_devices_equal_those_of_jax() {
    compare("resnet8-x8");
}
