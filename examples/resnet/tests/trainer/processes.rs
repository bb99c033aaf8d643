//! One process with eight devices, and eight processes with one each.

use crate::common::{plugin, synthetic};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// The program on eight devices.
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

/// The output of a successful program.
fn log(mut program: Command) -> String {
    let Output { status, stdout, stderr } = program.output().unwrap();
    assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).unwrap()
}

/// The digests of an epoch, of all processes together: samples, order, content.
fn digest(log: &str, epoch: usize, processes: usize) -> [u64; 3] {
    let what = format!("epoch {epoch}: digest of the order ");
    let digests: Vec<&str> =
        log.lines().filter_map(|line| line.split_once(&what)).map(|(_, digest)| digest).collect();
    assert_eq!(digests.len(), processes, "{log}");
    digests.iter().fold([0; 3], |sum, digest| {
        let mut parts = digest.split('-');
        let mut next = |radix| u64::from_str_radix(parts.next().unwrap(), radix).unwrap();
        let parts = [next(10), next(16), next(16)];
        std::array::from_fn(|at| sum[at].wrapping_add(parts[at]))
    })
}

#[test]
#[ignore = "needs PJRT's CPU plugin, a download: see CONTRIBUTING.md"]
fn one_process_for_all_devices_and_one_for_each_take_the_same_global_batches() {
    let one = program(&[]);
    let one = log(one);
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
    let three = self::program(&["--spawn", "3", "--dry-run"]).output().unwrap();
    let errors = String::from_utf8(three.stderr).unwrap();
    assert!(errors.contains("8 devices, which cannot be divided among 3 processes"), "{errors}");
}

/// The child processes of a process.
#[cfg(target_os = "linux")]
fn children(of: u32) -> Vec<u32> {
    let path = format!("/proc/{of}/task/{of}/children");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
}

#[cfg(target_os = "linux")]
fn kill(pid: u32) {
    assert!(Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap().success());
}

/// Processes in the middle of an epoch that takes hours.
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
fn when_one_process_dies_the_others_are_ended() {
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
fn when_the_first_process_dies_those_that_it_has_started_end() {
    let mut parent = endless();
    let processes = children(parent.id());
    kill(parent.id());
    parent.wait().unwrap();
    let begun = Instant::now();
    // An ended process stays as a zombie if nothing reaps orphans.
    let ended = |pid: &u32| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        status.is_empty() || status.rsplit(')').next().is_some_and(|rest| rest.starts_with(" Z"))
    };
    while !processes.iter().all(ended) {
        assert!(begun.elapsed() < Duration::from_secs(60), "they continue without it");
        std::thread::sleep(Duration::from_millis(20));
    }
}
