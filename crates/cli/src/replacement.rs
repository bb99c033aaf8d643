//! Replaces an existing series of shards (`--force`). Old shards are removed only after the new series is
//! complete, and only shards that the saved plan of the old series names.
//!
//! In a local directory, the new shards are written to a partial directory beside the old shards, and are
//! moved to their final names at the end. If the run fails before this move, for example because the disk is
//! full, the old series is unchanged.
//!
//! Objects in a bucket cannot be renamed: as soon as a new shard is complete, it replaces the old shard with
//! the same number. The saved plan names the run that replaces the series. Each run reads the plan before it
//! writes a shard: if two runs replace the series at the same time, the run that began last continues, and
//! the other run fails.

use crate::failure::Failure;
use crate::saved_plan::{
    ExistingShards, ReplacedSeries, SavedPlan, check, is_document, named_shards, put, save_checksums,
};
use crate::series::Series;
use shardstream::store::{ObjectUrl, ObjectVersion, Store, VersionComparison};
use shardstream::{Index, SecretUrl};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::hash::{BuildHasher, RandomState};

/// Checks that the series may be replaced, and returns the plan with the name of this run. Saves the plan,
/// unless the new shards are staged in a partial directory: then nothing changes before [`publish`].
pub(crate) fn begin(
    mut plan: SavedPlan,
    series: &Series,
    is_staged: bool,
    store: &Store,
) -> Result<SavedPlan, Failure> {
    let shards = check(&plan, series, ExistingShards::Remove, store)?.named;
    let run = format!("{:016x}", RandomState::new().hash_one(std::process::id()));
    plan.replaced = Some(ReplacedSeries { shards, run });
    if !is_staged {
        replace(&plan, series, store)?;
    }
    Ok(plan)
}

/// Saves a plan in place of the old plan, and removes the index and the list of classes of the old shards.
fn replace(plan: &SavedPlan, series: &Series, store: &Store) -> Result<(), Failure> {
    put(&series.beside("plan"), plan, store)?;
    let index = series.beside("index");
    if Index::load(store, &index).is_ok_and(|index| index.iter().all(|shard| series.holds(shard.url()))) {
        store.delete(&index)?;
    }
    let classes = series.beside("classes");
    if is_document(&classes, store)? {
        store.delete(&classes)?;
    }
    Ok(())
}

/// Moves the complete new shards from their partial directory to their final names. If the process is killed
/// meanwhile, `--resume` finds out from the saved plan which shards are new.
pub(crate) fn publish(
    mut plan: SavedPlan,
    staged: &Series,
    series: &Series,
    store: &Store,
) -> Result<SavedPlan, Failure> {
    let Some(directory) = series.local_directory()? else { return Ok(plan) };
    // The lock makes runs publish one after the other: a second run replaces the whole series of the first.
    let opened = File::open(&directory);
    if let Ok(opened) = &opened {
        // If the file system has no locks, `finish` still notices that another run has replaced the plan.
        let _ = opened.lock();
    }
    if let Some(replaced) = &mut plan.replaced {
        replaced.shards = named_shards(&series.beside("plan"), series, store)?;
    }
    replace(&plan, series, store)?;
    for number in 0..plan.shards {
        let path = |series: &Series| ObjectUrl::parse(&series.shard(number)).local_path();
        if let (Some(from), Some(to)) = (path(staged)?, path(series)?) {
            let failed = |error| Failure::io(format_args!("cannot write {}", to.display()), &error);
            fs::rename(from, &to).map_err(failed)?;
        }
    }
    if let Ok(opened) = &opened {
        let _ = opened.sync_all();
    }
    // The lock is held until `finish` has saved the plan.
    finish(plan, &BTreeMap::new(), series, store)
}

/// Ends the replacement of a series. Checks that the shards still have the versions that this run has
/// `written`, and removes the old shards whose numbers are beyond the new series.
///
/// # Errors
/// If another run has replaced the plan or a shard.
pub(crate) fn finish(
    mut plan: SavedPlan,
    written: &BTreeMap<u64, ObjectVersion>,
    series: &Series,
    store: &Store,
) -> Result<SavedPlan, Failure> {
    save_checksums(&plan, series, store)?;
    let existing = series.existing(store)?;
    for (number, version) in written {
        let url = series.shard(*number);
        let now = match existing.get(number) {
            Some(now) => now.clone(),
            // The listing of a bucket may not have the newest objects yet.
            None => store.stat(&url)?,
        };
        if version.compare(&now) == VersionComparison::Different {
            return Err(Failure::Failed(format!(
                "another run wrote shards of this series at the same time: {} is not the one that this run \
                 wrote; start over with --force",
                SecretUrl::from(url)
            )));
        }
    }
    let named = plan.replaced.as_ref().map_or(0, |replaced| replaced.shards);
    let old = existing.keys().filter(|number| (plan.shards..named).contains(*number));
    old.map(|number| series.shard(*number)).try_for_each(|url| store.delete(&url))?;
    plan.replaced = None;
    put(&series.beside("plan"), &plan, store)?;
    Ok(plan)
}
