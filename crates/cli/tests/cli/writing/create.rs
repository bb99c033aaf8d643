//! `shardstream create`

use super::{files, photos, samples, text};
use crate::program::{failure, output, program, run};
use shardstream::Index;
use shardstream::store::Store;
use std::fs;
use std::io::Write;
use std::process::Stdio;

#[test]
fn folders_are_classes() {
    let dir = photos();
    fs::write(dir.path().join("photos/cat/notes.txt"), "no image").unwrap();
    let create =
        ["create", "--from-dir", "photos", "--to", "out/train-%06d.tar", "--max-count", "5", "--with-names"];
    let ran = run(dir.path(), &[&create[..], &["--index", "out/train.index.json"]].concat());
    assert_eq!(
        (ran.code, &*ran.out, &*ran.err),
        (
            Some(0),
            "3 shards with 12 samples, 51.2 kB: out/train-000000.tar to out/train-000002.tar\n\
             index: out/train.index.json\n",
            "shardstream: left out: 1 file with another extension\n"
        )
    );
    let out = dir.path().join("out");
    let found = samples(&out, "train");
    assert_eq!(found.len(), 12);
    for (number, sample) in found.iter().enumerate() {
        let path = format!("{}/{}.png", ["cat", "dog", "owl"][number / 4], number % 4);
        assert_eq!(sample.0, path.strip_suffix(".png").unwrap());
        assert_eq!(text(sample, "cls"), (number / 4).to_string());
        assert_eq!(text(sample, "json"), format!("{{\"path\":\"{path}\"}}"));
        let picture = sample.1.iter().find(|(field, _)| field == "png").unwrap();
        assert_eq!(picture.1, fs::read(dir.path().join("photos").join(path)).unwrap());
    }
    assert_eq!(fs::read_to_string(out.join("train.classes.json")).unwrap().split('"').count(), 7);
    let index = Index::load(&Store::default(), out.join("train.index.json").to_str().unwrap()).unwrap();
    assert_eq!((index.len(), index.samples()), (3, 12));

    // Nothing is overwritten, and existing shards are not written again.
    let before = files(&out);
    let error = failure(dir.path(), &create, 1);
    assert!(error.contains("3 shards of this series already exist"), "{error}");
    fs::remove_file(out.join("train-000001.tar")).unwrap();
    fs::write(out.join("train-000000.tar"), &before["train-000000.tar"][..10_240]).unwrap();
    let again = run(dir.path(), &[&create[..], &["--resume"]].concat());
    assert!(again.out.ends_with("; 1 already there; 1 not as planned and written again\n"), "{again:?}");
    assert!(files(&out) == before);
    let error =
        failure(dir.path(), &["create", "--from-dir", "photos", "--to", "out/train-%06d.tar", "--resume"], 1);
    assert!(error.contains("plan of other shards: max-count 5 then, 10000 now;"), "{error}");
    run(dir.path(), &["create", "--from-dir", "photos", "--to", "out/train-%06d.tar", "--force"]);
    assert_eq!(samples(&out, "train").len(), 12);
    assert!(!out.join("train-000001.tar").exists());
}

#[test]
fn the_shuffled_order_does_not_depend_on_threads_and_machines() {
    let dir = photos();
    let create = |to: &str, more: &[&str]| {
        let to = format!("{to}/%03d.tar");
        let first = ["create", "--from-dir", "photos", "--max-count", "2", "--shuffle", "7", "--to", &to];
        output(dir.path(), &[&first[..], more].concat())
    };
    create("one", &["-j", "1"]);
    create("four", &["-j", "4"]);
    for rank in ["0", "1", "2"] {
        create("ranks", &["--rank", rank, "--world-size", "3"]);
    }
    let one = files(&dir.path().join("one"));
    assert_eq!(one.len(), 8);
    assert!(one == files(&dir.path().join("four")) && one == files(&dir.path().join("ranks")));
    let found = samples(&dir.path().join("one"), "0");
    let classes: Vec<&str> = found.iter().map(|sample| text(sample, "cls")).collect();
    assert!(!classes.is_sorted() && classes.len() == 12, "{classes:?}");
    let last = create("ranks", &["--resume", "--index", "ranks/index.json"]);
    assert!(last.ends_with("; 6 already there\nindex: ranks/index.json\n"), "{last}");
    let refused = ["create", "--from-dir", "photos", "--to", "x/%d.tar", "--rank", "0", "--world-size", "2"];
    failure(dir.path(), &[&refused[..], &["--index", "x.json"]].concat(), 2);
    failure(dir.path(), &[&refused[..], &["--force"]].concat(), 2);
    failure(
        dir.path(),
        &["create", "--from-dir", "photos", "--to", "x/%d.tar", "--rank", "2", "--world-size", "2"],
        2,
    );
}

