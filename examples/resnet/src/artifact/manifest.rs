//! What an artifact was exported for.

use super::Error;
use crate::pjrt::{CompileOptions, Signature, Spec};
use serde::Deserialize;
use std::fmt;
use std::str::FromStr;

/// What this trainer runs; the exporter's `FORMAT` is the same number.
pub(super) const FORMAT: u64 = 2;

/// What an artifact was exported for.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Manifest {
    /// The network.
    pub model: String,
    /// Blocks of each stage of the network.
    pub stages: Vec<usize>,
    /// The number of classes.
    pub classes: usize,
    /// Height and width of the images.
    pub size: usize,
    /// Images per device and step.
    pub batch: usize,
    /// Devices that share a step: those of the whole job, whichever process drives them.
    pub devices: usize,
    /// The type of the activations; the state is always float32.
    pub dtype: DType,
    /// What the programs subtract from each channel of an image whose pixels are 0 to 1.
    pub mean: [f64; 3],
    /// What they divide each channel by after that.
    pub std: [f64; 3],
    /// Digests of the programs.
    pub(super) sha256: Digests,
    /// The buffers that a step takes and gives back: parameters, optimizer, batch-norm statistics.
    pub state: Vec<StateBuffer>,
}

/// The first exporters wrote none.
#[derive(Deserialize)]
struct Format {
    #[serde(default)]
    format: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct Digests {
    pub(super) init: String,
    pub(super) step: String,
    pub(super) eval: String,
}

/// What a network computes in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DType {
    /// 32 bits.
    #[default]
    Float32,
    /// 16 bits, with the range of 32: what the matrix units of a TPU multiply.
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

/// A text that is no [`DType`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no type {0:?}: it is float32 (f32) or bfloat16 (bf16)")]
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
    /// Its path in the JAX tree.
    pub name: String,
    /// Its dimensions.
    pub shape: Vec<i64>,
}

impl Manifest {
    /// Reads what the exporter wrote for the artifact of this name.
    pub(super) fn parse(name: &str, json: &[u8]) -> Result<Self, Error> {
        let bad = |reason: String| Error::Manifest { name: name.into(), reason };
        let Format { format } = serde_json::from_slice(json).map_err(|e| bad(e.to_string()))?;
        if format != FORMAT {
            return Err(Error::Format { name: name.into(), format });
        }
        let manifest: Self = serde_json::from_slice(json).map_err(|e| bad(e.to_string()))?;
        // Bounds far above any real use, so that products of them cannot overflow.
        for (what, value, most) in [
            ("classes", manifest.classes, 1 << 24),
            ("size", manifest.size, 1 << 12),
            ("batch", manifest.batch, 1 << 20),
            ("devices", manifest.devices, 1 << 16),
        ] {
            if value == 0 || value > most {
                return Err(bad(format!("{what} is {value}, not 1 to {most}")));
            }
        }
        if manifest.stages.iter().any(|blocks| !(1..=1 << 10).contains(blocks)) {
            return Err(bad(format!("stages of {:?} blocks", manifest.stages)));
        }
        if !manifest.mean.iter().chain(&manifest.std).all(|value| value.is_finite() && *value >= 0.0) {
            return Err(bad("mean and std are not of pixels from 0 to 1".into()));
        }
        Ok(manifest)
    }

    /// What tells the program of a step from any other: its sha256.
    pub fn digest(&self) -> &str {
        &self.sha256.step
    }

    /// Images per step over all devices of the job.
    pub fn global_batch(&self) -> usize {
        self.local_batch(self.devices)
    }

    /// Images per step over `local_devices` of them: those of one process.
    pub fn local_batch(&self, local_devices: usize) -> usize {
        self.batch * local_devices
    }

    /// Bytes of an image.
    pub fn image_bytes(&self) -> usize {
        self.size * self.size * 3
    }

    /// Dimensions of the images of one device: NHWC.
    pub fn image_dims(&self) -> [i64; 4] {
        [self.batch as i64, self.size as i64, self.size as i64, 3]
    }

    /// Dimensions of the labels of one device.
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

    /// Parameters of `step`: the state, images, labels; learning rate, weight decay, label smoothing and
    /// momentum.
    pub fn step_signature(&self) -> Signature {
        let mut inputs = self.batch_inputs();
        inputs.push(Spec::of::<f32>(&[4]));
        self.signature(inputs)
    }

    /// Parameters of `eval`: the state, images, labels.
    pub fn eval_signature(&self) -> Signature {
        self.signature(self.batch_inputs())
    }

    /// How `step` and `eval` are spread over the devices.
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
    fn the_part_of_a_process_is_told_from_the_whole() {
        let m = Artifact::open("resnet50-224-bf16-x32").unwrap().manifest;
        assert_eq!((m.global_batch(), m.local_batch(8)), (4096, 1024));
        assert_eq!(
            m.to_string(),
            "resnet50 in bfloat16, 224x224 of 1000 classes, 128 images on each of 32 devices"
        );
    }

    #[test]
    fn types_have_two_names() {
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
            assert!(matches!(Manifest::parse("x", json.as_bytes()), Err(Error::Manifest { .. })), "{json}");
        }
    }

    #[test]
    fn a_program_of_another_version_is_told_to_be_exported_again() {
        let good = String::from_utf8(BUILT_IN[0].manifest.into()).unwrap();
        for json in [good.replace("  \"format\": 2,\n", ""), good.replace("\"format\": 2", "\"format\": 3")] {
            let e = Manifest::parse("mine/r50", json.as_bytes()).unwrap_err();
            assert!(matches!(e, Error::Format { format: 0 | 3, .. }), "{e}");
            assert!(e.to_string().contains("mine/r50") && e.to_string().contains("export it again"), "{e}");
        }
    }
}
