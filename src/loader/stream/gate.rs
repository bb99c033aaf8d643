//! Whether a stream that has come to its end may begin again.

use crate::error::Result;
use crate::wait;
use async_channel::{Receiver, Sender};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How many passes a stream may make. Whoever deals its items opens it; the thread that reads waits for that,
/// so that nothing is read which nobody wants.
#[derive(Debug, Clone)]
pub(in crate::loader) struct Gate {
    /// How many it makes in any case.
    passes: u64,
    allowed: Arc<AtomicU64>,
    opens: Sender<()>,
    opened: Receiver<()>,
}

impl Gate {
    /// So many passes, and as many more as were allowed before a restore.
    pub(in crate::loader) fn new(passes: u64, again: u64) -> Self {
        let (opens, opened) = async_channel::bounded(1);
        let allowed = Arc::new(AtomicU64::new(passes.saturating_add(again)));
        Gate { passes, allowed, opens, opened }
    }

    /// Lets the stream begin again, for the `time`th time.
    pub(in crate::loader) fn open(&self, time: u64) {
        self.allowed.fetch_max(self.passes.saturating_add(time), Ordering::AcqRel);
        // Where the queue is full, somebody is about to look.
        let _ = self.opens.try_send(());
    }

    /// Whether the pass of this number, counted from 0, is allowed.
    pub(super) fn allows(&self, pass: u64) -> bool {
        pass < self.allowed.load(Ordering::Acquire)
    }

    /// Waits until it is.
    pub(super) fn wait(&self, pass: u64) -> Result<()> {
        while !self.allows(pass) {
            let _ = wait::block_on(self.opened.recv())?;
        }
        Ok(())
    }
}
