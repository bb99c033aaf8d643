//! `create` from lists: the shards have all files and values of the list, or an error names what is missing.

use super::{files, photos, samples, text};
use crate::program::{Ran, failure, output, program, run};
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Stdio;

/// Runs `create --from-list -` with this text on stdin.
fn from_stdin(directory: &Path, list: &str, more: &[&str]) -> Ran {
    let mut child = program(directory)
        .args(["create", "--from-list", "-", "--to", "out/%03d.tar"])
        .args(more)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(list.as_bytes()).unwrap();
    child.wait_with_output().unwrap().into()
}

/// Makes a directory with these files. The content of each file is its name.
fn directory(names: &[&str]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for name in names {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, name).unwrap();
    }
    dir
}

#[test]
fn two_files_of_one_field_are_refused_and_both_are_named() {
    let dir = directory(&["a.txt", "a.TXT", "k.txt", "p/x.txt"]);
    let there = dir.path().join("p/x.txt").display().to_string();
    for (list, expected) in [
        ("k.txt\na.txt\na.TXT\n", "line 3: a.TXT: its sample has the field txt already: a.txt (line 2)"),
        ("./k.txt\n\nk.txt\n", "line 3: k.txt: its sample has the field txt already: ./k.txt (line 1)"),
        ("k.txt\nk.txt\n", "line 2: k.txt: its sample has the field txt already: k.txt (line 1)"),
        ("a.txt\n/k.txt\nk.txt\n", "stdin, line 3 (k.txt)"),
        ("a.txt\n/k.txt\nk.txt\n", "stdin, line 2 (/k.txt) has the same key"),
    ] {
        let ran = from_stdin(dir.path(), list, &[]);
        assert!(ran.code == Some(1) && ran.err.contains(expected), "{expected}: {ran:?}");
        assert!(!dir.path().join("out").exists());
    }
    // Two files in different folders have the same key. They are refused, because they may belong to two
    // different samples.
    let ran = from_stdin(dir.path(), &format!("{there}\n{}\n", &there[1..].replace(".txt", ".cls")), &[]);
    assert!(ran.code == Some(1) && ran.err.contains("/x.txt) has the same key"), "{ran:?}");
}

