//! How to train.

use crate::schedule::Schedule;
use shardstream::Topology;

/// How to train.
#[derive(Debug, Clone)]
pub struct TrainOptions {
    /// Passes over the data.
    pub epochs: u64,
    /// Maximum number of steps per epoch; 0 for no limit.
    pub steps: u64,
    /// Steps between lines of the log; 0 for none.
    pub log_steps: u64,
    /// The learning rate.
    pub schedule: Schedule,
    /// Weight decay.
    pub weight_decay: f32,
    /// Label smoothing.
    pub label_smoothing: f32,
    /// Momentum of the updates.
    pub momentum: f32,
    /// Batches that wait on the devices.
    pub depth: usize,
    /// Which process of the job this is.
    pub topology: Topology,
}
