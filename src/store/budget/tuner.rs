//! How many requests are in flight at once: found out by trying, since nobody can tell beforehand what a
//! line, a store and a machine can do together.
//!
//! In the beginning the number doubles with every round until more of them bring no more bytes. From then on
//! a few more or a few less are tried now and then, and the smallest number is kept that loses nothing. Only
//! rounds count in which readers had to wait and more requests could have been sent.

use std::time::{Duration, Instant};

/// The number of requests in flight at the beginning, and when it is known that answers come from far away;
/// and never fewer than [`LEAST`].
const FIRST: usize = 1;
const FAR: usize = 16;
const LEAST: usize = 1;

/// Rounds in the beginning without a gain, after which there is none to be expected: where answers take time,
/// new connections are slow at first, so that one round says little.
const FLAT: u32 = 3;
/// Answers that begin sooner than this come from nearby.
pub(super) const NEAR: Duration = Duration::from_millis(5);
/// Rounds between two trials later.
const REST: u32 = 16;

#[derive(Debug)]
pub(super) struct Tuner {
    limit: usize,
    most: usize,
    phase: Phase,
    round: Option<Round>,
    far: bool,
    /// Whether a store has asked for fewer requests in this round.
    slowed: bool,
}

#[derive(Debug)]
struct Round {
    since: Instant,
    received: u64,
    /// Whether readers waited while more could have been asked for.
    starved: bool,
}

#[derive(Debug, Clone, Copy)]
enum Phase {
    /// The best rate so far, the limit under which it came, and the rounds since.
    Start { best: f64, at: usize, flat: u32 },
    /// Rounds until the next trial, and whether it is one of more.
    Rest { rounds: u32, more: bool },
    /// What was before the trial.
    Trial { limit: usize, rate: f64 },
}

impl Tuner {
    pub(super) fn new(most: usize) -> Self {
        let most = most.max(1);
        let phase = Phase::Start { best: 0.0, at: FIRST, flat: 0 };
        Tuner { limit: FIRST.min(most), most, phase, round: None, far: false, slowed: false }
    }

    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    /// Answers begin so long after their requests, by now. What was found out nearby says nothing of what is
    /// far.
    pub(super) fn answered(&mut self, first_byte: Duration) {
        let far = first_byte >= NEAR;
        if far && !self.far {
            self.limit = self.limit.max(FAR.min(self.most));
            self.phase = Phase::Start { best: 0.0, at: self.limit, flat: 0 };
            self.round = None;
        }
        // What wavers between the two is far: it begins but once.
        self.far = first_byte >= if self.far { NEAR / 2 } else { NEAR };
    }

    /// A store asks for fewer requests. Those that were sent before it did are answered alike: in a round it
    /// counts once.
    pub(super) fn throttled(&mut self) {
        if std::mem::replace(&mut self.slowed, true) {
            return;
        }
        self.limit = (self.limit / 2).max(LEAST).min(self.most);
        self.phase = Phase::Rest { rounds: REST, more: true };
        self.round = None;
    }

    /// What comes from now on says nothing of how many requests are of use: too little is left to ask for.
    pub(super) fn rest(&mut self) {
        self.round = None;
    }

    /// Takes note of what has been `received` in all by `now`, and whether readers are `starved`: they wait,
    /// and more could be asked for. `first_byte` is how long answers take to begin.
    /// Returns the limits before and after, if the limit was changed.
    pub(super) fn observe(
        &mut self,
        now: Instant,
        received: u64,
        starved: bool,
        first_byte: Duration,
    ) -> Option<(usize, usize)> {
        if first_byte.is_zero() {
            // There is nothing to compare before the first response.
            return None;
        }
        let round = self.round.get_or_insert(Round { since: now, received, starved });
        round.starved |= starved;
        let time = now.saturating_duration_since(round.since);
        let least = match self.phase {
            Phase::Start { .. } => Duration::from_millis(25).max(first_byte * 5 / 2),
            _ => Duration::from_millis(250).max(first_byte * 12),
        };
        if time < least {
            return None;
        }
        let rate = received.saturating_sub(round.received) as f64 / time.as_secs_f64();
        let starved = std::mem::take(&mut round.starved);
        (round.since, round.received) = (now, received);
        let patience = if first_byte < NEAR { 1 } else { FLAT };
        let before = self.limit;
        self.end_round(rate, starved, patience);
        (self.limit != before).then_some((before, self.limit))
    }

    fn end_round(&mut self, rate: f64, starved: bool, patience: u32) {
        self.slowed = false;
        let rest = |more| Phase::Rest { rounds: REST, more };
        // From nearby, what looks like a little more is noise.
        let gain = if patience == 1 { 1.25 } else { 1.1 };
        self.phase = match self.phase {
            Phase::Start { .. } if !starved => self.phase,
            // What comes from nearby comes at full speed at once, whatever the first round was.
            Phase::Start { best: 0.0, at, .. } if patience == 1 => {
                self.limit = (at * 2).min(self.most);
                Phase::Start { best: rate, at, flat: 0 }
            }
            Phase::Start { best, .. } if rate > best * gain => {
                let at = self.limit;
                self.limit = (at * 2).min(self.most);
                Phase::Start { best: rate, at, flat: 0 }
            }
            Phase::Start { best, at, flat } if flat + 1 < patience => {
                self.limit = (self.limit * 2).min(self.most);
                Phase::Start { best, at, flat: flat + 1 }
            }
            Phase::Start { at, .. } => {
                self.limit = at;
                rest(false)
            }
            Phase::Rest { rounds: 0, more: false } if !starved => {
                self.limit = fewer(self.limit);
                rest(true)
            }
            Phase::Rest { rounds: 0, more: true } if !starved => rest(false),
            Phase::Rest { rounds: 0, more } => {
                let before = self.limit;
                self.limit = if more { (before + before.div_ceil(4)).min(self.most) } else { fewer(before) };
                match self.limit == before {
                    true => rest(!more),
                    false => Phase::Trial { limit: before, rate },
                }
            }
            Phase::Rest { rounds, more } => Phase::Rest { rounds: rounds - 1, more },
            Phase::Trial { limit: before, rate: rate_before } => {
                let more = self.limit > before;
                let worth = if more { rate > rate_before * 1.05 } else { rate > rate_before * 0.98 };
                if !worth {
                    self.limit = before;
                }
                // What was worth it once is tried again in the same direction.
                match worth {
                    true => Phase::Rest { rounds: 0, more },
                    false => rest(!more),
                }
            }
        };
    }
}

