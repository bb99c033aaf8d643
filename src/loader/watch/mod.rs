//! Watches a run: what it returns, what its threads do, and a warning if the trainer waits for long.
//!
//! ```text
//! monitor    watches one run
//! consumed   what the trainer received, and how long it waited
//! threads    the threads of the run, and the time that they spend on each activity
//! status     snapshots of threads and streams
//! sampler    the one thread of the process that samples all runs
//! stall      the warning of a long wait
//! diagnosis  what each thread, stream and request does or waits for
//! reporter   the public handle of a monitor
//! gauges     memory and queues as metrics
//! ```

mod consumed;
mod diagnosis;
#[cfg(feature = "metrics")]
mod gauges;
mod monitor;
mod reporter;
mod sampler;
mod stall;
mod status;
mod threads;

pub use diagnosis::Diagnosis;
pub(super) use monitor::RunMonitor;
pub use reporter::Reporter;
pub(super) use stall::OnStall;
pub(super) use status::{PoolStatus, Role, StreamId, StreamProgress, WorkDone};
