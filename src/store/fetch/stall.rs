//! Waits that end when nothing comes.

use crate::{Error, Result};
use std::io;
use std::time::Duration;

/// Waits no longer than `stall`.
pub(in crate::store) async fn timed<T>(
    stall: Duration,
    answer: impl Future<Output = Result<T>>,
) -> Result<T> {
    tokio::time::timeout(stall, answer).await.unwrap_or_else(|_| Err(stalled(stall, "nothing came")))
}

/// The error of a connection that does not move.
pub(super) fn stalled(stall: Duration, what: &str) -> Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("the connection stalled: {what} for {stall:?}")).into()
}
