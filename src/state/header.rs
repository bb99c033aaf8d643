//! `JobHeader`: the description of a job. A state can be restored only by a loader with the same description.

use crate::plan::WeightChange;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The job that a state belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct JobHeader {
    pub(crate) streams: usize,
    #[serde(rename = "read")]
    pub(crate) run: EpochRange,
    pub(crate) datasets: Vec<DatasetHeader>,
    /// The scheduled changes of the datasets' weights.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) schedule: Vec<WeightChange>,
    /// The item of the job at which a restore last changed the mixture. From this item on, each stream mixes
    /// the datasets in new windows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) origin: Option<u64>,
}

/// The epochs that are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum EpochRange {
    /// One epoch.
    Epoch(u64),
    /// One epoch. Samples from the beginning of the epoch are repeated to fill the last step.
    EpochRepeated(u64),
    /// This epoch and all later epochs.
    EpochsFrom(u64),
}

impl EpochRange {
    pub(crate) fn epoch(self) -> u64 {
        match self {
            EpochRange::Epoch(epoch) | EpochRange::EpochRepeated(epoch) | EpochRange::EpochsFrom(epoch) => {
                epoch
            }
        }
    }
}

impl fmt::Display for EpochRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EpochRange::Epoch(epoch) => write!(f, "epoch {epoch}"),
            EpochRange::EpochRepeated(epoch) => write!(f, "epoch {epoch}, repeated to fill the last step"),
            EpochRange::EpochsFrom(epoch) => write!(f, "the epochs from {epoch} on"),
        }
    }
}

/// One of the datasets of a mixture, or the only dataset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DatasetHeader {
    pub(crate) seed: u64,
    /// The number that the dataset had in its first mixture. It is part of the key of the dataset's random
    /// numbers.
    #[serde(default, skip_serializing_if = "super::is_zero")]
    pub(crate) number: u64,
    /// Number of shards that are read.
    pub(crate) shards: usize,
    /// Hash of the names and numbers of the shards that are read.
    #[serde(with = "super::hex")]
    pub(crate) names: u64,
    /// Hash of the counts, sizes and versions in the index, if the dataset has an index.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) index: Option<String>,
    pub(crate) order: ShardOrder,
    /// Identifies the sampler that chooses the samples: its kind, and a hash of its weights or of its list of
    /// sample numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) sampler: Option<String>,
    /// The size of the shuffle buffer of each stream.
    pub(crate) shuffle: usize,
    pub(crate) weight: u32,
    pub(crate) repeats: u64,
    /// The names of the stages that change the number of items.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) stages: Vec<String>,
    /// The dataset's name, if the caller has set a name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    /// Number of epochs between the run's first epoch and the dataset's first epoch.
    #[serde(default, skip_serializing_if = "super::is_zero")]
    pub(crate) begins: u64,
    /// The side datasets, whose samples are joined to the samples of this dataset.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) sides: Vec<SideHeader>,
}

/// A side dataset, whose samples are joined by key to the samples of a dataset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SideHeader {
    /// Hash of the names of the side dataset's shards.
    #[serde(with = "super::hex")]
    pub(crate) names: u64,
    /// Hash of the counts, sizes and versions in the side dataset's index; `None` if there is no index.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) index: Option<String>,
    /// Whether a key is looked up in all shards of the side dataset. If false, the key is looked up in one
    /// shard, which is paired with the shard of the sample.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) keys: bool,
    /// What happens to a sample if the side dataset has no sample with its key.
    pub(crate) missing: String,
    /// The prefix of the names of the side dataset's fields.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) prefix: Option<String>,
}

/// The order in which the shards are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ShardOrder {
    Listed,
    Shuffled,
    /// The shards are shuffled within each stream. A stream reads the same shards in all epochs.
    Kept,
    Resampled,
    /// Samples are chosen one by one.
    Sampled,
}

impl fmt::Display for ShardOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ShardOrder::Listed => "listed",
            ShardOrder::Shuffled => "shuffled",
            ShardOrder::Kept => "shuffled within each stream",
            ShardOrder::Resampled => "resampled",
            ShardOrder::Sampled => "that of a sampler",
        })
    }
}

impl JobHeader {
    /// Copies `origin` and each dataset's `begins` and `number` from the saved job `from`. An earlier restore
    /// may have set these values. They are not options of a loader.
    pub(crate) fn carrying(mut self, from: &JobHeader) -> Self {
        self.origin = from.origin;
        for (here, there) in self.datasets.iter_mut().zip(&from.datasets) {
            (here.begins, here.number) = (there.begins, there.number);
        }
        self
    }

    pub(crate) fn begins(&self, dataset: usize) -> u64 {
        self.datasets.get(dataset).map_or(0, |dataset| dataset.begins)
    }

    pub(crate) fn number(&self, dataset: usize) -> u64 {
        self.datasets.get(dataset).map_or(0, |dataset| dataset.number)
    }

