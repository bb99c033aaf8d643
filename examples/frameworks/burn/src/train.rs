//! The training loop.

use crate::data::Images;
use crate::model::ResNet;
use burn::data::dataloader::DataLoader;
use burn::data::dataset::DatasetError;
use burn::nn::loss::CrossEntropyLossConfig;
use burn::optim::{AdamConfig, GradientsParams};
use burn::tensor::Device;

/// The results of a step.
#[derive(Debug, Clone, Copy)]
pub struct Step {
    /// The mean cross entropy of the batch.
    pub loss: f32,
    /// Share of the batch that was classified correctly, 0 to 1.
    pub accuracy: f32,
}

/// Trains for `epochs` epochs. Each epoch is one iteration over `loader`. Calls `log` after each step.
///
/// # Errors
/// Returns the first error of the data.
pub fn train(
    loader: &dyn DataLoader<Images>,
    device: &Device,
    classes: usize,
    epochs: usize,
    mut log: impl FnMut(usize, Step),
) -> Result<ResNet, DatasetError> {
    let mut model = ResNet::new(classes, device);
    let mut optimizer = AdamConfig::new().init();
    for epoch in 0..epochs {
        for batch in loader.iter() {
            let Images { pixels, labels } = batch?;
            let rows = labels.dims()[0];
            let logits = model.forward(pixels);
            let right = logits.clone().argmax(1).flatten::<1>(0, 1).equal(labels.clone()).int().sum();
            let loss = CrossEntropyLossConfig::new().init(device).forward(logits, labels);
            let step = Step {
                loss: loss.clone().into_scalar(),
                accuracy: right.into_scalar::<i64>() as f32 / rows as f32,
            };
            let gradients = GradientsParams::from_grads(loss.backward(), &model);
            model = optimizer.step(3e-3, model, gradients);
            log(epoch, step);
        }
    }
    Ok(model)
}
