//! `Gate`: controls whether a stream that has ended may start again.

use futures::task::AtomicWaker;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

/// Limits the number of passes of a stream. The sequencer opens the gate when it needs another pass. The
/// reader waits until the gate is open, so that it reads no pass that is not needed.
#[derive(Debug, Clone)]
pub(in crate::loader) struct Gate {
    /// Number of passes that are always allowed.
    passes: u64,
    state: Arc<GateState>,
}

#[derive(Debug)]
struct GateState {
    /// Number of passes that are allowed now.
    allowed: AtomicU64,
    reader: AtomicWaker,
}

impl Gate {
    /// Allows `passes` passes, and the `repeats` additional passes that were allowed before a restore.
    pub(in crate::loader) fn new(passes: u64, repeats: u64) -> Self {
        let allowed = AtomicU64::new(passes.saturating_add(repeats));
        Gate { passes, state: Arc::new(GateState { allowed, reader: AtomicWaker::new() }) }
    }

    /// Allows `repeats` additional passes in total.
    pub(in crate::loader) fn open(&self, repeats: u64) {
        self.state.allowed.fetch_max(self.passes.saturating_add(repeats), Ordering::AcqRel);
        self.state.reader.wake();
    }

    /// Whether pass `pass`, counted from 0, is allowed.
    pub(super) fn allows(&self, pass: u64) -> bool {
        pass < self.state.allowed.load(Ordering::Acquire)
    }

    /// Waits until the pass is allowed.
    pub(super) fn poll(&self, pass: u64, cx: &Context<'_>) -> Poll<()> {
        self.state.reader.register(cx.waker());
        if self.allows(pass) { Poll::Ready(()) } else { Poll::Pending }
    }
}
