//! burn's `Learner` trains from shards, on one device and on two.
#![allow(missing_docs)]

mod support;

use burn::data::dataloader::DataLoader;
use burn::module::Module;
use burn::nn::loss::{MseLoss, Reduction};
use burn::nn::{Linear, LinearConfig};
use burn::optim::SgdConfig;
use burn::tensor::{Device, Tensor, TensorData};
use burn::train::checkpoint::{Checkpointer, FileCheckpointer, KeepLastNCheckpoints};
use burn::train::{
    ExecutionStrategy, InferenceStep, Interrupter, Learner, LearningResult, MultiDeviceOptim,
    RegressionOutput, SupervisedTraining, TrainOutput, TrainStep,
};
use shardstream::State;
use shardstream_burn::ShardLoader;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex};
use support::{BATCH, STEPS};

/// The labels of the batches that were trained on.
type Log = Arc<Mutex<Vec<Vec<i32>>>>;

/// Stops the training after a number of batches.
#[derive(Clone)]
struct Stop {
    interrupter: Interrupter,
    after: usize,
}

struct Batch {
    labels: Vec<i32>,
    log: Log,
    stop: Option<Stop>,
    x: Tensor<2>,
}

#[derive(Module, Debug)]
struct Model {
    linear: Linear,
}

impl Model {
    fn loss(&self, x: Tensor<2>) -> RegressionOutput {
        let output = self.linear.forward(x.clone());
        let targets = x.mul_scalar(2.0);
        let loss = MseLoss::new().forward(output.clone(), targets.clone(), Reduction::Mean);
        RegressionOutput::new(loss, output, targets)
    }
}

impl TrainStep for Model {
    type Input = Batch;
    type Output = RegressionOutput;

    fn step(&self, batch: Batch) -> TrainOutput<RegressionOutput> {
        let trained = {
            let mut log = batch.log.lock().unwrap();
            log.push(batch.labels);
            log.len()
        };
        if let Some(stop) = batch.stop.filter(|stop| trained >= stop.after) {
            stop.interrupter.stop(None);
        }
        let output = self.loss(batch.x);
        TrainOutput::new(self, output.loss.backward(), output)
    }
}

impl InferenceStep for Model {
    type Input = Batch;
    type Output = RegressionOutput;

    fn step(&self, batch: Batch) -> RegressionOutput {
        self.loss(batch.x)
    }
}

/// The settings of a training.
struct Job<'a> {
    dir: &'a Path,
    devices: usize,
    seed: u64,
    index: bool,
    log: Log,
    stop: Option<Stop>,
}

impl<'a> Job<'a> {
    fn new(dir: &'a Path, devices: usize) -> Self {
        Job { dir, devices, seed: 1, index: true, log: Log::default(), stop: None }
    }

    fn loader(&self) -> ShardLoader<Batch> {
        let loader = support::loader(&support::shards(self.dir), self.seed, self.index).unwrap();
        let (log, stop) = (self.log.clone(), self.stop.clone());
        ShardLoader::new(loader, BATCH, Device::flex(), move |batch, device| {
            let labels = support::labels(&batch)?;
            let x = labels.iter().map(|label| *label as f32 / 100.0).collect::<Vec<_>>();
            let x = Tensor::from_data(TensorData::new(x, [labels.len(), 1]), device);
            Ok(Batch { labels, log: log.clone(), stop: stop.clone(), x })
        })
    }

