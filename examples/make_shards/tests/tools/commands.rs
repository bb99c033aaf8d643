//! Runs the commands exactly as the documentation pages show them. A test server is the `gs://` bucket.

use crate::{bucket, cifar};
use std::fs;
use std::path::Path;
use std::process::Command;

/// The commands in the shell blocks of a page that run `make_cifar_shards`.
fn commands(page: &str) -> Vec<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(page);
    let text = fs::read_to_string(page).unwrap().replace("\\\n", " ");
    let mut shell = false;
    let lines = text.lines().filter(|line| {
        let fence = line.starts_with("```");
        shell = if fence { *line == "```sh" } else { shell };
        shell && !fence
    });
    let tool = |line: &&str| line.trim_start_matches("target/release/").starts_with("make_cifar_shards ");
    lines.filter(tool).map(str::to_owned).collect()
}

/// Runs the commands of a page one after the other. Returns the keys of the objects that they wrote.
fn run(page: &str, count: usize) -> Vec<String> {
    let commands = commands(page);
    assert_eq!(commands.len(), count, "{page}: {commands:?}");
    let dir = tempfile::tempdir().unwrap();
    let binary = cifar::binary_folder(dir.path());
    fs::rename(cifar::archive(&binary, true), dir.path().join("cifar-10-binary.tar.gz")).unwrap();
    let programs = Path::new(env!("CARGO_BIN_EXE_make_cifar_shards")).parent().unwrap();
    fs::create_dir(dir.path().join("target")).unwrap();
    std::os::unix::fs::symlink(programs, dir.path().join("target/release")).unwrap();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    let server = bucket::start();
    let bucket = server.url("");
    for command in &commands {
        let output = Command::new("bash")
            .args(["-c", command])
            .current_dir(&dir)
            .env("BUCKET", "bucket")
            .env("PATH", &path)
            .env("STORAGE_EMULATOR_HOST", &bucket)
            .output()
            .unwrap();
        let text = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap()).concat();
        assert!(output.status.success(), "{page}: {command}\n{text}");
    }
    let written = server.requests().into_iter().filter(|request| request.method == "PUT");
    written
        .map(|request| {
            percent_encoding::percent_decode_str(request.path()).decode_utf8().unwrap().into_owned()
        })
        .collect()
}

#[test]
fn the_commands_of_the_pages_make_the_shards_that_they_name() {
    for (page, count, names) in [
        (
            "examples/make_shards/README.md",
            1,
            &[
                "/bucket/cifar/train/cifar-train-000000.tar",
                "/bucket/cifar/val/cifar-val-000000.tar",
                "/bucket/cifar/train/cifar-train.index.json",
            ][..],
        ),
        (
            "docs/tpu.md",
            1,
            &[
                "/bucket/cifar/train/cifar-train-000000.tar",
                "/bucket/cifar/train/cifar-train.index.json",
                "/bucket/cifar/val/cifar-val.index.json",
            ][..],
        ),
    ] {
        let written = run(page, count);
        for name in names {
            assert!(written.iter().any(|key| key == name), "{page}: {name} is not among {written:?}");
        }
    }
}
