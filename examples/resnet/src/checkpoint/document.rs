//! Encodes a checkpoint as a sample, with counts as JSON and tensors as npy.

use super::error::CheckpointError;
use super::version::{VERSION, Versioned};
use crate::artifact::{Manifest, StateBuffer};
use crate::hex;
use crate::report::Progress;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use shardstream::{Array, ErrorKind, Sample, State, Value};
use std::collections::{BTreeMap, BTreeSet};

const KEY: &str = "checkpoint";
const META: &str = "meta.json";
const DATA: &str = "data.json";
/// The field with the digest of all other fields. Tar has no checksums of the content of its members.
const DIGEST: &str = "sha256.txt";

/// The state of a training after a step.
#[derive(Debug, Clone)]
pub struct Checkpoint {
    /// Finished steps, losses and times of the whole job.
    pub progress: Progress,
    /// State of the training data after the last batch that was trained on. In a checkpoint that a rank
    /// writes, this is the state of the rank's own streams. In a checkpoint that was read, it is the merged
    /// state of all streams.
    pub data: State,
    /// Values of the network's buffers, in the order of the manifest. Only the first rank writes them.
    pub tensors: Vec<Vec<f32>>,
}

/// Properties of a training. A training can resume from a checkpoint only if these properties match the
/// checkpoint's. They describe the whole job and do not depend on the number of processes. The options of the
/// data are not included: restoring the state of the data checks these options.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    model: String,
    /// Sha256 of the step program.
    program: String,
    devices: usize,
    /// Number of images per step, over all devices.
    batch: usize,
    size: usize,
    classes: usize,
    seed: i32,
}

impl Identity {
    /// The identity of a training with the network of `manifest` and this seed.
    pub fn new(manifest: &Manifest, seed: i32) -> Self {
        Self {
            model: manifest.model.clone(),
            program: manifest.digest().into(),
            devices: manifest.devices,
            batch: manifest.global_batch(),
            size: manifest.size,
            classes: manifest.classes,
            seed,
        }
    }

    /// The identity of a dry run. No training can resume from a checkpoint of a dry run.
    pub(super) fn dry(self) -> Self {
        Self { model: format!("dry run of {}", self.model), ..self }
    }

    /// Whether a training with the identity `other` may resume from a checkpoint with this identity. The
    /// number of devices may differ. If it differs, the program may differ as well, since each program is
    /// exported for one number of devices.
    fn allows(&self, other: &Self) -> bool {
        let Self { program, devices, .. } = other;
        *self == *other
            || self.devices != *devices
                && Self { program: program.clone(), devices: *devices, ..self.clone() } == *other
    }
}

/// Options that later steps depend on. A training that resumes from a checkpoint may change them, and logs a
/// line for each change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Inputs {
    /// Number of epochs.
    pub epochs: u64,
    /// Values by name, as on the command line.
    #[serde(flatten)]
    others: BTreeMap<String, String>,
}

impl Inputs {
    /// The options of a training with this number of epochs.
    pub fn new(epochs: u64) -> Self {
        Self { epochs, others: BTreeMap::new() }
    }

    /// Adds one more option.
    pub fn with(mut self, name: &str, value: impl ToString) -> Self {
        self.others.insert(name.into(), value.to_string());
        self
    }
}

#[derive(Serialize, Deserialize)]
struct CheckpointMeta {
    version: u64,
    /// The step, counted from the start of the training.
    step: u64,
    /// The number of the epoch in progress, from 0.
    epoch: u64,
    /// Number of processes of the job. Each process wrote the state of its own data.
    ranks: usize,
    identity: Identity,
    inputs: Inputs,
    progress: Progress,
}

impl Checkpoint {
    /// The checkpoint's step and epoch, for the log.
    pub(super) fn title(&self) -> String {
        let Progress { epochs, running, .. } = &self.progress;
        let within = match running.steps() {
            0 => format!("epoch {} done", epochs.len()),
            step => format!("epoch {}, step {step} of it", epochs.len() + 1),
        };
        format!("step {} ({within})", self.progress.steps())
    }

    /// Describes how much of `epochs` epochs is done, and the next step or epoch, for the log.
    pub(super) fn describe_position(&self, epochs: u64) -> String {
        let Progress { epochs: done, running, .. } = &self.progress;
        let (done, step) = (done.len() as u64, running.steps());
        match step {
            0 if done >= epochs => format!("all {epochs} epochs are done"),
            0 => format!("epoch {done} is done, epoch {} is next", done + 1),
            _ => format!(
                "epoch {}, step {step}; {} samples of the epoch are done, the next batch is number {}",
                done + 1,
                running.samples(),
                step + 1
            ),
        }
    }
}

/// The name of a buffer's field. It is in lower case, like all names of fields.
fn field(buffer: &StateBuffer) -> String {
    format!("{}.npy", buffer.name.to_lowercase())
}

fn shape(buffer: &StateBuffer) -> Vec<usize> {
    buffer.shape.iter().map(|axis| usize::try_from(*axis).unwrap_or(usize::MAX)).collect()
}

pub(super) fn encode(
    checkpoint: Checkpoint,
    ranks: usize,
    identity: &Identity,
    inputs: &Inputs,
    buffers: &[StateBuffer],
) -> shardstream::Result<Sample> {
    let Checkpoint { progress, data, tensors } = checkpoint;
    let meta = CheckpointMeta {
        version: VERSION,
        step: progress.steps(),
        epoch: progress.epochs.len() as u64,
        ranks,
        identity: identity.clone(),
        inputs: inputs.clone(),
        progress,
    };
    let meta = serde_json::to_vec_pretty(&meta)
        .map_err(|e| ErrorKind::Encode { field: META.into(), source: e.into() })?;
    let mut sample = Sample::new(KEY).with(META, meta).with(DATA, data.to_string().into_bytes());
    if tensors.len() != buffers.len() {
        let what = format!("{} tensors of {} buffers", tensors.len(), buffers.len());
        return Err(ErrorKind::Unwritable(what).into());
    }
    for (buffer, values) in buffers.iter().zip(tensors) {
        let array = Array::from_vec(shape(buffer), values)?;
        if sample.set(field(buffer), array.to_npy()).is_some() {
            let what = format!("the names of two buffers differ from {} only by capitals", buffer.name);
            return Err(ErrorKind::Unwritable(what).into());
        }
    }
    let digest = digest(&sample);
    Ok(sample.with(DIGEST, digest.into_bytes()))
}

