//! Unexpected inputs: the program must explain what is wrong with them.

use crate::program::{Ran, demo, failure, output, run};
use crate::support::{archive, files, member};
use std::fs;
use std::path::Path;
use tempfile::TempDir;

/// A directory with one file.
fn with(name: &str, bytes: &[u8]) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join(name), bytes).unwrap();
    dir
}

#[test]
fn patterns_without_shards_are_errors() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("data/deeper")).unwrap();
    fs::write(dir.path().join("data/deeper/a.tar"), archive(&[])).unwrap();
    for directory in ["data", "data/"] {
        assert_eq!(
            failure(dir.path(), &["ls", directory], 1),
            format!(
                "shardstream: no shards: no .tar, .tar.gz or .tar.zst directly in {directory}; data/**/*.tar \
                 includes its subdirectories, and data/*.jsonl are its JSON lines\n"
            )
        );
    }
    assert_eq!(output(dir.path(), &["ls", "data/**/*.tar"]), "data/deeper/a.tar\n");
    let none = failure(dir.path(), &["info", "data/*.tar"], 1);
    assert_eq!(none, "shardstream: no shards: no name of the listing matches data/*.tar\n");
}

#[test]
fn files_that_are_not_archives_are_errors() {
    let dir = with("text.tar", &b"a text\n".repeat(100));
    let gzip = [&[0x1f, 0x8b, 8, 0][..], &[0; 600]].concat();
    fs::write(dir.path().join("gzip.tar"), gzip).unwrap();
    for command in ["info", "head", "stats"] {
        let error = failure(dir.path(), &[command, "text.tar"], 1);
        assert!(error.contains("this is a text, and no tar archive"), "{error}");
        let error = failure(dir.path(), &[command, "gzip.tar"], 1);
        assert!(error.contains("gzip data, whose name must end in .tar.gz"), "{error}");
    }
    // The summary also counts the shards that could not be verified.
    let Ran { code, out, .. } = run(dir.path(), &["verify", "gzip.tar"]);
    assert_eq!(code, Some(1));
    let summary = "1 shard of 0 samples, 604 B: no damage found, 1 shard not verified\n";
    assert!(out.starts_with("not verified: ") && out.ends_with(summary), "{out}");
}

#[test]
fn shards_without_samples_are_named() {
    // Members without an extension are not fields.
    for bytes in [archive(&[]), files(&["README", "b/Makefile"])] {
        let dir = with("a.tar", &bytes);
        assert_eq!(output(dir.path(), &["head", "a.tar"]), "no samples in 1 shard\n");
        assert_eq!(output(dir.path(), &["head", "--json", "a.tar"]), "");
        assert_eq!(output(dir.path(), &["head", "-n", "0", "a.tar"]), "");
        let said = output(dir.path(), &["verify", "a.tar"]);
        let size = if bytes.len() == 10240 { "10.2 kB" } else { "3.1 kB" };
        assert_eq!(said, format!("no samples: a.tar\n1 shard of 0 samples, {size}: no damage found\n"));
        let summary: serde_json::Value =
            serde_json::from_str(&output(dir.path(), &["verify", "--json", "a.tar"])).unwrap();
        assert_eq!(summary["summary"]["without_samples"], 1);
        assert!(output(dir.path(), &["info", "a.tar"]).starts_with("1 shard of 0 samples"));
        assert_eq!(output(dir.path(), &["stats", "a.tar"]), "0 samples\n");
    }
}

#[test]
fn shards_without_samples_cannot_be_planned_or_measured() {
    let dir = with("a.tar", &archive(&[]));
    let error = failure(dir.path(), &["plan", "a.tar"], 1);
    assert_eq!(error, "shardstream: there is nothing to plan: no samples in 1 shard\n");
    let error = failure(dir.path(), &["bench", "a.tar", "--seconds", "0.05"], 1);
    assert!(error.contains("the shards have no samples, or --seconds is too short"), "{error}");
}

#[test]
fn control_characters_of_keys_are_escaped_in_errors() {
    let mut bytes = member("a\u{1b}[2J.cls", tar::EntryType::Regular, b"seven");
    bytes.resize(bytes.len() + 1024, 0);
    let dir = with("a.tar", &bytes);
    let error = failure(dir.path(), &["stats", "a.tar"], 1);
    assert!(error.contains("a\\u{1b}[2J") && !error.contains('\u{1b}'), "{error:?}");
}

#[test]
fn keys_may_have_any_language_and_control_characters() {
    let dir = with("a.tar", &files(&["日本/über ☃.txt", "日本/über ☃.cls", "a\u{1b}[31mb.txt"]));
    let shown = output(dir.path(), &["head", "a.tar"]);
    assert_eq!(shown, "日本/über ☃  a.tar\n  txt  0\n  cls  1\na\\u{1b}[31mb  a.tar\n  txt  2\n");
    assert_eq!(output(dir.path(), &["cat", "--field", "txt", "--key", "日本/über ☃", "a.tar"]), "0");
    output(dir.path(), &["extract", "a.tar", "--to", "out", "--keys", "日本/*"]);
    assert_eq!(fs::read(dir.path().join("out/日本/über ☃.cls")).unwrap(), b"1");
    let found = run(dir.path(), &["verify", "a.tar", "--require", "cls"]);
    assert!(found.code == Some(3) && !found.out.contains('\u{1b}'), "{found:?}");
}

