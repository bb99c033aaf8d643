//! The training loop.

mod epoch;
mod validation;

use self::epoch::Trained;
use crate::checkpoint::{Checkpoint, Saved, Saver};
use crate::curves::Curves;
use crate::data::{HostBatches, Source, Split};
use crate::error::{Error, Result, with_causes};
use crate::log::Log;
use crate::model::DeviceBatch;
use crate::network::Network;
use crate::profile::{self, Profile};
use crate::report::{Clock, Epoch, Progress, Running, Summary};
use crate::schedule::Schedule;
use crate::stop::Stop;
use crate::watchdog::{Activity, Watchdog};
use shardstream::feed::Feed;
use shardstream::{State, Topology};
use std::io::Write;

/// How many results may be outstanding: the next step is launched before the last one is read, so that the
/// devices do not wait for the host.
const IN_FLIGHT: usize = 1;

/// How to train.
#[derive(Debug, Clone)]
pub struct Options {
    /// Passes over the data.
    pub epochs: u64,
    /// The most steps per epoch; 0 for all there are.
    pub steps: u64,
    /// Steps between lines of the log; 0 for none.
    pub log_steps: u64,
    /// The learning rate.
    pub schedule: Schedule,
    /// Of the weights.
    pub weight_decay: f32,
    /// Of the targets.
    pub label_smoothing: f32,
    /// Of the updates.
    pub momentum: f32,
    /// Batches that wait on the devices.
    pub depth: usize,
    /// Which process of the job this is.
    pub topology: Topology,
}

/// Where a training begins; by default, at the beginning.
#[derive(Debug, Clone, Default)]
pub struct Start {
    progress: Progress,
    data: Option<State>,
}

impl Start {
    /// How many steps were done before.
    pub fn steps(&self) -> u64 {
        self.progress.steps()
    }
}

impl From<&Checkpoint> for Start {
    fn from(checkpoint: &Checkpoint) -> Self {
        Self { progress: checkpoint.progress.clone(), data: Some(checkpoint.data.clone()) }
    }
}

/// What a training leaves behind beside its log.
#[derive(Debug, Default)]
pub struct Keeping<'a> {
    /// Checkpoints.
    pub saver: Option<&'a mut Saver>,
    /// Its numbers for others to draw.
    pub curves: Curves<'a>,
    /// Records some of its steps.
    pub profile: Option<Profile>,
    /// Whether to stop early.
    pub stop: Stop,
    /// Warns when it does not move.
    pub watchdog: Watchdog,
}

/// Trains `network` and writes the log to `out`. A training that starts from a checkpoint needs a model that
/// was [restored](crate::model::Model::restore) from it.
pub fn train(
    network: &mut dyn Network,
    options: &Options,
    source: &dyn Source,
    start: Start,
    keeping: Keeping<'_>,
    out: &mut dyn Write,
) -> Result<Summary> {
    let Start { progress, mut data } = start;
    let Progress { epochs, mut running, time } = progress;
    let log = Log::new(out, &options.topology);
    let Keeping { saver, curves, profile, stop, watchdog } = keeping;
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
        let batches = match data.take() {
            Some(state) => source.rest(&state)?,
            None => source.batches(Split::Train, epoch)?,
        };
        let Trained { report, running, data } = training.epoch(batches, std::mem::take(&mut running))?;
        let Some(mut report) = report else { return training.stopped(running, data) };
        let skipped = data.as_ref().map_or(0, |state| state.ledger().skipped());
        if training.network.learns() && !training.validate(&mut report, epoch)? {
            return training.stopped(running, data);
        }
        let steps = training.epochs.iter().map(|e| e.steps).sum::<u64>() + report.steps;
        training.curves.scalars(
            steps,
            &[
                ("epoch/train_accuracy", report.train_accuracy),
                ("epoch/validation_accuracy", report.validation_accuracy),
                ("epoch/validation_top5_accuracy", report.validation_top5_accuracy),
                ("epoch/global_rate", report.rate()),
                // Of this rank, as in the log.
                ("epoch/skipped", skipped as f64),
            ],
        );
        training.epochs.push(report);
        training.save(Running::default(), || source.start(epoch + 1))?;
    }
    training.finish()
}

