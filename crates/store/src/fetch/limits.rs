//! Limits and retries of reading.

use std::time::Duration;

/// How an object is split into requests, and how faults are handled.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FetchLimits {
    /// Bytes per request; if `None`, it is chosen from measurements.
    pub(crate) range_size: Option<u64>,
    /// Maximum number of ranges per object that are in flight or unread.
    pub(crate) ranges_in_flight: usize,
    /// Maximum number of retries of a request, or of the rest of a range.
    pub(crate) retries: u32,
    /// Maximum time of retrying without progress.
    pub(crate) retry_timeout: Duration,
    /// The pause before the first retry. It doubles with each retry.
    pub(crate) pause: Duration,
    /// Maximum time without a received byte, before and during a response.
    pub(crate) stall: Duration,
    /// Share of all bytes that may be requested twice.
    pub(crate) hedge: f64,
    /// Whether checksums of whole objects are compared.
    pub(crate) checksums: bool,
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
