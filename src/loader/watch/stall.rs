//! `OnStall`: warns when the trainer has waited too long for a batch.

use super::diagnosis::Diagnosis;
use crate::panic::catch;
use crate::telemetry::log;
use std::fmt;
use std::io::{self, Write as _};
use std::sync::Arc;
use std::time::Duration;

type Callback = dyn Fn(&Diagnosis) + Send + Sync;

/// The options of the warning.
#[derive(Clone)]
pub(in crate::loader) struct OnStall {
    /// The length of a wait after which to warn.
    pub(in crate::loader) after: Duration,
    pub(in crate::loader) callback: Option<Arc<Callback>>,
}

impl Default for OnStall {
    fn default() -> Self {
        OnStall { after: Duration::from_secs(30), callback: None }
    }
}

impl OnStall {
    /// Whether the caller set any of the options.
    pub(in crate::loader) fn is_set(&self) -> bool {
        self.callback.is_some() || self.after != OnStall::default().after
    }

    /// Logs the warning and calls the callback. Without a callback or a subscriber, writes it to standard
    /// error.
    pub(super) fn warn(&self, diagnosis: &Diagnosis) {
        log!(WARN, "the trainer waits for a batch", stall = diagnosis);
        match &self.callback {
            // A panic of the callback must not end the warnings of other runs.
            Some(callback) => drop(catch(|| callback(diagnosis))),
            None if is_logged() => {}
            // Standard error may be closed: then the warning is lost.
            None => drop(writeln!(io::stderr(), "shardstream: {diagnosis}")),
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
