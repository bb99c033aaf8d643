//! The feeder with trainers in Python, and with none.
//!
//! A Python with JAX is `SHARDSTREAM_TEST_JAX`. Tests that need one are ignored unless they are asked for.
#![allow(missing_docs)]

use serde_json::Value as Json;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;

/// 10 batches of 64.
fn shards() -> &'static str {
    static SHARDS: OnceLock<(tempfile::TempDir, String)> = OnceLock::new();
    let (_, shards) = SHARDS.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let shards =
            synthetic::shards(dir.path(), synthetic::Counts { train: 650, validation: 1 }).unwrap().train;
        (dir, shards)
    });
    shards
}

/// The feeder itself, with its slabs in a directory of its own.
fn feeder(slabs: &Path, arguments: &[&str]) -> Child {
    let mut feeder = Command::new(env!("CARGO_BIN_EXE_jax_feed"));
    feeder.args(["--shards", shards(), "--slab-dir"]).arg(slabs).args(arguments);
    feeder.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Says something, and hears the answer.
fn ask(feeder: &mut Child, answers: &mut impl BufRead, request: &str) -> Json {
    writeln!(feeder.stdin.as_mut().unwrap(), "{request}").unwrap();
    hear(answers)
}

fn hear(answers: &mut impl BufRead) -> Json {
    let mut line = String::new();
    answers.read_line(&mut line).unwrap();
    serde_json::from_str(&line).unwrap()
}

#[test]
fn slabs_are_written_again_when_they_are_free_and_leave_no_files() {
    let slabs = tempfile::tempdir().unwrap();
    let mut feeder = feeder(slabs.path(), &["--slabs", "2", "--poison"]);
    let mut answers = BufReader::new(feeder.stdout.take().unwrap());
    let hello = hear(&mut answers);
    let files: Vec<_> = hello["slabs"]["files"].as_array().unwrap().iter().collect();
    let files: Vec<_> =
        files.iter().map(|file| std::fs::File::open(file.as_str().unwrap()).unwrap()).collect();
    assert_eq!((files.len(), hello["slabs"]["size"].as_u64()), (2, Some(64 * 32 * 32 * 3 + 256)));
    let read = |slab: usize, offset, bytes: usize| {
        let mut content = vec![0; bytes];
        files[slab].read_exact_at(&mut content, offset).unwrap();
        content
    };
    let mut next = ask(&mut feeder, &mut answers, "\"mapped\"\n\"next\"");
    assert_eq!(std::fs::read_dir(slabs.path()).unwrap().count(), 0, "the slabs have no names any more");
    for number in 1..=10 {
        let batch = &next["batch"];
        let slab = batch["slab"].as_u64().unwrap() as usize;
        let (image, label) = (&batch["tensors"][0], &batch["tensors"][1]);
        assert_eq!(
            (&image["dtype"], &image["shape"]),
            (&"uint8".into(), &serde_json::json!([64, 32, 32, 3]))
        );
        let labels = read(slab, label["offset"].as_u64().unwrap(), 4 * 64);
        assert!(labels.chunks(4).all(|label| label[0] < 10 && label[1..] == [0; 3]), "{number}: {labels:?}");
        assert_eq!(batch["state"]["batches"].as_u64(), Some(number), "{batch}");
        next = ask(&mut feeder, &mut answers, &format!("{{\"free\": {slab}}}\n\"next\""));
    }
    assert!(next["end"]["report"].as_str().unwrap().contains("data readiness"), "{next}");
    assert!(feeder.wait().unwrap().success());
}

#[test]
fn a_trainer_that_goes_ends_the_feeder() {
    let slabs = tempfile::tempdir().unwrap();
    for said in ["", "\"mapped\"\n", "\"mapped\"\n\"next\"\n"] {
        let mut feeder = feeder(slabs.path(), &[]);
        let mut answers = BufReader::new(feeder.stdout.take().unwrap());
        hear(&mut answers);
        // A trainer that is killed closes its ends of the pipes.
        feeder.stdin.take().unwrap().write_all(said.as_bytes()).unwrap();
        let output = feeder.wait_with_output().unwrap();
        let complaint = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && complaint.contains("the trainer is gone"), "{complaint}");
        assert_eq!(std::fs::read_dir(slabs.path()).unwrap().count(), 0);
    }
}

#[test]
fn what_is_wrong_is_said() {
    let slabs = tempfile::tempdir().unwrap();
    for (arguments, wrong) in [
        (["--batch", "1000"], "not even one full batch"),
        (["--slab-dir", "/nowhere"], "/nowhere"),
        (["--resume-state", "/nowhere"], "/nowhere"),
    ] {
        let mut answer = String::new();
        let arguments = if arguments[0] == "--slab-dir" { vec![] } else { arguments.to_vec() };
        let place = if arguments.is_empty() { Path::new("/nowhere") } else { slabs.path() };
        let mut feeder = feeder(place, &arguments);
        feeder.stdout.take().unwrap().read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("{\"error\"") && answer.contains(wrong), "{answer}");
        assert!(!feeder.wait().unwrap().success());
    }
}

