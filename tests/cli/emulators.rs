//! The program over servers that emulate S3 and Azure. A server that is not installed skips its test, see
//! `support/emulator.rs`.

use crate::program::{Ran, demo, output, program};
use crate::support::emulator::Emulator;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

#[test]
fn commands_over_s3() {
    let Some(emulator) = Emulator::s3() else { return };
    commands(&emulator);
}

#[test]
fn commands_over_azure() {
    let Some(emulator) = Emulator::azure() else { return };
    commands(&emulator);
}

/// The files of a directory by name.
fn files(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let file = |path: std::path::PathBuf| {
        (path.file_name().unwrap().to_str().unwrap().to_owned(), fs::read(path).unwrap())
    };
    fs::read_dir(directory).unwrap().map(|entry| file(entry.unwrap().path())).collect()
}

/// Runs each command on shards in the bucket, and compares with what it says of the same shards on the disk.
fn commands(emulator: &Emulator) {
    let dir = demo();
    let shards = files(&dir.path().join("data"));
    for (name, bytes) in &shards {
        emulator.put(&format!("data/{name}"), bytes);
    }
    emulator.put("data/deeper/other.tar", &shards["train-000000.tar"]);
    let there = |arguments: &[&str]| -> Ran {
        let mut command = program(dir.path());
        command.envs(emulator.environment()).args(arguments).output().unwrap().into()
    };
    let done = |arguments: &[&str]| -> String {
        let ran = there(arguments);
        assert_eq!((ran.code, &*ran.err), (Some(0), ""), "{arguments:?}: {ran:?}");
        ran.out
    };
    let here = |arguments: &[&str]| output(dir.path(), arguments);
    let bucket = emulator.bucket();
    let url = |key: &str| format!("{bucket}/{key}");
    let (data, wild) = (url("data/"), url("data/*.tar"));

    let listed = here(&["ls", "-l", "data"]).replace(" data/", &format!(" {data}"));
    assert_eq!(done(&["ls", "-l", &data]), listed);
    assert_eq!(done(&["ls", "-l", &wild]), listed);
    assert_eq!(done(&["ls", &url("data/**/*.tar")]).lines().count(), 4);
    for command in [&["info"][..], &["info", "--fast"], &["stats"], &["cat", "--field", "png"]] {
        let there = done(&[command, &[&wild]].concat());
        assert!(there == here(&[command, &["data"]].concat()), "{command:?}: {there}");
    }
    let head = here(&["head", "-n", "5", "data"]).replace(" data/", &format!(" {data}"));
    assert_eq!(done(&["head", "-n", "5", &data]), head);
    assert_eq!(done(&["cat", "--field", "txt", "--key", "000007", &data]), "a dog on a lawn");

    // To a directory, and to the bucket itself.
    here(&["extract", "data", "--to", "here"]);
    done(&["extract", &data, "--to", "there"]);
    let extracted = files(&dir.path().join("here"));
    assert_eq!((extracted.len(), &extracted), (48, &files(&dir.path().join("there"))));
    let to = url("files");
    let extract = ["extract", &data, "--to", &to, "--keys", "00000[1-3]", "--fields", "txt"];
    assert_eq!(done(&extract), "3 files of 3 samples, 29 B\n");
    let again = there(&extract);
    assert!(again.code == Some(1) && again.err.contains("/files/000001.txt is there already"), "{again:?}");
    assert_eq!(
        done(&[&extract[..], &["--existing", "skip"]].concat()),
        "0 files of 3 samples, 0 B, 3 files that were there\n"
    );

    for name in ["index.json", "index.shidx"] {
        let index = url(name);
        done(&["index", "build", &data, "--to", &index, "--checksums"]);
        assert_eq!(done(&["index", "check", &index, &data]), "3 shards: as indexed\n");
        assert_eq!(done(&["info", "--index", &index]), done(&["info", "--index", &index, &data]));
        let verified = done(&["verify", &data, "--index", &index, "--decode"]);
        assert!(verified.ends_with("3 shards of 12 samples, 61.4 kB: no damage found\n"), "{verified}");
    }
    damage(emulator, &shards, &there);
}

/// Overwrites shards in the bucket: each damage is found, and shown under the shard's URL.
fn damage(emulator: &Emulator, shards: &BTreeMap<String, Vec<u8>>, run: &dyn Fn(&[&str]) -> Ran) {
    let url = |key: &str| format!("{}/{key}", emulator.bucket());
    let (data, index) = (url("data/"), url("index.json"));
    let cut = &shards["train-000001.tar"][..5000];
    let mut flipped = shards["train-000002.tar"].clone();
    // In the bytes of the first field, where a tar archive has no checksum: the object's version tells.
    flipped[600] ^= 1;
    emulator.put("data/train-000001.tar", cut);
    emulator.put("data/train-000002.tar", &flipped);
    let found = run(&["verify", &data, "--index", &index]);
    assert_eq!((found.code, &*found.err), (Some(3), ""), "{found:?}");
    for (shard, kind) in [("1", "truncated"), ("1", "stale"), ("2", "stale")] {
        let shard = url(&format!("data/train-00000{shard}.tar"));
        let is_it = |line: &str| line.starts_with(&*shard) && line.contains(&format!("{kind}: "));
        assert!(found.out.lines().any(is_it), "{shard} {kind}: {found:?}");
    }
    let missing = run(&["verify", &url("data/train-00000{0,7}.tar"), "--json"]);
    assert_eq!(missing.code, Some(3), "{missing:?}");
    assert!(missing.out.contains(r#""kind":"not_found""#), "{missing:?}");
    let checked = run(&["index", "check", &index, &data]);
    assert_eq!((checked.code, checked.out.lines().count()), (Some(3), 2), "{checked:?}");
}
