//! `RunTuner`: decides when to change the number of threads or of prefetched batches. It is a state machine
//! over times and counts.
//!
//! - *More threads* are tried if the trainer waits, and all threads are busy although cores are idle. In that
//!   case, the stages wait for something, such as a service or a slow disk. A trial at most doubles the
//!   number of threads, and never exceeds the number of threads that would use all cores. The added threads
//!   are kept if the run gets faster. Otherwise they are removed. With each failed trial, the pause before
//!   the next trial doubles.
//! - *Fewer threads* are tried if there are more threads than cores, and no core is idle. In that case, a
//!   service or disk may have become faster, so that fewer threads suffice. The lower number of threads is
//!   kept if the run does not get slower.
//! - *The number of prefetched batches* is doubled if the trainer waits for some batches although other
//!   batches were ready early. In that case, the rate suffices, but it is uneven.

use super::totals::RunTotals;
use std::fmt;
use std::time::{Duration, Instant};

/// Time between two updates, and minimum length of a window.
const WINDOW: Duration = Duration::from_secs(1);
/// A window ends when it has [`ITEMS`] items, `ITEMS_PER_THREAD` items per thread and [`BATCHES`] batches; or
/// after [`MAX_WINDOW`].
const ITEMS_PER_THREAD: u64 = 4;
const ITEMS: u64 = 32;
const BATCHES: u64 = 4;
const MAX_WINDOW: Duration = Duration::from_secs(60);

/// If the trainer waits less than this share of the time, no threads are added.
const WAITING_TRAINER: f64 = 0.1;
/// If the trainer waits at least this share of the time, a window needs no minimum of batches, because the
/// rate of items hardly depends on the trainer's steps.
const STARVING_TRAINER: f64 = 0.5;
/// Threads are busy if they work at least this share of the time.
const BUSY: f64 = 0.75;
/// If the threads use this share of their cores, no threads are added.
const COMPUTE_BOUND: f64 = 0.8;
/// Threads are added only if at least this number of the machine's cores is idle.
const IDLE_CORES_TO_ADD: f64 = 0.25;
/// Surplus threads are removed only if at most this number of the machine's cores is idle.
const IDLE_CORES_TO_REMOVE: f64 = 0.1;
/// Added threads are kept if the rate grows by this factor. A smaller factor suffices if the trainer waits
/// little.
const GAIN: f64 = 1.1;
/// After a reduction, the lower number of threads is kept if the rate is at least this share of the rate
/// before the reduction.
const KEPT: f64 = 0.97;
/// The number of threads grows at least by this factor.
const MIN_STEP: f64 = 1.25;
/// A trial succeeds if this number of windows in a row reaches the needed rate. One window is enough if its
/// rate is at least [`CLEAR`] times the needed rate.
const CONFIRMATIONS: u32 = 2;
const CLEAR: f64 = 1.3;
/// Number of windows without a trial after the first failed trial. It doubles with each further failed trial,
/// up to [`MAX_PATIENCE`].
const MIN_PATIENCE: u32 = 4;
const MAX_PATIENCE: u32 = 64;

/// The rate suffices if the collecting thread was idle for this share of the time.
const SUFFICIENT_IDLE: f64 = 0.1;
/// More batches are prefetched if at least two batches, and more than this share of all batches, are late.
const LATE: f64 = 0.02;
/// Number of batches over which late batches are counted.
const LATE_WINDOW: u64 = 50;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TunedRange {
    /// The number with which a run starts.
    pub(super) start: usize,
    pub(super) max: usize,
}

/// The limits of the numbers that a tuner chooses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TuningLimits {
    /// Number of cores that the threads may use.
    pub(super) cores: usize,
    pub(super) threads: TunedRange,
    /// Whether the number of threads may be changed.
    pub(super) tunes_threads: bool,
    pub(super) prefetch: TunedRange,
}

/// A change, named by its reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    /// More threads, because the stages wait for something other than a core.
    Blocked,
    /// Back to fewer threads, because the run was not faster with more threads.
    NoGain,
    /// Fewer threads, because there are more threads than cores.
    Crowded,
    /// Back to more threads, because the run was slower with fewer threads.
    Slower,
    /// More prefetched batches, because some batches are late while other batches are early.
    Uneven,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Change::Blocked => "the trainer waits, and the threads wait for something other than a core",
            Change::NoGain => "more threads were not faster",
            Change::Crowded => "no core is idle, and there are more threads than cores",
            Change::Slower => "fewer threads were slower",
            Change::Uneven => "some batches are late while others are early",
        })
    }
}

/// A number of threads that is being tried.
#[derive(Debug, Clone, Copy)]
struct Trial {
    /// The number of threads before the trial.
    from: usize,
    /// Minimum rate to keep the new number of threads, in items per second.
    needed: f64,
    /// Whether the first window of the trial has ended. That window does not count, because threads were
    /// started in it.
    is_settled: bool,
    /// Number of windows with the needed rate.
    confirmed: u32,
}

#[derive(Debug)]
pub(super) struct RunTuner {
    limits: TuningLimits,
    threads: usize,
    prefetch: usize,
    last_update: Option<Instant>,
    /// The totals at the start of the current window; `None` before the first batch.
    window_start: Option<RunTotals>,
    /// The totals at the start of the window in which late batches are counted.
    late_window_start: Option<RunTotals>,
    trial: Option<Trial>,
    /// Number of windows before the next trial may start.
    pause: u32,
    /// The pause after the next failed trial, in windows.
    patience: u32,
}

