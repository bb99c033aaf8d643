//! `--log` and `bench --trace`: events on stderr, and a timeline of the threads.

use crate::program::{demo, failure, program};
use shardstream::Sample;
use shardstream::write::ShardWriter;
use std::fs;

#[test]
fn log_writes_events_to_stderr_and_trace_writes_a_timeline() {
    let dir = tempfile::tempdir().unwrap();
    let pattern = dir.path().join("%06d.tar");
    let mut writer = ShardWriter::builder(pattern.to_str().unwrap()).max_count(50).build().unwrap();
    for number in 0..100 {
        writer.write(&Sample::new(format!("{number:06}")).with("cls", number)).unwrap();
    }
    writer.finish().unwrap();
    let run = |options: &[&str]| {
        let mut bench = program(dir.path());
        bench.args(["bench", ".", "--seconds", "0.1", "--threads", "2"]).args(options);
        let ran = bench.output().unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        (String::from_utf8(ran.stdout).unwrap(), String::from_utf8(ran.stderr).unwrap())
    };
    let (_, quiet) = run(&["--quiet"]);
    assert!(!quiet.contains("a run over the data"), "{quiet}");
    let (json, log) = run(&["--quiet", "--log", "debug", "--trace", "trace.json", "--json"]);
    for event in ["DEBUG", "a shard is being read", "a run over the data begins"] {
        assert!(log.contains(event), "no `{event}` in {log}");
    }
    let report: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert!(
        report["loader"]["items"].as_u64().unwrap() > 0 && report["loader"]["limit"].is_string(),
        "{json}"
    );
    let trace: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(dir.path().join("trace.json")).unwrap()).unwrap();
    let names = trace.as_array().unwrap().iter().filter_map(|event| event["name"].as_str());
    let names: std::collections::BTreeSet<&str> = names.collect();
    for name in ["read", "map", "collect", "wait for a batch"] {
        assert!(names.contains(name), "no span `{name}` among {names:?}");
    }
}

/// `/dev/full` behaves like a file on a full disk.
#[cfg(target_os = "linux")]
#[test]
fn output_that_does_not_fit_on_the_disk_is_an_error() {
    let dir = demo();
    let bench = ["bench", "data", "--seconds", "0.1", "--threads", "1"];
    let error = failure(dir.path(), &[&bench[..], &["--trace", "/dev/full"]].concat(), 1);
    assert!(error.contains("--trace /dev/full: No space left on device"), "{error}");
    let mut full = program(dir.path());
    let full_file = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let ran = full.args(["ls", "data"]).stdout(full_file).output().unwrap();
    let error = String::from_utf8_lossy(&ran.stderr);
    assert_eq!(ran.status.code(), Some(1), "{error}");
    assert!(error.contains("cannot write the output: No space left"), "{error}");
}
