//! The options of the training loop.

use crate::checkpoint::Inputs;
use crate::schedule::Schedule;
use shardstream::Topology;

/// The options of the training loop.
#[derive(Debug, Clone)]
pub struct TrainOptions {
    /// Number of epochs.
    pub epochs: u64,
    /// Maximum number of steps per epoch; 0 for no limit.
    pub steps: u64,
    /// Number of steps between lines of the log; 0 for no such lines.
    pub log_steps: u64,
    /// Schedule of the learning rate.
    pub schedule: Schedule,
    /// Weight decay.
    pub weight_decay: f32,
    /// Label smoothing.
    pub label_smoothing: f32,
    /// Nesterov momentum of the updates.
    pub momentum: f32,
    /// Number of batches that are uploaded to the devices ahead of their steps.
    pub depth: usize,
    /// The rank of this process and the number of processes.
    pub topology: Topology,
}

impl TrainOptions {
    /// The options that future steps depend on.
    pub fn inputs(&self) -> Inputs {
        Inputs::new(self.epochs)
            .with("steps", self.steps)
            .with("lr", self.schedule.peak)
            .with("warmup", self.schedule.warmup)
            .with("decay", self.schedule.decay)
            .with("weight decay", self.weight_decay)
            .with("label smoothing", self.label_smoothing)
            .with("momentum", self.momentum)
    }
}
