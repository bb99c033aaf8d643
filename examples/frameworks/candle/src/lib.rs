//! Trains a small network in candle from tar shards.

pub mod upload;

use candle_core::{D, DType, Device, Module, Tensor};
use candle_nn::{AdamW, Conv2d, Conv2dConfig, Linear, Optimizer, VarBuilder, VarMap, conv2d, linear, loss};
use shardstream::codec::DType as TensorType;
use shardstream::feed::FeedReport;
use shardstream::prelude::*;
use shardstream::state::Ledger;

/// Height and width of the images.
const SIZE: u32 = 32;

/// A loader that reads images and classes from shards, shuffles and augments them, and batches them. All
/// batches are full, and all epochs have the same number of batches. Damaged images are skipped, up to one in
/// a thousand.
///
/// # Errors
/// Fails if the shards cannot be read.
pub fn loader(shards: &str, batch: usize, seed: u64) -> shardstream::Result<Loader<TensorBatch>> {
    // The index makes all epochs have the same number of batches. The index is built once and kept beside the
    // shards.
    let dataset = Dataset::builder(shards).auto_index(AutoIndex::beside());
    let dataset = dataset.streams(4).shuffle_shards(true).seed(seed).build()?;
    let image = ImageColumn::new("jpg;jpeg;png;webp", SIZE)
        .then(RandomCrop::new(SIZE)?.padding(4))
        .then(RandomHorizontalFlip::new(0.5)?)
        .layout(Layout::Chw)
        .dtype(TensorType::F32)
        .normalize([0.5; 3], [0.5; 3]);
    let columns = Columns::new().with("image", image).with("label", Scalar::<u32>::new("cls"));
    Loader::builder(dataset)
        .shuffle(256)
        .batch(batch)
        .collate(columns)
        .last_batch(LastBatch::Drop)
        .on_error(OnError::skip(Failures::damage() | Failures::decode()).share(0.001, 10_000))
        .build()
}

/// Three convolutions, the mean over the image, and a linear layer.
struct Network {
    convolutions: Vec<Conv2d>,
    head: Linear,
}

impl Network {
    fn new(classes: usize, vars: VarBuilder) -> candle_core::Result<Self> {
        let half = Conv2dConfig { padding: 1, stride: 2, ..Default::default() };
        let channels = [(3, 16), (16, 32), (32, 64)];
        let mut convolutions = Vec::new();
        for (i, (from, to)) in channels.into_iter().enumerate() {
            convolutions.push(conv2d(from, to, 3, half, vars.pp(format!("conv{i}")))?);
        }
        Ok(Network { convolutions, head: linear(64, classes, vars.pp("head"))? })
    }

    fn forward(&self, images: &Tensor) -> candle_core::Result<Tensor> {
        let mut x = images.clone();
        for convolution in &self.convolutions {
            x = convolution.forward(&x)?.relu()?;
        }
        self.head.forward(&x.mean((2, 3))?)
    }
}

/// The results of a step.
#[derive(Debug, Clone, Copy)]
pub struct Step {
    /// The mean cross entropy of the batch.
    pub loss: f32,
    /// Share of the batch that was classified correctly, 0 to 1.
    pub accuracy: f32,
}

/// Trains for `epochs` epochs on a device. Calls `log` after each step, and `skipped` after each epoch in
/// which samples were skipped. Returns a report that says whether the batches were ready in time.
///
/// # Errors
/// Returns the first error of the data or the network.
pub fn train(
    loader: &Loader<TensorBatch>,
    device: &Device,
    classes: usize,
    epochs: u64,
    mut log: impl FnMut(u64, Step),
    mut skipped: impl FnMut(u64, &Ledger),
) -> Result<FeedReport, Box<dyn std::error::Error + Send + Sync>> {
    let vars = VarMap::new();
    let network = Network::new(classes, VarBuilder::from_varmap(&vars, DType::F32, &device))?;
    let mut optimizer = AdamW::new_lr(vars.all_vars(), 3e-3)?;
    let mut report = FeedReport::default();
    for epoch in 0..epochs {
        let mut feed = upload::epoch(loader, epoch, device.clone());
        let mut ledger = Ledger::default();
        for batch in feed.by_ref() {
            let ((images, labels), state) = batch?;
            ledger = state.map_or(ledger, |state| state.ledger());
            let logits = network.forward(&images)?;
            let loss = loss::cross_entropy(&logits, &labels)?;
            optimizer.backward_step(&loss)?;
            let right = logits.argmax(D::Minus1)?.eq(&labels)?.to_dtype(DType::F32)?.mean_all()?;
            log(epoch, Step { loss: loss.to_scalar()?, accuracy: right.to_scalar()? });
        }
        report += feed.report();
        if !ledger.is_empty() {
            skipped(epoch, &ledger);
        }
    }
    Ok(report)
}
