//! Errors of the log directory.

use shardstream::SecretUrl;
use std::io;
use std::time::Duration;

/// An error of writing a log.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogDirError {
    /// Logs cannot be written to the URL.
    #[error("cannot log to {url:?}: {reason}")]
    Place {
        /// The URL.
        url: SecretUrl,
        /// What is wrong with the URL.
        reason: &'static str,
    },
    /// The end of the log could not be written.
    #[error("the end of the log {url} could not be written")]
    Write {
        /// The file or object.
        url: SecretUrl,
        /// The cause.
        source: shardstream::Error,
    },
    /// The store did not respond in time.
    #[error("the end of the log {url} was not written within {} s", finish_timeout.as_secs_f32())]
    Late {
        /// The file or object.
        url: SecretUrl,
        /// The time after which the wait ended.
        finish_timeout: Duration,
    },
    /// Records were dropped while the store could not be written to.
    #[error(
        "{records} records ({bytes} bytes) are missing in the log {url}: it could not be written for too long"
    )]
    Dropped {
        /// The file or object.
        url: SecretUrl,
        /// Number of missing lines or events.
        records: u64,
        /// Total size of the missing records in bytes.
        bytes: u64,
    },
    /// The thread that writes the log panicked; the panic's message is on the standard error.
    #[error("the thread that writes the log {url} panicked")]
    Panicked {
        /// The file or object.
        url: SecretUrl,
    },
    /// No thread could be started.
    #[error("cannot start the thread that writes a log")]
    Thread(#[from] io::Error),
}
