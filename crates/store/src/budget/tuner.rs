//! Tunes the number of requests in flight by trial, because the throughput of a network, a store and a
//! machine together is unknown beforehand.
//!
//! At first the limit doubles with every round of measurement, until more requests no longer increase the
//! throughput. After that, slightly higher and lower limits are tried now and then, and the smallest limit
//! without a loss of throughput is kept. A round counts as a measurement only if a reader waited while the
//! limit prevented a request.
//!
//! A request that a reader waits for is sent regardless of the limit. A limit below the number of waiting
//! readers therefore has no effect, and trials start from the number of requests in flight. For example, with
//! four readers, limits of 1 and 2 give the same throughput, and comparing them would end the start phase
//! at 1.

use std::time::{Duration, Instant};

/// Initial limit on requests in flight.
const INITIAL: usize = 1;
/// Limit once responses are known to come from far away.
const INITIAL_FAR: usize = 16;
/// Lowest limit.
const MIN: usize = 1;

/// The start phase ends after this many rounds without a gain. A single round is not conclusive, because new
/// connections to a distant store are slow at first.
const FLAT_ROUNDS: u32 = 3;
/// A store is nearby if its responses begin within this time.
pub(super) const NEAR: Duration = Duration::from_millis(5);
/// Number of rounds between two trials.
const ROUNDS_BETWEEN_TRIALS: u32 = 16;

#[derive(Debug)]
pub(super) struct ConcurrencyTuner {
    limit: usize,
    max: usize,
    phase: TuningPhase,
    round: Option<Round>,
    far: bool,
    /// Whether a store has asked for fewer requests in this round.
    throttled: bool,
}

/// A measurement of throughput.
#[derive(Debug)]
struct Round {
    since: Instant,
    /// Bytes received before the round.
    received: u64,
    /// Whether a reader waited while the limit prevented a request.
    starved: bool,
    /// Largest number of requests in flight.
    in_flight: usize,
}

#[derive(Debug, Clone, Copy)]
enum TuningPhase {
    /// The limit doubles. `best` is the highest rate so far in bytes per second, `at` the limit that gave it,
    /// and `flat` the number of rounds since then.
    Start { best: f64, at: usize, flat: u32 },
    /// The limit is constant for `rounds` rounds. The next trial then raises the limit if `more`, and lowers
    /// it otherwise.
    Hold { rounds: u32, more: bool },
    /// Another limit is tried. `limit` and `rate` are the limit and the rate before the trial.
    Trial { limit: usize, rate: f64 },
}

impl ConcurrencyTuner {
    pub(super) fn new(max: usize) -> Self {
        let max = max.max(1);
        let phase = TuningPhase::Start { best: 0.0, at: INITIAL, flat: 0 };
        ConcurrencyTuner { limit: INITIAL.min(max), max, phase, round: None, far: false, throttled: false }
    }

    /// A tuner that keeps its limit, for comparison.
    #[cfg(test)]
    pub(super) fn fixed(limit: usize) -> Self {
        let phase = TuningPhase::Hold { rounds: u32::MAX, more: true };
        ConcurrencyTuner { limit, max: limit, phase, round: None, far: true, throttled: false }
    }

    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    /// Records the average time to the first byte. If it shows that the store is far away, tuning starts
    /// again, since the results for a nearby store do not apply.
    pub(super) fn record_first_byte(&mut self, first_byte: Duration) {
        let far = first_byte >= NEAR;
        if far && !self.far {
            self.limit = self.limit.max(INITIAL_FAR.min(self.max));
            self.phase = TuningPhase::Start { best: 0.0, at: self.limit, flat: 0 };
            self.round = None;
        }
        // Hysteresis: an average that varies around the bound restarts the tuning only once.
        self.far = first_byte >= if self.far { NEAR / 2 } else { NEAR };
    }

    /// Halves the limit, since a store asks for fewer requests. Has an effect only once in a round, because
    /// the requests that were sent before the limit changed get the same response.
    pub(super) fn throttled(&mut self) {
        if std::mem::replace(&mut self.throttled, true) {
            return;
        }
        self.limit = (self.limit / 2).max(MIN).min(self.max);
        self.phase = TuningPhase::Hold { rounds: ROUNDS_BETWEEN_TRIALS, more: true };
        self.round = None;
    }

    /// Discards the current round, because too few bytes are left to measure the throughput.
    pub(super) fn discard_round(&mut self) {
        self.round = None;
    }

