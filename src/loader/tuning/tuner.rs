//! When to change the number of threads, or of batches ahead: a state machine that sees times and counts.
//!
//! - *Threads* are added where the trainer waits, the threads work all the time, and yet compute on less than the cores
//!   that they may have: their stages wait for something, such as a service or a slow disk. Twice as many are tried; they
//!   stay if the rate grows by a tenth. If not, the next trial comes later and later.
//! - *Batches ahead* are doubled where the trainer waits for some of them although others were ready before their time:
//!   the rate is enough, but not even.

use std::fmt;
use std::time::{Duration, Instant};

/// It decides after this time, or when each thread has had some samples.
const WINDOW: Duration = Duration::from_secs(1);
const LONGEST_WINDOW: Duration = Duration::from_secs(20);
const SAMPLES_PER_THREAD: u64 = 4;

/// A trainer that waits less than this share of the time does not wait.
const WAITS: f64 = 0.05;
/// Threads that work more than this share of their time have no time to spare.
const BUSY: f64 = 0.75;
/// Threads that compute on more than this share of their cores have no use for others.
const COMPUTES: f64 = 0.8;
/// By how much the rate must grow for more threads to stay.
const GAIN: f64 = 1.1;
/// After a trial that failed, this many windows pass without one; then twice as many, up to the second number.
const PATIENCE: (u32, u32) = (4, 64);

/// The thread that collects batches must have rested for this share of the time for the rate to be enough.
const ENOUGH: f64 = 0.1;
/// This share of the batches may be late.
const LATE: f64 = 0.02;

/// The smallest and the largest number of each that may be chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Limits {
    /// Number of cores that the threads may compute on.
    pub(super) cores: usize,
    pub(super) threads: (usize, usize),
    pub(super) prefetch: (usize, usize),
}

/// What a run has done so far.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::loader) struct Seen {
    pub(in crate::loader) elapsed: Duration,
    /// The trainer waited.
    pub(in crate::loader) waited: Duration,
    /// Threads worked, or had nothing to do.
    pub(in crate::loader) work: Duration,
    pub(in crate::loader) idle: Duration,
    /// The thread that collects had as many batches ready as it may.
    pub(in crate::loader) full: Duration,
    /// Samples that were mapped, and the time of cores that they took.
    pub(in crate::loader) samples: u64,
    pub(in crate::loader) cpu: Duration,
    /// Batches that were given out, and those of them that were waited for.
    pub(in crate::loader) batches: u64,
    pub(in crate::loader) late: u64,
}

impl Seen {
    fn since(&self, before: &Seen) -> Seen {
        Seen {
            elapsed: self.elapsed.saturating_sub(before.elapsed),
            waited: self.waited.saturating_sub(before.waited),
            work: self.work.saturating_sub(before.work),
            idle: self.idle.saturating_sub(before.idle),
            full: self.full.saturating_sub(before.full),
            samples: self.samples.saturating_sub(before.samples),
            cpu: self.cpu.saturating_sub(before.cpu),
            batches: self.batches.saturating_sub(before.batches),
            late: self.late.saturating_sub(before.late),
        }
    }

    /// The share of the time.
    fn share(&self, of: Duration) -> f64 {
        of.as_secs_f64() / self.elapsed.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    fn rate(&self) -> f64 {
        self.samples as f64 / self.elapsed.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    fn waits(&self) -> bool {
        self.share(self.waited) >= WAITS
    }
}

/// Why something was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    Blocked,
    NoGain,
    Uneven,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Change::Blocked => "the trainer waits, and the threads wait for something else than a core",
            Change::NoGain => "more threads were no faster",
            Change::Uneven => "some batches are late while others are early",
        })
    }
}

/// More threads that are being tried.
#[derive(Debug, Clone, Copy)]
struct Trial {
    /// How many there were, and their rate.
    from: usize,
    rate: f64,
    /// Whether the first window with them is over, in which they were started.
    is_settled: bool,
}

/// Decides when to change the number of threads, or of batches ahead.
#[derive(Debug)]
pub(super) struct Tuner {
    limits: Limits,
    threads: usize,
    prefetch: usize,
    at: Option<Instant>,
    before: Seen,
    trial: Option<Trial>,
    /// Windows without a trial.
    rest: u32,
    patience: u32,
}