/// Runs Python with JAX, four CPU devices and the trainer's modules.
fn python(arguments: &[&str]) -> Output {
    let python = std::env::var_os("SHARDSTREAM_TEST_JAX").expect("SHARDSTREAM_TEST_JAX is a Python with JAX");
    let here = env!("CARGO_MANIFEST_DIR");
    let mut python = Command::new(python);
    python.args(arguments).current_dir(here).env("PYTHONPATH", here).env("PYTHONDONTWRITEBYTECODE", "1");
    python.env("JAX_PLATFORMS", "cpu").env("XLA_FLAGS", "--xla_force_host_platform_device_count=4");
    python.output().unwrap()
}

/// Code that runs before the trainer.
const USUAL: &str = "";
/// Hands each slab back before anything has read it.
const EARLY: &str = "weakref.finalize = lambda root, back, slab: (back(slab), type('', (), {})())[1]";

/// What `train.py` prints: the losses, and the last line.
fn train(before: &str, arguments: &[&str]) -> (Vec<String>, String) {
    let script = format!("import weakref, train\n{before}\ntrain.main()");
    let feeder = env!("CARGO_BIN_EXE_jax_feed");
    let all =
        [&["-c", &script, "--feeder", feeder, "--shards", shards(), "--log-steps", "1"], arguments].concat();
    let output = python(&all);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{complaint}");
    let printed = String::from_utf8(output.stdout).unwrap();
    let mut lines: Vec<_> = printed.lines().map(str::to_owned).collect();
    let last = lines.pop().unwrap();
    (lines, last)
}

#[test]
#[ignore = "needs Python with JAX: see CONTRIBUTING.md"]
fn a_slab_comes_back_when_nothing_reads_it() {
    let epochs = ["--epochs", "2"];
    // A ring in which no slab is used twice.
    let (losses, last) = train(USUAL, &[&epochs[..], &["--slabs", "30"]].concat());
    assert_eq!(losses.len(), 20);
    assert!(last.starts_with("20 steps, data readiness"), "{last}");
    for slabs in ["2", "4"] {
        let ring = [&epochs[..], &["--slabs", slabs, "--poison"]].concat();
        assert_eq!(train(USUAL, &ring).0, losses, "{slabs} slabs");
    }
    // The proof that this would show a slab that comes back too early: JAX reads the slabs themselves.
    let early = [&epochs[..], &["--slabs", "4", "--poison"]].concat();
    assert_ne!(train(EARLY, &early).0, losses);
}

#[test]
#[ignore = "needs Python with JAX: see CONTRIBUTING.md"]
fn what_was_saved_resumes_where_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("saved");
    let place = place.to_str().unwrap();
    let epochs = ["--epochs", "2"];
    let (whole, _) = train(USUAL, &epochs);
    for steps in [4, 10] {
        let (before, last) =
            train(USUAL, &[&epochs[..], &["--steps", &steps.to_string(), "--save", place]].concat());
        assert_eq!((&before[..], &*last), (&whole[..steps], &*format!("{steps} steps, stopped")));
        let (after, _) = train(USUAL, &[&epochs[..], &["--resume", place]].concat());
        let loss = |line: &String| line.split_once("loss").unwrap().1.to_owned();
        let (after, rest): (Vec<_>, Vec<_>) =
            (after.iter().map(loss).collect(), whole[steps..].iter().map(loss).collect());
        assert_eq!(after, rest, "after {steps}");
    }
}

#[test]
#[ignore = "needs Python with JAX: see CONTRIBUTING.md"]
fn a_feeder_that_dies_ends_the_trainer() {
    let kill = "import shardfeed, sys\nfeed = shardfeed.Feed(sys.argv[1:])\nnext(feed)\n\
                feed.process.kill()\nlist(feed)";
    let feeder = env!("CARGO_BIN_EXE_jax_feed");
    let output = python(&["-c", kill, feeder, "--shards", shards()]);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(complaint.contains("jax_feed ended with status -9 in the middle of the data"), "{complaint}");

    let keep = "import shardfeed, sys\nkept = list(shardfeed.Feed(sys.argv[1:], patience=1))";
    let output = python(&["-c", keep, feeder, "--shards", shards(), "--slabs", "3"]);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(complaint.contains("all 3 slabs are still read after 1 s"), "{complaint}");
}