    /// Records the state of the transfers at the time `now`. `received` is the number of bytes received since
    /// the budget was made. `starved` is true if a reader waits while the limit prevents a request.
    /// `first_byte` is the average time to the first byte, and `in_flight` the number of requests in flight.
    ///
    /// Returns the old and the new limit, if the limit changed.
    pub(super) fn observe(
        &mut self,
        now: Instant,
        received: u64,
        starved: bool,
        first_byte: Duration,
        in_flight: usize,
    ) -> Option<(usize, usize)> {
        if first_byte.is_zero() {
            // Before the first response, there is nothing to measure.
            return None;
        }
        let round = self.round.get_or_insert(Round { since: now, received, starved, in_flight });
        round.starved |= starved;
        round.in_flight = round.in_flight.max(in_flight);
        let time = now.saturating_duration_since(round.since);
        let min_time = match self.phase {
            TuningPhase::Start { .. } => Duration::from_millis(25).max(first_byte * 5 / 2),
            _ => Duration::from_millis(250).max(first_byte * 12),
        };
        if time < min_time {
            return None;
        }
        let rate = received.saturating_sub(round.received) as f64 / time.as_secs_f64();
        let starved = std::mem::take(&mut round.starved);
        let in_flight = std::mem::replace(&mut round.in_flight, in_flight);
        (round.since, round.received) = (now, received);
        let max_flat = if first_byte < NEAR { 1 } else { FLAT_ROUNDS };
        let before = self.limit;
        self.end_round(rate, starved, max_flat, in_flight);
        (self.limit != before).then_some((before, self.limit))
    }

    fn end_round(&mut self, rate: f64, starved: bool, max_flat: u32, in_flight: usize) {
        self.throttled = false;
        let tried = self.limit.max(in_flight).min(self.max);
        let hold = |more| TuningPhase::Hold { rounds: ROUNDS_BETWEEN_TRIALS, more };
        // For a nearby store, a gain of less than a quarter is noise.
        let gain = if max_flat == 1 { 1.25 } else { 1.1 };
        self.phase = match self.phase {
            TuningPhase::Start { .. } if !starved => self.phase,
            // The store is nearby, and no earlier round received bytes. Such a round never ends the start
            // phase. A later round without a gain ends it, because connections to a nearby store reach full
            // speed at once.
            TuningPhase::Start { best: 0.0, .. } if max_flat == 1 => {
                self.limit = (tried * 2).min(self.max);
                TuningPhase::Start { best: rate, at: tried, flat: 0 }
            }
            TuningPhase::Start { best, .. } if rate > best * gain => {
                self.limit = (tried * 2).min(self.max);
                TuningPhase::Start { best: rate, at: tried, flat: 0 }
            }
            TuningPhase::Start { best, at, flat } if flat + 1 < max_flat => {
                self.limit = (self.limit * 2).min(self.max);
                TuningPhase::Start { best, at, flat: flat + 1 }
            }
            TuningPhase::Start { at, .. } => {
                self.limit = at;
                hold(false)
            }
            TuningPhase::Hold { rounds: 0, more: false } if !starved => {
                self.limit = fewer(self.limit);
                hold(true)
            }
            TuningPhase::Hold { rounds: 0, more: true } if !starved => hold(false),
            TuningPhase::Hold { rounds: 0, more } => {
                let before = self.limit;
                self.limit = if more { (tried + tried.div_ceil(4)).min(self.max) } else { fewer(before) };
                match self.limit == before {
                    true => hold(!more),
                    false => TuningPhase::Trial { limit: before, rate },
                }
            }
            TuningPhase::Hold { rounds, more } => TuningPhase::Hold { rounds: rounds - 1, more },
            TuningPhase::Trial { limit: before, rate: rate_before } => {
                let more = self.limit > before;
                let worth = if more { rate > rate_before * 1.05 } else { rate > rate_before * 0.98 };
                if !worth {
                    self.limit = before;
                }
                // After a success, another trial in the same direction follows at once.
                match worth {
                    true => TuningPhase::Hold { rounds: 0, more },
                    false => hold(!more),
                }
            }
        };
    }
}

