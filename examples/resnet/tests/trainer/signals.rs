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

/// One process that trains.
const ONE: &[&str] = &[];
/// Two processes in a dry run: the CPU plugin cannot join processes. An epoch takes a second.
const TWO: &[&str] = &["--artifact", "resnet8-x8", "--spawn", "2", "--dry-run=100", "--streams", "8"];

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
    let mut said = String::new();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    while out.read_line(&mut said).unwrap() > 0 && !said.lines().last().unwrap().contains(what) {}
    child.stdout = Some(out.into_inner());
    said
}

/// Digests of the epochs, of each process, without repetitions.
fn digests(log: &str) -> Vec<&str> {
    let mut digests: Vec<&str> = log.lines().filter(|line| line.contains("digest of the order")).collect();
    digests.sort_unstable();
    digests.dedup();
    digests
}

/// Stops trainings at random times, and resumes them with the same command until they are done.
fn stops_and_resumes(arguments: &[&str]) {
    let undisturbed = || {
        let begun = Instant::now();
        let output = program(arguments).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        (text(&output.stdout), begun.elapsed())
    };
    // The first start compiles, unless another test has; the other starts are as fast as the second.
    let _ = undisturbed();
    let (undisturbed, signal_within) = undisturbed();
    let runs = std::env::var("RESNET_TEST_SIGNALS").map_or(2, |runs| runs.parse().unwrap());
    let mut stopped = 0;
    for run in 0..runs {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("run");
        let place = place.to_str().unwrap();
        let mut rng = Rng::new(7, run, arguments.len() as u64);
        let mut all = String::new();
        // A run may be stopped before its first step; the last run is not stopped.
        for attempt in 0..4 {
            let mut program = program(arguments);
            let child = start(program.args(["--checkpoint", place, "--resume", "auto"]));
            if attempt < 3 {
                std::thread::sleep(signal_within.mul_f64(rng.below(1000) as f64 / 1000.0));
                send(if rng.below(2) == 0 { Signal::SIGTERM } else { Signal::SIGINT }, &child);
            }
            let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
            let (stdout, stderr) = (text(&stdout), text(&stderr));
            all += &stdout;
            if status.success() {
                break;
            }
            assert_eq!(status.code(), Some(75), "run {run}: {status}\n{stdout}\n{stderr}");
            assert!(attempt < 3 && stderr.contains("stopped"), "{stderr}");
            stopped += 1;
        }
        assert_eq!(digests(&all), digests(&undisturbed), "run {run}");
        if arguments == ONE {
            assert_eq!(losses(&all), losses(&undisturbed), "run {run}");
        }
    }
    assert!(stopped > 0, "no signal came in time");
}

#[test]
#[ignore = "needs PJRT's CPU plugin, a download: see CONTRIBUTING.md"]
fn a_stopped_training_resumes_with_the_losses_of_an_undisturbed_one() {
    stops_and_resumes(ONE);
}

#[test]
#[ignore = "needs PJRT's CPU plugin, a download: see CONTRIBUTING.md"]
fn spawned_processes_stop_after_the_same_step_and_resume() {
    stops_and_resumes(TWO);
}

/// Starts two ranks separately and signals one. Both stop after the same step, and resume there.
fn one_of_two_ranks_is_signalled(place: &str, environment: &[(&str, &str)]) {
    let start_rank = |rank: &str| {
        let arguments = ["--artifact", "resnet8-x8", "--dry-run=100", "--streams", "8", "--rank", rank];
        let mut program = program(&arguments);
        program.args(["--world-size", "2", "--checkpoint", place, "--resume", "auto"]);
        start(program.envs(environment.iter().copied()))
    };
    let (mut first, second) = (start_rank("0"), start_rank("1"));
    let begun = read_until(&mut first, "  step      4 ");
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
    // The notes of the first run stop no rank, whichever starts first.
    let second_resumed = start_rank("1");
    std::thread::sleep(Duration::from_secs(3));
    let resumed = [start_rank("0"), second_resumed].map(|child| child.wait_with_output().unwrap());
    let mut all = begun + &text(&first.stdout) + &text(&second.stdout);
    for Output { status, stdout, stderr } in &resumed {
        assert!(status.success(), "{}", text(stderr));
        assert!(text(stdout).contains("resumed from"), "{}", text(stdout));
        all += &text(stdout);
    }
    let undisturbed = text(&program(TWO).output().unwrap().stdout);
    assert_eq!(digests(&all), digests(&undisturbed));
}

