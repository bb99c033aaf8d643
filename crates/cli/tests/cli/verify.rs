//! `shardstream verify`: every kind of damage is found and named, and the rest of the shard is verified.

use crate::program::{Ran, demo, output, run, sample, unread, write};
use crate::support::Every;
use crate::support::{archive, member};
use serde_json::Value as Json;
use shardstream::Sample;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use tar::EntryType;
use tempfile::TempDir;

/// The findings of a run: kind, key (may be empty), and the whole record.
fn findings(directory: &Path, arguments: &[&str]) -> Vec<(String, String, Json)> {
    let ran = run(directory, &[&["verify", "--json"], arguments].concat());
    let records: Vec<Json> = ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (summary, found) = records.split_last().unwrap();
    assert_eq!(summary["summary"]["findings"], found.len(), "{ran:?}");
    assert_eq!(ran.code, Some(if found.is_empty() { 0 } else { 3 }), "{ran:?}");
    let text = |record: &Json, name: &str| record[name].as_str().unwrap_or_default().to_owned();
    found.iter().map(|record| (text(record, "kind"), text(record, "key"), record.clone())).collect()
}

fn kinds(directory: &Path, arguments: &[&str]) -> Vec<(String, String)> {
    findings(directory, arguments).into_iter().map(|(kind, key, _)| (kind, key)).collect()
}

fn one(kind: &str, key: &str) -> Vec<(String, String)> {
    vec![(kind.into(), key.into())]
}

/// A temporary directory with a shard `a.tar`, whose content is `bytes`.
fn shard(bytes: &[u8]) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.tar"), bytes).unwrap();
    dir
}

/// An archive of members with these names and contents.
fn members(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut bytes: Vec<u8> =
        members.iter().flat_map(|(name, content)| member(name, EntryType::Regular, content)).collect();
    bytes.resize(bytes.len() + 1024, 0);
    bytes
}

#[test]
fn undamaged_shards_have_no_findings() {
    let dir = demo();
    let said = output(dir.path(), &["verify", "data"]);
    assert_eq!(said, "3 shards of 12 samples, 61.4 kB: no damage found\n");
    let said = output(dir.path(), &["verify", "data", "--decode"]);
    assert!(said.starts_with("images png: 12 decoded, height 6 to 8, width 8 to 8\n"), "{said}");
    let summary: Json = serde_json::from_str(&output(dir.path(), &["verify", "--json", "data"])).unwrap();
    assert_eq!(summary["summary"]["samples"], 12);
}

#[test]
fn damage_to_archives_is_found() {
    let samples: Vec<Sample> = (0..6).map(sample).collect();
    let whole = archive(&samples);
    let at = |key: &str| {
        let name = format!("{key}.png");
        whole.windows(name.len()).position(|window| window == name.as_bytes()).unwrap()
    };
    let check = |bytes: &[u8], expected: Vec<(String, String)>| {
        let dir = shard(bytes);
        assert_eq!(kinds(dir.path(), &["a.tar"]), expected);
    };
    check(&whole[..at("000003") + 700], one("truncated", "000003"));
    let mut flipped = whole.clone();
    flipped[at("000002") + 150] ^= 1;
    let dir = shard(&flipped);
    let found = findings(dir.path(), &["a.tar"]);
    assert_eq!((&*found[0].0, found[0].2["offset"].as_u64()), ("checksum", Some(at("000002") as u64)));
    // The next header belongs to another field of the same sample.
    let resumed = format!("; reading resumed at byte {}", at("000002") + 1024);
    assert!(found[0].2["message"].as_str().unwrap().ends_with(&resumed), "{found:?}");
    assert_eq!(found.len(), 1);
    let mut zeros = whole.clone();
    zeros[at("000002")..at("000004")].fill(0);
    check(&zeros, one("archive_end", "000002"));
    check(b"<html>an error page</html>", one("not_an_archive", ""));
    check(&b"<html>an error page</html>".repeat(100), one("not_an_archive", ""));
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(kinds(dir.path(), &["a.tar"]), one("not_found", ""));
}

