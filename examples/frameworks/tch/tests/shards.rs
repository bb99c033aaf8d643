//! Trains for a few steps on the synthetic images.
#![allow(missing_docs)]

use shardstream::codec::DType;
use shardstream::prelude::*;
use std::path::Path;
use tch::nn::{self, Module, OptimizerConfig};
use tch::{Device, Kind, Tensor};
use tch_trainer::{epoch, upload};

fn loader(dir: &Path) -> Loader<TensorBatch> {
    let shards = synthetic::shards(dir, synthetic::Counts { train: 330, validation: 1 }).unwrap().train;
    let image =
        ImageColumn::new("png", 32).layout(Layout::Chw).dtype(DType::F32).normalize([0.5; 3], [0.5; 3]);
    let columns = Columns::new().with("image", image).with("label", Scalar::<i64>::new("cls"));
    let dataset = Dataset::builder(shards.as_str()).shuffle_shards(true).seed(1).build().unwrap();
    Loader::builder(dataset)
        .shuffle(64)
        .batch(32)
        .last_batch(LastBatch::Drop)
        .collate(columns)
        .build()
        .unwrap()
}

#[test]
fn the_loss_falls() {
    let dir = tempfile::tempdir().unwrap();
    let loader = loader(dir.path());
    tch::manual_seed(1);
    let store = nn::VarStore::new(Device::Cpu);
    let network = nn::linear(store.root(), 3 * 32 * 32, 10, nn::LinearConfig::default());
    let mut optimizer = nn::Adam::default().build(&store, 1e-3).unwrap();
    let mut losses = Vec::new();
    for number in 0..6 {
        for batch in epoch(&loader, number, Device::Cpu) {
            let ((images, labels), state) = batch.unwrap();
            let loss = network.forward(&images.flatten(1, -1)).cross_entropy_for_logits(&labels);
            optimizer.backward_step(&loss);
            losses.push(f64::try_from(&loss).unwrap());
            assert!(state.is_some());
        }
    }
    assert_eq!(losses.len(), 60);
    let mean = |losses: &[f64]| losses.iter().sum::<f64>() / losses.len() as f64;
    assert!(mean(&losses[50..]) < 0.95 * mean(&losses[..3]), "{losses:?}");
}

#[test]
fn tensors_have_the_values_of_the_batch() {
    let dir = tempfile::tempdir().unwrap();
    let batch = loader(dir.path()).epoch(0).next().unwrap().unwrap();
    let (images, labels) = upload(&batch, Device::Cpu).unwrap();
    assert_eq!((images.size(), images.kind()), (vec![32, 3, 32, 32], Kind::Float));
    let values: Vec<f32> = images.flatten(0, -1).try_into().unwrap();
    assert_eq!(values, batch.tensor("image").unwrap().as_slice::<f32>().unwrap());
    assert_eq!(labels, Tensor::from_slice(batch.tensor("label").unwrap().as_slice::<i64>().unwrap()));
}
