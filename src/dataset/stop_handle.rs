//! `StopHandle`: ends reads that wait for the network when their data is no longer needed.

use crate::store::Stopper;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Ends the reading of one or several [`ShardReader`](super::ShardReader)s from another thread.
///
/// A reader that waits for the network wakes up with an error. A reader that is read afterwards returns the
/// end.
#[derive(Debug, Clone, Default)]
pub(crate) struct StopHandle(Arc<StopShared>);

#[derive(Debug, Default)]
struct StopShared {
    /// Set under the lock of `reading`, so that a reader that starts at the same time is stopped too.
    stopped: AtomicBool,
    /// The stopper of the shard that each reader is reading.
    reading: Mutex<Vec<(ReaderNumber, Stopper)>>,
}

/// Identifies a reader among the readers of one [`StopHandle`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ReaderNumber {
    /// The number of the stream.
    pub(super) stream: usize,
    /// The number of the reader among the readers of the stream: 0 is the reader of the dataset, the other
    /// numbers are readers of the sides.
    pub(super) part: usize,
}

impl StopHandle {
    /// Ends all reads, now and later.
    pub(crate) fn stop(&self) {
        let mut reading = self.0.reading.lock().unwrap_or_else(PoisonError::into_inner);
        self.0.stopped.store(true, Ordering::Release);
        for (_, stopper) in reading.drain(..) {
            stopper.stop();
        }
    }

    /// Whether [`stop`](StopHandle::stop) was called.
    pub(crate) fn is_stopped(&self) -> bool {
        self.0.stopped.load(Ordering::Acquire)
    }

    /// Registers the shard that `reader` reads now, in place of its previous one. Returns false if
    /// [`stop`](StopHandle::stop) was called.
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
