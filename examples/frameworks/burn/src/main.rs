//! The command line of the trainer.

use burn::tensor::Device;
use burn_trainer::{data, train};
use clap::Parser;
use shardstream_burn::ShardLoader;
use std::error::Error;
use std::path::PathBuf;

/// Train a small ResNet in burn, on the CPU.
#[derive(Debug, Parser)]
struct Args {
    /// Shards of 32x32 images (jpg, png, webp) and classes (cls). Without this option, synthetic images are
    /// used
    #[arg(long, value_name = "URL")]
    shards: Option<String>,
    /// Number of classes
    #[arg(long, default_value_t = 10)]
    classes: usize,
    /// Images per step
    #[arg(long, default_value_t = 64)]
    batch: usize,
    /// Passes over the data
    #[arg(long, default_value_t = 3)]
    epochs: usize,
    /// Seed of the order, the augmentation and the initial weights
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Directory for the synthetic shards
    #[arg(long, value_name = "DIRECTORY")]
    #[arg(default_value_os_t = std::env::temp_dir().join("shardstream-synthetic"))]
    work_dir: PathBuf,
}

fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let args = Args::parse();
    let shards = match args.shards {
        Some(shards) => shards,
        None => synthetic::shards(&args.work_dir, synthetic::Counts::default())?.train,
    };
    let device = Device::flex().autodiff();
    device.seed(args.seed);
    let batches = data::loader(&shards, args.batch, args.seed)?;
    let loader = ShardLoader::new(batches, args.batch, device.clone(), data::upload);
    let mut number = 0;
    train::train(&loader, &device, args.classes, args.epochs, |epoch, step| {
        number += 1;
        if number % 10 == 0 {
            println!("epoch {epoch}, step {number:4}  loss {:.4}  accuracy {:.3}", step.loss, step.accuracy);
        }
    })?;
    println!("{}", loader.report());
    if !loader.skipped().is_empty() {
        println!("{}", loader.skipped());
    }
    Ok(())
}
