//! The options of the group "Data".

use super::number::at_least_one;
use clap::Args;
use std::path::PathBuf;

/// How the data is read.
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
    /// The index of the training shards, as `shardstream create --index` writes it; without it they are read
    /// for it once
    #[arg(long, value_name = "URL", requires = "shards")]
    pub index: Option<String>,
    /// The index of the validation shards
    #[arg(long, value_name = "URL", requires = "shards")]
    pub val_index: Option<String>,
    /// Single files DIR/CLASS/*.jpg in random order in place of shards: to compare with
    #[arg(long, value_name = "DIR", requires = "val_folder", conflicts_with = "shards")]
    pub folder: Option<PathBuf>,
    /// Single files for validation
    #[arg(long, value_name = "DIR", requires = "folder")]
    pub val_folder: Option<PathBuf>,
    /// Threads that decode; 0: about as many as there are cores, or more where they wait
    #[arg(long, visible_alias = "threads", default_value_t = 0)]
    pub workers: usize,
    /// Samples in the shuffle buffer of each stream
    #[arg(long, default_value_t = 512)]
    pub shuffle: usize,
    /// Logical streams of all processes together, of which the order depends; 0: 8, or the next multiple of
    /// the processes that 8 divides. Say it where the number of processes may change
    #[arg(long, default_value_t = 0)]
    pub streams: usize,
    /// Each stream has the same shards in all epochs, for a mounted bucket or disk that caches the shards of
    /// a process
    #[arg(long, requires = "shards")]
    pub keep_shards: bool,
    /// Batches that are prepared ahead on the host; 0: 2, or as many as help in 512 MiB
    #[arg(long, value_name = "BATCHES", default_value_t = 0)]
    pub prefetch: usize,
    /// Batches that wait on the devices
    #[arg(long, value_name = "BATCHES", default_value_t = 2, value_parser = at_least_one)]
    pub depth: usize,
    /// Damaged training images that are skipped by each process in an epoch; one more is an error, as is the
    /// first one with 0. Without it, one image in a thousand is skipped
    #[arg(long, value_name = "IMAGES", conflicts_with = "folder")]
    pub skip_bad: Option<u64>,
    /// Where the synthetic shards are put and indexes are kept; the user's cache directory unless set
    #[arg(long, value_name = "PATH")]
    pub work_dir: Option<PathBuf>,
}
