//! `shardstream ls`

use crate::program::{demo, failure, output, program};
use std::process::Stdio;

#[test]
fn expands_braces_wildcards_and_directories() {
    let dir = demo();
    let three = "data/train-000000.tar\ndata/train-000001.tar\ndata/train-000002.tar\n";
    assert_eq!(output(dir.path(), &["ls", "data/train-{000000..000002}.tar"]), three);
    assert_eq!(output(dir.path(), &["ls", "data/train-*.tar"]), three);
    std::fs::write(dir.path().join("data/readme.txt"), "no shard").unwrap();
    assert_eq!(output(dir.path(), &["ls", "data"]), three);
    assert_eq!(output(dir.path(), &["ls", "data/"]), three);
}

#[test]
fn shows_sizes_and_a_total() {
    let dir = demo();
    assert_eq!(
        output(dir.path(), &["ls", "-l", "data/train-00000{0,2}.tar"]),
        " bytes  shard\n\
         20,480  data/train-000000.tar\n\
         20,480  data/train-000002.tar\n\
         2 shards, 41.0 kB (40,960 bytes)\n"
    );
    let records = output(dir.path(), &["ls", "--json", "data"]);
    let first: serde_json::Value = serde_json::from_str(records.lines().next().unwrap()).unwrap();
    assert_eq!((&first["url"], &first["bytes"]), (&"data/train-000000.tar".into(), &20_480.into()));
    assert!(first["version"].is_string() && records.lines().count() == 3, "{records}");
}

#[test]
fn a_missing_shard_is_an_error_of_one_line() {
    let dir = demo();
    let error = failure(dir.path(), &["ls", "-l", "data/val-000000.tar"], 1);
    assert_eq!(error.lines().count(), 1, "{error}");
    assert!(error.starts_with("shardstream: not found (shard data/val-000000.tar)"), "{error}");
    let error = failure(dir.path(), &["ls", "data/val-*.tar"], 1);
    assert!(error.starts_with("shardstream: no shards"), "{error}");
    failure(dir.path(), &["ls"], 2);
}

#[test]
fn secrets_are_not_shown() {
    let dir = demo();
    let shown = output(dir.path(), &["ls", "https://me:s3cret@host/train-{0..1}.tar?signature=s3cret"]);
    assert_eq!(shown.lines().count(), 2, "{shown}");
    assert!(!shown.contains("s3cret"), "{shown}");
}

#[test]
fn a_closed_pipe_ends_the_program_quietly() {
    let dir = demo();
    let mut child = program(dir.path())
        .args(["ls", "s3://bucket/train-{000000..999999}.tar"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), &*output.stderr), (Some(0), &b""[..]));
}

#[test]
fn patterns_come_from_a_list_too() {
    let dir = demo();
    let list = "# of today\ndata/train-000002.tar\n\n data/train-00000{0,1}.tar \n";
    std::fs::write(dir.path().join("list.txt"), list).unwrap();
    let names = "data/train-000002.tar\ndata/train-000000.tar\ndata/train-000001.tar\n";
    assert_eq!(output(dir.path(), &["ls", "--list", "list.txt"]), names);
    let mut command = program(dir.path());
    let command = command
        .args(["ls", "-l", "--list", "-"])
        .stdin(std::fs::File::open(dir.path().join("list.txt")).unwrap());
    let ran = command.output().unwrap();
    assert!(String::from_utf8_lossy(&ran.stdout).ends_with("3 shards, 61.4 kB (61,440 bytes)\n"), "{ran:?}");
}
