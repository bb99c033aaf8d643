//! The options of the group "Log and checkpoints".

use super::number::seconds;
use crate::checkpoint::Resume;
use crate::profile;
use clap::Args;
use std::net::SocketAddr;
use std::path::PathBuf;

/// The options of the log, the checkpoints and the other outputs.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Log and checkpoints", about = None, long_about = None)]
pub struct OutputArgs {
    /// Steps between lines of the log; 0: no such lines
    #[arg(long, default_value_t = 10)]
    pub log_steps: u64,
    /// Write TensorBoard events and a copy of the log to a directory, or gs://bucket/prefix
    #[arg(long, value_name = "URL")]
    pub log_dir: Option<String>,
    /// Serve metrics of trainer and loader to Prometheus at http://ADDRESS:PORT/metrics. With --spawn, rank 0
    /// uses PORT, rank 1 uses PORT + 1, and so on. Needs the feature metrics
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub metrics: Option<SocketAddr>,
    /// If the training waits this long, log a warning that says what it waits for, and on which rank; 0:
    /// never
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 60.0,
        value_parser = seconds
    )]
    pub stall_warning: f64,
    /// If the training waits this long, end the process with exit code 4, so that its launcher restarts the
    /// job; 0: never
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 0.0,
        value_parser = seconds
    )]
    pub step_timeout: f64,
    /// Write a profile of the devices during --profile-steps, for XProf and TensorBoard, to a directory, or
    /// gs://bucket/prefix. Needs a plugin with a profiler
    #[arg(long, value_name = "URL", conflicts_with = "dry_run")]
    pub profile: Option<String>,
    /// The steps to record, counted from the start of this process
    #[arg(long, value_name = "FIRST-LAST", default_value = "10-14", requires = "profile")]
    pub profile_steps: profile::Steps,
    /// Write the numbers of the summary as JSON
    #[arg(long, value_name = "FILE")]
    pub summary: Option<PathBuf>,
    /// After the last epoch, write weights and batch-norm statistics to a safetensors file with torchvision's
    /// names. If --resume finds a finished training, the file is written at once. If FILE is a directory, the
    /// file in it is model.safetensors
    #[arg(long, value_name = "FILE|URL", conflicts_with = "dry_run")]
    pub save_weights: Option<String>,
    /// Save checkpoints, with the network and the state of the data, to a directory, or gs://bucket/prefix
    #[arg(long, value_name = "URL")]
    pub checkpoint: Option<String>,
    /// Steps between checkpoints; 0: only at the end of each epoch
    #[arg(long, default_value_t = 0, requires = "checkpoint")]
    pub checkpoint_steps: u64,
    /// Number of checkpoints to keep, in addition to that of the best epoch; 0: all
    #[arg(long, value_name = "CHECKPOINTS", default_value_t = 0, requires = "checkpoint")]
    pub keep: usize,
    /// Resume from the newest checkpoint, or start from the beginning if there is none; with `auto`, from the
    /// newest checkpoint that is not damaged
    #[arg(
        long,
        value_name = "WHICH",
        num_args = 0..=1,
        default_missing_value = "newest",
        requires = "checkpoint"
    )]
    pub resume: Option<Resume>,
}
