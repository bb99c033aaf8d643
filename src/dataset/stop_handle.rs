//! Ending reads that wait for the network, when nobody wants their data any more.

use crate::store::Stopper;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Ends the reading of one or several [`ShardReader`](super::ShardReader)s from another thread.
///
/// A reader that waits for the network wakes with an error; one that continues finds nothing more to read.
#[derive(Debug, Clone, Default)]
pub(crate) struct StopHandle(Arc<StopShared>);

#[derive(Debug, Default)]
struct StopShared {
    /// Set under the lock of `reading`, so that no reader slips in between.
    stopped: AtomicBool,
    /// What is being read, by reader.
    reading: Mutex<Vec<(ReaderNumber, Stopper)>>,
}

/// Tells a reader from the others of the same stop: its number, and which of its own readers it is.
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

    /// Notes what `reader` reads now, in place of what it read before. False when there is to be no more
    /// reading.
    pub(super) fn reads(&self, reader: ReaderNumber, stopper: Stopper) -> bool {
        let mut reading = self.0.reading.lock().unwrap_or_else(PoisonError::into_inner);
        reading.retain(|(other, _)| *other != reader);
        let go_on = !self.is_stopped();
        if go_on {
            reading.push((reader, stopper));
        }
        go_on
    }
}
