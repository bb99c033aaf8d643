//! Chooses a built-in artifact by the properties of its manifest.

use super::built_in::{BUILT_IN, BuiltIn};
use super::{Artifact, ArtifactError, DType, Manifest};
use std::fmt;

/// The properties that an artifact should have. A property that is `None` matches any value.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    /// The network.
    pub model: Option<String>,
    /// Height and width of the images.
    pub size: Option<usize>,
    /// The type of the activations.
    pub dtype: Option<DType>,
    /// Number of images per device and step.
    pub batch: Option<usize>,
    /// Number of devices of the whole job.
    pub devices: Option<usize>,
}

impl Wanted {
    const MODEL: &str = "resnet8";
    const SIZE: usize = 32;

    /// Whether an artifact with this manifest matches.
    pub(super) fn matches(&self, m: &Manifest) -> bool {
        fn is<T: PartialEq>(wanted: &Option<T>, got: T) -> bool {
            wanted.as_ref().is_none_or(|wanted| *wanted == got)
        }
        self.model.as_ref().is_none_or(|model| *model == m.model)
            && is(&self.size, m.size)
            && is(&self.dtype, m.dtype)
            && is(&self.batch, m.batch)
            && is(&self.devices, m.devices)
    }

    /// The same properties, with defaults for the properties that are `None`: ResNet-8, 32x32 pixels,
    /// float32, one device. The batch size has no default.
    fn with_defaults(&self) -> Self {
        Self {
            model: Some(self.model.clone().unwrap_or(Self::MODEL.into())),
            size: Some(self.size.unwrap_or(Self::SIZE)),
            dtype: Some(self.dtype.unwrap_or_default()),
            batch: self.batch,
            devices: Some(self.devices.unwrap_or(1)),
        }
    }

    /// The command that exports an artifact with these properties. Run it in the repository's root directory.
    pub(super) fn export_command(&self) -> String {
        let size = self.size.unwrap_or(Self::SIZE);
        let model = self.model.as_deref().unwrap_or(Self::MODEL);
        format!(
            "python3 examples/resnet/export/export_resnet.py --model {model} --size {size} --classes {} \
             --batch {} --devices {} --dtype {} --out mine/{model}",
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

impl Artifact {
    /// Opens the built-in artifact that matches. If several artifacts match, opens the artifact that also has
    /// the defaults: ResNet-8, 32x32 pixels, float32, one device. Fails if no artifact matches, or if several
    /// artifacts match and none of these has the defaults.
    pub fn choose(wanted: &Wanted) -> Result<Self, ArtifactError> {
        let all = all();
        let matching = |wanted: &Wanted| -> Vec<&str> {
            all.iter().filter(|(_, m)| wanted.matches(m)).map(|(name, _)| *name).collect()
        };
        match (&matching(wanted)[..], &matching(&wanted.with_defaults())[..]) {
            ([name], _) | (_, [name]) => Self::open(name),
            ([], _) => Err(ArtifactError::NoMatch {
                wanted: wanted.to_string(),
                built_in: list(all.iter()),
                export: wanted.export_command(),
            }),
            _ => Err(ArtifactError::Ambiguous {
                wanted: wanted.to_string(),
                matching: list(all.iter().filter(|(_, manifest)| wanted.matches(manifest))),
            }),
        }
    }
}

/// The built-in artifacts with their manifests. A test checks that all manifests can be parsed.
fn all() -> Vec<(&'static str, Manifest)> {
    let parse = |b: &BuiltIn| Some((b.name, Manifest::parse(b.name, b.manifest).ok()?));
    BUILT_IN.iter().filter_map(parse).collect()
}

/// Formats one line for each artifact.
fn list<'a>(artifacts: impl Iterator<Item = &'a (&'static str, Manifest)>) -> String {
    artifacts.map(|(name, m)| format!("  {name:22} {m}")).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(model: Option<&str>, size: Option<usize>, devices: Option<usize>) -> Wanted {
        Wanted { model: model.map(Into::into), size, devices, ..Wanted::default() }
    }

    #[test]
    fn the_matching_artifact_is_chosen() {
        for (wanted, name) in [
            (wanted(None, None, None), "resnet8"),
            (wanted(Some("resnet8"), None, None), "resnet8"),
            (wanted(Some("resnet8"), None, Some(8)), "resnet8-x8"),
            (wanted(Some("resnet18"), None, Some(8)), "resnet18-bf16-x8"),
            (wanted(Some("resnet50"), Some(224), None), "resnet50-224"),
            (
                Wanted { dtype: Some(DType::Bfloat16), ..wanted(Some("resnet50"), Some(224), None) },
                "resnet50-224-bf16",
            ),
            (wanted(Some("resnet50"), Some(224), Some(8)), "resnet50-224-bf16-x8"),
            (wanted(Some("resnet50"), Some(32), Some(16)), "resnet50-bf16-x16"),
            (wanted(Some("resnet50"), Some(32), Some(32)), "resnet50-bf16-x32"),
            (wanted(None, Some(224), Some(16)), "resnet50-224-bf16-x16"),
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
    fn if_none_matches_the_error_lists_the_artifacts_and_the_export_command() {
        let wanted = Wanted { batch: Some(16), ..wanted(Some("resnet50"), Some(64), Some(4)) };
        let e = Artifact::choose(&wanted).unwrap_err();
        assert!(matches!(e, ArtifactError::NoMatch { .. }), "{e}");
        let message = e.to_string();
        for part in [
            "resnet50, 64x64, 16 images on each device, 4 device(s)",
            "\n  resnet18 ",
            "--model resnet50 --size 64 --classes 10 --batch 16 --devices 4 --dtype float32 --out \
             mine/resnet50",
        ] {
            assert!(message.contains(part), "{message}");
        }
    }

    #[test]
    fn if_several_match_the_error_lists_them() {
        let e = Artifact::choose(&wanted(Some("resnet50"), None, Some(8))).unwrap_err();
        assert!(matches!(e, ArtifactError::Ambiguous { .. }), "{e}");
        let message = e.to_string();
        assert!(
            message.contains("resnet50-bf16-x8 ") && message.contains("resnet50-224-bf16-x8 "),
            "{message}"
        );
        assert!(!message.contains("bf16-x32"), "{message}");
    }
}
