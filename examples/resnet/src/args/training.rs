//! The options of the group "Training".

use super::number::{below_one, not_negative, percentage, positive};
use crate::schedule::Decay;
use clap::Args;

/// How the network is trained.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Training", about = None, long_about = None)]
pub struct TrainingArgs {
    /// Passes over the training data
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..))]
    pub epochs: u64,
    /// The most steps per epoch; 0: all
    #[arg(long, default_value_t = 0)]
    pub steps: u64,
    /// Of the first weights, the order and the augmentation
    #[arg(long, default_value_t = 1)]
    pub seed: i32,
    /// Weights that a new training begins with: a safetensors file with torchvision's names, as
    /// --save-weights writes it; a last layer of other classes is left out. A training that is resumed does
    /// not read it
    #[arg(long, value_name = "FILE|URL", conflicts_with = "dry_run")]
    pub init_from: Option<String>,
    /// Highest learning rate
    #[arg(long, default_value_t = 0.2, value_parser = positive)]
    pub lr: f32,
    /// Steps until the learning rate is at its highest
    #[arg(long, value_name = "STEPS", default_value_t = 30)]
    pub warmup: u64,
    /// How the learning rate falls: cosine (to zero at the end of the last epoch), constant,
    /// step:EPOCHS:DIVISOR, exponential:EPOCHS:DIVISOR
    #[arg(long, default_value_t = Decay::Cosine)]
    pub decay: Decay,
    /// Of the weights, not of biases and batch norm
    #[arg(long, default_value_t = 5e-4, value_parser = not_negative)]
    pub weight_decay: f32,
    /// The share of the target that is spread over all classes
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, value_parser = below_one)]
    pub label_smoothing: f32,
    /// Nesterov momentum
    #[arg(long, default_value_t = 0.9, value_parser = below_one)]
    pub momentum: f32,
    /// The best validation accuracy that is wanted; a training that ends below it has exit code 3
    #[arg(long, value_name = "PERCENT", value_parser = percentage)]
    pub target_accuracy: Option<f64>,
}
