//! The log of a training beside the terminal: its text and its curves, in a directory or a bucket.
//!
//! Nothing here can stop or slow a training: what cannot be written is kept for a while, tried again, and
//! told at the end.

mod appender;
mod copy;
mod events;
mod sink;

pub use appender::{Appender, Records, Settings};
pub use copy::LogCopy;
pub use events::Events;

use shardstream::SecretUrl;
use shardstream::store::Store;
use std::io::{self, Write};
use std::time::{Duration, SystemTime};

/// Why a log is not whole, or cannot be.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The place is not one that can be written to.
    #[error("cannot log to {url:?}: {reason}")]
    Place {
        /// The place.
        url: SecretUrl,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// What was said last could not be written.
    #[error("the end of the log {url} could not be written")]
    Write {
        /// The file or object.
        url: SecretUrl,
        /// Why.
        source: shardstream::Error,
    },
    /// The store did not answer in time.
    #[error("the end of the log {url} was not written within {} s", patience.as_secs_f32())]
    Late {
        /// The file or object.
        url: SecretUrl,
        /// How long it was waited for.
        patience: Duration,
    },
    /// There was more to say than could be kept while the store could not be written to.
    #[error(
        "{records} records ({bytes} bytes) are missing in the log {url}: it could not be written for too long"
    )]
    Dropped {
        /// The file or object.
        url: SecretUrl,
        /// Lines or events.
        records: u64,
        /// Of them together.
        bytes: u64,
    },
    /// The thread that writes panicked; its message is on the standard error.
    #[error("the thread that writes the log {url} panicked")]
    Panicked {
        /// The file or object.
        url: SecretUrl,
    },
    /// No thread could be had.
    #[error("cannot start the thread that writes a log")]
    Thread(#[from] io::Error),
}

/// The result of logging.
pub type Result<T> = std::result::Result<T, Error>;

/// A directory, or `gs://bucket/prefix` and its like, that the processes of a training keep their logs in.
#[derive(Debug, Clone)]
pub struct LogDir {
    store: Store,
    /// Without a slash at the end.
    url: String,
    rank: usize,
    settings: Settings,
}

impl LogDir {
    /// That at `url`, for the process `rank`. Nothing is written yet.
    pub fn new(url: &str, rank: usize) -> Result<Self> {
        Self::over(Store::default(), url, rank, Settings::default())
    }

    /// One over a store of one's own.
    pub fn over(store: Store, url: &str, rank: usize, settings: Settings) -> Result<Self> {
        let trimmed = url.trim_end_matches('/');
        if trimmed.is_empty() {
            return Err(Error::Place {
                url: url.into(),
                reason: "name a directory, or a bucket with a prefix",
            });
        }
        if url.starts_with("file:") {
            return Err(Error::Place { url: url.into(), reason: "write the path without file:" });
        }
        Ok(Self { store, url: trimmed.into(), rank, settings })
    }

    /// The text log of this process, `log-rank-00000.txt`, beside `out`. In a directory it resumes where an
    /// earlier process has left it.
    pub fn log<W: Write>(&self, out: W) -> Result<LogCopy<W>> {
        let url = format!("{}/log-rank-{:05}.txt", self.url, self.rank);
        Ok(LogCopy::new(out, Appender::start(&self.store, &url, vec![], self.settings)?))
    }

    /// Curves for TensorBoard, `events.out.tfevents.1790000000.host.0`: seconds, the machine and the rank.
    pub fn events(&self) -> Result<Events> {
        let seconds = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_secs();
        let name = format!("events.out.tfevents.{seconds}.{}.{}", events::host(), self.rank);
        let url = format!("{}/{name}", self.url);
        Events::start(|header| Appender::start(&self.store, &url, header, self.settings))
    }
}
