//! Reports what a training's batches wait for.

use shardstream::collate::TensorBatch;
use shardstream::loader::{Batches, Reporter};
use std::sync::{Arc, Mutex, PoisonError};

/// Reports what the newest batches wait for. Clones share their state.
#[derive(Debug, Clone, Default)]
pub struct Waiting(Arc<Mutex<Option<Reporter>>>);

impl Waiting {
    /// Reports on these batches from now on.
    pub(super) fn watch(&self, batches: &Batches<TensorBatch>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(batches.reporter());
    }

    /// The cause of the wait; `None` if nothing waits for a batch.
    pub fn cause(&self) -> Option<String> {
        let reporter = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let diagnosis = reporter?.diagnose();
        diagnosis.waited.map(|_| diagnosis.cause)
    }
}
