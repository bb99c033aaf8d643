//! Tests of the programs, the devices and the training loop with the CPU plugin.

use crate::common::{another_client, client, model, options};
use resnet::Error;
use resnet::artifact::Artifact;
use resnet::data::{HostBatch, HostBatches, Source, Split};
use resnet::model::{Hyper, Model};
use resnet::report::{EvalCounts, Summary};
use resnet::train::{self, Start, TrainContext};
use shardstream::State;
use shardstream_pjrt::{CompileOptions, PjrtError};
use std::cell::RefCell;
use std::io::Write;

/// Runs a training from its start, without checkpoints.
fn train(
    model: &mut Model,
    options: &train::TrainOptions,
    source: &dyn Source,
    out: &mut dyn Write,
) -> resnet::Result<Summary> {
    train::train(model, options, source, Start::default(), TrainContext::default(), out)
}

fn synthetic() -> &'static dyn Source {
    &crate::common::synthetic().1
}

fn first_batches(split: Split, n: usize) -> Vec<HostBatch> {
    synthetic().batches(split, 0).unwrap().take(n).map(Result::unwrap).collect()
}

#[test]
#[ignore = "needs PJRT's CPU plugin, a download: see CONTRIBUTING.md"]
fn forty_steps_learn_four_batches() {
    let client = client(1);
    let model = &mut *model(&client, "resnet8");
    let upload = model.uploader();
    let batches: Vec<_> = first_batches(Split::Train, 4).iter().map(|b| upload.upload(b).unwrap()).collect();
    let mut losses = Vec::new();
    for i in 0..40 {
        let result = model.step(&batches[i % 4], Hyper::default()).unwrap();
        losses.push(result.read().unwrap().0);
    }
    let mean = |l: &[f32]| l.iter().sum::<f32>() / l.len() as f32;
    let (first, last) = (mean(&losses[..4]), mean(&losses[36..]));
    assert!(first > 2.0, "the loss of an untrained network: {first}");
    assert!(last < 0.5 * first, "{first} to {last}");
}

#[test]
#[ignore = "needs PJRT's CPU plugin, a download: see CONTRIBUTING.md"]
fn the_initial_state_depends_only_on_the_seed() {
    let client = client(1);
    let Artifact { manifest, init, .. } = Artifact::open("resnet8").unwrap();
    let init = client.compile(&init, manifest.init_signature(), &CompileOptions::default()).unwrap();
    let state = |seed: i32| -> Vec<Vec<f32>> {
        let seed = client.upload(&[seed], &[], 0).unwrap();
        let state = init.run(vec![vec![]], &[vec![&seed]]).unwrap();
        state[0].iter().map(|b| b.to_host().unwrap()).collect()
    };
    let initial = state(1);
    assert_eq!(initial, state(1));
    assert_ne!(initial, state(2));
    for (values, buffer) in initial.iter().zip(&manifest.state) {
        let elements = buffer.shape.iter().product::<i64>();
        assert_eq!(values.len() as i64, elements, "{}", buffer.name);
    }
}

#[test]
#[ignore = "needs PJRT's CPU plugin, a download: see CONTRIBUTING.md"]
fn eight_devices_have_the_same_state_and_the_losses_of_one_device() {
    let (eight, one) = (client(8), client(1));
    let spread = &mut *model(&eight, "resnet8-x8");
    let alone = &mut *model(&one, "resnet8");
    let hyper = Hyper { rate: 0.05, ..Hyper::default() };
    for batch in first_batches(Split::Train, 3) {
        let result = spread.step(&spread.uploader().upload(&batch).unwrap(), hyper).unwrap();
        let expected = alone.step(&alone.uploader().upload(&batch).unwrap(), hyper).unwrap();
        let (loss, correct) = result.read().unwrap();
        let (expected_loss, expected_correct) = expected.read().unwrap();
        assert!((loss - expected_loss).abs() < 1e-2, "{loss} {expected_loss}");
        assert!(correct.abs_diff(expected_correct) <= 1);
    }
    let first = spread.state(0).unwrap();
    for device in 1..8 {
        assert_eq!(spread.state(device).unwrap(), first, "device {device}");
    }
}

