//! The number of threads of a run, and the number of batches that the run prefetches. The caller fixes each
//! number, or the number is tuned during the run.
//!
//! ```text
//! resources  the numbers that the caller set, and the defaults
//! tuner      decides when to change a number: a state machine over times and counts
//! totals     the times and counts of a run
//! machine    the idle time of the machine's cores
//! ```
//!
//! The order of the items does not depend on these numbers.

mod machine;
mod resources;
mod totals;
mod tuner;

pub(super) use resources::Resources;
pub(super) use totals::RunTotals;

use crate::error::Result;
use crate::telemetry::log;
use crate::wait;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Semaphore;
use tuner::{RunTuner, TunedRange, TuningLimits};

/// The choices that the loader's earlier runs have made. The next run of the loader starts with them.
#[derive(Debug, Clone)]
pub(super) struct LearnedTuning {
    choices: Arc<Mutex<LearnedChoices>>,
    limits: TuningLimits,
}

/// The numbers with which the next run starts.
#[derive(Debug)]
struct LearnedChoices {
    threads: usize,
    prefetch: usize,
    /// As [`RunTuner::patience`].
    patience: Option<u32>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl LearnedTuning {
    /// The choices before the first run of a loader. `batch_bytes` is the size of a batch, if it is known.
    pub(super) fn new(resources: &Resources, batch_bytes: Option<u64>) -> Self {
        let limits = resources.limits(batch_bytes);
        let (threads, prefetch) = (limits.threads.start, limits.prefetch.start);
        let choices = LearnedChoices { threads, prefetch, patience: None };
        LearnedTuning { choices: Arc::new(Mutex::new(choices)), limits }
    }

    pub(super) fn begin(&self) -> Arc<Tuning> {
        let LearnedChoices { threads, prefetch, patience } = *lock(&self.choices);
        let TuningLimits { tunes_threads, .. } = self.limits;
        let max_prefetch = self.limits.prefetch.max;
        let is_tuned = threads > 0 && (tunes_threads || max_prefetch > prefetch);
        let limits = TuningLimits {
            threads: TunedRange { start: threads, ..self.limits.threads },
            prefetch: TunedRange { start: prefetch, ..self.limits.prefetch },
            ..self.limits
        };
        Arc::new(Tuning {
            threads: AtomicUsize::new(threads),
            min_threads: if tunes_threads { threads.min(1) } else { threads },
            has_one_thread: threads == 1 && !tunes_threads,
            prefetch: AtomicUsize::new(prefetch),
            max_prefetch,
            room: (max_prefetch > prefetch).then(|| Semaphore::new(prefetch)),
            tuner: is_tuned.then(|| Mutex::new(RunTuner::new(limits, patience))),
            learned: Arc::clone(&self.choices),
        })
    }
}

/// The current number of threads of a run, its number of prefetched batches, and its tuner.
pub(super) struct Tuning {
    threads: AtomicUsize,
    min_threads: usize,
    has_one_thread: bool,
    prefetch: AtomicUsize,
    max_prefetch: usize,
    /// Has one permit for each batch that may still be prepared. `None` if the number of prefetched batches
    /// is fixed.
    room: Option<Semaphore>,
    tuner: Option<Mutex<RunTuner>>,
    learned: Arc<Mutex<LearnedChoices>>,
}

impl Tuning {
    /// Number of worker threads; 0 if the trainer's thread reads and maps.
    pub(super) fn threads(&self) -> usize {
        self.threads.load(Relaxed)
    }

    /// Whether the number of worker threads is fixed to 1.
    pub(super) fn has_one_thread(&self) -> bool {
        self.has_one_thread
    }

    /// Minimum number of threads that a run needs to start.
    pub(super) fn min_threads(&self) -> usize {
        self.min_threads
    }

    /// The current limit on the number of ready batches that wait for the trainer.
    pub(super) fn prefetch(&self) -> usize {
        self.prefetch.load(Relaxed)
    }

    /// The highest value that [`prefetch`](Tuning::prefetch) can have during the run.
    pub(super) fn max_prefetch(&self) -> usize {
        self.max_prefetch
    }

    /// Waits until there is room for another ready batch.
    ///
    /// # Errors
    /// [`ErrorKind::Stopped`](crate::ErrorKind::Stopped) if this thread is interrupted.
    pub(super) fn wait_for_room(&self) -> Result<()> {
        if let Some(room) = &self.room
            && let Ok(permit) = wait::block_on(room.acquire())?
        {
            permit.forget();
        }
        Ok(())
    }

    /// Called when the trainer has taken a batch, which makes room for another ready batch.
    pub(super) fn batch_taken(&self) {
        if let Some(room) = &self.room {
            room.add_permits(1);
        }
    }

    /// Limits the number of threads to `threads`, because no more threads could be started.
    pub(super) fn bound_threads(&self, threads: usize) {
        if let Some(tuner) = &self.tuner {
            lock(tuner).bound_threads(threads);
        }
        self.threads.store(threads, Relaxed);
        {
            let mut learned = lock(&self.learned);
            learned.threads = learned.threads.min(threads);
        }
        log!(WARN, "the loader has fewer threads than requested", threads = threads);
    }

    /// Lets the tuner change the number of threads or of prefetched batches. `totals` is only called when an
    /// update is due.
    pub(super) fn update(&self, totals: impl FnOnce() -> RunTotals) {
        let Some(tuner) = &self.tuner else { return };
        let mut tuner = lock(tuner);
        if !tuner.is_due() {
            return;
        }
        let change = tuner.update(RunTotals { idle_cores: machine::idle_cores(), ..totals() });
        let (proven, patience) = (tuner.proven(), tuner.patience());
        let (threads, prefetch) = tuner.choices();
        drop(tuner);
        {
            let mut learned = lock(&self.learned);
            (learned.threads, learned.patience) = (proven, patience);
            learned.prefetch = learned.prefetch.max(prefetch);
        }
        if let Some(change) = change {
            let before = (self.threads(), self.prefetch());
            self.set(threads, prefetch);
            log!(
                INFO,
                "the loader was tuned",
                threads = threads,
                threads_before = before.0,
                prefetch = prefetch,
                prefetch_before = before.1,
                because = change
            );
        }
    }

    /// Sets the numbers of threads and of prefetched batches. `prefetch` must not be below its current value.
    fn set(&self, threads: usize, prefetch: usize) {
        self.threads.store(threads, Relaxed);
        let before = self.prefetch.swap(prefetch, Relaxed);
        if let Some(room) = &self.room {
            room.add_permits(prefetch.saturating_sub(before));
        }
    }

    /// Sets the numbers of threads and of prefetched batches, within the limits of a tuner.
    #[cfg(test)]
    pub(super) fn choose(&self, threads: usize, prefetch: usize) {
        self.set(threads, prefetch.clamp(self.prefetch(), self.max_prefetch));
    }
}

impl fmt::Debug for Tuning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (threads, prefetch) = (self.threads(), self.prefetch());
        f.debug_struct("Tuning")
            .field("threads", &threads)
            .field("prefetch", &prefetch)
            .finish_non_exhaustive()
    }
}
