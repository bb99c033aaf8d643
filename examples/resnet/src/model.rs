//! A network on its devices.

use crate::artifact::{Artifact, Manifest};
use crate::data::HostBatch;
use crate::error::{Error, Result};
use crate::pjrt::{Buffer, Client, CompileOptions, Executable};
use shardstream::State;

/// The compiled programs and the state of a training.
#[derive(Debug)]
pub struct Model {
    client: Client,
    manifest: Manifest,
    step: Executable,
    eval: Executable,
    /// One list per device.
    state: Vec<Vec<Buffer>>,
}

/// A batch on the devices, split among them.
#[derive(Debug)]
pub struct DeviceBatch {
    images: Vec<Buffer>,
    labels: Vec<Buffer>,
    /// Samples in it.
    pub valid: usize,
    /// The state of the data after it, which travels with it: batches are uploaded ahead of the step, and a
    /// checkpoint must not count those that were not trained on.
    pub state: Option<State>,
}

/// What a step says of itself, still on the device.
#[derive(Debug)]
pub struct StepResult {
    loss: Buffer,
    correct: Buffer,
}

impl StepResult {
    /// Waits for the step; the loss, and how many samples were right before the update.
    pub fn read(&self) -> Result<(f32, u64)> {
        Ok((self.loss.scalar()?, count(&self.correct)?))
    }
}

/// Copies batches to the devices; for the feeder thread.
#[derive(Debug, Clone)]
pub struct Uploader {
    client: Client,
    manifest: Manifest,
}

impl Uploader {
    /// Checks a batch and starts its way to the devices.
    pub fn upload(&self, batch: &HostBatch) -> Result<DeviceBatch> {
        let m = &self.manifest;
        check(batch, m)?;
        let mut images = Vec::with_capacity(m.devices);
        let mut labels = Vec::with_capacity(m.devices);
        let parts = batch.images.chunks_exact(m.batch * m.image_bytes());
        for (device, (i, l)) in parts.zip(batch.labels.chunks_exact(m.batch)).enumerate() {
            images.push(self.client.upload(i, &m.image_dims(), device)?);
            labels.push(self.client.upload(l, &m.label_dims(), device)?);
        }
        Ok(DeviceBatch { images, labels, valid: batch.valid, state: batch.state.clone() })
    }
}

/// A device would not notice any of this: it would just learn from wrong numbers.
fn check(batch: &HostBatch, m: &Manifest) -> Result<()> {
    let n = m.global_batch();
    if batch.labels.len() != n || batch.images.len() != n * m.image_bytes() {
        return Err(Error::Batch(format!(
            "{} bytes of images and {} labels, needed are {} and {n}",
            batch.images.len(),
            batch.labels.len(),
            n * m.image_bytes(),
        )));
    }
    if batch.valid > n {
        return Err(Error::Batch(format!("{} valid samples of {n}", batch.valid)));
    }
    let (samples, padding) = batch.labels.split_at(batch.valid);
    let classes = 0..m.classes as i32;
    if let Some(label) = samples.iter().find(|l| !classes.contains(l)) {
        return Err(Error::Batch(format!("label {label} of {} classes", m.classes)));
    }
    if let Some(label) = padding.iter().find(|l| **l != -1) {
        return Err(Error::Batch(format!("label {label} in the padding, which has -1")));
    }
    Ok(())
}

impl Model {
    /// Compiles the programs and draws the first state from a seed.
    pub fn new(client: &Client, artifact: &Artifact, seed: i32) -> Result<Self> {
        let manifest = artifact.manifest.clone();
        let spread = manifest.compile_options();
        // Each device draws for itself: the same seed, so the same state.
        let alone = CompileOptions { replicas: manifest.devices, partitions: 1 };
        let init = client.compile(&artifact.init, manifest.init_signature(), &alone)?;
        let step = client.compile(&artifact.step, manifest.step_signature(), &spread)?;
        let eval = client.compile(&artifact.eval, manifest.eval_signature(), &spread)?;
        let seeds = on_each(client, manifest.devices, seed)?;
        let inputs: Vec<_> = seeds.iter().map(|s| vec![s]).collect();
        let state = init.run(seeds.iter().map(|_| vec![]).collect(), &inputs)?;
        Ok(Self { client: client.clone(), manifest, step, eval, state })
    }

