//! `shardstream bench`

use crate::program::{demo, failure, output};
use crate::support::Every;
use serde_json::Value;

#[test]
fn each_stage_and_the_slowest_of_them() {
    let dir = demo();
    let text = output(dir.path(), &["bench", "data", "--seconds", "0.1", "--decode", "-j", "1"]);
    for what in ["\nread ", "\nparse ", "\ndecode ", "\nloader ", "\ntry: ", "\nloader: "] {
        assert!(text.contains(what), "{what}: {text}");
    }
    // The slowest stage depends on the machine. A unit test checks the choice for given rates.
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
fn settings_in_turn() {
    let dir = demo();
    let text = output(dir.path(), &["bench", "data", "--seconds", "0.05", "--compare", "threads=1,2"]);
    assert!(text.contains("threads=1 ") && text.contains("\nfastest: threads="), "{text}");
    failure(dir.path(), &["bench", "data", "--compare", "colour=1"], 2);
    failure(dir.path(), &["bench", "data", "--seconds", "0"], 2);
}
