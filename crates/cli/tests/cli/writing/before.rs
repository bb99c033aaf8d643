//! Errors that the writing commands find before they write anything: invalid samples, existing series and
//! documents that must not be replaced, changed shards.

use super::{files, photos, samples};
use crate::program::{demo, failure, output, run};
use crate::support::Every;
use crate::support::archive;
use shardstream::Sample;
use std::fs;
use std::path::Path;

/// Whether a directory is empty or missing.
fn is_empty(directory: &Path) -> bool {
    fs::read_dir(directory).map_or(true, |mut entries| entries.next().is_none())
}

/// Writes a shard `in/NAME.tar` of samples with a field `txt` each.
fn shard(directory: &Path, name: &str, keys: &[&str]) {
    let samples: Vec<Sample> = keys.iter().map(|key| Sample::new(*key).with("txt", name)).collect();
    fs::create_dir_all(directory.join("in")).unwrap();
    fs::write(directory.join(format!("in/{name}.tar")), archive(&samples)).unwrap();
}

#[test]
fn duplicate_keys_in_a_shard_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    shard(dir.path(), "a", &["0", "1", "2"]);
    shard(dir.path(), "b", &["3", "4", "2"]);
    for command in [&["reshard", "in", "--to", "out/%d.tar"][..], &["split", "in", "--to", "out/%d.tar=1"]] {
        let error = failure(dir.path(), command, 1);
        assert!(error.contains("in/b.tar, sample 2") && error.contains("in the archive already"), "{error}");
        assert!(is_empty(&dir.path().join("out")));
    }
    // A key may occur again in another shard.
    output(dir.path(), &["reshard", "in", "--to", "out/%d.tar", "--count", "3"]);
    // With an index, the keys are not known until the samples are written.
    output(dir.path(), &["index", "build", "in", "--to", "in.json"]);
    let error = failure(dir.path(), &["reshard", "in", "--index", "in.json", "--to", "by/%d.tar"], 1);
    assert!(error.contains("in the archive already"), "{error}");
    assert!(!files(&dir.path().join("by")).keys().any(|name| name.ends_with(".tar")));
}

#[test]
fn a_choice_of_fields_that_leaves_a_sample_empty_is_refused() {
    let dir = demo();
    output(dir.path(), &["index", "build", "data", "--to", "data.json"]);
    // Only the last sample lacks a field.
    let mut more: Vec<Sample> =
        (20..23).map(|n| Sample::new(n.to_string()).with("cls", 1).with("txt", "a")).collect();
    more.push(Sample::new("23").with("txt", "a"));
    fs::create_dir(dir.path().join("more")).unwrap();
    fs::write(dir.path().join("more/a.tar"), archive(&more)).unwrap();
    output(dir.path(), &["index", "build", "more", "--to", "more.json"]);
    for (data, edit, expected) in [
        ("data", ["--rename", "txt=cls"], "two fields of sample 0 would have the name \"cls\""),
        ("data", ["--keep-fields", "jpg"], "no field of sample 0 is left"),
        ("data", ["--drop-fields", "txt,cls,json,png"], "no field of sample 0 is left"),
        ("data", ["--rename", "txt=a/b"], "the name of a field has a slash"),
        ("data", ["--rename", "txt=TXT"], "not in lower case"),
        ("more", ["--keep-fields", "cls"], "no field of sample 3 is left"),
    ] {
        let index = format!("{data}.json");
        for command in [
            &["reshard", data, "--to", "out/%d.tar", "--count", "1"][..],
            &["reshard", data, "--to", "out/%d.tar", "--count", "1", "--index", &index],
            &["split", data, "--to", "out/%d.tar=1", "--count", "1"],
        ] {
            let error = failure(dir.path(), &[command, &edit[..]].concat(), 1);
            assert!(error.contains(expected), "{command:?} {edit:?}: {error}");
            assert!(is_empty(&dir.path().join("out")), "{command:?} {edit:?}");
        }
    }
}

