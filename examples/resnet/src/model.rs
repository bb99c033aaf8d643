//! A network on its devices: its compiled programs and its state.

use crate::artifact::{Artifact, Manifest};
use crate::compile::{Compiler, Program};
use crate::data::HostBatch;
use crate::error::{Error, Result};
use crate::report::EvalCounts;
use shardstream::State;
use shardstream::tensor::BatchMemory;
use shardstream_pjrt::{Buffer, Client, CompileOptions, Executable, PjrtError, Span};
use std::any::Any;
use std::io::Write;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};

/// The hyperparameters of a step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Hyper {
    /// The learning rate.
    pub rate: f32,
    /// Each weight times this factor is added to its gradient; biases and batch norm have no weight decay.
    pub weight_decay: f32,
    /// Share of the target that is spread evenly over the classes, 0 to 1.
    pub label_smoothing: f32,
    /// Nesterov momentum, from 0 to below 1: at each step, the sum of earlier gradients is multiplied by this
    /// factor.
    pub momentum: f32,
}

impl Default for Hyper {
    fn default() -> Self {
        Self { rate: 0.1, weight_decay: 5e-4, label_smoothing: 0.0, momentum: 0.9 }
    }
}

/// The compiled programs and the state of a training.
///
/// In a job of several processes, each process has the model on its own devices, feeds its own part of each
/// batch, and must start each step together with the other processes. Weights, loss and counts are computed
/// from the batch of the whole job, so they are the same in all processes.
#[derive(Debug)]
pub struct Model {
    client: Client,
    manifest: Manifest,
    step: Executable,
    eval: Executable,
    /// One list of buffers for each device of this process.
    state: Vec<Vec<Buffer>>,
}

/// A batch on the devices of this process, split among them.
#[derive(Debug)]
pub struct DeviceBatch {
    images: Vec<Buffer>,
    labels: Vec<Buffer>,
    /// Number of samples in this process's part of the batch, without the padding.
    pub valid: usize,
    /// The state of the data after this batch. Batches are uploaded ahead of the step, so the loader's own
    /// state would count batches that were not trained on.
    pub state: Option<State>,
}

/// The results of a step, on a device. The step may not have finished yet.
#[derive(Debug)]
pub struct StepResult {
    loss: Buffer,
    correct: Buffer,
}

impl StepResult {
    /// Waits for the step. Returns the loss, and the number of samples that were classified correctly before
    /// the update, both over all devices of the job.
    pub fn read(&self) -> Result<(f32, u64)> {
        Ok((self.loss.scalar()?, count(&self.correct)?))
    }
}

/// The results of an evaluation, on a device. The evaluation may not have finished yet.
#[derive(Debug)]
pub struct EvalResult {
    correct: Buffer,
    top5: Buffer,
    valid: Buffer,
}

impl EvalResult {
    /// Waits for the evaluation. Counts the samples of all devices of the job, and not the padding.
    pub fn read(&self) -> Result<EvalCounts> {
        let (samples, correct, top5) = (count(&self.valid)?, count(&self.correct)?, count(&self.top5)?);
        Ok(EvalCounts { samples, correct, top5 })
    }
}

/// Copies batches to the devices of this process. The feeder thread uses this value.
#[derive(Debug, Clone)]
pub struct Uploader {
    client: Client,
    manifest: Manifest,
    devices: usize,
}

impl Uploader {
    /// An uploader for all devices of this process.
    pub fn new(client: &Client, manifest: &Manifest) -> Self {
        Self { client: client.clone(), manifest: manifest.clone(), devices: client.local_devices() }
    }

    /// Checks a batch and starts its transfer to the devices. The images are not copied on the host: the
    /// images' memory is kept until the last transfer has ended.
    pub fn upload(&self, batch: &HostBatch) -> Result<DeviceBatch> {
        let m = &self.manifest;
        check(batch, m, self.devices)?;
        let mut images = Vec::with_capacity(self.devices);
        let mut labels = Vec::with_capacity(self.devices);
        let bytes = m.batch * m.image_bytes();
        for (device, l) in batch.labels.chunks_exact(m.batch).enumerate() {
            let part = batch.images.slice(device * bytes..(device + 1) * bytes);
            images.push(self.client.upload_bytes(part, &m.image_dims(), device)?);
            labels.push(self.client.upload(l, &m.label_dims(), device)?);
        }
        Ok(DeviceBatch { images, labels, valid: batch.valid, state: batch.state.clone() })
    }
}

/// Pins the memory of batches, so that the devices of a client copy from that memory directly.
#[derive(Debug)]
pub struct DeviceMemory {
    client: Client,
    failed: AtomicBool,
}

