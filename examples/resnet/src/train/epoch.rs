//! Trains for one epoch.

use super::options::TrainOptions;
use super::training::{IN_FLIGHT, Training};
use crate::data::{HostBatches, Split};
use crate::error::{Error, Result};
use crate::model::{DeviceBatch, Hyper};
use crate::network::Pending;
use crate::profile::Profile;
use crate::report::{Clock, Epoch, RunningEpoch, percent, rate, share};
use crate::watchdog::Activity;
use shardstream::State;
use shardstream::feed::{Feed, FeedReport};
use std::collections::VecDeque;
use std::time::Duration;

/// The outcome of training for an epoch.
pub(super) struct TrainedEpoch {
    /// The report of the epoch; `None` if the training was stopped before the last step.
    pub(super) report: Option<Epoch>,
    /// The sums and times of the epoch.
    pub(super) running: RunningEpoch,
    /// State of the data after the last step; `None` for data without a state.
    pub(super) data: Option<State>,
}

/// The steps that were launched and whose results were not read yet: the number and the pending result of
/// each step.
type InFlight = VecDeque<(u64, Pending<(f32, u64)>)>;

/// The progress of an epoch.
struct EpochRun {
    /// The number of the epoch, from 0.
    epoch: u64,
    /// Number of steps of all earlier epochs.
    before: u64,
    /// Number of steps of this epoch; `None` if unknown.
    expected: Option<u64>,
    /// Number of samples of a step, over all ranks.
    global_batch: u64,
    /// Number of samples of a step on this rank.
    local_batch: usize,
    /// Number of steps of this epoch that were launched.
    steps: u64,
    in_flight: InFlight,
    running: RunningEpoch,
    time: Clock,
    since_log: Clock,
    /// Time spent waiting for batches before the epoch was resumed.
    waited: Duration,
    /// State of the data after the last step.
    data: Option<State>,
}

impl EpochRun {
    /// Reads all unread results except the last `keep`, and adds them to the sums. Waits for the steps.
    fn read(&mut self, keep: usize) -> Result<()> {
        while self.in_flight.len() > keep {
            let Some((step, result)) = self.in_flight.pop_front() else { break };
            let (loss, correct) = result()?;
            self.running.since_log.add(loss, correct, step, self.global_batch)?;
        }
        Ok(())
    }

    /// The sums of the epoch, with the current times.
    fn running(&mut self, fed: FeedReport) -> RunningEpoch {
        self.running.time = self.time.elapsed();
        self.running.time_since_log = self.since_log.elapsed();
        self.running.data_wait = self.waited + fed.first + fed.waited;
        self.running.clone()
    }
}

