//! The training loop and its report.

use crate::checkpoint::{Checkpoint, Saved, Saver};
use crate::data::{HostBatches, Source, Split};
use crate::error::{Error, Result};
use crate::feed::Feed;
use crate::model::{DeviceBatch, Model, StepResult, count};
use crate::pjrt::Buffer;
use crate::report::{Clock, Epoch, Progress, Running, Summary, Tally, rate, share};
use crate::schedule::Schedule;
use shardstream::State;
use std::collections::VecDeque;
use std::io::Write;
use std::time::{Duration, Instant};

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
}

/// Where a training begins; by default, at the beginning.
#[derive(Debug, Clone, Default)]
pub struct Start {
    progress: Progress,
    data: Option<State>,
}

impl From<&Checkpoint> for Start {
    fn from(checkpoint: &Checkpoint) -> Self {
        Self { progress: checkpoint.progress.clone(), data: Some(checkpoint.data.clone()) }
    }
}

/// Trains `model` and writes the log to `out`; with a saver, checkpoints too. A training that starts from a checkpoint
/// needs a model that was [restored](Model::restore) from it.
pub fn train(
    model: &mut Model,
    options: &Options,
    source: &dyn Source,
    start: Start,
    saver: Option<&mut Saver>,
    out: &mut dyn Write,
) -> Result<Summary> {
    let Start { progress, mut data } = start;
    let Progress { epochs, mut running, time } = progress;
    let mut training = Training { model, options, saver, out, epochs, time: Clock::from(time) };
    for epoch in training.epochs.len() as u64..options.epochs {
        let batches = match data.take() {
            Some(state) => source.rest(&state),
            None => source.batches(Split::Train, epoch),
        };
        let mut report = training.epoch(batches.map_err(Error::Data)?, std::mem::take(&mut running))?;
        training.validate(&mut report, source.batches(Split::Validation, epoch).map_err(Error::Data)?)?;
        training.epochs.push(report);
        training.save(Running::default(), || source.start(epoch + 1))?;
    }
    training.finish()
}

/// How many steps the next epoch has, as far as one can know: as many as the last one; before the first, at
/// most as many as allowed (0: all).
fn expected_steps(limit: u64, last: Option<&Epoch>) -> Option<u64> {
    last.map(|epoch| epoch.steps).or((limit > 0).then_some(limit))
}

/// How many batches are still to be trained on in an epoch, where `limit` is the most (0: all).
fn remaining(limit: u64, done: u64) -> usize {
    if limit == 0 { usize::MAX } else { usize::try_from(limit.saturating_sub(done)).unwrap_or(usize::MAX) }
}

/// Starts to upload the first `limit` batches.
fn feed(model: &Model, batches: HostBatches, limit: usize) -> Result<Feed<DeviceBatch>> {
    let uploader = model.uploader();
    Feed::start(batches.take(limit), move |batch| uploader.upload(&batch))
}

/// A training under way.
struct Training<'a> {
    model: &'a mut Model,
    options: &'a Options,
    saver: Option<&'a mut Saver>,
    out: &'a mut dyn Write,
    /// Those that are done.
    epochs: Vec<Epoch>,
    time: Clock,
}

