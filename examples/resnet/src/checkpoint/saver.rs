//! Writing checkpoints beside the training.

use super::{Checkpoint, Checkpoints, Error, Result};
use crate::error::with_causes;
use crate::report::Progress;
use shardstream::{ErrorKind, SecretUrl, State};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A checkpoint that was written, or could not be; in the words of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Saved {
    pub(super) what: String,
    pub(super) step: u64,
    pub(super) bytes: u64,
    pub(super) time: Duration,
    pub(super) url: String,
    /// Why it could not be written.
    pub(super) unwritten: Option<String>,
    /// What could not be done about old ones.
    pub(super) failed: Vec<String>,
}

impl Saved {
    /// The step of the training, if the checkpoint was written.
    pub fn step(&self) -> Option<u64> {
        self.unwritten.is_none().then_some(self.step)
    }
}

impl fmt::Display for Saved {
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

/// Waits before a checkpoint that could not be written is tried again.
const RETRIES: [Duration; 3] = [Duration::from_secs(1), Duration::from_secs(3), Duration::from_secs(10)];

/// Writes checkpoints on a thread, one at a time. What has begun is finished, even if the training ends in an
/// error. A checkpoint that cannot be written is tried again until the next one is due.
#[derive(Debug)]
pub struct Saver {
    place: Checkpoints,
    every: u64,
    writing: Option<Writing>,
}

#[derive(Debug)]
struct Writing {
    thread: JoinHandle<Result<Saved>>,
    /// Whether a newer checkpoint is due, so that this one is not tried again.
    superseded: Arc<AtomicBool>,
}

impl Saver {
    /// Saves every `steps` steps (0: at the ends of epochs alone).
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

    /// Starts to write, when the one before is written, which is returned. What is not
    /// [wanted](Saver::wants_tensors) need not be given.
    pub fn save(
        &mut self,
        progress: Progress,
        data: Option<State>,
        tensors: Option<Vec<Vec<f32>>>,
    ) -> Result<Option<Saved>> {
        self.supersede();
        let before = self.finish()?;
        let (data, tensors) = (data.ok_or(Error::NoState)?, tensors.unwrap_or_default());
        let checkpoint = Checkpoint { progress, data, tensors };
        let place = self.place.clone();
        let superseded = Arc::new(AtomicBool::new(false));
        let seen = superseded.clone();
        let write = move || write(&place, checkpoint, &seen);
        let thread = std::thread::Builder::new().name("checkpoint".into()).spawn(write)?;
        self.writing = Some(Writing { thread, superseded });
        Ok(before)
    }

    /// The one that is being written is not tried again.
    fn supersede(&self) {
        if let Some(writing) = &self.writing {
            writing.superseded.store(true, Ordering::SeqCst);
            writing.thread.thread().unpark();
        }
    }

    /// The one that has been written since the last call. Does not wait.
    pub fn poll(&mut self) -> Result<Option<Saved>> {
        if self.writing.as_ref().is_some_and(|writing| writing.thread.is_finished()) {
            self.finish()
        } else {
            Ok(None)
        }
    }

    /// Waits for the one that is being written.
    pub fn finish(&mut self) -> Result<Option<Saved>> {
        self.writing.take().map(|writing| writing.thread.join().unwrap_or(Err(Error::Panicked))).transpose()
    }
}

impl Drop for Saver {
    fn drop(&mut self) {
        self.supersede();
        // The training has failed already; there is nobody to tell of another error.
        let _ = self.finish();
    }
}

/// Writes a checkpoint, and tries again after an error of the store. What cannot be written in the end is no
/// error: the training is worth more than one of its checkpoints.
fn write(place: &Checkpoints, checkpoint: Checkpoint, superseded: &AtomicBool) -> Result<Saved> {
    let (what, step, start) = (checkpoint.title(), checkpoint.progress.steps(), Instant::now());
    let mut retries = RETRIES.iter();
    loop {
        let error = match place.write(checkpoint.clone()) {
            // What was given is no checkpoint: another try would not help.
            Err(Error::Write { url, source }) if matches!(source.kind(), ErrorKind::Unwritable(_)) => {
                return Err(Error::Write { url, source });
            }
            Err(error @ Error::Write { .. }) => error,
            written => return written,
        };
        match retries.next() {
            Some(wait) if !superseded.load(Ordering::SeqCst) => std::thread::park_timeout(*wait),
            _ => {
                let (unwritten, time) = (Some(with_causes(&error)), start.elapsed());
                return Ok(Saved {
                    what,
                    step,
                    bytes: 0,
                    time,
                    url: String::new(),
                    unwritten,
                    failed: vec![],
                });
            }
        }
    }
}