    /// Describes the first difference between this job, whose state was saved, and `here`, the job of a
    /// loader.
    pub(crate) fn difference(&self, here: &JobHeader) -> Option<String> {
        let differs = |what: &str, there: &dyn fmt::Display, here: &dyn fmt::Display| {
            Some(format!("{what} {there} in the state, and {here} here"))
        };
        if self.streams != here.streams {
            // The default number of streams depends on the order of shards. If the order has changed too,
            // report the changed order.
            let mut datasets = self.datasets.iter().zip(&here.datasets);
            let order = datasets.find_map(|(there, here)| there.order_difference(here));
            return order.or_else(|| differs("the number of streams is", &self.streams, &here.streams));
        }
        if self.run != here.run {
            return differs("what is read is", &self.run, &here.run);
        }
        if self.datasets.len() != here.datasets.len() {
            return differs("the number of datasets is", &self.datasets.len(), &here.datasets.len());
        }
        let several = self.datasets.len() > 1;
        let datasets = self.datasets.iter().zip(&here.datasets).enumerate();
        let different = datasets.into_iter().find_map(|(number, (there, here))| {
            let difference = there.difference(here)?;
            Some(if several { format!("dataset {number}: {difference}") } else { difference })
        });
        if different.is_none() && self.schedule != here.schedule {
            return differs("the changes of weights are", &shown(&self.schedule), &shown(&here.schedule));
        }
        if different.is_none() && self.origin != here.origin {
            let since =
                |origin: Option<u64>| origin.map_or("item 0".into(), |origin| format!("item {origin}"));
            return differs("the mixture holds since", &since(self.origin), &since(here.origin));
        }
        different
    }
}

/// Describes a schedule in words.
pub(crate) fn shown(schedule: &[WeightChange]) -> String {
    let change = |change: &WeightChange| format!("{:?} from item {} on", change.weights, change.from);
    if schedule.is_empty() {
        "none".into()
    } else {
        schedule.iter().map(change).collect::<Vec<_>>().join(", ")
    }
}

impl DatasetHeader {
    fn order_difference(&self, here: &DatasetHeader) -> Option<String> {
        let (there, here) = (self.order, here.order);
        let options = "`shuffle_shards`, `keep_shards`, `resample_shards`, `sampler`";
        (there != here)
            .then(|| format!("the order of shards ({options}) is {there} in the state, and {here} here"))
    }

    pub(super) fn difference(&self, here: &DatasetHeader) -> Option<String> {
        let differs = |what: &str, there: &dyn fmt::Display, here: &dyn fmt::Display| {
            Some(format!("{what} {there} in the state, and {here} here"))
        };
        if self.shards != here.shards {
            return differs("the number of shards is", &self.shards, &here.shards);
        }
        if self.names != here.names {
            return Some("the list of shards differs: names or their order have changed".into());
        }
        match (&self.index, &here.index) {
            (Some(_), None) => return Some("the state was taken with an index, and here is none".into()),
            (None, Some(_)) => return Some("the state was taken without an index, and here is one".into()),
            (Some(there), Some(here)) if there != here => {
                return Some("the index differs: sizes, counts or versions of shards have changed".into());
            }
            _ => {}
        }
        if self.seed != here.seed {
            return differs("the seed is", &self.seed, &here.seed);
        }
        if let Some(order) = self.order_difference(here) {
            return Some(order);
        }
        if let (Some(there), Some(here)) = (&self.sampler, &here.sampler)
            && there != here
        {
            return differs("the sampler is", there, here);
        }
        if self.shuffle != here.shuffle {
            return differs("the shuffle buffer is", &self.shuffle, &here.shuffle);
        }
        if self.weight != here.weight {
            return differs("the weight is", &self.weight, &here.weight);
        }
        if self.begins != here.begins {
            return differs("the epochs before its first one are", &self.begins, &here.begins);
        }
        if self.repeats != here.repeats {
            return differs("the passes are", &self.repeats, &here.repeats);
        }
        if self.stages != here.stages {
            let shown = |stages: &[String]| if stages.is_empty() { "none".into() } else { stages.join(", ") };
            return differs(
                "the stages that change the number of items are",
                &shown(&self.stages),
                &shown(&here.stages),
            );
        }
        if self.sides.len() != here.sides.len() {
            return differs("the number of sides that are joined is", &self.sides.len(), &here.sides.len());
        }
        self.sides
            .iter()
            .zip(&here.sides)
            .enumerate()
            .find_map(|(number, (there, here))| Some(format!("side {number}: {}", there.difference(here)?)))
    }
}

impl SideHeader {
    fn difference(&self, here: &SideHeader) -> Option<String> {
        if self.names != here.names {
            return Some("the list of shards differs: names or their order have changed".into());
        }
        if self.index != here.index {
            let known = |index: &Option<String>| if index.is_some() { "an index" } else { "no index" };
            return Some(match (&self.index, &here.index) {
                (Some(_), Some(_)) => "the index differs".into(),
                (there, here) => {
                    format!("the state was taken with {}, and here is {}", known(there), known(here))
                }
            });
        }
        if self.keys != here.keys {
            let shown = |keys| if keys { "in all shards" } else { "in the paired shard" };
            let (there, here) = (shown(self.keys), shown(here.keys));
            return Some(format!("keys are looked for {there} in the state, and {here} here"));
        }
        if self.missing != here.missing {
            let (there, here) = (&self.missing, &here.missing);
            return Some(format!("samples that it lacks are \"{there}\" in the state, and \"{here}\" here"));
        }
        if self.prefix != here.prefix {
            let shown = |prefix: &Option<String>| prefix.clone().unwrap_or_default();
            let (there, here) = (shown(&self.prefix), shown(&here.prefix));
            return Some(format!("the prefix of its fields is {there:?} in the state, and {here:?} here"));
        }
        None
    }
}
