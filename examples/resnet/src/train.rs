//! The training loop.

use crate::checkpoint::{Checkpoint, Saved, Saver};
use crate::data::{HostBatches, Source, Split};
use crate::error::{Error, Result};
use crate::log::Log;
use crate::logdir::Events;
use crate::model::{DeviceBatch, Hyper};
use crate::network::{Later, Network};
use crate::report::{Clock, Epoch, Evaluated, Progress, Running, Summary, Tally, percent, rate, share};
use crate::schedule::Schedule;
use crate::stop::Stop;
use shardstream::feed::Feed;
use shardstream::state::Ledger;
use shardstream::{State, Topology};
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
    /// Curves.
    pub events: Option<&'a Events>,
    /// Whether to stop early.
    pub stop: Stop,
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
    let clock = Clock::from(time);
    let Keeping { saver, events, stop } = keeping;
    let begun = epochs.iter().map(|epoch| epoch.steps).sum::<u64>() + running.steps();
    let mut training =
        Training { network, options, source, saver, events, stop, log, epochs, time: clock, saved: begun };
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
        training.curves(
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

/// The training part of an epoch.
struct Trained {
    /// `None`: it was stopped before its last step.
    report: Option<Epoch>,
    /// After the last step.
    running: Running,
    /// After the last step; `None` where there is nothing to save.
    data: Option<State>,
}

/// How many steps the next epoch has: as many as the data has or the last one had, as far as one can know,
/// and at most as many as allowed (0: all).
fn expected_steps(limit: u64, known: Option<u64>, last: Option<&Epoch>) -> Option<u64> {
    let there = known.or(last.map(|epoch| epoch.steps));
    let allowed = (limit > 0).then_some(limit);
    match (there, allowed) {
        (Some(there), Some(allowed)) => Some(there.min(allowed)),
        (there, allowed) => there.or(allowed),
    }
}

/// How many batches are still to be trained on in an epoch, where `limit` is the most (0: all).
fn remaining(limit: u64, done: u64) -> usize {
    if limit == 0 { usize::MAX } else { usize::try_from(limit.saturating_sub(done)).unwrap_or(usize::MAX) }
}

/// A training under way.
struct Training<'a> {
    network: &'a mut dyn Network,
    options: &'a Options,
    source: &'a dyn Source,
    saver: Option<&'a mut Saver>,
    events: Option<&'a Events>,
    stop: Stop,
    log: Log<'a>,
    /// Those that are done.
    epochs: Vec<Epoch>,
    time: Clock,
    /// The step of the newest checkpoint that is written.
    saved: u64,
}

/// Steps that were launched and not read, with their numbers.
type InFlight = VecDeque<(u64, Later<(f32, u64)>)>;

