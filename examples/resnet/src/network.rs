//! What a training steps: a network on its devices, or a stand-in that takes the time of one.

use crate::artifact::{Manifest, StateBuffer};
use crate::error::Result;
use crate::model::{DeviceBatch, Hyper, Model, Uploader};
use crate::report::Evaluated;
use std::time::{Duration, Instant};

/// A result that is computed while the host continues: calling it waits.
pub type Later<T> = Box<dyn FnOnce() -> Result<T>>;

/// Something that takes batches and learns.
pub trait Network {
    /// What its programs were exported for.
    fn manifest(&self) -> &Manifest;

    /// What copies batches to its devices.
    fn uploader(&self) -> Uploader;

    /// The devices of this process.
    fn local_devices(&self) -> usize;

    /// Starts a step of training: later, the loss and how many samples were right before the update, both
    /// over all devices of the job.
    fn step(&mut self, batch: &DeviceBatch, hyper: Hyper) -> Result<Later<(f32, u64)>>;

    /// Starts to evaluate a batch: later, the counts without padding, over all devices of the job.
    fn evaluate(&self, batch: &DeviceBatch) -> Result<Later<Evaluated>>;

    /// What was learnt, in the order of the manifest.
    fn state(&self) -> Result<Vec<Vec<f32>>>;

    /// Whether it learns at all; else its losses and counts mean nothing.
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

    fn step(&mut self, batch: &DeviceBatch, hyper: Hyper) -> Result<Later<(f32, u64)>> {
        let result = self.step(batch, hyper)?;
        Ok(Box::new(move || result.read()))
    }

    fn evaluate(&self, batch: &DeviceBatch) -> Result<Later<Evaluated>> {
        let result = self.evaluate(batch)?;
        Ok(Box::new(move || result.read()))
    }

    fn state(&self) -> Result<Vec<Vec<f32>>> {
        // All devices have the same.
        self.state(0)
    }
}

/// Feeds the devices and computes nothing: each step takes a time that is given, as on a device that works
/// beside the host, one step after the other. It shows whether data comes fast enough for such a step,
/// without the device.
#[derive(Debug)]
pub struct DryRun {
    manifest: Manifest,
    uploader: Uploader,
    devices: usize,
    step: Duration,
    /// When the device has done all that it was given.
    free: Instant,
}

impl DryRun {
    /// For the batches of `manifest`, of which this process has the part of `devices`.
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

    fn step(&mut self, _: &DeviceBatch, _: Hyper) -> Result<Later<(f32, u64)>> {
        self.free = self.free.max(Instant::now()) + self.step;
        let done = self.free;
        Ok(Box::new(move || {
            std::thread::sleep(done.saturating_duration_since(Instant::now()));
            Ok((0.0, 0))
        }))
    }

    fn evaluate(&self, batch: &DeviceBatch) -> Result<Later<Evaluated>> {
        let evaluated = Evaluated { samples: batch.valid as u64, ..Evaluated::default() };
        Ok(Box::new(move || Ok(evaluated)))
    }

    /// Zeros, as large as what the network would learn: so checkpoints of a dry run take their time and
    /// space.
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
