//! The writing commands refuse to destroy shards, and to write samples other than the requested ones.

use super::{files, keys, photos, samples};
use crate::program::{Ran, demo, failure, output, program, run, write};
use crate::support::bucket;
use std::fs;
use std::path::Path;

/// Writes an index of the shards of a directory to `place`.
fn index(directory: &Path, shards: &str, place: &str) {
    output(directory, &["index", "build", shards, "--to", place]);
}

#[test]
fn the_listed_shards_are_read_with_the_index_of_a_copy() {
    let dir = demo();
    index(dir.path(), "data", "data.json");
    fs::rename(dir.path().join("data"), dir.path().join("moved")).unwrap();
    // Other shards are now at the URLs in the index.
    write(&dir.path().join("data/train-%06d.tar"), 3, 1);
    let reshard = ["reshard", "moved", "--index", "data.json", "--to"];
    output(dir.path(), &[&reshard[..], &["out/%d.tar"]].concat());
    assert!(samples(&dir.path().join("out"), "0") == samples(&dir.path().join("moved"), "train"));
    // The sizes of the shards differ from those in the index.
    let error = failure(dir.path(), &["reshard", "data", "--index", "data.json", "--to", "no/%d.tar"], 1);
    assert!(error.contains("the shard has changed") && !dir.path().join("no").exists(), "{error}");
}

#[test]
fn an_index_of_an_older_version_is_an_error() {
    let dir = demo();
    index(dir.path(), "data", "data.json");
    let place = dir.path().join("data/train-000001.tar");
    let mut bytes = fs::read(&place).unwrap();
    bytes.swap(512, 513);
    fs::write(&place, bytes).unwrap();
    let error = failure(dir.path(), &["reshard", "data", "--index", "data.json", "--to", "no/%d.tar"], 1);
    assert!(error.contains("the shard has changed") && !dir.path().join("no").exists(), "{error}");
}

#[test]
fn the_input_is_not_written_over() {
    let dir = demo();
    let before = files(&dir.path().join("data"));
    let absolute = dir.path().join("data/train-%06d.tar");
    let url = format!("file://{}", absolute.display());
    for to in ["data/train-%06d.tar", "./data/../data/train-%06d.tar", absolute.to_str().unwrap(), &url] {
        let error = failure(dir.path(), &["reshard", "data", "--to", to, "--force"], 2);
        assert!(error.contains("of this series"), "{error}");
        let target = format!("{to}=0.5");
        let split = ["split", "data", "--to", "out/%d.tar=0.5", "--to", &target, "--force"];
        failure(dir.path(), &split, 2);
        assert!(files(&dir.path().join("data")) == before && !dir.path().join("out").exists());
    }
    // The input would be a shard of the output series.
    output(dir.path(), &["reshard", "data", "--to", "more/%d.tar", "--count", "4"]);
    failure(dir.path(), &["reshard", "more/1.tar", "--to", "more/%d.tar", "--force"], 2);
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink("data", dir.path().join("link")).unwrap();
        failure(dir.path(), &["reshard", "link", "--to", "data/train-%06d.tar", "--force"], 2);
        failure(dir.path(), &["reshard", "data", "--to", "link/train-%06d.tar", "--force"], 2);
    }
    assert!(files(&dir.path().join("data")) == before);
}

/// The input is a signed `http` URL of an object. The output is a `gs` URL of the same object:
/// `STORAGE_EMULATOR_HOST` sends requests for `gs` URLs to the server of the signed URL.
#[test]
fn the_input_is_not_written_over_under_its_signed_url() {
    let dir = demo();
    let server = bucket::start();
    let there = |arguments: &[&str]| {
        let mut command = program(dir.path());
        command.env("STORAGE_EMULATOR_HOST", server.url("")).args(arguments);
        Ran::from(command.output().unwrap())
    };
    let to = ["--to", "gs://bucket/d/x-%d.tar", "--force"];
    assert_eq!(there(&[&["reshard", "data"], &to[..]].concat()).code, Some(0));
    let signed = server.url("/bucket/d/x-0.tar?X-Goog-Signature=s3cret");
    let refused = there(&[&["reshard", &signed], &to[..]].concat());
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.err.contains("of this series") && !refused.err.contains("s3cret"), "{refused:?}");
    assert_eq!(there(&["ls", "gs://bucket/d/"]).out, "gs://bucket/d/x-0.tar\n");
}

/// A directory is mounted at two paths, without a symbolic link.
#[cfg(target_os = "linux")]
#[test]
#[ignore = "needs `unshare` of util-linux: see CONTRIBUTING.md"]
fn the_input_is_not_written_over_in_another_mount() {
    let dir = demo();
    let before = files(&dir.path().join("data"));
    fs::create_dir(dir.path().join("mounted")).unwrap();
    for (from, to) in [("data", "mounted"), ("mounted", "data")] {
        let shardstream = env!("CARGO_BIN_EXE_shardstream");
        let script = format!(
            "mount --bind data mounted && {shardstream} reshard {from} --to '{to}/train-%06d.tar' --force"
        );
        let mut command = std::process::Command::new("unshare");
        let ran =
            Ran::from(command.current_dir(dir.path()).args(["-rm", "sh", "-c", &script]).output().unwrap());
        assert!(ran.code == Some(2) && ran.err.contains("of this series"), "{ran:?}");
        assert!(files(&dir.path().join("data")) == before);
    }
}

