//! Loads mixtures from TOML documents, and from the YAML files of webdataset and Energon.

use super::document::{Mixture, config};
use super::yaml::{Yaml, entry};
use super::{energon, webdataset};
use crate::error::{ErrorKind, Result};
use crate::secret_url::redact_text;
use std::path::Path;

/// The split of a metadataset that is read by default.
const TRAIN: &str = "train";

impl Mixture {
    /// Parses a YAML file of webdataset or of Megatron Energon. Relative paths in the file are relative to
    /// the working directory.
    ///
    /// - A specification for webdataset's `MultiShardSample` becomes one dataset of all its shards, because
    ///   webdataset shuffles these shards together. The specification has a `prefix`, `buckets`, and
    ///   `datasets` with `name`, `buckets` and `shards`.
    /// - If the file is an Energon metadataset, version 1 or 2, the split `train` is read. `blend` sets
    ///   weights; `blend_epochized` sets passes and a temperature of 1. A blend may refer to other
    ///   metadatasets. A dataset may have a `split_part` and a `split_config`; its directory `.nv-meta` lists
    ///   its shards and their sizes.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] with the line of the mistake, or with the line of an unsupported feature that
    /// would change the mixture.
    ///
    /// ```
    /// use shardstream::mixture::Mixture;
    ///
    /// let document = "prefix: gs://bucket/\ndatasets:\n- name: web\n  shards: web-{0..9}.tar\n";
    /// let shards = &Mixture::from_yaml(document)?.datasets[0].shards;
    /// assert_eq!(shards[0].expose_secret(), "gs://bucket/web-{0..9}.tar");
    /// let error = Mixture::from_yaml(&format!("{document}  choose: 5\n")).unwrap_err();
    /// assert!(error.to_string().contains("line 5: `choose`"));
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    pub fn from_yaml(text: &str) -> Result<Self> {
        Mixture::of_yaml(text, Path::new(""), None)
    }

    /// Reads a document from a file. A file whose name ends in `.yaml` or `.yml` is parsed as one of the
    /// [YAML formats](Mixture::from_yaml), any other file as TOML. Relative paths in the document are
    /// relative to the directory of the file. Exception: in webdataset's own YAML format, they are relative
    /// to the working directory, as in webdataset.
    ///
    /// # Errors
    /// The errors of [`from_toml`](Mixture::from_toml) and [`from_yaml`](Mixture::from_yaml), and
    /// [`ErrorKind::Io`] if the file cannot be read.
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        if is_yaml(path) {
            return Mixture::of_yaml(&read_text(path)?, path, None);
        }
        let mixture = Mixture::from_toml(&read_text(path)?)?;
        Ok(match path.parent() {
            Some(directory) => mixture.in_directory(directory),
            None => mixture,
        })
    }

    /// Reads a split of an Energon metadataset from a file. ([`load`](Mixture::load) reads the split
    /// `train`.)
    ///
    /// # Errors
    /// The errors of [`load`](Mixture::load), and [`ErrorKind::Config`] for a document without splits.
    pub fn load_split(path: impl AsRef<Path>, split: &str) -> Result<Self> {
        let path = path.as_ref();
        if !is_yaml(path) {
            return Err(config(format!("{} is no metadataset: it has no splits", path.display())).into());
        }
        Mixture::of_yaml(&read_text(path)?, path, Some(split))
    }

    fn of_yaml(text: &str, file: &Path, split: Option<&str>) -> Result<Self> {
        let parsed = Yaml::parse(text).and_then(|root| {
            let entries = root.map("a mixture")?;
            let has = |key| entry(entries, key).is_some();
            match (has("splits") || has("__class__"), split) {
                (true, _) => energon::read(&root, file, split.unwrap_or(TRAIN)),
                (false, Some(split)) => Err(root.error(format_args!("it has no `splits`, so no `{split}`"))),
                (false, None) if has("datasets") || has("prefix") || has("buckets") => {
                    webdataset::read(&root, &|name| std::env::var(name).ok())
                }
                (false, None) => Err(root.error(
                    "it is neither a specification of webdataset, with `datasets`, nor a metadataset of \
                     Energon, with `splits`",
                )),
            }
        });
        let mixture = parsed.map_err(|what| config(redact_text(&what)))?;
        mixture.check()?;
        Ok(mixture)
    }
}

fn is_yaml(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml")
}

fn read_text(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).map_err(|error| {
        let what = format!("the mixture {}: {error}", path.display());
        ErrorKind::Io(std::io::Error::new(error.kind(), what)).into()
    })
}
