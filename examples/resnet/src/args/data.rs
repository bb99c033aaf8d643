//! The options of the group "Data".

use super::number::at_least_one;
use clap::Args;
use std::path::PathBuf;

/// The options of reading data.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Data", about = None, long_about = None)]
pub struct DataArgs {
    /// Training shards, as gs://bucket/train-{000000..000639}.tar or data/train-*.tar; without it, synthetic
    /// images
    #[arg(long, value_name = "URL", requires = "val_shards")]
    pub shards: Option<String>,
    /// Validation shards
    #[arg(long, value_name = "URL", requires = "shards")]
    pub val_shards: Option<String>,
    /// The index of the training shards, as `shardstream create --index` writes it; without it, the shards
    /// are indexed once
    #[arg(long, value_name = "URL", requires = "shards")]
    pub index: Option<String>,
    /// The index of the validation shards
    #[arg(long, value_name = "URL", requires = "shards")]
    pub val_index: Option<String>,
    /// Single files DIR/CLASS/*.jpg in random order instead of shards, as a baseline
    #[arg(long, value_name = "DIR", requires = "val_folder", conflicts_with = "shards")]
    pub folder: Option<PathBuf>,
    /// Single files for validation
    #[arg(long, value_name = "DIR", requires = "folder")]
    pub val_folder: Option<PathBuf>,
    /// Threads that decode; 0: about as many as there are cores, or more if they wait for data
    #[arg(long, visible_alias = "threads", default_value_t = 0)]
    pub workers: usize,
    /// Samples in the shuffle buffer of each stream
    #[arg(long, default_value_t = 512)]
    pub shuffle: usize,
    /// Logical streams of all processes together; the order of the samples depends on this number. 0: the
    /// least common multiple of 8 and the number of processes. Set it if the number of processes may change
    #[arg(long, default_value_t = 0)]
    pub streams: usize,
    /// Each stream has the same shards in all epochs, so that a process can cache its shards on a disk or a
    /// mounted bucket
    #[arg(long, requires = "shards")]
    pub keep_shards: bool,
    /// Batches that are prepared ahead on the host; 0: 2 at first, then more while that helps, up to 512 MiB
    #[arg(long, value_name = "BATCHES", default_value_t = 0)]
    pub prefetch: usize,
    /// Batches that are uploaded to the devices ahead of their steps
    #[arg(long, value_name = "BATCHES", default_value_t = 2, value_parser = at_least_one)]
    pub depth: usize,
    /// Damaged training images that each process may skip in an epoch; one more is an error. Without it, each
    /// process may skip one image in a thousand
    #[arg(long, value_name = "IMAGES", conflicts_with = "folder")]
    pub skip_bad: Option<u64>,
    /// Directory for the synthetic shards and for indexes; the user's cache directory unless set
    #[arg(long, value_name = "PATH")]
    pub work_dir: Option<PathBuf>,
}