impl Tuner {
    /// Begins with the first number of each.
    pub(super) fn new(limits: Limits) -> Self {
        Tuner {
            limits,
            threads: limits.threads.0,
            prefetch: limits.prefetch.0,
            at: None,
            before: Seen::default(),
            trial: None,
            rest: 0,
            patience: PATIENCE.0,
        }
    }

    /// The number of threads, and of batches ahead.
    pub(super) fn choices(&self) -> (usize, usize) {
        (self.threads, self.prefetch)
    }

    /// Whether it is time to look at the run.
    pub(super) fn is_due(&mut self) -> bool {
        let now = Instant::now();
        let is_due = now.saturating_duration_since(*self.at.get_or_insert(now)) >= WINDOW;
        if is_due {
            self.at = Some(now);
        }
        is_due
    }

    /// Looks at the run, and changes at most one of the two.
    pub(super) fn see(&mut self, seen: Seen) -> Option<Change> {
        let window = seen.since(&self.before);
        let few = window.samples < SAMPLES_PER_THREAD * self.threads as u64;
        if window.elapsed < WINDOW || few && window.elapsed < LONGEST_WINDOW {
            return None;
        }
        self.before = seen;
        // Of what has not moved at all nothing is to be learned.
        if window.samples == 0 {
            return None;
        }
        self.tune_threads(&window).or_else(|| self.tune_prefetch(&window))
    }

    fn tune_threads(&mut self, window: &Seen) -> Option<Change> {
        if let Some(trial) = &mut self.trial {
            if !trial.is_settled {
                trial.is_settled = true;
                return None;
            }
            let Trial { from, rate, .. } = *trial;
            self.trial = None;
            if window.waits() && window.rate() < GAIN * rate {
                (self.threads, self.rest) = (from, self.patience);
                self.patience = (self.patience * 2).min(PATIENCE.1);
                return Some(Change::NoGain);
            }
            self.patience = PATIENCE.0;
        }
        if self.rest > 0 {
            self.rest -= 1;
            return None;
        }
        let all = (window.work + window.idle).as_secs_f64();
        let is_busy = window.work.as_secs_f64() >= BUSY * all;
        let computes = window.share(window.cpu) >= COMPUTES * self.limits.cores as f64;
        let more = (self.threads * 2).min(self.limits.threads.1);
        if !window.waits() || !is_busy || computes || more <= self.threads {
            return None;
        }
        self.trial = Some(Trial { from: self.threads, rate: window.rate(), is_settled: false });
        self.threads = more;
        Some(Change::Blocked)
    }

