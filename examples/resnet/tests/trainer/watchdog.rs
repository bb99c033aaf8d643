//! Runs programs that hang.
#![cfg(unix)]

use crate::common::{plugin, synthetic};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

/// A dry run that warns after a second.
fn program(arguments: &[&str]) -> Command {
    let mut program = Command::new(env!("CARGO_BIN_EXE_resnet"));
    program.arg("--plugin").arg(plugin());
    let work_dir = Path::new(&synthetic().0.train).parent().unwrap();
    program.arg("--work-dir").arg(work_dir).args([
        "--log-steps",
        "1",
        "--threads",
        "2",
        "--stall-warning",
        "1",
    ]);
    program.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
    program
}

fn shards() -> [&'static str; 4] {
    let shards = &synthetic().0;
    ["--shards", &shards.train, "--val-shards", &shards.validation]
}

#[test]
#[ignore = "needs PJRT's CPU plugin, a download: see CONTRIBUTING.md"]
fn a_step_beyond_the_timeout_ends_the_program_with_its_cause() {
    let logs = tempfile::tempdir().unwrap();
    let arguments = ["--dry-run=3600000", "--step-timeout", "4", "--log-dir", logs.path().to_str().unwrap()];
    let mut program = program(&arguments);
    let output = program.args(shards()).output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(4), "{errors}");
    let log = std::fs::read_to_string(logs.path().join("log-rank-00000.txt")).unwrap();
    for text in [&errors, &log] {
        for line in ["warning: no step for ", "error: no step in 4 s: rank 0 waits for the devices after "] {
            assert!(text.contains(line), "{text}");
        }
    }
}

/// A stopped process simulates a host that hangs.
#[cfg(target_os = "linux")]
#[test]
#[ignore = "needs PJRT's CPU plugin, a download: see CONTRIBUTING.md"]
fn a_rank_names_another_rank_that_hangs() {
    let dir = tempfile::tempdir().unwrap();
    let checkpoints = dir.path().join("run");
    let start = |rank: &str| {
        let mut program = program(&["--artifact", "resnet8-x8", "--world-size", "2", "--rank", rank]);
        program.args(["--dry-run=3600000", "--checkpoint", checkpoints.to_str().unwrap()]).args(shards());
        program.spawn().unwrap()
    };
    let (mut first, mut second) = (start("0"), start("1"));
    let mut lines = BufReader::new(second.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().ends_with(": training")));
    kill(Pid::from_raw(second.id() as i32), Signal::SIGSTOP).unwrap();
    let lines = BufReader::new(first.stderr.take().unwrap()).lines().map_while(Result::ok);
    // Rank 1 may have written a note before it was stopped. In that case, the log names rank 1 only after a
    // longer wait.
    let named = lines.filter(|line| line.contains("the job waits for: rank 1 left no note")).take(1).count();
    for child in [&mut first, &mut second] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    assert_eq!(named, 1);
}

#[cfg(all(feature = "gcs", feature = "http"))]
#[test]
#[ignore = "needs PJRT's CPU plugin, a download: see CONTRIBUTING.md"]
fn the_warning_names_the_shard_of_a_server_that_hangs() {
    use crate::server::{Reply, Server};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    let shards = &synthetic().0;
    let hangs = Arc::new(AtomicBool::new(false));
    let (dir, hangs_now) = (Path::new(&shards.train).parent().unwrap().to_owned(), hangs.clone());
    let server = Server::start(move |request| {
        let name = request.path().rsplit('/').next().unwrap_or_default().to_owned();
        if hangs_now.load(Ordering::SeqCst) && name.starts_with("train") {
            std::thread::sleep(Duration::from_secs(12));
        }
        match std::fs::read(dir.join(&name)) {
            Ok(content) => Reply::object(request, &content, &format!("\"{name}\"")),
            Err(_) => Reply::new(404, ""),
        }
    });
    let url =
        |path: &str| server.url(&format!("/{}", Path::new(path).file_name().unwrap().to_str().unwrap()));
    let (train, validation) = (url(&shards.train), url(&shards.validation));
    let arguments = ["--dry-run=20", "--step-timeout", "6", "--shards", &train, "--val-shards", &validation];
    let mut program = program(&arguments);
    let mut child = program.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("  step      2 ")));
    hangs.store(true, Ordering::SeqCst);
    lines.for_each(drop);
    let output = child.wait_with_output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(4), "{errors}");
    let warning = errors.lines().find(|line| line.starts_with("warning: no step for ")).expect(&errors);
    assert!(warning.contains("rank 0 waits for a batch (") && warning.contains("/train-"), "{warning}");
}

#[cfg(feature = "metrics")]
#[test]
#[ignore = "needs PJRT's CPU plugin, a download: see CONTRIBUTING.md"]
fn metrics_of_a_training_are_served_over_http() {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut program = program(&["--dry-run=50", "--metrics", &address.to_string()]);
    let mut child = program.args(shards()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("  step      3 ")));
    let mut connection = TcpStream::connect(address).unwrap();
    connection.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut response = String::new();
    connection.read_to_string(&mut response).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    for name in [
        "\nresnet_steps_total ",
        "\nresnet_samples_total ",
        "\nresnet_train_learning_rate ",
        "\nresnet_rate_data_readiness ",
        "\nshardstream_batches_total ",
    ] {
        assert!(response.contains(name), "no {name:?} in {response}");
    }
    // The port is in use by another program.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let output = self::program(&["--dry-run=50", "--metrics", &address]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(errors.contains("cannot serve metrics at 127.0.0.1:"), "{errors}");
}
