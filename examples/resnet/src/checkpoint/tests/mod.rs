mod keeping;
mod ranks;

use super::*;
use crate::report::{RunningEpoch, Tally};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

fn inputs() -> Inputs {
    Inputs::new(3).with("lr", 0.2).with("warmup", 30)
}

/// The checkpoints of a network with two small buffers.
fn checkpoints(url: &str, seed: i32) -> Checkpoints {
    let artifact = Artifact::open("resnet8").unwrap();
    let mut checkpoints = Checkpoints::new(url, &artifact, seed, inputs()).unwrap();
    let buffer = |name: &str, shape: &[i64]| StateBuffer { name: name.into(), shape: shape.into() };
    checkpoints.buffers = vec![buffer("params.Conv_0.kernel", &[2, 2]), buffer("stats.mean", &[3])];
    checkpoints
}

fn checkpoint(step: u64) -> Checkpoint {
    let tally = |steps| Tally { steps, samples: 64 * steps, correct: 11, loss: 0.1 + 0.2 * steps as f64 };
    let running = RunningEpoch {
        logged: tally(step - 1),
        since_log: tally(1),
        time: Duration::from_nanos(1_234_567_891),
        time_since_log: Duration::from_nanos(1),
        data_wait: Duration::from_nanos(3),
    };
    let tensors = vec![vec![1.0, -0.0, f32::INFINITY, f32::MIN_POSITIVE / 2.0], vec![0.1; 3]];
    let progress = Progress { epochs: vec![], running, time: Duration::from_secs(5) };
    Checkpoint { progress, data: state(0, step), tensors }
}

/// The state after `batches` batches of 64 samples.
fn state(epoch: u64, batches: u64) -> State {
    state_of(0, 1, epoch, batches)
}

/// The state of one rank, after `batches` batches of 64 samples over all ranks.
fn state_of(rank: usize, ranks: usize, epoch: u64, batches: u64) -> State {
    static STATES: Mutex<BTreeMap<(usize, usize, u64, u64), State>> = Mutex::new(BTreeMap::new());
    let key = (rank, ranks, epoch, batches);
    if let Some(state) = STATES.lock().unwrap().get(&key) {
        return state.clone();
    }
    let state = read_state(rank, ranks, epoch, batches);
    STATES.lock().unwrap().insert(key, state.clone());
    state
}

fn read_state(rank: usize, ranks: usize, epoch: u64, batches: u64) -> State {
    static DIR: OnceLock<tempfile::TempDir> = OnceLock::new();
    let dir = DIR.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        for shard in 0..8 {
            let mut tar = TarWriter::new(fs::File::create(dir.path().join(format!("{shard}.tar"))).unwrap());
            for key in 0..160 {
                tar.write(&Sample::new(key.to_string()).with("txt", "x")).unwrap();
            }
            tar.finish().unwrap();
        }
        dir
    });
    let shards = dir.path().join("{0..7}.tar");
    let dataset = Dataset::builder(shards.to_str().unwrap()).streams(8);
    let dataset = dataset.topology(Topology::new(rank, ranks).unwrap()).build().unwrap();
    let loader = Loader::builder(dataset).threads(1).batch(64 / ranks).uneven_steps(true).build().unwrap();
    let mut read = loader.epoch(epoch);
    read.by_ref().take(batches as usize).for_each(|batch| drop(batch.unwrap()));
    read.state()
}

fn bits(tensors: &[Vec<f32>]) -> Vec<Vec<u32>> {
    tensors.iter().map(|t| t.iter().map(|v| v.to_bits()).collect()).collect()
}

fn same(a: &Checkpoint, b: &Checkpoint) -> bool {
    a.progress == b.progress && a.data == b.data && bits(&a.tensors) == bits(&b.tensors)
}

/// A directory with checkpoints at these steps.
fn written(steps: &[u64]) -> (tempfile::TempDir, Checkpoints) {
    let dir = tempfile::tempdir().unwrap();
    let place = checkpoints(dir.path().join("run").to_str().unwrap(), 1);
    for step in steps {
        place.write(checkpoint(*step)).unwrap();
    }
    (dir, place)
}

