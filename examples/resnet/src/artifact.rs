//! Exported programs and the manifest that describes them.

use crate::pjrt::{CompileOptions, Signature, Spec};
use serde::Deserialize;
use sha2::{Digest, Sha256};
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

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
    /// None of the built-in ones is what was wanted.
    #[error(
        "no program for {wanted} is built in; there are\n{}\nTo export it: {}",
        list(all().iter().collect()),
        wanted.export()
    )]
    NoMatch {
        /// What was asked for.
        wanted: Box<Wanted>,
    },
    /// Several of the built-in ones are what was wanted.
    #[error("there are several programs for {wanted}: say more, or take one by its name\n{}", list(all().iter().filter(|(_, m)| wanted.fits(m)).collect()))]
    Ambiguous {
        /// What was asked for.
        wanted: Box<Wanted>,
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
    /// Devices that share a step: those of the whole job, whichever process drives them.
    pub devices: usize,
    /// The type of the activations; the state is always float32.
    pub dtype: DType,
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

    /// Parameters of `step`: the state, images, labels; learning rate, weight decay and label smoothing.
    pub fn step_signature(&self) -> Signature {
        let mut inputs = self.batch_inputs();
        inputs.push(Spec::of::<f32>(&[3]));
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

/// What a program should have been exported for; what is `None` is left open.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    /// The network.
    pub model: Option<String>,
    /// Height and width of the images.
    pub size: Option<usize>,
    /// The type of the activations.
    pub dtype: Option<DType>,
    /// Images per device and step.
    pub batch: Option<usize>,
    /// Devices of the whole job.
    pub devices: Option<usize>,
}

impl Wanted {
    const MODEL: &str = "resnet8";
    const SIZE: usize = 32;

    /// Whether a program is one of those.
    fn fits(&self, m: &Manifest) -> bool {
        fn is<T: PartialEq>(wanted: &Option<T>, got: T) -> bool {
            wanted.as_ref().is_none_or(|wanted| *wanted == got)
        }
        self.model.as_ref().is_none_or(|model| *model == m.model)
            && is(&self.size, m.size)
            && is(&self.dtype, m.dtype)
            && is(&self.batch, m.batch)
            && is(&self.devices, m.devices)
    }

    /// The same with what is left open as plain as can be: 32x32 pixels, float32, one device.
    fn plain(&self) -> Self {
        Self {
            model: Some(self.model.clone().unwrap_or(Self::MODEL.into())),
            size: Some(self.size.unwrap_or(Self::SIZE)),
            dtype: Some(self.dtype.unwrap_or_default()),
            batch: self.batch,
            devices: Some(self.devices.unwrap_or(1)),
        }
    }

    /// The command that exports it, from the top of the repository.
    fn export(&self) -> String {
        let size = self.size.unwrap_or(Self::SIZE);
        let model = self.model.as_deref().unwrap_or(Self::MODEL);
        format!(
            "python3 examples/resnet/export/export_resnet.py --model {model} --size {size} --classes {} --batch {} \
             --devices {} --dtype {} --out mine/{model}",
            if size < 128 { 10 } else { 1000 },
            self.batch.unwrap_or(64),
            self.devices.unwrap_or(1),
            self.dtype.unwrap_or_default(),
        )
    }
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.model.as_deref().unwrap_or("any network"))?;
        self.dtype.map_or(Ok(()), |dtype| write!(f, " in {dtype}"))?;
        self.size.map_or(Ok(()), |size| write!(f, ", {size}x{size}"))?;
        self.batch.map_or(Ok(()), |batch| write!(f, ", {batch} images on each device"))?;
        self.devices.map_or(Ok(()), |devices| write!(f, ", {devices} device(s)"))
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
    /// `(state..., images, labels, hyperparameters) -> (state..., loss, correct)`
    pub step: Vec<u8>,
    /// `(state..., images, labels) -> (correct, valid)`
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

// The same as CHECKED_IN of the exporter.
built_in!(
    "resnet8",
    "resnet8-x8",
    "resnet8-bf16-x8",
    "resnet20",
    "resnet18",
    "resnet18-bf16-x8",
    "resnet50-bf16-x8",
    "resnet50-bf16-x32",
    "resnet50-224",
    "resnet50-224-bf16-x8",
    "resnet50-224-bf16-x32"
);

/// An older name of `resnet8-x8`.
const RESNET8X8: &str = "resnet8x8";

/// The names of the built-in artifacts.
pub fn names() -> String {
    BUILT_IN.iter().map(|b| b.name).collect::<Vec<_>>().join(", ")
}

/// The built-in artifacts; those that cannot be read, of which there are none, are left out.
fn all() -> Vec<(&'static str, Manifest)> {
    let parse = |b: &BuiltIn| Some((b.name, Manifest::parse(b.name, b.manifest).ok()?));
    BUILT_IN.iter().filter_map(parse).collect()
}

/// A line for each artifact.
fn list(artifacts: Vec<&(&str, Manifest)>) -> String {
    artifacts.iter().map(|(name, m)| format!("  {name:22} {m}")).collect::<Vec<_>>().join("\n")
}

impl Artifact {
    /// The built-in artifact that is as wanted. Of several it is the plain one: what is left open is then ResNet-8,
    /// 32x32 pixels, float32, one device. An error if there is none, or several and no plain one.
    pub fn choose(wanted: &Wanted) -> Result<Self, Error> {
        let all = all();
        let fitting = |wanted: &Wanted| -> Vec<&str> {
            all.iter().filter(|(_, m)| wanted.fits(m)).map(|(name, _)| *name).collect()
        };
        match (&fitting(wanted)[..], &fitting(&wanted.plain())[..]) {
            ([name], _) | (_, [name]) => Self::open(name),
            ([], _) => Err(Error::NoMatch { wanted: Box::new(wanted.clone()) }),
            _ => Err(Error::Ambiguous { wanted: Box::new(wanted.clone()) }),
        }
    }

    /// The built-in artifact of this name, or the one whose manifest is `name` + `.json`.
    pub fn open(name: &str) -> Result<Self, Error> {
        let known = if name == RESNET8X8 { "resnet8-x8" } else { name };
        if let Some(b) = BUILT_IN.iter().find(|b| b.name == known) {
            return Self::new(known, b.manifest, b.init.into(), b.step.into(), b.eval.into());
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
            let m = a.manifest;
            let classes = if m.size == 224 { 1000 } else { 10 };
            assert_eq!(m.classes, classes, "{}", b.name);
            assert!(!m.state.is_empty());
            // The name says what it is for.
            let size = if m.size == 32 { String::new() } else { format!("-{}", m.size) };
            let dtype = if m.dtype == DType::Bfloat16 { "-bf16" } else { "" };
            let devices = if m.devices == 1 { String::new() } else { format!("-x{}", m.devices) };
            assert_eq!(b.name, format!("{}{size}{dtype}{devices}", m.model));
        }
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/artifacts");
        assert_eq!(std::fs::read_dir(folder).unwrap().count(), 4 * BUILT_IN.len(), "all are built in");
        let m = Artifact::open("resnet8").unwrap().manifest;
        assert_eq!((m.model.as_str(), m.batch, m.devices), ("resnet8", 64, 1));
        assert_eq!(m.step_signature().state.len(), m.state.len());
        assert_eq!(m.step_signature().inputs[0].to_string(), "u8[64, 32, 32, 3]");
        assert_eq!(Artifact::open("resnet8x8").unwrap().name, "resnet8-x8");
    }

    #[test]
    fn the_part_of_a_process_is_told_from_the_whole() {
        let m = Artifact::open("resnet50-224-bf16-x32").unwrap().manifest;
        assert_eq!((m.global_batch(), m.local_batch(8)), (4096, 1024));
        assert_eq!(
            m.to_string(),
            "resnet50 in bfloat16, 224x224 of 1000 classes, 128 images on each of 32 devices"
        );
    }

    fn wanted(model: Option<&str>, size: Option<usize>, devices: Option<usize>) -> Wanted {
        Wanted { model: model.map(Into::into), size, devices, ..Wanted::default() }
    }

    #[test]
    fn the_fitting_one_is_chosen() {
        for (wanted, name) in [
            (wanted(None, None, None), "resnet8"),
            (wanted(Some("resnet8"), None, None), "resnet8"),
            (wanted(Some("resnet8"), None, Some(8)), "resnet8-x8"),
            (wanted(Some("resnet18"), None, Some(8)), "resnet18-bf16-x8"),
            (wanted(Some("resnet50"), Some(224), None), "resnet50-224"),
            (wanted(Some("resnet50"), Some(224), Some(8)), "resnet50-224-bf16-x8"),
            (wanted(Some("resnet50"), Some(32), Some(32)), "resnet50-bf16-x32"),
            (wanted(None, Some(224), Some(32)), "resnet50-224-bf16-x32"),
            (
                Wanted { dtype: Some(DType::Bfloat16), ..wanted(Some("resnet8"), None, None) },
                "resnet8-bf16-x8",
            ),
            (Wanted { batch: Some(32), ..Wanted::default() }, "resnet50-224"),
        ] {
            assert_eq!(Artifact::choose(&wanted).unwrap().name, name, "{wanted}");
        }
    }

    #[test]
    fn without_a_fitting_one_the_error_says_what_there_is_and_how_to_have_it() {
        let wanted = Wanted { batch: Some(16), ..wanted(Some("resnet50"), Some(64), Some(4)) };
        let e = Artifact::choose(&wanted).unwrap_err();
        assert!(matches!(e, Error::NoMatch { .. }), "{e}");
        let message = e.to_string();
        for part in [
            "resnet50, 64x64, 16 images on each device, 4 device(s)",
            "\n  resnet18 ",
            "--model resnet50 --size 64 --classes 10 --batch 16 --devices 4 --dtype float32 --out mine/resnet50",
        ] {
            assert!(message.contains(part), "{message}");
        }
    }

    #[test]
    fn of_several_none_is_chosen_by_chance() {
        let e = Artifact::choose(&wanted(Some("resnet50"), None, Some(8))).unwrap_err();
        assert!(matches!(e, Error::Ambiguous { .. }), "{e}");
        let message = e.to_string();
        assert!(
            message.contains("resnet50-bf16-x8 ") && message.contains("resnet50-224-bf16-x8 "),
            "{message}"
        );
        assert!(!message.contains("bf16-x32"), "{message}");
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
            good.replace("float32", "float8"),
            String::new(),
        ];
        for json in broken {
            assert!(matches!(Manifest::parse("x", json.as_bytes()), Err(Error::Manifest { .. })));
        }
    }
}
