//! What a state and a loader must agree on.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The job that a state is of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Header {
    pub(crate) streams: usize,
    #[serde(rename = "read")]
    pub(crate) run: Run,
    pub(crate) datasets: Vec<DatasetHeader>,
    /// How the weights of the datasets change.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) schedule: Vec<WeightChange>,
    /// The item of the job at which the mixture was changed last, in a restore, and its windows began anew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) origin: Option<u64>,
}

/// Weights of all datasets that hold from an item of the job on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WeightChange {
    /// The number of the item in the job's sequence.
    pub(crate) from: u64,
    pub(crate) weights: Vec<u32>,
}

impl WeightChange {
    pub(crate) fn parts(&self) -> (u64, &[u32]) {
        (self.from, &self.weights)
    }
}

/// Which epochs are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Run {
    /// One, to its end.
    Epoch(u64),
    /// One, and its beginning again to fill the last step up.
    EpochRepeated(u64),
    /// This one and all after it.
    EpochsFrom(u64),
}

impl Run {
    pub(crate) fn epoch(self) -> u64 {
        match self {
            Run::Epoch(epoch) | Run::EpochRepeated(epoch) | Run::EpochsFrom(epoch) => epoch,
        }
    }
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Run::Epoch(epoch) => write!(f, "epoch {epoch}"),
            Run::EpochRepeated(epoch) => write!(f, "epoch {epoch}, repeated to fill the last step"),
            Run::EpochsFrom(epoch) => write!(f, "the epochs from {epoch} on"),
        }
    }
}

/// One of the datasets that are mixed, or the only one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DatasetHeader {
    pub(crate) seed: u64,
    /// How many shards are read.
    pub(crate) shards: usize,
    /// Stands for their names and numbers.
    #[serde(with = "super::hex")]
    pub(crate) names: u64,
    /// Stands for the sizes and versions that the index knows, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) index: Option<String>,
    pub(crate) order: Order,
    /// The size of the shuffle buffer of each stream.
    pub(crate) shuffle: usize,
    /// Its bound in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) shuffle_bytes: Option<usize>,
    pub(crate) weight: u32,
    pub(crate) repeats: u64,
    /// The stages that are not one to one, by their names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) stages: Vec<String>,
    /// What the caller calls it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    /// How many epochs later than those of the run its first one is.
    #[serde(default, skip_serializing_if = "super::is_zero")]
    pub(crate) begins: u64,
    /// What is joined to the samples.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) sides: Vec<SideHeader>,
}

/// One of the sides that are joined to the samples of a dataset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SideHeader {
    /// Stands for the names of its shards.
    #[serde(with = "super::hex")]
    pub(crate) names: u64,
    /// Stands for the sizes and versions that its index knows, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) index: Option<String>,
    /// Whether keys are looked for in all of its shards.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) keys: bool,
    /// What happens to samples that it lacks.
    pub(crate) missing: String,
    /// What comes before the names of its fields.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) prefix: Option<String>,
}

/// In which order the shards are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Order {
    Listed,
    Shuffled,
    Resampled,
}

impl Header {
    /// The same with what no option says, but earlier restores did.
    pub(crate) fn carrying(mut self, from: &Header) -> Self {
        self.origin = from.origin;
        for (here, there) in self.datasets.iter_mut().zip(&from.datasets) {
            here.begins = there.begins;
        }
        self
    }

    /// How many epochs later than those of the run the first one of a dataset is.
    pub(crate) fn begins(&self, dataset: usize) -> u64 {
        self.datasets.get(dataset).map_or(0, |dataset| dataset.begins)
    }