#[test]
fn samples_are_created_from_csv_and_json_lines() {
    let dir = photos();
    output(dir.path(), &["create", "--from-csv", "captions.csv", "--to", "csv/%03d.tar.gz"]);
    let found = samples(&dir.path().join("csv"), "0");
    assert_eq!((found.len(), text(&found[5], "txt"), text(&found[5], "cls")), (12, "a dog, number 1", "1"));
    assert_eq!(found[5].1.len(), 3);

    let line = |n: usize| format!("{{\"id\": \"owl/{n}\", \"image\": \"{n}.png\", \"box\": [1, {n}]}}\n");
    fs::write(dir.path().join("list.jsonl"), (0..4).map(line).collect::<String>()).unwrap();
    let create = ["create", "--from-jsonl", "list.jsonl", "--root", "photos/owl", "--key", "id", "--as-json"];
    output(dir.path(), &[&create[..], &["--file", "image=jpg.png", "--to", "json/%03d.tar"]].concat());
    let found = samples(&dir.path().join("json"), "0");
    assert_eq!((found.len(), &*found[3].0, text(&found[3], "json")), (4, "owl/3", "{\"box\":[1,3]}"));
    assert_eq!(found[3].1[0].0, "jpg.png");

    // Samples that could not be read back are refused before anything is written.
    fs::write(dir.path().join("twice.csv"), "file,key\na.png,x\nb.png,x\n").unwrap();
    for name in ["a.png", "b.png"] {
        fs::write(dir.path().join(name), super::picture(1)).unwrap();
    }
    let error =
        failure(dir.path(), &["create", "--from-csv", "twice.csv", "--key", "key", "--to", "t/%d.tar"], 1);
    assert!(error.contains("key is in the archive already") && !dir.path().join("t").exists(), "{error}");
    let error =
        failure(dir.path(), &["create", "--from-csv", "twice.csv", "--file", "none", "--to", "t/%d.tar"], 1);
    assert!(
        error.contains("twice.csv, line 2: no column has the path of a file (looked for none)"),
        "{error}"
    );
}

#[test]
fn samples_are_created_from_a_list_of_files_on_stdin() {
    let dir = photos();
    fs::write(dir.path().join("photos/cat/1.txt"), "a cat").unwrap();
    let mut child = program(dir.path())
        .args(["create", "--from-list", "-", "--to", "out/%03d.tar"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let list = "photos/cat/0.png\nphotos/cat/1.png\n./photos/cat/1.txt\n\nphotos/cat/2.png\n";
    child.stdin.take().unwrap().write_all(list.as_bytes()).unwrap();
    let ran = child.wait_with_output().unwrap();
    assert!(ran.status.success(), "{ran:?}");
    let found = samples(&dir.path().join("out"), "0");
    assert_eq!(super::keys(&found), ["photos/cat/0", "photos/cat/1", "photos/cat/2"]);
    assert_eq!((text(&found[1], "txt"), found[1].1.len()), ("a cat", 2));
}

#[test]
fn bad_files_are_found_before_anything_is_written() {
    let dir = photos();
    fs::write(dir.path().join("photos/cat/0.png"), "").unwrap();
    fs::write(dir.path().join("photos/dog/1.png"), b"<html>").unwrap();
    let create = ["create", "--from-dir", "photos", "--to", "out/%d.tar"];
    let error = failure(dir.path(), &create, 1);
    assert!(error.contains("photos/cat/0.png: the file is empty\n"), "{error}");
    assert!(error.contains("photos/dog/1.png: this is not a png; --skip-bad leaves them out"), "{error}");
    assert!(!dir.path().join("out").exists());
    let ran = run(dir.path(), &[&create[..], &["--skip-bad"]].concat());
    assert_eq!((ran.code, ran.err.lines().count()), (Some(0), 2), "{ran:?}");
    assert_eq!(samples(&dir.path().join("out"), "0").len(), 10);
    failure(dir.path(), &["create", "--to", "out/%d.tar"], 2);
    failure(dir.path(), &["create", "--from-dir", "photos", "--to", "out/x.tar"], 2);
    failure(dir.path(), &["create", "--from-dir", "photos", "--to", "out/%d.tar", "--key", "a"], 2);
}
