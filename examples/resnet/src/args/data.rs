//! The options of the group "Data".

use super::number::at_least_one;
use clap::Args;
use std::path::PathBuf;

/// The options of reading data.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Data", about = None, long_about = None)]
pub struct DataArgs {
    /// Training shards, as gs://bucket/train-{000000..000639}.tar or data/train-*.tar. Without this option,
    /// synthetic images are used
    #[arg(long, value_name = "URL", requires = "val_shards")]
    pub shards: Option<String>,
    /// Validation shards
    #[arg(long, value_name = "URL", requires = "shards")]
    pub val_shards: Option<String>,
    /// The index of the training shards, as `shardstream create --index` writes it. Without this option, the
    /// shards are indexed once
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
    /// Number of threads that decode. With 0, the number is about that of the cores, and higher if threads
    /// wait for data
    #[arg(long, visible_alias = "threads", default_value_t = 0)]
    pub workers: usize,
    /// Samples in the shuffle buffer of each stream
    #[arg(long, default_value_t = 512)]
    pub shuffle: usize,
    /// Number of logical streams of all processes together. The order of the samples depends on this number.
    /// With 0, it is the least common multiple of 8 and the number of processes. Set this option if the
    /// number of processes may change
    #[arg(long, default_value_t = 0)]
    pub streams: usize,
    /// Each stream has the same shards in all epochs, so that a process can cache its shards on a disk or a
    /// mounted bucket
    #[arg(long, requires = "shards")]
    pub keep_shards: bool,
    /// Number of batches to prepare ahead on the host. With 0, this number starts at 2 and grows while that
    /// helps, up to 512 MiB of batches
    #[arg(long, value_name = "BATCHES", default_value_t = 0)]
    pub prefetch: usize,
    /// Batches that are uploaded to the devices ahead of their steps
    #[arg(long, value_name = "BATCHES", default_value_t = 2, value_parser = at_least_one)]
    pub depth: usize,
    /// Maximum number of damaged training images that each process may skip in an epoch. One more damaged
    /// image is an error. If this option is not set, each process may skip one image in a thousand
    #[arg(long, value_name = "IMAGES", conflicts_with = "folder")]
    pub skip_bad: Option<u64>,
    /// Directory for the synthetic shards and for indexes; the user's cache directory unless set
    #[arg(long, value_name = "PATH")]
    pub work_dir: Option<PathBuf>,
}