#[test]
fn damage_to_compressed_shards_is_found() {
    let dir = tempfile::tempdir().unwrap();
    write(&dir.path().join("%d.tar.gz"), 6, 6);
    assert_eq!(kinds(dir.path(), &["0.tar.gz", "--decode"]), []);
    let path = dir.path().join("0.tar.gz");
    let whole = fs::read(&path).unwrap();
    let mut damaged = whole.clone();
    let middle = whole.len() / 2;
    damaged[middle..middle + 40].fill(0xaa);
    fs::write(&path, &damaged).unwrap();
    let found = kinds(dir.path(), &["0.tar.gz"]);
    assert!(!found.is_empty(), "{found:?}");
    fs::write(&path, &whole[..middle]).unwrap();
    let found = kinds(dir.path(), &["0.tar.gz"]);
    assert_eq!((found.len(), &*found[0].0), (1, "decompress"), "{found:?}");
}

#[test]
fn after_a_faulty_sample_the_rest_is_verified() {
    let check = |bytes: &[u8], expected: Vec<(String, String)>| {
        let dir = shard(bytes);
        assert_eq!(kinds(dir.path(), &["a.tar"]), expected);
        let summary = run(dir.path(), &["verify", "a.tar"]).out;
        assert!(summary.contains("1 shard of "), "{summary}");
    };
    check(&members(&[("a.cls", b"1"), ("a.cls", b"2"), ("b.cls", b"3")]), one("duplicate_member", "a"));
    check(
        &members(&[("a.cls", b"1"), ("b.cls", b"2"), ("a.txt", b"3"), ("c.cls", b"4")]),
        one("scattered_sample", "a"),
    );
    check(&members(&[("a.cls", b"1"), ("b.cls", b""), ("c.cls", b"4")]), one("empty_field", "b"));
    let mut link = member("a.cls", EntryType::Symlink, b"");
    link.extend(members(&[("b.cls", b"1")]));
    check(&link, one("header", "a"));
}

#[test]
fn a_field_that_few_samples_lack_is_a_finding() {
    let mut all: Vec<Sample> = (0..20).map(sample).collect();
    let _ = all[7].remove("txt");
    let _ = all[9].remove("txt");
    let dir = shard(&archive(&all));
    let found = findings(dir.path(), &["a.tar"]);
    assert_eq!((found.len(), &*found[0].0, &*found[0].1), (1, "missing_field", "000007"));
    let message = found[0].2["message"].as_str().unwrap();
    let expected =
        "the sample does not have the field \"txt\", nor does 1 other sample; 90.0 % of all samples have it";
    assert_eq!(message, expected);
    // A field is optional if the share of samples that have it is below `--common`.
    assert_eq!(kinds(dir.path(), &["a.tar", "--common", "0.95"]), []);
    assert_eq!(kinds(dir.path(), &["a.tar", "--require", "png,cls"]), []);
    assert_eq!(kinds(dir.path(), &["a.tar", "--require", "jpg"]).len(), 2);
}

#[test]
fn fields_that_do_not_decode_are_findings() {
    let png = archive(&[sample(0)]);
    let bytes = shardstream_png(&png);
    let mut cut = bytes.clone();
    cut.truncate(cut.len() - 20);
    let shard_bytes = members(&[
        ("a.cls", b"seven"),
        ("b.json", b"{"),
        ("c.txt", b"\xff\xfe"),
        ("d.npy", b"no array"),
        ("e.png", &cut),
        ("f.pkl", b"\x80\x02}."),
        ("g.png", &bytes),
        ("h.bin", b"\0"),
    ]);
    let dir = shard(&shard_bytes);
    assert_eq!(kinds(dir.path(), &["a.tar"]), []);
    let found = findings(dir.path(), &["a.tar", "--decode"]);
    let keys: Vec<&str> = found.iter().map(|(_, key, _)| &**key).collect();
    assert_eq!(keys, ["a", "b", "c", "d", "e"]);
    assert!(found.iter().every(|(kind, ..)| kind == "decode"), "{found:?}");
    assert_eq!((&found[4].2["member"], &found[4].2["shard"]), (&"e.png".into(), &"a.tar".into()));
    assert_eq!(kinds(dir.path(), &["a.tar", "--decode", "--min-side", "7"]).last().unwrap().0, "small_image");
}

/// The image of the first sample of an archive.
fn shardstream_png(archive: &[u8]) -> Vec<u8> {
    let samples = crate::support::read_bytes(archive);
    let sample = samples.into_iter().next().unwrap().unwrap();
    sample.get("png").unwrap().as_bytes().unwrap().to_vec()
}

