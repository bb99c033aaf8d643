//! The outcome of writing a checkpoint.

use shardstream::SecretUrl;
use std::fmt;
use std::time::Duration;

/// The outcome of writing a checkpoint. Its `Display` is the line of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SavedCheckpoint {
    pub(super) what: String,
    pub(super) step: u64,
    pub(super) bytes: u64,
    pub(super) time: Duration,
    pub(super) url: String,
    /// Why the checkpoint could not be written; `None` if it was written.
    pub(super) unwritten: Option<String>,
    /// Messages about old checkpoints that could not be deleted.
    pub(super) failed: Vec<String>,
}

impl SavedCheckpoint {
    /// The checkpoint's step; `None` if the checkpoint was not written.
    pub fn step(&self) -> Option<u64> {
        match self.unwritten {
            None => Some(self.step),
            Some(_) => None,
        }
    }
}

impl fmt::Display for SavedCheckpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(reason) = &self.unwritten {
            return write!(f, "warning: no checkpoint at {}; the training continues: {reason}", self.what);
        }
        let (megabytes, seconds) = (self.bytes as f64 / 1e6, self.time.as_secs_f64());
        write!(
            f,
            "checkpoint at {}: {megabytes:.1} MB in {seconds:.2} s -> {}",
            self.what,
            SecretUrl::from(&self.url)
        )?;
        self.failed.iter().try_for_each(|failed| write!(f, "\n{failed}"))
    }
}
