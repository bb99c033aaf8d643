//! `Mixture`: the document of a mixture, its parser for TOML, and its checks.

use super::names::suggestion;
use crate::error::{ErrorKind, Result};
use crate::plan::check_temperature;
use crate::secret_url::{SecretUrl, redact_text, redact_urls};
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// A mixture of datasets, as a [document](super) describes it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Mixture {
    /// Number of logical streams of every dataset. If `None`, each dataset has its default number of streams.
    /// All datasets must have the same number of streams.
    #[serde(default)]
    pub streams: Option<usize>,
    /// Seed of datasets without a seed of their own. The seed of the first dataset is also the seed of the
    /// mix.
    #[serde(default)]
    pub seed: u64,
    /// Whether shards are shuffled in each epoch; a dataset may set its own value.
    #[serde(default = "default_true")]
    pub shuffle_shards: bool,
    /// Whether each stream reads the same shards in all epochs; a dataset may set its own value.
    #[serde(default)]
    pub keep_shards: bool,
    /// Number of samples in the shuffle buffer of each stream; a dataset may set its own value.
    #[serde(default)]
    pub shuffle: usize,
    /// Name of the stages for datasets that do not name their own.
    #[serde(default)]
    pub stages: Option<String>,
    /// The temperature: each dataset's weight is multiplied by `size^(1 / temperature)`, as in
    /// [`temperature_weights`](crate::plan::temperature_weights). If `None`, weights do not depend on sizes.
    #[serde(default)]
    pub temperature: Option<f64>,
    /// The datasets, in the order of the mix.
    #[serde(rename = "dataset")]
    pub datasets: Vec<MixedDataset>,
    /// The changes of weights, in order.
    #[serde(rename = "change", default)]
    pub changes: Vec<WeightsFrom>,
    /// The directory to which paths are relative. If `None`, paths are relative to the working directory.
    #[serde(skip)]
    pub(super) directory: Option<PathBuf>,
}

/// A dataset of a [`Mixture`].
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct MixedDataset {
    /// The dataset's name, which is unique in the mixture.
    pub name: String,
    /// The patterns of the dataset's shards, in the order of reading: URLs, or paths relative to the
    /// document.
    #[serde(deserialize_with = "one_or_more")]
    pub shards: Vec<SecretUrl>,
    /// The dataset's weight until the first change. With a [`temperature`](Mixture::temperature), this weight
    /// is multiplied by the weight that is computed from the dataset's size.
    #[serde(default = "default_one")]
    pub weight: u32,
    /// Number of epochs of the dataset in one epoch of the mix.
    #[serde(default = "default_one")]
    pub passes: u64,
    /// The dataset's size for a [`temperature`](Mixture::temperature), in the same unit for all datasets,
    /// such as samples or tokens. If `None`, the size is the number of samples in the dataset's index.
    #[serde(default)]
    pub size: Option<u64>,
    /// The dataset's seed. If `None`, the dataset has the seed of the mixture.
    #[serde(default)]
    pub seed: Option<u64>,
    /// Whether shards are shuffled in each epoch. If `None`, the mixture's value is used.
    #[serde(default)]
    pub shuffle_shards: Option<bool>,
    /// Whether each stream reads the same shards in all epochs. If `None`, the mixture's value is used.
    #[serde(default)]
    pub keep_shards: Option<bool>,
    /// Number of samples in the shuffle buffer of each stream. If `None`, the mixture's value is used.
    #[serde(default)]
    pub shuffle: Option<usize>,
    /// Where the dataset's index is saved. If `None`, the dataset has no index.
    #[serde(default, deserialize_with = "index")]
    pub index: Option<IndexPlace>,
    /// Name of the dataset's stages. If `None`, the dataset has the stages of the mixture.
    #[serde(default)]
    pub stages: Option<String>,
}

/// Where the index of a dataset is saved. A missing index is built.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum IndexPlace {
    /// Beside the shards, like [`AutoIndex::beside`](crate::index::AutoIndex::beside). In a document, the
    /// value is `true`.
    Beside,
    /// At this path or URL, like [`AutoIndex::at`](crate::index::AutoIndex::at).
    At(SecretUrl),
}

/// A change of the weights of a [`Mixture`] that takes effect at a given item of the job.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct WeightsFrom {
    /// The first item with the new weights, counted over all ranks from 0.
    pub from: u64,
    /// The new weights, by the names of the datasets. Datasets without an entry keep their weight.
    pub weights: BTreeMap<String, u32>,
}

