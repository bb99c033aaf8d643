//! When to change the number of threads, or of batches ahead: a state machine that sees times and counts.
//!
//! - *More threads* are tried where the trainer waits, the threads work all the time, and yet cores are idle:
//!   the stages wait for something, such as a service or a slow disk. Up to twice as many are tried, as far
//!   as the cores will do. They stay if that makes the run faster. If not, the next trial comes later and
//!   later.
//! - *Fewer threads* are tried where there are more than cores to compute on, and none is idle: what they
//!   waited for may come at once by now. They stay if that does not make the run slower.
//! - *Batches ahead* are doubled where the trainer waits for some of them although others were ready before
//!   their time: the rate is enough, but not even.

use std::fmt;
use std::time::{Duration, Instant};

/// It looks this often.
const WINDOW: Duration = Duration::from_secs(1);
/// And decides when there were as many items, for each thread and in all, and as many batches; or after so
/// long.
const ITEMS_PER_THREAD: u64 = 4;
const ITEMS: u64 = 32;
const BATCHES: u64 = 4;
const LONGEST_WINDOW: Duration = Duration::from_secs(60);

/// A trainer that waits less than this share of the time has no need of more threads.
const WAITS: f64 = 0.1;
/// A trainer that waits longer than this has a rate that does not depend on its steps.
const STARVES: f64 = 0.5;
/// Threads that work more than this share of their time have none to spare.
const BUSY: f64 = 0.75;
/// Threads that compute on more than this share of their cores have no use for others.
const COMPUTES: f64 = 0.8;
/// Number of idle cores of the machine from which there is room for more, and up to which there is none.
const IDLE: (f64, f64) = (0.25, 0.1);
/// By how much the rate must grow for more threads to stay.
const GAIN: f64 = 1.1;
/// How much of it must be left for fewer to stay.
const KEPT: f64 = 0.97;
/// A change to less than this many times as many threads is none.
const STEP: f64 = 1.25;
/// Number of windows that all must have the rate, unless it is this many times as much as is needed.
const CONFIRMED: u32 = 2;
const CLEAR: f64 = 1.3;
/// After a trial that failed, this many windows pass without one; then twice as many, up to the second
/// number.
const PATIENCE: (u32, u32) = (4, 64);

/// The thread that collects batches must have rested for this share of the time for the rate to be enough.
const ENOUGH: f64 = 0.1;
/// This share of the batches may be late, of at least this number; one may always be.
const LATE: f64 = 0.02;
const MANY_BATCHES: u64 = 50;

/// The number of each that a run begins with, and the largest that may be chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TuningLimits {
    /// Number of cores that the threads may compute on.
    pub(super) cores: usize,
    pub(super) threads: (usize, usize),
    /// Whether the number of threads may be changed.
    pub(super) tunes_threads: bool,
    pub(super) prefetch: (usize, usize),
}

/// What a run has done so far.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::loader) struct RunTotals {
    pub(in crate::loader) elapsed: Duration,
    /// The trainer waited, or did something else than steps.
    pub(in crate::loader) waited: Duration,
    pub(in crate::loader) rested: Duration,
    /// Threads worked.
    pub(in crate::loader) work: Duration,
    /// The thread that collects had as many batches ready as it may.
    pub(in crate::loader) full: Duration,
    /// Items that came of the stages, and the time of cores that they took.
    pub(in crate::loader) items: u64,
    pub(in crate::loader) cpu: Duration,
    /// Cores of the machine were idle, or at work of a lower priority, where that is known.
    pub(in crate::loader) idle_cores: Option<Duration>,
    /// Batches that were given out, and those of them that were waited for.
    pub(in crate::loader) batches: u64,
    pub(in crate::loader) late: u64,
    /// Whether there is no memory for more samples at the moment.
    pub(in crate::loader) is_full: bool,
}

