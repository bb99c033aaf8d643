//! The manifest of an artifact, which describes its programs.

use super::ArtifactError;
use super::format::{DocumentFormat, FORMAT};
use serde::Deserialize;
use shardstream_pjrt::{CompileOptions, Signature, Spec};
use std::fmt;
use std::str::FromStr;

/// The manifest of an artifact: the network, and the shapes and devices that its programs were exported for.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Manifest {
    /// The name of the network.
    pub model: String,
    /// Number of blocks of each stage of the network.
    pub stages: Vec<usize>,
    /// The number of classes.
    pub classes: usize,
    /// Height and width of the images.
    pub size: usize,
    /// Number of images per device and step.
    pub batch: usize,
    /// Number of devices that share a step, over all processes of the job.
    pub devices: usize,
    /// The type of the activations; the state is always float32.
    pub dtype: DType,
    /// Mean of each channel, which the programs subtract from pixels between 0 and 1.
    pub mean: [f64; 3],
    /// Standard deviation of each channel, by which the programs then divide.
    pub std: [f64; 3],
    /// Digests of the programs.
    pub(super) sha256: Digests,
    /// The buffers that a step takes and returns: parameters, optimizer state, batch-norm statistics.
    pub state: Vec<StateBuffer>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct Digests {
    pub(super) init: String,
    pub(super) step: String,
    pub(super) eval: String,
}

/// The type of a network's activations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DType {
    /// 32 bits.
    #[default]
    Float32,
    /// 16 bits with the range of `Float32`. It is the native type of a TPU's matrix units.
    Bfloat16,
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Float32 => "float32",
            Self::Bfloat16 => "bfloat16",
        })
    }
}

/// The error for a text that is not a [`DType`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown type {0:?}: give float32 (f32) or bfloat16 (bf16)")]
pub struct ParseDTypeError(String);

impl FromStr for DType {
    type Err = ParseDTypeError;

    fn from_str(text: &str) -> Result<Self, ParseDTypeError> {
        match text {
            "float32" | "f32" => Ok(Self::Float32),
            "bfloat16" | "bf16" => Ok(Self::Bfloat16),
            _ => Err(ParseDTypeError(text.into())),
        }
    }
}

/// One float32 buffer of the state.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct StateBuffer {
    /// The path of the buffer in the JAX tree.
    pub name: String,
    /// The dimensions of the buffer.
    pub shape: Vec<i64>,
}

impl Manifest {
    /// Parses the exporter's JSON of the artifact `name`.
    pub(super) fn parse(name: &str, json: &[u8]) -> Result<Self, ArtifactError> {
        let bad = |reason: String| ArtifactError::Manifest { name: name.into(), reason };
        let DocumentFormat { format } = serde_json::from_slice(json).map_err(|e| bad(e.to_string()))?;
        if format != FORMAT {
            return Err(ArtifactError::Format { name: name.into(), format });
        }
        let manifest: Self = serde_json::from_slice(json).map_err(|e| bad(e.to_string()))?;
        // Below these maxima, products of the values cannot overflow. Real values are far smaller.
        for (what, value, max) in [
            ("classes", manifest.classes, 1 << 24),
            ("size", manifest.size, 1 << 12),
            ("batch", manifest.batch, 1 << 20),
            ("devices", manifest.devices, 1 << 16),
        ] {
            if value == 0 || value > max {
                return Err(bad(format!("{what} is {value}, not 1 to {max}")));
            }
        }
        if manifest.stages.iter().any(|blocks| !(1..=1 << 10).contains(blocks)) {
            return Err(bad(format!("stages of {:?} blocks", manifest.stages)));
        }
        if !manifest.mean.iter().chain(&manifest.std).all(|value| value.is_finite() && *value >= 0.0) {
            return Err(bad("a value of mean or std is negative or not finite".into()));
        }
        Ok(manifest)
    }

    /// Sha256 of the program `step`. It identifies the artifact.
    pub fn digest(&self) -> &str {
        &self.sha256.step
    }

    /// Number of images per step, over all devices of the job.
    pub fn global_batch(&self) -> usize {
        self.local_batch(self.devices)
    }

    /// Number of images per step in a process that has `local_devices` devices.
    pub fn local_batch(&self, local_devices: usize) -> usize {
        self.batch * local_devices
    }

