//! Runs the `shardstream create` commands in the shell blocks of the documentation pages, with an emulated
//! bucket for `gs://`.

use super::photos;
use crate::program::{Ran, program};
use crate::support::{bucket, root};
use std::fs;
use std::path::Path;
use std::process::Command;

/// The commands of this program in the ```` ```sh ```` blocks of a page.
fn commands(page: &str) -> Vec<String> {
    let page = root().join("docs").join(page);
    let text = fs::read_to_string(page).unwrap().replace("\\\n", " ");
    let mut in_shell = false;
    let lines = text.lines().filter(|line| {
        let is_fence = line.starts_with("```");
        in_shell = if is_fence { *line == "```sh" } else { in_shell };
        in_shell && !is_fence
    });
    let is_ours = |line: &&str| line.trim_start_matches("target/release/").starts_with("shardstream ");
    lines.filter(is_ours).map(str::to_owned).collect()
}

/// Runs the commands of a page, and returns the names of all objects that they wrote.
fn run_page(page: &str, count: usize) -> Vec<String> {
    let commands = commands(page);
    assert_eq!(commands.len(), count, "{page}: {commands:?}");
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("imagenet")).unwrap();
    for part in ["train", "val"] {
        fs::rename(photos().path().join("photos"), dir.path().join("imagenet").join(part)).unwrap();
    }
    let ours = program(dir.path());
    let programs = Path::new(ours.get_program()).parent().unwrap();
    fs::create_dir(dir.path().join("target")).unwrap();
    std::os::unix::fs::symlink(programs, dir.path().join("target/release")).unwrap();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap_or_default());
    let server = bucket::start();
    for command in &commands {
        let mut shell = Command::new("sh");
        shell.args(["-c", command]).current_dir(&dir).env("BUCKET", "bucket").env("PATH", &path);
        let ran = Ran::from(shell.env("STORAGE_EMULATOR_HOST", server.url("")).output().unwrap());
        assert_eq!((ran.code, &*ran.err), (Some(0), ""), "{page}: {command}: {ran:?}");
    }
    let requests = server.requests().into_iter().filter(|request| request.method == "PUT");
    let name = |path: &str| percent_encoding::percent_decode_str(path).decode_utf8().unwrap().into_owned();
    requests.map(|request| name(request.path())).collect()
}

#[test]
fn commands_in_the_pages_write_the_objects_that_they_name() {
    for (page, count) in [("cli-writing.md", 3), ("tpu.md", 2)] {
        let written = run_page(page, count);
        for name in ["train-000000.tar", "val-000000.tar", "train.index.json", "val.index.json"] {
            let place = format!("/bucket/imagenet/{name}");
            assert_eq!(
                written.iter().filter(|key| **key == place).count(),
                1,
                "{page}: {name} in {written:?}"
            );
        }
    }
}
