//! Ends reads that wait for the network when their data is no longer wanted.

use crate::store::Stopper;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Ends the reading of one or several [`ShardReader`](super::ShardReader)s from another thread.
///
/// A reader that waits for the network wakes with an error; one that continues afterwards is at its end.
#[derive(Debug, Clone, Default)]
pub(crate) struct StopHandle(Arc<StopShared>);

#[derive(Debug, Default)]
struct StopShared {
    /// Set under the lock of `reading`, so that no reader starts unnoticed.
    stopped: AtomicBool,
    /// Stops what each reader is reading.
    reading: Mutex<Vec<(ReaderNumber, Stopper)>>,
}

/// Identifies a reader among those of one [`StopHandle`]: its number, and the number of the reader within it.
pub(super) type ReaderNumber = (usize, usize);

impl StopHandle {
    /// Ends all reads, now and later.
    pub(crate) fn stop(&self) {
        let mut reading = self.0.reading.lock().unwrap_or_else(PoisonError::into_inner);
        self.0.stopped.store(true, Ordering::Release);
        for (_, stopper) in reading.drain(..) {
            stopper.stop();
        }
    }

    /// Whether reading has been ended.
    pub(crate) fn is_stopped(&self) -> bool {
        self.0.stopped.load(Ordering::Acquire)
    }

    /// Registers what `reader` reads now, in place of what it read before. Returns false if reading has been
    /// ended.
    pub(super) fn register(&self, reader: ReaderNumber, stopper: Stopper) -> bool {
        let mut reading = self.0.reading.lock().unwrap_or_else(PoisonError::into_inner);
        reading.retain(|(other, _)| *other != reader);
        let continues = !self.is_stopped();
        if continues {
            reading.push((reader, stopper));
        }
        continues
    }
}
