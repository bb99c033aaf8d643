//! The time for which a server has asked its clients to wait.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Until when no request should be sent to a bucket or host, because it has asked for that in the response
/// to one of them (`Retry-After`). It holds for all requests: those that are sent meanwhile would be refused
/// too, and would make the server busier.
#[derive(Debug, Default)]
pub(super) struct HostPause(Mutex<Option<Instant>>);

impl HostPause {
    /// Notes that the server asks to wait for `time` from now on.
    pub(super) fn extend(&self, time: Duration) {
        let until = Instant::now().checked_add(time);
        let mut end = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *end = until.max(*end);
    }

    /// The time that is left.
    pub(super) fn left(&self) -> Duration {
        let end = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        end.map_or(Duration::ZERO, |end| end.saturating_duration_since(Instant::now()))
    }
}
