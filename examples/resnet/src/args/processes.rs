//! The options of the group "Processes".

use super::number::{at_least_one, seconds};
use crate::rendezvous::Address;
use clap::Args;

/// Which processes take part.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Processes", about = None, long_about = None)]
pub struct ProcessArgs {
    /// Number of processes to start on this host, each with its part of the devices
    #[arg(long, value_name = "PROCESSES", value_parser = at_least_one)]
    pub spawn: Option<usize>,
    /// Which process this is, from 0; without it, what the launcher has put into the environment
    #[arg(long, requires = "world_size")]
    pub rank: Option<usize>,
    /// How many processes there are
    #[arg(long, requires = "rank", conflicts_with = "spawn")]
    pub world_size: Option<usize>,
    /// Where rank 0 is, the same for all processes: it listens there, and GPU processes find each other;
    /// without it, what the launcher has put into the environment
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "spawn")]
    pub coordinator: Option<Address>,
    /// How long a GPU process waits for the other ones at the start
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 300.0,
        value_parser = seconds
    )]
    pub join_timeout: f64,
    /// Feed the devices and compute nothing: every step takes MS milliseconds. Shows whether the data is
    /// fast enough for such a step
    #[arg(
        long,
        value_name = "MS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "0"
    )]
    pub dry_run: Option<f64>,
}
