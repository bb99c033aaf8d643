//! Reports what the loader of a training waits for.

use shardstream::collate::TensorBatch;
use shardstream::loader::{Batches, Reporter};
use std::sync::{Arc, Mutex, PoisonError};

/// Reports what the loader of the newest epoch waits for. Clones share the reporter.
#[derive(Debug, Clone, Default)]
pub struct Waiting(Arc<Mutex<Option<Reporter>>>);

impl Waiting {
    /// Sets the batches to report on.
    pub(super) fn watch(&self, batches: &Batches<TensorBatch>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(batches.reporter());
    }

    /// What the loader waits for; `None` if the training does not wait for a batch.
    pub fn cause(&self) -> Option<String> {
        let reporter = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let diagnosis = reporter?.diagnose();
        diagnosis.waited.map(|_| diagnosis.cause)
    }
}
