//! The plan of a series of shards, saved beside the shards. `--resume` keeps existing shards only if their
//! saved plan equals the plan of this run.

use crate::failure::Failure;
use crate::files::{MAX_DOCUMENT, exists, is_overtaken};
use crate::input_hash::InputHash;
use crate::series::Series;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use shardstream::store::{ObjectVersion, PutCondition, Store, WriteOptions};
use shardstream::{ErrorKind, SecretUrl};
use std::collections::{BTreeMap, BTreeSet};
use std::thread;
use std::time::Duration;

/// The version of the plan. Increase it whenever the program is changed so that the same options and input
/// make different shards.
const VERSION: u32 = 3;

/// The name of the input's hash in messages: a list of everything that the hash covers.
const INPUT: &str = "keys, names, sizes or versions of the input, or the cuts,";

/// The option with the pattern of the shards' names.
pub(crate) const NAMES: &str = "names";

/// Everything that determines the shards: two runs with equal plans write the same shards.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SavedPlan {
    version: u32,
    /// The command that writes the shards.
    command: String,
    /// The options that determine the content of the shards.
    options: BTreeMap<String, String>,
    samples: u64,
    pub(crate) shards: u64,
    /// [`InputHash`] of the input, in order.
    input: String,
    /// The checksums of finished shards, by number. Plans that differ only in checksums count as equal.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    checksums: BTreeMap<u64, ShardChecksum>,
    /// Numbers of the shards that this run has written or read. The checksums of other shards come from the
    /// plan that this run has read; another rank may have saved newer checksums since.
    #[serde(skip)]
    recorded: BTreeSet<u64>,
    /// Set while `--force` replaces an earlier series.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) replaced: Option<ReplacedSeries>,
}

/// The checksum of a finished shard.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ShardChecksum {
    pub(crate) crc32c: u32,
    /// The version of an object in a bucket. While the object has this version, it need not be read again.
    /// `None` for a local file: its content can change while its modification time stays the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) version: Option<String>,
}

/// The earlier series that a run with `--force` replaces.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ReplacedSeries {
    /// Number of shards of the earlier series.
    pub(crate) shards: u64,
    /// A random name of the run. If two runs replace a series at the same time, the plan has the name of the
    /// run that began last, and the other run fails.
    pub(crate) run: String,
}

impl SavedPlan {
    pub(crate) fn new(command: &str, samples: u64, shards: u64, input: InputHash) -> Self {
        let (command, options, input) = (command.to_owned(), BTreeMap::new(), input.finish());
        SavedPlan {
            version: VERSION,
            command,
            options,
            samples,
            shards,
            input,
            checksums: BTreeMap::new(),
            recorded: BTreeSet::new(),
            replaced: None,
        }
    }

    pub(crate) fn option(mut self, name: &str, value: impl ToString) -> Self {
        self.options.insert(name.to_owned(), value.to_string());
        self
    }

    /// The checksum of a shard, if it is finished.
    pub(crate) fn checksum(&self, shard: u64) -> Option<&ShardChecksum> {
        self.checksums.get(&shard)
    }

    /// Records the checksum of a shard that this run has written or read.
    pub(crate) fn finished(&mut self, shard: u64, checksum: ShardChecksum) {
        self.checksums.insert(shard, checksum);
        self.recorded.insert(shard);
    }

    /// Describes each difference from the plan `now`.
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
            texts.extend(plan.replaced.iter().map(|replaced| ("run".to_owned(), replaced.run.clone())));
            texts
        };
        let (then, now) = (texts(self), texts(now));
        let mut names: Vec<&String> = then.keys().chain(now.keys()).collect();
        names.sort_unstable();
        names.dedup();
        let shown = |text: Option<&String>| text.map_or("none", String::as_str).to_owned();
        let mut differ: Vec<&String> =
            names.into_iter().filter(|name| then.get(*name) != now.get(*name)).collect();
        // If options differ, the hash differs too; naming it would add nothing.
        if differ.len() > 1 {
            differ.retain(|name| *name != INPUT);
        }
        differ
            .into_iter()
            .map(|name| format!("{name} {} then, {} now", shown(then.get(name)), shown(now.get(name))))
            .collect()
    }
}

