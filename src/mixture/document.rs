//! The document of a mixture, and what can be wrong in it.

use super::names::suggestion;
use crate::error::{ErrorKind, Result};
use crate::secret_url::{SecretUrl, redact_text};
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A mixture of datasets, as a [document](super) says it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Mixture {
    /// How many logical streams every dataset has. Where none is given, each dataset has its default, which
    /// must be the same.
    #[serde(default)]
    pub streams: Option<usize>,
    /// The seed of all datasets that have none of their own. The first dataset's is that of the mix.
    #[serde(default)]
    pub seed: u64,
    /// Whether shards come in an order of their own in each epoch, for datasets that do not say.
    #[serde(default = "default_true")]
    pub shuffle_shards: bool,
    /// The size of the shuffle buffer of each stream, for datasets that do not say.
    #[serde(default)]
    pub shuffle: usize,
    /// The name of the stages of datasets that name none.
    #[serde(default)]
    pub stages: Option<String>,
    /// What is mixed, in the order of the mix.
    #[serde(rename = "dataset")]
    pub datasets: Vec<MixedDataset>,
    /// How the weights change, in the order in which they do.
    #[serde(rename = "change", default)]
    pub changes: Vec<WeightsFrom>,
    /// Where what is relative begins.
    #[serde(skip)]
    pub(super) directory: Option<PathBuf>,
}

/// A dataset of a [`Mixture`].
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct MixedDataset {
    /// Its name, which no other one has.
    pub name: String,
    /// The patterns of its shards, one after the other: paths beside the document, or URLs.
    #[serde(deserialize_with = "one_or_more")]
    pub shards: Vec<SecretUrl>,
    /// Its weight at first.
    #[serde(default = "default_one")]
    pub weight: u32,
    /// How many of its epochs are one of the mix.
    #[serde(default = "default_one")]
    pub passes: u64,
    /// Its seed, if it has one of its own.
    #[serde(default)]
    pub seed: Option<u64>,
    /// Whether its shards come in an order of their own in each epoch, if it says so itself.
    #[serde(default)]
    pub shuffle_shards: Option<bool>,
    /// The size of its shuffle buffers, if it says so itself.
    #[serde(default)]
    pub shuffle: Option<usize>,
    /// Their bound in bytes.
    #[serde(default)]
    pub shuffle_bytes: Option<usize>,
    /// Where its index is kept, if it has one.
    #[serde(default, deserialize_with = "index")]
    pub index: Option<IndexPlace>,
    /// The name of its stages, if it has others than the rest.
    #[serde(default)]
    pub stages: Option<String>,
}

/// Where the index of a dataset is kept, which is built where there is none.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum IndexPlace {
    /// Beside the shards, as [`AutoIndex::beside`](crate::index::AutoIndex::beside): `true` in a document.
    Beside,
    /// In this document, as [`AutoIndex::at`](crate::index::AutoIndex::at).
    At(SecretUrl),
}

/// Weights of a [`Mixture`] from an item of the job on.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct WeightsFrom {
    /// The number of the item among those of all ranks, from 0.
    pub from: u64,
    /// By the names of datasets; those that are not in it keep theirs.
    pub weights: BTreeMap<String, u32>,
}

impl Mixture {
    /// Reads a document. What is relative in it begins in the working directory.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] with what is wrong and where; a key that is not known is one, with the nearest
    /// that is.
    pub fn from_toml(text: &str) -> Result<Self> {
        let config = |what: String| ErrorKind::Config(format!("the mixture: {what}"));
        let table: toml::Table = toml::from_str(text).map_err(|error| config(located_message(text, &error)))?;
        check_keys(&table).map_err(config)?;
        let mixture: Mixture = toml::from_str(text).map_err(|error| config(located_message(text, &error)))?;
        mixture.check().map_err(config)?;
        Ok(mixture)
    }

