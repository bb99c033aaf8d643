//! `shardstream bench`

use crate::program::{demo, failure, output};
use crate::support::Every;
use crate::support::server::{Reply, Server};
use serde_json::Value;
use std::fs;

#[test]
fn bench_measures_each_stage_and_names_the_slowest() {
    let dir = demo();
    let text = output(dir.path(), &["bench", "data", "--seconds", "0.1", "--decode", "-j", "1"]);
    for what in ["\nread ", "\nparse ", "\ndecode ", "\nloader ", "\ntry: ", "\nloader: "] {
        assert!(text.contains(what), "{what}: {text}");
    }
    // The slowest stage depends on the machine. A unit test checks which stage is named for given rates.
    let slowest = text.lines().find_map(|line| line.strip_prefix("slowest: "));
    assert!(matches!(slowest, Some("read" | "parse" | "decode" | "loader")), "{text}");
    let json = output(dir.path(), &["bench", "data", "--seconds", "0.1", "--resize", "16", "--json"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    let stages = json["stages"].as_array().unwrap();
    assert_eq!(stages.len(), 4);
    assert!(stages.iter().every(|stage| stage["bytes_per_second"].as_f64().unwrap() > 0.0), "{stages:?}");
    assert!(stages[1..].iter().every(|stage| stage["samples"].as_u64().unwrap() > 0), "{stages:?}");
    output(dir.path(), &["reshard", "data", "--to", "gz/%d.tar.gz"]);
    let text = output(dir.path(), &["bench", "gz", "--seconds", "0.05"]);
    assert!(text.contains("\ndecompress "), "{text}");
}

#[test]
fn sweep_measures_several_settings() {
    let dir = demo();
    let text = output(dir.path(), &["bench", "data", "--seconds", "0.05", "--compare", "threads=1,2"]);
    assert!(text.contains("threads=1 ") && text.contains("\nfastest: threads="), "{text}");
    failure(dir.path(), &["bench", "data", "--compare", "colour=1"], 2);
    failure(dir.path(), &["bench", "data", "--seconds", "0"], 2);
}

#[test]
fn a_recording_has_the_times_of_requests_but_no_names() {
    let dir = demo();
    let shard = fs::read(dir.path().join("data/train-000000.tar")).unwrap();
    let server = Server::start(move |request| Reply::object(request, &shard, "\"1\""));
    let url = server.url("/secret-bucket/secret-key.tar?sig=s3cret");
    let bench = ["bench", &url, "--seconds", "0.2", "-j", "1", "--record", "requests.jsonl"];
    let here = |command: &[&str]| output(dir.path(), command);
    here(&bench);
    let path = dir.path().join("requests.jsonl");
    let text = fs::read_to_string(&path).unwrap();
    assert!(!text.contains("secret") && !text.contains("s3cret") && !text.contains("127.0.0.1"), "{text}");
    let mut lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let head = lines.next().unwrap();
    assert_eq!((&head["format"], &head["version"]), (&"shardstream requests".into(), &1.into()));
    let requests: Vec<Value> = lines.collect();
    assert!(requests.iter().any(|request| request["outcome"] == "done"), "{text}");
    for name in ["start_us", "offset", "size", "attempt", "first_byte_us", "duration_us", "bytes"] {
        assert!(requests[0][name].is_u64(), "no {name}: {text}");
    }
    // A recording replaces an earlier recording, but no other file.
    here(&bench);
    let shard = dir.path().join("data/train-000000.tar");
    let before = fs::read(&shard).unwrap();
    let over = ["bench", &url, "--seconds", "0.2", "--record", "data/train-000000.tar"];
    let error = failure(dir.path(), &over, 1);
    assert!(error.contains("--record: data/train-000000.tar already exists"), "{error}");
    assert_eq!(fs::read(&shard).unwrap(), before);
}

/// The file of the recording is opened before the measurement.
#[test]
fn a_recording_that_cannot_be_written_fails_the_command() {
    let dir = demo();
    fs::write(dir.path().join("file"), "").unwrap();
    let begun = ["bench", "data", "--seconds", "3600", "--record", "file/requests.jsonl"];
    let error = failure(dir.path(), &begun, 1);
    assert!(error.contains("file/requests.jsonl"), "{error}");
}