    /// Trains until the end of epoch `epochs`, from the checkpoint of epoch `from`, or from the start if
    /// `from` is 0.
    fn train(&self, train: &ShardLoader<Batch>, from: usize, epochs: usize) -> LearningResult<Model> {
        let checkpoints = self.dir.join("checkpoints");
        let valid = Job { log: Log::default(), stop: None, ..*self }.loader();
        let mut training =
            SupervisedTraining::<Model>::new(self.dir, Arc::new(train.clone()), Arc::new(valid))
                .with_application_logger(None)
                .with_checkpointing_strategy(KeepLastNCheckpoints::new(1))
                .with_custom_checkpointers(
                    train.checkpointer(&checkpoints, FileCheckpointer::new(&checkpoints, "model")),
                    FileCheckpointer::new(&checkpoints, "optim"),
                    FileCheckpointer::new(&checkpoints, "scheduler"),
                )
                .num_epochs(epochs);
        if from > 0 {
            training = training.checkpoint(from);
        }
        if let Some(stop) = &self.stop {
            training = training.with_interrupter(stop.interrupter.clone());
        }
        if self.devices > 1 {
            let devices = vec![Device::flex().autodiff(); self.devices];
            let strategy = ExecutionStrategy::multi(devices, MultiDeviceOptim::OptimMainDevice);
            training = training.with_training_strategy(strategy.into());
        }
        let device = Device::flex().autodiff();
        device.seed(1);
        let model = Model { linear: LinearConfig::new(1, 1).init(&device) };
        training.launch(Learner::new(model, SgdConfig::new().init(), 0.1))
    }

    /// The labels of the batches that were trained on. Devices train at the same time, in any order, so the
    /// batches of each step are sorted.
    fn trained(&self) -> Vec<Vec<i32>> {
        let mut log = self.log.lock().unwrap().clone();
        log.chunks_mut(self.devices).for_each(<[Vec<i32>]>::sort);
        log
    }
}

/// The weight and the bias.
fn weights(result: &LearningResult<Model>) -> Vec<f32> {
    let linear = &result.model.linear;
    let parts = [linear.weight.val().into_data(), linear.bias.as_ref().unwrap().val().into_data()];
    parts.iter().flat_map(|part| part.try_to_vec::<f32>().unwrap()).collect()
}

#[test]
fn a_training_resumes_with_the_next_epoch_and_the_same_model() {
    for devices in [1, 2] {
        let dir = tempfile::tempdir().unwrap();
        let whole = Job::new(dir.path(), devices);
        let expected = whole.train(&whole.loader(), 0, 3);
        assert!(expected.error.is_none(), "{:?}", expected.error);
        assert_eq!(whole.trained().len(), 3 * STEPS);

        let dir = tempfile::tempdir().unwrap();
        let first = Job::new(dir.path(), devices);
        first.train(&first.loader(), 0, 2);
        assert!(!dir.path().join("checkpoints/data-1.json").exists(), "deleted with the model");
        let second = Job::new(dir.path(), devices);
        let result = second.train(&second.loader(), 2, 3);
        assert_eq!([first.trained(), second.trained()].concat(), whole.trained(), "{devices} devices");
        assert_eq!(weights(&result), weights(&expected), "{devices} devices");
    }
}

#[test]
fn a_training_of_unknown_length_takes_all_batches() {
    for devices in [1, 2] {
        let dir = tempfile::tempdir().unwrap();
        let unknown = Job { index: false, ..Job::new(dir.path(), devices) };
        let result = unknown.train(&unknown.loader(), 0, 2);
        assert!(result.error.is_none(), "{:?}", result.error);
        let trained = unknown.trained();
        assert_eq!(trained.len(), 2 * STEPS);
        for epoch in trained.chunks(STEPS) {
            let samples: BTreeSet<i32> = epoch.iter().flatten().copied().collect();
            assert_eq!(samples.len(), STEPS * BATCH);
        }
    }
}

#[test]
fn an_interrupted_training_resumes_with_the_next_batch() {
    for devices in [1, 2] {
        let dir = tempfile::tempdir().unwrap();
        let whole = Job::new(dir.path(), devices);
        whole.train(&whole.loader(), 0, 4);

        let stop = Stop { interrupter: Interrupter::new(), after: STEPS + 4 };
        let first = Job { stop: Some(stop), ..Job::new(dir.path(), devices) };
        let loader = first.loader();
        assert!(first.train(&loader, 0, 2).interrupted.is_some());
        assert_eq!(first.trained(), whole.trained()[..STEPS + 4]);
        let second = Job::new(dir.path(), devices);
        // The first job stopped in epoch 1 of the data. The second job's `Learner` reads the rest of that
        // epoch as its epoch 1. It then reads epoch 2 of the data as its epoch 2.
        let result = second.train(&second.loader().resume(loader.state().unwrap()).unwrap(), 0, 2);
        assert!(result.error.is_none(), "{:?}", result.error);
        assert_eq!(second.trained(), whole.trained()[STEPS + 4..3 * STEPS]);
        assert_eq!(saved_epoch(dir.path(), 2), 2);
        let third = Job::new(dir.path(), devices);
        let result = third.train(&third.loader(), 2, 3);
        assert!(result.error.is_none(), "{:?}", result.error);
        assert_eq!(third.trained(), whole.trained()[3 * STEPS..]);
    }
}

