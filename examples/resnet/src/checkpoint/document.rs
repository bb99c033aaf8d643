//! A checkpoint as a sample: JSON for what is counted, npy for what was learnt.

use super::{Error, Result};
use crate::artifact::{Manifest, StateBuffer};
use crate::hex;
use crate::report::Progress;
use crate::train::Options;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use shardstream::{Array, ErrorKind, Sample, State, Value};
use std::collections::{BTreeMap, BTreeSet};

/// Changes with the meaning of what is written.
pub(super) const VERSION: u64 = 3;
const KEY: &str = "checkpoint";
const META: &str = "meta.json";
const DATA: &str = "data.json";
/// Of all other fields: an archive has no checksum over what is in its members.
const DIGEST: &str = "sha256.txt";

/// A training at one step.
#[derive(Debug, Clone)]
pub struct Checkpoint {
    /// Sums and times, of the whole job.
    pub progress: Progress,
    /// Of the training data, after the last batch that was trained on: what is written is of the streams of
    /// one rank, what is read is of all.
    pub data: State,
    /// The values of the buffers of the manifest, in its order. Only the first rank writes them.
    pub tensors: Vec<Vec<f32>>,
}

/// What must be the same for one training to continue with the checkpoint of another. It is of the whole job,
/// however many processes share it. What the data must have in common, its own state knows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    model: String,
    /// The sha256 of the step.
    program: String,
    devices: usize,
    /// Images per step, over all devices.
    batch: usize,
    size: usize,
    classes: usize,
    seed: i32,
}

impl Identity {
    /// Of a network and a seed.
    pub fn new(manifest: &Manifest, seed: i32) -> Self {
        let Manifest { model, devices, size, classes, .. } = manifest.clone();
        let (program, batch) = (manifest.digest().into(), manifest.global_batch());
        Self { model, program, devices, batch, size, classes, seed }
    }

    /// That of a dry run of the same, which no training can resume from.
    pub(super) fn dry(self) -> Self {
        Self { model: format!("dry run of {}", self.model), ..self }
    }

    /// Whether `other` may continue with it. Another number of devices means another program for the same
    /// network.
    fn allows(&self, other: &Self) -> bool {
        let Self { program, devices, .. } = other;
        *self == *other
            || self.devices != *devices
                && Self { program: program.clone(), devices: *devices, ..self.clone() } == *other
    }
}

/// The options that the steps to come depend on. They may change, and the log says so.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Inputs {
    /// Passes over the data.
    pub epochs: u64,
    /// By their names, as people write them.
    #[serde(flatten)]
    others: BTreeMap<String, String>,
}

impl Inputs {
    /// Of these options.
    pub fn new(options: &Options) -> Self {
        let Options { epochs, steps, schedule, weight_decay, label_smoothing, momentum, .. } =
            options.clone();
        let inputs = Self { epochs, others: BTreeMap::new() };
        let inputs = inputs.with("steps", steps).with("lr", schedule.peak).with("warmup", schedule.warmup);
        let inputs = inputs.with("decay", schedule.decay).with("weight decay", weight_decay);
        inputs.with("label smoothing", label_smoothing).with("momentum", momentum)
    }

    /// And of one more.
    pub fn with(mut self, name: &str, value: impl ToString) -> Self {
        self.others.insert(name.into(), value.to_string());
        self
    }
}

#[derive(Serialize, Deserialize)]
struct Meta {
    version: u64,
    /// Of the whole training.
    step: u64,
    /// The one in progress, counted from 0.
    epoch: u64,
    /// Processes, each of which has written the state of its own data.
    ranks: usize,
    identity: Identity,
    inputs: Inputs,
    progress: Progress,
}

#[derive(Deserialize)]
struct Versioned {
    version: u64,
}

