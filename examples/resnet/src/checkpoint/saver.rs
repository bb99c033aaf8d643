//! Writes checkpoints while the training continues.

use super::saved::SavedCheckpoint;
use super::{Checkpoint, CheckpointError, Checkpoints};
use crate::causes::with_causes;
use crate::report::Progress;
use shardstream::{ErrorKind, State};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// For each retry of a failed write, the time to wait before it.
const RETRIES: [Duration; 3] = [Duration::from_secs(1), Duration::from_secs(3), Duration::from_secs(10)];

/// Writes checkpoints on a thread, one at a time. A write that was started is finished, even if the training
/// ends with an error. A failed write is retried up to three times, but not after the next checkpoint is due.
#[derive(Debug)]
pub struct Saver {
    checkpoints: Checkpoints,
    every: u64,
    writing: Option<Writing>,
}

#[derive(Debug)]
struct Writing {
    thread: JoinHandle<Result<SavedCheckpoint, CheckpointError>>,
    /// Set when a newer checkpoint is due, so that this write is not retried.
    superseded: Arc<AtomicBool>,
}

impl Saver {
    /// Saves every `every` steps (0: only at the ends of epochs).
    pub fn new(checkpoints: Checkpoints, every: u64) -> Self {
        Self { checkpoints, every, writing: None }
    }

    /// Whether a checkpoint is due after this step.
    pub fn is_due(&self, step: u64) -> bool {
        self.every > 0 && step.is_multiple_of(self.every)
    }

    /// Whether this process saves the network, which only rank 0 does.
    pub fn wants_tensors(&self) -> bool {
        self.checkpoints.topology.rank() == 0
    }

    /// Waits until the previous checkpoint is written, and starts to write the next checkpoint. Returns the
    /// outcome of writing the previous checkpoint. `tensors` are needed only if
    /// [`wants_tensors`](Saver::wants_tensors) is true.
    pub fn save(
        &mut self,
        progress: Progress,
        data: Option<State>,
        tensors: Option<Vec<Vec<f32>>>,
    ) -> Result<Option<SavedCheckpoint>, CheckpointError> {
        self.supersede();
        let previous = self.finish()?;
        let data = data.ok_or(CheckpointError::NoState)?;
        let checkpoint = Checkpoint { progress, data, tensors: tensors.unwrap_or_default() };
        let checkpoints = self.checkpoints.clone();
        let superseded = Arc::new(AtomicBool::new(false));
        let flag = superseded.clone();
        let write = move || write(&checkpoints, checkpoint, &flag);
        let thread = std::thread::Builder::new().name("checkpoint".into()).spawn(write)?;
        self.writing = Some(Writing { thread, superseded });
        Ok(previous)
    }

    /// Stops the retries of the current write.
    fn supersede(&self) {
        if let Some(writing) = &self.writing {
            writing.superseded.store(true, Ordering::SeqCst);
            writing.thread.thread().unpark();
        }
    }

    /// Returns the outcome of the current write if it has finished. Each outcome is returned once. Does not
    /// wait.
    pub fn poll(&mut self) -> Result<Option<SavedCheckpoint>, CheckpointError> {
        if self.writing.as_ref().is_some_and(|writing| writing.thread.is_finished()) {
            self.finish()
        } else {
            Ok(None)
        }
    }

    /// Waits until the current write has finished, and returns its outcome; `None` if there is none.
    pub fn finish(&mut self) -> Result<Option<SavedCheckpoint>, CheckpointError> {
        self.writing
            .take()
            .map(|writing| writing.thread.join().unwrap_or(Err(CheckpointError::Panicked)))
            .transpose()
    }
}

impl Drop for Saver {
    fn drop(&mut self) {
        self.supersede();
        // The training has failed already, so an error of writing the checkpoint is not reported.
        let _ = self.finish();
    }
}

/// Writes a checkpoint, and retries after an error of the store. If no attempt succeeds, the outcome says
/// that the checkpoint was not written, and no error is returned, since the training can continue without
/// this checkpoint.
fn write(
    checkpoints: &Checkpoints,
    checkpoint: Checkpoint,
    superseded: &AtomicBool,
) -> Result<SavedCheckpoint, CheckpointError> {
    let start = Instant::now();
    let mut retries = RETRIES.iter();
    loop {
        let error = match checkpoints.write(checkpoint.clone()) {
            // The contents cannot be written as a checkpoint, so a retry would fail as well.
            Err(CheckpointError::Write { url, source })
                if matches!(source.kind(), ErrorKind::Unwritable(_)) =>
            {
                return Err(CheckpointError::Write { url, source });
            }
            Err(error @ CheckpointError::Write { .. }) => error,
            written => return written,
        };
        match retries.next() {
            Some(wait) if !superseded.load(Ordering::SeqCst) => std::thread::park_timeout(*wait),
            _ => {
                return Ok(SavedCheckpoint {
                    what: checkpoint.title(),
                    step: checkpoint.progress.steps(),
                    bytes: 0,
                    time: start.elapsed(),
                    url: String::new(),
                    unwritten: Some(with_causes(&error)),
                    failed: vec![],
                });
            }
        }
    }
}
