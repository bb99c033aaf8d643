//! Runs the commands of `docs/cli.md` and `docs/cli-writing.md`, and compares their output with the pages.
//!
//! Every block that begins with ```` ```console ```` is run, in order, in one directory with the data set of
//! the page. Blocks that begin with ```` ```console times ```` are compared without their numbers.
//! `SHARDSTREAM_BLESS=1` updates the outputs in the pages.
#![cfg(target_os = "linux")]

use crate::program::program;
use crate::support::root;
use crate::writing::photos;
use shardstream::image::{Image, ImageMode};
use shardstream::write::ShardWriter;
use shardstream::{Rng, Sample};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const WORDS: [&str; 3] = ["circle", "square", "triangle"];

/// Writes the data set of the page: three shards of 40 pictures of shapes.
fn demo(directory: &Path) {
    let pattern = directory.join("shapes/train-%06d.tar");
    let mut writer = ShardWriter::builder(pattern.to_str().unwrap()).max_count(40).build().unwrap();
    for number in 0..120 {
        let mut rng = Rng::new(18, 0, number);
        let shape = rng.below(WORDS.len() as u64) as usize;
        let (height, width) = (48 + rng.below(33) as u32, 48 + rng.below(49) as u32);
        let mut color = || [0; 3].map(|_| rng.below(200) as u8 + 28);
        let (ground, paint) = (color(), color());
        let document = serde_json::json!({"shape": WORDS[shape], "size": {"height": height, "width": width}});
        let sample = Sample::new(format!("{number:06}"))
            .with("png", picture(shape, (height, width), ground, paint))
            .with("cls", shape as i64)
            .with("txt", format!("a {} on a plain ground", WORDS[shape]))
            .with("json", document);
        writer.write(&sample).unwrap();
    }
    writer.finish().unwrap();
}

/// A shape in the middle of a picture.
fn picture(shape: usize, (height, width): (u32, u32), ground: [u8; 3], paint: [u8; 3]) -> Image {
    let radius = i64::from(height.min(width)) / 3;
    let mut pixels = Vec::new();
    for y in 0..i64::from(height) {
        for x in 0..i64::from(width) {
            let (dy, dx) = (y - i64::from(height) / 2, x - i64::from(width) / 2);
            let is_inside = match shape {
                0 => dy * dy + dx * dx <= radius * radius,
                1 => dy.abs().max(dx.abs()) <= radius,
                _ => dy.abs() <= radius && 2 * dx.abs() <= dy + radius,
            };
            pixels.extend(if is_inside { paint } else { ground });
        }
    }
    Image::new(ImageMode::Rgb8, (height, width), pixels).unwrap()
}

/// Runs the page's commands. Returns the page with the outputs of this run.
fn with_outputs(page: &str, directory: &Path, show: fn(&str) -> String) -> String {
    let mut written = String::new();
    let (mut in_block, mut commands, mut status) = (false, 0, 0);
    for line in page.lines() {
        match (in_block, line) {
            (false, "```console" | "```console times") => in_block = true,
            (true, "```") => in_block = false,
            (true, _) if !line.starts_with("$ ") => continue,
            _ => {}
        }
        written.push_str(line);
        written.push('\n');
        if let (true, Some(command)) = (in_block, line.strip_prefix("$ ")) {
            commands += 1;
            if command == "echo $?" {
                written.push_str(&format!("{status}\n"));
                continue;
            }
            let (code, output) = run(command, directory);
            let output = show(&output);
            status = code;
            written.push_str(&output);
        }
    }
    assert!(commands >= 15, "{commands} commands");
    written
}

/// Runs a line of shell in the directory. Returns the exit code, and stdout followed by stderr.
fn run(line: &str, directory: &Path) -> (i32, String) {
    let program = program(directory);
    let bin = Path::new(program.get_program()).parent().unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());
    let mut shell = Command::new("sh");
    shell.args(["-c", line]).current_dir(directory).env("PATH", path).env("COLUMNS", "100");
    let ran = shell.output().unwrap();
    let (out, err) = (String::from_utf8(ran.stdout).unwrap(), String::from_utf8(ran.stderr).unwrap());
    (ran.status.code().unwrap(), format!("{out}{err}"))
}