impl Training<'_> {
    /// Trains for one epoch, or for what it has left after `running`.
    fn epoch(&mut self, batches: HostBatches, mut running: Running) -> Result<Epoch> {
        let Options { epochs, steps: limit, log_steps, schedule } = *self.options;
        let epoch = self.epochs.len() as u64;
        let done: u64 = self.epochs.iter().map(|e| e.steps).sum();
        let expected = expected_steps(limit, self.epochs.last());
        let batch_size = self.model.manifest().global_batch();
        let mut steps = running.steps();
        let mut feed = feed(self.model, batches, remaining(limit, steps))?;
        writeln!(self.out, "epoch {} of {epochs}: training", epoch + 1)?;
        let rate_at = |step: u64| {
            // A stream need not know its length: within the first epoch the rate then stays level.
            let part = expected.map_or(0.0, |n| (step as f64 / n as f64).min(1.0));
            schedule.at(done + step, (epoch as f64 + part) / epochs as f64)
        };
        let time = Clock::from(running.time);
        let mut since_log = Clock::from(running.time_since_log);
        let waited = running.data_wait;
        let mut in_flight: VecDeque<StepResult> = VecDeque::new();
        while let Some(batch) = feed.next() {
            let mut batch = batch?;
            if batch.valid != batch_size {
                // Padding would count as samples in the loss and in the batch statistics.
                return Err(Error::Batch(format!(
                    "{} samples of {batch_size}: training takes only full batches",
                    batch.valid
                )));
            }
            let lr = rate_at(steps);
            in_flight.push_back(self.model.step(&batch, lr)?);
            steps += 1;
            let log = log_steps > 0 && steps.is_multiple_of(log_steps);
            let save = self.saver.as_ref().is_some_and(|saver| saver.is_due(done + steps));
            let keep = if log || save { 0 } else { IN_FLIGHT };
            read(&mut in_flight, keep, steps, &mut running.since_log, batch_size)?;
            if log {
                let recent = std::mem::take(&mut running.since_log);
                running.logged.merge(&recent);
                writeln!(
                    self.out,
                    "  step {steps:>6}  loss {:.4}  lr {lr:.4}  rate {:.1}/s  global rate {:.1}/s",
                    recent.loss / recent.steps as f64,
                    rate(recent.samples, since_log.elapsed()),
                    rate(running.logged.samples, time.elapsed()),
                )?;
                since_log = Clock::from(Duration::ZERO);
            }
            if save {
                running.time = time.elapsed();
                running.time_since_log = since_log.elapsed();
                running.data_wait = waited + feed.waited();
                self.save(running.clone(), || batch.state.take())?;
            }
            let saved = self.saver.as_mut().map_or(Ok(None), |saver| saver.poll())?;
            self.tell(saved)?;
        }
        read(&mut in_flight, 0, steps, &mut running.since_log, batch_size)?;
        let mut total = running.logged;
        total.merge(&running.since_log);
        if total.steps == 0 {
            return Err(Error::Empty("training"));
        }
        let report = Epoch {
            steps,
            samples: total.samples,
            time: time.elapsed(),
            data_wait: waited + feed.waited(),
            loss: total.loss / total.steps as f64,
            train_accuracy: share(total.correct as f64, total.samples as f64),
            validation_samples: 0,
            validation_accuracy: 0.0,
        };
        writeln!(
            self.out,
            "epoch {} of {epochs}: {} samples in {:.1} s, {:.1} samples/s, data wait {:.1} %, \
             loss {:.4}, train accuracy {:.2} %",
            epoch + 1,
            report.samples,
            report.time.as_secs_f64(),
            report.rate(),
            100.0 * share(report.data_wait.as_secs_f64(), report.time.as_secs_f64()),
            report.loss,
            100.0 * report.train_accuracy,
        )?;
        Ok(report)
    }

    /// Measures the accuracy after an epoch.
    fn validate(&mut self, report: &mut Epoch, batches: HostBatches) -> Result<()> {
        let before = Instant::now();
        let (samples, correct) = validate(self.model, feed(self.model, batches, usize::MAX)?)?;
        report.validation_samples = samples;
        report.validation_accuracy = share(correct as f64, samples as f64);
        writeln!(
            self.out,
            "epoch {} of {}: validation accuracy {:.2} % ({correct} of {samples}) in {:.1} s",
            self.epochs.len() + 1,
            self.options.epochs,
            100.0 * report.validation_accuracy,
            before.elapsed().as_secs_f64(),
        )?;
        Ok(())
    }

    /// Saves the training with `running` as its epoch in progress. Copies the weights, which waits for the last step;
    /// they are written while the training goes on.
    fn save(&mut self, running: Running, data: impl FnOnce() -> Option<State>) -> Result<()> {
        let Some(saver) = self.saver.as_mut() else { return Ok(()) };
        let progress = Progress { epochs: self.epochs.clone(), running, time: self.time.elapsed() };
        // All devices have the same state.
        let tensors = saver.wants_tensors().then(|| self.model.state(0)).transpose()?;
        let saved = saver.save(progress, data(), tensors)?;
        self.tell(saved)
    }

    fn tell(&mut self, saved: Option<Saved>) -> Result<()> {
        if let Some(saved) = saved {
            writeln!(self.out, "{saved}")?;
        }
        Ok(())
    }

    /// Waits for the last checkpoint, and sums up.
    fn finish(mut self) -> Result<Summary> {
        let saved = self.saver.as_mut().map_or(Ok(None), |saver| saver.finish())?;
        self.tell(saved)?;
        let summary = Summary { epochs: self.epochs, time: self.time.elapsed() };
        if let Some((accuracy, epoch)) = summary.best() {
            writeln!(
                self.out,
                "trained {:.1} s: best validation accuracy {:.2} % (epoch {epoch}), average rate {:.1} samples/s",
                summary.time.as_secs_f64(),
                100.0 * accuracy,
                summary.rate(),
            )?;
        }
        Ok(summary)
    }
}

/// Waits for all but the last `keep` results of the steps up to number `steps`, and adds them up.
fn read(
    in_flight: &mut VecDeque<StepResult>,
    keep: usize,
    steps: u64,
    tally: &mut Tally,
    batch_size: usize,
) -> Result<()> {
    while in_flight.len() > keep {
        let step = steps - in_flight.len() as u64 + 1;
        tally.add(in_flight.pop_front(), step, batch_size)?;
    }
    Ok(())
}

/// How many samples there are, and how many the network gets right.
fn validate(model: &Model, feed: Feed<DeviceBatch>) -> Result<(u64, u64)> {
    let mut samples = 0;
    let mut correct = 0;
    let mut in_flight: VecDeque<Buffer> = VecDeque::new();
    for batch in feed {
        let batch = batch?;
        samples += batch.valid as u64;
        in_flight.push_back(model.evaluate(&batch)?);
        if in_flight.len() > IN_FLIGHT {
            correct += in_flight.pop_front().map_or(Ok(0), |b| count(&b))?;
        }
    }
    for result in in_flight {
        correct += count(&result)?;
    }
    if samples == 0 {
        return Err(Error::Empty("validation"));
    }
    Ok((samples, correct))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::epoch;

    #[test]
    fn an_epoch_is_expected_to_be_as_long_as_the_last_one() {
        let last = Epoch { steps: 16, ..epoch(0.5, 100, 1) };
        assert_eq!(expected_steps(0, None), None);
        assert_eq!(expected_steps(8, None), Some(8));
        assert_eq!(expected_steps(0, Some(&last)), Some(16));
        // More steps were allowed than there is data: the rate must still fall to zero.
        assert_eq!(expected_steps(1000, Some(&last)), Some(16));
    }

    #[test]
    fn a_resumed_epoch_takes_no_more_than_is_left_of_its_limit() {
        assert_eq!(remaining(0, 7), usize::MAX);
        assert_eq!([remaining(10, 0), remaining(10, 7), remaining(10, 10), remaining(10, 12)], [10, 3, 0, 0]);
    }
}
