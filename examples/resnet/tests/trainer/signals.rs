//! Runs the program and stops it with signals.
#![cfg(unix)]

use crate::common::{losses, plugin, synthetic};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use shardstream::Rng;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A training of 3 epochs.
fn program(arguments: &[&str]) -> Command {
    let plugin = plugin();
    let shards = &synthetic().0;
    let mut program = Command::new(env!("CARGO_BIN_EXE_resnet"));
    program.arg("--plugin").arg(plugin).args(["--work-dir"]).arg(Path::new(&shards.train).parent().unwrap());
    program.args(["--shards", &shards.train, "--val-shards", &shards.validation]);
    program.args(["--epochs", "3", "--log-steps", "1", "--threads", "2", "--shuffle", "100"]).args(arguments);
    program
}

/// Arguments of a training in one process.
const ONE_PROCESS: &[&str] = &[];
/// Arguments of a dry run in two processes. The CPU plugin cannot join processes, so two processes cannot
/// train. An epoch takes a second.
const TWO_PROCESSES: &[&str] =
    &["--artifact", "resnet8-x8", "--spawn", "2", "--dry-run=100", "--streams", "8"];

fn send(signal: Signal, to: &Child) {
    kill(Pid::from_raw(to.id() as i32), signal).unwrap();
}

fn start(program: &mut Command) -> Child {
    program.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Waits for a line that contains `what`, and returns the output so far.
fn read_until(child: &mut Child, what: &str) -> String {
    let mut output = String::new();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    while out.read_line(&mut output).unwrap() > 0 && !output.lines().last().unwrap().contains(what) {}
    child.stdout = Some(out.into_inner());
    output
}

/// The lines with digests of epochs, from all processes, without duplicates.
fn digests(log: &str) -> Vec<&str> {
    let mut digests: Vec<&str> = log.lines().filter(|line| line.contains("digest of the order")).collect();
    digests.sort_unstable();
    digests.dedup();
    digests
}

/// Stops trainings at random times, and resumes them with the same command until they are done.
fn stop_and_resume(arguments: &[&str]) {
    let uninterrupted = || {
        let start = Instant::now();
        let output = program(arguments).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        (text(&output.stdout), start.elapsed())
    };
    // The first start compiles the programs, unless another test has compiled them. Later starts load them
    // from the cache.
    let _ = uninterrupted();
    let (uninterrupted, duration) = uninterrupted();
    let runs = std::env::var("RESNET_TEST_SIGNALS").map_or(2, |runs| runs.parse().unwrap());
    let mut stopped = 0;
    for run in 0..runs {
        let dir = tempfile::tempdir().unwrap();
        let checkpoints = dir.path().join("run");
        let checkpoints = checkpoints.to_str().unwrap();
        let mut rng = Rng::new(7, run, arguments.len() as u64);
        let mut log = String::new();
        // A run may be stopped before its first step; the last run is not stopped.
        for attempt in 0..4 {
            let mut program = program(arguments);
            let child = start(program.args(["--checkpoint", checkpoints, "--resume", "auto"]));
            if attempt < 3 {
                std::thread::sleep(duration.mul_f64(rng.below(1000) as f64 / 1000.0));
                send(if rng.below(2) == 0 { Signal::SIGTERM } else { Signal::SIGINT }, &child);
            }
            let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
            let (stdout, stderr) = (text(&stdout), text(&stderr));
            log += &stdout;
            if status.success() {
                break;
            }
            assert_eq!(status.code(), Some(75), "run {run}: {status}\n{stdout}\n{stderr}");
            assert!(attempt < 3 && stderr.contains("stopped"), "{stderr}");
            stopped += 1;
        }
        assert_eq!(digests(&log), digests(&uninterrupted), "run {run}");
        if arguments == ONE_PROCESS {
            assert_eq!(losses(&log), losses(&uninterrupted), "run {run}");
        }
    }
    assert!(stopped > 0, "every run ended before its signal");
}

#[test]
#[ignore = "needs PJRT's CPU plugin, a download: see CONTRIBUTING.md"]
fn a_stopped_and_resumed_training_has_the_losses_of_an_uninterrupted_one() {
    stop_and_resume(ONE_PROCESS);
}

#[test]
#[ignore = "needs PJRT's CPU plugin, a download: see CONTRIBUTING.md"]
fn spawned_processes_stop_after_the_same_step_and_resume() {
    stop_and_resume(TWO_PROCESSES);
}

/// Starts two ranks separately and signals one. Both ranks stop after the same step, and resume there.
fn signal_one_of_two_ranks(checkpoints: &str, environment: &[(&str, &str)]) {
    let start_rank = |rank: &str| {
        let arguments = ["--artifact", "resnet8-x8", "--dry-run=100", "--streams", "8", "--rank", rank];
        let mut program = program(&arguments);
        program.args(["--world-size", "2", "--checkpoint", checkpoints, "--resume", "auto"]);
        start(program.envs(environment.iter().copied()))
    };
    let (mut first, second) = (start_rank("0"), start_rank("1"));
    let log = read_until(&mut first, "  step      4 ");
    send(Signal::SIGTERM, &first);
    let [first, second] = [first, second].map(|child| child.wait_with_output().unwrap());
    for Output { status, stderr, .. } in [&first, &second] {
        assert_eq!(status.code(), Some(75), "{}", text(stderr));
    }
    let stopped_after = |stderr: &[u8]| {
        let stderr = text(stderr);
        stderr.lines().find_map(|line| line.split_once("stopped after step ")).expect(&stderr).1.to_owned()
    };
    assert_eq!(stopped_after(&first.stderr), stopped_after(&second.stderr));
    // The notes that the ranks of the first run left must not stop a rank of the second run, in whichever
    // order the ranks of the second run start.
    let second_resumed = start_rank("1");
    std::thread::sleep(Duration::from_secs(3));
    let resumed = [start_rank("0"), second_resumed].map(|child| child.wait_with_output().unwrap());
    let mut log = log + &text(&first.stdout) + &text(&second.stdout);
    for Output { status, stdout, stderr } in &resumed {
        assert!(status.success(), "{}", text(stderr));
        assert!(text(stdout).contains("resumed from"), "{}", text(stdout));
        log += &text(stdout);
    }
    let uninterrupted = text(&program(TWO_PROCESSES).output().unwrap().stdout);
    assert_eq!(digests(&log), digests(&uninterrupted));
}

#[test]
#[ignore = "needs PJRT's CPU plugin, a download: see CONTRIBUTING.md"]
fn separately_started_ranks_agree_through_a_directory() {
    let dir = tempfile::tempdir().unwrap();
    signal_one_of_two_ranks(dir.path().join("run").to_str().unwrap(), &[]);
}

#[cfg(feature = "gcs")]
#[test]
#[ignore = "needs PJRT's CPU plugin, a download: see CONTRIBUTING.md"]
fn separately_started_ranks_agree_through_a_bucket() {
    let server = crate::bucket::start();
    signal_one_of_two_ranks("gs://bucket/run", &[("STORAGE_EMULATOR_HOST", &server.url(""))]);
}

#[test]
#[ignore = "needs PJRT's CPU plugin, a download: see CONTRIBUTING.md"]
fn a_signal_during_compilation_ends_the_program_cleanly() {
    // At exit, the process must not destroy objects that threads of the plugin still use.
    for attempt in 0..12 {
        let mut program = program(ONE_PROCESS);
        program.args(["--compile-cache", "off"]);
        let mut child = program.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().contains("compiling")));
        std::thread::sleep(Duration::from_millis(90 * attempt));
        send(Signal::SIGTERM, &child);
        let (status, rest) = (child.wait().unwrap(), lines.map_while(Result::ok).collect::<Vec<_>>());
        assert_eq!(status.code(), Some(75), "attempt {attempt}: {status}: {rest:?}");
    }
}

