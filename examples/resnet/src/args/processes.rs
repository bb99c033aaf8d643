//! The options of the group "Processes".

use super::number::{at_least_one, seconds};
use crate::rendezvous::Address;
use clap::Args;

/// The options of the job's processes.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Processes", about = None, long_about = None)]
pub struct ProcessArgs {
    /// Number of processes to start on this host, each with its part of the devices
    #[arg(long, value_name = "PROCESSES", value_parser = at_least_one)]
    pub spawn: Option<usize>,
    /// Rank of this process, from 0. Default: the rank in the launcher's environment variables
    #[arg(long, requires = "world_size")]
    pub rank: Option<usize>,
    /// Number of processes
    #[arg(long, requires = "rank", conflicts_with = "spawn")]
    pub world_size: Option<usize>,
    /// Address at which rank 0 listens, and through which GPU processes find each other; the same for all
    /// processes. Default: the address in the launcher's environment variables
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "spawn")]
    pub coordinator: Option<Address>,
    /// How long a GPU process waits at the start for the other processes
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 300.0,
        value_parser = seconds
    )]
    pub join_timeout: f64,
    /// Feed the devices but compute nothing: every step takes MS milliseconds. Shows whether the data is fast
    /// enough for such steps
    #[arg(
        long,
        value_name = "MS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "0"
    )]
    pub dry_run: Option<f64>,
}
