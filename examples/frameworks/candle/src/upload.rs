//! Uploads each batch as candle tensors before its step begins. `docs/trainers.md` shows this code.

use candle_core::{Device, Tensor};
use shardstream::feed::Feed;
use shardstream::prelude::*;
use shardstream::{Error, Result};

/// Images as (N, RGB, height, width), and the class number of each image.
pub type Inputs = (Tensor, Tensor);

/// Copies a batch to a device. A candle tensor cannot borrow the batch's memory.
pub fn upload(batch: &TensorBatch, device: &Device) -> Result<Inputs> {
    let (image, label) = (batch.tensor("image")?, batch.tensor("label")?);
    let images = Tensor::from_slice(image.as_slice::<f32>()?, image.shape(), device).map_err(Error::step)?;
    let labels = Tensor::from_slice(label.as_slice::<u32>()?, label.shape(), device).map_err(Error::step)?;
    // A copy from pinned memory to a CUDA device is asynchronous. It must end before the batch is dropped.
    device.synchronize().map_err(Error::step)?;
    Ok((images, labels))
}

/// The batches of an epoch on a device, each with the state to save after its step.
pub fn epoch(loader: &Loader<TensorBatch>, epoch: u64, device: Device) -> Feed<(Inputs, Option<State>)> {
    Feed::new(loader.epoch(epoch), move |batch| Ok((upload(&batch, &device)?, batch.state().cloned())))
}
