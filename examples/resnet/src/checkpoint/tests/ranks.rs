//! Tests of checkpoints that several processes write together.

use super::*;

fn place(url: &str, rank: usize, ranks: usize) -> Checkpoints {
    checkpoints(url, 1).topology(Topology::new(rank, ranks).unwrap())
}

/// Writes the part of one rank.
fn write(url: &str, rank: usize, ranks: usize, step: u64) -> SavedCheckpoint {
    let mut checkpoint = checkpoint(step);
    checkpoint.data = state_of(rank, ranks, 0, step);
    if rank > 0 {
        checkpoint.tensors.clear();
    }
    place(url, rank, ranks).write(checkpoint).unwrap()
}

/// A directory with the checkpoints of `ranks` ranks at these steps.
fn written_by(ranks: usize, steps: &[u64]) -> (tempfile::TempDir, String) {
    let dir = tempfile::tempdir().unwrap();
    let url = dir.path().join("run").to_str().unwrap().to_owned();
    for step in steps {
        // Rank 0 writes last.
        (0..ranks).rev().for_each(|rank| drop(write(&url, rank, ranks, *step)));
    }
    (dir, url)
}

fn names(url: &str) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(url).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn any_number_of_ranks_resumes_with_the_merged_state() {
    for ranks in [2, 4, 8] {
        let (_dir, url) = written_by(ranks, &[5]);
        for (rank, now) in [(0, 1), (1, 2), (0, ranks), (ranks - 1, ranks), (15, 16)] {
            let (begun, log) = begin(&place(&url, rank, now), true);
            let begun = begun.unwrap().unwrap();
            assert!(same(&begun, &checkpoint(5)), "{ranks} -> {now}: {log}");
            assert!(log.contains("320 samples of the epoch are done"), "{log}");
        }
    }
}

#[test]
fn names_have_the_step_the_rank_and_the_number_of_ranks() {
    let (_dir, url) = written_by(2, &[5]);
    let expected =
        ["checkpoint-00000005.rank-00000-of-00002.tar", "checkpoint-00000005.rank-00001-of-00002.json"];
    assert_eq!(names(&url), expected);
    let saved = write(&url, 2, 4, 6).to_string();
    assert!(saved.ends_with("run/checkpoint-00000006.rank-00002-of-00004.json"), "{saved}");
}

#[test]
fn incomplete_checkpoints_are_skipped_and_logged() {
    let (_dir, url) = written_by(4, &[2, 5, 7]);
    fs::remove_file(format!("{url}/checkpoint-00000007.rank-00000-of-00004.tar")).unwrap();
    fs::remove_file(format!("{url}/checkpoint-00000005.rank-00002-of-00004.json")).unwrap();
    let (begun, log) = begin(&place(&url, 0, 1), true);
    assert!(same(&begun.unwrap().unwrap(), &checkpoint(2)));
    let log_lines: Vec<_> = log.lines().collect();
    for (line, what) in log_lines.iter().zip([
        "the checkpoint at step 7 is incomplete: the object of rank 0 of 4, \
         checkpoint-00000007.rank-00000-of-00004.tar, is missing",
        "the checkpoint at step 5 is incomplete: the object of rank 2 of 4, \
         checkpoint-00000005.rank-00002-of-00004.json, is missing",
        "checkpoint-00000002.rank-00000-of-00004.tar: epoch 1, step 2;",
    ]) {
        assert!(line.contains(what), "{log}");
    }
    assert_eq!(log_lines.len(), 3);
    // Loading an incomplete checkpoint by its URL is an error.
    let first = format!("{url}/checkpoint-00000005.rank-00000-of-00004.tar");
    let e = place(&url, 0, 4).load(&first).unwrap_err();
    let CheckpointError::Incomplete { missing, .. } = &e else { panic!("{e}") };
    assert!(missing.expose_secret().ends_with("rank-00002-of-00004.json"), "{e}");
    // If there are only incomplete checkpoints, the training starts from the beginning.
    let (_dir, url) = written_by(2, &[3]);
    fs::remove_file(format!("{url}/checkpoint-00000003.rank-00001-of-00002.json")).unwrap();
    let (begun, log) = begin(&place(&url, 1, 2), true);
    assert!(
        begun.unwrap().is_none() && log.contains("skipped a checkpoint") && log.contains("no checkpoint in"),
        "{log}"
    );
}