/// A training under way.
struct Training<'a> {
    network: &'a mut dyn Network,
    options: &'a Options,
    source: &'a dyn Source,
    saver: Option<&'a mut Saver>,
    curves: Curves<'a>,
    profile: Option<Profile>,
    stop: Stop,
    watchdog: Watchdog,
    log: Log<'a>,
    /// Those that are done.
    epochs: Vec<Epoch>,
    time: Clock,
    /// The step of the newest checkpoint that is written.
    saved: u64,
}

impl Training<'_> {
    /// Brings the first `limit` batches to the devices, ahead of the steps.
    fn feed(&self, batches: HostBatches, limit: usize) -> Feed<Result<DeviceBatch>> {
        let uploader = self.network.uploader();
        Feed::new(batches.take(limit), move |batch| Ok(uploader.upload(&batch))).depth(self.options.depth)
    }

    /// Saves the training where it was stopped, with `running` as its epoch in progress.
    fn stopped(mut self, running: Running, data: Option<State>) -> Result<Summary> {
        let step = self.epochs.iter().map(|epoch| epoch.steps).sum::<u64>() + running.steps();
        self.watchdog.at(Activity::Stop);
        self.stop.finish();
        self.finish_profile()?;
        self.wait_for_saver()?;
        // A training from single files has no state, and no checkpoints.
        if self.saved != step && data.is_some() {
            self.save(running, || data)?;
            self.wait_for_saver()?;
        }
        Err(Error::Stopped { step })
    }

    /// Says that step `step` of the job begins, which may be the first one to record.
    fn begin_profile(&mut self, step: u64) -> Result<()> {
        let begun = self.profile.as_mut().map_or(Ok(()), |profile| profile.begin(step));
        begun.or_else(|error| self.without_profile(&error))
    }

    /// Ends the recording, if there is one. All steps of it have ended.
    fn finish_profile(&mut self) -> Result<()> {
        match self.profile.as_mut().map_or(Ok(None), Profile::finish) {
            Ok(None) => Ok(()),
            Ok(Some(saved)) => self.log.line(format_args!("{saved}")),
            Err(error) => self.without_profile(&error),
        }
    }

    /// A failed recording is no reason to lose a training.
    fn without_profile(&mut self, error: &profile::Error) -> Result<()> {
        self.profile = None;
        self.log.line(format_args!("warning: no profile: {}", with_causes(error)))
    }

    fn wait_for_saver(&mut self) -> Result<()> {
        self.watchdog.at(Activity::Checkpoint);
        let saved = self.saver.as_mut().map_or(Ok(None), |saver| saver.finish())?;
        self.tell(saved)
    }

    /// Saves the training with `running` as its epoch in progress. Copies the weights, which waits for the
    /// last step; they are written while the training continues.
    fn save(&mut self, running: Running, data: impl FnOnce() -> Option<State>) -> Result<()> {
        self.watchdog.at(Activity::Checkpoint);
        let Some(saver) = self.saver.as_mut() else { return Ok(()) };
        let progress = Progress { epochs: self.epochs.clone(), running, time: self.time.elapsed() };
        let tensors = saver.wants_tensors().then(|| self.network.state()).transpose()?;
        let saved = saver.save(progress, data(), tensors)?;
        self.tell(saved)
    }

    fn tell(&mut self, saved: Option<Saved>) -> Result<()> {
        match saved {
            Some(saved) => {
                self.saved = saved.step().unwrap_or(self.saved);
                self.log.line(format_args!("{saved}"))
            }
            None => Ok(()),
        }
    }

    /// Waits for the last checkpoint, and sums up.
    fn finish(mut self) -> Result<Summary> {
        self.watchdog.at(Activity::Stop);
        self.stop.finish();
        self.finish_profile()?;
        self.wait_for_saver()?;
        let summary = Summary { epochs: self.epochs, time: self.time.elapsed() };
        if let (Some((accuracy, epoch)), true) = (summary.best(), self.network.learns()) {
            self.log.line(format_args!(
                "trained {:.1} s: best validation accuracy {:.2} % (epoch {epoch}), average rate {:.1} \
                 samples/s",
                summary.time.as_secs_f64(),
                100.0 * accuracy,
                summary.rate(),
            ))?;
        }
        Ok(summary)
    }
}
