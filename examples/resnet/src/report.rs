//! The progress of a training: sums, times and finished epochs. A checkpoint includes these structs, so a
//! resumed training continues with the same sums.

use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// A finished epoch: one pass over the training data, followed by one pass over the validation data.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Epoch {
    /// Number of steps.
    pub steps: u64,
    /// Number of training samples.
    pub samples: u64,
    /// Duration of the training, without the validation.
    pub time: Duration,
    /// Wait for the first batch. In a resumed epoch, the first batch is the first one after the resume.
    pub first_batch: Duration,
    /// Total wait for batches, including the first.
    pub data_wait: Duration,
    /// Share of the steps whose batch was ready in time, 0 to 1. A resumed epoch counts only the steps after
    /// the resume.
    pub readiness: f64,
    /// Mean loss.
    pub loss: f64,
    /// Share of the training samples that were classified correctly, before the step that trained on them.
    pub train_accuracy: f64,
    /// Number of validation samples.
    pub validation_samples: u64,
    /// Share of the validation samples that are classified correctly.
    pub validation_accuracy: f64,
    /// Share of the validation samples whose class is among the five that the network finds most likely. With
    /// fewer than five classes, this share is 1.
    pub validation_top5_accuracy: f64,
}

/// Counts over validation samples.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EvalCounts {
    /// Number of samples.
    pub samples: u64,
    /// Number of samples that are classified correctly.
    pub correct: u64,
    /// Number of samples whose class is among the five that the network finds most likely.
    pub top5: u64,
}

impl EvalCounts {
    /// Adds the counts over other samples.
    pub fn merge(&mut self, other: Self) {
        self.samples += other.samples;
        self.correct += other.correct;
        self.top5 += other.top5;
    }
}

impl Epoch {
    /// Training samples per second.
    pub fn rate(&self) -> f64 {
        rate(self.samples, self.time)
    }
}

/// The summary of a training.
#[derive(Debug, Clone, Serialize)]
pub struct Summary {
    /// The finished epochs, in order.
    pub epochs: Vec<Epoch>,
    /// Duration of the training, including validation and earlier processes.
    pub time: Duration,
}

impl Summary {
    /// The best validation accuracy and its epoch, counted from 1.
    pub fn best(&self) -> Option<(f64, usize)> {
        let numbered = self.epochs.iter().enumerate().map(|(i, e)| (e.validation_accuracy, i + 1));
        // If several epochs have the best accuracy, the first one is returned.
        numbered.reduce(|best, e| if e.0 > best.0 { e } else { best })
    }

    /// Training samples per second, without the time of validation.
    pub fn rate(&self) -> f64 {
        let time = self.epochs.iter().map(|e| e.time).sum();
        rate(self.epochs.iter().map(|e| e.samples).sum(), time)
    }
}

/// The progress of a training. The default is the start of a training.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// The finished epochs.
    pub epochs: Vec<Epoch>,
    /// The epoch in progress.
    pub running: RunningEpoch,
    /// Duration of the whole training, including earlier processes.
    pub time: Duration,
}

impl Progress {
    /// Number of steps since the start of the training.
    pub fn steps(&self) -> u64 {
        self.epochs.iter().map(|e| e.steps).sum::<u64>() + self.running.steps()
    }
}

/// An epoch in progress.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RunningEpoch {
    /// Sums over the steps up to the last line of the log.
    pub logged: Tally,
    /// Sums over the steps since the last line of the log.
    pub since_log: Tally,
    /// Time spent in the epoch.
    pub time: Duration,
    /// Part of `time` since the last line of the log.
    pub time_since_log: Duration,
    /// Part of `time` that was spent waiting for batches.
    pub data_wait: Duration,
}

impl RunningEpoch {
    /// Number of steps of this epoch.
    pub fn steps(&self) -> u64 {
        self.logged.steps + self.since_log.steps
    }

    /// Number of samples of this epoch.
    pub fn samples(&self) -> u64 {
        self.logged.samples + self.since_log.samples
    }
}

/// The error for a loss that became NaN or infinite.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[error("the loss became {loss} at step {step}: try a lower learning rate")]
pub struct Diverged {
    /// The step of the epoch, counted from 1.
    pub step: u64,
    /// The loss.
    pub loss: f32,
}

/// Sums over steps.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Tally {
    /// Number of steps.
    pub steps: u64,
    /// Number of samples.
    pub samples: u64,
    /// Number of samples that were classified correctly.
    pub correct: u64,
    /// Sum of the losses of the steps.
    pub loss: f64,
}

impl Tally {
    /// Adds step `step` of the epoch, with `samples` samples. Fails if the loss is not finite.
    pub fn add(&mut self, loss: f32, correct: u64, step: u64, samples: u64) -> Result<(), Diverged> {
        if !loss.is_finite() {
            return Err(Diverged { step, loss });
        }
        self.merge(&Self { steps: 1, samples, correct, loss: loss.into() });
        Ok(())
    }

    /// Adds the sums of other steps.
    pub fn merge(&mut self, other: &Self) {
        self.steps += other.steps;
        self.samples += other.samples;
        self.correct += other.correct;
        self.loss += other.loss;
    }
}

/// A stopwatch that adds its time to a time that was measured before.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    before: Duration,
    since: Instant,
}

impl Clock {
    /// Starts at `before`.
    pub fn from(before: Duration) -> Self {
        Self { before, since: Instant::now() }
    }

    /// The elapsed time, including `before`.
    pub fn elapsed(&self) -> Duration {
        self.before + self.since.elapsed()
    }
}

/// Samples per second.
pub fn rate(samples: u64, time: Duration) -> f64 {
    share(samples as f64, time.as_secs_f64())
}

/// `part / whole` in percent; 0 if `whole` is 0.
pub fn percent(part: f64, whole: f64) -> f64 {
    100.0 * share(part, whole)
}

/// `part / whole`; 0 if `whole` is 0.
pub fn share(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn epoch(accuracy: f64, samples: u64, seconds: u64) -> Epoch {
        Epoch {
            steps: 1,
            samples,
            time: Duration::from_secs(seconds),
            first_batch: Duration::ZERO,
            data_wait: Duration::ZERO,
            readiness: 1.0,
            loss: 1.0,
            train_accuracy: 0.0,
            validation_samples: 10,
            validation_accuracy: accuracy,
            validation_top5_accuracy: accuracy,
        }
    }

    #[test]
    fn the_summary_has_the_first_best_epoch_and_the_rate_over_all_epochs() {
        let epochs = vec![epoch(0.5, 100, 1), epoch(0.9, 100, 1), epoch(0.9, 200, 2)];
        let summary = Summary { epochs, time: Duration::from_secs(5) };
        assert_eq!(summary.best(), Some((0.9, 2)));
        assert_eq!(summary.rate(), 100.0);
        assert_eq!(Summary { epochs: vec![], time: Duration::ZERO }.best(), None);
    }

    #[test]
    fn the_rate_over_no_time_is_zero() {
        assert_eq!(rate(5, Duration::ZERO), 0.0);
    }

    #[test]
    fn a_clock_starts_at_the_time_before() {
        let before = Duration::from_secs(1000);
        assert!(Clock::from(before).elapsed() >= before);
    }
}
