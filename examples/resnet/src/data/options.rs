//! How data is read.

use super::sets::Sets;
use super::waiting::Waiting;
use shardstream::Topology;
use shardstream::tensor::BatchMemory;
use std::path::PathBuf;
use std::sync::Arc;

/// The options of both parts of a data set.
#[derive(Debug, Clone)]
pub struct DataOptions {
    /// Seed of order and augmentation.
    pub seed: u64,
    /// Images per batch of this process.
    pub batch: usize,
    /// Height and width of the images.
    pub size: usize,
    /// The number of classes.
    pub classes: usize,
    /// Threads that decode; 0 for the library's choice, which leaves some to the trainer.
    pub workers: usize,
    /// Samples in the shuffle buffer of each stream.
    pub shuffle: usize,
    /// Number of logical streams of all ranks together; 0 for 8, or the smallest multiple of the ranks that 8
    /// divides. The order depends on the number of streams, and not on that of the ranks.
    pub streams: usize,
    /// Whether each stream has the same shards in all epochs.
    pub keep_shards: bool,
    /// Number of batches that are prepared ahead on the host; 0 for the library's choice.
    pub prefetch: usize,
    /// Which process of the job this is.
    pub topology: Topology,
    /// Number of damaged images that this process may skip in an epoch of training; by default, one in a
    /// thousand.
    pub skip_bad: Option<u64>,
    /// URLs of the indexes that were written with the shards.
    pub indexes: Sets<Option<String>>,
    /// A directory for indexes that had to be built, so that the next start need not read the shards for
    /// them.
    pub index_cache: Option<PathBuf>,
    /// Pins the memory of the images.
    pub memory: Option<Arc<dyn BatchMemory>>,
    /// Reports later what batches wait for.
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