#[test]
#[ignore = "needs PJRT's CPU plugin, a download: see CONTRIBUTING.md"]
fn bfloat16_on_eight_devices_stays_near_float32() {
    let (eight, one) = (client(8), client(1));
    let spread = &mut *model(&eight, "resnet8-bf16-x8");
    let alone = &mut *model(&one, "resnet8");
    let hyper = Hyper { rate: 0.05, ..Hyper::default() };
    for batch in first_batches(Split::Train, 3) {
        let result = spread.step(&spread.uploader().upload(&batch).unwrap(), hyper).unwrap();
        let expected = alone.step(&alone.uploader().upload(&batch).unwrap(), hyper).unwrap();
        let (loss, expected) = (result.read().unwrap().0, expected.read().unwrap().0);
        assert!((loss - expected).abs() < 0.1 && loss != expected, "{loss} {expected}");
    }
    let first = spread.state(0).unwrap();
    for device in 1..8 {
        assert_eq!(spread.state(device).unwrap(), first, "device {device}");
    }
}

/// Runs one training step, and restores the model. Returns the loss, and the state right after the step.
fn one_step(model: &mut Model, hyper: Hyper) -> (f32, Vec<Vec<f32>>) {
    let before = model.state(0).unwrap();
    let batch = model.uploader().upload(&first_batches(Split::Train, 1)[0]).unwrap();
    let loss = model.step(&batch, hyper).unwrap().read().unwrap().0;
    let state = model.state(0).unwrap();
    model.restore(&before).unwrap();
    (loss, state)
}

#[test]
#[ignore = "needs PJRT's CPU plugin, a download: see CONTRIBUTING.md"]
fn weights_decay_and_biases_do_not() {
    let client = client(1);
    let model = &mut *model(&client, "resnet8");
    let initial = model.state(0).unwrap();
    let step = |model: &mut Model, weight_decay| {
        one_step(model, Hyper { rate: 0.1, weight_decay, label_smoothing: 0.0, momentum: 0.9 })
    };
    let (loss, plain) = step(model, 0.0);
    let (same, decayed) = step(model, 0.5);
    assert_eq!(loss, same, "the loss is that of the network before the step");
    let buffers = model.manifest().state.clone();
    let mut kernels = 0;
    for (i, buffer) in buffers.iter().enumerate() {
        let is_kernel = buffer.shape.len() > 1;
        if !(is_kernel && buffer.name.starts_with("params.")) {
            // Weight decay changes only the kernels and their momentum. The kernels are compared below.
            assert!(is_kernel || plain[i] == decayed[i], "{}", buffer.name);
            continue;
        }
        kernels += 1;
        for ((old, plain), decayed) in initial[i].iter().zip(&plain[i]).zip(&decayed[i]) {
            // In the first step, Nesterov momentum multiplies the gradient by 1.9.
            let expected = plain - 0.1 * 1.9 * 0.5 * old;
            assert!((decayed - expected).abs() < 1e-4, "{}: {decayed}, not {expected}", buffer.name);
        }
    }
    assert_eq!(kernels, 10);
    let hyper = Hyper { rate: 0.0, weight_decay: 0.5, label_smoothing: 0.1, momentum: 0.9 };
    let (_, unchanged) = one_step(model, hyper);
    for (i, buffer) in buffers.iter().enumerate() {
        assert!(!buffer.name.starts_with("params.") || initial[i] == unchanged[i], "{}", buffer.name);
    }
}