#[test]
fn split_writes_nothing_if_one_series_cannot_be_written() {
    let dir = demo();
    let split = |val: &str, more: &[&str]| {
        run(dir.path(), &[&["split", "data", "--to", "out/train-%d.tar=0.9", "--to", val], more].concat())
    };
    // The second share is so small that it gets none of the twelve samples.
    let ran = split("out/val-%d.tar=0.000001", &["--indexes"]);
    assert!(ran.code == Some(1) && ran.err.contains("no sample is left for out/val-%d.tar"), "{ran:?}");
    assert!(is_empty(&dir.path().join("out")));
    // The second series already exists.
    output(dir.path(), &["reshard", "data", "--to", "val/v-%d.tar"]);
    let ran = split("val/v-%d.tar=0.1", &[]);
    assert!(ran.code == Some(1) && ran.err.contains("1 shard of this series already exists"), "{ran:?}");
    assert!(is_empty(&dir.path().join("out")));
    // The second series' index would overwrite a file that is not an index.
    fs::create_dir(dir.path().join("new")).unwrap();
    fs::write(dir.path().join("new/v.index.json"), "mine").unwrap();
    for resume in [&[][..], &["--resume"]] {
        let ran = split("new/v-%d.tar=0.1", &[&["--indexes"][..], resume].concat());
        assert!(ran.code == Some(1) && ran.err.contains("new/v.index.json already exists"), "{ran:?}");
        assert!(is_empty(&dir.path().join("out")));
    }
    for to in ["./out//train-%d.tar=0.1", "out/../out/train-%d.tar=0.1"] {
        let ran = split(to, &[]);
        assert!(ran.code == Some(2) && ran.err.contains("two series have the same names"), "{ran:?}");
    }
}

#[test]
fn an_existing_index_is_not_replaced() {
    let dir = photos();
    let create = ["create", "--from-dir", "photos", "--to", "out/p-%d.tar", "--index", "p.json"];
    fs::write(dir.path().join("p.json"), "{}").unwrap();
    for resume in [&[][..], &["--resume"]] {
        let error = failure(dir.path(), &[&create[..], resume].concat(), 1);
        assert!(error.contains("p.json already exists"), "{error}");
        assert!(is_empty(&dir.path().join("out")) && fs::read(dir.path().join("p.json")).unwrap() == b"{}");
    }
    output(dir.path(), &[&create[..], &["--force"]].concat());
    let before = fs::read(dir.path().join("p.json")).unwrap();
    output(dir.path(), &[&create[..], &["--resume"]].concat());
    assert!(fs::read(dir.path().join("p.json")).unwrap() == before);
    // `p.json` is the index of another series.
    let reshard = ["reshard", "out/p-0.tar", "--to", "re/x-%d.tar", "--to-index", "p.json"];
    for resume in [&[][..], &["--resume"]] {
        let error = failure(dir.path(), &[&reshard[..], resume].concat(), 1);
        assert!(error.contains("p.json already exists"), "{error}");
        assert!(is_empty(&dir.path().join("re")));
    }
    // Even --force does not replace the input by an index.
    let there = fs::read(dir.path().join("out/p-0.tar")).unwrap();
    let command = ["reshard", "out/p-0.tar", "--to", "re/x-%d.tar", "--to-index", "out/p-0.tar", "--force"];
    let error = failure(dir.path(), &command, 1);
    assert!(error.contains("is not a JSON document"), "{error}");
    assert!(fs::read(dir.path().join("out/p-0.tar")).unwrap() == there && is_empty(&dir.path().join("re")));
    // The index must not replace another file of the series.
    for place in ["re/x.plan.json", "./re/x-3.tar"] {
        let error =
            failure(dir.path(), &["reshard", "out/p-0.tar", "--to", "re/x-%d.tar", "--to-index", place], 2);
        assert!(error.contains("would replace a file of its series"), "{error}");
    }
}

