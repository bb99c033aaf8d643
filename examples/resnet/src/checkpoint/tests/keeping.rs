//! Tests of deleting old checkpoints.

use super::*;
use crate::report::tests::epoch;
use proptest::prelude::*;
use std::collections::BTreeSet;

/// The checkpoint of a training whose finished epochs had these validation accuracies and 2 steps each. The
/// current epoch has run for `steps` steps.
fn after(accuracies: &[f64], steps: u64) -> Checkpoint {
    let mut checkpoint = checkpoint(1);
    let epochs =
        accuracies.iter().map(|accuracy| crate::report::Epoch { steps: 2, ..epoch(*accuracy, 128, 1) });
    checkpoint.progress.epochs = epochs.collect();
    checkpoint.progress.running = RunningEpoch::default();
    checkpoint.progress.running.logged = Tally { steps, samples: 64 * steps, ..Tally::default() };
    checkpoint.data = state(accuracies.len() as u64, steps);
    checkpoint
}

fn steps(place: &Checkpoints) -> Vec<u64> {
    let mut steps: Vec<u64> = fs::read_dir(&place.url)
        .unwrap()
        .filter_map(|entry| {
            let name = entry.unwrap().file_name().into_string().unwrap();
            name.strip_prefix("checkpoint-")?.strip_suffix(".tar")?.parse().ok()
        })
        .collect();
    steps.sort_unstable();
    steps
}

#[test]
fn the_last_checkpoints_and_the_best_one_are_kept() {
    let (_dir, place) = written(&[]);
    let place = place.keep(2);
    for (accuracies, running, expected) in [
        (&[][..], 1, &[1][..]),
        (&[0.5], 0, &[1, 2]),
        (&[0.5], 1, &[2, 3]),
        (&[0.5, 0.7], 0, &[3, 4]),
        (&[0.5, 0.7], 1, &[4, 5]),
        (&[0.5, 0.7, 0.7], 0, &[4, 5, 6]),
        (&[0.5, 0.7, 0.7], 1, &[4, 6, 7]),
        (&[0.5, 0.7, 0.7, 0.8], 0, &[7, 8]),
    ] {
        let saved = place.write(after(accuracies, running)).unwrap();
        assert_eq!(saved.failed, Vec::<String>::new());
        assert_eq!(steps(&place), expected);
    }
    assert_eq!(place.newest().unwrap().unwrap(), format!("{}/checkpoint-00000008.tar", place.url));
}

#[test]
fn by_default_no_checkpoint_is_deleted() {
    let (_dir, place) = written(&[1, 2, 3, 4, 5]);
    assert_eq!(steps(&place), [1, 2, 3, 4, 5]);
}

#[test]
fn only_objects_with_names_of_checkpoints_are_deleted() {
    let (_dir, place) = written(&[1, 2]);
    let others = [
        "checkpoint-00000001.tar.gz",
        "checkpoint-1.tar",
        "my-checkpoint-00000001.tar",
        "checkpoint-00000001.rank-00000-of-00001.tar",
        "checkpoint-00000001.rank-00002-of-00002.json",
        "checkpoint-00000001.rank-00000-of-00002.json",
        "deep/checkpoint-00000001.tar",
    ];
    for other in others {
        let path = PathBuf::from(&place.url).join(other);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "").unwrap();
    }
    place.clone().keep(1).write(checkpoint(3)).unwrap();
    assert!(steps(&place).ends_with(&[3]) && !steps(&place).contains(&2));
    for other in others {
        assert!(PathBuf::from(&place.url).join(other).exists(), "{other}");
    }
}

#[test]
fn a_failed_deletion_is_logged() {
    let (_dir, place) = written(&[1, 2]);
    let old = format!("{}/checkpoint-00000001.tar", place.url);
    let mut saved = place.clone().keep(2).write(checkpoint(3)).unwrap();
    assert_eq!(steps(&place), [2, 3]);
    assert!(!saved.to_string().contains('\n'));
    // A directory with the checkpoint's name cannot be deleted as a file. The test makes the listing itself,
    // because the store does not list directories.
    let listing = Listing::new(&place.url, [&old, &saved.url].map(Into::into));
    fs::create_dir(&old).unwrap();
    saved.failed = place.delete(&listing.obsolete(3, 1, 1, None));
    let text = saved.to_string();
    assert!(
        text.contains("\ncannot delete the old ") && text.contains("checkpoint-00000001.tar: "),
        "{text}"
    );
    fs::remove_dir(&old).unwrap();
}