#[test]
fn shards_that_differ_from_the_index_are_findings() {
    let dir = demo();
    output(dir.path(), &["index", "build", "data", "--to", "i.json", "--checksums"]);
    let verify = ["data", "--index", "i.json"];
    assert_eq!(kinds(dir.path(), &verify), []);
    // Flip a bit in the content of a member, for which tar has no checksum.
    let path = dir.path().join("data/train-000001.tar");
    let (whole, time) = (fs::read(&path).unwrap(), fs::metadata(&path).unwrap().modified().unwrap());
    let at = whole.windows(6).position(|window| window == b"a dog ").unwrap();
    let mut flipped = whole.clone();
    flipped[at] ^= 2;
    fs::write(&path, &flipped).unwrap();
    assert_eq!(
        kinds(dir.path(), &verify),
        [("stale".to_owned(), String::new()), ("sample_checksum".into(), "000004".into())]
    );
    // With the old modification time, only the checksum differs, as after a disk fault.
    fs::File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
    assert_eq!(kinds(dir.path(), &verify), one("sample_checksum", "000004"));
    // Another shard, with one sample fewer.
    fs::write(&path, archive(&(4..7).map(sample).collect::<Vec<_>>())).unwrap();
    let found = kinds(dir.path(), &verify);
    assert_eq!(found, [("stale".to_owned(), String::new()), ("stale".into(), String::new())]);
    // `verify` also reports a shard that is not in the index.
    fs::rename(&path, dir.path().join("data/train-000009.tar")).unwrap();
    assert_eq!(kinds(dir.path(), &verify), one("not_indexed", ""));
}

#[test]
fn an_indexed_shard_is_recognized_under_another_name() {
    let dir = demo();
    output(dir.path(), &["index", "build", "data", "--to", "i.json"]);
    let path = dir.path().join("data/train-000001.tar");
    let absolute = path.to_str().unwrap();
    let verify = |shard: &str| kinds(dir.path(), &[shard, "--index", "i.json"]);
    assert_eq!(verify(absolute), []);
    // Another modification time: the content may have changed.
    let earlier = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1);
    fs::File::options().write(true).open(&path).unwrap().set_modified(earlier).unwrap();
    for name in ["data/train-000001.tar", "./data/train-000001.tar", "file:data/train-000001.tar", absolute] {
        assert_eq!(verify(name), one("stale", ""), "{name}");
    }
    // A copy in another directory may have another modification time.
    fs::create_dir(dir.path().join("copy")).unwrap();
    fs::copy(&path, dir.path().join("copy/train-000001.tar")).unwrap();
    assert_eq!(verify("copy/train-000001.tar"), []);
}

#[test]
fn a_log_belongs_to_one_index() {
    let dir = demo();
    output(dir.path(), &["index", "build", "data", "--to", "i.json"]);
    let verify = ["verify", "data", "--index", "i.json", "--resume", "log"];
    output(dir.path(), &verify);
    assert!(output(dir.path(), &verify).contains(", 3 of them verified before"));
    // An index that differs only in the name of a field.
    let text = fs::read_to_string(dir.path().join("i.json")).unwrap();
    let other = text.replace("\"txt\"", "\"tyt\"");
    assert_ne!(text, other);
    fs::write(dir.path().join("i.json"), other).unwrap();
    let ran = run(dir.path(), &verify);
    assert_eq!(
        (ran.code, ran.err.contains("is the log of a run with other options")),
        (Some(2), true),
        "{ran:?}"
    );
}

#[test]
fn a_closed_pipe_does_not_hide_damage() {
    let names: Vec<String> = (0..500).map(|number| format!("{number:03}.cls")).collect();
    let empty: Vec<(&str, &[u8])> = names.iter().map(|name| (&**name, &b""[..])).collect();
    let dir = shard(&members(&empty));
    assert_eq!(unread(dir.path(), &["verify", "a.tar", "--json"]), Some(3));
    assert_eq!(unread(dir.path(), &["verify", "a.tar", "--may-be-empty", "cls"]), Some(0));
}