#[test]
fn a_list_of_other_classes_is_not_replaced() {
    let dir = photos();
    let out = dir.path().join("out");
    fs::create_dir(&out).unwrap();
    let create = ["create", "--from-dir", "photos", "--to", "out/p-%d.tar"];
    fs::write(out.join("p.classes.json"), "[\"bird\"]").unwrap();
    for resume in [&[][..], &["--resume"]] {
        let error = failure(dir.path(), &[&create[..], resume].concat(), 1);
        assert!(error.contains("out/p.classes.json already exists"), "{error}");
        assert_eq!(files(&out).len(), 1);
    }
    output(dir.path(), &[&create[..], &["--force"]].concat());
    assert!(fs::read_to_string(out.join("p.classes.json")).unwrap().contains("owl"));
    // A list of the same classes is accepted.
    fs::remove_file(out.join("p-0.tar")).unwrap();
    output(dir.path(), &create);
}

/// If the index and the classes of the old shards stayed, they could be mistaken for the index and the
/// classes of the new shards.
#[test]
fn force_removes_the_index_and_classes_of_old_shards() {
    let dir = photos();
    let create = ["create", "--from-dir", "photos", "--to", "out/p-%d.tar", "--max-count", "5"];
    output(dir.path(), &[&create[..], &["--index"]].concat());
    let there = || -> Vec<String> { files(&dir.path().join("out")).into_keys().collect() };
    let documents = || there().into_iter().filter(|name| name.ends_with(".json")).collect::<Vec<_>>();
    assert_eq!(documents(), ["p.classes.json", "p.index.json", "p.plan.json"]);
    output(dir.path(), &[&create[..], &["--force"]].concat());
    assert_eq!(documents(), ["p.classes.json", "p.plan.json"]);
    fs::write(dir.path().join("list.csv"), "name,file\na,photos/cat/0.png\n").unwrap();
    output(
        dir.path(),
        &["create", "--from-csv", "list.csv", "--file", "file", "--to", "out/p-%d.tar", "--force"],
    );
    assert_eq!(documents(), ["p.plan.json"]);
}

#[test]
#[cfg(unix)]
fn named_pipes_are_refused() {
    let dir = photos();
    let made = std::process::Command::new("mkfifo").arg(dir.path().join("photos/cat/9.png")).status();
    assert!(made.unwrap().success());
    let error = failure(dir.path(), &["create", "--from-dir", "photos", "--to", "out/p-%d.tar"], 1);
    assert!(error.contains("photos/cat/9.png: this is not a file"), "{error}");
}

#[test]
fn index_commands_replace_no_other_file() {
    let dir = demo();
    output(dir.path(), &["index", "build", "data", "--to", "i.json"]);
    output(dir.path(), &["index", "export-wids", "i.json", "--to", "data/wids.json"]);
    let before = files(&dir.path().join("data"));
    let there = "data/train-000000.tar";
    for command in [
        &["index", "build", "data"][..],
        &["index", "merge", "i.json"],
        &["index", "export-wids", "i.json"],
        &["index", "import-wids", "data/wids.json"],
    ] {
        let error = failure(dir.path(), &[command, &["--to", there]].concat(), 1);
        assert!(error.contains("data/train-000000.tar already exists"), "{command:?}: {error}");
        assert!(files(&dir.path().join("data")) == before, "{command:?}");
        // --force does not replace a shard.
        let error = failure(dir.path(), &[command, &["--to", there, "--force"]].concat(), 1);
        assert!(error.contains("is not a JSON document"), "{command:?}: {error}");
        assert!(files(&dir.path().join("data")) == before, "{command:?}");
        fs::write(dir.path().join("old.json"), "{}").unwrap();
        output(dir.path(), &[command, &["--to", "old.json", "--force"]].concat());
        assert!(fs::read(dir.path().join("old.json")).unwrap().starts_with(b"{"), "{command:?}");
    }
}

