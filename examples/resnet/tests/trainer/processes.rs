//! Tests of one process with eight devices, and of several processes that divide the devices among them.

use crate::common::{plugin, synthetic};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// The command of a training on eight devices.
fn program(arguments: &[&str]) -> Command {
    let plugin = plugin();
    let shards = &synthetic().0;
    let mut program = Command::new(env!("CARGO_BIN_EXE_resnet"));
    program.arg("--plugin").arg(plugin).args(["--artifact", "resnet8-x8", "--work-dir"]);
    program.arg(Path::new(&shards.train).parent().unwrap());
    program.args(["--shards", &shards.train, "--val-shards", &shards.validation]);
    program.args(["--epochs", "2", "--log-steps", "5", "--workers", "1", "--shuffle", "50"]).args(arguments);
    program
}

/// Runs a program that must succeed, and returns its output.
fn log(mut program: Command) -> String {
    let Output { status, stdout, stderr } = program.output().unwrap();
    assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).unwrap()
}

/// The digest of an epoch over all processes: the number, the order and the content of the samples.
fn digest(log: &str, epoch: usize, processes: usize) -> [u64; 3] {
    let what = format!("epoch {epoch}: digest of the order ");
    let digests: Vec<&str> =
        log.lines().filter_map(|line| line.split_once(&what)).map(|(_, digest)| digest).collect();
    assert_eq!(digests.len(), processes, "{log}");
    digests.iter().fold([0; 3], |sum, digest| {
        let mut parts = digest.split('-');
        let mut next = |radix| u64::from_str_radix(parts.next().unwrap(), radix).unwrap();
        let parts = [next(10), next(16), next(16)];
        std::array::from_fn(|i| sum[i].wrapping_add(parts[i]))
    })
}

#[test]
#[ignore = "needs PJRT's CPU plugin, a download: see CONTRIBUTING.md"]
fn one_process_for_all_devices_and_one_for_each_read_the_same_global_batches() {
    let one = log(program(&[]));
    assert!(one.contains("rank 0 of 1 has 8 of the devices"), "{one}");
    let eight = log(program(&["--spawn", "8", "--dry-run=1"]));
    assert_eq!(eight.matches("has 1 of the devices").count(), 8, "{eight}");
    for epoch in [1, 2] {
        let whole = digest(&one, epoch, 1);
        assert_eq!(whole[0], 640);
        assert_eq!(digest(&eight, epoch, 8), whole, "epoch {epoch}");
        assert_eq!(eight.matches(&format!("epoch {epoch} of 2: 640 samples in")).count(), 8, "{eight}");
    }
    assert_ne!(digest(&one, 1, 1), digest(&one, 2, 1));
    let ready = one.lines().filter(|line| line.contains("data readiness ")).count();
    assert_eq!(ready, 2, "{one}");
}

#[test]
#[ignore = "needs PJRT's CPU plugin, a download: see CONTRIBUTING.md"]
fn processes_that_the_plugin_cannot_join_are_refused_and_all_end() {
    let mut program = program(&["--spawn", "4"]);
    let output = program.output().unwrap();
    assert!(!output.status.success());
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(errors.contains("resnet8-x8") && errors.contains("for 8 device(s)"), "{errors}");
    assert!(errors.contains("of 4 ended with") && errors.contains("the others were ended"), "{errors}");
    let output = self::program(&["--spawn", "3", "--dry-run"]).output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(errors.contains("8 devices, which cannot be divided among 3 processes"), "{errors}");
}

/// The ids of the child processes of a process.
#[cfg(target_os = "linux")]
fn children(parent: u32) -> Vec<u32> {
    let path = format!("/proc/{parent}/task/{parent}/children");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
}

#[cfg(target_os = "linux")]
fn kill(pid: u32) {
    assert!(Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap().success());
}

/// Starts two processes whose steps take an hour, and waits until both are training.
#[cfg(target_os = "linux")]
fn endless() -> std::process::Child {
    let mut program = program(&["--spawn", "2", "--dry-run=3600000"]);
    let mut parent = program.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let out = parent.stdout.take().unwrap();
    let training = BufReader::new(out).lines().filter(|line| line.as_ref().unwrap().ends_with(": training"));
    assert_eq!(training.take(2).count(), 2);
    parent
}

#[cfg(target_os = "linux")]
#[test]
#[ignore = "needs PJRT's CPU plugin, a download: see CONTRIBUTING.md"]
fn if_one_process_dies_the_others_are_ended() {
    let mut parent = endless();
    let processes = children(parent.id());
    assert_eq!(processes.len(), 2);
    kill(processes[1]);
    assert!(!parent.wait().unwrap().success());
    assert!(processes.iter().all(|pid| !Path::new(&format!("/proc/{pid}")).exists()));
}

#[cfg(target_os = "linux")]
#[test]
#[ignore = "needs PJRT's CPU plugin, a download: see CONTRIBUTING.md"]
fn if_the_parent_dies_its_processes_end() {
    let mut parent = endless();
    let processes = children(parent.id());
    kill(parent.id());
    parent.wait().unwrap();
    let start = Instant::now();
    // An ended process remains as a zombie if the system does not reap orphans.
    let ended = |pid: &u32| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        status.is_empty() || status.rsplit(')').next().is_some_and(|rest| rest.starts_with(" Z"))
    };
    while !processes.iter().all(ended) {
        assert!(start.elapsed() < Duration::from_secs(60), "the processes continue without their parent");
        std::thread::sleep(Duration::from_millis(20));
    }
}