fn fewer(limit: usize) -> usize {
    (limit - limit / 4).max(LEAST).min(limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plays `seconds` on a line that gives `rate` bytes per second for this many requests; gives what was
    /// received.
    fn play(tuner: &mut Tuner, seconds: f64, starved: bool, rate: impl Fn(usize) -> f64) -> f64 {
        play_at(Duration::from_millis(20), tuner, seconds, starved, rate)
    }

    fn play_at(
        first_byte: Duration,
        tuner: &mut Tuner,
        seconds: f64,
        starved: bool,
        rate: impl Fn(usize) -> f64,
    ) -> f64 {
        let begun = Instant::now();
        let mut received = 0.0;
        let steps = (seconds / 0.005) as u32;
        for step in 0..steps {
            received += rate(tuner.limit()) * 0.005;
            let now = begun + Duration::from_millis(5) * step;
            let _ = tuner.observe(now, received as u64, starved, first_byte);
        }
        tuner.round = None;
        received
    }

    #[test]
    fn slow_connections_are_added_up() {
        let mut tuner = Tuner::new(64);
        let capped = |limit: usize| limit as f64 * 50e6;
        let received = play(&mut tuner, 5.0, true, capped);
        assert!(tuner.limit() >= 48, "{tuner:?}");
        assert!(received > 0.85 * 5.0 * 64.0 * 50e6);
    }

    #[test]
    fn a_full_line_is_kept_full_by_few() {
        let mut tuner = Tuner::new(64);
        let line = |limit: usize| (limit as f64 * 50e6).min(125e6);
        let received = play(&mut tuner, 60.0, true, line);
        assert!((2..=4).contains(&tuner.limit()), "{tuner:?}");
        assert!(received > 0.98 * 60.0 * 125e6, "{received}");
    }

    #[test]
    fn what_nobody_waits_for_does_not_grow() {
        let mut tuner = Tuner::new(64);
        play(&mut tuner, 30.0, false, |_| 1e6);
        assert_eq!(tuner.limit(), FIRST);
    }

    #[test]
    fn a_change_of_the_line_is_found_out() {
        let mut tuner = Tuner::new(64);
        play(&mut tuner, 30.0, true, |limit| (limit as f64 * 50e6).min(125e6));
        let slow = |limit: usize| limit as f64 * 5e6;
        play(&mut tuner, 120.0, true, slow);
        assert!(tuner.limit() > 40, "{tuner:?}");
    }

    #[test]
    fn nearby_it_is_doubled_as_long_as_it_helps() {
        let near = Duration::from_millis(1);
        let mut tuner = Tuner::new(64);
        play_at(near, &mut tuner, 1.0, true, |limit| limit as f64 * 50e6);
        assert!(tuner.limit() >= 32, "{tuner:?}");
        let mut tuner = Tuner::new(64);
        play_at(near, &mut tuner, 1.0, true, |_| 2e9);
        assert_eq!(tuner.limit(), FIRST);
    }

    #[test]
    fn what_is_far_begins_with_many_whatever_was_nearby() {
        let mut tuner = Tuner::new(64);
        play(&mut tuner, 30.0, true, |_| 1e9);
        assert!(tuner.limit() < FAR, "{tuner:?}");
        tuner.answered(Duration::from_millis(20));
        assert_eq!(tuner.limit(), FAR);
        play(&mut tuner, 30.0, true, |_| 1e9);
        let few = tuner.limit();
        tuner.answered(Duration::from_millis(20));
        assert_eq!(tuner.limit(), few, "it is known");
    }

    #[test]
    fn the_time_before_the_first_answer_is_no_round() {
        let mut tuner = Tuner::new(64);
        tuner.answered(NEAR);
        play_at(Duration::ZERO, &mut tuner, 10.0, true, |_| 0.0);
        assert_eq!(tuner.limit(), FAR);
        play(&mut tuner, 5.0, true, |limit| limit as f64 * 50e6);
        assert!(tuner.limit() >= 48, "{tuner:?}");
    }

    #[test]
    fn a_busy_store_gets_fewer() {
        let mut tuner = Tuner::new(64);
        play(&mut tuner, 5.0, true, |limit| limit as f64 * 50e6);
        let before = tuner.limit();
        (0..20).for_each(|_| tuner.throttled());
        assert_eq!(tuner.limit(), before / 2, "all of them were sent before");
        for _ in 0..20 {
            play(&mut tuner, 0.5, true, |limit| limit as f64 * 50e6);
            tuner.throttled();
        }
        assert_eq!(tuner.limit(), LEAST);
    }

    #[test]
    fn one_connection_is_one() {
        let mut tuner = Tuner::new(1);
        play(&mut tuner, 10.0, true, |limit| limit as f64);
        tuner.throttled();
        assert_eq!(tuner.limit(), 1);
    }
}
