//! Exported programs and the manifest that describes them.

use crate::pjrt::{CompileOptions, Signature, Spec};
use serde::Deserialize;
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};

/// Why an artifact cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Neither a built-in name nor a path.
    #[error(
        "no artifact {name:?}: built in are {}; anything else is the path of one, without .json",
        names()
    )]
    Unknown {
        /// What was asked for.
        name: String,
    },
    /// A file of it cannot be read.
    #[error("cannot read {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The manifest is not what the exporter writes.
    #[error("bad manifest of artifact {name}: {reason}")]
    Manifest {
        /// The artifact.
        name: String,
        /// What is wrong.
        reason: String,
    },
    /// A program is not the one that the manifest was written with.
    #[error("{program} of artifact {name} does not have the sha256 of its manifest: export it again")]
    Damaged {
        /// The artifact.
        name: String,
        /// `init`, `step` or `eval`.
        program: &'static str,
    },
}

/// What an artifact was exported for.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Manifest {
    /// The network.
    pub model: String,
    /// The number of classes.
    pub classes: usize,
    /// Height and width of the images.
    pub size: usize,
    /// Images per device and step.
    pub batch: usize,
    /// Devices that share a step.
    pub devices: usize,
    /// Digests of the programs.
    sha256: Digests,
    /// The buffers that a step takes and gives back: parameters, optimizer, batch-norm statistics.
    pub state: Vec<StateBuffer>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct Digests {
    init: String,
    step: String,
    eval: String,
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
    fn parse(name: &str, json: &[u8]) -> Result<Self, Error> {
        let bad = |reason: String| Error::Manifest { name: name.into(), reason };
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
        Ok(manifest)
    }

    /// What tells the program of a step from any other: its sha256.
    pub fn digest(&self) -> &str {
        &self.sha256.step
    }

    /// Images per step over all devices.
    pub fn global_batch(&self) -> usize {
        self.batch * self.devices
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

    /// Parameters of `step`: the state, images, labels, the learning rate.
    pub fn step_signature(&self) -> Signature {
        let mut inputs = self.batch_inputs();
        inputs.push(Spec::of::<f32>(&[]));
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

/// The three programs of a network with their manifest.
#[derive(Debug, Clone)]
pub struct Artifact {
    /// What it is called here.
    pub name: String,
    /// What it was exported for.
    pub manifest: Manifest,
    /// `(seed) -> state...`
    pub init: Vec<u8>,
    /// `(state..., images, labels, learning rate) -> (state..., loss, correct)`
    pub step: Vec<u8>,
    /// `(state..., images, labels) -> correct`
    pub eval: Vec<u8>,
}

struct BuiltIn {
    name: &'static str,
    manifest: &'static [u8],
    init: &'static [u8],
    step: &'static [u8],
    eval: &'static [u8],
}

macro_rules! built_in {
    ($($name:literal),*) => {
        /// In the program itself, so that it needs no file beside it.
        static BUILT_IN: &[BuiltIn] = &[$(BuiltIn {
            name: $name,
            manifest: include_bytes!(concat!("../artifacts/", $name, ".json")),
            init: include_bytes!(concat!("../artifacts/", $name, ".init.mlirbc")),
            step: include_bytes!(concat!("../artifacts/", $name, ".step.mlirbc")),
            eval: include_bytes!(concat!("../artifacts/", $name, ".eval.mlirbc")),
        }),*];
    };
}

built_in!("resnet8", "resnet8x8", "resnet18");

/// The names of the built-in artifacts.
pub fn names() -> String {
    BUILT_IN.iter().map(|b| b.name).collect::<Vec<_>>().join(", ")
}

impl Artifact {
    /// The built-in artifact of this name, or the one whose manifest is `name` + `.json`.
    pub fn open(name: &str) -> Result<Self, Error> {
        if let Some(b) = BUILT_IN.iter().find(|b| b.name == name) {
            return Self::new(name, b.manifest, b.init.into(), b.step.into(), b.eval.into());
        }
        let base = name.strip_suffix(".json").unwrap_or(name);
        let file = |ending: &str| PathBuf::from(format!("{base}.{ending}"));
        if !Path::new(&file("json")).exists() {
            return Err(Error::Unknown { name: name.into() });
        }
        let read = |ending: &str| {
            let path = file(ending);
            std::fs::read(&path).map_err(|source| Error::Read { path, source })
        };
        let programs = (read("init.mlirbc")?, read("step.mlirbc")?, read("eval.mlirbc")?);
        Self::new(base, &read("json")?, programs.0, programs.1, programs.2)
    }

    fn new(name: &str, manifest: &[u8], init: Vec<u8>, step: Vec<u8>, eval: Vec<u8>) -> Result<Self, Error> {
        let manifest = Manifest::parse(name, manifest)?;
        let digests = &manifest.sha256;
        for (program, code, digest) in
            [("init", &init, &digests.init), ("step", &step, &digests.step), ("eval", &eval, &digests.eval)]
        {
            if crate::hex(&Sha256::digest(code)) != *digest {
                return Err(Error::Damaged { name: name.into(), program });
            }
        }
        Ok(Self { name: name.into(), manifest, init, step, eval })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_ones_are_whole() {
        for b in BUILT_IN {
            let a = Artifact::open(b.name).unwrap();
            assert_eq!((a.manifest.size, a.manifest.classes), (32, 10), "{}", b.name);
            assert!(!a.manifest.state.is_empty());
        }
        let m = Artifact::open("resnet8").unwrap().manifest;
        assert_eq!((m.model.as_str(), m.batch, m.devices), ("resnet8", 64, 1));
        assert_eq!(m.step_signature().state.len(), m.state.len());
        assert_eq!(m.step_signature().inputs[0].to_string(), "u8[64, 32, 32, 3]");
    }

    #[test]
    fn an_unknown_name_says_what_there_is() {
        let message = Artifact::open("resnet9").unwrap_err().to_string();
        assert!(message.contains("resnet9") && message.contains("resnet18"), "{message}");
    }

    #[test]
    fn a_path_is_read_and_checked() {
        let dir = tempfile::tempdir().unwrap();
        let b = &BUILT_IN[0];
        let base = dir.path().join("mine");
        let write = |ending: &str, bytes: &[u8]| {
            std::fs::write(format!("{}.{ending}", base.display()), bytes).unwrap();
        };
        write("json", b.manifest);
        write("init.mlirbc", b.init);
        write("step.mlirbc", b.step);
        let name = base.to_str().unwrap();
        assert!(matches!(Artifact::open(name), Err(Error::Read { .. })));
        write("eval.mlirbc", b.eval);
        assert_eq!(Artifact::open(name).unwrap().manifest.model, "resnet8");
        assert!(Artifact::open(&format!("{name}.json")).is_ok());
        write("eval.mlirbc", b.step);
        let e = Artifact::open(name).unwrap_err();
        assert!(matches!(e, Error::Damaged { program: "eval", .. }), "{e}");
    }

    #[test]
    fn bad_manifests_are_refused() {
        let good = String::from_utf8(BUILT_IN[0].manifest.into()).unwrap();
        let broken = [
            good.replace("\"batch\": 64", "\"batch\": 0"),
            good.replace("\"batch\": 64", "\"batch\": -1"),
            good.replace("\"size\": 32", "\"size\": 1000000"),
            good.replace("\"state\"", "\"stale\""),
            String::new(),
        ];
        for json in broken {
            assert!(matches!(Manifest::parse("x", json.as_bytes()), Err(Error::Manifest { .. })));
        }
    }
}
