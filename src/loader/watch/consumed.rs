//! `Consumed`: the batches that the trainer received from a run, and how long it waited for them.

use crate::loader::report::Fill;
use crate::state::State;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

#[derive(Debug)]
pub(super) struct Consumed {
    /// The state after the last batch.
    pub(super) state: State,
    /// The time of the trainer's first request.
    pub(super) begun: Option<Instant>,
    pub(super) ended: Option<Instant>,
    pub(super) batches: u64,
    pub(super) items: u64,
    pub(super) fill: Fill,
    /// The sum of all waits.
    pub(super) waited: Duration,
    /// The wait for the first batch.
    pub(super) first: Option<Duration>,
    /// Number of batches, without the first, that were ready when the trainer requested them.
    pub(super) ready: u64,
    /// Number of batches, without the first, that were not ready.
    pub(super) late: u64,
    /// For each batch that is ready now, the time at which it was made.
    pub(super) made: VecDeque<Instant>,
    pub(super) steps: StepTimer,
    /// The current wait for the next batch.
    pub(super) wait: Option<Wait>,
    /// Whether the current wait was reported as a stall.
    pub(super) is_warned: bool,
}

/// A wait of the trainer for the next batch.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wait {
    pub(super) start: Instant,
    /// Whether the batch was ready at the start.
    pub(super) was_ready: bool,
}

impl Consumed {
    /// The values before the first request.
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
            wait: None,
            is_warned: false,
        }
    }

    /// The duration of the current wait: until `now`, or until the batch was ready. (The consumer of an
    /// asynchronous stream may poll long after the batch is ready.)
    pub(super) fn waited_until(&self, now: Instant) -> Duration {
        let end = self.made.front().map_or(now, |made| now.min(*made));
        self.wait.map_or(Duration::ZERO, |wait| end.saturating_duration_since(wait.start))
    }

    /// Ends the current wait. Returns its duration, and whether the batch was ready at its start.
    pub(super) fn end_wait(&mut self, now: Instant) -> (Duration, bool) {
        let waited = self.waited_until(now);
        let was_ready = self.wait.take().is_some_and(|wait| wait.was_ready);
        self.is_warned = false;
        self.waited += waited;
        self.steps.since = Some(now);
        (waited, was_ready)
    }
}

/// Distinguishes the trainer's steps from its rests, by the time between two batches. In a rest, the trainer
/// does something that takes much longer than a step, such as validation or a checkpoint.
#[derive(Debug, Default)]
pub(super) struct StepTimer {
    /// The time at which the last batch was received.
    pub(super) since: Option<Instant>,
    /// The smoothed time of a step.
    usual: Duration,
    /// Number of steps so far.
    steps: u32,
    /// Total time of the trainer's rests, such as validation and checkpoints. The usual time of a step is
    /// subtracted from each rest.
    rested: Duration,
}

/// A time between two batches is a rest if it is longer than [`MIN_REST`], and longer than the usual time of
/// this number of steps.
const REST_STEPS: u32 = 16;
const MIN_REST: Duration = Duration::from_secs(1);
/// The usual time of a step is known after this number of steps.
const MIN_STEPS: u32 = 8;

impl StepTimer {
    /// The total time of the trainer's rests (such as validation) until `now`, including the current rest.
    pub(super) fn rested(&self, now: Instant) -> Duration {
        self.rested + self.rest(now)
    }

    /// The duration of the trainer's current rest minus the usual time of a step. Zero if the time since the
    /// last batch is too short for a rest.
    fn rest(&self, now: Instant) -> Duration {
        let time = self.since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        let is_rest = self.steps >= MIN_STEPS && time > MIN_REST.max(self.usual * REST_STEPS);
        if is_rest { time - self.usual } else { Duration::ZERO }
    }

    /// Called when the trainer requests the next batch. The time since the last batch then counts as a step
    /// or, if it is much longer than a step, as a rest.
    pub(super) fn step_ended(&mut self, now: Instant) {
        let rest = self.rest(now);
        self.rested += rest;
        if let Some(since) = self.since.take()
            && rest.is_zero()
        {
            let time = now.saturating_duration_since(since);
            self.steps = self.steps.saturating_add(1);
            let weight = self.steps.min(16);
            self.usual = (self.usual * (weight - 1) + time) / weight;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_between_batches_much_longer_than_a_step_is_a_rest() {
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
