//! Leaving out bad samples: `verify --to-list`, `reshard --without`, `--only`, `--skip-bad`, `--rekey`.

use super::{keys, samples};
use crate::program::{Ran, demo, failure, output, run, write};
use crate::support::archive;
use shardstream::Sample;
use std::fs;
use std::path::Path;
#[cfg(unix)]
use std::process::Command;

/// Writes a shard of 40 samples. Sample 1 has an empty field, samples 3 and 4 lack a field, and the `png` of
/// sample 5 is not an image.
fn flawed(directory: &Path) {
    let sample = |number: usize, txt: &str| Sample::new(format!("{number}")).with("txt", txt).with("cls", 1);
    let mut all = vec![sample(0, "a"), sample(1, ""), sample(2, "a")];
    all.extend((3..5).map(|number| Sample::new(number.to_string()).with("txt", "a")));
    all.push(sample(5, "a").with("png", b"no picture"));
    all.extend((6..40).map(|number| sample(number, "a")));
    fs::create_dir_all(directory.join("in")).unwrap();
    fs::write(directory.join("in/0.tar"), archive(&all)).unwrap();
}

#[test]
fn verify_lists_each_bad_sample_and_reshard_leaves_them_out() {
    let dir = tempfile::tempdir().unwrap();
    flawed(dir.path());
    let verify = ["verify", "in", "--decode", "--may-be-empty", "none", "--to-list", "bad.jsonl"];
    let ran = run(dir.path(), &verify);
    assert_eq!(ran.code, Some(3), "{ran:?}");
    let list = fs::read_to_string(dir.path().join("bad.jsonl")).unwrap();
    let lines: Vec<serde_json::Value> =
        list.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let mut listed: Vec<&str> = lines.iter().map(|line| line["key"].as_str().unwrap()).collect();
    listed.sort_unstable();
    assert_eq!(listed, ["1", "3", "4", "5"], "{list}");
    assert!(lines.iter().all(|line| line["shard"] == "in/0.tar"), "{list}");
    let why = |key: &str| lines.iter().find(|line| line["key"] == key).unwrap()["why"].as_str().unwrap();
    assert!(why("1").starts_with("empty_field: ") && why("5").starts_with("decode: "), "{list}");
    assert!(why("4").starts_with("missing_field: ") && why("4").contains("\"cls\""), "{list}");
    // From another directory, the shard has another path.
    let deeper = dir.path().join("deeper");
    fs::create_dir(&deeper).unwrap();
    let reshard = |option: &str, to: &str, list: &str| {
        run(&deeper, &["reshard", "../in", option, list, "--to", to, "--json"])
    };
    let kept = reshard("--without", "good/%d.tar", "../bad.jsonl");
    assert_eq!((kept.code, &*kept.err), (Some(0), ""), "{kept:?}");
    let report: serde_json::Value = serde_json::from_str(&kept.out).unwrap();
    assert_eq!((&report["samples"], &report["left_out"]), (&36.into(), &4.into()), "{report}");
    let found = samples(&deeper.join("good"), "0");
    assert!(keys(&found).iter().all(|key| !listed.contains(key)) && found.len() == 36);
    output(&deeper, &["verify", "good", "--decode"]);
    let looked_at = reshard("--only", "bad/%d.tar", "../bad.jsonl");
    assert_eq!((looked_at.code, &*looked_at.err), (Some(0), ""), "{looked_at:?}");
    assert_eq!(keys(&samples(&deeper.join("bad"), "0")), ["1", "3", "4", "5"]);
    // If the shards have no bad samples, the list is empty.
    output(&deeper, &["verify", "good", "--to-list", "none.jsonl"]);
    assert_eq!(fs::read(deeper.join("none.jsonl")).unwrap(), b"");
    assert_eq!(reshard("--without", "all/%d.tar", "none.jsonl").code, Some(0));
}