/// The epoch in the state that is saved with the checkpoint of epoch `epoch`.
fn saved_epoch(dir: &Path, epoch: usize) -> u64 {
    let path = dir.join(format!("checkpoints/data-{epoch}.json"));
    State::load(path).unwrap().unwrap().epoch()
}

#[test]
fn each_learner_saves_the_states_of_its_own_epochs() {
    let dir = tempfile::tempdir().unwrap();
    let job = Job::new(dir.path(), 1);
    let loader = job.loader().first_epoch(5);
    for epochs in [5..7, 7..8, 8..11] {
        let result = job.train(&loader, 0, epochs.clone().count());
        assert!(result.error.is_none(), "{:?}", result.error);
        assert_eq!(saved_epoch(dir.path(), epochs.clone().count()), epochs.end - 1);
    }
}

#[test]
fn an_epoch_can_be_saved_while_another_device_still_reads_it() {
    let dir = tempfile::tempdir().unwrap();
    let loader = Job::new(dir.path(), 2).loader();
    let (first, second) =
        (loader.slice(0, STEPS / 2 * BATCH), loader.slice(STEPS / 2 * BATCH, STEPS * BATCH));
    let checkpoints = dir.path().join("checkpoints");
    let checkpointer = loader.checkpointer(&checkpoints, FileCheckpointer::new(&checkpoints, "nothing"));
    let _second = second.iter();
    assert_eq!(first.iter().filter(Result::is_ok).count(), STEPS / 2);
    Checkpointer::<()>::save(&checkpointer, 1, ()).unwrap();
    assert_eq!(saved_epoch(dir.path(), 1), 0);
}

#[test]
fn a_missing_shard_stops_the_training_with_an_error_that_names_it() {
    for devices in [1, 2] {
        let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let loader = Job::new(dir.path(), devices).loader();
        std::fs::remove_file(dir.path().join("train-000003.tar")).unwrap();
        // The validation reads other shards than the training.
        let result = Job::new(other.path(), devices).train(&loader, 0, 1);
        let error = result.error.expect("an error of the data").to_string();
        assert!(error.contains("train-000003.tar"), "{error}");
    }
}

#[test]
fn a_checkpoint_of_other_data_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let job = Job::new(dir.path(), 1);
    let loader = job.loader();
    job.train(&loader, 0, 1);
    let checkpoints = dir.path().join("checkpoints");
    let restore = |loader: &ShardLoader<Batch>, epoch| -> Result<(), String> {
        // The record of `Checkpointer::<()>` is empty, so only the state is restored.
        let inner = FileCheckpointer::new(&checkpoints, "nothing");
        Checkpointer::<()>::restore(&loader.checkpointer(&checkpoints, inner), epoch)
            .map_err(|error| error.to_string())
    };
    let restored = job.loader();
    restore(&restored, 1).unwrap();
    // A job that is stopped before its first step saves the restored state.
    assert_eq!(restored.state().unwrap().to_string(), loader.state().unwrap().to_string());
    let other = Job { seed: 2, ..Job::new(dir.path(), 1) };
    let error = restore(&other.loader(), 1).unwrap_err();
    assert!(error.contains("data-1.json") && error.contains("seed"), "{error}");
    let error = restore(&job.loader(), 7).unwrap_err();
    assert!(error.contains("data-7.json does not exist") && error.contains("first_epoch(7)"), "{error}");
    let unread = job.loader().checkpointer(&checkpoints, FileCheckpointer::new(&checkpoints, "nothing"));
    let error = Checkpointer::<()>::save(&unread, 1, ()).unwrap_err().to_string();
    assert!(error.contains("epoch 1 of burn"), "{error}");
    assert_eq!(job.loader().num_items(), STEPS * BATCH);
}
