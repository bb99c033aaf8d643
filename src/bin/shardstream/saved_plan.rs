//! The plan of a series of shards, kept beside it: a run that was ended before it was done resumes only what
//! the same plan began.

use crate::failure::Failure;
use crate::files::exists;
use crate::series::Series;
use md5::{Digest, Md5};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use shardstream::store::Store;
use shardstream::{ErrorKind, Index, SecretUrl};
use std::collections::BTreeMap;
use std::io::Write;

/// Changes when the same options and input would make other shards.
const VERSION: u32 = 3;

/// What the hash of a plan is of.
const INPUT: &str = "keys, names, sizes or versions of the input, or the cuts,";

/// The option with the pattern of the names of the shards.
pub(crate) const NAMES: &str = "names";

/// What two runs must agree on to write the same shards.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SavedPlan {
    version: u32,
    /// Which command writes them.
    command: String,
    /// The options that say what is in the shards.
    options: BTreeMap<String, String>,
    samples: u64,
    shards: u64,
    /// MD5 of what is read, in its order.
    input: String,
}

impl SavedPlan {
    pub(crate) fn new(command: &str, samples: u64, shards: u64, input: Hash) -> Self {
        let (command, options, input) = (command.to_owned(), BTreeMap::new(), input.finish());
        SavedPlan { version: VERSION, command, options, samples, shards, input }
    }

    /// Notes an option.
    pub(crate) fn option(mut self, name: &str, value: impl ToString) -> Self {
        self.options.insert(name.to_owned(), value.to_string());
        self
    }

    /// What is not the same in the plan of now.
    fn differences(&self, now: &Self) -> Vec<String> {
        let texts = |plan: &Self| {
            let mut texts = plan.options.clone();
            let more = [
                ("version", plan.version.to_string()),
                ("command", plan.command.clone()),
                ("samples", plan.samples.to_string()),
                ("shards", plan.shards.to_string()),
                (INPUT, plan.input.chars().take(8).collect()),
            ];
            texts.extend(more.map(|(name, text)| (name.to_owned(), text)));
            texts
        };
        let (then, now) = (texts(self), texts(now));
        let mut names: Vec<&String> = then.keys().chain(now.keys()).collect();
        names.sort_unstable();
        names.dedup();
        let shown = |text: Option<&String>| text.map_or("none", String::as_str).to_owned();
        let mut differ: Vec<&String> =
            names.into_iter().filter(|name| then.get(*name) != now.get(*name)).collect();
        // Options say more than a hash that follows from them.
        if differ.len() > 1 {
            differ.retain(|name| *name != INPUT);
        }
        differ
            .into_iter()
            .map(|name| format!("{name} {} then, {} now", shown(then.get(name)), shown(now.get(name))))
            .collect()
    }
}

/// What may be done with what is there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Existing {
    /// Nothing: there must be no shard of the series.
    Refuse,
    /// Shards of the same plan are kept.
    Resume,
    /// Shards of the series are removed.
    Remove,
}

/// What there is of a series that may be written.
#[derive(Debug)]
pub(crate) struct Found {
    shards: Vec<String>,
    /// Whether the same plan is there.
    is_planned: bool,
}

/// Refuses to overwrite what should stay.
pub(crate) fn check(
    plan: &SavedPlan,
    series: &Series,
    existing: Existing,
    store: &Store,
) -> Result<Found, Failure> {
    let place = series.beside("plan");
    // In this order: another rank writes its plan before its first shard.
    let shards = series.existing(store)?;
    let mut is_planned = false;
    match (existing, shards.first()) {
        (Existing::Remove, _) => {}
        (Existing::Refuse, Some(first)) => {
            return Err(Failure::Failed(format!(
                "{} of this series {} there already, such as {}: --resume resumes a run of the same \
                 options, --force removes them",
                crate::text::counted(shards.len() as u64, "shard"),
                if shards.len() == 1 { "is" } else { "are" },
                SecretUrl::from(first)
            )));
        }
        (Existing::Refuse, None) => {
            // Without shards, the plan of an earlier run of the same series is of no use.
            let other =
                read(&place, store)?.filter(|then| then.options.get(NAMES) != plan.options.get(NAMES));
            if let Some(other) = other {
                return Err(Failure::Failed(format!(
                    "{} is the plan of another series of shards ({}): choose another name, or --force \
                     replaces it",
                    SecretUrl::from(&place),
                    other.options.get(NAMES).map_or("unknown", String::as_str)
                )));
            }
        }
        (Existing::Resume, first) => match (read(&place, store)?, first) {
            (Some(then), _) => {
                let differences = then.differences(plan);
                if !differences.is_empty() {
                    return Err(Failure::Failed(format!(
                        "{} is the plan of other shards: {}; --force removes those shards and starts over",
                        SecretUrl::from(&place),
                        differences.join("; ")
                    )));
                }
                is_planned = true;
            }
            (None, Some(first)) => {
                return Err(Failure::Failed(format!(
                    "there are shards of this series, such as {}, but no plan ({}) of them: --force removes \
                     them",
                    SecretUrl::from(first),
                    SecretUrl::from(&place)
                )));
            }
            (None, None) => {}
        },
    }
    Ok(Found { shards, is_planned })
}

