//! How many threads a run has and how many batches ahead: fixed by the caller, or tuned while it is under way.
//!
//! ```text
//! resources  what a loader may use, and what of it the caller fixed
//! tuner      when to change what: a state machine that sees times and counts
//! ```
//!
//! No choice has an influence on the order of the items.

mod resources;
mod tuner;

pub(super) use resources::Resources;
pub(super) use tuner::Seen;

use crate::error::Result;
use crate::telemetry::log;
use crate::wait;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Semaphore;
use tuner::{Change, Limits, Tuner};

/// What the runs of one loader have found out: the next one begins with it.
#[derive(Debug, Clone)]
pub(super) struct Learned(Arc<Choices>, Limits);

/// The choices at the moment.
#[derive(Debug)]
struct Choices {
    threads: AtomicUsize,
    prefetch: AtomicUsize,
}

impl Choices {
    fn new(threads: usize, prefetch: usize) -> Self {
        Choices { threads: AtomicUsize::new(threads), prefetch: AtomicUsize::new(prefetch) }
    }

    fn get(&self) -> (usize, usize) {
        (self.threads.load(Relaxed), self.prefetch.load(Relaxed))
    }

    fn set(&self, (threads, prefetch): (usize, usize)) {
        self.threads.store(threads, Relaxed);
        self.prefetch.store(prefetch, Relaxed);
    }
}

impl Learned {
    /// Nothing yet, of a loader whose batches have this many bytes, where that is known.
    pub(super) fn new(resources: &Resources, batch_bytes: Option<u64>) -> Self {
        let limits = resources.limits(batch_bytes);
        Learned(Arc::new(Choices::new(limits.threads.0, limits.prefetch.0)), limits)
    }

    /// Begins a run.
    pub(super) fn begin(&self) -> Arc<Tuning> {
        let (threads, prefetch) = self.0.get();
        let Limits { threads: (_, most_threads), prefetch: (_, most), .. } = self.1;
        let is_tuned = threads > 0 && (most_threads > threads || most > prefetch);
        let limits = Limits { threads: (threads, most_threads), prefetch: (prefetch, most), ..self.1 };
        Arc::new(Tuning {
            choices: Choices::new(threads, prefetch),
            most_prefetch: most,
            room: (most > prefetch).then(|| Semaphore::new(prefetch)),
            tuner: is_tuned.then(|| Mutex::new(Tuner::new(limits))),
            learned: Arc::clone(&self.0),
        })
    }
}

/// The choices of a run.
pub(super) struct Tuning {
    choices: Choices,
    most_prefetch: usize,
    /// Places for batches that are ready, where their number may change.
    room: Option<Semaphore>,
    tuner: Option<Mutex<Tuner>>,
    learned: Arc<Choices>,
}

impl Tuning {
    /// Number of threads that read and map: 0 where the trainer's own does it.
    pub(super) fn threads(&self) -> usize {
        self.choices.threads.load(Relaxed)
    }

    /// Number of batches that may be ready.
    pub(super) fn prefetch(&self) -> usize {
        self.choices.prefetch.load(Relaxed)
    }

    /// The most batches that may ever be ready.
    pub(super) fn most_prefetch(&self) -> usize {
        self.most_prefetch
    }

    /// Chooses as a tuner might.
    #[cfg(test)]
    pub(super) fn choose(&self, threads: usize, prefetch: usize) {
        self.change(Change::Blocked, (threads, prefetch.clamp(self.prefetch(), self.most_prefetch)));
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

    /// Looks at the run, and changes what should be changed. `seen` is only called if there is something to decide.
    pub(super) fn look(&self, seen: impl FnOnce() -> Seen) {
        let Some(tuner) = &self.tuner else { return };
        let mut tuner = tuner.lock().unwrap_or_else(PoisonError::into_inner);
        if !tuner.is_due() {
            return;
        }
        if let Some(change) = tuner.see(seen()) {
            let choices = tuner.choices();
            drop(tuner);
            self.change(change, choices);
        }
    }

    fn change(&self, change: Change, choices: (usize, usize)) {
        let before = self.choices.get();
        self.choices.set(choices);
        self.learned.set(choices);
        if let Some(room) = &self.room {
            room.add_permits(choices.1.saturating_sub(before.1));
        }
        log!(
            INFO,
            "the loader was tuned",
            threads = choices.0,
            threads_before = before.0,
            prefetch = choices.1,
            prefetch_before = before.1,
            because = change
        );
    }
}

impl fmt::Debug for Tuning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tuning").field("choices", &self.choices).finish_non_exhaustive()
    }
}
