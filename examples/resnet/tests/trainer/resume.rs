//! A stopped and resumed training is identical to an uninterrupted one: the same batches, losses and weights.

use crate::common::{client, losses, model, options, synthetic};
use resnet::Error;
use resnet::artifact::Artifact;
use resnet::checkpoint::{Checkpoints, Saver};
use resnet::data::{HostBatch, HostBatches, Sets, ShardData, Source, Split};
use resnet::model::Model;
use resnet::report::Summary;
use resnet::train::{Start, TrainContext, TrainOptions, train};
use shardstream::State;
use std::path::Path;

/// The data of [`synthetic`], which fails after some batches.
struct Failing {
    split: Split,
    epoch: u64,
    /// Number of batches before the failure.
    after: usize,
    failure: Failure,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Failure {
    /// The data fails.
    Data,
    /// The batch is refused, for which nothing is saved, as after a kill.
    Batch,
}

fn sets() -> &'static Sets<ShardData> {
    &synthetic().1
}

impl Source for Failing {
    fn batches(&self, split: Split, epoch: u64) -> resnet::Result<HostBatches> {
        let batches = sets().batches(split, epoch)?;
        if (split, epoch) != (self.split, self.epoch) {
            return Ok(batches);
        }
        if self.failure == Failure::Data {
            return Ok(Box::new(batches.take(self.after).chain([Err(shardstream::Error::step("bad"))])));
        }
        let after = self.after;
        let short = move |(number, batch): (usize, shardstream::Result<HostBatch>)| {
            batch.map(|batch| HostBatch { valid: batch.valid - usize::from(number == after), ..batch })
        };
        Ok(Box::new(batches.enumerate().map(short)))
    }

    fn steps(&self, split: Split) -> Option<u64> {
        sets().steps(split)
    }

    fn samples(&self, split: Split) -> Option<u64> {
        sets().samples(split)
    }

    fn start(&self, epoch: u64) -> Option<State> {
        sets().start(epoch)
    }

    fn rest(&self, state: &State) -> resnet::Result<HostBatches> {
        sets().rest(state)
    }
}

/// The comparable results of a training.
#[derive(Debug, PartialEq)]
struct Outcome {
    /// Lines of steps with their epochs, without the rates.
    losses: Vec<String>,
    /// Numbers of the summary, without times.
    epochs: Vec<(u64, u64, f64, f64, f64)>,
    weights: Vec<Vec<u32>>,
}

fn outcome(log: &[u8], summary: &Summary, model: &Model) -> Outcome {
    let epochs = summary.epochs.iter();
    let epochs = epochs.map(|e| (e.steps, e.samples, e.loss, e.train_accuracy, e.validation_accuracy));
    Outcome {
        losses: losses(std::str::from_utf8(log).unwrap()),
        epochs: epochs.collect(),
        weights: bits(&model.state(0).unwrap()),
    }
}

fn bits(state: &[Vec<f32>]) -> Vec<Vec<u32>> {
    state.iter().map(|buffer| buffer.iter().map(|v| v.to_bits()).collect()).collect()
}

fn place(dir: &Path, options: &TrainOptions) -> Checkpoints {
    Checkpoints::new(dir.to_str().unwrap(), &Artifact::open("resnet8").unwrap(), 1, options.inputs()).unwrap()
}

fn saving(saver: &mut Saver) -> TrainContext<'_> {
    TrainContext { saver: Some(saver), ..TrainContext::default() }
}

/// Resumes from the newest checkpoint in `dir`.
fn resume(model: &mut Model, dir: &Path, options: &TrainOptions, every: u64) -> (String, Outcome) {
    let mut log = Vec::new();
    let place = place(dir, options);
    let checkpoint = place.begin(true, &mut log).unwrap().expect("there is one");
    model.restore(&checkpoint.tensors).unwrap();
    let mut saver = Saver::new(place, every);
    let summary =
        train(model, options, sets(), Start::from(&checkpoint), saving(&mut saver), &mut log).unwrap();
    let outcome = outcome(&log, &summary, model);
    (String::from_utf8(log).unwrap(), outcome)
}

#[test]
#[ignore = "needs PJRT's CPU plugin, a download: see CONTRIBUTING.md"]
fn killed_anywhere_it_ends_as_if_it_had_not_been() {
    let client = client(1);
    let options = options(2, 0, 0.1);
    let model = &mut *model(&client, "resnet8");
    let fresh = model.state(0).unwrap();
    let mut log = Vec::new();
    let summary =
        train(model, &options, sets(), Start::default(), TrainContext::default(), &mut log).unwrap();
    let undisturbed = outcome(&log, &summary, model);
    assert_eq!((undisturbed.losses.len(), summary.epochs.len()), (10, 2));

    use Split::{Train, Validation};
    for (split, epoch, after, every, resumed) in [
        // In the first epoch, between two lines of the log; two batches more were trained on, and are again.
        (Train, 0, 7, 5, "epoch 1, step 5; 320 samples of the epoch are done, the next batch is number 6"),
        // In the second, of whose length the rate depends on the first.
        (Train, 1, 9, 9, "epoch 2, step 8; 512 samples of the epoch are done, the next batch is number 9"),
        // Between two epochs.
        (Train, 1, 3, 0, "epoch 1 is done, epoch 2 is next"),
        // After the last step of an epoch, before its validation is done.
        (
            Validation,
            0,
            1,
            5,
            "epoch 1, step 10; 640 samples of the epoch are done, the next batch is number 11",
        ),
    ] {
        let dir = tempfile::tempdir().unwrap();
        model.restore(&fresh).unwrap();
        let mut log = Vec::new();
        let mut saver = Saver::new(place(dir.path(), &options), every);
        // Validation takes batches that are not full.
        let failure = if split == Train { Failure::Batch } else { Failure::Data };
        let source = Failing { split, epoch, after, failure };
        let killed = train(model, &options, &source, Start::default(), saving(&mut saver), &mut log);
        assert!(matches!(killed, Err(Error::Data(_) | Error::Batch(_))), "{killed:?}");
        drop(saver);
        let before = losses(std::str::from_utf8(&log).unwrap());
        assert_eq!(before, undisturbed.losses[..before.len()], "checkpoints change nothing");

        let (log, end) = resume(model, dir.path(), &options, every);
        assert!(log.contains(&format!(": {resumed}\n")), "{log}");
        let from = undisturbed.losses.len() - end.losses.len();
        assert!(from <= before.len(), "no line is missing: {log}");
        assert_eq!(end.losses, undisturbed.losses[from..], "{log}");
        assert_eq!(end.epochs, undisturbed.epochs);
        assert!(end.weights == undisturbed.weights, "the weights differ");

        // All epochs are done, so nothing is trained.
        let (log, again) = resume(model, dir.path(), &options, every);
        assert!(log.contains("checkpoint-00000020.tar: all 2 epochs are done\n"), "{log}");
        assert!(again.losses.is_empty() && again.epochs == end.epochs && again.weights == end.weights);
    }
}

