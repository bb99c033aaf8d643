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

/// Where a training starts; by default, at the beginning.
#[derive(Default)]
pub struct Start {
    progress: Progress,
    data: Option<State>,
    /// The first batches, if they are being read already.
    batches: Option<HostBatches>,
}

impl Start {
    /// Begins to read the first batches of a training of `epochs` epochs, which takes its time: while the
    /// model is compiled, say.
    pub fn begin(&mut self, source: &dyn Source, epochs: u64) -> Result<()> {
        let epoch = self.progress.epochs.len() as u64;
        if epoch < epochs {
            self.batches = Some(self.batches(source, epoch)?);
        }
        Ok(())
    }

    /// The first batches, which are of this epoch.
    fn batches(&mut self, source: &dyn Source, epoch: u64) -> Result<HostBatches> {
        match (self.batches.take(), self.data.take()) {
            (Some(batches), _) => Ok(batches),
            (None, Some(state)) => source.rest(&state),
            (None, None) => source.batches(Split::Train, epoch),
        }
    }

    /// Number of steps that were done before.
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

/// What a training uses beside its network, data and log.
#[derive(Debug, Default)]
pub struct TrainContext<'a> {
    /// Checkpoints.
    pub saver: Option<&'a mut Saver>,
    /// Publishes its numbers.
    pub curves: Curves<'a>,
    /// Records some of its steps.
    pub profile: Option<Profile>,
    /// Stops it early.
    pub stop: Stop,
    /// Warns when it hangs.
    pub watchdog: Watchdog,
}

/// Trains `network` and writes the log to `out`. A training that starts from a checkpoint needs a model that
/// was [restored](crate::model::Model::restore) from it.
pub fn train(
    network: &mut dyn Network,
    options: &TrainOptions,
    source: &dyn Source,
    mut start: Start,
    keeping: TrainContext<'_>,
    out: &mut dyn Write,
) -> Result<Summary> {
    let Progress { epochs, mut running, time } = std::mem::take(&mut start.progress);
    let log = Log::new(out, &options.topology);
    let TrainContext { saver, curves, profile, stop, watchdog } = keeping;
    let begun = epochs.iter().map(|epoch| epoch.steps).sum::<u64>() + running.steps();
    let time = Clock::from(time);
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
        time,
        saved: begun,
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
                // Counted on this rank, as in the log.
                ("epoch/skipped", skipped as f64),
            ],
        );
        training.epochs.push(report);
        training.save(RunningEpoch::default(), || source.start(epoch + 1))?;
    }
    training.finish()
}