#[test]
fn changed_shards_are_named() {
    let dir = demo();
    output(dir.path(), &["index", "build", "data", "--to", "i.json"]);
    output(dir.path(), &["plan", "data", "--index", "i.json"]);
    let place = dir.path().join("data/train-000001.tar");
    let mut bytes = fs::read(&place).unwrap();
    bytes.extend([0; 10_240]);
    fs::write(&place, bytes).unwrap();
    fs::remove_file(dir.path().join("data/train-000002.tar")).unwrap();
    let shards = "data/train-{000000..000002}.tar";
    for command in [&["plan", shards][..], &["reshard", shards, "--to", "out/%d.tar"]] {
        let error = failure(dir.path(), &[command, &["--index", "i.json"]].concat(), 1);
        assert!(error.contains("2 of 3 shards changed since the index was built"), "{error}");
        for shard in ["data/train-000001.tar", "data/train-000002.tar"] {
            assert!(error.contains(shard), "{shard}: {error}");
        }
        assert!(!error.contains("data/train-000000.tar") && is_empty(&dir.path().join("out")), "{error}");
    }
}

#[test]
fn long_names_are_counted_in_the_planned_sizes() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("in")).unwrap();
    let long = "d".repeat(120);
    let write = |name: &str, key: &dyn Fn(usize) -> String| {
        let samples: Vec<Sample> =
            (0..60).map(|n| Sample::new(key(n)).with("cls", 1).with("txt", "a")).collect();
        fs::write(dir.path().join(name), archive(&samples)).unwrap();
    };
    write("in/a.tar", &|n| format!("{n:03}"));
    write("in/b.tar", &|n| format!("{long}{n:03}"));
    // A long name with a slash fits into one header: the text before the slash goes into the field `prefix`.
    write("in/c.tar", &|n| format!("{long}/{n:03}"));
    output(dir.path(), &["index", "build", "in", "--to", "i.json"]);
    let (limit, mut counts) = (30_720, Vec::new());
    let longer = format!("txt={}", "x".repeat(90));
    for (number, more) in
        [&[][..], &["--index", "i.json"], &["--rename", &longer], &["--rename", &longer, "--index", "i.json"]]
            .iter()
            .enumerate()
    {
        let (out, to) = (dir.path().join(number.to_string()), format!("{number}/%03d.tar"));
        output(dir.path(), &[&["reshard", "in", "--to", &to, "--max-size", "30720"], *more].concat());
        assert_eq!(samples(&out, "0").len(), 180);
        let sizes: Vec<usize> = files(&out)
            .into_iter()
            .filter(|(name, _)| name.ends_with(".tar"))
            .map(|(_, file)| file.len())
            .collect();
        assert!(sizes.iter().every(|size| *size <= limit), "{more:?}: {sizes:?}");
        counts.push(sizes.len());
    }
    // Without `--rename`, a run with an index writes as many shards as a run without an index. If `--rename`
    // lengthens a field's name, the sizes planned from an index assume that the field needs the headers of a
    // long name. Therefore, the run with an index may write more shards than the run without an index.
    assert!(counts[0] == counts[1] && counts[2] <= counts[3], "{counts:?}");
}

#[test]
fn the_planned_sizes_count_names_that_the_index_does_not_have() {
    let dir = tempfile::tempdir().unwrap();
    // GNU tar writes non-ASCII names in a single header.
    let mut bytes = Vec::new();
    for number in 0..60 {
        bytes.extend(crate::support::member(&format!("é{number:03}.txt"), tar::EntryType::Regular, b"a"));
    }
    bytes.resize(bytes.len() + 1024, 0);
    fs::write(dir.path().join("a.tar"), bytes).unwrap();
    output(dir.path(), &["index", "build", "a.tar", "--to", "i.json"]);
    let reshard = |to: &str, more: &[&str]| {
        run(dir.path(), &[&["reshard", "a.tar", "--to", to, "--max-size", "30720"], more].concat())
    };
    let ran = reshard("names/%d.tar", &[]);
    assert_eq!((ran.code, &*ran.err), (Some(0), ""), "{ran:?}");
    let ran = reshard("index/%d.tar", &["--index", "i.json"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(
        ran.err.contains("larger than --max-size, up to ") && ran.err.contains("without --index"),
        "{ran:?}"
    );
}
