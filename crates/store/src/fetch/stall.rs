//! Timeouts of connections that make no progress.

use crate::{Error, Result};
use bytes::Bytes;
use futures::stream::{BoxStream, TryStreamExt};
use std::io;
use std::time::{Duration, Instant};

pub(crate) async fn with_stall_timeout<T>(
    stall: Duration,
    future: impl Future<Output = Result<T>>,
) -> Result<T> {
    tokio::time::timeout(stall, future).await.unwrap_or_else(|_| Err(stalled(stall, "received nothing")))
}

fn stalled(stall: Duration, what: &str) -> Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("the connection stalled: {what} for {stall:?}")).into()
}

/// A connection with fewer bytes per second than this counts as stalled.
const MIN_RATE: u64 = 1 << 10;

/// Watches a body for stalls. Only the time spent waiting for the body counts, not the time in which the
/// body's reader does other work.
#[derive(Debug)]
pub(crate) struct StallWatch {
    stall: Duration,
    /// Time waited since the last check.
    waited: Duration,
    /// Bytes received since the last check.
    bytes: u64,
}

impl StallWatch {
    pub(crate) fn new(stall: Duration) -> Self {
        StallWatch { stall, waited: Duration::ZERO, bytes: 0 }
    }

    /// The next chunk of a body.
    ///
    /// # Errors
    ///
    /// The errors of the body, and a timeout if the body sends fewer than [`MIN_RATE`] bytes per second for
    /// the time `stall`.
    pub(crate) async fn next(
        &mut self,
        body: &mut BoxStream<'static, Result<Bytes>>,
    ) -> Result<Option<Bytes>> {
        let start = Instant::now();
        let chunk = with_stall_timeout(self.stall, body.try_next()).await?;
        self.waited += start.elapsed();
        self.bytes += chunk.as_ref().map_or(0, Bytes::len) as u64;
        if self.waited >= self.stall {
            let enough = self.waited.as_secs_f64() * MIN_RATE as f64;
            if chunk.is_some() && (self.bytes as f64) < enough {
                return Err(stalled(self.stall, &format!("received only {} bytes", self.bytes)));
            }
            (self.waited, self.bytes) = (Duration::ZERO, 0);
        }
        Ok(chunk)
    }
}