/// The sha256 over names and contents of all fields except the digest itself.
pub(super) fn digest(sample: &Sample) -> String {
    let mut fields: Vec<(&str, &[u8])> = sample
        .fields()
        .filter(|(name, _)| *name != DIGEST)
        .map(|(name, value)| (name, value.as_bytes().map_or(&[][..], |bytes| bytes)))
        .collect();
    fields.sort_unstable();
    let mut hash = Sha256::new();
    for (name, content) in fields {
        hash.update(format!("{name} {}\n", content.len()));
        hash.update(content);
    }
    hex(&hash.finalize())
}

/// The decoded object of the first rank.
pub(super) struct FirstPart {
    /// The checkpoint, with the state of the first rank's data only.
    pub(super) checkpoint: Checkpoint,
    pub(super) ranks: usize,
    /// Descriptions of the options that have changed since the checkpoint was written.
    pub(super) changed: Vec<String>,
}

/// Decodes the samples that were read from `url`.
pub(super) fn decode(
    samples: Vec<Sample>,
    url: &str,
    identity: &Identity,
    inputs: &Inputs,
    buffers: &[StateBuffer],
) -> Result<FirstPart, CheckpointError> {
    let damaged = |reason: String| CheckpointError::Damaged { url: url.into(), reason };
    let [sample] = <[Sample; 1]>::try_from(samples)
        .map_err(|samples| damaged(format!("it has {} samples instead of one", samples.len())))?;
    // This check comes before the other checks, so that a damaged checkpoint is reported as damaged.
    if content(&sample, DIGEST).map_err(damaged)? != digest(&sample).as_bytes() {
        return Err(damaged(format!("its {DIGEST} does not match its contents")));
    }
    let meta = content(&sample, META).map_err(damaged)?;
    let in_meta = |e: serde_json::Error| damaged(format!("{META}: {e}"));
    let Versioned { version } = serde_json::from_slice(meta).map_err(in_meta)?;
    if version != VERSION {
        return Err(CheckpointError::Version { url: url.into(), version });
    }
    let meta: CheckpointMeta = serde_json::from_slice(meta).map_err(in_meta)?;
    let mut changed = differences(&meta.identity, identity);
    if !meta.identity.allows(identity) {
        return Err(CheckpointError::Other { url: url.into(), differences: changed });
    }
    changed.extend(differences(&meta.inputs, inputs));
    let text = String::from_utf8_lossy(content(&sample, DATA).map_err(damaged)?);
    let data: State = text.parse().map_err(|e| damaged(format!("{DATA}: {e}")))?;
    let tensors = buffers.iter().map(|b| tensor(&sample, b)).collect::<Result<_, _>>();
    let checkpoint = Checkpoint { progress: meta.progress, data, tensors: tensors.map_err(damaged)? };
    Ok(FirstPart { checkpoint, ranks: meta.ranks, changed })
}

impl Checkpoint {
    /// Checks that the state of the data and the network have the same epoch and number of samples. If they
    /// differ, describes both.
    pub(super) fn divergence(&self) -> Option<String> {
        let Self { progress, data, .. } = self;
        let of_data = (data.epoch(), data.samples());
        let of_network = (progress.epochs.len() as u64, progress.running.samples());
        if of_data == of_network {
            return None;
        }
        let text = |(epoch, samples)| format!("sample {samples} of epoch {epoch}");
        Some(format!("its data is at {}, and its network at {}", text(of_data), text(of_network)))
    }
}

fn content<'a>(sample: &'a Sample, field: &str) -> Result<&'a [u8], String> {
    let value = sample.get(field).and_then(Value::as_bytes);
    value.map(|bytes| &bytes[..]).ok_or_else(|| format!("it has no {field}"))
}

fn tensor(sample: &Sample, buffer: &StateBuffer) -> Result<Vec<f32>, String> {
    let field = field(buffer);
    let bytes = sample.get(&field).and_then(Value::as_bytes).ok_or_else(|| format!("it has no {field}"))?;
    let array = Array::from_npy(bytes).map_err(|e| format!("{field}: {e}"))?;
    if array.shape() != shape(buffer) {
        return Err(format!("{field} is {array}, and the network's is {:?}", buffer.shape));
    }
    array.to_vec().map_err(|e| format!("{field}: {e}"))
}

/// Describes the values that differ, sorted by name.
fn differences<T: Serialize>(saved: &T, current: &T) -> Vec<String> {
    let fields = |value: &T| match serde_json::to_value(value) {
        Ok(serde_json::Value::Object(fields)) => fields,
        _ => serde_json::Map::new(),
    };
    let saved = fields(saved);
    let current = fields(current);
    let names: BTreeSet<&String> = saved.keys().chain(current.keys()).collect();
    let text = |value: Option<&serde_json::Value>| value.map_or("not there".into(), ToString::to_string);
    let mut differences = Vec::new();
    for name in names {
        let (before, now) = (saved.get(name), current.get(name));
        if before != now {
            differences.push(format!("{name} was {} and is now {}", text(before), text(now)));
        }
    }
    differences
}