#[test]
fn a_training_that_resumed_from_an_older_checkpoint_keeps_those_of_later_steps() {
    let (_dir, place) = written(&[1, 2, 5, 6]);
    place.clone().keep(2).write(checkpoint(3)).unwrap();
    assert_eq!(steps(&place), [2, 3, 5, 6]);
}

/// The listing of a directory with these objects.
fn listing(objects: &BTreeSet<ObjectName>) -> Listing {
    Listing::new("run", objects.iter().map(|name| format!("run/{name}")))
}

proptest! {
    /// A training runs with changing numbers of ranks, and is killed at any point. The last `keep` complete
    /// checkpoints and the best checkpoint are always kept, and the newest complete checkpoint can be loaded
    /// at any time.
    #[test]
    fn any_history_keeps_the_last_checkpoints_and_the_best_one(
        keep in 0usize..4,
        history in prop::collection::vec((1u64..4, 1usize..4, 0usize..8, prop::option::of(0u64..30)), 1..20),
    ) {
        let (mut objects, mut step) = (BTreeSet::new(), 0);
        // The steps of all complete checkpoints that were written, and the steps that had the best accuracy
        // at the time.
        let mut complete = BTreeSet::new();
        for (more, ranks, killed, best) in history {
            step += more;
            // The ranks write in some order, and the job may be killed before all have written. Rank 0
            // deletes old checkpoints after it has written its own part.
            let order = (0..ranks).map(|at| (at + killed) % ranks);
            for rank in order.take(if killed < ranks { killed } else { ranks }) {
                objects.insert(ObjectName { step, ranks, rank });
            }
            let is_complete = (0..ranks).all(|rank| objects.contains(&ObjectName { step, ranks, rank }));
            if is_complete {
                complete.insert(step);
            }
            let best = best.filter(|best| complete.contains(best));
            let had_best = best.is_some_and(|best| objects.iter().any(|name| name.step == best));
            let before = listing(&objects);
            let obsolete = before.obsolete(step, ranks, keep, best);
            let obsolete: BTreeSet<String> = obsolete.into_iter().map(Into::into).collect();
            for name in objects.iter().filter(|name| obsolete.contains(&format!("run/{name}"))) {
                prop_assert!(name.step < step || name.ranks != ranks, "{name}");
            }
            objects.retain(|name| !obsolete.contains(&format!("run/{name}")));
            let kept: BTreeSet<u64> = objects.iter().map(|name| name.step).collect();
            let last = complete.iter().rev().take(if keep == 0 { usize::MAX } else { keep });
            for step in last {
                prop_assert!(kept.contains(step), "{step} of {kept:?}");
            }
            if let Some(best) = best.filter(|_| had_best) {
                prop_assert!(kept.contains(&best), "the best, {best}, of {kept:?}");
            }
            if keep > 0 {
                let kept_complete = kept.iter().filter(|step| complete.contains(step)).count();
                prop_assert!(kept_complete <= keep + usize::from(best.is_some()), "{kept:?}");
                // No incomplete checkpoint that is older than the newest complete checkpoint is kept.
                let newest = complete.last().copied().unwrap_or(0);
                prop_assert!(kept.iter().all(|step| *step >= newest || complete.contains(step)), "{kept:?}");
            }
            let after = listing(&objects);
            let newest = after.newest().0.first().map(|url| (*url).to_owned());
            prop_assert_eq!(newest.is_some(), !complete.is_empty());
            if let (Some(newest), Some(step)) = (newest, complete.last()) {
                prop_assert!(newest.contains(&format!("checkpoint-{step:08}.")), "{newest}");
            }
        }
    }
}
