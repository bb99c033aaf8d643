//! The training loop.

mod epoch;
mod options;
mod training;
mod validation;

pub use options::TrainOptions;

use crate::checkpoint::{Checkpoint, Saver};
use crate::curves::Curves;
use crate::data::{HostBatches, Source, Split};
use crate::error::Result;
use crate::log::Log;
use crate::network::Network;
use crate::profile::Profile;
use crate::report::{Clock, Progress, RunningEpoch, Summary};
use crate::stop::Stop;
use crate::watchdog::Watchdog;
use epoch::TrainedEpoch;
use shardstream::State;
use std::fmt;
use std::io::Write;
use training::Training;

/// The point at which a training starts; by default, its beginning.
#[derive(Default)]
pub struct Start {
    progress: Progress,
    data: Option<State>,
    /// The batches of the first epoch, if [`begin`](Self::begin) was called.
    batches: Option<HostBatches>,
}

impl Start {
    /// Starts to read the first batches of a training of `epochs` epochs, so that they are read while the
    /// model is compiled.
    pub fn begin(&mut self, source: &dyn Source, epochs: u64) -> Result<()> {
        let epoch = self.progress.epochs.len() as u64;
        if epoch < epochs {
            self.batches = Some(self.batches(source, epoch)?);
        }
        Ok(())
    }

    /// The batches of epoch number `epoch`. The first call returns the batches that are already being read,
    /// or the rest of a resumed epoch.
    fn batches(&mut self, source: &dyn Source, epoch: u64) -> Result<HostBatches> {
        match (self.batches.take(), self.data.take()) {
            (Some(batches), _) => Ok(batches),
            (None, Some(state)) => source.rest(&state),
            (None, None) => source.batches(Split::Train, epoch),
        }
    }

    /// Number of steps before the start.
    pub fn steps(&self) -> u64 {
        self.progress.steps()
    }
}

impl From<&Checkpoint> for Start {
    fn from(checkpoint: &Checkpoint) -> Self {
        Self { progress: checkpoint.progress.clone(), data: Some(checkpoint.data.clone()), batches: None }
    }
}

impl fmt::Debug for Start {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Start").field("progress", &self.progress).finish_non_exhaustive()
    }
}

/// The other parts that a training uses, besides its network, data and log.
#[derive(Debug, Default)]
pub struct TrainContext<'a> {
    /// Saves checkpoints.
    pub saver: Option<&'a mut Saver>,
    /// Publishes the numbers of the training.
    pub curves: Curves<'a>,
    /// Records a few steps.
    pub profile: Option<Profile>,
    /// Stops the training early.
    pub stop: Stop,
    /// Warns when the training hangs.
    pub watchdog: Watchdog,
}

/// Trains `network`, and writes the log to `out`. If `start` is a checkpoint, the model must have been
/// [restored](crate::model::Model::restore) from it before.
pub fn train(
    network: &mut dyn Network,
    options: &TrainOptions,
    source: &dyn Source,
    mut start: Start,
    context: TrainContext<'_>,
    out: &mut dyn Write,
) -> Result<Summary> {
    let Progress { epochs, mut running, time } = std::mem::take(&mut start.progress);
    let log = Log::new(out, &options.topology);
    let TrainContext { saver, curves, profile, stop, watchdog } = context;
    let first_step = epochs.iter().map(|epoch| epoch.steps).sum::<u64>() + running.steps();
    let mut training = Training {
        network,
        options,
        source,
        saver,
        curves,
        profile,
        stop,
        watchdog,
        log,
        epochs,
        time: Clock::from(time),
        saved: first_step,
    };
    for epoch in training.epochs.len() as u64..options.epochs {
        let batches = start.batches(source, epoch)?;
        let TrainedEpoch { report, running, data } = training.epoch(batches, std::mem::take(&mut running))?;
        let Some(mut report) = report else { return training.finish_stopped(running, data) };
        let skipped = data.as_ref().map_or(0, |state| state.ledger().skipped());
        if training.network.learns() && !training.validate(&mut report, epoch)? {
            return training.finish_stopped(running, data);
        }
        let steps = training.epochs.iter().map(|e| e.steps).sum::<u64>() + report.steps;
        training.curves.scalars(
            steps,
            &[
                ("epoch/train_accuracy", report.train_accuracy),
                ("epoch/validation_accuracy", report.validation_accuracy),
                ("epoch/validation_top5_accuracy", report.validation_top5_accuracy),
                ("epoch/global_rate", report.rate()),
                // The number of samples that this rank has skipped, as in the log.
                ("epoch/skipped", skipped as f64),
            ],
        );
        training.epochs.push(report);
        training.save(RunningEpoch::default(), || source.start(epoch + 1))?;
    }
    training.finish()
}