/// Refuses to overwrite what should stay, removes what may be removed, and writes the plan where there is
/// none.
pub(crate) fn begin(
    plan: &SavedPlan,
    series: &Series,
    existing: Existing,
    store: &Store,
) -> Result<(), Failure> {
    let found = check(plan, series, existing, store)?;
    let place = series.beside("plan");
    if existing == Existing::Remove {
        // Documents of the old shards must not be taken for those of the new ones.
        let index = series.beside("index");
        if Index::load(store, &index).is_ok_and(|index| index.iter().all(|shard| series.holds(shard.url()))) {
            store.delete(&index)?;
        }
        let classes = series.beside("classes");
        if is_document(&classes, store)? {
            store.delete(&classes)?;
        }
        // The plan last, so that a removal that is broken off can be begun again.
        found.shards.iter().chain([&place]).try_for_each(|url| store.delete(url))?;
    }
    if found.is_planned { Ok(()) } else { put(&place, plan, store) }
}

/// Sees that no other run has put its plan in place of this one, while both wrote shards.
pub(crate) fn confirm(plan: &SavedPlan, series: &Series, store: &Store) -> Result<(), Failure> {
    let place = series.beside("plan");
    let differences =
        read(&place, store)?.map_or_else(|| vec!["it is gone".into()], |then| then.differences(plan));
    match differences.is_empty() {
        true => Ok(()),
        false => Err(Failure::Failed(format!(
            "another run wrote shards of this series at the same time: {} is another plan now ({}); check \
             the input and the options of all runs, and start over with --force",
            SecretUrl::from(&place),
            differences.join("; ")
        ))),
    }
}

/// The plan that is there, if one is.
fn read(place: &str, store: &Store) -> Result<Option<SavedPlan>, Failure> {
    let text = match store.open(place)?.read_all() {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound(_)) => return Ok(None),
        text => text?,
    };
    serde_json::from_slice(&text).map(Some).map_err(|error| {
        let place = SecretUrl::from(place);
        Failure::Failed(format!("{place} is no plan of a series of shards ({error}): --force replaces it"))
    })
}

/// Whether there is a JSON document at a place, as this program writes them.
pub(crate) fn is_document(place: &str, store: &Store) -> Result<bool, Failure> {
    if !exists(store, place)? {
        return Ok(false);
    }
    // A shard in its place may be of any size.
    let first = store.open(place)?.next().transpose()?.unwrap_or_default();
    if !matches!(first.trim_ascii_start().first(), Some(b'{' | b'[')) {
        return Ok(false);
    }
    Ok(serde_json::from_slice::<IgnoredAny>(&store.open(place)?.read_all()?).is_ok())
}

/// Writes a document, whole or not at all.
pub(crate) fn put(place: &str, document: &impl Serialize, store: &Store) -> Result<(), Failure> {
    let failed = |error: &dyn std::fmt::Display| {
        Failure::Failed(format!("cannot write {}: {error}", SecretUrl::from(place)))
    };
    let mut text = serde_json::to_vec_pretty(document).map_err(|error| failed(&error))?;
    text.push(b'\n');
    let mut object = store.create(place)?;
    object.write_all(&text).map_err(|error| failed(&error))?;
    object.finish()?;
    Ok(())
}

/// MD5 of texts and numbers, each with its length. It distinguishes inputs; it is no signature.
#[derive(Clone, Default)]
pub(crate) struct Hash(Md5);

impl std::fmt::Debug for Hash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hash")
    }
}

impl Hash {
    pub(crate) fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.0.update(text);
    }

    pub(crate) fn number(&mut self, number: u64) {
        self.0.update(number.to_le_bytes());
    }

    /// The first 8 bytes, as a number.
    pub(crate) fn finish_number(self) -> u64 {
        self.0.finalize().iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte))
    }

    fn finish(self) -> String {
        self.0.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_is_named() {
        let plan = |seed: u64, input: &str| {
            let mut hash = Hash::default();
            hash.text(input);
            SavedPlan::new("create", 5, 2, hash).option("shuffle", seed)
        };
        assert_eq!(plan(1, "a").differences(&plan(1, "a")), [""; 0]);
        assert_eq!(plan(1, "a").differences(&plan(2, "a")), ["shuffle 1 then, 2 now"]);
        let differences = plan(1, "a").differences(&plan(1, "b"));
        assert!(differences.len() == 1 && differences[0].starts_with("keys, names, sizes or versions"));
        let other = plan(1, "a").option("rename", "a=b");
        assert_eq!(other.differences(&plan(1, "a")), ["rename a=b then, none now"]);
    }
}
