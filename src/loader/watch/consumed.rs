//! What a run has given out, and how long the trainer waited for it.

use crate::loader::report::Fill;
use crate::state::State;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// What has been given out.
#[derive(Debug)]
pub(super) struct Consumed {
    pub(super) state: State,
    pub(super) begun: Option<Instant>,
    pub(super) ended: Option<Instant>,
    pub(super) batches: u64,
    pub(super) items: u64,
    pub(super) fill: Fill,
    pub(super) waited: Duration,
    pub(super) first: Option<Duration>,
    pub(super) ready: u64,
    pub(super) late: u64,
    /// When the batches were made that have not been given out.
    pub(super) made: VecDeque<Instant>,
    pub(super) steps: StepTimer,
    /// Since when the next batch has been waited for, and whether it was there then.
    pub(super) waiting: Option<(Instant, bool)>,
    /// Whether there was a warning of this wait.
    pub(super) is_warned: bool,
}

impl Consumed {
    /// Nothing, before the first batch is asked for.
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

    /// How long the trainer has waited for the batch that it asks for: until now, or until that was ready,
    /// where it polls and has not looked since.
    pub(super) fn waited_until(&self, now: Instant) -> Duration {
        let end = self.made.front().map_or(now, |made| now.min(*made));
        self.waiting.map_or(Duration::ZERO, |(since, _)| end.saturating_duration_since(since))
    }
}

/// The time between two batches, in which the trainer does a step, or something else for much longer:
/// validation, a checkpoint.
#[derive(Debug, Default)]
pub(super) struct StepTimer {
    /// When the last batch was given out.
    pub(super) since: Option<Instant>,
    /// How long a step takes, smoothed.
    usual: Duration,
    /// Number of steps that were seen.
    seen: u32,
    /// The time that was longer than steps are.
    rested: Duration,
}

/// A gap between batches that is this many times as long as usual, and at least this long, is no step.
const REST: (u32, Duration) = (16, Duration::from_secs(1));
/// Number of steps after which it is known how long they take.
const KNOWN: u32 = 8;

impl StepTimer {
    /// The time that was longer than steps are, until now.
    pub(super) fn rested(&self, now: Instant) -> Duration {
        self.rested + self.rest(now)
    }

    /// How much longer than a step it has been since the last batch, if it was much longer.
    fn rest(&self, now: Instant) -> Duration {
        let time = self.since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        let is_rest = self.seen >= KNOWN && time > REST.1.max(self.usual * REST.0);
        if is_rest { time - self.usual } else { Duration::ZERO }
    }

    pub(super) fn asks(&mut self, now: Instant) {
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
            steps.asks(now);
            assert_eq!(steps.rested(now), resting, "it was counted before");
        };
        step(&mut steps, 30_000);
        assert_eq!(steps.rested, Duration::ZERO, "nothing is known of steps yet");
        (0..100).for_each(|_| step(&mut steps, 100));
        assert_eq!(steps.rested, Duration::ZERO);
        let usual = steps.usual;
        assert!((100..1000).contains(&usual.as_millis()), "{usual:?}");
        step(&mut steps, 60_000);
        assert_eq!((steps.rested, steps.usual), (Duration::from_secs(60) - usual, usual));
    }
}
