//! The settings of fetches.

use std::time::Duration;

/// How an object is split into requests, and how faults are handled.
#[derive(Debug, Clone, Copy)]
pub(in crate::store) struct FetchLimits {
    /// Bytes per request; measured unless set.
    pub(in crate::store) range_size: Option<u64>,
    /// Maximum number of ranges per object that are in flight or unread.
    pub(in crate::store) ranges_in_flight: usize,
    /// Maximum number of retries of a request, or of the rest of a range.
    pub(in crate::store) retries: u32,
    /// Maximum time of retrying without progress.
    pub(in crate::store) retry_timeout: Duration,
    /// The pause before the first retry. It doubles with each.
    pub(in crate::store) pause: Duration,
    /// Maximum time without a byte, before and within a response.
    pub(in crate::store) stall: Duration,
    /// Share of all bytes that may be requested twice.
    pub(in crate::store) hedge: f64,
    /// Whether checksums of whole objects are compared.
    pub(in crate::store) checksums: bool,
}

impl Default for FetchLimits {
    fn default() -> Self {
        FetchLimits {
            range_size: None,
            ranges_in_flight: usize::MAX,
            retries: 16,
            retry_timeout: Duration::from_secs(300),
            pause: Duration::from_millis(100),
            stall: Duration::from_secs(20),
            hedge: 0.0,
            checksums: true,
        }
    }
}
