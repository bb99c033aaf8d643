//! `CurrentShard`: the shard that a reader is reading, for diagnoses of a run.

use crate::SecretUrl;
use std::sync::{Arc, Mutex, PoisonError};

/// The shard that is being read. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct CurrentShard(Arc<Mutex<Option<SecretUrl>>>);

impl CurrentShard {
    pub(super) fn set(&self, url: &SecretUrl) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(url.clone());
    }

    pub(crate) fn get(&self) -> Option<SecretUrl> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
