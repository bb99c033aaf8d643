//! `Resources`: the numbers of threads, cores and batches ahead that the caller set, and their defaults.

use super::tuner::TuningLimits;
use crate::error::{ErrorKind, Result};
use std::thread;

/// By default, one core in this many is left to the trainer.
const CORES_PER_TRAINER_CORE: usize = 8;
/// Default number of batches ahead.
const DEFAULT_PREFETCH: usize = 2;
/// The largest number of batches ahead that tuning chooses.
const MAX_TUNED_PREFETCH: usize = 32;
/// Default bound of their bytes.
const DEFAULT_PREFETCH_BYTES: u64 = 512 << 20;
/// The largest number of threads per core that tuning chooses: those beyond the cores are for stages that
/// wait for something other than a core.
const MAX_TUNED_THREADS_PER_CORE: usize = 32;
/// The largest number of threads that tuning chooses.
const MAX_TUNED_THREADS: usize = 256;

/// The resources of a loader as the caller set them; none where tuning, or a default, applies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::loader) struct Resources {
    pub(in crate::loader) threads: Option<usize>,
    pub(in crate::loader) cores: Option<usize>,
    pub(in crate::loader) prefetch: Option<usize>,
    pub(in crate::loader) prefetch_bytes: Option<u64>,
}

impl Resources {
    /// Checks the options.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for a number of 0, and for two options of which one excludes the other.
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

    /// Number of threads that a loader starts with.
    pub(in crate::loader) fn threads(&self) -> usize {
        self.threads.unwrap_or_else(|| self.cores())
    }

    /// Number of cores that the threads may compute on.
    fn cores(&self) -> usize {
        let all = || thread::available_parallelism().map_or(1, usize::from);
        self.cores.unwrap_or_else(|| all() - all() / CORES_PER_TRAINER_CORE)
    }

    /// The bounds of what a tuner may choose, for batches of `batch_bytes` bytes, if that is known.
    pub(super) fn limits(&self, batch_bytes: Option<u64>) -> TuningLimits {
        let (threads, cores) = (self.threads(), self.cores());
        let most = cores.saturating_mul(MAX_TUNED_THREADS_PER_CORE).min(MAX_TUNED_THREADS).max(threads);
        let prefetch = self.prefetch.unwrap_or(DEFAULT_PREFETCH);
        let bytes = self.prefetch_bytes.unwrap_or(DEFAULT_PREFETCH_BYTES);
        let fits = |batch: u64| usize::try_from(bytes / batch.max(1)).unwrap_or(usize::MAX);
        let batches = batch_bytes.map_or(prefetch, |batch| fits(batch).min(MAX_TUNED_PREFETCH).max(prefetch));
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
        assert_eq!(prefetch(None), (2, 2), "their size is not known");
        assert_eq!(resources.limits(None).threads, (2, 64));
    }
}
