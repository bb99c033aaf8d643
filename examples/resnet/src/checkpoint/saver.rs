//! Writing checkpoints beside the training.

use super::{Checkpoint, Checkpoints, Error, Result};
use crate::report::Progress;
use shardstream::{SecretUrl, State};
use std::fmt;
use std::thread::JoinHandle;
use std::time::Duration;

/// A checkpoint that was written; in the words of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Saved {
    pub(super) what: String,
    pub(super) bytes: u64,
    pub(super) time: Duration,
    pub(super) url: String,
    /// What could not be done about old ones.
    pub(super) failed: Vec<String>,
}

impl fmt::Display for Saved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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

/// Writes checkpoints on a thread, one at a time. What has begun is finished, even if the training ends in an error.
#[derive(Debug)]
pub struct Saver {
    place: Checkpoints,
    every: u64,
    writing: Option<JoinHandle<Result<Saved>>>,
}

impl Saver {
    /// Saves every so many steps (0: at the ends of epochs alone).
    pub fn new(place: Checkpoints, every: u64) -> Self {
        Self { place, every, writing: None }
    }

    /// Whether the training is to be saved after this step of it.
    pub fn is_due(&self, step: u64) -> bool {
        self.every > 0 && step.is_multiple_of(self.every)
    }

    /// Whether the network is to be saved by this process: the first one does it for all.
    pub fn wants_tensors(&self) -> bool {
        self.place.topology.rank() == 0
    }

    /// Starts to write, when the one before is written, which is returned. What is not [wanted](Saver::wants_tensors)
    /// need not be given.
    pub fn save(
        &mut self,
        progress: Progress,
        data: Option<State>,
        tensors: Option<Vec<Vec<f32>>>,
    ) -> Result<Option<Saved>> {
        let before = self.finish()?;
        let (data, tensors) = (data.ok_or(Error::NoState)?, tensors.unwrap_or_default());
        let checkpoint = Checkpoint { progress, data, tensors };
        let place = self.place.clone();
        let write = move || place.write(checkpoint);
        self.writing = Some(std::thread::Builder::new().name("checkpoint".into()).spawn(write)?);
        Ok(before)
    }

    /// The one that has been written since the last call. Does not wait.
    pub fn poll(&mut self) -> Result<Option<Saved>> {
        if self.writing.as_ref().is_some_and(JoinHandle::is_finished) { self.finish() } else { Ok(None) }
    }

    /// Waits for the one that is being written.
    pub fn finish(&mut self) -> Result<Option<Saved>> {
        self.writing.take().map(|thread| thread.join().unwrap_or(Err(Error::Panicked))).transpose()
    }
}

impl Drop for Saver {
    fn drop(&mut self) {
        // The training has failed already; there is nobody to tell of another error.
        let _ = self.finish();
    }
}