/// What to do with existing shards of the series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExistingShards {
    /// Fail if shards of the series exist.
    Refuse,
    /// Keep the existing shards if their saved plan equals the plan of this run. Otherwise fail.
    Resume,
    /// Remove the existing shards.
    Remove,
}

/// The result of [`check`]: the shards and the plan that exist before the series is written.
#[derive(Debug)]
pub(crate) struct ExistingSeries {
    /// Number of shards that the saved plan names.
    pub(crate) named: u64,
    /// The saved plan, if it equals the plan of this run.
    planned: Option<SavedPlan>,
    /// The version of the saved plan that this run replaces.
    replaced: Option<ObjectVersion>,
}

/// Checks that the series may be written.
///
/// # Errors
/// If existing shards, or the plan of another series, would be overwritten.
pub(crate) fn check(
    plan: &SavedPlan,
    series: &Series,
    existing: ExistingShards,
    store: &Store,
) -> Result<ExistingSeries, Failure> {
    let place = series.beside("plan");
    // Shards are listed before the plan is read. Another rank saves its plan before it writes its first
    // shard, so every listed shard has a plan.
    let shards = series.existing(store)?;
    let first = shards.keys().next().map(|number| SecretUrl::from(series.shard(*number)));
    let (mut planned, mut named, mut replaced) = (None, 0, None);
    match (existing, first) {
        (ExistingShards::Remove, _) => {
            named = named_shards(&place, series, store)?;
            let unknown = || shards.keys().filter(|number| **number >= named.max(plan.shards));
            // An unknown shard with the next number would look like a shard of the new series.
            if let Some(next) = unknown().next().filter(|number| **number == plan.shards) {
                return Err(Failure::Failed(format!(
                    "{} and {} more would follow the {} of the new series, but no plan says that they belong \
                     to the old series: remove them, or choose another name",
                    SecretUrl::from(series.shard(*next)),
                    unknown().count() - 1,
                    crate::text::counted(plan.shards, "shard"),
                )));
            }
        }
        (ExistingShards::Refuse, Some(first)) => {
            return Err(Failure::Failed(format!(
                "{} of this series already {}, such as {}: --resume continues a run with the same options, \
                 --force removes the existing shards",
                crate::text::counted(shards.len() as u64, "shard"),
                if shards.len() == 1 { "exists" } else { "exist" },
                first
            )));
        }
        (ExistingShards::Refuse, None) => {
            // The listing has no shards, so an earlier plan of the same series may be replaced. If the
            // earlier plan equals the plan of this run, the earlier plan and its checksums are kept: its
            // shards may exist, because the listing may be outdated.
            let saved = read(&place, store)?;
            let has_other_names =
                |(then, _): &&(SavedPlan, _)| then.options.get(NAMES) != plan.options.get(NAMES);
            if let Some((other, _)) = saved.as_ref().filter(has_other_names) {
                return Err(Failure::Failed(format!(
                    "{} is the plan of another series of shards ({}): choose another name, or replace the \
                     plan with --force",
                    SecretUrl::from(&place),
                    other.options.get(NAMES).map_or("unknown", String::as_str)
                )));
            }
            match saved {
                Some((then, _)) if then.differences(plan).is_empty() => planned = Some(then),
                saved => replaced = saved.map(|(_, version)| version),
            }
        }
        (ExistingShards::Resume, first) => match (read(&place, store)?, first) {
            (Some((then, _)), _) => {
                let now = SavedPlan { replaced: then.replaced.clone(), ..plan.clone() };
                let differences = then.differences(&now);
                if !differences.is_empty() {
                    return Err(Failure::Failed(format!(
                        "{} is the plan of other shards: {}; --force removes those shards and starts over",
                        SecretUrl::from(&place),
                        differences.join("; ")
                    )));
                }
                planned = Some(then);
            }
            (None, Some(first)) => {
                return Err(Failure::Failed(format!(
                    "there are shards of this series, such as {}, but their plan {} is missing: --force \
                     removes the shards",
                    first,
                    SecretUrl::from(&place)
                )));
            }
            (None, None) => {}
        },
    }
    Ok(ExistingSeries { named, planned, replaced })
}

