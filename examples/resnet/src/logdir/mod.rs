//! The log directory of a training, which is a directory or a prefix in a bucket. It has the text log and the
//! curves.
//!
//! A slow or failing store neither stops nor slows a training: records are kept for a while, failed writes
//! are retried, and the last error is reported at the end.

mod appender;
mod copy;
mod error;
mod events;
mod sink;

pub use appender::{Appender, AppenderSettings, Records};
pub use copy::LogCopy;
pub use error::LogDirError;
pub use events::Events;

use shardstream::store::{ObjectUrl, Store};
use std::io::Write;
use std::time::SystemTime;

/// A directory or URL prefix, such as `gs://bucket/prefix`, to which the processes of a training write their
/// logs.
#[derive(Debug, Clone)]
pub struct LogDir {
    store: Store,
    /// URL of the directory, without a slash at the end.
    url: String,
    rank: usize,
    settings: AppenderSettings,
}

impl LogDir {
    /// The directory at `url`, for the process of rank `rank`. Nothing is written yet.
    pub fn new(url: &str, rank: usize) -> Result<Self, LogDirError> {
        Self::over(Store::default(), url, rank, AppenderSettings::default())
    }

    /// A directory in a custom store.
    pub fn over(
        store: Store,
        url: &str,
        rank: usize,
        settings: AppenderSettings,
    ) -> Result<Self, LogDirError> {
        let trimmed = url.trim_end_matches('/');
        if trimmed.is_empty() {
            return Err(LogDirError::Place {
                url: url.into(),
                reason: "give a directory, or a bucket with a prefix",
            });
        }
        if ObjectUrl::parse(url).is_file_url() {
            return Err(LogDirError::Place { url: url.into(), reason: "give the path without file:" });
        }
        Ok(Self { store, url: trimmed.into(), rank, settings })
    }

    /// Wraps `out` in a writer that copies each line to the text log of this process, `log-rank-00000.txt`.
    /// In a local directory, the lines are appended to the log that an earlier process wrote.
    pub fn log<W: Write>(&self, out: W) -> Result<LogCopy<W>, LogDirError> {
        let url = format!("{}/log-rank-{:05}.txt", self.url, self.rank);
        Ok(LogCopy::new(out, Appender::start(&self.store, &url, vec![], self.settings)?))
    }

    /// Starts a TensorBoard event file. Its name has the time in seconds, the machine and the rank, as in
    /// `events.out.tfevents.1790000000.host.0`.
    pub fn events(&self) -> Result<Events, LogDirError> {
        let seconds = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_secs();
        let name = format!("events.out.tfevents.{seconds}.{}.{}", events::host(), self.rank);
        let url = format!("{}/{name}", self.url);
        Events::start(|header| Appender::start(&self.store, &url, header, self.settings))
    }
}
