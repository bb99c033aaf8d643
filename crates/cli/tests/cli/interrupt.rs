//! Ctrl-C and SIGTERM while a command runs.
#![cfg(unix)]

use crate::program::{demo, output, program, run, sample};
use crate::support::archive;
use crate::support::server::{Reply, Server};
use shardstream::Sample;
use shardstream::write::ShardWriter;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill").args([&format!("-{name}"), &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
}

fn start(directory: &Path, arguments: &[&str]) -> Child {
    program(directory).args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Waits until a condition holds. Panics if the program ends first.
fn wait_until(child: &mut Child, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(child.try_wait().unwrap().is_none(), "it ended before it was interrupted");
        assert!(start.elapsed() < Duration::from_secs(60), "nothing happens");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn an_interrupted_extraction_leaves_whole_files_and_resumes() {
    let dir = tempfile::tempdir().unwrap();
    for shard in 0..4 {
        let text = "0123456789".repeat(100);
        let sample = |n: usize| Sample::new(format!("{shard}/{n:04}")).with("txt", &*text);
        let samples: Vec<Sample> = (0..1000).map(sample).collect();
        fs::write(dir.path().join(format!("{shard}.tar")), archive(&samples)).unwrap();
    }
    let command = ["extract", "{0..3}.tar", "--to", "out", "-j", "2", "--quiet"];
    let out = dir.path().join("out");
    let mut child = start(dir.path(), &command);
    wait_until(&mut child, || out.join("0/0100.txt").exists());
    signal(&child, "INT");
    let ended = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!((ended.status.code(), &*said), (Some(130), "shardstream: interrupted\n"));
    let mut found = 0;
    for directory in fs::read_dir(&out).unwrap() {
        for file in fs::read_dir(directory.unwrap().path()).unwrap() {
            let path = file.unwrap().path();
            assert!(path.extension().is_some_and(|extension| extension == "txt"), "{path:?}");
            assert_eq!(fs::metadata(&path).unwrap().len(), 1000, "{path:?}");
            found += 1;
        }
    }
    assert!((100..4000).contains(&found), "{found}");
    let said = output(dir.path(), &[&command[..], &["--existing", "skip"]].concat());
    assert!(said.starts_with(&format!("{} files of 4,000 samples", with_comma(4000 - found))), "{said}");
}

fn with_comma(number: u64) -> String {
    match number {
        0..1000 => number.to_string(),
        _ => format!("{},{:03}", number / 1000, number % 1000),
    }
}

/// Waits until the program handles SIGINT.
#[cfg(target_os = "linux")]
fn wait_for_handler(child: &mut Child) {
    let status = format!("/proc/{}/status", child.id());
    let handles_int = || {
        let text = fs::read_to_string(&status).unwrap_or_default();
        let mask = text.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap_or("0");
        u64::from_str_radix(mask.trim(), 16).unwrap() & (1 << 1) != 0
    };
    wait_until(child, handles_int);
}

#[cfg(target_os = "linux")]
#[test]
fn one_signal_ends_a_read_of_stdin() {
    let dir = tempfile::tempdir().unwrap();
    for command in [
        &["ls", "--list", "-"][..],
        &["create", "--from-list", "-", "--to", "out/%d.tar"],
        &["head", "-"],
        &["info", "-"],
    ] {
        let mut program = program(dir.path());
        program.args(command).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = program.spawn().unwrap();
        // Keeps stdin open.
        let stdin = child.stdin.take();
        wait_for_handler(&mut child);
        signal(&child, "INT");
        let ended = child.wait_with_output().unwrap();
        drop(stdin);
        let error = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert_eq!((ended.status.code(), &*error), (Some(130), "shardstream: interrupted\n"));
    }
}

#[test]
fn a_verification_resumes_where_it_was_interrupted() {
    let dir = tempfile::tempdir().unwrap();
    for shard in 0..40 {
        let samples: Vec<Sample> = (0..300).map(sample).collect();
        let mut bytes = archive(&samples);
        if shard % 10 == 3 {
            bytes.truncate(100_000);
        }
        fs::write(dir.path().join(format!("{shard:02}.tar")), bytes).unwrap();
    }
    let whole = run(dir.path(), &["verify", "--decode", "*.tar"]);
    assert_eq!((whole.code, whole.out.matches("truncated: the tar").count()), (Some(3), 4), "{whole:?}");
    let command = ["verify", "--decode", "*.tar", "--resume", "log.jsonl", "-j", "2", "--quiet"];
    let log = dir.path().join("log.jsonl");
    let lines = || fs::read_to_string(&log).map_or(0, |text| text.lines().count());
    let mut noted = 0;
    for name in ["INT", "TERM", "KILL"] {
        let mut child = start(dir.path(), &command);
        wait_until(&mut child, || lines() > noted + 3);
        signal(&child, name);
        let ended = child.wait_with_output().unwrap();
        assert_eq!(ended.status.code(), (name != "KILL").then_some(130));
        noted = lines();
    }
    assert!(noted < 41, "nothing was left to resume");
    // A killed run may leave an incomplete last line.
    let text = fs::read_to_string(&log).unwrap();
    fs::write(&log, &text[..text.len() - 20]).unwrap();
    let resumed = run(dir.path(), &command);
    let before = noted - 2;
    let (findings, summary) = resumed.out.split_at(resumed.out.find("images png").unwrap());
    assert_eq!(findings, &whole.out[..findings.len()]);
    assert!(
        summary.contains(&format!(", {before} of them verified before: 4 findings")),
        "{before}: {resumed:?}"
    );
    assert_eq!(resumed.code, Some(3));
    // A shard that changed is verified again.
    fs::write(dir.path().join("00.tar"), archive(&[sample(1)])).unwrap();
    let again = run(dir.path(), &command);
    assert!(again.out.contains(", 39 of them verified before: 4 findings"), "{again:?}");
    let other = run(dir.path(), &["verify", "*.tar", "--resume", "log.jsonl"]);
    assert_eq!(other.code, Some(2), "{other:?}");
}

/// Much longer than a command may take to end after a signal, but shorter than any time-out of a store.
const SOON: Duration = Duration::from_secs(12);

/// Starts a command that reads from this server, and interrupts the command while it waits for a response.
fn interrupt_at_server(directory: &Path, server: &Server, signal_name: &str, command: &[&str]) {
    let before = server.requests().len();
    let mut program = program(directory);
    program.env("STORAGE_EMULATOR_HOST", server.url("")).args(command).arg("--quiet");
    let mut child = program.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until(&mut child, || server.requests().len() > before);
    let requests = || server.requests().len();
    std::thread::sleep(Duration::from_millis(50));
    let (sent, asked) = (requests(), Instant::now());
    signal(&child, signal_name);
    let ended = child.wait_with_output().unwrap();
    let error = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!((ended.status.code(), &*error), (Some(130), "shardstream: interrupted\n"), "{command:?}");
    assert!(asked.elapsed() < SOON, "{command:?}: {:?}", asked.elapsed());
    assert_eq!(requests(), sent, "{command:?} starts requests anew");
}

#[test]
fn one_signal_ends_a_command_wherever_it_waits_for_a_store() {
    let dir = demo();
    let silent = Server::start(|_| {
        std::thread::sleep(Duration::from_secs(90));
        Reply::new(503, "")
    });
    let url = silent.url("/a.tar");
    let reading = [
        &["info", &url][..],
        &["info", "--fast", &url],
        &["ls", "-l", &url],
        &["ls", "gs://bucket/*.tar"],
        &["head", &url],
        &["cat", "--field", "txt", &url],
        &["verify", &url],
        &["stats", &url],
        &["extract", &url, "--to", "out"],
        &["index", "build", &url, "--to", "i.json"],
        &["plan", "data", "--index", &url],
        &["bench", &url],
        &["cp", &url, "copy"],
        &["sync", "gs://bucket", "copy"],
        &["reshard", &url, "--to", "new/%d.tar"],
    ];
    let writing = [
        &["cp", "data/train-000000.tar", "gs://bucket/"][..],
        &["reshard", "data", "--to", "gs://bucket/%d.tar"],
    ];
    let commands = reading.into_iter().chain(writing);
    for (command, name) in commands.zip(["INT", "TERM"].into_iter().cycle()) {
        interrupt_at_server(dir.path(), &silent, name, command);
    }
    let slow = Server::start(|_| Reply::new(200, vec![0; 1 << 20]).dripping(512, Duration::from_millis(50)));
    for command in [&["info", &slow.url("/a.tar")][..], &["cp", &slow.url("/a.tar"), "copy"]] {
        interrupt_at_server(dir.path(), &slow, "INT", command);
    }
    // A command that pauses between retries.
    let busy = Server::start(|_| Reply::new(503, "").with("Retry-After", 60));
    interrupt_at_server(dir.path(), &busy, "INT", &["info", &busy.url("/a.tar")]);
}

/// Commands that decompress for seconds, and write nothing meanwhile.
#[cfg(target_os = "linux")]
#[test]
fn one_signal_ends_a_command_wherever_it_computes() {
    let dir = tempfile::tempdir().unwrap();
    let pattern = dir.path().join("%d.tar.gz");
    let mut writer = ShardWriter::builder(pattern.to_str().unwrap()).build().unwrap();
    let (zeros, last) = (vec![0; 4 << 20], 30);
    for number in 0..=last {
        let bytes = if number < last { &zeros[..] } else { b"wanted" };
        writer.write(&Sample::new(format!("{number:03}")).with("bin", bytes)).unwrap();
    }
    writer.finish().unwrap();
    fs::write(dir.path().join("wanted"), format!("{last:03}\n")).unwrap();
    let plan = dir.path().join("out/shards.plan.json");
    let reshard = ["reshard", "0.tar.gz", "--keys", "wanted", "--to", "out/%d.tar"];
    let commands = [
        &["verify", "0.tar.gz", "--decode"][..],
        &["stats", "0.tar.gz"],
        &["index", "build", "0.tar.gz", "--to", "i.json"],
        &["cat", "0.tar.gz", "--field", "bin", "--key", "030"],
        // Interrupts `reshard` while it reads the headers, and while it skips the samples before the wanted
        // sample.
        &reshard,
        &reshard,
    ];
    for (number, command) in commands.into_iter().enumerate() {
        let mut program = program(dir.path());
        program.args(command).arg("--quiet").stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = program.spawn().unwrap();
        wait_for_handler(&mut child);
        if number == commands.len() - 1 {
            wait_until(&mut child, || plan.exists());
        }
        let asked = Instant::now();
        signal(&child, "INT");
        let ended = child.wait_with_output().unwrap();
        let error = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert_eq!((ended.status.code(), &*error), (Some(130), "shardstream: interrupted\n"), "{command:?}");
        assert!(asked.elapsed() < SOON, "{command:?}: {:?}", asked.elapsed());
    }
    let left = fs::read_dir(dir.path().join("out")).unwrap().map(|entry| entry.unwrap().path());
    assert_eq!(left.collect::<Vec<_>>(), [plan]);
}

#[test]
fn a_waiting_command_says_what_it_waits_for() {
    let dir = demo();
    let silent = Server::start(|_| {
        std::thread::sleep(Duration::from_secs(90));
        Reply::new(503, "")
    });
    let url = silent.url("/a.tar?sig=s3cret");
    let waits = [
        (&["info", &url][..], "/a.tar?[redacted] bytes 0-"),
        (&["ls", "gs://bucket/*.tar"], "gs://bucket/: its listing began "),
        (&["cp", "data/train-000000.tar", "gs://bucket/"], "gs://bucket/train-000000.tar"),
    ];
    for (command, what) in waits {
        let mut program = program(dir.path());
        program.env("STORAGE_EMULATOR_HOST", silent.url("")).args(command).args(["--progress", "1"]);
        let mut child = program.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
        let line = lines.find(|line| line.starts_with("shardstream: waiting for ")).unwrap();
        assert!(line.contains(what) && !line.contains("s3cret"), "{command:?}: {line}");
        signal(&child, "INT");
        assert_eq!(child.wait().unwrap().code(), Some(130));
    }
}
