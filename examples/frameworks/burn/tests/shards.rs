//! Trains for a few steps on the synthetic images.
#![allow(missing_docs)]

use burn::data::dataloader::DataLoader;
use burn::tensor::Device;
use burn_trainer::data::{self, Images};
use burn_trainer::train::train;
use shardstream_burn::ShardLoader;
use std::path::Path;

const BATCH: usize = 32;

fn loader(dir: &Path, device: &Device) -> ShardLoader<Images> {
    let shards = synthetic::shards(dir, synthetic::Counts { train: 330, validation: 1 }).unwrap().train;
    ShardLoader::new(data::loader(&shards, BATCH, 1).unwrap(), BATCH, device.clone(), data::upload)
}

#[test]
fn the_loss_falls() {
    let dir = tempfile::tempdir().unwrap();
    let device = Device::flex().autodiff();
    device.seed(1);
    let loader = loader(dir.path(), &device);
    let mut losses = Vec::new();
    train(&loader, &device, 10, 3, |_, step| losses.push(step.loss)).unwrap();
    assert_eq!(losses.len(), 30);
    let mean = |losses: &[f32]| losses.iter().sum::<f32>() / losses.len() as f32;
    assert!(mean(&losses[25..]) < 0.95 * mean(&losses[..3]), "{losses:?}");
    assert_eq!((loader.report().batches, loader.report().firsts), (30, 3));
}

#[test]
fn a_seed_gives_the_same_batches() {
    let dir = tempfile::tempdir().unwrap();
    let device = Device::flex();
    let epoch = |loader: &dyn DataLoader<Images>| -> Vec<_> {
        let mut batches = loader.iter();
        let images: Vec<_> = batches.by_ref().map(Result::unwrap).collect();
        assert_eq!(batches.progress().items_processed, loader.num_items());
        images.into_iter().map(|batch| (batch.pixels.into_data(), batch.labels.into_data())).collect()
    };
    let (one, other) = (loader(dir.path(), &device), loader(dir.path(), &device));
    assert_eq!(one.num_items(), 320);
    let first = epoch(&one);
    assert_eq!(first.len(), 10);
    assert_eq!(epoch(&other), first);
    assert_ne!(epoch(&one), first, "the second epoch");
}