#[test]
fn a_list_is_written_from_a_resumed_log_too() {
    let dir = tempfile::tempdir().unwrap();
    flawed(dir.path());
    let verify = |list: &str| {
        let ran = run(dir.path(), &["verify", "in", "--resume", "log", "--to-list", list]);
        (ran.out.contains("verified before"), fs::read_to_string(dir.path().join(list)).unwrap())
    };
    let (first, second) = (verify("a"), verify("b"));
    assert!(!first.0 && second.0);
    assert_eq!((first.1.lines().count(), &first.1), (3, &second.1));
}

#[test]
fn lists_without_such_samples_and_invalid_lists() {
    let dir = demo();
    let reshard = |list: &str, to: &str| {
        fs::write(dir.path().join("list"), list).unwrap();
        run(dir.path(), &["reshard", "data", "--without", "list", "--to", to])
    };
    // A line without a shard selects the key in all shards. Keys that no shard has are ignored.
    let ran = reshard(
        "{\"key\":\"000001\",\"kind\":7}\n\n{\"shard\":\"elsewhere/no.tar\",\"key\":\"000002\"}\n",
        "a/%d.tar",
    );
    assert_eq!((ran.code, &*ran.err), (Some(0), "shardstream: list names 1 sample that no shard has\n"));
    assert_eq!(keys(&samples(&dir.path().join("a"), "0")).len(), 11);
    let ran = reshard("{\"shard\":\"data/train-000000.tar\",\"why\":\"truncated\"}\n", "b/%d.tar");
    assert!(ran.code == Some(0) && ran.err.contains("list: 1 line without a key"), "{ran:?}");
    let ran = reshard("000001\n{}\n", "c/%d.tar");
    assert!(ran.code == Some(1) && ran.err.contains("list: line 1 is not a sample"), "{ran:?}");
    assert!(!dir.path().join("c").exists());
    failure(dir.path(), &["reshard", "data", "--without", "list", "--only", "list", "--to", "d/%d.tar"], 2);
}

/// An archive of 30 samples. Sample 3 has a link as its `txt`, sample 7 has two members with the same name,
/// and sample 9 has a sparse file as its `txt`.
fn damaged() -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    let mut add = |name: &str, kind: tar::EntryType, content: &[u8]| {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_entry_type(kind);
        if kind == tar::EntryType::Symlink {
            header.set_link_name("elsewhere").unwrap();
        }
        archive.append_data(&mut header, name, content).unwrap();
    };
    for number in 0..30 {
        let name = |field: &str| format!("{number:02}.{field}");
        match number {
            3 => add(&name("txt"), tar::EntryType::Symlink, b""),
            7 => add(&name("cls"), tar::EntryType::Regular, b"1"),
            9 => add(&name("txt"), tar::EntryType::GNUSparse, &[7; 700]),
            _ => add(&name("txt"), tar::EntryType::Regular, &[b'a'; 700]),
        }
        add(&name("cls"), tar::EntryType::Regular, b"1");
    }
    archive.into_inner().unwrap()
}

fn resharded(directory: &Path, more: &[&str]) -> Ran {
    let _ = fs::remove_dir_all(directory.join("out"));
    run(directory, &[&["reshard", "in", "--to", "out/%d.tar", "--json"], more].concat())
}

