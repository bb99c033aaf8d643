//! When to warn that a trainer waits, and how.

use super::diagnosis::Diagnosis;
use crate::panic::catch;
use crate::telemetry::log;
use std::fmt;
use std::io::{self, Write as _};
use std::sync::Arc;
use std::time::Duration;

/// A wait for a batch that is longer than
/// [`stall_after`](crate::loader::LoaderBuilder::stall_after) allows, as
/// [`on_stall`](crate::loader::LoaderBuilder::on_stall) is told of it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Stall {
    /// How long the trainer has waited so far.
    pub waited: Duration,
    /// What everybody is doing and waiting for.
    pub diagnosis: Diagnosis,
}

/// As `no batch for 30.0 s: …`, with what it waits for, and what the threads and requests do.
impl fmt::Display for Stall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no batch for {:.1} s: {}", self.waited.as_secs_f64(), self.diagnosis)
    }
}

type Callback = dyn Fn(&Stall) + Send + Sync;

/// When to warn, and whom to tell.
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
    /// Whether it was set by the caller.
    pub(in crate::loader) fn is_set(&self) -> bool {
        self.callback.is_some() || self.after != OnStall::default().after
    }

    /// Logs the warning and calls the callback; without a listener, writes to the standard error stream.
    pub(super) fn warn(&self, stall: &Stall) {
        log!(WARN, "the trainer waits for a batch", stall = stall);
        match &self.callback {
            // A panic of the caller's must not end the warnings of other runs.
            Some(callback) => drop(catch(|| callback(stall))),
            None if is_logged() => {}
            // Nobody may read it any more.
            None => drop(writeln!(io::stderr(), "shardstream: {stall}")),
        }
    }
}

/// Whether somebody listens to what is logged.
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