#[test]
#[ignore = "needs PJRT's CPU plugin, a download: see CONTRIBUTING.md"]
fn ranks_that_were_started_by_hand_agree_through_a_directory() {
    let dir = tempfile::tempdir().unwrap();
    one_of_two_ranks_is_signalled(dir.path().join("run").to_str().unwrap(), &[]);
}

#[cfg(feature = "gcs")]
#[test]
#[ignore = "needs PJRT's CPU plugin, a download: see CONTRIBUTING.md"]
fn ranks_that_were_started_by_hand_agree_through_a_bucket() {
    let server = crate::bucket::start();
    one_of_two_ranks_is_signalled("gs://bucket/run", &[("STORAGE_EMULATOR_HOST", &server.url(""))]);
}

#[test]
#[ignore = "needs PJRT's CPU plugin, a download: see CONTRIBUTING.md"]
fn a_signal_while_threads_of_the_plugin_compile_ends_the_program_in_good_order() {
    // The exit of the process must not destroy objects that threads use.
    for attempt in 0..12 {
        let mut program = program(ONE);
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
    // A step of an hour does not end.
    for arguments in
        [&["--dry-run=3600000"][..], &["--artifact", "resnet8-x8", "--spawn", "2", "--dry-run=3600000"]]
    {
        let mut program = program(arguments);
        let mut child = start(&mut program);
        read_until(&mut child, ": training");
        std::thread::sleep(Duration::from_millis(500));
        send(Signal::SIGTERM, &child);
        std::thread::sleep(Duration::from_millis(500));
        assert!(child.try_wait().unwrap().is_none(), "it finishes the step");
        let begun = Instant::now();
        send(Signal::SIGTERM, &child);
        assert_eq!(child.wait().unwrap().code(), Some(128 + 15));
        assert!(begun.elapsed() < Duration::from_secs(5));
    }
}

#[test]
#[ignore = "needs PJRT's CPU plugin, a download: see CONTRIBUTING.md"]
fn a_checkpoint_that_cannot_be_written_is_a_warning() {
    let dir = tempfile::tempdir().unwrap();
    let (place, away) = (dir.path().join("run"), dir.path().join("away"));
    let arguments = ["--checkpoint", place.to_str().unwrap(), "--checkpoint-steps", "4", "--resume", "auto"];
    let mut program = program(&arguments);
    let mut child = start(&mut program);
    let mut said = read_until(&mut child, "checkpoint at step 4 ");
    // A file where the directory was: nothing can be written below it.
    std::fs::rename(&place, &away).unwrap();
    std::fs::write(&place, "").unwrap();
    let output = child.wait_with_output().unwrap();
    said += &text(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", text(&output.stderr));
    assert!(said.contains("warning: no checkpoint at step 12 "), "{said}");
    assert!(said.contains("trained "), "{said}");
    std::fs::remove_file(&place).unwrap();
    std::fs::rename(&away, &place).unwrap();
    let resumed = self::program(&arguments).output().unwrap();
    let resumed = text(&resumed.stdout);
    assert!(resumed.contains("resumed from"), "the last good one is left: {resumed}");
    // A finished training compiles nothing, and says whether the target was reached.
    let mut again = self::program(&arguments);
    let again = again.args(["--target-accuracy", "100"]).output().unwrap();
    assert_eq!(again.status.code(), Some(3), "{}", text(&again.stderr));
    assert!(text(&again.stdout).contains("all 3 epochs are done"));
    assert!(!text(&again.stderr).contains("compiling"), "{}", text(&again.stderr));
}
