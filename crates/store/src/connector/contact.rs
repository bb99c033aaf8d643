//! Whether a server can be reached.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time after which a failure has nothing to do with the next one.
const FORGOTTEN: Duration = Duration::from_secs(15);

/// Whether a server has ever answered, and since when its requests fail.
#[derive(Debug, Default)]
pub(super) struct Contact {
    answered: AtomicBool,
    /// The times of the first and the last failure of a series without a pause of [`FORGOTTEN`].
    failures: Mutex<Option<(Instant, Instant)>>,
}

impl Contact {
    pub(super) fn has_answered(&self) -> bool {
        self.answered.load(Ordering::Acquire)
    }

    /// Notes that the server has answered.
    pub(super) fn set_answered(&self) {
        self.answered.store(true, Ordering::Release);
    }

    /// Time for which a server that cannot be reached now is tried: `usual`, or `at_first` if it has never
    /// answered. `None` if all requests together have tried it for that long.
    pub(super) fn limit(&self, at_first: Duration, usual: Duration) -> Option<Duration> {
        match self.has_answered() {
            true => Some(usual),
            false => (self.failed_at(Instant::now()) < at_first).then_some(at_first.min(usual)),
        }
    }

    /// Notes a failure. Returns for how long requests have failed.
    fn failed_at(&self, now: Instant) -> Duration {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        let recent = failures.filter(|(_, last)| now.saturating_duration_since(*last) < FORGOTTEN);
        let first = recent.map_or(now, |(first, _)| first);
        *failures = Some((first, now));
        now.saturating_duration_since(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_that_are_forgotten_do_not_count() {
        let (contact, begun) = (Contact::default(), Instant::now());
        let after = |seconds| contact.failed_at(begun + Duration::from_secs(seconds)).as_secs();
        assert_eq!([0, 1, 9, 20].map(after), [0, 1, 9, 20]);
        // A first contact that failed long ago takes no time from a later one.
        assert_eq!([3600, 3602].map(after), [0, 2]);
        let (at_first, usual) = (Duration::from_millis(1), Duration::from_secs(300));
        let contact = Contact::default();
        assert_eq!(contact.limit(at_first, usual), Some(at_first));
        std::thread::sleep(at_first);
        assert_eq!(contact.limit(at_first, usual), None);
        contact.set_answered();
        assert_eq!(contact.limit(at_first, usual), Some(usual));
    }
}
