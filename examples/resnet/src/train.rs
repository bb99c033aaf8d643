//! The training loop and its report.

use crate::data::{DataError, HostBatch, Split};
use crate::error::{Error, Result};
use crate::feed::Feed;
use crate::model::{DeviceBatch, Model, StepResult, count};
use crate::pjrt::Buffer;
use crate::schedule::Schedule;
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

/// One pass over the training data, and over the validation data after it.
#[derive(Debug, Clone)]
pub struct Epoch {
    /// Steps taken.
    pub steps: u64,
    /// Training samples seen.
    pub samples: u64,
    /// Duration of the training part.
    pub time: Duration,
    /// How much of it the loop waited for a batch.
    pub data_wait: Duration,
    /// Mean loss.
    pub loss: f64,
    /// Share of the training samples that were right, each before the step that learnt from it.
    pub train_accuracy: f64,
    /// Validation samples seen.
    pub validation_samples: u64,
    /// Share of the validation samples that are right.
    pub validation_accuracy: f64,
}

impl Epoch {
    /// Training samples per second.
    pub fn rate(&self) -> f64 {
        rate(self.samples, self.time)
    }
}

/// A whole training.
#[derive(Debug, Clone)]
pub struct Summary {
    /// In order.
    pub epochs: Vec<Epoch>,
    /// With validation.
    pub time: Duration,
}

impl Summary {
    /// The best validation accuracy and its epoch, counted from 1.
    pub fn best(&self) -> Option<(f64, usize)> {
        let numbered = self.epochs.iter().enumerate().map(|(i, e)| (e.validation_accuracy, i + 1));
        // The first of equals.
        numbered.reduce(|best, e| if e.0 > best.0 { e } else { best })
    }

    /// Training samples per second of training.
    pub fn rate(&self) -> f64 {
        let time = self.epochs.iter().map(|e| e.time).sum();
        rate(self.epochs.iter().map(|e| e.samples).sum(), time)
    }
}

/// Trains `model` and writes the log to `out`. `batches` is asked for the data of each epoch (from 0): full
/// batches for training, padded ones for validation.
pub fn train<I>(
    model: &mut Model,
    options: &Options,
    mut batches: impl FnMut(Split, u64) -> std::result::Result<I, DataError>,
    out: &mut dyn Write,
) -> Result<Summary>
where
    I: Iterator<Item = std::result::Result<HostBatch, DataError>> + Send + 'static,
{
    let start = Instant::now();
    let mut epochs: Vec<Epoch> = Vec::new();
    let mut done = 0;
    for epoch in 0..options.epochs {
        let expected = expected_steps(options.steps, epochs.last());
        let feed = feed(model, batches(Split::Train, epoch).map_err(Error::Data)?, options.steps)?;
        writeln!(out, "epoch {} of {}: training", epoch + 1, options.epochs)?;
        let rate_at = |step: u64| {
            // A stream need not know its length: within the first epoch the rate then stays level.
            let part = expected.map_or(0.0, |n| (step as f64 / n as f64).min(1.0));
            options.schedule.at(done + step, (epoch as f64 + part) / options.epochs as f64)
        };
        let mut report = train_epoch(model, feed, rate_at, options.log_steps, out)?;
        done += report.steps;
        writeln!(
            out,
            "epoch {} of {}: {} samples in {:.1} s, {:.1} samples/s, data wait {:.1} %, \
             loss {:.4}, train accuracy {:.2} %",
            epoch + 1,
            options.epochs,
            report.samples,
            report.time.as_secs_f64(),
            report.rate(),
            100.0 * share(report.data_wait.as_secs_f64(), report.time.as_secs_f64()),
            report.loss,
            100.0 * report.train_accuracy,
        )?;
        let before = Instant::now();
        let feed = self::feed(model, batches(Split::Validation, epoch).map_err(Error::Data)?, 0)?;
        let (samples, correct) = validate(model, feed)?;
        report.validation_samples = samples;
        report.validation_accuracy = share(correct as f64, samples as f64);
        writeln!(
            out,
            "epoch {} of {}: validation accuracy {:.2} % ({correct} of {samples}) in {:.1} s",
            epoch + 1,
            options.epochs,
            100.0 * report.validation_accuracy,
            before.elapsed().as_secs_f64(),
        )?;
        epochs.push(report);
    }
    let summary = Summary { epochs, time: start.elapsed() };
    if let Some((accuracy, epoch)) = summary.best() {
        writeln!(
            out,
            "trained {:.1} s: best validation accuracy {:.2} % (epoch {epoch}), average rate {:.1} samples/s",
            summary.time.as_secs_f64(),
            100.0 * accuracy,
            summary.rate(),
        )?;
    }
    Ok(summary)
}

