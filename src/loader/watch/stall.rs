//! `Stall` and `OnStall`: the warning that the trainer has waited for long.

use super::diagnosis::Diagnosis;
use crate::panic::catch;
use crate::telemetry::log;
use std::fmt;
use std::io::{self, Write as _};
use std::sync::Arc;
use std::time::Duration;

/// A wait for a batch that is longer than [`stall_after`](crate::loader::LoaderBuilder::stall_after); passed
/// to [`on_stall`](crate::loader::LoaderBuilder::on_stall).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Stall {
    /// The time that the trainer has waited so far.
    pub waited: Duration,
    /// What each thread, stream and request does or waits for.
    pub diagnosis: Diagnosis,
}

/// Such as `no batch for 30.0 s: …`, followed by the [`Diagnosis`].
impl fmt::Display for Stall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no batch for {:.1} s: {}", self.waited.as_secs_f64(), self.diagnosis)
    }
}

type Callback = dyn Fn(&Stall) + Send + Sync;

/// When to warn, and the callback.
#[derive(Clone)]
pub(in crate::loader) struct OnStall {
    pub(in crate::loader) after: Duration,
    pub(in crate::loader) callback: Option<Arc<Callback>>,
}

impl Default for OnStall {
    fn default() -> Self {
        OnStall { after: Duration::from_secs(30), callback: None }
    }
}

impl OnStall {
    /// Whether the caller set any of it.
    pub(in crate::loader) fn is_set(&self) -> bool {
        self.callback.is_some() || self.after != OnStall::default().after
    }

    /// Logs the warning and calls the callback. Without a callback or a subscriber, writes it to standard
    /// error.
    pub(super) fn warn(&self, stall: &Stall) {
        log!(WARN, "the trainer waits for a batch", stall = stall);
        match &self.callback {
            // A panic of the callback must not end the warnings of other runs.
            Some(callback) => drop(catch(|| callback(stall))),
            None if is_logged() => {}
            // Standard error may be closed.
            None => drop(writeln!(io::stderr(), "shardstream: {stall}")),
        }
    }
}

/// Whether a subscriber receives the warning.
fn is_logged() -> bool {
    #[cfg(feature = "tracing")]
    return tracing::enabled!(target: "shardstream", tracing::Level::WARN);
    #[cfg(not(feature = "tracing"))]
    false
}

impl fmt::Debug for OnStall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnStall").field("after", &self.after).finish_non_exhaustive()
    }
}
