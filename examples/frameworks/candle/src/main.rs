//! The command line of the trainer.

use candle_core::Device;
use candle_trainer::Step;
use clap::Parser;
use shardstream::state::Ledger;
use std::error::Error;
use std::path::PathBuf;

/// Train a small network in candle, on the CPU.
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
    epochs: u64,
    /// Seed of the sample order and the augmentation. It does not seed the initial weights: on a CPU, candle
    /// draws them without a seed
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
    let loader = candle_trainer::loader(&shards, args.batch, args.seed)?;
    let mut number = 0;
    let log = |epoch, step: Step| {
        number += 1;
        if number % 10 == 0 {
            println!("epoch {epoch}, step {number:4}  loss {:.4}  accuracy {:.3}", step.loss, step.accuracy);
        }
    };
    let skipped = |epoch, ledger: &Ledger| println!("epoch {epoch}: {ledger}");
    let report = candle_trainer::train(
        &loader,
        &Device::cuda_if_available(0)?,
        args.classes,
        args.epochs,
        log,
        skipped,
    )?;
    println!("{report}");
    Ok(())
}