#[test]
#[ignore = "needs PJRT's CPU plugin, a download: see CONTRIBUTING.md"]
fn the_loss_of_smoothed_labels_is_a_weighted_mean() {
    let client = client(1);
    let model = &mut *model(&client, "resnet8");
    let mut loss = |label_smoothing| {
        one_step(model, Hyper { rate: 0.1, weight_decay: 0.0, label_smoothing, momentum: 0.9 }).0
    };
    let (hard, uniform, smoothed) = (loss(0.0), loss(1.0), loss(0.2));
    assert!((hard - uniform).abs() > 1e-3, "{hard} {uniform}");
    assert!((smoothed - (0.8 * hard + 0.2 * uniform)).abs() < 1e-4, "{smoothed} of {hard} and {uniform}");
}

#[test]
#[ignore = "needs PJRT's CPU plugin, a download: see CONTRIBUTING.md"]
fn another_number_of_devices_is_an_error_with_advice() {
    let (two, eight) = (client(2), client(8));
    for (client, name) in [(&two, "resnet8-x8"), (&eight, "resnet8")] {
        let e = Model::new(client, &Artifact::open(name).unwrap(), 1).unwrap_err();
        assert!(matches!(e, Error::Devices { .. }), "{e}");
        assert!(e.to_string().contains("cpu_device_count"), "{e}");
    }
}

#[test]
#[ignore = "needs PJRT's CPU plugin, a download: see CONTRIBUTING.md"]
fn padding_is_never_counted() {
    let client = client(1);
    let model = &*model(&client, "resnet8");
    let upload = model.uploader();
    let correct = |b: &HostBatch| {
        let EvalCounts { samples: valid, correct, top5 } =
            model.evaluate(&upload.upload(b).unwrap()).unwrap().read().unwrap();
        assert!(correct <= top5 && top5 <= valid);
        assert_eq!(valid, b.valid as u64);
        correct
    };
    let whole = &first_batches(Split::Validation, 1)[0];
    let head = |n: usize| {
        let mut b = whole.clone();
        b.labels[n..].fill(-1);
        b.valid = n;
        b
    };
    assert_eq!(correct(&head(0)), 0);
    let counts: Vec<u64> = (0..=64).step_by(8).map(|n| correct(&head(n))).collect();
    assert!(counts.windows(2).all(|w| (0..=8).contains(&(w[1] - w[0]))), "{counts:?}");
    // The head and the tail of a batch together have the same samples as the whole batch.
    let mut tail = whole.clone();
    tail.labels.rotate_left(24);
    let mut images = Vec::from(tail.images);
    images.rotate_left(24 * 32 * 32 * 3);
    tail.images = images.into();
    tail.labels[40..].fill(-1);
    tail.valid = 40;
    assert_eq!(counts[3] + correct(&tail), counts[8]);
    assert_eq!(counts[8], correct(whole));
    assert!(counts[8] > 0, "some of 64 samples are correct by chance");
}

#[test]
#[ignore = "needs PJRT's CPU plugin, a download: see CONTRIBUTING.md"]
fn after_a_failed_step_every_further_step_fails() {
    let (client, other_client) = (client(1), another_client(1));
    let model = &mut *model(&client, "resnet8");
    let other = Model::new(&other_client, &Artifact::open("resnet8").unwrap(), 1).unwrap();
    let batch = &first_batches(Split::Train, 1)[0];
    let foreign = other.uploader().upload(batch).unwrap();
    assert!(matches!(model.step(&foreign, Hyper::default()), Err(Error::Pjrt(PjrtError::Mismatch { .. }))));
    let own = model.uploader().upload(batch).unwrap();
    assert!(matches!(model.step(&own, Hyper::default()), Err(Error::Pjrt(PjrtError::Mismatch { .. }))));
}

