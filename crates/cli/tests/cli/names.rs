//! Names from shards and buckets never lead out of a directory, and never control a terminal.

use crate::program::{Ran, demo, output, program, run};
use crate::support::{archive, bucket, member};
use shardstream::Sample;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Maps the path of each file below a directory to the file's content.
fn tree(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut todo = vec![directory.to_owned()];
    while let Some(next) = todo.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                todo.push(path);
                continue;
            }
            let name = path.strip_prefix(directory).unwrap().to_str().unwrap().to_owned();
            found.insert(name, fs::read(path).unwrap());
        }
    }
    found
}

#[test]
fn names_of_members_are_not_decoded_below_a_file_url() {
    let dir = tempfile::tempdir().unwrap();
    let names = ["x%2f..%2f..%2fvictim%2fo.txt", "%2e%2e/victim/o.txt", "xA.txt", "x%41.txt"];
    let members = names.map(|name| member(name, tar::EntryType::Regular, name.as_bytes()));
    fs::write(dir.path().join("in.tar"), [members.concat(), vec![0; 1024]].concat()).unwrap();
    fs::create_dir(dir.path().join("victim")).unwrap();
    fs::write(dir.path().join("victim/o.txt"), "mine").unwrap();
    for to in ["file:deep".to_owned(), format!("file://{}/deep", dir.path().display())] {
        output(dir.path(), &["extract", "in.tar", "--to", &to]);
        assert_eq!(fs::read(dir.path().join("victim/o.txt")).unwrap(), b"mine");
        let written = tree(&dir.path().join("deep"));
        assert_eq!(written.len(), names.len(), "{written:?}");
        assert!(names.iter().all(|name| written[*name] == name.as_bytes()), "{written:?}");
        fs::remove_dir_all(dir.path().join("deep")).unwrap();
    }
}

#[test]
fn keys_of_a_bucket_are_not_decoded_below_a_file_url() {
    let dir = tempfile::tempdir().unwrap();
    let names = ["xA.tar", "x%41.tar", "%2e%2e%2fvictim%2fo.tar"];
    let keys = names.map(|name| format!("d/{name}"));
    let server = bucket::start_holding(&keys.each_ref().map(String::as_str));
    fs::create_dir(dir.path().join("victim")).unwrap();
    fs::write(dir.path().join("victim/o.tar"), "mine").unwrap();
    let url = format!("file://{}/out/", dir.path().display());
    for (command, to) in [("cp", "file:out/"), ("sync", &url), ("cp", "out")] {
        let mut copy = program(dir.path());
        copy.args([command, "gs://bucket/d/*.tar", to]).env("STORAGE_EMULATOR_HOST", server.url(""));
        let ran = Ran::from(copy.output().unwrap());
        assert!(ran.code == Some(0) && ran.out.starts_with("3 objects copied"), "{ran:?}");
        assert_eq!(fs::read(dir.path().join("victim/o.tar")).unwrap(), b"mine");
        let copied = tree(&dir.path().join("out"));
        assert_eq!(copied.len(), names.len() + 1, "with the records of copies: {copied:?}");
        assert!(names.iter().zip(&keys).all(|(name, key)| copied[*name] == key.as_bytes()), "{copied:?}");
        fs::remove_dir_all(dir.path().join("out")).unwrap();
    }
}

#[test]
fn names_in_file_urls_keep_their_meaning_when_they_are_copied() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("in")).unwrap();
    fs::write(dir.path().join("in/a b%41.tar"), "content").unwrap();
    let from = format!("file://{}/in/a%20b%2541.tar", dir.path().display());
    for to in ["out/", "file:out/"] {
        output(dir.path(), &["cp", &from, to]);
        assert_eq!(fs::read(dir.path().join("out/a b%41.tar")).unwrap(), b"content");
        fs::remove_dir_all(dir.path().join("out")).unwrap();
    }
}

/// The control characters in the output of a run, except for line breaks.
fn control_characters(ran: &Ran) -> String {
    let text = [&*ran.out, &ran.err].concat();
    text.chars().filter(|character| character.is_control() && *character != '\n').collect()
}

#[test]
#[cfg(unix)]
fn control_characters_of_names_and_texts_do_not_reach_the_terminal() {
    let dir = tempfile::tempdir().unwrap();
    let shard = "a\u{1b}[31m\u{9b}2J\u{7f}\nb.tar";
    fs::create_dir(dir.path().join("d")).unwrap();
    let sample = Sample::new("k\u{1b}[2J\u{9b}").with("txt", "t\u{1b}]0;title\u{7}\u{9b}2J");
    let bytes = archive(&[sample]);
    fs::write(dir.path().join("d").join(shard), &bytes).unwrap();
    output(dir.path(), &["index", "build", "d/", "--to", "d.json"]);
    // A changed shard, whose version in the index has control characters.
    let mut index: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(dir.path().join("d.json")).unwrap()).unwrap();
    index["shardlist"][0]["version"] = "v\u{1b}[31m\u{9b}".into();
    index["shardlist"][0]["filesize"] = 1_000_000.into();
    fs::write(dir.path().join("odd.json"), index.to_string()).unwrap();
    // A damaged shard.
    fs::create_dir(dir.path().join("cut")).unwrap();
    fs::write(dir.path().join("cut").join(shard), &bytes[..700]).unwrap();
    for (command, code) in [
        (&["ls", "d/"][..], 0),
        (&["ls", "-l", "d/"], 0),
        (&["ls", "--json", "d/"], 0),
        (&["head", "d/"], 0),
        (&["head", "--json", "d/"], 0),
        (&["info", "d/"], 0),
        (&["stats", "d/", "--label", "txt"], 0),
        (&["verify", "d/"], 0),
        (&["verify", "cut/"], 3),
        (&["verify", "--json", "cut/"], 3),
        (&["index", "info", "odd.json"], 0),
        (&["index", "check", "odd.json"], 3),
        (&["index", "check", "--json", "odd.json"], 3),
        (&["reshard", "cut/", "--to", "out/%d.tar"], 1),
        (&["bench", "d/", "--seconds", "0.1", "--threads", "1", "--log", "debug"], 0),
    ] {
        let ran = run(dir.path(), command);
        assert_eq!(ran.code, Some(code), "{command:?}: {ran:?}");
        assert!(!ran.out.is_empty() || code == 1, "{command:?}");
        assert_eq!(control_characters(&ran), "", "{command:?}: {ran:?}");
    }
    assert_eq!(run(dir.path(), &["ls", "d/"]).out.lines().count(), 1, "a line break in a name is escaped");
    // `cat` writes the stored bytes.
    let raw = program(dir.path()).args(["cat", "--field", "txt", "--nth", "0", "d/"]).output().unwrap();
    assert_eq!(raw.stdout, "t\u{1b}]0;title\u{7}\u{9b}2J".as_bytes());
}

#[test]
fn a_log_has_no_colours() {
    let dir = demo();
    let ran = run(dir.path(), &["bench", "data", "--seconds", "0.1", "--quiet", "--log", "debug"]);
    assert!(ran.code == Some(0) && ran.err.contains("DEBUG"), "{ran:?}");
    assert_eq!(control_characters(&ran), "", "{ran:?}");
}
