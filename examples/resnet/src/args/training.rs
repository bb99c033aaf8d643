//! The options of the group "Training".

use super::number::{below_one, not_negative, percentage, positive};
use crate::schedule::Decay;
use clap::Args;

/// The options of the training.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Training", about = None, long_about = None)]
pub struct TrainingArgs {
    /// Number of epochs
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..))]
    pub epochs: u64,
    /// Maximum number of steps per epoch; 0: all
    #[arg(long, default_value_t = 0)]
    pub steps: u64,
    /// Seed of the initial weights, the order and the augmentation
    #[arg(long, default_value_t = 1)]
    pub seed: i32,
    /// Initial weights of a new training: a safetensors file with torchvision's names, as --save-weights
    /// writes it. A last layer for another number of classes is ignored. A resumed training does not read the
    /// file
    #[arg(long, value_name = "FILE|URL", conflicts_with = "dry_run")]
    pub init_from: Option<String>,
    /// Highest learning rate
    #[arg(long, default_value_t = 0.2, value_parser = positive)]
    pub lr: f32,
    /// Number of steps until the learning rate is at its highest
    #[arg(long, value_name = "STEPS", default_value_t = 30)]
    pub warmup: u64,
    /// Decay of the learning rate: cosine (to zero at the end of the last epoch), constant,
    /// step:EPOCHS:DIVISOR, exponential:EPOCHS:DIVISOR
    #[arg(long, default_value_t = Decay::Cosine)]
    pub decay: Decay,
    /// Weight decay; biases and batch norm have none
    #[arg(long, default_value_t = 5e-4, value_parser = not_negative)]
    pub weight_decay: f32,
    /// Share of the target that is spread over all classes
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, value_parser = below_one)]
    pub label_smoothing: f32,
    /// Nesterov momentum
    #[arg(long, default_value_t = 0.9, value_parser = below_one)]
    pub momentum: f32,
    /// End with exit code 3 if the best validation accuracy is lower than this
    #[arg(long, value_name = "PERCENT", value_parser = percentage)]
    pub target_accuracy: Option<f64>,
}