#[test]
fn the_error_for_a_damaged_part_names_it() {
    let (_dir, url) = written_by(2, &[3]);
    let other = written_by(2, &[4]);
    let part = format!("{url}/checkpoint-00000003.rank-00001-of-00002.json");
    let whole = fs::read(&part).unwrap();
    let later = fs::read(format!("{}/checkpoint-00000004.rank-00001-of-00002.json", other.1)).unwrap();
    let text = String::from_utf8(whole.clone()).unwrap();
    let changed = text.replacen("\"taken\":", "\"taken\": ", 1).replacen("192", "193", 1);
    for bytes in [b"".to_vec(), b"{}".to_vec(), whole[..whole.len() / 2].to_vec(), later, changed.into()] {
        fs::write(&part, bytes).unwrap();
        let e = refused(&place(&url, 0, 1), true);
        assert!(matches!(e, CheckpointError::Damaged { .. }), "{e}");
        assert!(
            e.to_string().contains("rank-00001-of-00002.json") && e.to_string().contains("remove it"),
            "{e}"
        );
    }
    fs::write(&part, text.replacen("\"version\":3", "\"version\":4", 1)).unwrap();
    assert!(matches!(refused(&place(&url, 0, 1), true), CheckpointError::Version { version: 4, .. }));
    fs::write(&part, &whole).unwrap();
    assert!(begin(&place(&url, 0, 1), true).0.is_ok());
}

#[test]
fn a_flipped_bit_of_a_part_is_an_error_or_has_no_effect() {
    let (_dir, url) = written_by(2, &[3]);
    let part = format!("{url}/checkpoint-00000003.rank-00001-of-00002.json");
    let place = place(&url, 0, 1);
    let (newest, whole) = (place.newest().unwrap().unwrap(), fs::read(&part).unwrap());
    for at in (0..whole.len()).step_by(3) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x04;
        fs::write(&part, bytes).unwrap();
        if let Ok((read, _)) = place.load(&newest) {
            assert!(same(&read, &checkpoint(3)), "byte {at}");
        }
    }
}

#[test]
fn parts_of_different_steps_or_jobs_are_refused() {
    let (_dir, url) = written_by(2, &[3]);
    // A valid part that an earlier attempt could have left.
    let part = |data| RankPart { step: 3, rank: 1, ranks: 2, data }.encode().unwrap();
    for (data, what) in [
        (state_of(1, 2, 0, 4), "take them at the same step"),
        (state_of(1, 2, 1, 3), "not of the same job"),
        (state_of(0, 2, 0, 3), "a rank is missing"),
        (state_of(3, 4, 0, 3), "a rank is missing"),
    ] {
        fs::write(format!("{url}/checkpoint-00000003.rank-00001-of-00002.json"), part(data)).unwrap();
        let e = refused(&place(&url, 0, 2), true);
        assert!(
            matches!(&e, CheckpointError::Damaged { reason, .. } if reason.contains(what)),
            "{what}: {e}"
        );
    }
    // A checkpoint of several ranks with the name of a single process.
    let first = format!("{url}/checkpoint-00000003.rank-00000-of-00002.tar");
    fs::rename(first, format!("{url}/checkpoint-00000003.tar")).unwrap();
    let e = refused(&place(&url, 0, 2), true);
    assert!(e.to_string().contains("it is of 2 ranks, and its name is of one process"), "{e}");
}

#[test]
fn the_state_of_one_rank_without_the_others_is_refused() {
    let (_dir, place) = written(&[]);
    let mut half = checkpoint(3);
    half.data = state_of(0, 2, 0, 3);
    place.write(half).unwrap();
    let e = refused(&place, true);
    assert!(e.to_string().contains("a rank is missing"), "{e}");
}

#[test]
fn only_the_first_rank_saves_the_network() {
    let dir = tempfile::tempdir().unwrap();
    let url = dir.path().join("run").to_str().unwrap().to_owned();
    let save = |rank, tensors: Option<Vec<Vec<f32>>>| {
        let mut saver = Saver::new(place(&url, rank, 2), 1);
        assert_eq!(saver.wants_tensors(), rank == 0);
        let progress = checkpoint(3).progress;
        saver.save(progress, Some(state_of(rank, 2, 0, 3)), tensors).unwrap();
        saver.finish()
    };
    assert!(save(1, None).is_ok());
    assert!(matches!(save(0, None), Err(CheckpointError::Write { .. })));
    save(0, Some(checkpoint(3).tensors)).unwrap();
    assert!(same(&begin(&place(&url, 0, 1), true).0.unwrap().unwrap(), &checkpoint(3)));
}