#[test]
fn duplicate_keys_are_found_across_shards() {
    let dir = demo();
    fs::copy(dir.path().join("data/train-000001.tar"), dir.path().join("data/train-000003.tar")).unwrap();
    assert_eq!(kinds(dir.path(), &["data"]), []);
    let found = findings(dir.path(), &["data", "--unique-keys"]);
    let keys: Vec<&str> = found.iter().map(|(_, key, _)| &**key).collect();
    assert_eq!(keys, ["000004", "000005", "000006", "000007"]);
    assert_eq!(found[0].2["message"], "the key is in data/train-000001.tar too");
}

#[test]
fn without_json_each_finding_is_one_line() {
    let dir = shard(&members(&[("a.cls", b"1"), ("b.cls", b""), ("b.cls", b"1"), ("c.cls", b"")]));
    let Ran { code, out, err } = run(dir.path(), &["verify", "a.tar"]);
    assert_eq!((code, &*err), (Some(3), ""));
    assert_eq!(
        out,
        "a.tar: byte 1536, sample b, member b.cls: duplicate_member: duplicate member: the sample already \
         has a field \"cls\"\na.tar: sample c, member c.cls: empty_field: the field \"cls\" is empty\n1 \
         shard of 2 samples, 4.1 kB: 2 findings\n  duplicate_member: 1\n  empty_field: 1\n"
    );
    assert_eq!(kinds(dir.path(), &["a.tar", "--may-be-empty", "cls"]), one("duplicate_member", "b"));
}

#[test]
fn the_report_does_not_depend_on_threads() {
    let dir = demo();
    for shard in 0..30 {
        let mut samples: Vec<Sample> = (0..4).map(sample).collect();
        let _ = samples[shard % 4].remove("txt");
        let mut bytes = archive(&samples);
        bytes.truncate(bytes.len() - 512 * (shard % 3) * 9);
        fs::write(dir.path().join(format!("data/x-{shard:03}.tar")), bytes).unwrap();
    }
    let mut reports = BTreeMap::new();
    for threads in ["1", "2", "7"] {
        *reports.entry(run(dir.path(), &["verify", "data", "-j", threads]).out).or_insert(0) += 1;
    }
    assert_eq!(reports.len(), 1, "{reports:#?}");
}

#[test]
fn a_shard_that_cannot_be_read_is_not_damaged() {
    let dir = demo();
    let ran = run(dir.path(), &["verify", "data/train-000000.tar", "s3://bucket/a.tar", "--retries", "0"]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.out.starts_with("not verified: "), "{ran:?}");
    assert_eq!(ran.err, "shardstream: 1 shard could not be read\n");
}

#[test]
fn reading_resumes_after_damaged_headers() {
    let samples: Vec<Sample> = (0..50).map(sample).collect();
    let whole = archive(&samples);
    let at = |name: &str| whole.windows(name.len()).position(|window| window == name.as_bytes()).unwrap();
    let dir = shard(&whole);
    output(dir.path(), &["index", "build", "a.tar", "--to", "i.json", "--checksums"]);
    let mut damaged = whole.clone();
    for name in ["000010.cls", "000020.txt"] {
        damaged[at(name) + 20] ^= 0x55;
    }
    damaged[at("000030.cls")..at("000033.cls")].fill(0);
    let text = damaged.windows(9).rposition(|window| window == b"two birds").unwrap();
    damaged[text] ^= 1;
    fs::write(dir.path().join("a.tar"), damaged).unwrap();
    let found = kinds(dir.path(), &["a.tar"]);
    let names: Vec<&str> = found.iter().map(|(kind, _)| &**kind).collect();
    assert_eq!(names[..3], ["checksum", "checksum", "archive_end"], "{found:?}");
    // With the index, reading resumes at a sample with a known number, so later samples are compared too.
    let found = kinds(dir.path(), &["a.tar", "--index", "i.json"]);
    let names: Vec<(&str, &str)> = found.iter().map(|(kind, key)| (&**kind, &**key)).collect();
    assert_eq!(names.len(), 5, "{names:?}");
    assert_eq!((names[0], names[4]), (("stale", ""), ("sample_checksum", "000047")));
    let Ran { out, .. } = run(dir.path(), &["verify", "a.tar", "--index", "i.json"]);
    assert!(out.contains("; reading resumed at byte ") && out.contains("1 shard of 4"), "{out}");
}