/// How many steps the next epoch has, as far as one can know: as many as the last one; before the first, at
/// most as many as allowed (0: all).
fn expected_steps(limit: u64, last: Option<&Epoch>) -> Option<u64> {
    last.map(|epoch| epoch.steps).or((limit > 0).then_some(limit))
}

/// Starts to upload the first `limit` batches (0: all).
fn feed<I>(model: &Model, batches: I, limit: u64) -> Result<Feed<DeviceBatch>>
where
    I: Iterator<Item = std::result::Result<HostBatch, DataError>> + Send + 'static,
{
    let uploader = model.uploader();
    let limit = if limit == 0 { usize::MAX } else { usize::try_from(limit).unwrap_or(usize::MAX) };
    Feed::start(batches.take(limit), move |batch| uploader.upload(&batch))
}

fn train_epoch(
    model: &mut Model,
    mut feed: Feed<DeviceBatch>,
    rate_at: impl Fn(u64) -> f32,
    log_steps: u64,
    out: &mut dyn Write,
) -> Result<Epoch> {
    let batch_size = model.manifest().global_batch();
    let start = Instant::now();
    let mut steps = 0;
    let mut in_flight: VecDeque<StepResult> = VecDeque::new();
    let mut total = Tally::default();
    let mut since_log = Tally::default();
    let mut last_log = start;
    for batch in feed.by_ref() {
        let batch = batch?;
        if batch.valid != batch_size {
            // Padding would count as samples in the loss and in the batch statistics.
            return Err(Error::Batch(format!(
                "{} samples of {batch_size}: training takes only full batches",
                batch.valid
            )));
        }
        let lr = rate_at(steps);
        in_flight.push_back(model.step(&batch, lr)?);
        steps += 1;
        let log = log_steps > 0 && steps % log_steps == 0;
        let keep = if log { 0 } else { IN_FLIGHT };
        while in_flight.len() > keep {
            let step = steps - in_flight.len() as u64 + 1;
            since_log.add(in_flight.pop_front(), step, batch_size)?;
        }
        if log {
            let now = Instant::now();
            total.merge(&since_log);
            writeln!(
                out,
                "  step {steps:>6}  loss {:.4}  lr {lr:.4}  rate {:.1}/s  global rate {:.1}/s",
                since_log.loss / since_log.steps as f64,
                rate(since_log.samples, now - last_log),
                rate(total.samples, now - start),
            )?;
            since_log = Tally::default();
            last_log = now;
        }
    }
    while !in_flight.is_empty() {
        let step = steps - in_flight.len() as u64 + 1;
        since_log.add(in_flight.pop_front(), step, batch_size)?;
    }
    total.merge(&since_log);
    if total.steps == 0 {
        return Err(Error::Empty("training"));
    }
    Ok(Epoch {
        steps,
        samples: total.samples,
        time: start.elapsed(),
        data_wait: feed.waited(),
        loss: total.loss / total.steps as f64,
        train_accuracy: share(total.correct as f64, total.samples as f64),
        validation_samples: 0,
        validation_accuracy: 0.0,
    })
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

/// Sums over steps.
#[derive(Default)]
struct Tally {
    steps: u64,
    samples: u64,
    correct: u64,
    loss: f64,
}

impl Tally {
    /// Waits for a step and adds it.
    fn add(&mut self, result: Option<StepResult>, step: u64, samples: usize) -> Result<()> {
        let Some(result) = result else { return Ok(()) };
        let (loss, correct) = result.read()?;
        if !loss.is_finite() {
            return Err(Error::Diverged { step, loss });
        }
        self.merge(&Self { steps: 1, samples: samples as u64, correct, loss: loss.into() });
        Ok(())
    }

    fn merge(&mut self, other: &Self) {
        self.steps += other.steps;
        self.samples += other.samples;
        self.correct += other.correct;
        self.loss += other.loss;
    }
}

fn rate(samples: u64, time: Duration) -> f64 {
    share(samples as f64, time.as_secs_f64())
}

fn share(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn epoch(accuracy: f64, samples: u64, seconds: u64) -> Epoch {
        Epoch {
            steps: 1,
            samples,
            time: Duration::from_secs(seconds),
            data_wait: Duration::ZERO,
            loss: 1.0,
            train_accuracy: 0.0,
            validation_samples: 10,
            validation_accuracy: accuracy,
        }
    }

    #[test]
    fn the_summary_names_the_first_best_epoch_and_the_rate_over_all() {
        let epochs = vec![epoch(0.5, 100, 1), epoch(0.9, 100, 1), epoch(0.9, 200, 2)];
        let summary = Summary { epochs, time: Duration::from_secs(5) };
        assert_eq!(summary.best(), Some((0.9, 2)));
        assert_eq!(summary.rate(), 100.0);
        assert_eq!(Summary { epochs: vec![], time: Duration::ZERO }.best(), None);
    }

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
    fn no_time_is_no_rate() {
        assert_eq!(rate(5, Duration::ZERO), 0.0);
    }
}
