//! The options of the group "Log and checkpoints".

use super::number::seconds;
use crate::checkpoint::Resume;
use crate::profile;
use clap::Args;
use std::net::SocketAddr;
use std::path::PathBuf;

/// What a training writes.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Log and checkpoints", about = None, long_about = None)]
pub struct OutputArgs {
    /// Steps between lines of the log; 0: none
    #[arg(long, default_value_t = 10)]
    pub log_steps: u64,
    /// TensorBoard events and a copy of the log: a directory, or gs://bucket/prefix
    #[arg(long, value_name = "URL")]
    pub log_dir: Option<String>,
    /// Serve metrics of the trainer and the loader to Prometheus at http://ADDRESS/metrics; each process of
    /// --spawn at a port of its own, from this one on. Needs the feature metrics
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub metrics: Option<SocketAddr>,
    /// The wait after which a warning says what it is for, and on which rank; 0: none
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 60.0,
        value_parser = seconds
    )]
    pub stall_warning: f64,
    /// The wait after which the process ends with exit code 4, so that its launcher starts the job again; 0:
    /// never
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 0.0,
        value_parser = seconds
    )]
    pub step_timeout: f64,
    /// Record what the devices do in --profile-steps, for XProf and TensorBoard, where the plugin has a
    /// profiler: a directory, or gs://bucket/prefix
    #[arg(long, value_name = "URL", conflicts_with = "dry_run")]
    pub profile: Option<String>,
    /// The steps to record, counted from the start of this process
    #[arg(long, value_name = "FIRST-LAST", default_value = "10-14", requires = "profile")]
    pub profile_steps: profile::Steps,
    /// The numbers of the summary as JSON
    #[arg(long, value_name = "FILE")]
    pub summary: Option<PathBuf>,
    /// Weights and batch-norm statistics after the last epoch, as a safetensors file with torchvision's
    /// names, also of a training that is done already; model.safetensors in a directory
    #[arg(long, value_name = "FILE|URL", conflicts_with = "dry_run")]
    pub save_weights: Option<String>,
    /// Where the training is saved, network and state of the data together: a directory, or
    /// gs://bucket/prefix
    #[arg(long, value_name = "URL")]
    pub checkpoint: Option<String>,
    /// Steps between checkpoints; 0: only at the end of each epoch
    #[arg(long, default_value_t = 0, requires = "checkpoint")]
    pub checkpoint_steps: u64,
    /// How many checkpoints are kept beside that of the best epoch; 0: all
    #[arg(long, value_name = "CHECKPOINTS", default_value_t = 0, requires = "checkpoint")]
    pub keep: usize,
    /// Resume from the newest checkpoint, or start if there is none; with `auto`, from the newest that is not
    /// damaged
    #[arg(
        long,
        value_name = "WHICH",
        num_args = 0..=1,
        default_missing_value = "newest",
        requires = "checkpoint"
    )]
    pub resume: Option<Resume>,
}
