//! Watches a run: its outputs, the activities of its threads, and waits of the trainer.
//!
//! ```text
//! monitor    watches one run
//! consumed   the batches that the trainer received, and its waits
//! threads    the threads of the run, and the time that they spend on each activity
//! status     snapshots of threads and streams
//! sampler    the thread that samples all runs of the process
//! stall      the warning of a long wait
//! diagnosis  the activity of each thread, stream and request, and the cause of a wait
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
