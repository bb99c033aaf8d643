//! Exported programs and the manifest that describes them.

mod manifest;
mod wanted;

pub use manifest::{DType, Manifest, ParseDTypeError, StateBuffer};
pub use wanted::Wanted;

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
    /// It was written by an older or newer exporter, for programs with other arguments.
    #[error(
        "artifact {name} is of format {format}, and this trainer runs those of format {}: export it again \
         with examples/resnet/export/export_resnet.py of this version",
        manifest::FORMAT
    )]
    Format {
        /// The artifact.
        name: String,
        /// Of its manifest; 0 if that says none.
        format: u64,
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
    #[error(
        "there are several programs for {wanted}: say more, or take one by its name\n{}",
        list(all().iter().filter(|(_, m)| wanted.fits(m)).collect())
    )]
    Ambiguous {
        /// What was asked for.
        wanted: Box<Wanted>,
    },
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
    /// `(state..., images, labels) -> (correct, top5, valid)`
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
            manifest: include_bytes!(concat!("../../artifacts/", $name, ".json")),
            init: include_bytes!(concat!("../../artifacts/", $name, ".init.mlirbc")),
            step: include_bytes!(concat!("../../artifacts/", $name, ".step.mlirbc")),
            eval: include_bytes!(concat!("../../artifacts/", $name, ".eval.mlirbc")),
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
    "resnet50-bf16-x16",
    "resnet50-bf16-x32",
    "resnet50-224",
    "resnet50-224-bf16-x8",
    "resnet50-224-bf16-x16",
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
}
