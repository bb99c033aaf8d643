//! What a training has done so far: sums, times and finished epochs. A checkpoint stores these structs, so a
//! resumed training continues with the same sums.

use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// One pass over the training data, and over the validation data after it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Epoch {
    /// Steps taken.
    pub steps: u64,
    /// Training samples seen.
    pub samples: u64,
    /// Duration of the training part.
    pub time: Duration,
    /// Wait for the first batch; of a resumed epoch, since it was resumed.
    pub first_batch: Duration,
    /// Wait for batches, including the first.
    pub data_wait: Duration,
    /// Share of the steps whose batch was ready, 0 to 1; of a resumed epoch, since it was resumed.
    pub readiness: f64,
    /// Mean loss.
    pub loss: f64,
    /// Share of the training samples that were classified correctly, each before the step that learned from
    /// it.
    pub train_accuracy: f64,
    /// Validation samples seen.
    pub validation_samples: u64,
    /// Share of the validation samples that are classified correctly.
    pub validation_accuracy: f64,
    /// Share of the validation samples whose class is among the five that the network finds most likely
    /// (among all, where there are fewer).
    pub validation_top5_accuracy: f64,
}

/// Counts over validation samples.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EvalCounts {
    /// Samples.
    pub samples: u64,
    /// Samples that are classified correctly.
    pub correct: u64,
    /// Samples whose class is among the five that the network finds most likely.
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

/// A whole training.
#[derive(Debug, Clone, Serialize)]
pub struct Summary {
    /// In order.
    pub epochs: Vec<Epoch>,
    /// Duration including validation; of a resumed training, including earlier processes.
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

/// How far a training has come. The default is its beginning.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// The epochs that are done.
    pub epochs: Vec<Epoch>,
    /// The epoch in progress, after those.
    pub running: RunningEpoch,
    /// Duration of the whole training, including earlier processes.
    pub time: Duration,
}

impl Progress {
    /// Steps of the whole training.
    pub fn steps(&self) -> u64 {
        self.epochs.iter().map(|e| e.steps).sum::<u64>() + self.running.steps()
    }
}

/// An epoch in progress.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RunningEpoch {
    /// Sums up to the last line of the log.
    pub logged: Tally,
    /// Sums since then.
    pub since_log: Tally,
    /// Spent in the epoch.
    pub time: Duration,
    /// Part of `time` since the last line of the log.
    pub time_since_log: Duration,
    /// Part of `time` that was spent waiting for batches.
    pub data_wait: Duration,
}

impl RunningEpoch {
    /// Steps of this epoch.
    pub fn steps(&self) -> u64 {
        self.logged.steps + self.since_log.steps
    }

    /// Samples of this epoch.
    pub fn samples(&self) -> u64 {
        self.logged.samples + self.since_log.samples
    }
}

/// The error of a loss that became NaN or infinite.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[error("the loss became {loss} at step {step}: try a lower learning rate")]
pub struct Diverged {
    /// Counted from 1, in the epoch.
    pub step: u64,
    /// The loss.
    pub loss: f32,
}

/// Sums over steps.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Tally {
    /// Steps.
    pub steps: u64,
    /// Samples.
    pub samples: u64,
    /// Samples that were classified correctly.
    pub correct: u64,
    /// Sum of the losses.
    pub loss: f64,
}

impl Tally {
    /// Adds a step of this many samples.
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

/// A stopwatch that can resume from another one's time.
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

/// The share in percent; 0 if `whole` is 0.
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
    fn the_summary_names_the_first_best_epoch_and_the_rate_over_all() {
        let epochs = vec![epoch(0.5, 100, 1), epoch(0.9, 100, 1), epoch(0.9, 200, 2)];
        let summary = Summary { epochs, time: Duration::from_secs(5) };
        assert_eq!(summary.best(), Some((0.9, 2)));
        assert_eq!(summary.rate(), 100.0);
        assert_eq!(Summary { epochs: vec![], time: Duration::ZERO }.best(), None);
    }

    #[test]
    fn no_time_is_no_rate() {
        assert_eq!(rate(5, Duration::ZERO), 0.0);
    }

    #[test]
    fn a_clock_resumes_from_the_time_before() {
        let before = Duration::from_secs(1000);
        assert!(Clock::from(before).elapsed() >= before);
    }
}