#[test]
fn without_patterns_the_shards_are_those_of_the_index() {
    let dir = demo();
    output(dir.path(), &["index", "build", "data", "--to", "i.json"]);
    let named = output(dir.path(), &["info", "data", "--index", "i.json"]);
    assert_eq!(output(dir.path(), &["info", "--index", "i.json"]), named);
    assert_eq!(
        output(dir.path(), &["verify", "--index", "i.json"]),
        "3 shards of 12 samples, 61.4 kB: no damage found\n"
    );
    // An empty list must not select all shards of the index.
    fs::write(dir.path().join("list"), "# none\n").unwrap();
    let empty = failure(dir.path(), &["verify", "--index", "i.json", "--list", "list"], 1);
    assert_eq!(empty, "shardstream: no shards: the list of patterns is empty\n");
    failure(dir.path(), &["verify"], 2);
}

#[test]
fn invalid_options_are_refused_with_the_reason() {
    let dir = demo();
    assert!(failure(dir.path(), &[], 2).contains("Usage: shardstream"));
    let unknown = failure(dir.path(), &["verfy", "data"], 2);
    assert!(unknown.contains("a similar subcommand exists: 'verify'"), "{unknown}");
    for rate in ["nan", "inf", "-1"] {
        let option = format!("--samples-per-second={rate}");
        let error = failure(dir.path(), &["plan", "data", &option], 2);
        assert!(error.contains("is not a number: give 0 or more"), "{error}");
    }
    for seconds in ["nan", "soon"] {
        let error = failure(dir.path(), &["ls", "data", "--progress", seconds], 2);
        assert!(error.contains("is not a number of seconds"), "{error}");
    }
    let error = failure(dir.path(), &["extract", "data", "--to", "out", "--fields", "jpg"], 1);
    assert_eq!(error, "shardstream: none of 12 samples has a field of --fields\n");
}

/// The error names the file that cannot be written, and not only the shard. The test uses a file in place of
/// a directory: a directory without write permission would not stop root.
#[test]
fn errors_name_the_file_that_cannot_be_written() {
    let dir = demo();
    fs::write(dir.path().join("file"), "").unwrap();
    let error = failure(dir.path(), &["extract", "data", "--to", "file", "-n", "1"], 1);
    assert!(error.contains("cannot write file/000000.") && error.lines().count() == 1, "{error}");
    for command in [
        &["index", "build", "data", "--to", "file/i.json"][..],
        &["verify", "data", "--resume", "file/log"],
        &["head", "data", "--sheet", "file/sheet.png"],
    ] {
        let error = failure(dir.path(), command, 1);
        assert!(error.contains("file/") && error.lines().count() == 1, "{error}");
    }
    assert_eq!(fs::read(dir.path().join("file")).unwrap(), b"");
}

/// The shell may expand `--sheet data/*.tar` to `--sheet` and the name of a shard.
#[test]
fn a_sheet_or_timeline_does_not_replace_a_shard() {
    let dir = demo();
    let shard = "data/train-000000.tar";
    let before = fs::read(dir.path().join(shard)).unwrap();
    for command in [["head", "--sheet", shard], ["bench", "--trace", shard]] {
        let error = failure(dir.path(), &[&command[..], &["data/train-000001.tar"]].concat(), 1);
        assert!(error.contains("train-000000.tar already exists, and is not a "), "{error}");
        assert!(fs::read(dir.path().join(shard)).unwrap() == before, "{command:?}");
    }
    let classes = dir.path().join("classes.json");
    fs::write(&classes, "[\n  \"cat\",\n  \"dog\"\n]").unwrap();
    let error = failure(dir.path(), &["bench", "--trace", "classes.json", "data"], 1);
    assert!(error.contains("classes.json already exists, and is not a timeline"), "{error}");
    // An earlier sheet or timeline is replaced.
    for _ in 0..2 {
        output(dir.path(), &["head", "data", "--sheet", "sheet.png"]);
        output(dir.path(), &["bench", "data", "--seconds", "0.05", "--trace", "trace.json"]);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_an_error() {
    let dir = demo();
    let full = Path::new("/dev/full");
    let out = || fs::OpenOptions::new().write(true).open(full).unwrap();
    for command in [&["info", "data"][..], &["head", "data"]] {
        let ran = crate::program::program(dir.path()).args(command).stdout(out()).output().unwrap();
        let error = String::from_utf8_lossy(&ran.stderr).into_owned();
        assert_eq!(ran.status.code(), Some(1), "{error}");
        assert!(error.starts_with("shardstream: cannot write the output: "), "{error}");
    }
}

#[test]
fn a_list_with_a_byte_order_mark_is_read_or_its_encoding_is_named() {
    let dir = with("utf8.txt", "\u{feff}data/a.tar\r\ndata/b.tar\r\n".as_bytes());
    assert_eq!(output(dir.path(), &["ls", "--list", "utf8.txt"]), "data/a.tar\ndata/b.tar\n");
    let utf16: Vec<u8> = "\u{feff}data/ä.tar\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    fs::write(dir.path().join("utf16.txt"), utf16).unwrap();
    let error = failure(dir.path(), &["ls", "--list", "utf16.txt"], 1);
    assert!(error.contains("utf16.txt is UTF-16: save it as UTF-8"), "{error}");
}