impl DeviceMemory {
    /// Memory for the devices of `client`.
    pub fn new(client: &Client) -> Self {
        Self { client: client.clone(), failed: AtomicBool::new(false) }
    }
}

impl BatchMemory for DeviceMemory {
    fn pin(
        &self,
        memory: &[u8],
    ) -> Result<Box<dyn Any + Send + Sync>, Box<dyn std::error::Error + Send + Sync>> {
        // SAFETY: the pool frees the memory only after the mapping is dropped, and drops the mapping only
        // when nobody holds the batch; an upload holds the batch until its transfer has ended.
        let mapped = unsafe { self.client.dma_map(NonNull::from(memory)) };
        if let Err(error) = &mapped
            && !self.failed.swap(true, Ordering::Relaxed)
        {
            let _ = writeln!(std::io::stderr(), "warning: batches are not in pinned memory: {error}");
        }
        Ok(Box::new(mapped?))
    }
}

/// Checks a batch. A device would not detect a wrong batch, and the network would learn from wrong numbers.
fn check(batch: &HostBatch, m: &Manifest, devices: usize) -> Result<()> {
    let n = m.local_batch(devices);
    if batch.labels.len() != n || batch.images.len() != n * m.image_bytes() {
        return Err(Error::Batch(format!(
            "it has {} bytes of images and {} labels, and the program needs {} and {n}",
            batch.images.len(),
            batch.labels.len(),
            n * m.image_bytes(),
        )));
    }
    if batch.valid > n {
        return Err(Error::Batch(format!("it has {} valid samples in {n} rows", batch.valid)));
    }
    let (samples, padding) = batch.labels.split_at(batch.valid);
    let classes = 0..m.classes as i32;
    if let Some(label) = samples.iter().find(|l| !classes.contains(l)) {
        return Err(Error::Batch(format!("the label {label} is not one of the {} classes", m.classes)));
    }
    if let Some(label) = padding.iter().find(|l| **l != -1) {
        return Err(Error::Batch(format!("the label {label} in the padding is not -1")));
    }
    Ok(())
}

impl Model {
    /// Compiles the programs for all devices of the job, and draws the initial state from a seed.
    pub fn new(client: &Client, artifact: &Artifact, seed: i32) -> Result<Self> {
        Self::compile(&mut Compiler::new(client), artifact, seed)
    }

    /// Like [`new`](Self::new), with a compiler that may have a cache.
    pub fn compile(compiler: &mut Compiler<'_>, artifact: &Artifact, seed: i32) -> Result<Self> {
        let client = compiler.client();
        let manifest = artifact.manifest.clone();
        if client.devices() != manifest.devices {
            return Err(Error::Devices {
                artifact: artifact.name.clone(),
                wanted: manifest.devices,
                present: client.devices(),
                local: client.local_devices(),
                platform: client.platform()?,
            });
        }
        let whole_job = manifest.compile_options();
        // Each device draws its own copy of the state; the copies are equal, since the seed is the same.
        let each_device = CompileOptions { replicas: client.local_devices(), partitions: 1 };
        let mut compile = |name, code, signature, options, span| {
            compiler.compile(&Program { name, code, signature, options, span })
        };
        let init = compile("init", &artifact.init, manifest.init_signature(), &each_device, Span::Process)?;
        let step = compile("step", &artifact.step, manifest.step_signature(), &whole_job, Span::Job)?;
        let eval = compile("eval", &artifact.eval, manifest.eval_signature(), &whole_job, Span::Job)?;
        let seeds = on_each(client, &[seed], &[])?;
        let inputs: Vec<_> = seeds.iter().map(|s| vec![s]).collect();
        let state = init.run(seeds.iter().map(|_| vec![]).collect(), &inputs)?;
        Ok(Self { client: client.clone(), manifest, step, eval, state })
    }

    /// Number of devices of this process.
    pub fn local_devices(&self) -> usize {
        self.step.local_devices()
    }

    /// The manifest of the network.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// An uploader for the devices of this model.
    pub fn uploader(&self) -> Uploader {
        Uploader::new(&self.client, &self.manifest)
    }

    /// Starts a training step. After an error the state is lost, and every further step fails.
    pub fn step(&mut self, batch: &DeviceBatch, hyper: Hyper) -> Result<StepResult> {
        // The values are in the order of the program's argument.
        let values = [hyper.rate, hyper.weight_decay, hyper.label_smoothing, hyper.momentum];
        let hyper = on_each(&self.client, &values, &[values.len() as i64])?;
        let arguments = batch.images.iter().zip(&batch.labels).zip(&hyper);
        let inputs: Vec<_> = arguments.map(|((i, l), h)| vec![i, l, h]).collect();
        let mut results = self.step.run(std::mem::take(&mut self.state), &inputs)?;
        let last = take_last(&mut results);
        self.state = results;
        let [loss, correct] = last.ok_or_else(|| Error::Batch("the step returned no loss".into()))?;
        Ok(StepResult { loss, correct })
    }