#[test]
fn a_checkpoint_in_another_directory_is_loaded_by_its_url() {
    let (_dir, url) = written_by(2, &[3]);
    let dir = tempfile::tempdir().unwrap();
    let here = place(dir.path().to_str().unwrap(), 1, 4);
    let mut log = Vec::new();
    let first = format!("{url}/checkpoint-00000003.rank-00000-of-00002.tar");
    let begun = here.begin_at(&first, &mut log).unwrap();
    assert!(same(&begun, &checkpoint(3)));
    assert!(String::from_utf8(log).unwrap().starts_with(&format!("resumed from {first}: epoch 1, step 3;")));
}

/// The job may die after any write and any deletion: the last complete checkpoint can always be loaded.
#[test]
fn a_job_killed_at_any_point_can_load_the_newest_complete_checkpoint() {
    let ranks = 4;
    // Tries every set of ranks that may have written their part of the last checkpoint.
    for done in 0..1 << ranks {
        let (_dir, url) = written_by(ranks, &[2]);
        (0..ranks).filter(|rank| done >> rank & 1 == 1).for_each(|rank| drop(write(&url, rank, ranks, 4)));
        let expected = if done + 1 == 1 << ranks { 4 } else { 2 };
        let (begun, log) = begin(&place(&url, 0, 1), true);
        assert!(same(&begun.unwrap().unwrap(), &checkpoint(expected)), "{done:b}: {log}");
        assert_eq!(log.contains("skipped a checkpoint"), !(done == 0 || expected == 4), "{log}");
    }
    // Tries every number of objects that the job may have deleted before it died. Objects are deleted in
    // order.
    let listing = |url: &str| Listing::new(url, names(url).into_iter().map(|name| format!("{url}/{name}")));
    for deleted in 0..=2 * ranks {
        let (_dir, url) = written_by(ranks, &[1, 2, 4]);
        let listing = listing(&url);
        let obsolete = listing.obsolete(4, ranks, 1, None);
        assert_eq!(obsolete.len(), 2 * ranks);
        obsolete[..deleted].iter().for_each(|url| fs::remove_file(url).unwrap());
        assert!(same(&begin(&place(&url, 0, 1), true).0.unwrap().unwrap(), &checkpoint(4)));
        // If the newest checkpoint is removed, a checkpoint that was partly deleted does not count as
        // complete.
        names(&url).iter().filter(|name| name.contains("-00000004")).for_each(|name| {
            fs::remove_file(format!("{url}/{name}")).unwrap();
        });
        let resumed = begin(&place(&url, 0, 1), true).0.unwrap();
        let expected = if deleted <= ranks { Some(2) } else { None };
        assert_eq!(resumed.map(|c| c.progress.steps()), expected, "{deleted}");
    }
}

/// A listing shows a damaged checkpoint as complete. Until another checkpoint is complete, the checkpoint
/// that the training resumed from is the only usable checkpoint.
#[test]
fn the_checkpoint_that_was_resumed_from_is_kept_until_a_later_one_is_intact() {
    let (_dir, url) = written_by(2, &[2, 4]);
    let damaged = format!("{url}/checkpoint-00000004.rank-00001-of-00002.json");
    fs::write(&damaged, "{").unwrap();
    let first = place(&url, 0, 2).keep(1);
    let begun = first.begin(Resume::Auto, &mut Vec::new()).unwrap().unwrap();
    assert_eq!(begun.progress.steps(), 2);
    let write = |rank, step| {
        let mut checkpoint = checkpoint(step);
        checkpoint.data = state_of(rank, 2, 0, step);
        first.clone().topology(Topology::new(rank, 2).unwrap()).write(checkpoint).unwrap()
    };
    let steps = || Listing::new(&url, names(&url).into_iter().map(|name| format!("{url}/{name}")));
    // Rank 1 ends before it rewrites its part of step 4, and so before its part of step 6.
    write(0, 4);
    write(0, 6);
    assert_eq!(steps().steps().collect::<Vec<_>>(), [2, 4, 6]);
    assert_eq!(place(&url, 0, 2).begin(Resume::Auto, &mut Vec::new()).unwrap().unwrap().progress.steps(), 2);
    write(1, 6);
    write(0, 6);
    assert_eq!(steps().steps().collect::<Vec<_>>(), [6]);
}

#[test]
fn a_checkpoint_that_is_completed_while_ranks_start_is_an_error() {
    let (_dir, url) = written_by(2, &[2]);
    let place = place(&url, 0, 2);
    let listed = place.newest().unwrap();
    place.check_newest(listed.as_deref()).unwrap();
    (0..2).for_each(|rank| drop(write(&url, rank, 2, 4)));
    let error = place.check_newest(listed.as_deref()).unwrap_err().to_string();
    assert!(error.contains("checkpoint-00000004") && error.contains("start all ranks again"), "{error}");
}
