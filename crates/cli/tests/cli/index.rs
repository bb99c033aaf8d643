//! `shardstream index`

use crate::program::{demo, failure, output, run, unread, write};
use crate::support::Every;
use crate::support::python::Python;
use crate::support::read_content;
use serde_json::Value as Json;
use shardstream::Index;
use shardstream::store::Store;
use std::fs;
use std::path::Path;

fn load(directory: &Path, name: &str) -> Index {
    Index::load(&Store::default(), directory.join(name).to_str().unwrap()).unwrap()
}

#[test]
fn the_program_builds_the_index_that_the_library_builds() {
    let dir = demo();
    let said = output(dir.path(), &["index", "build", "data", "--to", "data/index.json", "--checksums"]);
    assert_eq!(said, "data/index.json: 3 shards of 12 samples\n");
    let index = load(dir.path(), "data/index.json");
    assert!(index.iter().every(|shard| shard.checksum_of(3).is_some() && shard.range(0..4).is_some()));
    assert_eq!(
        output(dir.path(), &["index", "info", "data/index.json"]),
        "shards            3\n\
         samples           12\n\
         bytes             61.4 kB\n\
         fields            cls, json, png, txt\n\
         places of samples all\n\
         checksums         all\n"
    );
    output(dir.path(), &["index", "build", "data", "--to", "i.shidx"]);
    assert!(fs::read(dir.path().join("i.shidx")).unwrap().len() < 1000);
    let info = output(dir.path(), &["index", "info", "--json", "i.shidx"]);
    let info: Json = serde_json::from_str(&info).unwrap();
    assert_eq!((&info["samples"], &info["checksums"], &info["located"]), (&12.into(), &0.into(), &3.into()));
}

#[test]
fn an_update_reads_only_what_changed() {
    let dir = demo();
    let build = ["index", "build", "data", "--to", "i.json", "--update"];
    output(dir.path(), &build);
    let before = load(dir.path(), "i.json");
    // A damaged shard cannot be indexed. With its old modification time, the shard counts as unchanged and is
    // not read.
    let shard = dir.path().join("data/train-000001.tar");
    let (whole, time) = (fs::read(&shard).unwrap(), fs::metadata(&shard).unwrap().modified().unwrap());
    let mut bytes = whole.clone();
    bytes[10] ^= 1;
    fs::write(&shard, &bytes).unwrap();
    fs::File::options().write(true).open(&shard).unwrap().set_modified(time).unwrap();
    write(&dir.path().join("data/new-%06d.tar"), 2, 2);
    assert_eq!(output(dir.path(), &build), "i.json: 4 shards of 14 samples\n");
    assert!(before.iter().every(|shard| load(dir.path(), "i.json").get(shard.url()).is_some()));
    fs::write(&shard, &bytes).unwrap();
    let error = failure(dir.path(), &build, 1);
    assert!(error.contains("bad tar header checksum") && error.contains("train-000001.tar"), "{error}");
}

#[test]
fn a_check_finds_what_changed_is_missing_or_new() {
    let dir = demo();
    output(dir.path(), &["index", "build", "data", "--to", "i.json"]);
    let url = format!("file://{}/data/*.tar", dir.path().display());
    for pattern in ["data", "./data/../data", dir.path().join("data").to_str().unwrap(), &url] {
        let said = output(dir.path(), &["index", "check", "i.json", pattern]);
        assert_eq!(said, "3 shards: as indexed\n", "{pattern}");
    }
    fs::remove_file(dir.path().join("data/train-000000.tar")).unwrap();
    fs::write(dir.path().join("data/train-000002.tar"), "short").unwrap();
    write(&dir.path().join("data/new-%06d.tar"), 2, 2);
    let ran = run(dir.path(), &["index", "check", "i.json"]);
    let lines: Vec<&str> = ran.out.lines().collect();
    assert_eq!((ran.code, lines.len(), lines[0]), (Some(3), 2, "data/train-000000.tar: missing"));
    assert!(lines[1].starts_with("data/train-000002.tar: changed: it had 20480 bytes, version "), "{ran:?}");
    let ran = run(dir.path(), &["index", "check", "--json", "i.json", "data"]);
    let found: Vec<Json> = ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let found: Vec<&str> = found.iter().map(|found| found["found"].as_str().unwrap()).collect();
    assert_eq!((ran.code, found), (Some(3), vec!["missing", "changed", "new"]));
}