/// As a signal does.
#[test]
#[ignore = "needs PJRT's CPU plugin, a download: see CONTRIBUTING.md"]
fn a_failure_of_the_data_saves_the_training_at_its_last_step() {
    let client = client(1);
    let options = options(2, 0, 0.1);
    let model = &mut *model(&client, "resnet8");
    let dir = tempfile::tempdir().unwrap();
    let mut saver = Saver::new(place(dir.path(), &options), 5);
    let source = Failing { split: Split::Train, epoch: 0, after: 7, failure: Failure::Data };
    let mut log = Vec::new();
    let failed = train(model, &options, &source, Start::default(), saving(&mut saver), &mut log);
    assert!(matches!(failed, Err(Error::Data(_))), "{failed:?}");
    drop(saver);
    let before = losses(std::str::from_utf8(&log).unwrap());
    let (log, end) = resume(model, dir.path(), &options, 5);
    let from = ": epoch 1, step 7; 448 samples of the epoch are done, the next batch is number 8\n";
    assert!(log.contains(from), "{log}");
    assert_eq!((before.len() + end.losses.len(), end.epochs.len()), (10, 2), "{log}");
}

#[test]
#[ignore = "needs PJRT's CPU plugin, a download: see CONTRIBUTING.md"]
fn a_limit_of_steps_holds_for_a_resumed_epoch_too() {
    let client = client(1);
    let options = options(2, 6, 0.1);
    let model = &mut *model(&client, "resnet8");
    let dir = tempfile::tempdir().unwrap();
    let mut saver = Saver::new(place(dir.path(), &options), 4);
    let source = Failing { split: Split::Train, epoch: 0, after: 5, failure: Failure::Batch };
    let mut log = Vec::new();
    train(model, &options, &source, Start::default(), saving(&mut saver), &mut log).unwrap_err();
    drop(saver);
    let (log, end) = resume(model, dir.path(), &options, 4);
    assert_eq!(end.epochs.iter().map(|e| (e.0, e.1)).collect::<Vec<_>>(), [(6, 384); 2], "{log}");
    for line in ["checkpoint at step 6 (epoch 1 done)", "checkpoint at step 8 (epoch 2, step 2 of it)"] {
        assert_eq!(log.matches(line).count(), 1, "{log}");
    }
}

#[test]
#[ignore = "needs PJRT's CPU plugin, a download: see CONTRIBUTING.md"]
fn a_checkpoint_that_cannot_be_written_does_not_end_the_training() {
    let client = client(1);
    let options = options(1, 4, 0.1);
    let model = &mut *model(&client, "resnet8");
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut saver = Saver::new(place(file.path(), &options), 1);
    let mut log = Vec::new();
    let done = train(model, &options, sets(), Start::default(), saving(&mut saver), &mut log);
    assert_eq!(done.unwrap().epochs.len(), 1);
    let log = String::from_utf8(log).unwrap();
    assert!(log.contains("warning: no checkpoint at step 1 "), "{log}");
}

#[test]
#[ignore = "needs PJRT's CPU plugin, a download: see CONTRIBUTING.md"]
fn a_state_is_restored_on_all_devices_bit_for_bit() {
    let client = client(8);
    let model = &mut *model(&client, "resnet8-x8");
    let mut state = model.state(0).unwrap();
    let odd = [f32::NAN, -0.0, f32::INFINITY, f32::MIN_POSITIVE / 2.0, f32::from_bits(0x7fc0_1234)];
    for (at, buffer) in state.iter_mut().enumerate() {
        buffer[0] = odd[at % odd.len()];
    }
    model.restore(&state).unwrap();
    for device in 0..8 {
        assert!(bits(&model.state(device).unwrap()) == bits(&state), "device {device}");
    }
    let other = state.split_off(3);
    assert!(matches!(model.restore(&other), Err(Error::State { .. })));
    state = vec![vec![0.0; 3]; model.manifest().state.len()];
    assert!(matches!(model.restore(&state), Err(Error::Pjrt(shardstream_pjrt::PjrtError::Mismatch { .. }))));
    assert_eq!(model.state(7).unwrap().len(), model.manifest().state.len(), "it is as it was");
}
