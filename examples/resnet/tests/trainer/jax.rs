//! The trainer beside JAX: the same batches, seed and hyperparameters, and so the same losses.
//!
//! The interpreter is `SHARDSTREAM_TEST_JAX`, with the packages of `export/requirements.txt`. The
//! tests are ignored unless they are asked for.

use crate::common::{client, synthetic, turn};
use resnet::artifact::Artifact;
use resnet::data::{HostBatch, Source, Split};
use resnet::model::{Hyper, Model};
use std::path::PathBuf;
use std::process::Command;

/// Tolerance for losses of about 2. Both compute in float32, but in another order, as their versions of XLA
/// differ, and learning amplifies the difference from step to step. The largest observed difference was
/// 0.0042.
const TOLERANCE: f32 = 0.01;

const SEED: i32 = 7;

fn python() -> PathBuf {
    std::env::var_os("SHARDSTREAM_TEST_JAX").expect("SHARDSTREAM_TEST_JAX is a Python with JAX").into()
}

/// 20 real batches, of two epochs.
fn batches() -> Vec<HostBatch> {
    let source = &synthetic().1;
    let epochs = (0..2).flat_map(|epoch| source.batches(Split::Train, epoch).unwrap());
    epochs.map(Result::unwrap).collect()
}

/// All four change from step to step.
fn hyper(step: usize) -> Hyper {
    let part = step as f32 / 20.0;
    Hyper {
        rate: 0.02 + 0.05 * part,
        weight_decay: 1e-2 * (1.0 - part),
        label_smoothing: 0.2 * part,
        momentum: 0.9 - 0.2 * part,
    }
}

/// The results of each step of the exported programs.
fn exported(artifact: &Artifact, batches: &[HostBatch]) -> Vec<(f32, u64)> {
    let client = client(artifact.manifest.devices as i64);
    let _turn = turn(&client);
    let mut model = Model::new(&client, artifact, SEED).unwrap();
    let upload = model.uploader();
    let mut step = |(i, batch)| model.step(&upload.upload(batch).unwrap(), hyper(i)).unwrap().read().unwrap();
    batches.iter().enumerate().map(&mut step).collect()
}

/// The results of JAX.
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
    let (apart, largest) = differences(&ours, &theirs);
    println!("{name}: losses {} to {}, apart by {apart:?}", ours[0].0, ours[19].0);
    assert!(apart[..5].iter().all(|apart| *apart < TOLERANCE / 20.0), "before they grow: {apart:?}");
    assert!(largest < TOLERANCE, "{apart:?}");
    // Of 64; some are near ties.
    for (step, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
        assert!(ours.1.abs_diff(theirs.1) <= 3, "step {step}: {} and {} are right", ours.1, theirs.1);
    }
    assert!(ours[19].0 < 0.8 * ours[0].0, "it learns: {ours:?}");
}

/// The differences of the losses by step, and the largest.
fn differences(ours: &[(f32, u64)], theirs: &[(f32, u64)]) -> (Vec<f32>, f32) {
    assert_eq!(ours.len(), theirs.len());
    let apart: Vec<f32> = ours.iter().zip(theirs).map(|(a, b)| (a.0 - b.0).abs()).collect();
    let largest = apart.iter().copied().fold(0.0, f32::max);
    (apart, largest)
}

#[test]
#[ignore = "needs Python with JAX, and PJRT's CPU plugin: see CONTRIBUTING.md"]
fn losses_are_those_of_jax() {
    compare("resnet8");
}

#[test]
#[ignore = "needs Python with JAX, and PJRT's CPU plugin: see CONTRIBUTING.md"]
fn losses_of_eight_devices_are_those_of_jax() {
    compare("resnet8-x8");
}