    /// Number of bytes of an image.
    pub fn image_bytes(&self) -> usize {
        self.size * self.size * 3
    }

    /// Dimensions of one device's images: batch, height, width, channels.
    pub fn image_dims(&self) -> [i64; 4] {
        [self.batch as i64, self.size as i64, self.size as i64, 3]
    }

    /// Dimensions of one device's labels.
    pub fn label_dims(&self) -> [i64; 1] {
        [self.batch as i64]
    }

    fn signature(&self, inputs: Vec<Spec>) -> Signature {
        let state = self.state.iter().map(|b| Spec::of::<f32>(&b.shape)).collect();
        Signature { state, inputs }
    }

    fn batch_inputs(&self) -> Vec<Spec> {
        vec![Spec::of::<u8>(&self.image_dims()), Spec::of::<i32>(&self.label_dims())]
    }

    /// Parameters of `init`: a seed.
    pub fn init_signature(&self) -> Signature {
        Signature { state: vec![], inputs: vec![Spec::of::<i32>(&[])] }
    }

    /// Parameters of `step`: the state, images, labels, and one buffer of hyperparameters (learning rate,
    /// weight decay, label smoothing, momentum).
    pub fn step_signature(&self) -> Signature {
        let mut inputs = self.batch_inputs();
        inputs.push(Spec::of::<f32>(&[4]));
        self.signature(inputs)
    }

    /// Parameters of `eval`: the state, images, labels.
    pub fn eval_signature(&self) -> Signature {
        self.signature(self.batch_inputs())
    }

    /// Compile options that spread `step` and `eval` over the devices.
    pub fn compile_options(&self) -> CompileOptions {
        CompileOptions { replicas: 1, partitions: self.devices }
    }
}

impl fmt::Display for Manifest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { model, classes, size, batch, devices, dtype, .. } = self;
        write!(f, "{model} in {dtype}, {size}x{size} of {classes} classes, {batch} images on each of ")?;
        write!(f, "{devices} device{}", if *devices == 1 { "" } else { "s" })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Artifact, BUILT_IN};
    use super::*;

    #[test]
    fn the_local_batch_is_the_part_of_a_process() {
        let m = Artifact::open("resnet50-224-bf16-x32").unwrap().manifest;
        assert_eq!((m.global_batch(), m.local_batch(8)), (4096, 1024));
        assert_eq!(
            m.to_string(),
            "resnet50 in bfloat16, 224x224 of 1000 classes, 128 images on each of 32 devices"
        );
    }

    #[test]
    fn types_have_a_long_and_a_short_name() {
        for dtype in [DType::Float32, DType::Bfloat16] {
            assert_eq!(dtype.to_string().parse(), Ok(dtype));
        }
        assert_eq!("bf16".parse(), Ok(DType::Bfloat16));
        assert!("f16".parse::<DType>().unwrap_err().to_string().contains("bfloat16"));
    }

    #[test]
    fn bad_manifests_are_refused() {
        let good = String::from_utf8(BUILT_IN[0].manifest.into()).unwrap();
        let broken = [
            good.replace("\"batch\": 64", "\"batch\": 0"),
            good.replace("\"batch\": 64", "\"batch\": -1"),
            good.replace("\"size\": 32", "\"size\": 1000000"),
            good.replace("\"state\"", "\"stale\""),
            good.replace("float32", "float8"),
            good.replace("\"stages\": [1, 1, 1]", "\"stages\": [1, 0, 1]"),
            good.replace("\"mean\": [0.485", "\"mean\": [-0.485"),
            String::new(),
        ];
        for json in broken {
            assert!(
                matches!(Manifest::parse("x", json.as_bytes()), Err(ArtifactError::Manifest { .. })),
                "{json}"
            );
        }
    }

    #[test]
    fn the_error_for_another_format_says_to_export_again() {
        let good = String::from_utf8(BUILT_IN[0].manifest.into()).unwrap();
        for json in [good.replace("  \"format\": 2,\n", ""), good.replace("\"format\": 2", "\"format\": 3")] {
            let e = Manifest::parse("mine/r50", json.as_bytes()).unwrap_err();
            assert!(matches!(e, ArtifactError::Format { format: 0 | 3, .. }), "{e}");
            assert!(e.to_string().contains("mine/r50") && e.to_string().contains("export it again"), "{e}");
        }
    }
}
