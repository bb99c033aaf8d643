//! Whether a server can be reached.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// If at least this much time passes between two successive failures, the second one begins a new series.
const SERIES_GAP: Duration = Duration::from_secs(15);

/// Whether a server has ever sent a response, and since when its requests have failed.
#[derive(Debug, Default)]
pub(super) struct Contact {
    responded: AtomicBool,
    /// The times of the first and the last failure of the latest series (see [`SERIES_GAP`]).
    failures: Mutex<Option<(Instant, Instant)>>,
}

impl Contact {
    pub(super) fn has_responded(&self) -> bool {
        self.responded.load(Ordering::Acquire)
    }

    pub(super) fn set_responded(&self) {
        self.responded.store(true, Ordering::Release);
    }

    /// How long to retry a server that cannot be reached. Returns `usual` if the server has ever sent a
    /// response. Otherwise returns at most `before_contact`, or `None` if its requests have already failed
    /// for `before_contact`.
    pub(super) fn limit(&self, before_contact: Duration, usual: Duration) -> Option<Duration> {
        match self.has_responded() {
            true => Some(usual),
            false => (self.failed_at(Instant::now()) < before_contact).then_some(before_contact.min(usual)),
        }
    }

    /// Records a failure. Returns for how long requests have failed.
    fn failed_at(&self, now: Instant) -> Duration {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        let recent = failures.filter(|(_, last)| now.saturating_duration_since(*last) < SERIES_GAP);
        let first = recent.map_or(now, |(first, _)| first);
        *failures = Some((first, now));
        now.saturating_duration_since(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_failures_do_not_count() {
        let (contact, start) = (Contact::default(), Instant::now());
        let after = |seconds| contact.failed_at(start + Duration::from_secs(seconds)).as_secs();
        assert_eq!([0, 1, 9, 20].map(after), [0, 1, 9, 20]);
        // The time since an earlier series of failures does not count.
        assert_eq!([3600, 3602].map(after), [0, 2]);
        let (before_contact, usual) = (Duration::from_millis(1), Duration::from_secs(300));
        let contact = Contact::default();
        assert_eq!(contact.limit(before_contact, usual), Some(before_contact));
        std::thread::sleep(before_contact);
        assert_eq!(contact.limit(before_contact, usual), None);
        contact.set_responded();
        assert_eq!(contact.limit(before_contact, usual), Some(usual));
    }
}