impl RunTotals {
    fn since(&self, before: &RunTotals) -> RunTotals {
        let idle_cores = self.idle_cores.zip(before.idle_cores);
        RunTotals {
            elapsed: self.elapsed.saturating_sub(before.elapsed),
            waited: self.waited.saturating_sub(before.waited),
            rested: self.rested.saturating_sub(before.rested),
            work: self.work.saturating_sub(before.work),
            full: self.full.saturating_sub(before.full),
            items: self.items.saturating_sub(before.items),
            cpu: self.cpu.saturating_sub(before.cpu),
            idle_cores: idle_cores.map(|(now, before)| now.saturating_sub(before)),
            batches: self.batches.saturating_sub(before.batches),
            late: self.late.saturating_sub(before.late),
            is_full: self.is_full,
        }
    }

    /// The share of the time; of what several do at once, how many did.
    fn share(&self, of: Duration) -> f64 {
        of.as_secs_f64() / self.elapsed.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    fn rate(&self) -> f64 {
        self.items as f64 / self.elapsed.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    fn waits(&self) -> f64 {
        self.share(self.waited)
    }

    /// Whether its rates say anything, for this number of threads.
    fn is_enough(&self, threads: usize) -> bool {
        let batches = self.batches >= BATCHES || self.waits() >= STARVES;
        let items = self.items >= ITEMS.max(ITEMS_PER_THREAD * threads as u64);
        self.elapsed >= WINDOW && batches && items || self.elapsed >= LONGEST_WINDOW
    }
}

/// Why something was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    Blocked,
    NoGain,
    Crowded,
    Slower,
    Uneven,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Change::Blocked => "the trainer waits, and the threads wait for something else than a core",
            Change::NoGain => "more threads were no faster",
            Change::Crowded => "no core is idle, and there are more threads than cores",
            Change::Slower => "fewer threads were slower",
            Change::Uneven => "some batches are late while others are early",
        })
    }
}

/// Another number of threads that is being tried.
#[derive(Debug, Clone, Copy)]
struct Trial {
    /// How many there were.
    from: usize,
    /// The rate that is needed for the new number to stay.
    needed: f64,
    /// Whether the first window is over, in which threads were started.
    is_settled: bool,
    /// Windows with that rate.
    confirmed: u32,
}

/// Decides when to change the number of threads, or of batches ahead.
#[derive(Debug)]
pub(super) struct Tuner {
    limits: TuningLimits,
    threads: usize,
    prefetch: usize,
    at: Option<Instant>,
    /// Where the window began; none before the first batch.
    before: Option<RunTotals>,
    /// The same for batches that are late.
    even: Option<RunTotals>,
    trial: Option<Trial>,
    /// Windows without a trial.
    rest: u32,
    patience: u32,
}

impl Tuner {
    /// Begins with the first number of each, and as much patience as was learned.
    pub(super) fn new(limits: TuningLimits, patience: Option<u32>) -> Self {
        Tuner {
            limits,
            threads: limits.threads.0,
            prefetch: limits.prefetch.0,
            at: None,
            before: None,
            even: None,
            trial: None,
            rest: patience.unwrap_or(0),
            patience: patience.unwrap_or(PATIENCE.0),
        }
    }

    /// The number of threads, and of batches ahead.
    pub(super) fn choices(&self) -> (usize, usize) {
        (self.threads, self.prefetch)
    }

    /// The number of threads that is known to be of use.
    pub(super) fn proven(&self) -> usize {
        self.trial.map_or(self.threads, |trial| trial.from)
    }

    /// How long to wait before the next trial, if the last one failed.
    pub(super) fn patience(&self) -> Option<u32> {
        Some(self.patience).filter(|patience| *patience > PATIENCE.0)
    }