    /// What makes the state of this job unfit for the job `here`, in words.
    pub(crate) fn difference(&self, here: &Header) -> Option<String> {
        let told = |what: &str, there: &dyn fmt::Display, here: &dyn fmt::Display| {
            Some(format!("{what} {there} in the state, and {here} here"))
        };
        if self.streams != here.streams {
            return told("the number of streams is", &self.streams, &here.streams);
        }
        if self.run != here.run {
            return told("what is read is", &self.run, &here.run);
        }
        if self.datasets.len() != here.datasets.len() {
            return told("the number of datasets is", &self.datasets.len(), &here.datasets.len());
        }
        let several = self.datasets.len() > 1;
        let datasets = self.datasets.iter().zip(&here.datasets).enumerate();
        let different = datasets.into_iter().find_map(|(number, (there, here))| {
            let difference = there.difference(here)?;
            Some(if several { format!("dataset {number}: {difference}") } else { difference })
        });
        if different.is_none() && self.schedule != here.schedule {
            return told("the changes of weights are", &shown(&self.schedule), &shown(&here.schedule));
        }
        if different.is_none() && self.origin != here.origin {
            let since =
                |origin: Option<u64>| origin.map_or("item 0".into(), |origin| format!("item {origin}"));
            return told("the mixture holds since", &since(self.origin), &since(here.origin));
        }
        different
    }
}

/// A schedule in words.
pub(crate) fn shown(schedule: &[WeightChange]) -> String {
    let change = |change: &WeightChange| format!("{:?} from item {} on", change.weights, change.from);
    if schedule.is_empty() {
        "none".into()
    } else {
        schedule.iter().map(change).collect::<Vec<_>>().join(", ")
    }
}

impl DatasetHeader {
    pub(super) fn difference(&self, here: &DatasetHeader) -> Option<String> {
        let told = |what: &str, there: &dyn fmt::Display, here: &dyn fmt::Display| {
            Some(format!("{what} {there} in the state, and {here} here"))
        };
        if self.shards != here.shards {
            return told("the number of shards is", &self.shards, &here.shards);
        }
        if self.names != here.names {
            return Some("the list of shards is another one: names or their order differ".into());
        }
        match (&self.index, &here.index) {
            (Some(_), None) => return Some("the state was taken with an index, and here is none".into()),
            (None, Some(_)) => return Some("the state was taken without an index, and here is one".into()),
            (Some(there), Some(here)) if there != here => {
                return Some(
                    "the index is another one: sizes, counts or versions of shards have changed".into(),
                );
            }
            _ => {}
        }
        if self.seed != here.seed {
            return told("the seed is", &self.seed, &here.seed);
        }
        if self.order != here.order {
            let name = |order| format!("{order:?}").to_lowercase();
            return told("the order of shards is", &name(self.order), &name(here.order));
        }
        if self.shuffle != here.shuffle {
            return told("the shuffle buffer is", &self.shuffle, &here.shuffle);
        }
        if self.shuffle_bytes != here.shuffle_bytes {
            let shown = |bytes: Option<usize>| bytes.map_or("unbounded".into(), |bytes| bytes.to_string());
            return told("the bytes in it are", &shown(self.shuffle_bytes), &shown(here.shuffle_bytes));
        }
        if self.weight != here.weight {
            return told("the weight is", &self.weight, &here.weight);
        }
        if self.begins != here.begins {
            return told("the epochs before its first one are", &self.begins, &here.begins);
        }
        if self.repeats != here.repeats {
            return told("the passes are", &self.repeats, &here.repeats);
        }
        if self.stages != here.stages {
            let shown = |stages: &[String]| if stages.is_empty() { "none".into() } else { stages.join(", ") };
            return told(
                "the stages that change the number of items are",
                &shown(&self.stages),
                &shown(&here.stages),
            );
        }
        if self.sides.len() != here.sides.len() {
            return told("the number of sides that are joined is", &self.sides.len(), &here.sides.len());
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
            return Some("the list of shards is another one: names or their order differ".into());
        }
        if self.index != here.index {
            let known = |index: &Option<String>| if index.is_some() { "an index" } else { "no index" };
            return Some(match (&self.index, &here.index) {
                (Some(_), Some(_)) => "the index is another one".into(),
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
