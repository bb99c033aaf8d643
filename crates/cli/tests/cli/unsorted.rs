//! Archives whose members are not sorted by name, such as those of `tar -cf x.tar .` and `find | tar`.

use crate::program::{failure, output, run};
use crate::support::python::Python;
use crate::support::{Content, noise, read_content};
use std::fs;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// A directory whose folder `files` has the files of 60 samples, three for each sample. Also returns the
/// content that these samples must have when they are read.
fn tree() -> (TempDir, Content) {
    let dir = tempfile::tempdir().unwrap();
    let mut expected = Content::new();
    for number in 0..60_usize {
        let key = format!("{}/{number:03}", ["cat", "dog"][number % 2]);
        let fields =
            [("bin", noise((number + 1) * 97)), ("cls", number.to_string().into()), ("txt", "é".into())];
        for (field, bytes) in &fields {
            let path = dir.path().join(format!("files/{key}.{field}"));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        }
        expected.push((key, fields.map(|(field, bytes)| (field.to_owned(), bytes)).to_vec()));
    }
    expected.sort();
    (dir, expected)
}

/// The samples in the order of their keys, and their fields in the order of the names.
fn sorted(mut samples: Content) -> Content {
    samples.iter_mut().for_each(|(_, fields)| fields.sort());
    samples.sort();
    samples
}

/// Runs GNU tar in the folder `files`.
fn tar(dir: &Path, arguments: &[&str]) {
    let done = Command::new("tar").current_dir(dir.join("files")).args(arguments).output().unwrap();
    assert!(done.status.success(), "{done:?}");
}

/// Archives all files of the first field, then those of the next field. So each sample is scattered over the
/// whole archive.
fn tar_by_field(dir: &Path, expected: &Content) {
    let fields = ["txt", "bin", "cls"].into_iter();
    let names = fields.flat_map(|field| expected.iter().map(move |(key, _)| format!("./{key}.{field}\n")));
    fs::write(dir.join("list"), names.collect::<String>()).unwrap();
    tar(dir, &["-cf", "../x.tar", "--no-recursion", "-T", "../list"]);
}

const SORT: [&str; 2] = ["--limit", "unsorted=1MiB"];

#[test]
#[ignore = "needs GNU tar: see CONTRIBUTING.md"]
fn reshard_makes_shards_of_any_archive_of_files() {
    let (dir, expected) = tree();
    let dir = dir.path();
    tar_by_field(dir, &expected);
    // Two common ways to make an archive. The second way keeps the order in which the directory lists files.
    tar(dir, &["-czf", "../y.tar.gz", "-T", "../list"]);
    tar(dir, &["-cf", "../z.tar", "."]);
    for shard in ["x.tar", "y.tar.gz", "z.tar"] {
        let reshard = ["reshard", shard, "--to", "out/%d.tar", "--count", "17", "--to-index", "i.json"];
        output(dir, &[&reshard[..], &SORT].concat());
        let found: Content = (0..4).flat_map(|n| read_content(&dir.join(format!("out/{n}.tar")))).collect();
        assert_eq!(sorted(found), expected, "{shard}");
        let said = output(dir, &["verify", "out", "--index", "i.json"]);
        assert!(said.contains("4 shards of 60 samples"), "{said}");
        let said = output(dir, &[&["verify", shard][..], &SORT].concat());
        assert!(said.contains("1 shard of 60 samples") && said.contains("no damage found"), "{said}");
        output(dir, &[&["extract", shard, "--to", "back"][..], &SORT].concat());
        for (key, fields) in &expected {
            for (field, bytes) in fields {
                assert!(fs::read(dir.join(format!("back/{key}.{field}"))).unwrap() == *bytes);
            }
        }
        let head = output(dir, &[&["head", shard, "-n", "60"][..], &SORT].concat());
        assert_eq!(head.lines().filter(|line| line.contains(shard)).count(), 60);
        let cat = output(dir, &[&["cat", shard, "--key", "dog/007", "--field", "cls"][..], &SORT].concat());
        assert_eq!(cat, "7");
        ["out", "back"].iter().for_each(|name| fs::remove_dir_all(dir.join(name)).unwrap());
        fs::remove_file(dir.join("i.json")).unwrap();
    }
}

#[test]
#[ignore = "needs GNU tar, and Python with webdataset: see CONTRIBUTING.md"]
fn python_reads_the_shards_that_reshard_makes_of_them() {
    let (dir, expected) = tree();
    let dir = dir.path();
    tar_by_field(dir, &expected);
    output(dir, &[&["reshard", "x.tar", "--to", "out/%d.tar"][..], &SORT].concat());
    tar(dir, &["-cf", "../sorted.tar", "--sort=name", "cat", "dog"]);
    let python = Python::find();
    let read = |name: &str| sorted(python.read(&[&dir.join(name)]).concat());
    assert_eq!(read("out/0.tar"), expected);
    assert_eq!(read("sorted.tar"), expected);
}

#[test]
#[ignore = "needs GNU tar: see CONTRIBUTING.md"]
fn errors_name_the_shard_the_member_and_what_to_do() {
    let (dir, expected) = tree();
    let dir = dir.path();
    tar_by_field(dir, &expected);
    // Without `--limit unsorted`, the message names the command that writes sorted shards.
    let said = run(dir, &["verify", "x.tar"]);
    assert_eq!(said.code, Some(3), "{said:?}");
    assert!(
        said.out.contains("`shardstream reshard --limit unsorted=1GiB` writes shards in which they are"),
        "{said:?}"
    );
    // A limit that is too small is an error before anything is written.
    let reshard = ["reshard", "x.tar", "--to", "out/%d.tar", "--limit", "unsorted=10KiB"];
    let error = failure(dir, &reshard, 1);
    assert!(error.contains("x.tar, byte ") && error.contains("member ./cat/000.bin"), "{error}");
    assert!(error.contains("10240 bytes") && error.contains("--limit unsorted=SIZE"), "{error}");
    assert!(!dir.join("out").exists());
    // A sample with scattered members is not one byte range.
    let shuffled = ["reshard", "x.tar", "--to", "out/%d.tar", "--shuffle", "1"];
    let error = failure(dir, &[&shuffled[..], &SORT].concat(), 1);
    assert!(error.contains("write it to .tar shards without --shuffle first"), "{error}");
    let error = failure(dir, &[&["index", "build", "x.tar", "--to", "i.json"][..], &SORT].concat(), 2);
    assert!(error.contains("reshard"), "{error}");
    let bench = ["bench", "x.tar", "--seconds", "3600"]; // refused before anything is measured
    let error = failure(dir, &[&bench[..], &SORT].concat(), 1);
    assert!(error.contains("`shardstream reshard --limit unsorted=1GiB`"), "{error}");
}