impl Training<'_> {
    /// Trains for one epoch, or for the rest of an epoch whose first part is `running`.
    pub(super) fn epoch(&mut self, batches: HostBatches, running: RunningEpoch) -> Result<TrainedEpoch> {
        let epoch = self.epochs.len() as u64;
        let known = self.source.steps(Split::Train);
        let manifest = self.network.manifest();
        let mut pass = EpochRun {
            epoch,
            before: self.epochs.iter().map(|e| e.steps).sum(),
            expected: expected_steps(self.options.steps, known, self.epochs.last()),
            global_batch: manifest.global_batch() as u64,
            local_batch: manifest.local_batch(self.network.local_devices()),
            steps: running.steps(),
            in_flight: InFlight::new(),
            time: Clock::from(running.time),
            since_log: Clock::from(running.time_since_log),
            waited: running.data_wait,
            running,
            data: None,
        };
        let mut feed = self.feed(batches, remaining(self.options.steps, pass.steps));
        self.log.line(format_args!("epoch {} of {}: training", epoch + 1, self.options.epochs))?;
        let left = pass.expected.map(|all| all.saturating_sub(pass.steps));
        self.log.begin(&format!("epoch {}", epoch + 1), left);
        self.watchdog.begin(epoch, Split::Train);
        let result = self.steps(&mut pass, &mut feed);
        self.watchdog.set_activity(Activity::Devices);
        if let Err(Error::Data(_)) = &result {
            pass.read(0)?;
            let running = pass.running(feed.report());
            self.save_after_failure(running, pass.data.take())?;
        }
        let is_complete = result?;
        pass.read(0)?;
        self.log.done();
        let running = pass.running(feed.report());
        let report = if is_complete { Some(self.trained(&pass, feed.report())?) } else { None };
        Ok(TrainedEpoch { report, running, data: pass.data })
    }

    /// Runs the steps of an epoch. Returns `false` if the training was stopped before the last step.
    fn steps(&mut self, pass: &mut EpochRun, feed: &mut Feed<Result<DeviceBatch>>) -> Result<bool> {
        let log_steps = self.options.log_steps;
        let mut waited = Duration::ZERO;
        loop {
            self.watchdog.set_activity(Activity::Batch);
            let Some(batch) = feed.next() else { return Ok(true) };
            self.watchdog.set_activity(Activity::Stop);
            if !self.stop.start_step() {
                // This batch is not in the saved state, so the resumed training trains on it.
                return Ok(false);
            }
            let mut batch = batch.map_err(Error::Data)??;
            if batch.valid != pass.local_batch {
                // Rows of padding would count in the loss and in the batch statistics.
                return Err(Error::Batch(format!(
                    "it has {} samples, and training needs full batches of {}",
                    batch.valid, pass.local_batch
                )));
            }
            pass.data = batch.state.clone().or(pass.data.take());
            let hyper = self.hyper(pass);
            pass.steps += 1;
            if self.profile.as_ref().is_some_and(Profile::starts_now) {
                // The recording must not start in the middle of a step.
                self.watchdog.set_activity(Activity::Devices);
                pass.read(0)?;
            }
            self.watchdog.set_activity(Activity::Launch);
            self.begin_profile(pass.before + pass.steps)?;
            pass.in_flight.push_back((pass.steps, self.network.step(&batch, hyper)?));
            let fed = feed.report();
            let total_wait = fed.first + fed.waited;
            self.curves.step(batch.valid as u64, total_wait - waited);
            waited = total_wait;
            let logs = log_steps > 0 && pass.steps.is_multiple_of(log_steps);
            let saves = self.saver.as_ref().is_some_and(|saver| saver.is_due(pass.before + pass.steps));
            let profile_ends = self.profile.as_ref().is_some_and(Profile::ends_now);
            self.watchdog.set_activity(Activity::Devices);
            pass.read(if logs || saves || profile_ends { 0 } else { IN_FLIGHT })?;
            if profile_ends {
                self.finish_profile()?;
            }
            self.log.step();
            if logs {
                self.log_step(pass, hyper, feed.report().readiness())?;
            }
            self.watchdog.set_activity(Activity::Checkpoint);
            if saves {
                let running = pass.running(feed.report());
                self.save(running, || batch.state.take())?;
            }
            let saved = self.saver.as_mut().map_or(Ok(None), |saver| saver.poll())?;
            self.log_saved(saved)?;
        }
    }

    /// The hyperparameters of the next step.
    fn hyper(&self, pass: &EpochRun) -> Hyper {
        let TrainOptions { epochs, schedule, weight_decay, label_smoothing, momentum, .. } = *self.options;
        // If the number of steps is unknown, the rate does not decay within the epoch.
        let done = pass.expected.map_or(0.0, |n| (pass.steps as f64 / n as f64).min(1.0));
        let rate = schedule.at(pass.before + pass.steps, pass.epoch as f64 + done, epochs as f64);
        Hyper { rate, weight_decay, label_smoothing, momentum }
    }

    /// Writes a log line and adds a point to each curve, after a step whose result has been read.
    fn log_step(&mut self, pass: &mut EpochRun, hyper: Hyper, readiness: f64) -> Result<()> {
        let recent = std::mem::take(&mut pass.running.since_log);
        pass.running.logged.merge(&recent);
        let loss = recent.loss / recent.steps as f64;
        let now = rate(recent.samples, pass.since_log.elapsed());
        self.log.line(format_args!(
            "  step {:>6}  loss {loss:.4}  lr {:.4}  rate {now:.1}/s  global rate {:.1}/s  data ready {:.1} \
             %  elapsed {}",
            pass.steps,
            hyper.rate,
            rate(pass.running.logged.samples, pass.time.elapsed()),
            100.0 * readiness,
            hours(self.time.elapsed()),
        ))?;
        self.curves.scalars(
            pass.before + pass.steps,
            &[
                ("train/loss", loss),
                ("train/learning_rate", hyper.rate.into()),
                ("rate/samples_per_second", now),
                ("rate/data_readiness", readiness),
            ],
        );
        pass.since_log = Clock::from(Duration::ZERO);
        Ok(())
    }

    /// Logs an epoch after its last step, and returns its report.
    fn trained(&mut self, pass: &EpochRun, fed: FeedReport) -> Result<Epoch> {
        let running = &pass.running;
        let mut total = running.logged.clone();
        total.merge(&running.since_log);
        if total.steps == 0 {
            return Err(Error::Empty("training"));
        }
        let report = Epoch {
            steps: pass.steps,
            samples: total.samples,
            time: running.time,
            first_batch: fed.first,
            data_wait: running.data_wait,
            readiness: fed.readiness(),
            loss: total.loss / total.steps as f64,
            train_accuracy: share(total.correct as f64, total.samples as f64),
            validation_samples: 0,
            validation_accuracy: 0.0,
            validation_top5_accuracy: 0.0,
        };
        let results = match self.network.learns() {
            true => {
                format!(", loss {:.4}, train accuracy {:.2} %", report.loss, 100.0 * report.train_accuracy)
            }
            false => String::new(),
        };
        let (epoch, ranks) = (pass.epoch + 1, self.options.topology.world_size());
        self.log.line(format_args!(
            "epoch {epoch} of {}: {} samples in {:.1} s, {:.1} samples/s (reduced global rate over {ranks} \
             {}), data wait {:.1} %, {fed}{results}",
            self.options.epochs,
            report.samples,
            report.time.as_secs_f64(),
            report.rate(),
            if ranks == 1 { "process" } else { "processes" },
            percent(report.data_wait.as_secs_f64(), report.time.as_secs_f64()),
        ))?;
        if let Some(last) = &pass.data {
            // Equal digests prove that two trainings read the same samples in the same order. The sum of the
            // digests of all ranks is the digest of the job.
            self.log.line(format_args!("epoch {epoch}: digest of the order {}", last.digest()))?;
            let ledger = last.ledger();
            if !ledger.is_empty() {
                // This line reports the samples that were skipped on this rank.
                self.log.line(format_args!("epoch {epoch}: {ledger}"))?;
            }
        }
        Ok(report)
    }
}

