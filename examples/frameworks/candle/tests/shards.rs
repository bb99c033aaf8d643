//! Trains for a few steps on the synthetic images.
#![allow(missing_docs)]

use candle_core::Device;
use std::path::Path;

fn shards(dir: &Path) -> String {
    synthetic::shards(dir, synthetic::Counts { train: 330, validation: 1 }).unwrap().train
}

#[test]
fn the_loss_falls() {
    let dir = tempfile::tempdir().unwrap();
    let loader = candle_trainer::loader(&shards(dir.path()), 32, 1).unwrap();
    let mut losses = Vec::new();
    let report =
        candle_trainer::train(&loader, &Device::Cpu, 10, 6, |_, step| losses.push(step.loss), |_, _| ())
            .unwrap();
    assert_eq!((losses.len(), report.batches, report.firsts), (60, 60, 6));
    let mean = |losses: &[f32]| losses.iter().sum::<f32>() / losses.len() as f32;
    assert!(mean(&losses[50..]) < 0.95 * mean(&losses[..3]), "{losses:?}");
}

#[test]
fn a_seed_gives_the_same_batches() {
    let dir = tempfile::tempdir().unwrap();
    let shards = shards(dir.path());
    let epoch = |epoch| -> Vec<(Vec<f32>, Vec<u32>)> {
        let loader = candle_trainer::loader(&shards, 32, 1).unwrap();
        let batches = loader.epoch(epoch).map(|batch| {
            let (images, labels) = candle_trainer::upload::upload(&batch.unwrap(), &Device::Cpu).unwrap();
            assert_eq!(images.dims(), [32, 3, 32, 32]);
            (images.flatten_all().unwrap().to_vec1().unwrap(), labels.to_vec1().unwrap())
        });
        batches.collect()
    };
    let first = epoch(0);
    assert_eq!(first.len(), 10);
    assert!(epoch(0) == first && epoch(1) != first);
}

#[test]
fn the_page_shows_the_recipe_that_is_tested() {
    let page = include_str!("../../../../docs/trainers.md");
    let recipe = include_str!("../src/upload.rs").split_once("\n\n").unwrap().1;
    assert!(page.contains(&format!("```rust,ignore\n{recipe}```\n")), "copy src/upload.rs to the page");
}