impl Training<'_> {
    /// Brings the first `limit` batches to the devices, ahead of the steps.
    fn feed(&self, batches: HostBatches, limit: usize) -> Feed<Result<DeviceBatch>> {
        let uploader = self.network.uploader();
        Feed::new(batches.take(limit), move |batch| Ok(uploader.upload(&batch))).depth(self.options.depth)
    }

    /// Trains for one epoch, or for what it has left after `running`.
    fn epoch(&mut self, batches: HostBatches, mut running: Running) -> Result<Trained> {
        let Options { epochs, steps: limit, log_steps, schedule, topology, .. } = *self.options;
        let epoch = self.epochs.len() as u64;
        let done: u64 = self.epochs.iter().map(|e| e.steps).sum();
        let known = self.source.steps(Split::Train);
        let expected = expected_steps(limit, known, self.epochs.last());
        let manifest = self.network.manifest();
        let (samples, local) =
            (manifest.global_batch() as u64, manifest.local_batch(self.network.local_devices()));
        let mut steps = running.steps();
        let mut feed = self.feed(batches, remaining(limit, steps));
        self.log.line(format_args!("epoch {} of {epochs}: training", epoch + 1))?;
        self.log.begin(&format!("epoch {}", epoch + 1), expected.map(|all| all.saturating_sub(steps)));
        let rate_at = |step: u64| {
            // A stream need not know its length: within the first epoch the rate then stays level.
            let part = expected.map_or(0.0, |n| (step as f64 / n as f64).min(1.0));
            schedule.at(done + step, epoch as f64 + part, epochs as f64)
        };
        let time = Clock::from(running.time);
        let mut since_log = Clock::from(running.time_since_log);
        let waited = running.data_wait;
        let mut last = None;
        let mut in_flight = InFlight::new();
        let mut stopped = false;
        while let Some(batch) = feed.next() {
            // A batch that is not trained on is left to the resumed training.
            if !self.stop.start_step() {
                stopped = true;
                break;
            }
            let mut batch = batch.map_err(Error::Data)??;
            if batch.valid != local {
                // Padding would count as samples in the loss and in the batch statistics.
                return Err(Error::Batch(format!(
                    "{} samples of {local}: training takes only full batches",
                    batch.valid
                )));
            }
            last = batch.state.clone().or(last);
            let hyper = Hyper {
                rate: rate_at(steps),
                weight_decay: self.options.weight_decay,
                label_smoothing: self.options.label_smoothing,
                momentum: self.options.momentum,
            };
            steps += 1;
            in_flight.push_back((steps, self.network.step(&batch, hyper)?));
            let log = log_steps > 0 && steps.is_multiple_of(log_steps);
            let save = self.saver.as_ref().is_some_and(|saver| saver.is_due(done + steps));
            let keep = if log || save { 0 } else { IN_FLIGHT };
            read(&mut in_flight, keep, &mut running.since_log, samples)?;
            self.log.step();
            if log {
                let recent = std::mem::take(&mut running.since_log);
                running.logged.merge(&recent);
                let loss = recent.loss / recent.steps as f64;
                let (now, ready) = (rate(recent.samples, since_log.elapsed()), feed.report().readiness());
                self.log.line(format_args!(
                    "  step {steps:>6}  loss {loss:.4}  lr {:.4}  rate {now:.1}/s  global rate {:.1}/s  data ready {:.1} %  \
                     elapsed {}",
                    hyper.rate,
                    rate(running.logged.samples, time.elapsed()),
                    100.0 * ready,
                    hours(self.time.elapsed()),
                ))?;
                self.curves(
                    done + steps,
                    &[
                        ("train/loss", loss),
                        ("train/learning_rate", hyper.rate.into()),
                        ("rate/samples_per_second", now),
                        ("rate/data_readiness", ready),
                    ],
                );
                since_log = Clock::from(Duration::ZERO);
            }
            if save {
                running.time = time.elapsed();
                running.time_since_log = since_log.elapsed();
                running.data_wait = waited + waited_for(&feed);
                self.save(running.clone(), || batch.state.take())?;
            }
            let saved = self.saver.as_mut().map_or(Ok(None), |saver| saver.poll())?;
            self.tell(saved)?;
        }
        read(&mut in_flight, 0, &mut running.since_log, samples)?;
        self.log.done();
        running.time = time.elapsed();
        running.time_since_log = since_log.elapsed();
        running.data_wait = waited + waited_for(&feed);
        if stopped {
            return Ok(Trained { report: None, running, data: last });
        }
        let mut total = running.logged.clone();
        total.merge(&running.since_log);
        if total.steps == 0 {
            return Err(Error::Empty("training"));
        }
        let fed = feed.report();
        let report = Epoch {
            steps,
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
        let learnt =
            format!(", loss {:.4}, train accuracy {:.2} %", report.loss, 100.0 * report.train_accuracy);
        let learnt = if self.network.learns() { &learnt } else { "" };
        self.log.line(format_args!(
            "epoch {} of {epochs}: {} samples in {:.1} s, {:.1} samples/s (reduced global rate over {} {}), data wait \
             {:.1} %, {fed}{learnt}",
            epoch + 1,
            report.samples,
            report.time.as_secs_f64(),
            report.rate(),
            topology.world_size(),
            if topology.world_size() == 1 { "process" } else { "processes" },
            percent(report.data_wait.as_secs_f64(), report.time.as_secs_f64()),
        ))?;
        if let Some(last) = &last {
            self.tell_digest(epoch, last)?;
            self.tell_skipped(epoch, &last.ledger())?;
        }
        Ok(Trained { report: Some(report), running, data: last })
    }

    /// One point of each of these curves.
    fn curves(&self, step: u64, points: &[(&str, f64)]) {
        if let Some(events) = self.events {
            points.iter().for_each(|(tag, value)| events.scalar(tag, step, *value));
        }
    }

    /// What proves that two trainings took the same samples in the same order; those of all ranks add up.
    fn tell_digest(&mut self, epoch: u64, state: &State) -> Result<()> {
        self.log.line(format_args!("epoch {}: digest of the order {}", epoch + 1, state.digest()))
    }

    /// The samples of this rank that were left out, where there are any.
    fn tell_skipped(&mut self, epoch: u64, ledger: &Ledger) -> Result<()> {
        if ledger.is_empty() {
            return Ok(());
        }
        self.log.line(format_args!("epoch {}: {ledger}", epoch + 1))
    }

    /// Measures the accuracy after an epoch, over each sample of the validation data once. `false`: it was
    /// stopped.
    fn validate(&mut self, report: &mut Epoch, epoch: u64) -> Result<bool> {
        let before = Instant::now();
        let batches = self.source.batches(Split::Validation, epoch)?;
        let feed = self.feed(batches, usize::MAX);
        self.log.begin("validation", self.source.steps(Split::Validation));
        let evaluated = self.evaluate(feed)?;
        self.log.done();
        let Some(Evaluated { samples, correct, top5 }) = evaluated else { return Ok(false) };
        if let Some(there) = self.source.samples(Split::Validation)
            && samples != there
        {
            return Err(Error::Validation { samples, there });
        }
        report.validation_samples = samples;
        report.validation_accuracy = share(correct as f64, samples as f64);
        report.validation_top5_accuracy = share(top5 as f64, samples as f64);
        self.log.line(format_args!(
            "epoch {} of {}: validation accuracy {:.2} % ({correct} of {samples}), top-5 {:.2} % ({top5}) in {:.1} s",
            self.epochs.len() + 1,
            self.options.epochs,
            100.0 * report.validation_accuracy,
            100.0 * report.validation_top5_accuracy,
            before.elapsed().as_secs_f64(),
        ))?;
        Ok(true)
    }

    /// How many samples there are, and how many the network gets right; `None` if it was stopped.
    fn evaluate(&self, feed: Feed<Result<DeviceBatch>>) -> Result<Option<Evaluated>> {
        let mut total = Evaluated::default();
        let mut in_flight: VecDeque<Later<Evaluated>> = VecDeque::new();
        let mut read = |in_flight: &mut VecDeque<Later<Evaluated>>, keep| -> Result<()> {
            while in_flight.len() > keep {
                let Some(result) = in_flight.pop_front() else { break };
                total.merge(result()?);
            }
            Ok(())
        };
        for batch in feed {
            if !self.stop.start_step() {
                read(&mut in_flight, 0)?;
                return Ok(None);
            }
            in_flight.push_back(self.network.evaluate(&batch.map_err(Error::Data)??)?);
            read(&mut in_flight, IN_FLIGHT)?;
            self.log.step();
        }
        read(&mut in_flight, 0)?;
        if total.samples == 0 {
            return Err(Error::Empty("validation"));
        }
        Ok(Some(total))
    }

    /// Saves the training where it was stopped, with `running` as its epoch in progress.
    fn stopped(mut self, running: Running, data: Option<State>) -> Result<Summary> {
        let step = self.epochs.iter().map(|epoch| epoch.steps).sum::<u64>() + running.steps();
        self.stop.finish();
        self.wait_for_saver()?;
        // A training from single files has no state, and no checkpoints.
        if self.saved != step && data.is_some() {
            self.save(running, || data)?;
            self.wait_for_saver()?;
        }
        Err(Error::Stopped { step })
    }

    fn wait_for_saver(&mut self) -> Result<()> {
        let saved = self.saver.as_mut().map_or(Ok(None), |saver| saver.finish())?;
        self.tell(saved)
    }

    /// Saves the training with `running` as its epoch in progress. Copies the weights, which waits for the
    /// last step; they are written while the training continues.
    fn save(&mut self, running: Running, data: impl FnOnce() -> Option<State>) -> Result<()> {
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
        self.stop.finish();
        self.wait_for_saver()?;
        let summary = Summary { epochs: self.epochs, time: self.time.elapsed() };
        if let (Some((accuracy, epoch)), true) = (summary.best(), self.network.learns()) {
            self.log.line(format_args!(
                "trained {:.1} s: best validation accuracy {:.2} % (epoch {epoch}), average rate {:.1} samples/s",
                summary.time.as_secs_f64(),
                100.0 * accuracy,
                summary.rate(),
            ))?;
        }
        Ok(summary)
    }
}

