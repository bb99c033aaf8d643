//! How to train.

use crate::checkpoint::Inputs;
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

impl TrainOptions {
    /// The options that future steps depend on.
    pub fn inputs(&self) -> Inputs {
        let Self { epochs, steps, schedule, weight_decay, label_smoothing, momentum, .. } = self.clone();
        let inputs = Inputs::new(epochs).with("steps", steps).with("lr", schedule.peak);
        let inputs = inputs.with("warmup", schedule.warmup).with("decay", schedule.decay);
        let inputs = inputs.with("weight decay", weight_decay);
        inputs.with("label smoothing", label_smoothing).with("momentum", momentum)
    }
}
