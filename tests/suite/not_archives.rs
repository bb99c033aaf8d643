//! Files that are not shards. The error says what the file is, and no policy skips the file as damage.

use crate::support::shards::{memory, put};
use crate::support::{archive, read_samples};
use shardstream::ErrorKind;
use shardstream::index::Index;
use shardstream::loader::{Failures, OnError};
use shardstream::prelude::*;
use std::fs;
use std::io::Write;

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn sound() -> Vec<u8> {
    archive(&[Sample::new("a").with("cls", 1)])
}

const LFS: &[u8] = b"version https://git-lfs.github.com/spec/v1\noid sha256:0a1b\nsize 123456789\n";

#[test]
fn each_file_says_what_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let html = [b"<!DOCTYPE html>\n<title>log in</title>".to_vec(), vec![b' '; 3000]].concat();
    let cases: &[(&str, Vec<u8>, &str, &[&str])] = &[
        ("lfs.tar", LFS.to_vec(), "not_an_archive", &["a Git LFS pointer", "`git lfs pull`"]),
        ("lfs.tar.gz", LFS.to_vec(), "not_an_archive", &["a Git LFS pointer", "no gzip data"]),
        ("html.tar", html.clone(), "not_an_archive", &["an HTML page", "<!DOCTYPE html>"]),
        ("html.tar.zst", html, "not_an_archive", &["an HTML page", "no zstd data"]),
        ("error.tar", b"<?xml version=\"1.0\"?>\n<Error/>".to_vec(), "not_an_archive", &["an XML document"]),
        ("list.tar", b"{\"a\": [1]}\n".to_vec(), "not_an_archive", &["JSON"]),
        ("zip.tar", b"PK\x03\x04and more".to_vec(), "not_an_archive", &["a zip archive"]),
        ("table.tar", b"PAR1\x15\x04".repeat(200), "not_an_archive", &["a Parquet file"]),
        ("text.tar", b"several\nlines\n".to_vec(), "not_an_archive", &["a text", "several"]),
        ("noise.tar", vec![0xf7; 2000], "checksum", &["the shard is damaged here"]),
        ("empty.tar", Vec::new(), "truncated", &["the file is empty"]),
        ("gzip.tar", gzip(&sound()), "unsupported_compression", &["gzip data", ".tar.gz"]),
        ("plain.tar.gz", sound(), "not_an_archive", &["a plain tar archive", "rename it to end in .tar"]),
        ("plain.tar.zst", sound(), "not_an_archive", &["a plain tar archive", "no zstd data"]),
        ("gzip.tar.zst", gzip(&sound()), "unsupported_compression", &["gzip data", "its name says zstd"]),
        ("twice.tar.gz", gzip(&gzip(&sound())), "unsupported_compression", &["compressed twice"]),
        ("page.tar.gz", gzip(b"<html></html>"), "not_an_archive", &["an HTML page", "no tar archive"]),
    ];
    for (name, bytes, kind, texts) in cases {
        let path = dir.path().join(name);
        fs::write(&path, bytes).unwrap();
        let mut found = read_samples(&path);
        assert_eq!(found.len(), 1, "{name}: {found:?}");
        let error = found.remove(0).unwrap_err();
        assert_eq!(error.kind().name(), *kind, "{name}: {error:#}");
        let shown = format!("{error:#}");
        texts.iter().for_each(|text| assert!(shown.contains(text), "{name}: {shown:?} lacks {text:?}"));
        assert!(shown.contains(name), "{shown}");
        let indexed = Index::builder().build(&ShardList::from_urls([path.to_str().unwrap()])).unwrap_err();
        assert_eq!(indexed.kind().name(), *kind, "{name}: {indexed:#}");
    }
    // A file of zeros is an archive without samples.
    fs::write(dir.path().join("zeros.tar"), [0; 10_240]).unwrap();
    assert!(read_samples(&dir.path().join("zeros.tar")).is_empty());
}

#[test]
fn no_policy_skips_files_that_are_not_archives() {
    let store = memory();
    put(&store, "mem://b/0.tar", &sound());
    put(&store, "mem://b/1.tar", LFS);
    put(&store, "mem://b/2.tar", &sound());
    for rest in [false, true] {
        let dataset =
            Dataset::builder("mem://b/{0..2}.tar").store(store.clone()).topology(Topology::single());
        let loader = Loader::builder(dataset.build().unwrap())
            .batch(1)
            .on_error(OnError::skip(Failures::all()).rest_of_shard(rest));
        let found: Vec<_> = loader.build().unwrap().epoch(0).collect();
        let errors: Vec<_> = found.iter().filter_map(|batch| batch.as_ref().err()).collect();
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert!(matches!(errors[0].kind(), ErrorKind::NotAnArchive { .. }), "{errors:?}");
        assert_eq!(errors[0].location().shard(), Some("mem://b/1.tar"));
    }
}

/// A name that no shard can have is an error before anything is read.
#[test]
fn names_that_cannot_be_shards_are_errors() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let build = |pattern: String| Dataset::builder(pattern).topology(Topology::single()).build();
    for name in ["b.tar", "a.tar.gz", "c.txt", "index.json"] {
        fs::write(at(name), if name.ends_with("gz") { gzip(&sound()) } else { sound() }).unwrap();
    }
    for directory in [at(""), dir.path().to_str().unwrap().to_owned()] {
        let dataset = build(directory).unwrap();
        let names: Vec<_> = dataset.shards().iter().map(|url| url.expose_secret().to_owned()).collect();
        assert_eq!(names, [at("a.tar.gz"), at("b.tar")]);
        assert_eq!(dataset.samples(0).results().filter(Result::is_ok).count(), 2);
    }
    fs::create_dir(at("none")).unwrap();
    let error = build(at("none")).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::NoShards(_)), "{error}");
    for pattern in ["train-%06d.tar", "%d.tar", "x-%03d-{0..1}.tar"] {
        let error = build(at(pattern)).unwrap_err().to_string();
        assert!(error.contains("is for writing") && error.contains("{000000..000146}"), "{error}");
    }
    for name in ["a%20d.tar", "a%d0.tar"] {
        assert!(build(at(name)).is_ok(), "{name}");
    }
    let error = build("-".into()).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unsupported(_)), "{error}");
    assert!(error.to_string().contains("/dev/stdin"), "{error}");
}

/// Opening a named pipe would wait for a writer, possibly for ever.
#[cfg(unix)]
#[test]
fn a_named_pipe_is_refused_as_a_shard() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.tar");
    assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
    let error = read_samples(&path).remove(0).unwrap_err();
    assert!(error.to_string().contains("a named pipe"), "{error}");
    let error = Store::default().stat(path.to_str().unwrap()).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unsupported(_)), "{error}");
}

/// The error for a missing field lists the sample's fields, which shows that the key has dots.
#[test]
fn the_error_for_a_missing_field_reveals_a_key_with_dots() {
    let mut bytes = crate::support::member("scan 22.05.png", tar::EntryType::Regular, b"x");
    bytes.extend([0; 1024]);
    let sample = crate::support::read_bytes(&bytes).remove(0).unwrap();
    assert_eq!(sample.key(), "scan 22");
    let error = sample.field("png").unwrap_err().to_string();
    assert!(error.contains("no field \"png\"; it has: 05.png"), "{error}");
}