impl MixedDataset {
    /// A dataset with these patterns, and the defaults of a document.
    pub(super) fn new(name: String, shards: Vec<String>) -> Self {
        MixedDataset {
            name,
            shards: shards.into_iter().map(SecretUrl::from).collect(),
            weight: 1,
            passes: 1,
            size: None,
            seed: None,
            shuffle_shards: None,
            keep_shards: None,
            shuffle: None,
            index: None,
            stages: None,
        }
    }
}

impl Mixture {
    /// A mixture of these datasets. All other values are the defaults of a document.
    pub(super) fn of(datasets: Vec<MixedDataset>) -> Self {
        Mixture {
            streams: None,
            seed: 0,
            shuffle_shards: true,
            keep_shards: false,
            shuffle: 0,
            stages: None,
            temperature: None,
            datasets,
            changes: Vec::new(),
            directory: None,
        }
    }

    /// Parses a TOML document. Relative paths in the document are relative to the working directory.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] with the mistake and its line. For an unknown key, the error suggests the most
    /// similar known key.
    ///
    /// ```
    /// use shardstream::mixture::Mixture;
    ///
    /// let document = "[[dataset]]\nname = 'web'\nshards = 'web-{0..9}.tar'\n";
    /// assert_eq!(Mixture::from_toml(document)?.datasets[0].weight, 1);
    /// let error = Mixture::from_toml(&format!("{document}wieght = 3")).unwrap_err();
    /// assert!(error.to_string().contains("did you mean `weight`?"));
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    pub fn from_toml(text: &str) -> Result<Self> {
        let table: toml::Table =
            toml::from_str(text).map_err(|error| config(located_message(text, &error)))?;
        check_keys(&table).map_err(config)?;
        let mixture: Mixture = toml::from_str(text).map_err(|error| config(located_message(text, &error)))?;
        mixture.check()?;
        Ok(mixture)
    }

    /// The same mixture, with relative paths resolved against this directory.
    #[must_use]
    pub fn in_directory(self, directory: impl Into<PathBuf>) -> Self {
        Mixture { directory: Some(directory.into()), ..self }
    }

    /// Checks that the datasets and changes are consistent.
    pub(super) fn check(&self) -> Result<()> {
        let names = || self.datasets.iter().map(|dataset| dataset.name.as_str());
        for change in &self.changes {
            if let Some(name) = change.weights.keys().find(|name| !names().any(|known| known == *name)) {
                return Err(config(format!(
                    "the weights from item {} on are of `{name}`{}, which is none of the datasets",
                    change.from,
                    suggestion(name, names())
                ))
                .into());
            }
        }
        if let Some(temperature) = self.temperature {
            check_temperature(temperature)?;
        }
        match self.datasets.iter().find(|dataset| dataset.shards.is_empty()) {
            Some(dataset) => {
                let what = format!("dataset `{}` has no shards: give it a pattern", dataset.name);
                Err(config(what).into())
            }
            None => Ok(()),
        }
    }
}

pub(super) fn config(what: String) -> ErrorKind {
    ErrorKind::Config(format!("the mixture: {what}"))
}

/// The message of a TOML error, with its line. Secrets are removed, because the message may show a URL of the
/// document.
fn located_message(text: &str, error: &toml::de::Error) -> String {
    let message = redact_text(error.message());
    let before = error.span().and_then(|span| text.get(..span.start));
    before.map_or(message.clone(), |before| format!("line {}: {message}", before.matches('\n').count() + 1))
}

const MIXTURE_KEYS: [&str; 9] = [
    "streams",
    "seed",
    "shuffle_shards",
    "keep_shards",
    "shuffle",
    "stages",
    "temperature",
    "dataset",
    "change",
];
const DATASET_KEYS: [&str; 11] = [
    "name",
    "shards",
    "weight",
    "passes",
    "size",
    "seed",
    "shuffle_shards",
    "keep_shards",
    "shuffle",
    "index",
    "stages",
];
const CHANGE_KEYS: [&str; 2] = ["from", "weights"];

/// Checks that all keys are known. serde refuses unknown keys too, but does not suggest a known key.
fn check_keys(table: &toml::Table) -> Result<(), String> {
    let check = |table: &toml::Table, known: &[&str], place: &str| {
        let Some(key) = table.keys().find(|key| !known.contains(&key.as_str())) else { return Ok(()) };
        let suggestion = suggestion(key, known.iter().copied());
        let what = format!("{place} has no key `{key}`{suggestion}: it has {}", known.join(", "));
        Err(redact_urls(&what))
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
