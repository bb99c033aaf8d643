//! The pattern `-`: an archive on stdin.

use crate::program::{Ran, demo, output, program};
use std::fs::{self, File};
use std::path::Path;
use std::process::Stdio;

/// Runs the program with this file as stdin.
fn run(directory: &Path, file: &str, arguments: &[&str]) -> Ran {
    let stdin = File::open(directory.join(file)).unwrap();
    program(directory).args(arguments).stdin(stdin).output().unwrap().into()
}

#[test]
fn commands_that_read_an_archive_once_read_it_from_stdin() {
    let dir = demo();
    let shard = "data/train-000001.tar";
    for command in [
        &["info"][..],
        &["info", "--json"],
        &["info", "-n", "3"],
        &["stats"],
        &["cat", "--field", "txt"],
        &["cat", "--field", "txt", "--key", "000005"],
        &["cat", "--field", "txt", "--nth", "3"],
        &["head", "-n", "2", "--json"],
    ] {
        let expected = output(dir.path(), &[command, &[shard]].concat()).replace(shard, "stdin");
        let ran = run(dir.path(), shard, &[command, &["-"]].concat());
        assert_eq!((ran.code, &*ran.err, &*ran.out), (Some(0), "", &*expected), "{command:?}");
    }
    output(dir.path(), &["extract", shard, "--to", "expected"]);
    assert_eq!(run(dir.path(), shard, &["extract", "-", "--to", "out"]).code, Some(0));
    for entry in fs::read_dir(dir.path().join("expected")).unwrap() {
        let name = entry.unwrap().file_name();
        let read = |folder: &str| fs::read(dir.path().join(folder).join(&name)).unwrap();
        assert!(read("out") == read("expected"), "{name:?}");
    }
    // Stdin can be one of several shards. `info` shows the same size, whether the archive arrives in few or
    // many writes.
    let expected = output(dir.path(), &["info", "data"]);
    let several = ["info", "data/train-000000.tar", "-", "data/train-000002.tar"];
    assert_eq!(run(dir.path(), shard, &several).out, expected);
    let mut child = program(dir.path());
    let mut child = child.args(["info", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    for part in fs::read(dir.path().join(shard)).unwrap().chunks(700) {
        std::io::Write::write_all(&mut stdin, part).unwrap();
    }
    drop(stdin);
    let piped = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
    assert_eq!(piped, output(dir.path(), &["info", shard]));
}

#[test]
fn errors_of_stdin_say_what_to_do() {
    let dir = demo();
    let shard = "data/train-000001.tar";
    output(dir.path(), &["index", "build", "data", "--to", "index.json"]);
    for command in [
        &["ls", "-"][..],
        &["verify", "-"],
        &["plan", "-"],
        &["cp", "-", "copy/"],
        &["reshard", "-", "--to", "out/%d.tar"],
        &["index", "build", "-", "--to", "i.json"],
        &["info", "--fast", "-"],
        &["cat", "--field", "txt", "--index", "index.json", "-"],
    ] {
        let ran = run(dir.path(), shard, command);
        assert_eq!(ran.code, Some(2), "{command:?}: {ran:?}");
        assert!(ran.err.contains("the shard - is stdin") && ran.err.contains("./-"), "{command:?}: {ran:?}");
    }
    for command in [&["info", "-", "-"][..], &["info", "-", "--list", "-"]] {
        let ran = run(dir.path(), shard, command);
        assert_eq!(ran.code, Some(2), "{command:?}: {ran:?}");
        assert!(ran.err.contains("stdin can be read only once"), "{command:?}: {ran:?}");
    }
    fs::write(dir.path().join("text"), "not an archive\n".repeat(100)).unwrap();
    let ran = run(dir.path(), "text", &["info", "-"]);
    assert!(ran.code == Some(1) && ran.err.contains("shard stdin"), "{ran:?}");
    fs::write(dir.path().join("-"), fs::read(dir.path().join(shard)).unwrap()).unwrap();
    assert_eq!(output(dir.path(), &["info", "./-"]), output(dir.path(), &["info", shard]));
}
