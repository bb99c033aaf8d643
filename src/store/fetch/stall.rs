//! Timeouts of connections that make no progress.

use crate::{Error, Result};
use std::io;
use std::time::Duration;

/// Waits for `future`, for no longer than `stall`.
pub(in crate::store) async fn with_stall_timeout<T>(
    stall: Duration,
    future: impl Future<Output = Result<T>>,
) -> Result<T> {
    tokio::time::timeout(stall, future).await.unwrap_or_else(|_| Err(stalled(stall, "received nothing")))
}

/// The error of a connection that makes no progress.
pub(super) fn stalled(stall: Duration, what: &str) -> Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("the connection stalled: {what} for {stall:?}")).into()
}