#[test]
fn names_may_end_in_nul_as_find_print0_writes_them() {
    let dir = directory(&["a b/x.txt", "a b/ y.txt", "a b/x.cls"]);
    let ran = from_stdin(dir.path(), "a b/x.txt\0a b/ y.txt\0a b/x.cls\0", &["--null"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let found = samples(&dir.path().join("out"), "0");
    assert_eq!((super::keys(&found), text(&found[0], "cls")), (vec!["a b/x", "a b/ y"], "a b/x.cls"));
    let ran = from_stdin(dir.path(), "a\nb.txt\0", &["--null", "--force"]);
    assert!(ran.code == Some(1) && ran.err.contains("stdin, line 1"), "{ran:?}");
    let ran = from_stdin(dir.path(), "k.txt\0k.txt\0", &["--null", "--force"]);
    assert!(
        ran.code == Some(1) && ran.err.contains("name 2: k.txt: its sample has the field txt"),
        "{ran:?}"
    );
    for option in ["--null", "--classes=c.json", "--with-names"] {
        failure(dir.path(), &["create", "--from-csv", "x", option, "--to", "x/%d.tar"], 2);
    }
}

#[test]
fn two_values_of_one_field_are_refused() {
    let dir = photos();
    for (option, list, expected) in [
        (
            "--from-csv",
            "file,cls,cls\nphotos/cat/0.png,1,2\n",
            "line 1: columns 2 and 3 are both named \"cls\"",
        ),
        (
            "--from-csv",
            "file,Cls,cls\nphotos/cat/0.png,1,2\n",
            "line 2: two columns make a field \"cls\" (Cls and cls)",
        ),
        (
            "--from-tsv",
            "cls\tfile\tcls\n1\tphotos/cat/0.png\t2\n",
            "line 1: columns 1 and 3 are both named \"cls\"",
        ),
        (
            "--from-jsonl",
            "\n{\"file\": \"photos/cat/0.png\", \"cls\": 1, \"cls\": 2}\n",
            "line 2: two values are named \"cls\"",
        ),
        (
            "--from-csv",
            "file,png\nphotos/cat/0.png,1\n",
            "line 2: two columns make a field \"png\" (file and png)",
        ),
    ] {
        fs::write(dir.path().join("list"), list).unwrap();
        let error = failure(dir.path(), &["create", option, "list", "--to", "out/%d.tar"], 1);
        assert!(error.contains(&format!("list, {expected}")), "{expected}: {error}");
        assert!(!dir.path().join("out").exists());
    }
    // If both values were written to one field `json`, only the last value would be left.
    fs::write(dir.path().join("list"), "{\"file\": \"photos/cat/0.png\", \"a\": 1, \"a\": 2}").unwrap();
    let error =
        failure(dir.path(), &["create", "--from-jsonl", "list", "--as-json", "--to", "out/%d.tar"], 1);
    assert!(error.contains("list, line 1: two values are named \"a\""), "{error}");
    // `a.jpg` is a PNG, so its field would be named `png`. But the list has a value of that name.
    fs::copy(dir.path().join("photos/cat/0.png"), dir.path().join("a.jpg")).unwrap();
    fs::write(dir.path().join("list"), "file,png\na.jpg,text\n").unwrap();
    let error = failure(dir.path(), &["create", "--from-csv", "list", "--to", "out/%d.tar"], 1);
    assert!(error.contains("both a.jpg and a value of the list are the field png"), "{error}");
}

#[test]
fn numbers_are_stored_as_written() {
    let dir = photos();
    let row =
        "{\"file\": \"photos/cat/0.png\", \"id\": 12345678901234567890123, \"f\": 1.10, \"b\": [ 1E2 ]}\n";
    fs::write(dir.path().join("list.jsonl"), row).unwrap();
    let create = ["create", "--from-jsonl", "list.jsonl"];
    output(dir.path(), &[&create[..], &["--to", "out/%d.tar"]].concat());
    let found = samples(&dir.path().join("out"), "0");
    let values = ["id", "f", "b"].map(|field| text(&found[0], field));
    assert_eq!(values, ["12345678901234567890123", "1.10", "[1E2]"]);
    output(dir.path(), &[&create[..], &["--as-json", "--to", "json/%d.tar"]].concat());
    let found = samples(&dir.path().join("json"), "0");
    assert_eq!(text(&found[0], "json"), "{\"b\":[1E2],\"f\":1.10,\"id\":12345678901234567890123}");
    output(dir.path(), &[&create[..], &["--key", "id", "--to", "keys/%d.tar"]].concat());
    assert_eq!(samples(&dir.path().join("keys"), "0")[0].0, "12345678901234567890123");
}

#[test]
fn texts_are_read_from_json_lines() {
    let dir = tempfile::tempdir().unwrap();
    let lines = [
        r#"{"text": "one\n\"two\"", "path": "a.html", "n": 1}"#,
        r#"{"text": "three", "n": 2, "none": null}"#,
    ];
    fs::write(dir.path().join("list.jsonl"), lines.join("\n")).unwrap();
    let create = ["create", "--from-jsonl", "list.jsonl", "--to", "out/%d.tar"];
    let error = failure(dir.path(), &create[..], 1);
    assert!(
        error.contains("list.jsonl, line 2: no column has the path of a file")
            && error.contains("--no-files"),
        "{error}"
    );
    output(dir.path(), &[&create[..], &["--no-files"]].concat());
    let found = samples(&dir.path().join("out"), "0");
    assert_eq!(super::keys(&found), ["000000000", "000000001"]);
    assert_eq!((text(&found[0], "text"), text(&found[0], "path")), ("one\n\"two\"", "a.html"));
    assert_eq!(found[1].1.len(), 2, "null is no field");
    output(dir.path(), &[&create[..], &["--no-files", "--key", "n", "--as-json", "--force"]].concat());
    let found = samples(&dir.path().join("out"), "0");
    assert_eq!((&*found[1].0, text(&found[1], "json")), ("2", "{\"none\":null,\"text\":\"three\"}"));
    failure(dir.path(), &[&create[..], &["--no-files", "--file", "path"]].concat(), 2);
}

#[test]
fn tab_separated_values_are_read() {
    let dir = photos();
    let list = "file\ttxt\nphotos/cat/0.png\ta \"cat\", and 5\" more\r\nphotos/dog/1.png\t\"a dog\n";
    fs::write(dir.path().join("list.tsv"), list).unwrap();
    output(dir.path(), &["create", "--from-tsv", "list.tsv", "--to", "out/%d.tar"]);
    let found = samples(&dir.path().join("out"), "0");
    assert_eq!(super::keys(&found), ["photos/cat/0", "photos/dog/1"]);
    assert_eq!([text(&found[0], "txt"), text(&found[1], "txt")], ["a \"cat\", and 5\" more", "\"a dog"]);
}

/// There is a row for each caption of an image. Without keys of their own, the rows would have the same key.
#[test]
fn rows_with_the_same_file_need_keys() {
    let dir = photos();
    let list = "file,txt,id\nphotos/cat/0.png,a,k1\nphotos/cat/0.png,b,k2\n";
    fs::write(dir.path().join("list.csv"), list).unwrap();
    let create = ["create", "--from-csv", "list.csv", "--to"];
    let error = failure(dir.path(), &[&create[..], &["out/%d.tar"]].concat(), 1);
    for expected in [
        "list.csv, line 3 (photos/cat/0.png): ",
        "this key is in the archive already",
        "list.csv, line 2 (photos/cat/0.png) has the same key",
        "--key",
        "--number-keys",
    ] {
        assert!(error.contains(expected), "{expected}: {error}");
    }
    assert!(!dir.path().join("out").exists());
    let keys_of = |to: &str| {
        let found = samples(&dir.path().join(to), "0");
        found.into_iter().map(|(key, _)| key).collect::<Vec<_>>()
    };
    output(dir.path(), &[&create[..], &["ids/%d.tar", "--key", "id"]].concat());
    output(dir.path(), &[&create[..], &["numbers/%d.tar", "--number-keys"]].concat());
    assert_eq!(
        (keys_of("ids"), keys_of("numbers")),
        (vec!["k1".into(), "k2".into()], vec!["000000000".to_owned(), "000000001".into()])
    );
    // A run with other keys is not resumed.
    let error =
        failure(dir.path(), &[&create[..], &["numbers/%d.tar", "--key", "id", "--resume"]].concat(), 1);
    assert!(error.contains("number-keys true then, none now"), "{error}");
    let refused = ["numbers/%d.tar", "--number-keys", "--key", "id"];
    assert!(run(dir.path(), &[&create[..], &refused].concat()).code == Some(2));
    assert_eq!(files(&dir.path().join("numbers")).len(), 2);
}
