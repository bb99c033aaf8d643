//! Uploads each batch as `tch` tensors before its step begins.

use shardstream::codec::DType;
use shardstream::feed::Feed;
use shardstream::prelude::*;
use shardstream::{Error, Result};
use tch::{Device, Kind, Tensor};

/// Images as (N, RGB, height, width), and the class number of each image. The class numbers are 64-bit
/// integers, as torch's losses require.
pub type Inputs = (Tensor, Tensor);

/// Copies a tensor of a batch into torch's memory, and from there to the device.
///
/// # Errors
/// Fails if torch refuses the shape, or has no memory on the device.
pub fn tensor(from: &shardstream::tensor::Tensor, device: Device) -> Result<Tensor> {
    let kind = match from.dtype() {
        DType::F32 => Kind::Float,
        DType::I64 => Kind::Int64,
        DType::U8 => Kind::Uint8,
        other => return Err(Error::step(format!("no kind of torch is known for {other}"))),
    };
    let shape: Vec<i64> = from.shape().iter().map(|&length| length as i64).collect();
    let tensor = Tensor::f_from_data_size(from.as_bytes(), &shape, kind).map_err(Error::step)?;
    tensor.f_to_device(device).map_err(Error::step)
}

/// Copies a batch to a device. The copy is in torch's own memory, so the batch returns to the loader at once.
///
/// # Errors
/// Fails if the batch has no `image` or `label`, and as [`tensor`] does.
pub fn upload(batch: &TensorBatch, device: Device) -> Result<Inputs> {
    Ok((tensor(batch.tensor("image")?, device)?, tensor(batch.tensor("label")?, device)?))
}

/// The batches of an epoch on a device, each with the state to save after its step.
pub fn epoch(loader: &Loader<TensorBatch>, epoch: u64, device: Device) -> Feed<(Inputs, Option<State>)> {
    Feed::new(loader.epoch(epoch), move |batch| Ok((upload(&batch, device)?, batch.state().cloned())))
}
