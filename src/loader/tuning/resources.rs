//! `Resources`: the numbers of threads, cores and prefetched batches that the caller set, and the defaults.

use super::tuner::{TunedRange, TuningLimits};
use crate::error::{ErrorKind, Result};
use std::thread;

/// By default, one in this number of cores is left to the trainer.
const CORES_PER_TRAINER_CORE: usize = 8;
/// Default number of prefetched batches: batches that are prepared before the trainer requests them.
const DEFAULT_PREFETCH: usize = 2;
/// Maximum number of prefetched batches that the tuner chooses.
const MAX_TUNED_PREFETCH: usize = 32;
/// Default limit on the bytes of all prefetched batches together.
const DEFAULT_PREFETCH_BYTES: u64 = 512 << 20;
/// Maximum number of threads per core that the tuner chooses. More threads than cores help stages that wait,
/// for example for a network response.
const MAX_TUNED_THREADS_PER_CORE: usize = 32;
/// Maximum number of threads that the tuner chooses.
const MAX_TUNED_THREADS: usize = 256;

/// The resources of a loader that the caller set. `None`: the number is tuned, or has a default.
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
    /// [`ErrorKind::Config`] for a number of 0, and for two options that exclude each other.
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
                config("`threads` fixes the number of threads, so `cores` has no effect: set only one")
            }
            Resources { prefetch: Some(_), prefetch_bytes: Some(_), .. } => config(
                "`prefetch` fixes the number of batches ahead, so `prefetch_bytes` has no effect: set only \
                 one",
            ),
            _ => Ok(()),
        }
    }

    /// Number of threads that a loader starts with.
    pub(in crate::loader) fn threads(&self) -> usize {
        self.threads.unwrap_or_else(|| self.cores())
    }

    /// Number of cores that the threads may use.
    fn cores(&self) -> usize {
        let all = || thread::available_parallelism().map_or(1, usize::from);
        self.cores.unwrap_or_else(|| all() - all() / CORES_PER_TRAINER_CORE)
    }

    /// The limits for a tuner. `batch_bytes` is the size of a batch, if it is known.
    pub(super) fn limits(&self, batch_bytes: Option<u64>) -> TuningLimits {
        let (threads, cores) = (self.threads(), self.cores());
        let max_threads =
            cores.saturating_mul(MAX_TUNED_THREADS_PER_CORE).min(MAX_TUNED_THREADS).max(threads);
        let prefetch = self.prefetch.unwrap_or(DEFAULT_PREFETCH);
        let bytes = self.prefetch_bytes.unwrap_or(DEFAULT_PREFETCH_BYTES);
        let fits = |batch: u64| usize::try_from(bytes / batch.max(1)).unwrap_or(usize::MAX);
        let max_prefetch =
            batch_bytes.map_or(prefetch, |batch| fits(batch).min(MAX_TUNED_PREFETCH).max(prefetch));
        TuningLimits {
            cores,
            threads: TunedRange {
                start: threads,
                max: if self.threads.is_some() { threads } else { max_threads },
            },
            tunes_threads: self.threads.is_none(),
            prefetch: TunedRange {
                start: prefetch,
                max: if self.prefetch.is_some() { prefetch } else { max_prefetch },
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fixed_numbers_are_not_tuned() {
        let fixed = Resources { threads: Some(3), prefetch: Some(64), ..Resources::default() };
        let limits = fixed.limits(Some(1));
        assert_eq!(limits.threads, TunedRange { start: 3, max: 3 });
        assert_eq!(limits.prefetch, TunedRange { start: 64, max: 64 });
        assert!(!limits.tunes_threads);
    }

    #[test]
    fn the_bytes_of_batches_ahead_are_limited() {
        let resources = Resources { cores: Some(2), prefetch_bytes: Some(1000), ..Resources::default() };
        let prefetch = |bytes| resources.limits(bytes).prefetch;
        assert_eq!(prefetch(Some(100)), TunedRange { start: 2, max: 10 });
        assert_eq!(prefetch(Some(1)), TunedRange { start: 2, max: 32 });
        assert_eq!(prefetch(Some(5000)), TunedRange { start: 2, max: 2 }, "two batches are always allowed");
        assert_eq!(prefetch(None), TunedRange { start: 2, max: 2 }, "the size of a batch is not known");
        assert_eq!(resources.limits(None).threads, TunedRange { start: 2, max: 64 });
    }
}
