//! Encodes a checkpoint as a sample: counts as JSON, tensors as npy.

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
/// The digest of all other fields, since tar has no checksum over the content of its members.
const DIGEST: &str = "sha256.txt";

/// The state of a training after a step.
#[derive(Debug, Clone)]
pub struct Checkpoint {
    /// Sums and times of the whole job.
    pub progress: Progress,
    /// State of the training data after the last batch that was trained on: when written, of one rank's
    /// streams; when read, of all streams.
    pub data: State,
    /// Values of the manifest's buffers, in its order. Only the first rank writes them.
    pub tensors: Vec<Vec<f32>>,
}

/// What must be the same for a training to resume from a checkpoint. It describes the whole job, whatever its
/// number of processes. The state of the data checks the options of the data itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    model: String,
    /// Sha256 of the step.
    program: String,
    devices: usize,
    /// Images per step, over all devices.
    batch: usize,
    size: usize,
    classes: usize,
    seed: i32,
}

impl Identity {
    /// The identity of a training of this network with this seed.
    pub fn new(manifest: &Manifest, seed: i32) -> Self {
        let Manifest { model, devices, size, classes, .. } = manifest.clone();
        let (program, batch) = (manifest.digest().into(), manifest.global_batch());
        Self { model, program, devices, batch, size, classes, seed }
    }

    /// The identity of a dry run, whose checkpoints no training can resume from.
    pub(super) fn dry(self) -> Self {
        Self { model: format!("dry run of {}", self.model), ..self }
    }

    /// Whether `other` may resume from it. The number of devices and the program may differ, as another
    /// number of devices takes another program of the same network.
    fn allows(&self, other: &Self) -> bool {
        let Self { program, devices, .. } = other;
        *self == *other
            || self.devices != *devices
                && Self { program: program.clone(), devices: *devices, ..self.clone() } == *other
    }
}

/// The options that future steps depend on. They may change, and then the log says so.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Inputs {
    /// Passes over the data.
    pub epochs: u64,
    /// Values by name, as on the command line.
    #[serde(flatten)]
    others: BTreeMap<String, String>,
}

impl Inputs {
    /// The inputs of a training of this many epochs.
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
    /// The step, counted over the whole training.
    step: u64,
    /// The number of the epoch in progress, counted from 0.
    epoch: u64,
    /// Number of processes, each of which wrote the state of its own data.
    ranks: usize,
    identity: Identity,
    inputs: Inputs,
    progress: Progress,
}

impl Checkpoint {
    /// The description for the log.
    pub(super) fn title(&self) -> String {
        let Progress { epochs, running, .. } = &self.progress;
        let within = match running.steps() {
            0 => format!("epoch {} done", epochs.len()),
            step => format!("epoch {}, step {step} of it", epochs.len() + 1),
        };
        format!("step {} ({within})", self.progress.steps())
    }

    /// Describes what is done of `epochs` epochs, and what comes next.
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

/// The name of a buffer's field. Names of fields have no capitals.
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
            let what = format!("two buffers are named {} but for capitals", buffer.name);
            return Err(ErrorKind::Unwritable(what).into());
        }
    }
    let digest = digest(&sample);
    Ok(sample.with(DIGEST, digest.into_bytes()))
}

/// The sha256 over names and contents of all fields but the digest itself.
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
    /// The checkpoint, with the state of this rank's data only.
    pub(super) checkpoint: Checkpoint,
    pub(super) ranks: usize,
    /// The changes since, among the options that may change.
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
        .map_err(|samples| damaged(format!("{} samples in it, not one", samples.len())))?;
    // Checked before anything else.
    if content(&sample, DIGEST).map_err(damaged)? != digest(&sample).as_bytes() {
        return Err(damaged(format!("its contents do not have its {DIGEST}")));
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
    /// The positions of network and data, if they differ.
    pub(super) fn divergence(&self) -> Option<String> {
        let Self { progress, data, .. } = self;
        let (fed, learnt) =
            ((data.epoch(), data.samples()), (progress.epochs.len() as u64, progress.running.samples()));
        let at = |(epoch, samples)| format!("sample {samples} of epoch {epoch}");
        (fed != learnt).then(|| format!("its data is at {}, and its network at {}", at(fed), at(learnt)))
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

/// The differing values, by name.
fn differences<T: Serialize>(theirs: &T, ours: &T) -> Vec<String> {
    let fields = |of: &T| match serde_json::to_value(of) {
        Ok(serde_json::Value::Object(fields)) => fields,
        _ => serde_json::Map::new(),
    };
    let (theirs, ours) = (fields(theirs), fields(ours));
    let names: BTreeSet<&String> = theirs.keys().chain(ours.keys()).collect();
    let shown = |value: Option<&serde_json::Value>| value.map_or("not there".into(), ToString::to_string);
    let differing = names.into_iter().map(|name| (name, theirs.get(name), ours.get(name)));
    differing
        .filter(|(_, theirs, ours)| theirs != ours)
        .map(|(name, theirs, ours)| format!("{name} was {} and is now {}", shown(theirs), shown(ours)))
        .collect()
}
