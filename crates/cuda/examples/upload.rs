//! Copies batches of pictures to a GPU while the loader makes the next ones.
//!
//! ```text
//! cargo run --release -p shardstream-cuda --example upload -- 'data/train-{000..099}.tar'
//! ```
//!
//! The samples have a `jpg` and a `cls`. `cudarc` copies; with another library it is the same: copy in a
//! stream from the batch's memory, then keep the batch until the copy has ended (`CudaDevice::in_flight`).

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
    /// The batch in host memory, while the device reads it.
    source: InFlight<TensorBatch>,
}

/// Begins to copy the pictures of a batch.
fn upload(
    device: &CudaDevice,
    stream: &Arc<CudaStream>,
    batch: TensorBatch,
) -> Result<OnDevice, Box<dyn Error>> {
    let image = &batch["image"];
    // SAFETY: the copy writes all of it before anybody reads it.
    #[allow(unsafe_code, reason = "memory that is not initialised")]
    let mut pixels = unsafe { stream.alloc::<u8>(image.size())? };
    // From pinned memory, this returns before the device has read it.
    stream.memcpy_htod(image.as_bytes(), &mut pixels)?;
    // SAFETY: a stream of the device's primary context, which `CudaContext::new` uses too.
    #[allow(unsafe_code, reason = "a stream of another library")]
    let source = unsafe { device.in_flight(stream.cu_stream().cast(), batch)? };
    Ok(OnDevice { pixels, source })
}

/// Takes the place of a training step, which reads the pixels in the stream that computes.
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
    let mut take = |ready: &mut VecDeque<OnDevice>| -> Result<(), Box<dyn Error>> {
        let Some(OnDevice { pixels, source }) = ready.pop_front() else { return Ok(()) };
        // The pixels are there now, and the loader may use the batch's memory again.
        drop(source.wait()?);
        train(steps, &pixels);
        steps += 1;
        Ok(())
    };
    for batch in loader.epoch(0) {
        ready.push_back(upload(&device, &stream, batch?)?);
        if ready.len() > AHEAD {
            take(&mut ready)?;
        }
    }
    while !ready.is_empty() {
        take(&mut ready)?;
    }
    println!("{steps} steps, {} MB of pinned memory", memory.bytes() / 1_000_000);
    Ok(())
}
