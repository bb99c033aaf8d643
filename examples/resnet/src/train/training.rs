//! A running training: its parts, and how it is saved and ended.

use super::options::TrainOptions;
use crate::causes::with_causes;
use crate::checkpoint::{SavedCheckpoint, Saver};
use crate::curves::Curves;
use crate::data::{HostBatches, Source};
use crate::error::{Error, Result};
use crate::log::Log;
use crate::model::DeviceBatch;
use crate::network::Network;
use crate::profile::{Profile, ProfileError};
use crate::report::{Clock, Epoch, Progress, RunningEpoch, Summary};
use crate::stop::Stop;
use crate::watchdog::{Activity, Watchdog};
use shardstream::State;
use shardstream::feed::Feed;

/// Maximum number of unread results of steps. The next step is launched before the result of the last step is
/// read, so that the devices do not wait for the host.
pub(super) const IN_FLIGHT: usize = 1;

/// A running training.
pub(super) struct Training<'a> {
    pub(super) network: &'a mut dyn Network,
    pub(super) options: &'a TrainOptions,
    pub(super) source: &'a dyn Source,
    pub(super) saver: Option<&'a mut Saver>,
    pub(super) curves: Curves<'a>,
    pub(super) profile: Option<Profile>,
    pub(super) stop: Stop,
    pub(super) watchdog: Watchdog,
    pub(super) log: Log<'a>,
    /// The finished epochs.
    pub(super) epochs: Vec<Epoch>,
    pub(super) time: Clock,
    /// The step of the newest checkpoint, or the first step if none was written yet.
    pub(super) saved: u64,
}

impl Training<'_> {
    /// Uploads the first `limit` batches to the devices, ahead of the steps.
    pub(super) fn feed(&self, batches: HostBatches, limit: usize) -> Feed<Result<DeviceBatch>> {
        let uploader = self.network.uploader();
        Feed::new(batches.take(limit), move |batch| Ok(uploader.upload(&batch))).depth(self.options.depth)
    }

    /// Saves the training after it was stopped in the epoch `running`. Returns [`Error::Stopped`].
    pub(super) fn finish_stopped(mut self, running: RunningEpoch, data: Option<State>) -> Result<Summary> {
        let step = self.epochs.iter().map(|epoch| epoch.steps).sum::<u64>() + running.steps();
        self.watchdog.set_activity(Activity::Stop);
        self.stop.finish();
        self.finish_profile()?;
        self.save_here(step, running, data)?;
        Err(Error::Stopped { step })
    }

    /// Saves the training after step `step`, unless that step is saved already, and waits until the
    /// checkpoint is written.
    fn save_here(&mut self, step: u64, running: RunningEpoch, data: Option<State>) -> Result<()> {
        self.wait_for_saver()?;
        // A training from single files has no state, and so no checkpoints.
        if self.saved != step && data.is_some() {
            self.save(running, || data)?;
            self.wait_for_saver()?;
        }
        Ok(())
    }

    /// Saves the training after its last step because reading the data has failed. If there are several
    /// ranks, nothing is saved: the other ranks may be at other steps, and a checkpoint needs the parts of
    /// all ranks at the same step.
    pub(super) fn save_after_failure(&mut self, running: RunningEpoch, data: Option<State>) -> Result<()> {
        if self.options.topology.world_size() > 1 || self.saver.is_none() {
            return Ok(());
        }
        let step = self.epochs.iter().map(|epoch| epoch.steps).sum::<u64>() + running.steps();
        // If saving fails, this is only a warning: the training ends with the error of reading the data.
        self.save_here(step, running, data)
            .or_else(|error| self.log.line(format_args!("warning: no checkpoint: {}", with_causes(&error))))
    }

    /// Reports to the profile that step `step` of the job begins.
    pub(super) fn begin_profile(&mut self, step: u64) -> Result<()> {
        let result = self.profile.as_mut().map_or(Ok(()), |profile| profile.begin(step));
        result.or_else(|error| self.without_profile(&error))
    }

    /// Ends the recording, if there is one. All of its steps must have ended.
    pub(super) fn finish_profile(&mut self) -> Result<()> {
        match self.profile.as_mut().map_or(Ok(None), Profile::finish) {
            Ok(None) => Ok(()),
            Ok(Some(saved)) => self.log.line(format_args!("{saved}")),
            Err(error) => self.without_profile(&error),
        }
    }

    /// Logs why recording the profile failed. The training continues without a profile.
    fn without_profile(&mut self, error: &ProfileError) -> Result<()> {
        self.profile = None;
        self.log.line(format_args!("warning: no profile: {}", with_causes(error)))
    }

    fn wait_for_saver(&mut self) -> Result<()> {
        self.watchdog.set_activity(Activity::Checkpoint);
        let saved = self.saver.as_mut().map_or(Ok(None), |saver| saver.finish())?;
        self.log_saved(saved)
    }

    /// Saves a checkpoint; `running` is the epoch in progress. Waits for the last step and copies the
    /// weights. A thread then writes the checkpoint while the training continues.
    pub(super) fn save(&mut self, running: RunningEpoch, data: impl FnOnce() -> Option<State>) -> Result<()> {
        self.watchdog.set_activity(Activity::Checkpoint);
        let Some(saver) = self.saver.as_mut() else { return Ok(()) };
        let progress = Progress { epochs: self.epochs.clone(), running, time: self.time.elapsed() };
        let tensors = if saver.wants_tensors() { Some(self.network.state()?) } else { None };
        let saved = saver.save(progress, data(), tensors)?;
        self.log_saved(saved)
    }

    pub(super) fn log_saved(&mut self, saved: Option<SavedCheckpoint>) -> Result<()> {
        match saved {
            Some(saved) => {
                self.saved = saved.step().unwrap_or(self.saved);
                self.log.line(format_args!("{saved}"))
            }
            None => Ok(()),
        }
    }

    /// Waits for the last checkpoint, and returns the summary.
    pub(super) fn finish(mut self) -> Result<Summary> {
        self.watchdog.set_activity(Activity::Stop);
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