impl RunTuner {
    /// A tuner with the start values of `limits`, and the patience that an earlier run has learned.
    pub(super) fn new(limits: TuningLimits, patience: Option<u32>) -> Self {
        RunTuner {
            limits,
            threads: limits.threads.start,
            prefetch: limits.prefetch.start,
            last_update: None,
            window_start: None,
            late_window_start: None,
            trial: None,
            pause: patience.unwrap_or(0),
            patience: patience.unwrap_or(MIN_PATIENCE),
        }
    }

    /// The chosen number of threads, and of prefetched batches.
    pub(super) fn choices(&self) -> (usize, usize) {
        (self.threads, self.prefetch)
    }

    /// The number of threads, or during a trial the number before the trial.
    pub(super) fn proven(&self) -> usize {
        self.trial.map_or(self.threads, |trial| trial.from)
    }

    /// The pause after the next failed trial, in windows; `None` if the last trial did not fail.
    pub(super) fn patience(&self) -> Option<u32> {
        Some(self.patience).filter(|patience| *patience > MIN_PATIENCE)
    }

    /// Limits the number of threads to `threads`, because no more threads could be started.
    pub(super) fn bound_threads(&mut self, threads: usize) {
        self.threads = self.threads.min(threads);
        self.limits.threads.max = self.limits.threads.max.min(threads);
        self.trial = None;
    }

    pub(super) fn is_due(&mut self) -> bool {
        let now = Instant::now();
        let is_due = now.saturating_duration_since(*self.last_update.get_or_insert(now)) >= WINDOW;
        if is_due {
            self.last_update = Some(now);
        }
        is_due
    }

    /// Changes the number of threads, the number of prefetched batches, or neither, according to the totals
    /// of the run.
    pub(super) fn update(&mut self, totals: RunTotals) -> Option<Change> {
        // The time before the first batch does not count: connections are opened and buffers are filled.
        if totals.batches == 0 {
            return None;
        }
        let start = *self.window_start.get_or_insert(totals);
        let late_start = *self.late_window_start.get_or_insert(totals);
        if !totals.since(&start).rested.is_zero() {
            // The rate during validation or a checkpoint says nothing about the loader.
            (self.window_start, self.late_window_start) = (Some(totals), Some(totals));
            return None;
        }
        let window = totals.since(&start);
        if is_complete(&window, self.threads) {
            self.window_start = Some(totals);
            // If no item arrived in this window, the run is stuck, and more threads would not help.
            if window.items > 0
                && let Some(change) = self.tune_threads(&window)
            {
                self.late_window_start = Some(totals);
                return Some(change);
            }
        }
        let window = totals.since(&late_start);
        if self.trial.is_some() || window.batches < LATE_WINDOW && window.elapsed < MAX_WINDOW {
            return None;
        }
        self.late_window_start = Some(totals);
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
                if is_clear || trial.confirmed == CONFIRMATIONS {
                    (self.trial, self.patience) = (None, MIN_PATIENCE);
                }
                return None;
            }
            let change = if trial.from < self.threads { Change::NoGain } else { Change::Slower };
            (self.threads, self.pause) = (trial.from, self.patience);
            self.patience = (self.patience * 2).min(MAX_PATIENCE);
            self.trial = None;
            return Some(change);
        }
        if self.pause > 0 {
            self.pause -= 1;
            return None;
        }
        let idle_cores = window.idle_cores.map(|idle| window.share(idle));
        let (cores, now) = (self.limits.cores as f64, self.threads as f64);
        let computing = window.share(window.cpu);
        let (threads, change, needed) = if self.threads > self.limits.cores
            && idle_cores.is_some_and(|idle| idle <= IDLE_CORES_TO_REMOVE)
        {
            ((self.threads / 2).max(self.limits.cores), Change::Crowded, KEPT)
        } else {
            let is_busy = window.share(window.work) >= BUSY * now;
            let has_room = idle_cores.is_none_or(|idle| idle >= IDLE_CORES_TO_ADD) && !window.is_memory_full;
            let is_waiting = window.waits() >= WAITING_TRAINER;
            if !is_waiting || !is_busy || !has_room || computing >= COMPUTE_BOUND * cores {
                return None;
            }
            // The number of threads that would use all cores.
            let fit = now * cores / computing.max(cores / (2.0 * now));
            let more = (self.threads * 2).min(fit as usize).min(self.limits.threads.max);
            // If the trainer waits little, the rate can grow only a little. Half of the possible growth then
            // suffices to keep the added threads.
            let gain = 1.0 + ((1.0 / (1.0 - window.waits().min(0.9)) - 1.0) / 2.0).min(GAIN - 1.0);
            (more, Change::Blocked, gain)
        };
        if (threads as f64) < MIN_STEP * now && threads >= self.threads {
            return None;
        }
        let needed = needed * window.rate();
        self.trial = Some(Trial { from: self.threads, needed, is_settled: false, confirmed: 0 });
        self.threads = threads;
        Some(change)
    }

    fn tune_prefetch(&mut self, window: &RunTotals) -> Option<Change> {
        let more = (self.prefetch * 2).min(self.limits.prefetch.max);
        let is_late = window.late > 1 && window.late as f64 > LATE * window.batches as f64;
        if !is_late || window.share(window.full) < SUFFICIENT_IDLE || more <= self.prefetch {
            return None;
        }
        self.prefetch = more;
        Some(Change::Uneven)
    }
}

/// Whether a window is long enough to judge this number of threads by the window's rate.
fn is_complete(window: &RunTotals, threads: usize) -> bool {
    let batches = window.batches >= BATCHES || window.waits() >= STARVING_TRAINER;
    let items = window.items >= ITEMS.max(ITEMS_PER_THREAD * threads as u64);
    window.elapsed >= WINDOW && batches && items || window.elapsed >= MAX_WINDOW
}

#[cfg(test)]
mod tests;
