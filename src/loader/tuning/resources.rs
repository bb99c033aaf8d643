//! What a loader may use, and what of it the caller fixed.

use super::tuner::TuningLimits;
use crate::error::{ErrorKind, Result};
use std::thread;

/// One core in eight is left to the trainer.
const CORES_FOR_TRAINER: usize = 8;
/// Number of batches ahead where nothing else is known.
const PREFETCH: usize = 2;
/// No more are prepared ahead without being asked for.
const MOST_PREFETCH: usize = 32;
/// Nor of more bytes.
const PREFETCH_BYTES: u64 = 512 << 20;
/// No more threads than this are started for each core, nor than the next number in all, without being asked
/// for: those beyond the cores are for stages that wait for something else than a core.
const THREADS_PER_CORE: usize = 32;
const MOST_THREADS: usize = 256;

/// What a loader may use, and what of it the caller fixed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::loader) struct Resources {
    pub(in crate::loader) threads: Option<usize>,
    pub(in crate::loader) cores: Option<usize>,
    pub(in crate::loader) prefetch: Option<usize>,
    pub(in crate::loader) prefetch_bytes: Option<u64>,
}

impl Resources {
    /// # Errors
    /// [`ErrorKind::Config`] with what makes no sense.
    pub(in crate::loader) fn check(&self) -> Result<()> {
        let config = |what: &str| Err(ErrorKind::Config(what.into()).into());
        match self {
            Resources { prefetch: Some(0), .. } => {
                config("0 batches ahead: threads need room for at least 1")
            }
            Resources { cores: Some(0), .. } => {
                config("0 cores: give at least 1, or `threads(0)` for a loader without threads")
            }
            Resources { threads: Some(_), cores: Some(_), .. } => {
                config("`cores` bounds the number of threads that is chosen, and `threads` fixes it: set one")
            }
            Resources { prefetch: Some(_), prefetch_bytes: Some(_), .. } => config(
                "`prefetch_bytes` bounds the number of batches that is chosen, and `prefetch` fixes it: set \
                 one",
            ),
            _ => Ok(()),
        }
    }

    /// Number of threads that a loader begins with.
    pub(in crate::loader) fn threads(&self) -> usize {
        self.threads.unwrap_or_else(|| self.cores())
    }

    fn cores(&self) -> usize {
        let all = || thread::available_parallelism().map_or(1, usize::from);
        self.cores.unwrap_or_else(|| all() - all() / CORES_FOR_TRAINER)
    }

    /// Within what a tuner may choose.
    pub(super) fn limits(&self, batch_bytes: Option<u64>) -> TuningLimits {
        let (threads, cores) = (self.threads(), self.cores());
        let most = cores.saturating_mul(THREADS_PER_CORE).min(MOST_THREADS).max(threads);
        let prefetch = self.prefetch.unwrap_or(PREFETCH);
        let bytes = self.prefetch_bytes.unwrap_or(PREFETCH_BYTES);
        let fits = |batch: u64| usize::try_from(bytes / batch.max(1)).unwrap_or(usize::MAX);
        let batches = batch_bytes.map_or(prefetch, |batch| fits(batch).min(MOST_PREFETCH).max(prefetch));
        TuningLimits {
            cores,
            threads: (threads, if self.threads.is_some() { threads } else { most }),
            tunes_threads: self.threads.is_none(),
            prefetch: (prefetch, if self.prefetch.is_some() { prefetch } else { batches }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_fixed_is_not_tuned() {
        let fixed = Resources { threads: Some(3), prefetch: Some(64), ..Resources::default() };
        let limits = fixed.limits(Some(1));
        assert_eq!((limits.threads, limits.prefetch, limits.tunes_threads), ((3, 3), (64, 64), false));
    }

    #[test]
    fn batches_ahead_are_bounded_in_bytes() {
        let resources = Resources { cores: Some(2), prefetch_bytes: Some(1000), ..Resources::default() };
        let prefetch = |bytes| resources.limits(bytes).prefetch;
        assert_eq!(prefetch(Some(100)), (2, 10));
        assert_eq!(prefetch(Some(1)), (2, 32));
        assert_eq!(prefetch(Some(5000)), (2, 2), "two in any case");
        assert_eq!(prefetch(None), (2, 2), "nobody knows how large they are");
        assert_eq!(resources.limits(None).threads, (2, 64));
    }
}
