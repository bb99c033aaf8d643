//! The input pipeline, from tar shards to burn tensors.

use burn::tensor::{DType, Device, Int, Tensor};
use shardstream::Result;
use shardstream::codec::DType as TensorType;
use shardstream::prelude::*;
use shardstream_burn::tensor_data;

/// Height and width of the images.
const SIZE: u32 = 32;

/// The input of a step.
#[derive(Debug, Clone)]
pub struct Images {
    /// Pixels from -1 to 1, as (N, RGB, height, width).
    pub pixels: Tensor<4>,
    /// The class of each image, as (N).
    pub labels: Tensor<1, Int>,
}

/// A loader that reads images and classes from shards, shuffles and augments them, and batches them. All
/// batches are full, and all epochs have the same number of batches. Damaged images are skipped, up to one in
/// a thousand.
///
/// # Errors
/// Fails if the shards cannot be read.
pub fn loader(shards: &str, batch: usize, seed: u64) -> Result<Loader<TensorBatch>> {
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
    let columns = Columns::new().with("image", image).with("label", Scalar::<i32>::new("cls"));
    Loader::builder(dataset)
        .shuffle(256)
        .batch(batch)
        .collate(columns)
        .last_batch(LastBatch::Drop)
        .on_error(OnError::skip(Failures::damage() | Failures::decode()).share(0.001, 10_000))
        .build()
}

/// Turns a batch into burn tensors. On the CPU the tensors share the loader's memory. The loader reuses this
/// memory after the tensors are dropped.
///
/// # Errors
/// Fails if the batch lacks the column `image` or `label`.
pub fn upload(mut batch: TensorBatch, device: &Device) -> Result<Images> {
    let (pixels, labels) = (tensor_data(batch.take("image")?), tensor_data(batch.take("label")?));
    Ok(Images {
        pixels: Tensor::from_data(pixels, device),
        labels: Tensor::from_data(labels, (device, DType::I32)),
    })
}