#[test]
fn damaged_samples_are_left_out_up_to_a_limit() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("in")).unwrap();
    let whole = damaged();
    // Three forms of the archive: as it is, truncated in sample 20, and with a damaged header in sample 20.
    let at = (0..whole.len()).step_by(512).find(|at| whole[*at..].starts_with(b"20.cls")).unwrap();
    let mut broken = whole.clone();
    broken[at + 3] ^= 1;
    let sound = |until: u32| -> Vec<String> {
        (0..until).filter(|n| ![3, 7, 9].contains(n)).map(|n| format!("{n:02}")).collect()
    };
    for (bytes, until, left_out) in [(&whole[..], 30, 3), (&whole[..at], 20, 4), (&broken, 20, 4)] {
        fs::write(dir.path().join("in/0.tar"), bytes).unwrap();
        assert_eq!(resharded(dir.path(), &[]).code, Some(1));
        for more in [&[][..], &["--count", "4"], &["--shuffle", "5", "--count", "7"]] {
            let ran = resharded(dir.path(), &[&["--skip-bad"], more].concat());
            assert_eq!(ran.code, Some(0), "{ran:?}");
            let report: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
            assert_eq!(report["left_out"], left_out, "{ran:?}");
            assert_eq!(ran.err.lines().filter(|line| line.contains("left out: ")).count(), left_out);
            assert!(ran.err.contains("a sparse member") && ran.err.contains("sample 09"), "{ran:?}");
            let found = samples(&dir.path().join("out"), "");
            let mut found: Vec<&str> = keys(&found);
            found.sort_unstable();
            assert_eq!(found, sound(until), "{more:?}");
            output(dir.path(), &["verify", "out"]);
        }
        let ran = resharded(dir.path(), &["--skip-bad=2"]);
        let many = format!("{left_out} of ");
        assert!(ran.code == Some(1) && ran.err.contains(&many), "{ran:?}");
        assert!(!dir.path().join("out").exists());
    }
    // A missing shard, or a file that is not an archive, is an error and not a damaged sample.
    fs::write(dir.path().join("in/1.tar"), "PK\u{3}\u{4} a zip archive").unwrap();
    assert_eq!(resharded(dir.path(), &["--skip-bad"]).code, Some(1));
}

#[cfg(unix)]
#[test]
fn damaged_samples_of_a_compressed_shard_are_left_out() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("in")).unwrap();
    fs::write(dir.path().join("in/0.tar"), damaged()).unwrap();
    assert!(Command::new("gzip").arg(dir.path().join("in/0.tar")).status().unwrap().success());
    let ran = resharded(dir.path(), &["--skip-bad", "--count", "5"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(keys(&samples(&dir.path().join("out"), "")).len(), 27);
}

#[test]
fn two_created_series_become_one_with_new_keys() {
    let dir = tempfile::tempdir().unwrap();
    write(&dir.path().join("a/%d.tar"), 4, 4);
    write(&dir.path().join("b/%d.tar"), 4, 4);
    let merge = ["reshard", "a", "b", "--to", "both/%d.tar"];
    let error = failure(dir.path(), &merge, 1);
    assert!(error.contains("in the archive already"), "{error}");
    output(dir.path(), &[&merge[..], &["--rekey", "--count", "3"]].concat());
    let both = samples(&dir.path().join("both"), "");
    let expected: Vec<String> = (0..8).map(|number| format!("{number:09}")).collect();
    assert_eq!(keys(&both), expected);
    let fields = |directory: &str| -> Vec<_> {
        samples(&dir.path().join(directory), "").into_iter().map(|(_, fields)| fields).collect()
    };
    assert!([fields("a"), fields("b")].concat() == fields("both"));
    // `--rekey` also works with an index, which has no keys.
    output(dir.path(), &["index", "build", "a", "b", "--to", "ab.json"]);
    let by_index =
        ["reshard", "a", "b", "--index", "ab.json", "--to", "by/%d.tar", "--rekey", "--shuffle", "1"];
    output(dir.path(), &[&by_index[..], &["--count", "5"]].concat());
    assert_eq!(keys(&samples(&dir.path().join("by"), "")), expected);
}

/// The list spells the paths of shards differently than the patterns, and several shards have the same name.
#[test]
fn shards_of_a_list_are_matched_by_their_paths() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["one", "two"] {
        write(&dir.path().join(name).join("%d.tar"), 4, 4);
    }
    let shard = format!("file://{}/one/../two/0.tar", dir.path().display());
    let line = serde_json::json!({"shard": shard, "key": "000002"}).to_string();
    fs::write(dir.path().join("bad.jsonl"), line).unwrap();
    let reshard = ["reshard", "one", "two", "--without", "bad.jsonl", "--to", "out/%d.tar", "--rekey"];
    assert!(output(dir.path(), &reshard).contains("7 samples"));
    let only = ["reshard", "one", "two", "--only", "bad.jsonl", "--to", "only/%d.tar"];
    assert!(output(dir.path(), &only).contains("1 sample"));
}