/// Replaces numbers that differ in each run by `N`: rates, times and versions of files.
fn normalised(text: &str) -> String {
    let mut lines = String::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let is_rate = |at: usize| {
            let after: Vec<&str> = words.iter().skip(at + 1).take(2).copied().collect();
            matches!(after.first(), Some(unit) if unit.trim_end_matches(',').ends_with("/s"))
                || matches!(after[..], ["s", "left," | "left"])
                // The number of samples after a shard differs in each run, because other threads count too.
                || line.contains(" left, ") && after == ["samples"]
        };
        let shown = |(at, word): (usize, &&str)| {
            let is_version = at > 0 && words[at - 1] == "version";
            match is_version || is_rate(at) && word.starts_with(|c: char| c.is_ascii_digit()) {
                true => "N".to_owned() + word.trim_start_matches(|c: char| c != ',' && c != ';'),
                false => (*word).to_owned(),
            }
        };
        lines.push_str(&words.iter().enumerate().map(shown).collect::<Vec<String>>().join(" "));
        lines.push('\n');
    }
    lines
}

/// A line that contains one of these depends on the machine or the build, or may be missing.
const VARYING: [&str; 6] = ["slowest: ", "try: ", "limit: ", " ahead: ", " memory: ", "debug build: "];

/// The lines of a page with their line numbers. In blocks that show times, each number is replaced by `#`.
fn compared(page: &str) -> Vec<(usize, String)> {
    let mut times = false;
    let line = |(at, line): (usize, &str)| {
        times = match line {
            "```console times" => true,
            "```" => false,
            _ => times,
        };
        let line = match times {
            true if VARYING.iter().any(|part| line.contains(part)) => return None,
            true => without_numbers(line),
            false => line.to_owned(),
        };
        Some((at + 1, line))
    };
    page.lines().enumerate().filter_map(line).collect()
}

/// Replaces each number by `#`, and several spaces by one.
fn without_numbers(text: &str) -> String {
    let is_number = |c: char| c.is_ascii_digit() || c == '.' || c == ',';
    let mut shown = String::new();
    for c in text.chars() {
        let c = if is_number(c) { '#' } else { c };
        if !(matches!(c, '#' | ' ') && shown.ends_with(c)) {
            shown.push(c);
        }
    }
    shown
}

/// Runs the commands of a page, and compares what they print.
fn compare(name: &str, directory: &Path, show: fn(&str) -> String) {
    let path = docs().join(name);
    let page = fs::read_to_string(&path).unwrap();
    let now = with_outputs(&page, directory, show);
    if std::env::var("SHARDSTREAM_BLESS").as_deref() == Ok("1") {
        fs::write(&path, &now).unwrap();
        return;
    }
    let (page, now) = (compared(&page), compared(&now));
    for ((number, page), (_, now)) in page.iter().zip(&now) {
        assert_eq!(page, now, "docs/{name}, line {number}; SHARDSTREAM_BLESS=1 updates it");
    }
    assert_eq!(page.len(), now.len());
}

fn docs() -> PathBuf {
    root().join("docs")
}

#[test]
fn outputs_match_the_page_on_reading() {
    let dir = tempfile::tempdir().unwrap();
    demo(dir.path());
    compare("cli.md", dir.path(), normalised);
    let (sheet, shown) = (dir.path().join("sheet.png"), docs().join("cli-sheet.png"));
    if std::env::var("SHARDSTREAM_BLESS").as_deref() == Ok("1") {
        fs::copy(&sheet, &shown).unwrap();
    }
    let pixels = |path: &Path| Image::decode(&fs::read(path).unwrap(), ImageMode::Rgb8).unwrap();
    assert!(pixels(&sheet) == pixels(&shown), "docs/cli-sheet.png has changed");
}

#[test]
fn outputs_match_the_page_on_writing() {
    compare("cli-writing.md", photos().path(), str::to_owned);
}

#[test]
fn every_command_is_on_the_page() {
    let page =
        ["cli.md", "cli-writing.md"].map(|page| fs::read_to_string(docs().join(page)).unwrap()).concat();
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/help");
    for entry in fs::read_dir(golden).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let name = name.trim_end_matches(".txt").replace("import-wids", "importwids");
        let command = name.replace("export-wids", "exportwids").replace('-', " ");
        let command = command.replace("importwids", "import-wids").replace("exportwids", "export-wids");
        assert!(page.contains(&command), "the pages do not mention `{command}`");
    }
}

#[test]
fn rates_and_times_are_normalised() {
    let line = "verify: 3 shards of 9 shards, 1.5 shards/s, 4 s left, 12 samples";
    assert_eq!(normalised(line), "verify: 3 shards of 9 shards, N shards/s, N s left, N samples\n");
    assert_eq!(normalised("it had 7 bytes, version 17.5, it has"), "it had 7 bytes, version N, it has\n");
}