impl Checkpoint {
    /// What the log calls it.
    pub(super) fn title(&self) -> String {
        let Progress { epochs, running, .. } = &self.progress;
        let within = match running.steps() {
            0 => format!("epoch {} done", epochs.len()),
            step => format!("epoch {}, step {step} of it", epochs.len() + 1),
        };
        format!("step {} ({within})", self.progress.steps())
    }

    /// What is done, and what comes next, of all epochs.
    pub(super) fn place(&self, epochs: u64) -> String {
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

/// The field of a buffer. The names of fields have no capitals.
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
    let meta = Meta {
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

/// Over names and contents of all fields but the digest itself.
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

/// What the first rank has written.
pub(super) struct First {
    /// With the data of this rank alone.
    pub(super) checkpoint: Checkpoint,
    pub(super) ranks: usize,
    /// What has changed since of what may.
    pub(super) changed: Vec<String>,
}

/// The checkpoint in what was read from `url`.
pub(super) fn decode(
    samples: Vec<Sample>,
    url: &str,
    identity: &Identity,
    inputs: &Inputs,
    buffers: &[StateBuffer],
) -> Result<First> {
    let damaged = |reason: String| Error::Damaged { url: url.into(), reason };
    let [sample] = <[Sample; 1]>::try_from(samples)
        .map_err(|samples| damaged(format!("{} samples in it, not one", samples.len())))?;
    // Before anything in it is believed.
    if content(&sample, DIGEST).map_err(damaged)? != digest(&sample).as_bytes() {
        return Err(damaged(format!("its contents do not have its {DIGEST}")));
    }
    let meta = content(&sample, META).map_err(damaged)?;
    let in_meta = |e: serde_json::Error| damaged(format!("{META}: {e}"));
    let Versioned { version } = serde_json::from_slice(meta).map_err(in_meta)?;
    if version != VERSION {
        return Err(Error::Version { url: url.into(), version });
    }
    let meta: Meta = serde_json::from_slice(meta).map_err(in_meta)?;
    let mut changed = differences(&meta.identity, identity);
    if !meta.identity.allows(identity) {
        return Err(Error::Other { url: url.into(), differences: changed });
    }
    changed.extend(differences(&meta.inputs, inputs));
    let text = String::from_utf8_lossy(content(&sample, DATA).map_err(damaged)?);
    let data: State = text.parse().map_err(|e| damaged(format!("{DATA}: {e}")))?;
    let tensors = buffers.iter().map(|b| tensor(&sample, b)).collect::<std::result::Result<_, _>>();
    let checkpoint = Checkpoint { progress: meta.progress, data, tensors: tensors.map_err(damaged)? };
    Ok(First { checkpoint, ranks: meta.ranks, changed })
}

impl Checkpoint {
    /// Where network and data are, if those are not one place.
    pub(super) fn split(&self) -> Option<String> {
        let Self { progress, data, .. } = self;
        let (fed, learnt) =
            ((data.epoch(), data.samples()), (progress.epochs.len() as u64, progress.running.samples()));
        let at = |(epoch, samples)| format!("sample {samples} of epoch {epoch}");
        (fed != learnt).then(|| format!("its data is at {}, and its network at {}", at(fed), at(learnt)))
    }
}

fn content<'a>(sample: &'a Sample, field: &str) -> std::result::Result<&'a [u8], String> {
    let value = sample.get(field).and_then(Value::as_bytes);
    value.map(|bytes| &bytes[..]).ok_or_else(|| format!("it has no {field}"))
}

fn tensor(sample: &Sample, buffer: &StateBuffer) -> std::result::Result<Vec<f32>, String> {
    let field = field(buffer);
    let bytes = sample.get(&field).and_then(Value::as_bytes).ok_or_else(|| format!("it has no {field}"))?;
    let array = Array::from_npy(bytes).map_err(|e| format!("{field}: {e}"))?;
    if array.shape() != shape(buffer) {
        return Err(format!("{field} is {array}, and the network's is {:?}", buffer.shape));
    }
    array.to_vec().map_err(|e| format!("{field}: {e}"))
}

/// Which values differ, by their names.
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