/// Number of shards that the saved plan of the series names; 0 if there is no plan, or if the shards in the
/// plan have other names than the shards of `series`.
pub(crate) fn named_shards(place: &str, series: &Series, store: &Store) -> Result<u64, Failure> {
    let saved = match read(place, store) {
        // The file is not a plan.
        Err(Failure::Failed(_)) => None,
        saved => saved?,
    };
    let Some((saved, _)) = saved else { return Ok(0) };
    if saved.options.get(NAMES).is_none_or(|names| names != series.names()) {
        return Ok(0);
    }
    let of_replaced = saved.replaced.map_or(0, |replaced| replaced.shards);
    Ok(of_replaced.max(saved.shards))
}

/// Checks that the series may be written, and saves the plan unless an equal plan is saved already. Returns
/// the plan with the checksums of finished shards.
pub(crate) fn begin(
    plan: SavedPlan,
    series: &Series,
    existing: ExistingShards,
    store: &Store,
) -> Result<SavedPlan, Failure> {
    let ExistingSeries { planned, replaced, .. } = check(&plan, series, existing, store)?;
    if let Some(planned) = planned {
        return Ok(planned);
    }
    let place = series.beside("plan");
    if put_if(&place, &plan, PutCondition::unchanged(replaced), store)? {
        return Ok(plan);
    }
    // Another process has saved a plan meanwhile. If that process is another rank of this run, its plan
    // equals the plan of this process.
    match read(&place, store)? {
        Some((saved, _)) if saved.differences(&plan).is_empty() => Ok(saved),
        saved => Err(other_run(&place, &differences(saved.as_ref(), &plan))),
    }
}

/// Describes how the saved plan differs from `plan`.
fn differences(saved: Option<&(SavedPlan, ObjectVersion)>, plan: &SavedPlan) -> Vec<String> {
    saved.map_or_else(|| vec!["the plan was removed".into()], |(saved, _)| saved.differences(plan))
}

fn other_run(place: &str, differences: &[String]) -> Failure {
    Failure::Failed(format!(
        "another run wrote shards of this series at the same time and changed the plan {} ({}); check the \
         input and the options of all runs, and start over with --force",
        SecretUrl::from(place),
        differences.join("; ")
    ))
}

/// Maximum number of attempts to save checksums. An attempt fails if another rank saves at the same moment.
const MAX_SAVES: u32 = 20;
/// The pause before each further attempt is longer than the last pause by this duration.
const SAVE_PAUSE: Duration = Duration::from_millis(10);

/// Adds to the saved plan the checksums that this run has recorded. Keeps the checksums that other ranks have
/// saved.
///
/// # Errors
/// If another run has replaced the plan while this run wrote shards.
pub(crate) fn save_checksums(plan: &SavedPlan, series: &Series, store: &Store) -> Result<(), Failure> {
    let place = series.beside("plan");
    for attempt in 0..MAX_SAVES {
        // Each pause is longer, so that two ranks do not save at the same time again and again.
        thread::sleep(attempt * SAVE_PAUSE);
        let saved = read(&place, store)?;
        let differences = differences(saved.as_ref(), plan);
        let Some((mut saved, version)) = saved.filter(|_| differences.is_empty()) else {
            return Err(other_run(&place, &differences));
        };
        let before = saved.checksums.clone();
        let recorded = plan.checksums.iter().filter(|(shard, _)| plan.recorded.contains(*shard));
        saved.checksums.extend(recorded.map(|(shard, checksum)| (*shard, checksum.clone())));
        if saved.checksums == before {
            return Ok(());
        }
        // The loop then reads the plan again, to check that it has the checksums. In a store without
        // conditional writes, another rank may have read the plan before this write, and may overwrite it.
        put_if(&place, &saved, PutCondition::unchanged(Some(version)), store)?;
    }
    // After the last attempt some checksums may be missing: a resumed run writes these shards again.
    Ok(())
}