    /// Reads the document in this file. What is relative in it is beside the file.
    ///
    /// # Errors
    /// As [`from_toml`](Mixture::from_toml), and [`ErrorKind::Io`] where the file cannot be read.
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let text = std::fs::read_to_string(path).map_err(|error| {
            let what = format!("the mixture {}: {error}", path.display());
            ErrorKind::Io(std::io::Error::new(error.kind(), what))
        })?;
        let directory = path.parent().map(Path::to_owned);
        Ok(Mixture { directory, ..Mixture::from_toml(&text)? })
    }

    /// The same, with what is relative in this directory.
    #[must_use]
    pub fn in_directory(self, directory: impl Into<PathBuf>) -> Self {
        Mixture { directory: Some(directory.into()), ..self }
    }

    /// Whether the datasets and changes fit together.
    fn check(&self) -> Result<(), String> {
        let names = || self.datasets.iter().map(|dataset| dataset.name.as_str());
        for change in &self.changes {
            if let Some(name) = change.weights.keys().find(|name| !names().any(|known| known == *name)) {
                return Err(format!(
                    "the weights from item {} on are of `{name}`{}, which is none of the datasets",
                    change.from,
                    suggestion(name, names())
                ));
            }
        }
        match self.datasets.iter().find(|dataset| dataset.shards.is_empty()) {
            Some(dataset) => Err(format!("dataset `{}` has no shards: give it a pattern", dataset.name)),
            None => Ok(()),
        }
    }
}

/// An error with its line. What it shows of the document may be a URL with secrets in it.
fn located_message(text: &str, error: &toml::de::Error) -> String {
    let message = redact_text(error.message());
    let before = error.span().and_then(|span| text.get(..span.start));
    before.map_or(message.clone(), |before| format!("line {}: {message}", before.matches('\n').count() + 1))
}

const MIXTURE_KEYS: [&str; 7] = ["streams", "seed", "shuffle_shards", "shuffle", "stages", "dataset", "change"];
const DATASET_KEYS: [&str; 10] = [
    "name",
    "shards",
    "weight",
    "passes",
    "seed",
    "shuffle_shards",
    "shuffle",
    "shuffle_bytes",
    "index",
    "stages",
];
const CHANGE_KEYS: [&str; 2] = ["from", "weights"];

/// Looks for keys that are not known: serde would name them, and not what was meant.
fn check_keys(table: &toml::Table) -> Result<(), String> {
    let check = |table: &toml::Table, known: &[&str], place: &str| {
        let Some(key) = table.keys().find(|key| !known.contains(&key.as_str())) else { return Ok(()) };
        let suggestion = suggestion(key, known.iter().copied());
        let what = format!("{place} has no key `{key}`{suggestion}: it has {}", known.join(", "));
        Err(redact_text(&what))
    };
    check(table, &MIXTURE_KEYS, "a mixture")?;
    let tables = |key| table.get(key).and_then(toml::Value::as_array).into_iter().flatten();
    for (number, dataset) in tables("dataset").filter_map(toml::Value::as_table).enumerate() {
        let name = dataset.get("name").and_then(toml::Value::as_str);
        let name = name.map_or(number.to_string(), |name| format!("`{name}`"));
        check(dataset, &DATASET_KEYS, &format!("dataset {name}"))?;
    }
    tables("change")
        .filter_map(toml::Value::as_table)
        .try_for_each(|change| check(change, &CHANGE_KEYS, "a change"))
}

fn default_true() -> bool {
    true
}

fn default_one<N: From<u8>>() -> N {
    N::from(1)
}

fn one_or_more<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<SecretUrl>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "a pattern, or a list of patterns")]
    enum Patterns {
        One(String),
        More(Vec<String>),
    }
    let patterns = match Patterns::deserialize(deserializer)? {
        Patterns::One(pattern) => vec![pattern],
        Patterns::More(patterns) => patterns,
    };
    Ok(patterns.into_iter().map(SecretUrl::from).collect())
}

fn index<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<IndexPlace>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "`true` for an index beside the shards, or where it is kept")]
    enum IndexOption {
        Beside(bool),
        At(String),
    }
    Ok(match IndexOption::deserialize(deserializer)? {
        IndexOption::Beside(beside) => beside.then_some(IndexPlace::Beside),
        IndexOption::At(place) => Some(IndexPlace::At(place.into())),
    })
}