/// The expected number of steps of the next epoch, at most `limit` (0: no limit). `known` is the number of
/// steps in the data. If it is `None`, the next epoch is expected to have as many steps as the last epoch.
/// `None` if there is no last epoch and no limit either.
fn expected_steps(limit: u64, known: Option<u64>, last: Option<&Epoch>) -> Option<u64> {
    let steps = known.or(last.map(|epoch| epoch.steps));
    if limit == 0 {
        return steps;
    }
    Some(steps.map_or(limit, |steps| steps.min(limit)))
}

/// Number of batches that remain in an epoch of at most `limit` steps (0: no limit) after `done` steps.
fn remaining(limit: u64, done: u64) -> usize {
    if limit == 0 { usize::MAX } else { usize::try_from(limit.saturating_sub(done)).unwrap_or(usize::MAX) }
}

/// Formats a time as hours, minutes and seconds.
fn hours(time: Duration) -> String {
    let seconds = time.as_secs();
    format!("{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::epoch;

    #[test]
    fn the_expected_length_of_an_epoch_is_that_of_the_data_or_of_the_last_epoch() {
        let last = Epoch { steps: 16, ..epoch(0.5, 100, 1) };
        assert_eq!(expected_steps(0, None, None), None);
        assert_eq!(expected_steps(8, None, None), Some(8));
        assert_eq!(expected_steps(0, None, Some(&last)), Some(16));
        assert_eq!(expected_steps(8, Some(20), Some(&last)), Some(8));
        // The limit is larger than the number of steps of an epoch. If the limit counted as the expected
        // number of steps, the rate would not decay to zero.
        assert_eq!(expected_steps(1000, None, Some(&last)), Some(16));
        assert_eq!(expected_steps(1000, Some(20), None), Some(20));
    }

    #[test]
    fn a_resumed_epoch_has_the_rest_of_its_limit() {
        assert_eq!(remaining(0, 7), usize::MAX);
        assert_eq!([remaining(10, 0), remaining(10, 7), remaining(10, 10), remaining(10, 12)], [10, 3, 0, 0]);
    }
}