    fn tune_prefetch(&mut self, window: &Seen) -> Option<Change> {
        let more = (self.prefetch * 2).min(self.limits.prefetch.1);
        let is_uneven =
            window.late as f64 > LATE * window.batches as f64 && window.share(window.full) >= ENOUGH;
        if !is_uneven || more <= self.prefetch {
            return None;
        }
        self.prefetch = more;
        Some(Change::Uneven)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { cores: 4, threads: (4, 64), prefetch: (2, 32) };

    /// A run whose samples take `cpu` and `wait` milliseconds each, and whose trainer takes `wanted` samples in a second.
    struct Model {
        cpu: f64,
        wait: f64,
        wanted: f64,
        /// More samples than this nobody gives in a second, such as a service.
        most: f64,
        seen: Seen,
    }

    impl Model {
        fn new(cpu: f64, wait: f64, wanted: f64) -> Self {
            Model { cpu, wait, wanted, most: f64::INFINITY, seen: Seen::default() }
        }

        /// The rate that so many threads can have.
        fn possible(&self, threads: usize) -> f64 {
            let of_cores = LIMITS.cores as f64 * 1000.0 / self.cpu;
            let of_threads = threads as f64 * 1000.0 / (self.cpu + self.wait);
            of_threads.min(of_cores).min(self.most)
        }

        /// What a second with so many threads adds.
        fn second(&mut self, threads: usize) -> Seen {
            let possible = self.possible(threads);
            let rate = possible.min(self.wanted);
            let seconds = Duration::from_secs_f64;
            self.seen.elapsed += seconds(1.0);
            self.seen.waited += seconds(if possible < self.wanted { 0.5 } else { 0.0 });
            self.seen.work += seconds(threads as f64 * rate / possible);
            self.seen.idle += seconds(threads as f64 * (1.0 - rate / possible));
            self.seen.full += seconds(1.0 - rate / possible);
            self.seen.samples += rate as u64;
            self.seen.cpu += seconds(rate * self.cpu / 1000.0);
            self.seen.batches += 10;
            self.seen
        }

        /// The number of threads in each of so many seconds.
        fn run(&mut self, seconds: usize) -> Vec<usize> {
            let mut tuner = Tuner::new(LIMITS);
            let mut second = || {
                let seen = self.second(tuner.threads);
                tuner.see(seen);
                tuner.threads
            };
            (0..seconds).map(|_| second()).collect()
        }
    }

    #[test]
    fn threads_that_wait_for_a_service_are_joined_by_others() {
        let threads = Model::new(0.1, 10.0, 1e9).run(60);
        assert_eq!(threads.last(), Some(&64), "{threads:?}");
        // Up to what the trainer takes, and no more.
        let mut model = Model::new(0.1, 10.0, 1200.0);
        let threads = *model.run(60).last().unwrap();
        assert!(model.possible(threads) >= 1200.0 && threads < 20, "{threads}");
    }

    #[test]
    fn threads_that_compute_stay_alone() {
        assert_eq!(Model::new(1.0, 0.1, 1e9).run(60), [4; 60]);
        // They share the cores with what they wait for: half of the time, and then no core is left.
        let threads = *Model::new(1.0, 1.0, 1e9).run(60).last().unwrap();
        assert!((6..=9).contains(&threads), "{threads}");
    }

    #[test]
    fn threads_that_are_no_use_go_and_are_tried_more_and_more_seldom() {
        let threads = Model { most: 100.0, ..Model::new(0.1, 10.0, 1e9) }.run(600);
        let trials = threads.windows(2).filter(|pair| pair[0] < pair[1]).count();
        assert!((3..=12).contains(&trials), "{trials} trials: {threads:?}");
        assert!(threads.iter().filter(|threads| **threads == 4).count() > 500);
    }

    #[test]
    fn threads_that_wait_for_bytes_stay_alone() {
        let mut tuner = Tuner::new(LIMITS);
        for second in 1..60 {
            let seconds = Duration::from_secs(second);
            let seen = Seen {
                elapsed: seconds,
                waited: seconds,
                work: seconds,
                idle: seconds * 3,
                samples: 100 * second,
                batches: second,
                late: second,
                ..Seen::default()
            };
            assert_eq!(tuner.see(seen), None);
        }
    }

    #[test]
    fn batches_that_are_late_by_chance_have_more_ahead() {
        let run = |full: u64, late: u64| {
            let mut tuner = Tuner::new(LIMITS);
            for second in 1..20 {
                let seconds = Duration::from_secs(second);
                let seen = Seen {
                    elapsed: seconds,
                    waited: Duration::from_millis(20 * second),
                    work: seconds * 2,
                    idle: seconds * 2,
                    full: Duration::from_millis(full * second),
                    samples: 1000 * second,
                    batches: 10 * second,
                    late: late * second,
                    ..Seen::default()
                };
                tuner.see(seen);
            }
            tuner.choices()
        };
        assert_eq!(run(300, 1), (4, 32));
        assert_eq!(run(300, 0), (4, 2), "none was late");
        assert_eq!(run(0, 1), (4, 2), "none was early: the rate is not enough");
    }

    #[test]
    fn few_samples_say_nothing_yet() {
        let mut tuner = Tuner::new(LIMITS);
        let blocked = |seconds: u64, samples: u64| {
            let elapsed = Duration::from_secs(seconds);
            Seen { elapsed, waited: elapsed, work: elapsed * 4, samples, ..Seen::default() }
        };
        assert_eq!(tuner.see(blocked(2, 15)), None);
        assert_eq!(tuner.see(blocked(3, 16)), Some(Change::Blocked));
        let mut tuner = Tuner::new(LIMITS);
        assert_eq!(tuner.see(blocked(19, 1)), None);
        assert_eq!(tuner.see(blocked(20, 1)), Some(Change::Blocked));
        let mut tuner = Tuner::new(LIMITS);
        assert_eq!(tuner.see(blocked(60, 0)), None, "it hangs");
    }
}
