//! `ReadLimit`: limits the number of samples that are read in search of a sample that pads batches.

use super::config::SelectFn;
use crate::error::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Maximum number of samples that are read in search of a sample that pads batches. It is small because a
/// step waits for the search.
const MAX_READ: u64 = 1 << 12;

/// Limits the number of samples that several streams read together. Clones share the count.
#[derive(Debug, Clone, Default)]
pub(in crate::loader) struct ReadLimit(Arc<AtomicU64>);

impl ReadLimit {
    /// Whether more samples were read than the limit allows.
    pub(in crate::loader) fn is_exceeded(&self) -> bool {
        self.0.load(Relaxed) > MAX_READ
    }

    /// Counts a sample that could not be read.
    pub(in crate::loader) fn count(&self) {
        self.0.fetch_add(1, Relaxed);
    }

    /// Wraps a selection so that it fails for each sample beyond the limit. Without this, a selection that
    /// drops all samples would make the stream read all of its shards.
    pub(in crate::loader) fn select(&self, select: Option<SelectFn>) -> SelectFn {
        let limit = self.clone();
        Arc::new(move |sample| {
            limit.count();
            if limit.is_exceeded() {
                return Err(ErrorKind::Stopped.into());
            }
            match &select {
                Some(select) => select(sample),
                None => Ok(Some(sample)),
            }
        })
    }
}
