//! What the trainer received from a run, and how long it waited.

use crate::loader::report::Fill;
use crate::state::State;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// What the trainer received so far, and its waits.
#[derive(Debug)]
pub(super) struct Consumed {
    /// The state after the last batch.
    pub(super) state: State,
    /// When the first batch was asked for.
    pub(super) begun: Option<Instant>,
    pub(super) ended: Option<Instant>,
    pub(super) batches: u64,
    pub(super) items: u64,
    pub(super) fill: Fill,
    /// The sum of all waits.
    pub(super) waited: Duration,
    /// The wait for the first batch.
    pub(super) first: Option<Duration>,
    /// Number of batches that were ready when they were asked for.
    pub(super) ready: u64,
    /// Number of batches that were not.
    pub(super) late: u64,
    /// When each batch that is ready was made.
    pub(super) made: VecDeque<Instant>,
    pub(super) steps: StepTimer,
    /// Since when the next batch has been waited for, and whether it was ready then.
    pub(super) waiting: Option<(Instant, bool)>,
    /// Whether this wait has been warned of.
    pub(super) is_warned: bool,
}

impl Consumed {
    /// Before the first batch is asked for.
    pub(super) fn new(state: State) -> Self {
        Consumed {
            state,
            begun: None,
            ended: None,
            batches: 0,
            items: 0,
            fill: Fill::default(),
            waited: Duration::ZERO,
            first: None,
            ready: 0,
            late: 0,
            made: VecDeque::new(),
            steps: StepTimer::default(),
            waiting: None,
            is_warned: false,
        }
    }

    /// How long the trainer has waited for the next batch: until `now`, or until the batch was ready, if a
    /// stream's consumer has not polled since.
    pub(super) fn waited_until(&self, now: Instant) -> Duration {
        let end = self.made.front().map_or(now, |made| now.min(*made));
        self.waiting.map_or(Duration::ZERO, |(since, _)| end.saturating_duration_since(since))
    }
}

/// Tells steps from rests, by the time between two batches: in a rest the trainer does something much longer
/// than a step, such as validation or a checkpoint.
#[derive(Debug, Default)]
pub(super) struct StepTimer {
    /// When the last batch was received.
    pub(super) since: Option<Instant>,
    /// Smoothed time of a step.
    usual: Duration,
    /// Number of steps seen.
    seen: u32,
    /// The sum of all rests, each less the usual time of a step.
    rested: Duration,
}

/// A gap between two batches is a rest if it is longer than this many usual steps, and than [`MIN_REST`].
const REST_STEPS: u32 = 16;
const MIN_REST: Duration = Duration::from_secs(1);
/// Number of steps after which their usual time is known.
const MIN_STEPS: u32 = 8;

impl StepTimer {
    /// The sum of all rests until `now`.
    pub(super) fn rested(&self, now: Instant) -> Duration {
        self.rested + self.rest(now)
    }

    /// The current rest, less the usual time of a step: zero unless the gap is long enough.
    fn rest(&self, now: Instant) -> Duration {
        let time = self.since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        let is_rest = self.seen >= MIN_STEPS && time > MIN_REST.max(self.usual * REST_STEPS);
        if is_rest { time - self.usual } else { Duration::ZERO }
    }

    /// The next batch is asked for, which ends the step or rest.
    pub(super) fn step_ended(&mut self, now: Instant) {
        let rest = self.rest(now);
        self.rested += rest;
        if let Some(since) = self.since.take()
            && rest.is_zero()
        {
            let time = now.saturating_duration_since(since);
            self.seen = self.seen.saturating_add(1);
            let weight = self.seen.min(16);
            self.usual = (self.usual * (weight - 1) + time) / weight;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_that_is_much_longer_than_a_step_is_a_rest() {
        let (mut steps, mut now) = (StepTimer::default(), Instant::now());
        let mut step = |steps: &mut StepTimer, time: u64| {
            steps.since = Some(now);
            now += Duration::from_millis(time);
            let resting = steps.rested(now);
            steps.step_ended(now);
            assert_eq!(steps.rested(now), resting, "the end of a rest changes nothing");
        };
        step(&mut steps, 30_000);
        assert_eq!(steps.rested, Duration::ZERO, "the usual time of a step is not known yet");
        (0..100).for_each(|_| step(&mut steps, 100));
        assert_eq!(steps.rested, Duration::ZERO);
        let usual = steps.usual;
        assert!((100..1000).contains(&usual.as_millis()), "{usual:?}");
        step(&mut steps, 60_000);
        assert_eq!((steps.rested, steps.usual), (Duration::from_secs(60) - usual, usual));
    }
}
