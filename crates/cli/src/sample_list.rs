//! Lists of samples: `verify --to-list` writes one, and `reshard` takes it.
//!
//! A list has a line of JSON for each sample, with its `shard` and `key`, and `why` it is in the list.

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

/// One line of a list. Other keys of a line are ignored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ListedSample {
    /// The URL of the shard, without secrets. Without one, the key is meant in every shard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) shard: Option<String>,
    /// The key of the sample. Without one, the line is about the shard, and names no sample.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<String>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) why: String,
}

/// The samples of a list.
#[derive(Debug, Default)]
pub(crate) struct SampleList {
    /// The file, for messages.
    name: String,
    samples: Vec<ListedSample>,
}

/// The samples of a list among those of an input.
#[derive(Debug, Default)]
pub(crate) struct ListedKeys<'a> {
    everywhere: HashSet<&'a str>,
    /// By the number of the shard.
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
                    "{name}: line {number} is no sample ({error}): each line is an object such as {example}"
                ))
            })
        };
        let samples = lines.map(parse).collect::<Result<Vec<ListedSample>, _>>()?;
        Ok(SampleList { name, samples })
    }

    /// Finds the samples in an input whose keys are known. Shards are found by their places, or by their
    /// names if only one shard of the input has the name. Notes on stderr say what was not found.
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
        let mut found_shards: HashMap<&str, Vec<usize>> = HashMap::new();
        let (mut keys, mut nameless) = (ListedKeys::default(), 0_u64);
        for ListedSample { shard, key, .. } in &self.samples {
            match (key, shard) {
                (None, _) => nameless += 1,
                (Some(key), None) => drop(keys.everywhere.insert(key)),
                (Some(key), Some(shard)) => {
                    for number in found_shards.entry(shard).or_insert_with(|| numbers(shard)) {
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
        if nameless > 0 {
            note(format_args!(
                "{}: {} without a key: --skip-bad leaves out what cannot be read of a shard",
                self.name,
                text::counted(nameless, "line"),
            ));
        }
        keys
    }
}

impl ListedKeys<'_> {
    /// Whether the sample of this shard and key is in the list.
    pub(crate) fn has(&self, shard: u32, key: Option<&str>) -> bool {
        let is_in = |keys: &HashSet<&str>| key.is_some_and(|key| keys.contains(key));
        is_in(&self.everywhere) || self.of_shard.get(&shard).is_some_and(is_in)
    }
}