    /// No more threads than these could be started.
    pub(super) fn bound_threads(&mut self, threads: usize) {
        self.threads = self.threads.min(threads);
        self.limits.threads.1 = self.limits.threads.1.min(threads);
        self.trial = None;
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
    pub(super) fn see(&mut self, seen: RunTotals) -> Option<Change> {
        // Until the first batch comes, connections are opened and buffers filled.
        if seen.batches == 0 {
            return None;
        }
        let (before, even) = (*self.before.get_or_insert(seen), *self.even.get_or_insert(seen));
        if !seen.since(&before).rested.is_zero() {
            // Of validation or a checkpoint nothing is to be learned.
            (self.before, self.even) = (Some(seen), Some(seen));
            return None;
        }
        let window = seen.since(&before);
        if window.is_enough(self.threads) {
            self.before = Some(seen);
            // A run that hangs says nothing.
            if window.items > 0
                && let Some(change) = self.tune_threads(&window)
            {
                self.even = Some(seen);
                return Some(change);
            }
        }
        let window = seen.since(&even);
        if self.trial.is_some() || window.batches < MANY_BATCHES && window.elapsed < LONGEST_WINDOW {
            return None;
        }
        self.even = Some(seen);
        self.tune_prefetch(&window)
    }

    fn tune_threads(&mut self, window: &RunTotals) -> Option<Change> {
        if !self.limits.tunes_threads {
            return None;
        }
        if let Some(trial) = &mut self.trial {
            if !trial.is_settled {
                trial.is_settled = true;
                return None;
            }
            if window.rate() >= trial.needed {
                trial.confirmed += 1;
                let is_clear = trial.from < self.threads && window.rate() >= CLEAR * trial.needed;
                if is_clear || trial.confirmed == CONFIRMED {
                    (self.trial, self.patience) = (None, PATIENCE.0);
                }
                return None;
            }
            let change = if trial.from < self.threads { Change::NoGain } else { Change::Slower };
            (self.threads, self.rest) = (trial.from, self.patience);
            self.patience = (self.patience * 2).min(PATIENCE.1);
            self.trial = None;
            return Some(change);
        }
        if self.rest > 0 {
            self.rest -= 1;
            return None;
        }
        let idle_cores = window.idle_cores.map(|idle| window.share(idle));
        let (most, now) = (self.limits.cores as f64, self.threads as f64);
        let computing = window.share(window.cpu);
        let (threads, change, needed) =
            if self.threads > self.limits.cores && idle_cores.is_some_and(|idle| idle <= IDLE.1) {
                ((self.threads / 2).max(self.limits.cores), Change::Crowded, KEPT)
            } else {
                let is_busy = window.share(window.work) >= BUSY * now;
                let has_room = idle_cores.is_none_or(|idle| idle >= IDLE.0) && !window.is_full;
                if window.waits() < WAITS || !is_busy || !has_room || computing >= COMPUTES * most {
                    return None;
                }
                // As many as the cores will do for.
                let fit = now * most / computing.max(most / (2.0 * now));
                let more = (self.threads * 2).min(fit as usize).min(self.limits.threads.1);
                // A trainer that waits a tenth of the time cannot get a tenth more.
                let gain = 1.0 + ((1.0 / (1.0 - window.waits().min(0.9)) - 1.0) / 2.0).min(GAIN - 1.0);
                (more, Change::Blocked, gain)
            };
        if (threads as f64) < STEP * now && threads >= self.threads {
            return None;
        }
        let needed = needed * window.rate();
        self.trial = Some(Trial { from: self.threads, needed, is_settled: false, confirmed: 0 });
        self.threads = threads;
        Some(change)
    }

    fn tune_prefetch(&mut self, window: &RunTotals) -> Option<Change> {
        let more = (self.prefetch * 2).min(self.limits.prefetch.1);
        let is_late = window.late > 1 && window.late as f64 > LATE * window.batches as f64;
        if !is_late || window.share(window.full) < ENOUGH || more <= self.prefetch {
            return None;
        }
        self.prefetch = more;
        Some(Change::Uneven)
    }
}

#[cfg(test)]
mod tests;
