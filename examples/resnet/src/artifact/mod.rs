//! Exported programs, and the manifest that describes them.

mod built_in;
mod error;
mod format;
mod manifest;
mod wanted;

pub use built_in::names;
pub use error::ArtifactError;
pub use manifest::{DType, Manifest, ParseDTypeError, StateBuffer};
pub use wanted::Wanted;

use built_in::BUILT_IN;
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};

/// The three programs of a network, with their manifest.
#[derive(Debug, Clone)]
pub struct Artifact {
    /// The name of a built-in artifact, or the path of another artifact, without `.json`.
    pub name: String,
    /// The shapes, devices and settings that the programs were exported for.
    pub manifest: Manifest,
    /// `(seed) -> state...`
    pub init: Vec<u8>,
    /// `(state..., images, labels, hyperparameters) -> (state..., loss, correct)`
    pub step: Vec<u8>,
    /// `(state..., images, labels) -> (correct, top5, valid)`
    pub eval: Vec<u8>,
}

/// An older name of `resnet8-x8`.
const RESNET8X8: &str = "resnet8x8";

impl Artifact {
    /// Opens the built-in artifact of this name, or the artifact whose manifest is the file `name` + `.json`.
    pub fn open(name: &str) -> Result<Self, ArtifactError> {
        let current_name = if name == RESNET8X8 { "resnet8-x8" } else { name };
        if let Some(b) = BUILT_IN.iter().find(|b| b.name == current_name) {
            return Self::new(current_name, b.manifest, b.init.into(), b.step.into(), b.eval.into());
        }
        let base = name.strip_suffix(".json").unwrap_or(name);
        let file = |ending: &str| PathBuf::from(format!("{base}.{ending}"));
        if !Path::new(&file("json")).exists() {
            return Err(ArtifactError::Unknown { name: name.into() });
        }
        let read = |ending: &str| {
            let path = file(ending);
            std::fs::read(&path).map_err(|source| ArtifactError::Read { path, source })
        };
        let (init, step, eval) = (read("init.mlirbc")?, read("step.mlirbc")?, read("eval.mlirbc")?);
        Self::new(base, &read("json")?, init, step, eval)
    }

    fn new(
        name: &str,
        manifest: &[u8],
        init: Vec<u8>,
        step: Vec<u8>,
        eval: Vec<u8>,
    ) -> Result<Self, ArtifactError> {
        let manifest = Manifest::parse(name, manifest)?;
        let digests = &manifest.sha256;
        for (program, code, digest) in
            [("init", &init, &digests.init), ("step", &step, &digests.step), ("eval", &eval, &digests.eval)]
        {
            if crate::hex(&Sha256::digest(code)) != *digest {
                return Err(ArtifactError::Damaged { name: name.into(), program });
            }
        }
        Ok(Self { name: name.into(), manifest, init, step, eval })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_artifacts_match_their_names_and_digests() {
        for b in BUILT_IN {
            let a = Artifact::open(b.name).unwrap();
            let m = a.manifest;
            let classes = if m.size == 224 { 1000 } else { 10 };
            assert_eq!(m.classes, classes, "{}", b.name);
            assert!(!m.state.is_empty());
            // The name consists of model, size, type and number of devices.
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
    fn the_error_for_an_unknown_name_lists_the_built_in_names() {
        let message = Artifact::open("resnet9").unwrap_err().to_string();
        assert!(message.contains("resnet9") && message.contains("resnet18"), "{message}");
    }

    #[test]
    fn the_files_of_a_path_are_read_and_their_digests_checked() {
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
        assert!(matches!(Artifact::open(name), Err(ArtifactError::Read { .. })));
        write("eval.mlirbc", b.eval);
        assert_eq!(Artifact::open(name).unwrap().manifest.model, "resnet8");
        assert!(Artifact::open(&format!("{name}.json")).is_ok());
        write("eval.mlirbc", b.step);
        let e = Artifact::open(name).unwrap_err();
        assert!(matches!(e, ArtifactError::Damaged { program: "eval", .. }), "{e}");
    }
}
