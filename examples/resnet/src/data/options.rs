//! The options of the input pipeline.

use super::sets::Sets;
use super::waiting::Waiting;
use shardstream::Topology;
use shardstream::tensor::BatchMemory;
use std::path::PathBuf;
use std::sync::Arc;

/// The options of the input pipeline, for training and validation data.
#[derive(Debug, Clone)]
pub struct DataOptions {
    /// Seed of order and augmentation.
    pub seed: u64,
    /// Number of images per batch of this process.
    pub batch: usize,
    /// Height and width of the images.
    pub size: usize,
    /// The number of classes.
    pub classes: usize,
    /// Number of threads that decode; 0 for the loader's default, which leaves some cores to the trainer.
    pub workers: usize,
    /// Number of samples in the shuffle buffer of each stream.
    pub shuffle: usize,
    /// Number of logical streams of all ranks together; 0 for the least common multiple of 8 and the number
    /// of ranks. The order depends on the number of streams, and not on the number of ranks.
    pub streams: usize,
    /// Whether each stream has the same shards in all epochs.
    pub keep_shards: bool,
    /// Number of batches that are prepared ahead on the host; 0 for the loader's default.
    pub prefetch: usize,
    /// The rank of this process and the number of processes.
    pub topology: Topology,
    /// Number of damaged images that this process may skip in an epoch of training; `None` for one in a
    /// thousand.
    pub skip_bad: Option<u64>,
    /// URLs of the shards' indexes. If there is no URL, the shards are indexed.
    pub indexes: Sets<Option<String>>,
    /// The directory that keeps the built indexes for the next start.
    pub index_cache: Option<PathBuf>,
    /// Pins the memory of the images.
    pub memory: Option<Arc<dyn BatchMemory>>,
    /// Reports what the loader waits for. Each epoch stores its loader's reporter here when the epoch begins.
    pub waiting: Waiting,
}

impl DataOptions {
    pub(super) fn streams(&self) -> usize {
        match self.streams {
            0 => {
                let ranks = self.topology.world_size();
                (1..=8).map(|n| n * ranks).find(|n| n.is_multiple_of(8)).unwrap_or(ranks)
            }
            streams => streams,
        }
    }

    pub(super) fn workers(&self) -> usize {
        match self.workers {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            workers => workers,
        }
    }
}