/// Reads the saved plan and its version, if there is one.
fn read(place: &str, store: &Store) -> Result<Option<(SavedPlan, ObjectVersion)>, Failure> {
    let body = store.open_uncached(place)?;
    let object = body.object_cell();
    let text = match body.read_at_most(MAX_DOCUMENT) {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound(_)) => return Ok(None),
        text => text?,
    };
    let version = object.get().unwrap_or_default();
    serde_json::from_slice(&text).map(|plan| Some((plan, version))).map_err(|error| {
        let place = SecretUrl::from(place);
        Failure::Failed(format!("{place} is not a plan of a series of shards ({error}): --force replaces it"))
    })
}

/// Whether the file or object at `place` is a JSON object or list, as the documents of this program are.
pub(crate) fn is_document(place: &str, store: &Store) -> Result<bool, Failure> {
    if !exists(store, place)? {
        return Ok(false);
    }
    // The first bytes are checked before the rest is read, because this may be a shard of any size.
    let first = store.open(place)?.next().transpose()?.unwrap_or_default();
    if !matches!(first.trim_ascii_start().first(), Some(b'{' | b'[')) {
        return Ok(false);
    }
    Ok(serde_json::from_slice::<IgnoredAny>(&store.open(place)?.read_at_most(MAX_DOCUMENT)?).is_ok())
}

/// Writes a JSON document. The file or object is written whole or not at all.
pub(crate) fn put(place: &str, value: &impl Serialize, store: &Store) -> Result<(), Failure> {
    store.put(place, &document(place, value)?)?;
    Ok(())
}

/// Writes a JSON document if the existing file or object meets `condition`. Returns whether the document was
/// written.
fn put_if(
    place: &str,
    value: &impl Serialize,
    condition: PutCondition,
    store: &Store,
) -> Result<bool, Failure> {
    let options = WriteOptions { condition, ..WriteOptions::default() };
    match store.put_with(place, &document(place, value)?, options) {
        Err(error) if is_overtaken(&error) => Ok(false),
        written => Ok(written.map(|_| true)?),
    }
}

/// The text of the JSON document that will be written to `place`. Errors name `place`.
pub(crate) fn document(place: &str, value: &impl Serialize) -> Result<Vec<u8>, Failure> {
    let mut text = serde_json::to_vec_pretty(value)
        .map_err(|error| Failure::Failed(format!("cannot write {}: {error}", SecretUrl::from(place))))?;
    text.push(b'\n');
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two ranks resume a run, and each records a new checksum of its shard.
    #[test]
    fn a_rank_saves_only_the_checksums_of_its_own_shards() {
        let checksum = |crc32c, version: &str| ShardChecksum { crc32c, version: Some(version.into()) };
        let directory = tempfile::tempdir().unwrap();
        let series = Series::new(&format!("{}/train-%06d.tar", directory.path().display())).unwrap();
        let store = Store::default();
        let mut plan = SavedPlan::new("create", 5, 3, InputHash::default());
        for shard in 0..3 {
            plan.finished(shard, checksum(1, "old"));
        }
        put(&series.beside("plan"), &plan, &store).unwrap();
        let read = || read(&series.beside("plan"), &store).unwrap().unwrap().0;
        let mut ranks = [read(), read()];
        ranks[0].finished(0, checksum(2, "new"));
        ranks[1].finished(1, checksum(3, "new"));
        for rank in [0, 1, 0] {
            save_checksums(&ranks[rank], &series, &store).unwrap();
        }
        let expected =
            BTreeMap::from([(0, checksum(2, "new")), (1, checksum(3, "new")), (2, checksum(1, "old"))]);
        assert_eq!(read().checksums, expected);
    }

    #[test]
    fn differences_of_plans_are_named() {
        let plan = |seed: u64, input: &str| {
            let mut hash = InputHash::default();
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
