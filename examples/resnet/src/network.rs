//! The interface of a network that is trained, and a dry run that implements it without computing.

use crate::artifact::{Manifest, StateBuffer};
use crate::error::Result;
use crate::model::{DeviceBatch, Hyper, Model, Uploader};
use crate::report::EvalCounts;
use std::time::{Duration, Instant};

/// A result that the devices compute while the host continues. Calling it waits until the result is complete.
pub type Pending<T> = Box<dyn FnOnce() -> Result<T>>;

/// A network that is trained on batches.
pub trait Network {
    /// The manifest of the network's programs.
    fn manifest(&self) -> &Manifest;

    /// An uploader, which copies batches to the network's devices.
    fn uploader(&self) -> Uploader;

    /// Number of devices of this process.
    fn local_devices(&self) -> usize;

    /// Starts a training step. The result is the loss and the number of samples that were classified
    /// correctly before the update, both over all devices of the job.
    fn step(&mut self, batch: &DeviceBatch, hyper: Hyper) -> Result<Pending<(f32, u64)>>;

    /// Starts to evaluate a batch. The result counts the samples of all devices of the job, and not the
    /// padding.
    fn evaluate(&self, batch: &DeviceBatch) -> Result<Pending<EvalCounts>>;

    /// Copies the state to the host, in the order of the manifest.
    fn state(&self) -> Result<Vec<Vec<f32>>>;

    /// Whether the network learns. If it does not, its losses and counts have no meaning.
    fn learns(&self) -> bool {
        true
    }
}

impl Network for Model {
    fn manifest(&self) -> &Manifest {
        self.manifest()
    }

    fn uploader(&self) -> Uploader {
        self.uploader()
    }

    fn local_devices(&self) -> usize {
        self.local_devices()
    }

    fn step(&mut self, batch: &DeviceBatch, hyper: Hyper) -> Result<Pending<(f32, u64)>> {
        let result = self.step(batch, hyper)?;
        Ok(Box::new(move || result.read()))
    }

    fn evaluate(&self, batch: &DeviceBatch) -> Result<Pending<EvalCounts>> {
        let result = self.evaluate(batch)?;
        Ok(Box::new(move || result.read()))
    }

    fn state(&self) -> Result<Vec<Vec<f32>>> {
        // All devices have the same state.
        self.state(0)
    }
}

/// A network that computes nothing. Batches are still uploaded to the devices. Each step only lasts a given
/// time. As on a device, the steps run one after the other while the host continues. A dry run shows whether
/// data arrives fast enough for steps of this duration.
#[derive(Debug)]
pub struct DryRun {
    manifest: Manifest,
    uploader: Uploader,
    devices: usize,
    step: Duration,
    /// The end of the last step that was started.
    free: Instant,
}

impl DryRun {
    /// A dry run with the batch size of `manifest`, in a process with `devices` devices.
    pub fn new(manifest: Manifest, uploader: Uploader, devices: usize, step: Duration) -> Self {
        Self { manifest, uploader, devices, step, free: Instant::now() }
    }
}

impl Network for DryRun {
    fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    fn uploader(&self) -> Uploader {
        self.uploader.clone()
    }

    fn local_devices(&self) -> usize {
        self.devices
    }

    fn step(&mut self, _: &DeviceBatch, _: Hyper) -> Result<Pending<(f32, u64)>> {
        self.free = self.free.max(Instant::now()) + self.step;
        let done = self.free;
        Ok(Box::new(move || {
            std::thread::sleep(done.saturating_duration_since(Instant::now()));
            Ok((0.0, 0))
        }))
    }

    fn evaluate(&self, batch: &DeviceBatch) -> Result<Pending<EvalCounts>> {
        let evaluated = EvalCounts { samples: batch.valid as u64, ..EvalCounts::default() };
        Ok(Box::new(move || Ok(evaluated)))
    }

    /// Returns zeros of the network's size, so that a checkpoint takes as much time and space as in a
    /// training.
    fn state(&self) -> Result<Vec<Vec<f32>>> {
        let values = |buffer: &StateBuffer| {
            buffer.shape.iter().map(|axis| usize::try_from(*axis).unwrap_or(0)).product()
        };
        Ok(self.manifest.state.iter().map(|buffer| vec![0.0; values(buffer)]).collect())
    }

    fn learns(&self) -> bool {
        false
    }
}