#[test]
fn a_closed_pipe_does_not_hide_missing_shards() {
    let dir = tempfile::tempdir().unwrap();
    write(&dir.path().join("data/%04d.tar"), 400, 1);
    output(dir.path(), &["index", "build", "data", "--to", "i.json"]);
    fs::remove_dir_all(dir.path().join("data")).unwrap();
    assert_eq!(unread(dir.path(), &["index", "check", "--json", "i.json"]), Some(3));
}

#[test]
fn indexes_are_merged_in_order() {
    let dir = demo();
    for (name, pattern) in [("a", "data/train-00000{0,1}.tar"), ("b", "data/train-00000{1,2}.tar")] {
        output(dir.path(), &["index", "build", pattern, "--to", &format!("{name}.json")]);
    }
    let said = output(dir.path(), &["index", "merge", "a.json", "b.json", "--to", "both.json"]);
    assert_eq!(said, "both.json: 3 shards of 12 samples\n");
    output(dir.path(), &["index", "build", "data", "--to", "all.json"]);
    assert_eq!(load(dir.path(), "both.json"), load(dir.path(), "all.json"));
    // Other spellings of the same paths.
    let here = dir.path().display();
    for (name, place) in
        [("p", format!("{here}/data")), ("q", "data/../data".into()), ("r", format!("file://{here}/data/"))]
    {
        output(dir.path(), &["index", "build", &place, "--to", &format!("{name}.json")]);
    }
    let said =
        output(dir.path(), &["index", "merge", "p.json", "a.json", "q.json", "r.json", "--to", "same.json"]);
    assert_eq!(said, "same.json: 3 shards of 12 samples\n");
    write(&dir.path().join("data/train-%06d.tar"), 6, 3);
    output(dir.path(), &["index", "build", &format!("{here}/data/train-000001.tar"), "--to", "c.json"]);
    let error = failure(dir.path(), &["index", "merge", "a.json", "c.json", "--to", "d.json"], 1);
    assert!(
        error.contains("have different entries of the shard") && error.contains("train-000001.tar"),
        "{error}"
    );
    assert!(!dir.path().join("d.json").exists());
}

#[test]
fn documents_of_wids_are_imported_and_exported() {
    let dir = demo();
    output(dir.path(), &["index", "build", "data", "--to", "data/i.json"]);
    output(dir.path(), &["index", "export-wids", "data/i.json", "--to", "data/wids.json"]);
    let wids: Json = serde_json::from_slice(&fs::read(dir.path().join("data/wids.json")).unwrap()).unwrap();
    assert_eq!((&wids["__kind__"], &wids["wids_version"]), (&"wids-shard-index-v1".into(), &1.into()));
    let first = &wids["shardlist"][0];
    assert_eq!((&first["url"], &first["nsamples"]), (&"train-000000.tar".into(), &4.into()));
    assert_eq!((&first["filesize"], first.get("layout")), (&20480.into(), None));
    output(dir.path(), &["index", "import-wids", "data/wids.json", "--to", "data/again.json"]);
    assert_eq!(load(dir.path(), "data/again.json"), load(dir.path(), "data/i.json"));
    // `wids.json` says one sample fewer than the shard has.
    let text = fs::read_to_string(dir.path().join("data/wids.json")).unwrap();
    fs::write(
        dir.path().join("data/wids.json"),
        text.replacen("\"nsamples\":4", "\"nsamples\":3", 1).replacen(
            "\"nsamples\": 4",
            "\"nsamples\": 3",
            1,
        ),
    )
    .unwrap();
    let error = failure(dir.path(), &["index", "import-wids", "data/wids.json", "--to", "x.json"], 1);
    assert!(error.contains("has 4 samples, but the document says 3"), "{error}");
    failure(dir.path(), &["index", "export-wids", "data/i.json", "--to", "x.shidx"], 2);
}

/// Python's `wids` reads the samples that `export-wids` lists.
#[test]
#[ignore = "needs Python with webdataset and wids: see CONTRIBUTING.md"]
fn wids_reads_an_exported_document() {
    let python = Python::with_wids();
    let dir = demo();
    output(dir.path(), &["index", "build", "data", "--to", "data/i.json"]);
    output(dir.path(), &["index", "export-wids", "data/i.json", "--to", "data/wids.json"]);
    let shards: Vec<_> = (0..3).map(|n| dir.path().join(format!("data/train-{n:06}.tar"))).collect();
    let paths: Vec<&Path> = shards.iter().map(|path| &**path).collect();
    let read = python.wids(&dir.path().join("data/wids.json"), &dir.path().join("theirs.json"), &paths);
    assert_eq!(read, paths.iter().flat_map(|path| read_content(path)).collect::<Vec<_>>());
}
