//! A stopped and resumed training is identical to an uninterrupted training: the same batches, losses and
//! weights.

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

/// The data of [`synthetic`], with a failure after some batches of one epoch.
struct FailingSource {
    split: Split,
    epoch: u64,
    /// Number of batches before the failure.
    after: usize,
    failure: Failure,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Failure {
    /// Reading the data fails.
    Data,
    /// The trainer refuses the batch, as it is not full. The trainer then saves no checkpoint, as if it had
    /// been killed.
    Batch,
}

fn sets() -> &'static Sets<ShardData> {
    &synthetic().1
}

impl Source for FailingSource {
    fn batches(&self, split: Split, epoch: u64) -> resnet::Result<HostBatches> {
        let batches = sets().batches(split, epoch)?;
        if (split, epoch) != (self.split, self.epoch) {
            return Ok(batches);
        }
        if self.failure == Failure::Data {
            return Ok(Box::new(batches.take(self.after).chain([Err(shardstream::Error::step("bad"))])));
        }
        let after = self.after;
        let shorten = move |(number, batch): (usize, shardstream::Result<HostBatch>)| {
            batch.map(|batch| HostBatch { valid: batch.valid - usize::from(number == after), ..batch })
        };
        Ok(Box::new(batches.enumerate().map(shorten)))
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
    /// The lines about steps in the log, with their epochs and without the rates.
    losses: Vec<String>,
    /// The numbers in the training's summary, without times.
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

fn checkpoints(dir: &Path, options: &TrainOptions) -> Checkpoints {
    Checkpoints::new(dir.to_str().unwrap(), &Artifact::open("resnet8").unwrap(), 1, options.inputs()).unwrap()
}

fn context(saver: &mut Saver) -> TrainContext<'_> {
    TrainContext { saver: Some(saver), ..TrainContext::default() }
}

/// Resumes from the newest checkpoint in `dir`.
fn resume(model: &mut Model, dir: &Path, options: &TrainOptions, every: u64) -> (String, Outcome) {
    let mut log = Vec::new();
    let checkpoints = checkpoints(dir, options);
    let checkpoint = checkpoints.begin(true, &mut log).unwrap().expect("a checkpoint");
    model.restore(&checkpoint.tensors).unwrap();
    let mut saver = Saver::new(checkpoints, every);
    let summary =
        train(model, options, sets(), Start::from(&checkpoint), context(&mut saver), &mut log).unwrap();
    let outcome = outcome(&log, &summary, model);
    (String::from_utf8(log).unwrap(), outcome)
}

#[test]
#[ignore = "needs PJRT's CPU plugin, a download: see CONTRIBUTING.md"]
fn a_killed_and_resumed_training_equals_an_uninterrupted_one() {
    let client = client(1);
    let options = options(2, 0, 0.1);
    let model = &mut *model(&client, "resnet8");
    let fresh = model.state(0).unwrap();
    let mut log = Vec::new();
    let summary =
        train(model, &options, sets(), Start::default(), TrainContext::default(), &mut log).unwrap();
    let uninterrupted = outcome(&log, &summary, model);
    assert_eq!((uninterrupted.losses.len(), summary.epochs.len()), (10, 2));

    use Split::{Train, Validation};
    for (split, epoch, after, every, position) in [
        // Fails in the first epoch, between two lines of the log. The last two steps were not saved, and are
        // repeated.
        (Train, 0, 7, 5, "epoch 1, step 5; 320 samples of the epoch are done, the next batch is number 6"),
        // Fails in the second epoch, whose learning rates depend on the number of steps of the first epoch.
        (Train, 1, 9, 9, "epoch 2, step 8; 512 samples of the epoch are done, the next batch is number 9"),
        // Fails between two epochs.
        (Train, 1, 3, 0, "epoch 1 is done, epoch 2 is next"),
        // Fails after the last step of an epoch, before the validation of that epoch is done.
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
        let mut saver = Saver::new(checkpoints(dir.path(), &options), every);
        // Validation accepts a batch that is not full, so a validation must fail with `Failure::Data`.
        let failure = if split == Train { Failure::Batch } else { Failure::Data };
        let source = FailingSource { split, epoch, after, failure };
        let killed = train(model, &options, &source, Start::default(), context(&mut saver), &mut log);
        assert!(matches!(killed, Err(Error::Data(_) | Error::Batch(_))), "{killed:?}");
        drop(saver);
        let before = losses(std::str::from_utf8(&log).unwrap());
        assert_eq!(before, uninterrupted.losses[..before.len()], "checkpoints do not change the losses");

        let (log, resumed) = resume(model, dir.path(), &options, every);
        assert!(log.contains(&format!(": {position}\n")), "{log}");
        let first = uninterrupted.losses.len() - resumed.losses.len();
        assert!(first <= before.len(), "lines are missing: {log}");
        assert_eq!(resumed.losses, uninterrupted.losses[first..], "{log}");
        assert_eq!(resumed.epochs, uninterrupted.epochs);
        assert!(resumed.weights == uninterrupted.weights, "the weights differ");

        // All epochs are done, so nothing is trained.
        let (log, again) = resume(model, dir.path(), &options, every);
        assert!(log.contains("checkpoint-00000020.tar: all 2 epochs are done\n"), "{log}");
        assert!(
            again.losses.is_empty() && again.epochs == resumed.epochs && again.weights == resumed.weights
        );
    }
}

/// If reading the data fails, the trainer saves a checkpoint, as it does at a signal.
#[test]
#[ignore = "needs PJRT's CPU plugin, a download: see CONTRIBUTING.md"]
fn a_failure_of_the_data_saves_a_checkpoint_at_the_last_step() {
    let client = client(1);
    let options = options(2, 0, 0.1);
    let model = &mut *model(&client, "resnet8");
    let dir = tempfile::tempdir().unwrap();
    let mut saver = Saver::new(checkpoints(dir.path(), &options), 5);
    let source = FailingSource { split: Split::Train, epoch: 0, after: 7, failure: Failure::Data };
    let mut log = Vec::new();
    let failed = train(model, &options, &source, Start::default(), context(&mut saver), &mut log);
    assert!(matches!(failed, Err(Error::Data(_))), "{failed:?}");
    drop(saver);
    let before = losses(std::str::from_utf8(&log).unwrap());
    let (log, resumed) = resume(model, dir.path(), &options, 5);
    let position = ": epoch 1, step 7; 448 samples of the epoch are done, the next batch is number 8\n";
    assert!(log.contains(position), "{log}");
    assert_eq!((before.len() + resumed.losses.len(), resumed.epochs.len()), (10, 2), "{log}");
}

#[test]
#[ignore = "needs PJRT's CPU plugin, a download: see CONTRIBUTING.md"]
fn the_step_limit_includes_the_steps_before_a_resume() {
    let client = client(1);
    let options = options(2, 6, 0.1);
    let model = &mut *model(&client, "resnet8");
    let dir = tempfile::tempdir().unwrap();
    let mut saver = Saver::new(checkpoints(dir.path(), &options), 4);
    let source = FailingSource { split: Split::Train, epoch: 0, after: 5, failure: Failure::Batch };
    let mut log = Vec::new();
    train(model, &options, &source, Start::default(), context(&mut saver), &mut log).unwrap_err();
    drop(saver);
    let (log, resumed) = resume(model, dir.path(), &options, 4);
    assert_eq!(resumed.epochs.iter().map(|e| (e.0, e.1)).collect::<Vec<_>>(), [(6, 384); 2], "{log}");
    for line in ["checkpoint at step 6 (epoch 1 done)", "checkpoint at step 8 (epoch 2, step 2 of it)"] {
        assert_eq!(log.matches(line).count(), 1, "{log}");
    }
}

#[test]
#[ignore = "needs PJRT's CPU plugin, a download: see CONTRIBUTING.md"]
fn a_training_continues_after_a_failed_checkpoint() {
    let client = client(1);
    let options = options(1, 4, 0.1);
    let model = &mut *model(&client, "resnet8");
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut saver = Saver::new(checkpoints(file.path(), &options), 1);
    let mut log = Vec::new();
    let done = train(model, &options, sets(), Start::default(), context(&mut saver), &mut log);
    assert_eq!(done.unwrap().epochs.len(), 1);
    let log = String::from_utf8(log).unwrap();
    assert!(log.contains("warning: no checkpoint at step 1 "), "{log}");
}

#[test]
#[ignore = "needs PJRT's CPU plugin, a download: see CONTRIBUTING.md"]
fn a_state_is_restored_exactly_on_all_devices() {
    let client = client(8);
    let model = &mut *model(&client, "resnet8-x8");
    let mut state = model.state(0).unwrap();
    let special = [f32::NAN, -0.0, f32::INFINITY, f32::MIN_POSITIVE / 2.0, f32::from_bits(0x7fc0_1234)];
    for (index, buffer) in state.iter_mut().enumerate() {
        buffer[0] = special[index % special.len()];
    }
    model.restore(&state).unwrap();
    for device in 0..8 {
        assert!(bits(&model.state(device).unwrap()) == bits(&state), "device {device}");
    }
    let incomplete = state.split_off(3);
    assert!(matches!(model.restore(&incomplete), Err(Error::State { .. })));
    state = vec![vec![0.0; 3]; model.manifest().state.len()];
    assert!(matches!(model.restore(&state), Err(Error::Pjrt(shardstream_pjrt::PjrtError::Mismatch { .. }))));
    assert_eq!(model.state(7).unwrap().len(), model.manifest().state.len(), "the state is unchanged");
}