#[test]
#[ignore = "needs PJRT's CPU plugin, a download: see CONTRIBUTING.md"]
fn a_training_reports_epochs_and_validation() {
    let client = client(1);
    let model = &mut *model(&client, "resnet8");
    let mut log = Vec::new();
    let summary = train(model, &options(2, 5, 0.1), synthetic(), &mut log).unwrap();
    assert_eq!(summary.epochs.len(), 2);
    for epoch in &summary.epochs {
        assert_eq!((epoch.steps, epoch.samples, epoch.validation_samples), (5, 320, 100));
        assert!(epoch.data_wait <= epoch.time && epoch.rate() > 0.0);
    }
    let log = String::from_utf8(log).unwrap();
    assert_eq!(log.matches("  step ").count(), 4, "{log}");
    assert_eq!(log.matches("validation accuracy").count(), 3, "{log}");
    assert!(log.contains("epoch 2 of 2: 320 samples in") && log.contains("average rate"), "{log}");
}

#[test]
#[ignore = "needs PJRT's CPU plugin, a download: see CONTRIBUTING.md"]
fn counts_of_eight_devices_are_over_all_devices() {
    let (eight, one) = (client(8), client(1));
    let spread = &*model(&eight, "resnet8-x8");
    let alone = &*model(&one, "resnet8");
    let mut batch = first_batches(Split::Validation, 1).remove(0);
    // Two devices have eight samples each, a third device has three, and the other devices have padding only.
    batch.labels[19..].fill(-1);
    batch.valid = 19;
    let count =
        |model: &Model| model.evaluate(&model.uploader().upload(&batch).unwrap()).unwrap().read().unwrap();
    let (eight, one) = (count(spread), count(alone));
    assert_eq!([eight.samples, one.samples], [19; 2]);
    assert!(eight.correct.abs_diff(one.correct) <= 1 && eight.top5.abs_diff(one.top5) <= 1);
    assert!(one.top5 > one.correct && one.top5 < 19, "about half, with an untrained network: {one:?}");
}

/// A source that has batches for the first request, and none for later requests.
struct Once(RefCell<Vec<shardstream::Result<HostBatch>>>);

impl Source for Once {
    fn batches(&self, _: Split, _: u64) -> resnet::Result<HostBatches> {
        Ok(Box::new(self.0.take().into_iter()))
    }

    fn steps(&self, _: Split) -> Option<u64> {
        None
    }

    fn samples(&self, _: Split) -> Option<u64> {
        None
    }

    fn start(&self, _: u64) -> Option<State> {
        None
    }

    fn rest(&self, _: &State) -> resnet::Result<HostBatches> {
        Err(Error::NoState)
    }
}

#[test]
#[ignore = "needs PJRT's CPU plugin, a download: see CONTRIBUTING.md"]
fn errors_of_the_data_end_the_training() {
    let client = client(1);
    let model = &mut *model(&client, "resnet8");
    let options = options(1, 0, 0.1);
    let mut run = |first: Vec<shardstream::Result<HostBatch>>| {
        let source = Once(RefCell::new(first));
        train(model, &options, &source, &mut std::io::sink()).unwrap_err()
    };
    let good = first_batches(Split::Train, 1).remove(0);
    let mut padded = good.clone();
    padded.labels[63] = -1;
    padded.valid = 63;
    assert!(matches!(run(vec![Ok(good.clone()), Ok(padded)]), Error::Batch(_)));
    let mut unknown_class = good.clone();
    unknown_class.labels[0] = 10;
    assert!(matches!(run(vec![Ok(unknown_class)]), Error::Batch(_)));
    assert!(matches!(run(vec![Ok(good.clone()), Err(shardstream::Error::step("gone"))]), Error::Data(_)));
    assert!(matches!(run(vec![]), Error::Empty("training")));
    // There is training data, but no validation data.
    assert!(matches!(run(vec![Ok(good)]), Error::Empty("validation")));
}

#[test]
#[ignore = "needs PJRT's CPU plugin, a download: see CONTRIBUTING.md"]
fn a_learning_rate_that_is_far_too_high_is_an_error() {
    let client = client(1);
    let model = &mut *model(&client, "resnet8");
    let e = train(model, &options(1, 20, 1e30), synthetic(), &mut std::io::sink()).unwrap_err();
    assert!(matches!(e, Error::Diverged { .. }), "{e}");
}
