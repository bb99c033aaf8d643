//! A run that is under way: what it has given, what its threads do, and a warning where nothing comes.
//!
//! ```text
//! run        what is known of a run, shared by all who ask
//! status     what is known of its threads and streams at a moment
//! consumed   what it has given out, and how long the trainer waited for it
//! sampler    the one thread of the process that looks at the threads of all runs
//! stall      when to warn of a wait, and how
//! diagnosis  what everybody is doing and waiting for
//! gauges     what a run holds, for the facade `metrics`
//! ```

mod consumed;
mod diagnosis;
#[cfg(feature = "metrics")]
mod gauges;
mod run;
mod sampler;
mod stall;
mod status;

pub use diagnosis::{Diagnosis, StreamActivity, StreamStatus, ThreadStatus};
pub use run::Reporter;
pub(super) use run::RunMonitor;
pub(super) use stall::OnStall;
pub use stall::Stall;
pub(super) use status::{PoolStatus, Role, StreamId, StreamProgress, WorkDone};
