//! Copies batches of pictures to a GPU while the loader makes the next batches.
//!
//! ```text
//! cargo run --release -p shardstream-cuda --example upload -- 'data/train-{000..099}.tar'
//! ```
//!
//! The samples have the fields `jpg` and `cls`. The copies use `cudarc`. Other libraries work in the same
//! way: copy from the batch's memory in a stream, then keep the batch until the copy has ended
//! (`CudaDevice::in_flight`).

use cudarc::driver::{CudaContext, CudaSlice, CudaStream};
use shardstream::collate::TensorBatch;
use shardstream::prelude::*;
use shardstream_cuda::{CudaDevice, InFlight, PinnedMemory};
use std::collections::VecDeque;
use std::error::Error;
use std::sync::Arc;

/// Number of batches that are copied ahead of the training step.
const AHEAD: usize = 2;

/// A batch of pictures on the device.
struct OnDevice {
    pixels: CudaSlice<u8>,
    /// The batch in host memory, kept until the device has read it.
    source: InFlight<TensorBatch>,
}

/// Begins to copy the pictures of a batch.
fn upload(
    device: &CudaDevice,
    stream: &Arc<CudaStream>,
    batch: TensorBatch,
) -> Result<OnDevice, Box<dyn Error>> {
    let image = &batch["image"];
    // SAFETY: the copy below writes all of the memory before later work in the stream reads it.
    #[allow(unsafe_code, reason = "memory that is not initialised")]
    let mut pixels = unsafe { stream.alloc::<u8>(image.size())? };
    // If the source is pinned memory, this call returns before the device has read the memory.
    stream.memcpy_htod(image.as_bytes(), &mut pixels)?;
    // SAFETY: the stream exists and belongs to the device's primary context: `CudaContext::new` uses the
    // primary context.
    #[allow(unsafe_code, reason = "a stream of another library")]
    let source = unsafe { device.in_flight(stream.cu_stream().cast(), batch)? };
    Ok(OnDevice { pixels, source })
}

/// Takes the place of a training step, which would read the pixels in its own stream.
fn train(step: u64, pixels: &CudaSlice<u8>) {
    if step.is_multiple_of(100) {
        println!("step {step}: {} bytes on the device", pixels.len());
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let pattern = std::env::args().nth(1).ok_or("name the shards: 'data/train-{000..099}.tar'")?;
    let device = CudaDevice::open(0)?;
    let memory = PinnedMemory::new(&device);
    let stream = CudaContext::new(device.ordinal())?.new_stream()?;

    let image = ImageColumn::new("jpg", 224).then(RandomResizedCrop::new(224)?);
    let columns = Columns::new().with("image", image).with("label", Scalar::<i64>::new("cls"));
    let dataset = Dataset::builder(pattern.as_str()).shuffle_shards(true).build()?;
    let columns = columns.memory(Arc::new(memory.clone()));
    let loader = Loader::builder(dataset).shuffle(1000).batch(256).collate(columns).build()?;

    let mut ready = VecDeque::new();
    let mut steps = 0;
    let mut train_oldest = |ready: &mut VecDeque<OnDevice>| -> Result<(), Box<dyn Error>> {
        let Some(OnDevice { pixels, source }) = ready.pop_front() else { return Ok(()) };
        // After `wait`, the pixels are on the device, and the loader may reuse the batch's memory.
        drop(source.wait()?);
        train(steps, &pixels);
        steps += 1;
        Ok(())
    };
    for batch in loader.epoch(0) {
        ready.push_back(upload(&device, &stream, batch?)?);
        if ready.len() > AHEAD {
            train_oldest(&mut ready)?;
        }
    }
    while !ready.is_empty() {
        train_oldest(&mut ready)?;
    }
    println!("{steps} steps, {} MB of pinned memory", memory.bytes() / 1_000_000);
    Ok(())
}
