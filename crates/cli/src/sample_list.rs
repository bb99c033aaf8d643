//! Lists of samples, which `verify --to-list` writes and `reshard` reads.
//!
//! A list has one line of JSON per sample, with the sample's `shard` and `key`, and with the reason why the
//! sample is in the list (`why`).

use crate::context::Context;
use crate::failure::Failure;
use crate::input::Input;
use crate::options::read_text;
use crate::output::note;
use crate::places::Places;
use crate::text;
use serde::{Deserialize, Serialize};
use shardstream::SecretUrl;
use std::collections::{HashMap, HashSet};

/// One line of a list. Unknown members of the JSON object are ignored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ListedSample {
    /// The URL of the shard, without secrets. `None` means the samples with this key in all shards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) shard: Option<String>,
    /// The key of the sample. `None` if the line is about the shard and not about a sample.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<String>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) why: String,
}

/// The samples of a list.
#[derive(Debug, Default)]
pub(crate) struct SampleList {
    /// The name of the list, for messages.
    name: String,
    samples: Vec<ListedSample>,
}

/// The listed keys, by the input shard to which they belong.
#[derive(Debug, Default)]
pub(crate) struct ListedKeys<'a> {
    /// Keys that are listed without a shard.
    of_all_shards: HashSet<&'a str>,
    /// Keys that are listed with a shard, by the number of the shard.
    of_shard: HashMap<u32, HashSet<&'a str>>,
}

impl SampleList {
    /// Reads a list from a path or URL; `-` is stdin.
    pub(crate) fn read(place: &str, context: &Context) -> Result<Self, Failure> {
        let name = if place == "-" { "stdin".to_owned() } else { SecretUrl::from(place).to_string() };
        let text = read_text(place, context)?;
        let lines = (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty());
        let parse = |(number, line): (usize, &str)| {
            serde_json::from_str(line).map_err(|error| {
                let example = r#"{"shard": "train-000000.tar", "key": "000017"}"#;
                Failure::Failed(format!(
                    "{name}: line {number} is not a sample ({error}): each line must be an object such as \
                     {example}"
                ))
            })
        };
        let samples = lines.map(parse).collect::<Result<Vec<ListedSample>, _>>()?;
        Ok(SampleList { name, samples })
    }

    /// Looks up the listed samples in an input whose keys are known. A shard is found by its URL, or by its
    /// file name if only one shard of the input has this name. Prints notes about samples that are not found.
    pub(crate) fn find(&self, input: &Input) -> ListedKeys<'_> {
        let mut places = Places::default();
        input.urls.iter().for_each(|url| places.push(url.expose_secret()));
        let numbers = |shard: &str| {
            let same: Vec<usize> = places.same(shard).collect();
            match (&*same, places.named(shard)) {
                ([], [only]) => vec![*only],
                _ => same,
            }
        };
        let mut shard_numbers: HashMap<&str, Vec<usize>> = HashMap::new();
        let (mut keys, mut without_key) = (ListedKeys::default(), 0_u64);
        for ListedSample { shard, key, .. } in &self.samples {
            match (key, shard) {
                (None, _) => without_key += 1,
                (Some(key), None) => drop(keys.of_all_shards.insert(key)),
                (Some(key), Some(shard)) => {
                    for number in shard_numbers.entry(shard).or_insert_with(|| numbers(shard)) {
                        keys.of_shard.entry(*number as u32).or_default().insert(key);
                    }
                }
            }
        }
        let found: HashSet<&str> = input
            .samples()
            .filter(|(shard, _, key)| keys.has(*shard, *key))
            .filter_map(|(_, _, key)| key)
            .collect();
        let named = self.samples.iter().filter_map(|sample| sample.key.as_deref());
        let missing = named.collect::<HashSet<_>>().difference(&found).count() as u64;
        if missing > 0 {
            note(format_args!("{} names {} that no shard has", self.name, text::counted(missing, "sample")));
        }
        if without_key > 0 {
            note(format_args!(
                "{}: {} without a key: --skip-bad leaves out samples that cannot be read",
                self.name,
                text::counted(without_key, "line"),
            ));
        }
        keys
    }
}

impl ListedKeys<'_> {
    /// Whether the sample with this key in this shard is in the list.
    pub(crate) fn has(&self, shard: u32, key: Option<&str>) -> bool {
        let is_in = |keys: &HashSet<&str>| key.is_some_and(|key| keys.contains(key));
        is_in(&self.of_all_shards) || self.of_shard.get(&shard).is_some_and(is_in)
    }
}
