//! The settings of reading.

use std::time::Duration;

/// How an object is split into requests, and how faults are met.
#[derive(Debug, Clone, Copy)]
pub(in crate::store) struct Limits {
    /// Bytes per request; found out from the network unless set.
    pub(in crate::store) range_size: Option<u64>,
    /// Requests in flight per object, and received ranges that wait to be read.
    pub(in crate::store) ranges_in_flight: usize,
    /// How often a request or the rest of a range is tried again.
    pub(in crate::store) retries: u32,
    /// How long it is tried without progress.
    pub(in crate::store) retry_timeout: Duration,
    /// The pause before the first retry; it doubles with each.
    pub(in crate::store) pause: Duration,
    /// How long a response may not begin, or not continue.
    pub(in crate::store) stall: Duration,
    /// The share of all bytes that may be asked for twice.
    pub(in crate::store) hedge: f64,
    /// Whether checksums of whole objects are compared.
    pub(in crate::store) checksums: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
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