fn fewer(limit: usize) -> usize {
    (limit - limit / 4).max(MIN).min(limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Simulates `seconds` on a network with a throughput of `rate(limit)` bytes per second for `limit`
    /// requests in flight. Returns the number of bytes received.
    fn simulate(
        tuner: &mut ConcurrencyTuner,
        seconds: f64,
        starved: bool,
        rate: impl Fn(usize) -> f64,
    ) -> f64 {
        simulate_at(Duration::from_millis(20), tuner, seconds, starved, rate)
    }

    fn simulate_at(
        first_byte: Duration,
        tuner: &mut ConcurrencyTuner,
        seconds: f64,
        starved: bool,
        rate: impl Fn(usize) -> f64,
    ) -> f64 {
        let start = Instant::now();
        let mut received = 0.0;
        let steps = (seconds / 0.005) as u32;
        for step in 0..steps {
            received += rate(tuner.limit()) * 0.005;
            let now = start + Duration::from_millis(5) * step;
            let _ = tuner.observe(now, received as u64, starved, first_byte, tuner.limit());
        }
        tuner.round = None;
        received
    }

    #[test]
    fn slow_connections_lead_to_more_requests() {
        let mut tuner = ConcurrencyTuner::new(64);
        let capped = |limit: usize| limit as f64 * 50e6;
        let received = simulate(&mut tuner, 5.0, true, capped);
        assert!(tuner.limit() >= 48, "{tuner:?}");
        assert!(received > 0.85 * 5.0 * 64.0 * 50e6);
    }

    #[test]
    fn a_saturated_network_gets_few_requests() {
        let mut tuner = ConcurrencyTuner::new(64);
        let network = |limit: usize| (limit as f64 * 50e6).min(125e6);
        let received = simulate(&mut tuner, 60.0, true, network);
        assert!((2..=4).contains(&tuner.limit()), "{tuner:?}");
        assert!(received > 0.98 * 60.0 * 125e6, "{received}");
    }

    #[test]
    fn the_limit_does_not_grow_while_no_reader_waits() {
        let mut tuner = ConcurrencyTuner::new(64);
        simulate(&mut tuner, 30.0, false, |_| 1e6);
        assert_eq!(tuner.limit(), INITIAL);
    }

    #[test]
    fn the_limit_adapts_to_a_change_of_the_network() {
        let mut tuner = ConcurrencyTuner::new(64);
        simulate(&mut tuner, 30.0, true, |limit| (limit as f64 * 50e6).min(125e6));
        let slow = |limit: usize| limit as f64 * 5e6;
        simulate(&mut tuner, 120.0, true, slow);
        assert!(tuner.limit() > 40, "{tuner:?}");
    }

    #[test]
    fn for_a_nearby_store_the_limit_doubles_as_long_as_it_helps() {
        let near = Duration::from_millis(1);
        let mut tuner = ConcurrencyTuner::new(64);
        simulate_at(near, &mut tuner, 1.0, true, |limit| limit as f64 * 50e6);
        assert!(tuner.limit() >= 32, "{tuner:?}");
        let mut tuner = ConcurrencyTuner::new(64);
        simulate_at(near, &mut tuner, 1.0, true, |_| 2e9);
        assert_eq!(tuner.limit(), INITIAL);
    }

    #[test]
    fn requests_that_readers_wait_for_count_as_tried() {
        // Four readers wait for data. Each may send a request whatever the limit, so at least four requests
        // are in flight.
        let in_flight = |limit: usize| limit.max(4);
        for first_byte in [Duration::from_millis(1), Duration::from_millis(20)] {
            let mut tuner = ConcurrencyTuner::new(64);
            let (start, mut received) = (Instant::now(), 0.0);
            for step in 0..1000 {
                received += in_flight(tuner.limit()) as f64 * 50e6 * 0.005;
                let now = start + Duration::from_millis(5) * step;
                let requests = in_flight(tuner.limit());
                let _ = tuner.observe(now, received as u64, true, first_byte, requests);
            }
            assert!(tuner.limit() >= 48, "{first_byte:?}: {tuner:?}");
        }
    }

    #[test]
    fn a_distant_store_starts_with_many_requests() {
        let mut tuner = ConcurrencyTuner::new(64);
        simulate(&mut tuner, 30.0, true, |_| 1e9);
        assert!(tuner.limit() < INITIAL_FAR, "{tuner:?}");
        tuner.record_first_byte(Duration::from_millis(20));
        assert_eq!(tuner.limit(), INITIAL_FAR);
        simulate(&mut tuner, 30.0, true, |_| 1e9);
        let few = tuner.limit();
        tuner.record_first_byte(Duration::from_millis(20));
        assert_eq!(tuner.limit(), few, "the store was far before");
    }

    #[test]
    fn no_round_ends_before_the_first_response() {
        let mut tuner = ConcurrencyTuner::new(64);
        tuner.record_first_byte(NEAR);
        simulate_at(Duration::ZERO, &mut tuner, 10.0, true, |_| 0.0);
        assert_eq!(tuner.limit(), INITIAL_FAR);
        simulate(&mut tuner, 5.0, true, |limit| limit as f64 * 50e6);
        assert!(tuner.limit() >= 48, "{tuner:?}");
    }

    #[test]
    fn a_throttling_store_gets_fewer_requests() {
        let mut tuner = ConcurrencyTuner::new(64);
        simulate(&mut tuner, 5.0, true, |limit| limit as f64 * 50e6);
        let before = tuner.limit();
        (0..20).for_each(|_| tuner.throttled());
        assert_eq!(tuner.limit(), before / 2, "all of them were sent before the change");
        for _ in 0..20 {
            simulate(&mut tuner, 0.5, true, |limit| limit as f64 * 50e6);
            tuner.throttled();
        }
        assert_eq!(tuner.limit(), MIN);
    }

    #[test]
    fn a_maximum_of_one_is_never_exceeded() {
        let mut tuner = ConcurrencyTuner::new(1);
        simulate(&mut tuner, 10.0, true, |limit| limit as f64);
        tuner.throttled();
        assert_eq!(tuner.limit(), 1);
    }
}