#[test]
#[ignore = "needs PJRT's CPU plugin, a download: see CONTRIBUTING.md"]
fn a_second_signal_ends_the_program_at_once() {
    // A step takes an hour.
    for arguments in
        [&["--dry-run=3600000"][..], &["--artifact", "resnet8-x8", "--spawn", "2", "--dry-run=3600000"]]
    {
        let mut program = program(arguments);
        let mut child = start(&mut program);
        read_until(&mut child, ": training");
        std::thread::sleep(Duration::from_millis(500));
        send(Signal::SIGTERM, &child);
        std::thread::sleep(Duration::from_millis(500));
        assert!(child.try_wait().unwrap().is_none(), "it waits for the end of the step");
        let start = Instant::now();
        send(Signal::SIGTERM, &child);
        assert_eq!(child.wait().unwrap().code(), Some(128 + 15));
        assert!(start.elapsed() < Duration::from_secs(5));
    }
}

#[test]
#[ignore = "needs PJRT's CPU plugin, a download: see CONTRIBUTING.md"]
fn a_checkpoint_that_cannot_be_written_is_a_warning() {
    let dir = tempfile::tempdir().unwrap();
    let (checkpoints, moved) = (dir.path().join("run"), dir.path().join("moved"));
    let arguments =
        ["--checkpoint", checkpoints.to_str().unwrap(), "--checkpoint-steps", "4", "--resume", "auto"];
    let mut program = program(&arguments);
    let mut child = start(&mut program);
    let mut log = read_until(&mut child, "checkpoint at step 4 ");
    // A file replaces the directory, so no checkpoint can be written to it.
    std::fs::rename(&checkpoints, &moved).unwrap();
    std::fs::write(&checkpoints, "").unwrap();
    let output = child.wait_with_output().unwrap();
    log += &text(&output.stdout);
    assert!(output.status.success(), "{log}\n{}", text(&output.stderr));
    assert!(log.contains("warning: no checkpoint at step 12 "), "{log}");
    assert!(log.contains("trained "), "{log}");
    std::fs::remove_file(&checkpoints).unwrap();
    std::fs::rename(&moved, &checkpoints).unwrap();
    let resumed = self::program(&arguments).output().unwrap();
    let resumed = text(&resumed.stdout);
    assert!(resumed.contains("resumed from"), "the last checkpoint is kept: {resumed}");
    // Resuming a finished training compiles nothing. The exit status says whether the target was reached.
    let mut again = self::program(&arguments);
    let again = again.args(["--target-accuracy", "100"]).output().unwrap();
    assert_eq!(again.status.code(), Some(3), "{}", text(&again.stderr));
    assert!(text(&again.stdout).contains("all 3 epochs are done"));
    assert!(!text(&again.stderr).contains("compiling"), "{}", text(&again.stderr));
}