/// As hours, minutes and seconds.
fn hours(time: Duration) -> String {
    let seconds = time.as_secs();
    format!("{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

/// How long the loop waited for batches, the first one included.
fn waited_for<B>(feed: &Feed<B>) -> Duration {
    let report = feed.report();
    report.first + report.waited
}

/// Waits for all but the last `keep` results, and adds them up. A step is over `samples` samples.
fn read(in_flight: &mut InFlight, keep: usize, tally: &mut Tally, samples: u64) -> Result<()> {
    while in_flight.len() > keep {
        let Some((step, result)) = in_flight.pop_front() else { break };
        let (loss, correct) = result()?;
        tally.add(loss, correct, step, samples)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::epoch;

    #[test]
    fn an_epoch_is_expected_to_be_as_long_as_the_last_one() {
        let last = Epoch { steps: 16, ..epoch(0.5, 100, 1) };
        assert_eq!(expected_steps(0, None, None), None);
        assert_eq!(expected_steps(8, None, None), Some(8));
        assert_eq!(expected_steps(0, None, Some(&last)), Some(16));
        assert_eq!(expected_steps(8, Some(20), Some(&last)), Some(8));
        // More steps were allowed than there is data: the rate must still fall to zero.
        assert_eq!(expected_steps(1000, None, Some(&last)), Some(16));
        assert_eq!(expected_steps(1000, Some(20), None), Some(20));
    }

    #[test]
    fn a_resumed_epoch_takes_no_more_than_is_left_of_its_limit() {
        assert_eq!(remaining(0, 7), usize::MAX);
        assert_eq!([remaining(10, 0), remaining(10, 7), remaining(10, 10), remaining(10, 12)], [10, 3, 0, 0]);
    }
}
