//! Progress: a bar on a terminal, lines elsewhere, nothing with `--quiet`.

use crate::program::{demo, program, run};
use crate::support::root;
use std::fs;
use std::process::Command;

#[test]
fn progress_is_plain_lines_if_stderr_is_not_a_terminal() {
    let dir = demo();
    let ran = run(dir.path(), &["verify", "data", "--progress", "0"]);
    let lines: Vec<&str> = ran.err.lines().collect();
    assert_eq!((ran.code, lines.len()), (Some(0), 3), "{ran:?}");
    assert!(lines[0].starts_with("verify: 1 shard of 3 shards, "), "{ran:?}");
    assert!(lines[2].starts_with("verify: 3 shards of 3 shards, "), "{ran:?}");
    assert!(lines[2].ends_with(" s left, 12 samples"), "{ran:?}");
    let ran = run(dir.path(), &["verify", "data", "--progress", "0", "--quiet"]);
    assert_eq!((ran.code, &*ran.err), (Some(0), ""));
    // The run is shorter than the default interval of ten seconds.
    assert_eq!(run(dir.path(), &["verify", "data"]).err, "");
}

#[test]
#[ignore = "needs `script` of util-linux: see CONTRIBUTING.md"]
fn a_terminal_shows_a_bar_with_rate_and_time_left() {
    let dir = demo();
    let run = |arguments: &str| {
        let program = program(dir.path()).get_program().to_str().unwrap().to_owned();
        let command = format!("stty cols 80 && {program} {arguments}");
        let mut script = Command::new("script");
        script.args(["-qec", &command, "/dev/null"]).env("TERM", "xterm").current_dir(dir.path());
        let output = script.output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let (code, shown) = run("verify data -j1");
    assert_eq!(code, Some(0), "{shown:?}");
    assert!(shown.contains("verify [") && shown.contains(" of 3 shards, "), "{shown:?}");
    assert!(shown.contains(" shards/s, ") && shown.contains(" left, "), "{shown:?}");
    assert!(shown.contains("3 shards of 12 samples, 61.4 kB: no damage found"), "{shown:?}");
    let bar =
        shown.split(['\r', '\n']).rfind(|line| line.contains(" of 3 shards, ") && line.contains(" samples"));
    assert!(PARTS_OF_BAR.iter().all(|part| bar.unwrap().contains(part)), "{bar:?}");
    assert!(!shown.contains("0/3"), "a bar without its style: {shown:?}");
    // The bar fits into a terminal of 80 columns.
    let visible = bar.unwrap().rsplit('\u{1b}').next().unwrap().trim_start_matches("[2K");
    assert!(visible.chars().count() <= 80, "{visible:?}");
    let (code, shown) = run("verify data --quiet");
    assert_eq!((code, &*shown), (Some(0), "3 shards of 12 samples, 61.4 kB: no damage found\r\n"));
    // Binary fields are not written to a terminal.
    let (code, shown) = run("cat --quiet --field png --nth 0 data");
    assert_eq!(code, Some(1), "{shown:?}");
    assert!(shown.contains("is not text: write it to a file") && !shown.contains("IHDR"), "{shown:?}");
}

/// The parts of a bar that are not numbers.
const PARTS_OF_BAR: [&str; 6] = ["verify [", "] ", " of ", " shards/s, ", "s left, ", " samples"];

#[test]
fn the_picture_in_the_docs_shows_such_a_bar() {
    let docs = root().join("docs");
    let picture = fs::read_to_string(docs.join("cli-progress.svg")).unwrap();
    assert!(picture.len() < 20_000 && picture.contains("$ shardstream verify photos --decode"));
    let bars: Vec<&str> = picture.lines().filter(|line| line.contains("verify [")).collect();
    assert_eq!(bars.len(), 2);
    for bar in bars {
        assert!(PARTS_OF_BAR.iter().all(|part| bar.contains(part)), "{bar}");
    }
}
