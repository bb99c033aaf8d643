//! The pause that a server has asked its clients for.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The time until which no request should be sent to a bucket or host, because one of its responses asked for
/// a pause (`Retry-After`). The pause applies to all requests: the server would refuse other requests too,
/// and these requests would make it busier.
#[derive(Debug, Default)]
pub(super) struct HostPause(Mutex<Option<Instant>>);

impl HostPause {
    /// Extends the pause to `time` from now on, unless it is longer already.
    pub(super) fn extend(&self, time: Duration) {
        let until = Instant::now().checked_add(time);
        let mut end = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *end = until.max(*end);
    }

    pub(super) fn left(&self) -> Duration {
        let end = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        end.map_or(Duration::ZERO, |end| end.saturating_duration_since(Instant::now()))
    }
}