#[test]
fn shards_are_found_under_any_spelling_of_their_directory() {
    let dir = demo();
    let url = format!("file://{}/out/%d.tar", dir.path().display());
    output(dir.path(), &["reshard", "data", "--to", "out/%d.tar"]);
    for to in ["out//%d.tar", "./out/./%d.tar", "data/../out/%d.tar", &url] {
        let error = failure(dir.path(), &["reshard", "data", "--to", to], 1);
        assert!(error.contains("1 shard of this series already exists"), "{to}: {error}");
        output(dir.path(), &["reshard", "data", "--to", to, "--force", "--count", "5"]);
        assert_eq!(files(&dir.path().join("out")).len(), 4);
        output(dir.path(), &["reshard", "data", "--to", to, "--force"]);
        assert_eq!(files(&dir.path().join("out")).len(), 2);
    }
}

#[test]
fn a_run_is_not_resumed_with_other_samples() {
    let dir = demo();
    let reshard = ["reshard", "data", "--to", "out/%d.tar", "--count", "5"];
    output(dir.path(), &reshard);
    // Other content of the same size.
    let place = dir.path().join("data/train-000001.tar");
    let before = fs::read(&place).unwrap();
    let mut bytes = before.clone();
    bytes.swap(512, 513);
    fs::write(&place, bytes).unwrap();
    let error = failure(dir.path(), &[&reshard[..], &["--resume"]].concat(), 1);
    assert!(error.contains("is the plan of other shards: keys, names, sizes or versions"), "{error}");
}

#[test]
fn a_shard_with_other_keys_is_written_again() {
    let dir = photos();
    let create = ["create", "--from-dir", "photos", "--to", "out/%d.tar", "--max-count", "4"];
    output(dir.path(), &create);
    let out = dir.path().join("out");
    let before = files(&out);
    fs::copy(out.join("1.tar"), out.join("0.tar")).unwrap();
    let again = output(dir.path(), &[&create[..], &["--resume"]].concat());
    assert!(again.ends_with("; 2 already there; 1 not as planned and written again\n"), "{again}");
    assert!(files(&out) == before);
    assert_eq!(keys(&samples(&out, "0"))[0], "cat/0");
    assert_eq!(run(dir.path(), &create).code, Some(1));
}

#[test]
fn a_plan_of_another_series_is_not_replaced() {
    let dir = demo();
    let reshard = |to| ["reshard", "data", "--to", to];
    output(dir.path(), &reshard("out/train-%06d.tar"));
    // The plans of both series have the same name.
    let error = failure(dir.path(), &reshard("out/train-%d.tar"), 1);
    assert!(error.contains("is the plan of another series of shards (train-%06d.tar)"), "{error}");
    let resumed = [&reshard("out/train-%d.tar")[..], &["--resume"]].concat();
    let error = failure(dir.path(), &resumed, 1);
    assert!(error.contains("names train-%06d.tar then, train-%d.tar now"), "{error}");
    // A plan of the same series may be replaced if the series has no shards.
    for place in files(&dir.path().join("out")).into_keys().filter(|name| name.ends_with(".tar")) {
        fs::remove_file(dir.path().join("out").join(place)).unwrap();
    }
    output(dir.path(), &reshard("out/train-%06d.tar"));
}

#[test]
fn a_shard_is_not_copied_onto_itself() {
    let dir = demo();
    let before = files(&dir.path().join("data"));
    let from = "data/train-000000.tar";
    for to in ["./data/train-000000.tar", "data/../data/train-000000.tar", "./data/"] {
        let error = failure(dir.path(), &["cp", "--force", from, to], 2);
        assert!(error.contains("onto itself"), "{error}");
    }
    assert!(files(&dir.path().join("data")) == before);
}

#[test]
#[cfg(unix)]
fn a_shard_is_not_copied_onto_another_spelling_of_itself() {
    let dir = tempfile::tempdir().unwrap();
    let here = fs::canonicalize(dir.path()).unwrap();
    // A `?` in the key of an object would be a wildcard.
    let is_plain = |url: &str| url.starts_with("http") || !url.contains('?');
    let mut seen = 0;
    for group in crate::support::places::places(&here, &here) {
        let Some(from) = group.iter().find(|row| is_plain(&row.url)) else { continue };
        for to in group.iter().filter(|row| row.url != from.url) {
            let error = failure(&here, &["cp", "--force", &from.url, &to.url], 2);
            assert!(error.contains("onto itself") && !error.contains("S3CRET"), "{error}");
            seen += 1;
        }
    }
    assert!(seen > 30, "{seen}");
    for to in ["e/a.tar", "https://h.example/a.tar"] {
        let error = failure(&here, &["cp", "--force", "d/a.tar", to], 1);
        assert!(!error.contains("onto itself"), "{error}");
    }
    // `s3://` is another server here.
    let web = "https://s3.amazonaws.com/my.b/k.tar";
    let mut elsewhere = program(&here);
    elsewhere.env("AWS_ENDPOINT_URL", "http://127.0.0.1:1").env("AWS_SKIP_SIGNATURE", "true");
    let ran = elsewhere.args(["cp", "--retries", "0", "s3://my.b/k.tar", web]).output().unwrap();
    let error = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.code() == Some(1) && !error.contains("onto itself"), "{error}");
}