    /// What the network was exported for.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// What copies batches to the devices of this model.
    pub fn uploader(&self) -> Uploader {
        Uploader { client: self.client.clone(), manifest: self.manifest.clone() }
    }

    /// Starts one step of training. After an error the state is lost, and every further step fails.
    pub fn step(&mut self, batch: &DeviceBatch, rate: f32) -> Result<StepResult> {
        let rates = on_each(&self.client, self.manifest.devices, rate)?;
        let images = batch.images.iter().zip(&batch.labels).zip(&rates);
        let inputs: Vec<_> = images.map(|((i, l), r)| vec![i, l, r]).collect();
        let mut results = self.step.run(std::mem::take(&mut self.state), &inputs)?;
        // Loss and count are the last two, and equal on all devices.
        let mut last = None;
        for list in &mut results {
            last = list.pop().zip(list.pop());
        }
        self.state = results;
        let (correct, loss) = last.ok_or_else(|| Error::Batch("the step gave no loss".into()))?;
        Ok(StepResult { loss, correct })
    }

    /// Starts to count the samples of a batch that the network gets right; see [`count`].
    pub fn evaluate(&self, batch: &DeviceBatch) -> Result<Buffer> {
        let inputs: Vec<_> = batch.images.iter().zip(&batch.labels).map(|(i, l)| vec![i, l]).collect();
        let mut results = self.eval.read(&self.state, &inputs)?;
        let first = results.first_mut().and_then(Vec::pop);
        first.ok_or_else(|| Error::Batch("the evaluation gave no count".into()))
    }

    /// Copies the state of one device to the host, in the order of the manifest.
    pub fn state(&self, device: usize) -> Result<Vec<Vec<f32>>> {
        let buffers = self.state.get(device).map_or(&[][..], Vec::as_slice);
        Ok(buffers.iter().map(Buffer::to_host).collect::<crate::pjrt::Result<_>>()?)
    }

    /// Puts a state on all devices, one list of values for each buffer of the manifest: bit for bit the one that
    /// [`state`](Self::state) gave. After an error the model is as it was.
    pub fn restore(&mut self, state: &[Vec<f32>]) -> Result<()> {
        let buffers = &self.manifest.state;
        if state.len() != buffers.len() {
            return Err(Error::State { expected: buffers.len(), got: state.len() });
        }
        let on = |device| {
            let uploads = state.iter().zip(buffers).map(|(v, b)| self.client.upload(v, &b.shape, device));
            uploads.collect::<crate::pjrt::Result<Vec<_>>>()
        };
        self.state = (0..self.manifest.devices).map(on).collect::<crate::pjrt::Result<_>>()?;
        Ok(())
    }
}

/// Waits for a count of samples.
pub fn count(buffer: &Buffer) -> Result<u64> {
    Ok(u64::try_from(buffer.scalar::<i32>()?).unwrap_or(0))
}

/// The same scalar on all devices.
fn on_each<T: crate::pjrt::Element>(client: &Client, devices: usize, value: T) -> Result<Vec<Buffer>> {
    Ok((0..devices).map(|d| client.upload(&[value], &[], d)).collect::<crate::pjrt::Result<_>>()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest() -> Manifest {
        Artifact::open("resnet8x8").unwrap().manifest
    }

    fn batch(valid: usize) -> HostBatch {
        let labels = (0..64).map(|i| if i < valid { 3 } else { -1 }).collect();
        HostBatch { images: vec![0; 64 * 32 * 32 * 3].into(), labels, valid, state: None }
    }

    #[test]
    fn good_batches_pass() {
        for valid in [0, 1, 63, 64] {
            check(&batch(valid), &manifest()).unwrap();
        }
    }

    #[test]
    fn bad_batches_are_named() {
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
            assert!(matches!(check(&b, &manifest()), Err(Error::Batch(_))), "{i}");
        }
    }
}
