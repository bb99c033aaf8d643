//! Whether a stream that has come to its end may begin again.

use futures::task::AtomicWaker;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

/// How many passes a stream may make. Whoever deals its items opens it; whoever reads waits for that, so that
/// nothing is read which nobody wants.
#[derive(Debug, Clone)]
pub(in crate::loader) struct Gate {
    /// How many it makes in any case.
    passes: u64,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    allowed: AtomicU64,
    reader: AtomicWaker,
}

impl Gate {
    /// A number of passes, and as many more as were allowed before a restore.
    pub(in crate::loader) fn new(passes: u64, again: u64) -> Self {
        let allowed = AtomicU64::new(passes.saturating_add(again));
        Gate { passes, shared: Arc::new(Shared { allowed, reader: AtomicWaker::new() }) }
    }

    /// Lets the stream begin again, for the `time`th time.
    pub(in crate::loader) fn open(&self, time: u64) {
        self.shared.allowed.fetch_max(self.passes.saturating_add(time), Ordering::AcqRel);
        self.shared.reader.wake();
    }

    /// Whether the pass of this number, counted from 0, is allowed.
    pub(super) fn allows(&self, pass: u64) -> bool {
        pass < self.shared.allowed.load(Ordering::Acquire)
    }

    /// Waits until it is.
    pub(super) fn poll(&self, pass: u64, cx: &Context<'_>) -> Poll<()> {
        self.shared.reader.register(cx.waker());
        if self.allows(pass) { Poll::Ready(()) } else { Poll::Pending }
    }
}