fn begin(place: &Checkpoints, resume: bool) -> (Result<Option<Checkpoint>, CheckpointError>, String) {
    let mut log = Vec::new();
    let begun = place.begin(resume, &mut log);
    (begun, String::from_utf8(log).unwrap())
}

fn refused(place: &Checkpoints, resume: bool) -> CheckpointError {
    match begin(place, resume).0 {
        Err(e) => e,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_checkpoint_is_read_exactly_as_it_was_written() {
    let (_dir, place) = written(&[7]);
    let url = place.newest().unwrap().unwrap();
    assert!(Path::new(&url).ends_with("run/checkpoint-00000007.tar"), "{url}");
    let (read, changed) = place.load(&url).unwrap();
    assert!(same(&read, &checkpoint(7)));
    assert_eq!(changed, Vec::<String>::new());
}

#[test]
fn the_log_says_what_was_written_and_what_was_resumed() {
    let (_dir, place) = written(&[]);
    let (begun, log) = begin(&place, true);
    assert!(begun.unwrap().is_none() && log.contains("no checkpoint in"), "{log}");
    assert!(begin(&place, false).0.unwrap().is_none(), "a new training in an empty directory");
    let saved = place.write(checkpoint(7)).unwrap().to_string();
    assert!(saved.starts_with("checkpoint at step 7 (epoch 1, step 7 of it): 0.0 MB in "), "{saved}");
    assert!(saved.ends_with("checkpoint-00000007.tar"), "{saved}");
    let (begun, log) = begin(&place, true);
    assert!(same(&begun.unwrap().unwrap(), &checkpoint(7)));
    let line = "run/checkpoint-00000007.tar: epoch 1, step 7; 448 samples of the epoch are done, \
                the next batch is number 8\n";
    assert!(log.starts_with("resumed from ") && log.ends_with(line), "{log}");
}

#[test]
fn the_end_of_an_epoch_has_a_description_of_its_own() {
    let mut done = checkpoint(7);
    done.progress.epochs = vec![crate::report::tests::epoch(0.5, 64, 1); 2];
    done.progress.running = RunningEpoch::default();
    assert_eq!(done.title(), "step 2 (epoch 2 done)");
    assert_eq!(done.describe_position(3), "epoch 2 is done, epoch 3 is next");
    assert_eq!(done.describe_position(2), "all 2 epochs are done");
}

#[test]
fn the_newest_checkpoint_has_the_highest_step_in_its_directory() {
    let (_dir, place) = written(&[2, 10, 9]);
    for other in [
        "checkpoint-00000099.tar.gz",
        "checkpoint-99.tar",
        "checkpoint-000000099.tar",
        "deep/checkpoint-00000099.tar",
    ] {
        let path = PathBuf::from(&place.url).join(other);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "").unwrap();
    }
    assert!(place.newest().unwrap().unwrap().ends_with("checkpoint-00000010.tar"));
    let url = place.newest().unwrap().unwrap();
    fs::rename(&url, url.replace("-00000010.", "-123456789.")).unwrap();
    assert!(place.newest().unwrap().unwrap().ends_with("checkpoint-123456789.tar"));
}

#[test]
fn auto_skips_only_damaged_checkpoints() {
    let (_dir, place) = written(&[2, 5, 9]);
    let newest = place.newest().unwrap().unwrap();
    let whole = fs::read(&newest).unwrap();
    let auto = |place: &Checkpoints| {
        let mut log = Vec::new();
        (place.begin(Resume::Auto, &mut log), String::from_utf8(log).unwrap())
    };
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 1;
    for damaged in [b"".to_vec(), whole[..whole.len() / 2].to_vec(), flipped, b"no tar".repeat(1000)] {
        fs::write(&newest, &damaged).unwrap();
        assert!(refused(&place, true).is_damage(), "{} bytes", damaged.len());
        let (begun, log) = auto(&place);
        assert!(same(&begun.unwrap().unwrap(), &checkpoint(5)), "{log}");
        assert!(
            log.starts_with("skipped a checkpoint: ") && log.contains("checkpoint-00000009.tar"),
            "{log}"
        );
        assert!(log.contains("resumed from ") && log.contains("checkpoint-00000005.tar"), "{log}");
    }
    let (begun, _) = auto(&checkpoints(&place.url, 2));
    assert!(matches!(begun, Err(CheckpointError::Other { .. })), "another seed");
    for step in [2, 5] {
        fs::write(newest.replace("00000009", &format!("{step:08}")), "").unwrap();
    }
    let (begun, log) = auto(&place);
    assert!(begun.unwrap().is_none() && log.matches("skipped a checkpoint: ").count() == 3, "{log}");
    assert!(log.contains("starting from the beginning"), "{log}");
}

#[test]
fn a_slash_at_the_end_of_the_url_is_ignored() {
    let (_dir, place) = written(&[3]);
    let slashed = checkpoints(&format!("{}/", place.url), 1);
    assert_eq!(slashed.newest().unwrap(), place.newest().unwrap());
}

#[test]
fn a_new_training_in_a_directory_with_checkpoints_is_refused() {
    let (_dir, place) = written(&[3]);
    let e = refused(&place, false);
    let CheckpointError::Exists { newest } = &e else { panic!("{e}") };
    assert!(newest.expose_secret().ends_with("checkpoint-00000003.tar"), "{e}");
    assert!(e.to_string().contains("--resume"));
}

#[test]
fn the_error_for_another_training_lists_the_differences() {
    let (_dir, place) = written(&[3]);
    let e = refused(&checkpoints(&place.url, 2), true);
    let CheckpointError::Other { differences, .. } = &e else { panic!("{e}") };
    assert_eq!(differences, &["seed was 1 and is now 2"]);

    let mut other = place.clone();
    let mut artifact = Artifact::open("resnet18").unwrap();
    artifact.manifest.devices = 4;
    other.identity = Identity::new(&artifact.manifest, 1);
    let e = refused(&other, true).to_string();
    assert!(e.contains(r#"model was "resnet8" and is now "resnet18""#), "{e}");
    assert!(e.contains("devices was 1 and is now 4") && e.contains("program was"), "{e}");
    assert!(!e.contains("seed"), "{e}");
}

#[test]
fn another_number_of_devices_may_resume_with_the_same_batch() {
    let (_dir, mut place) = written(&[3]);
    let mut artifact = Artifact::open("resnet8").unwrap();
    artifact.manifest.devices = 2;
    artifact.manifest.batch /= 2;
    place.identity = Identity::new(&artifact.manifest, 1);
    let (begun, log) = begin(&place, true);
    assert!(begun.unwrap().is_some());
    assert!(log.contains("changed since the checkpoint: devices was 1 and is now 2\n"), "{log}");
    artifact.manifest.batch += 1;
    place.identity = Identity::new(&artifact.manifest, 1);
    let e = refused(&place, true).to_string();
    assert!(e.contains("batch was 64 and is now 66"), "{e}");
}

#[test]
fn changes_of_the_schedule_are_logged_and_accepted() {
    let (_dir, mut place) = written(&[3]);
    place.inputs = Inputs::new(4).with("lr", 0.1).with("warmup", 30);
    let (begun, log) = begin(&place, true);
    assert!(begun.unwrap().is_some());
    assert!(log.contains("changed since the checkpoint: epochs was 3 and is now 4\n"), "{log}");
    assert!(log.contains(r#"lr was "0.2" and is now "0.1""#) && !log.contains("warmup"), "{log}");
    let (_, log) = begin(&place.input("crop", 0.9), true);
    assert!(log.contains(r#"crop was not there and is now "0.9""#), "{log}");
}

#[test]
fn another_shape_is_refused() {
    let (_dir, mut place) = written(&[3]);
    place.buffers[1].shape = vec![4];
    let e = refused(&place, true);
    assert!(
        matches!(e, CheckpointError::Damaged { .. })
            && e.to_string().contains("stats.mean.npy is float32[3]"),
        "{e}"
    );
    place.buffers[1].name = "stats.var".into();
    let e = refused(&place, true).to_string();
    assert!(e.contains("it has no stats.var.npy"), "{e}");
}

/// Applies `change` to a checkpoint's sample, and writes the sample with a correct digest. Returns the error
/// when a training resumes from it.
fn forged(change: impl Fn(Sample) -> Sample) -> CheckpointError {
    let (_dir, place) = written(&[3]);
    let url = place.newest().unwrap().unwrap();
    let sample = change(place.samples(&url).unwrap().remove(0));
    let digest = document::digest(&sample);
    let mut tar = TarWriter::new(Vec::new());
    tar.write(&sample.with("sha256.txt", digest.as_bytes().to_vec())).unwrap();
    fs::write(&url, tar.finish().unwrap()).unwrap();
    refused(&place, true)
}

#[test]
fn data_and_network_of_different_steps_are_refused() {
    let e = forged(|sample| sample.with("data.json", state(1, 3).to_string().into_bytes()));
    let positions = "its data is at sample 192 of epoch 1, and its network at sample 192 of epoch 0";
    assert!(e.to_string().contains(positions), "{e}");
    let e = forged(|sample| sample.with("data.json", state(0, 4).to_string().into_bytes()));
    assert!(e.to_string().contains("at sample 256 of epoch 0, and its network at sample 192"), "{e}");
}

#[test]
fn another_version_is_an_error_of_its_own() {
    for other in [2, 4] {
        let e = forged(|sample| sample.with("meta.json", format!(r#"{{"version":{other}}}"#).as_bytes()));
        assert!(matches!(e, CheckpointError::Version { version, .. } if version == other), "{e}");
    }
}

#[test]
fn fields_that_cannot_be_parsed_are_refused() {
    for (field, content) in [("meta.json", "{}"), ("data.json", "?"), ("stats.mean.npy", "npy")] {
        let e = forged(|sample| sample.with(field, content.as_bytes()));
        assert!(matches!(&e, CheckpointError::Damaged { reason, .. } if reason.contains(field)), "{e}");
    }
}

#[test]
fn a_damaged_newest_checkpoint_is_an_error_unless_resume_is_auto() {
    let (_dir, place) = written(&[2, 3]);
    let url = place.newest().unwrap().unwrap();
    let whole = fs::read(&url).unwrap();
    let mut two = TarWriter::new(Vec::new());
    for key in ["a", "b"] {
        two.write(&Sample::new(key).with("txt", "x")).unwrap();
    }
    let damage = [vec![], b"rubbish".repeat(100), whole[..whole.len() / 2].to_vec(), two.finish().unwrap()];
    for bytes in damage {
        fs::write(&url, bytes).unwrap();
        let e = refused(&place, true);
        assert!(matches!(e, CheckpointError::Read { .. } | CheckpointError::Damaged { .. }), "{e}");
        assert!(
            e.to_string().contains("checkpoint-00000003.tar") && e.to_string().contains("remove it"),
            "{e}"
        );
    }
    fs::remove_file(&url).unwrap();
    assert!(same(&begin(&place, true).0.unwrap().unwrap(), &checkpoint(2)));
}

#[test]
fn a_flipped_bit_is_an_error_or_has_no_effect() {
    let (_dir, place) = written(&[3]);
    let url = place.newest().unwrap().unwrap();
    let whole = fs::read(&url).unwrap();
    for at in (0..whole.len()).step_by(41) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        fs::write(&url, bytes).unwrap();
        // A changed byte in the padding of the tar does no harm.
        if let Ok((read, _)) = place.load(&url) {
            assert!(same(&read, &checkpoint(3)), "byte {at}");
        }
    }
}

#[test]
fn the_error_of_a_failed_write_names_the_object() {
    let (_dir, mut place) = written(&[]);
    place.buffers[1].name = "PARAMS.conv_0.KERNEL".into();
    place.buffers[1].shape = vec![3];
    let e = place.write(checkpoint(1)).unwrap_err();
    assert!(
        matches!(e, CheckpointError::Write { .. }) && e.to_string().contains("checkpoint-00000001.tar"),
        "{e}"
    );

    let file = tempfile::NamedTempFile::new().unwrap();
    let place = checkpoints(file.path().to_str().unwrap(), 1);
    assert!(matches!(place.write(checkpoint(1)), Err(CheckpointError::Write { .. })));
}

#[test]
fn urls_that_cannot_be_listed_are_refused() {
    let artifact = Artifact::open("resnet8").unwrap();
    for url in ["", "/", "file:///tmp/x", "file:x"] {
        assert!(
            matches!(Checkpoints::new(url, &artifact, 1, inputs()), Err(CheckpointError::Place { .. })),
            "{url}"
        );
    }
    let e = refused(&checkpoints("nowhere://bucket/run", 1), true);
    assert!(matches!(e, CheckpointError::List { .. }), "{e}");
}

#[test]
fn a_saver_writes_one_checkpoint_at_a_time_and_returns_each_outcome_once() {
    let (_dir, place) = written(&[]);
    let mut saver = Saver::new(place.clone(), 5);
    assert_eq!([0, 4, 5, 10].map(|step| saver.is_due(step)), [true, false, true, true]);
    assert!(!Saver::new(place.clone(), 0).is_due(5));
    let mut save = |step| {
        let Checkpoint { progress, data, tensors } = checkpoint(step);
        saver.save(progress, Some(data), Some(tensors)).unwrap()
    };
    assert_eq!(save(5), None);
    assert_eq!(save(10).unwrap().what, "step 5 (epoch 1, step 5 of it)");
    assert_eq!(saver.finish().unwrap().unwrap().what, "step 10 (epoch 1, step 10 of it)");
    assert_eq!(saver.finish().unwrap(), None);
    assert_eq!(saver.poll().unwrap(), None);
    let no_state = saver.save(Progress::default(), None, None);
    assert!(matches!(no_state, Err(CheckpointError::NoState)));
}

#[test]
fn a_dropped_saver_finishes_its_write() {
    let (_dir, place) = written(&[]);
    let Checkpoint { progress, data, tensors } = checkpoint(5);
    Saver::new(place.clone(), 5).save(progress, Some(data), Some(tensors)).unwrap();
    assert!(place.newest().unwrap().is_some());
}

#[test]
fn a_checkpoint_that_cannot_be_written_is_a_warning() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut saver = Saver::new(checkpoints(file.path().to_str().unwrap(), 1), 5);
    let mut save = |step| {
        let Checkpoint { progress, data, tensors } = checkpoint(step);
        saver.save(progress, Some(data), Some(tensors)).unwrap()
    };
    assert!(save(5).is_none());
    // A newer checkpoint ends the retries of the older checkpoint.
    let start = Instant::now();
    let saved = save(10).unwrap();
    assert!(start.elapsed() < Duration::from_secs(1));
    assert_eq!(saved.step(), None);
    assert!(saved.to_string().starts_with("warning: no checkpoint at step 5 "), "{saved}");
}

#[test]
fn a_directory_that_cannot_be_written_is_an_error_before_the_training() {
    let dir = tempfile::tempdir().unwrap();
    let url = dir.path().join("new/place").to_str().unwrap().to_owned();
    checkpoints(&url, 1).try_place().unwrap();
    assert_eq!(fs::read_dir(&url).unwrap().count(), 0, "the test object is deleted");
    let file = tempfile::NamedTempFile::new().unwrap();
    let below_a_file = format!("{}/checkpoints", file.path().display());
    let error = checkpoints(&below_a_file, 1).try_place().unwrap_err();
    assert!(matches!(&error, CheckpointError::Write { .. }), "{error:?}");
    assert!(error.to_string().contains(&below_a_file), "{error}");
}
