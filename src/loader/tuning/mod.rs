//! How many threads a run has and how many batches ahead: fixed by the caller, or tuned while it is under
//! way.
//!
//! ```text
//! resources  what a loader may use, and what of it the caller fixed
//! tuner      when to change what: a state machine that sees times and counts
//! machine    whether the machine has cores to spare
//! ```
//!
//! No choice has an influence on the order of the items.

mod machine;
mod resources;
mod tuner;

pub(super) use resources::Resources;
pub(super) use tuner::RunTotals;

use crate::error::Result;
use crate::telemetry::log;
use crate::wait;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Semaphore;
use tuner::{TuningLimits, Tuner};

/// What the runs of one loader have found out: the next one begins with it.
#[derive(Debug, Clone)]
pub(super) struct LearnedTuning(Arc<Mutex<LearnedChoices>>, TuningLimits);

#[derive(Debug)]
struct LearnedChoices {
    threads: usize,
    prefetch: usize,
    /// Before another number of threads is tried, where the last trial failed.
    patience: Option<u32>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl LearnedTuning {
    /// Nothing yet, of a loader whose batches have this many bytes, where that is known.
    pub(super) fn new(resources: &Resources, batch_bytes: Option<u64>) -> Self {
        let limits = resources.limits(batch_bytes);
        let found = LearnedChoices { threads: limits.threads.0, prefetch: limits.prefetch.0, patience: None };
        LearnedTuning(Arc::new(Mutex::new(found)), limits)
    }

    /// Begins a run.
    pub(super) fn begin(&self) -> Arc<Tuning> {
        let LearnedChoices { threads, prefetch, patience } = *lock(&self.0);
        let TuningLimits { threads: (_, most_threads), prefetch: (_, most), tunes_threads, .. } = self.1;
        let is_tuned = threads > 0 && (tunes_threads || most > prefetch);
        let limits = TuningLimits { threads: (threads, most_threads), prefetch: (prefetch, most), ..self.1 };
        Arc::new(Tuning {
            threads: AtomicUsize::new(threads),
            least_threads: if tunes_threads { threads.min(1) } else { threads },
            prefetch: AtomicUsize::new(prefetch),
            most_prefetch: most,
            room: (most > prefetch).then(|| Semaphore::new(prefetch)),
            tuner: is_tuned.then(|| Mutex::new(Tuner::new(limits, patience))),
            learned: Arc::clone(&self.0),
        })
    }
}

/// The choices of a run.
pub(super) struct Tuning {
    threads: AtomicUsize,
    least_threads: usize,
    prefetch: AtomicUsize,
    most_prefetch: usize,
    /// Places for batches that are ready, where their number may change.
    room: Option<Semaphore>,
    tuner: Option<Mutex<Tuner>>,
    learned: Arc<Mutex<LearnedChoices>>,
}

impl Tuning {
    /// Number of threads that read and map: 0 where the trainer's own does it.
    pub(super) fn threads(&self) -> usize {
        self.threads.load(Relaxed)
    }

    /// Without which a run cannot begin.
    pub(super) fn least_threads(&self) -> usize {
        self.least_threads
    }

    /// Number of batches that may be ready.
    pub(super) fn prefetch(&self) -> usize {
        self.prefetch.load(Relaxed)
    }

    /// The most batches that may ever be ready.
    pub(super) fn most_prefetch(&self) -> usize {
        self.most_prefetch
    }

    /// Waits until another batch may be ready.
    ///
    /// # Errors
    /// That this thread was interrupted.
    pub(super) fn wait_for_room(&self) -> Result<()> {
        if let Some(room) = &self.room
            && let Ok(place) = wait::block_on(room.acquire())?
        {
            place.forget();
        }
        Ok(())
    }

    /// The trainer took a batch.
    pub(super) fn took(&self) {
        if let Some(room) = &self.room {
            room.add_permits(1);
        }
    }

    /// No more threads than these could be started.
    pub(super) fn bound_threads(&self, threads: usize) {
        if let Some(tuner) = &self.tuner {
            lock(tuner).bound_threads(threads);
        }
        self.threads.store(threads, Relaxed);
        {
            let mut learned = lock(&self.learned);
            learned.threads = learned.threads.min(threads);
        }
        log!(WARN, "the loader has fewer threads than it wanted: no more can be started", threads = threads);
    }

    /// Looks at the run, and changes what should be changed. `seen` is only called if it is time to.
    pub(super) fn look(&self, seen: impl FnOnce() -> RunTotals) {
        let Some(tuner) = &self.tuner else { return };
        let mut tuner = lock(tuner);
        if !tuner.is_due() {
            return;
        }
        let change = tuner.see(RunTotals { idle_cores: machine::idle_cores(), ..seen() });
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

    /// Changes the choices. The number of batches ahead does not shrink.
    fn set(&self, threads: usize, prefetch: usize) {
        self.threads.store(threads, Relaxed);
        let before = self.prefetch.swap(prefetch, Relaxed);
        if let Some(room) = &self.room {
            room.add_permits(prefetch.saturating_sub(before));
        }
    }

    /// Chooses as a tuner might.
    #[cfg(test)]
    pub(super) fn choose(&self, threads: usize, prefetch: usize) {
        self.set(threads, prefetch.clamp(self.prefetch(), self.most_prefetch));
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
