//! Ending reads that wait for the network, when nobody wants their data any more.

use crate::store::Stopper;
use std::sync::{Arc, Mutex, PoisonError};

/// Ends the reading of one or several [`ShardReader`](super::ShardReader)s from another thread.
///
/// A reader that waits for the network wakes with an error; one that goes on finds nothing more to read.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    stopped: bool,
    /// What is being read, by reader.
    reading: Vec<(usize, Stopper)>,
}

impl Stop {
    /// Ends all reads, now and later.
    pub fn stop(&self) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.stopped = true;
        for (_, stopper) in state.reading.drain(..) {
            stopper.stop();
        }
    }

    /// Notes what `reader` reads now, in place of what it read before. False when there is to be no more reading.
    pub(super) fn reads(&self, reader: usize, stopper: Stopper) -> bool {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.reading.retain(|(other, _)| *other != reader);
        if !state.stopped {
            state.reading.push((reader, stopper));
        }
        !state.stopped
    }
}
