//! Tests that kill the program in the middle of an epoch, and start it again with the same arguments.

use crate::common::{losses, plugin, synthetic};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// The command of a training of 3 epochs with 10 steps each.
fn program(arguments: &[&str]) -> Command {
    let plugin = plugin();
    static WORK: OnceLock<tempfile::TempDir> = OnceLock::new();
    let work = WORK.get_or_init(|| tempfile::tempdir().unwrap());
    let shards = &synthetic().0;
    let mut program = Command::new(env!("CARGO_BIN_EXE_resnet"));
    program.arg("--plugin").arg(plugin).arg("--work-dir").arg(work.path());
    program.args(["--shards", &shards.train, "--val-shards", &shards.validation]);
    program.args(["--epochs", "3", "--log-steps", "1", "--threads", "2", "--shuffle", "100"]).args(arguments);
    program
}

/// Runs a program that must succeed, and returns its log.
fn log(mut program: Command) -> String {
    let output = program.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The log of an uninterrupted training without checkpoints.
fn uninterrupted() -> &'static str {
    static LOG: OnceLock<String> = OnceLock::new();
    LOG.get_or_init(|| log(program(&[])))
}

/// The validation accuracies of each epoch and of the whole training, without times.
fn accuracies(log: &str) -> Vec<&str> {
    let parts = log.lines().filter_map(|line| line.split_once("validation accuracy "));
    parts.map(|(_, rest)| rest.split(['i', ',']).next().unwrap()).collect()
}

/// Kills a training in its second epoch, and resumes it in another process.
fn kill_and_resume(url: &str, environment: &[(&str, &str)]) {
    let uninterrupted = uninterrupted();
    let arguments = ["--checkpoint", url, "--checkpoint-steps", "3", "--resume"];
    let start = || {
        let mut program = program(&arguments);
        program.envs(environment.iter().copied());
        program
    };
    let mut first = start().stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(first.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut before = Vec::new();
    for line in lines.by_ref() {
        let is_in_second_epoch = line.starts_with("checkpoint at step 12 ");
        before.push(line);
        if is_in_second_epoch {
            // `kill` sends SIGKILL, so the program cannot clean up.
            first.kill().unwrap();
            break;
        }
    }
    before.extend(lines);
    assert!(!first.wait().unwrap().success(), "the process was killed");
    let before = before.join("\n");
    assert!(before.contains("no checkpoint in") && !before.contains("trained"), "{before}");

    let after = log(start());
    let resumed = after.lines().find(|line| line.starts_with("resumed from ")).expect("the training resumes");
    // The training may have run and saved more steps before it was killed.
    assert!(
        resumed.contains(": epoch 2, step ") && resumed.contains("the next batch is number"),
        "{resumed}"
    );
    let (all, before, rest) = (losses(uninterrupted), losses(&before), losses(&after));
    assert_eq!(all.len(), 30);
    let resumed_at = all.len() - rest.len();
    assert_eq!(before, all[..before.len()], "the losses before the kill");
    assert_eq!(rest, all[resumed_at..], "the losses after the resume");
    assert!((12..=before.len()).contains(&resumed_at), "no step is missing: {resumed}");
    assert_eq!(accuracies(&after), accuracies(uninterrupted)[1..]);

    // Resuming a finished training runs no step, and a new training in the same directory is refused.
    assert!(log(start()).contains("checkpoint-00000030.tar: all 3 epochs are done"));
    let mut new_training = program(&["--checkpoint", url]);
    let refused = new_training.envs(environment.iter().copied()).output().unwrap();
    assert!(!refused.status.success());
    let message = String::from_utf8(refused.stderr).unwrap();
    assert!(
        message.contains("checkpoint-00000030.tar exists already: resume from it with --resume"),
        "{message}"
    );
}

#[test]
#[ignore = "needs PJRT's CPU plugin, a download: see CONTRIBUTING.md"]
fn a_killed_training_resumes_from_a_directory() {
    let dir = tempfile::tempdir().unwrap();
    kill_and_resume(dir.path().join("run").to_str().unwrap(), &[]);
}

#[cfg(feature = "gcs")]
#[test]
#[ignore = "needs PJRT's CPU plugin, a download: see CONTRIBUTING.md"]
fn a_killed_training_resumes_from_a_bucket() {
    let server = crate::bucket::start();
    kill_and_resume("gs://bucket/run", &[("STORAGE_EMULATOR_HOST", &server.url(""))]);
    let requests = server.requests();
    let stored = |r: &&crate::server::Request| r.method == "PUT" && r.path().starts_with("/bucket/run");
    assert!(requests.iter().filter(stored).count() >= 10, "a checkpoint at every third of 30 steps");
}