    /// Starts to evaluate a batch: counts its samples, the samples that are classified correctly, and the
    /// samples whose class is among the five that the network finds most likely.
    pub fn evaluate(&self, batch: &DeviceBatch) -> Result<EvalResult> {
        let inputs: Vec<_> = batch.images.iter().zip(&batch.labels).map(|(i, l)| vec![i, l]).collect();
        let last = take_last(&mut self.eval.read(&self.state, &inputs)?);
        let [correct, top5, valid] =
            last.ok_or_else(|| Error::Batch("the evaluation returned no counts".into()))?;
        Ok(EvalResult { correct, top5, valid })
    }

    /// Copies the state of one device of this process to the host, in the order of the manifest. All devices
    /// have the same state.
    pub fn state(&self, device: usize) -> Result<Vec<Vec<f32>>> {
        let buffers = self.state.get(device).map_or(&[][..], Vec::as_slice);
        Ok(buffers.iter().map(Buffer::to_host).collect::<Result<_, PjrtError>>()?)
    }

    /// Copies a state to all devices of this process. `state` has one list of values for each buffer of the
    /// manifest. [`state`](Self::state) then returns exactly this state. After an error the model is
    /// unchanged.
    pub fn restore(&mut self, state: &[Vec<f32>]) -> Result<()> {
        let buffers = &self.manifest.state;
        if state.len() != buffers.len() {
            return Err(Error::State { expected: buffers.len(), got: state.len() });
        }
        let upload_to = |device| {
            let uploads = state.iter().zip(buffers).map(|(v, b)| self.client.upload(v, &b.shape, device));
            uploads.collect::<Result<Vec<_>, PjrtError>>()
        };
        self.state = (0..self.local_devices()).map(upload_to).collect::<Result<_, PjrtError>>()?;
        Ok(())
    }
}

/// Waits until a count of samples is complete, and reads it.
fn count(buffer: &Buffer) -> Result<u64> {
    Ok(u64::try_from(buffer.scalar::<i32>()?).unwrap_or(0))
}

/// Removes the last `N` results from the list of each device. Returns the results of one device, since the
/// results are the same on all devices.
fn take_last<const N: usize>(results: &mut [Vec<Buffer>]) -> Option<[Buffer; N]> {
    let last = results.iter_mut().map(|list| list.split_off(list.len().saturating_sub(N)));
    last.last()?.try_into().ok()
}

/// Copies the same array to all devices of this process.
fn on_each<T: shardstream_pjrt::Element>(client: &Client, values: &[T], dims: &[i64]) -> Result<Vec<Buffer>> {
    let uploads = (0..client.local_devices()).map(|device| client.upload(values, dims, device));
    Ok(uploads.collect::<Result<_, PjrtError>>()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest() -> Manifest {
        Artifact::open("resnet8-x8").unwrap().manifest
    }

    fn batch(valid: usize) -> HostBatch {
        let labels = (0..64).map(|i| if i < valid { 3 } else { -1 }).collect();
        HostBatch { images: vec![0; 64 * 32 * 32 * 3].into(), labels, valid, state: None }
    }

    #[test]
    fn valid_batches_pass_the_check() {
        for valid in [0, 1, 63, 64] {
            check(&batch(valid), &manifest(), 8).unwrap();
        }
    }

    #[test]
    fn the_batch_of_a_process_has_the_size_of_its_devices() {
        let mut half = batch(20);
        assert!(matches!(check(&half, &manifest(), 4), Err(Error::Batch(_))));
        half.images = half.images.slice(..32 * 32 * 32 * 3);
        half.labels.truncate(32);
        check(&half, &manifest(), 4).unwrap();
    }

    #[test]
    fn bad_batches_are_refused() {
        let breaks: [fn(&mut HostBatch); 6] = [
            |b| b.images = b.images.slice(..7),
            |b| b.labels.push(1),
            |b| b.valid = 65,
            |b| b.labels[0] = 10,
            |b| b.labels[0] = -1,
            |b| b.labels[63] = 0,
        ];
        for (i, damage) in breaks.iter().enumerate() {
            let mut b = batch(60);
            damage(&mut b);
            assert!(matches!(check(&b, &manifest(), 8), Err(Error::Batch(_))), "{i}");
        }
    }
}
