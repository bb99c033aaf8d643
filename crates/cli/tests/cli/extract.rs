//! `shardstream extract`

use crate::program::{Ran, demo, failure, output, program, sample};
use crate::support::Every;
use crate::support::server::Naming::Strong;
use crate::support::server::{Request, Server};
use crate::support::{archive, bucket, files, member, noise};
use shardstream::Sample;
use std::fs;
use std::path::Path;

/// The relative paths of all files below a directory, sorted.
fn tree(directory: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut todo = vec![directory.to_owned()];
    while let Some(next) = todo.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => todo.push(path),
                false => found.push(path.strip_prefix(directory).unwrap().to_str().unwrap().to_owned()),
            }
        }
    }
    found.sort();
    found
}

#[test]
fn fields_become_files() {
    let dir = demo();
    assert_eq!(output(dir.path(), &["extract", "data", "--to", "out"]).lines().count(), 1);
    let out = dir.path().join("out");
    assert_eq!(tree(&out).len(), 48);
    let again = archive(&[0].map(|number| {
        let read = |field: &str| fs::read(out.join(format!("000000.{field}"))).unwrap();
        let fields = ["png", "cls", "txt", "json"];
        fields
            .iter()
            .fold(Sample::new(format!("{number:06}")), |sample, field| sample.with(*field, read(field)))
    }));
    assert_eq!(again, archive(&[sample(0)]));
}

#[test]
fn only_chosen_keys_fields_and_samples_are_extracted() {
    let dir = demo();
    let said = output(
        dir.path(),
        &["extract", "data", "--to", "a", "--keys", "00000[13],000010", "--fields", "txt"],
    );
    assert_eq!(said, "3 files of 3 samples, 35 B\n");
    assert_eq!(tree(&dir.path().join("a")), ["000001.txt", "000003.txt", "000010.txt"]);
    output(dir.path(), &["extract", "data", "--to", "b", "-n", "5", "--fields", "cls,txt"]);
    assert_eq!(tree(&dir.path().join("b")).len(), 10);
    let error = failure(dir.path(), &["extract", "data", "--to", "c", "--keys", "none"], 1);
    assert!(error.contains("none of 12 samples has a key of --keys"), "{error}");
}

#[test]
fn existing_files_are_not_replaced_without_an_option() {
    let dir = demo();
    let command = ["extract", "data", "--to", "out", "--fields", "txt"];
    output(dir.path(), &command);
    let error = failure(dir.path(), &command, 1);
    assert!(
        error.contains("already exists: --existing skip keeps it, --existing replace replaces it"),
        "{error}"
    );
    fs::write(dir.path().join("out/000000.txt"), "mine").unwrap();
    fs::remove_file(dir.path().join("out/000005.txt")).unwrap();
    let said = output(dir.path(), &[&command[..], &["--existing", "skip"]].concat());
    assert_eq!(said, "1 file of 12 samples, 9 B, 11 files skipped\n");
    assert_eq!(fs::read(dir.path().join("out/000000.txt")).unwrap(), b"mine");
    output(dir.path(), &[&command[..], &["--existing", "replace"]].concat());
    assert_eq!(fs::read(dir.path().join("out/000000.txt")).unwrap(), b"a cat");
}

#[test]
fn samples_with_the_same_key_do_not_overwrite_each_other() {
    let dir = tempfile::tempdir().unwrap();
    for shard in ["a", "b"] {
        let samples: Vec<Sample> =
            (0..300).map(|n| Sample::new(format!("{n:03}")).with("txt", shard)).collect();
        fs::write(dir.path().join(format!("{shard}.tar")), archive(&samples)).unwrap();
    }
    let command = ["extract", "{a,b}.tar", "-j", "2", "--to"];
    let said = output(dir.path(), &[&command[..], &["skipped", "--existing", "skip"]].concat());
    assert_eq!(said, "300 files of 600 samples, 300 B, 300 files skipped\n");
    assert_eq!(tree(&dir.path().join("skipped")).len(), 300);
    let error = failure(dir.path(), &[&command[..], &["out"]].concat(), 1);
    assert!(error.contains("two samples have the name"), "{error}");
    let error = failure(dir.path(), &[&command[..], &["replaced", "--existing", "replace"]].concat(), 1);
    assert!(error.contains("two samples have the name"), "{error}");
    assert!(tree(&dir.path().join("out")).iter().every(|name| name.len() == "000.txt".len()));
}

#[test]
fn samples_with_the_same_key_do_not_overwrite_each_other_in_a_bucket() {
    let dir = tempfile::tempdir().unwrap();
    for shard in ["a", "b"] {
        let samples: Vec<Sample> =
            (0..40).map(|n| Sample::new(format!("{n:03}")).with("txt", shard)).collect();
        fs::write(dir.path().join(format!("{shard}.tar")), archive(&samples)).unwrap();
    }
    let extract = |existing: &str| {
        // The bucket is slow, so that both threads look for an object before either has written it.
        let server = bucket::start_with(|request| {
            if request.method == "PUT" {
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
            None
        });
        let mut command = program(dir.path());
        command.args(["extract", "{a,b}.tar", "-j", "2", "--to", "gs://bucket/x", "--existing", existing]);
        Ran::from(command.env("STORAGE_EMULATOR_HOST", server.url("")).output().unwrap())
    };
    for existing in ["fail", "replace"] {
        let ran = extract(existing);
        assert!(ran.code == Some(1) && ran.err.contains("two samples have the name"), "{existing}: {ran:?}");
    }
    let ran = extract("skip");
    assert_eq!(ran.out, "40 files of 80 samples, 40 B, 40 files skipped\n", "{ran:?}");
}

#[test]
fn an_error_stops_the_other_shards() {
    let dir = tempfile::tempdir().unwrap();
    let samples: Vec<Sample> = (0..400).map(|n| Sample::new(format!("{n:03}")).with("txt", "a")).collect();
    fs::write(dir.path().join("a.tar"), archive(&samples)).unwrap();
    fs::write(dir.path().join("b.tar"), &archive(&[Sample::new("x").with("txt", "x")])[..700]).unwrap();
    let slow = bucket::start_with(|request| {
        if request.method == "PUT" {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        None
    });
    let mut command = program(dir.path());
    command.args(["extract", "{a,b}.tar", "-j", "2", "--to", "gs://bucket/x"]);
    let ran = Ran::from(command.env("STORAGE_EMULATOR_HOST", slow.url("")).output().unwrap());
    assert!(ran.code == Some(1) && ran.err.contains("b.tar"), "{ran:?}");
    let written = slow.requests().iter().filter(|request| request.method == "PUT").count();
    assert!(written < 200, "{written} of 400");
}

#[test]
fn keys_make_directories_and_stay_below_the_target() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("good.tar"), files(&["a/b/c.txt", "..d.txt"])).unwrap();
    output(dir.path(), &["extract", "good.tar", "--to", "out"]);
    assert_eq!(tree(&dir.path().join("out")), ["a/b/c.txt"]);
    for (number, name) in
        ["../x.txt", "a/../../x.txt", "/tmp/shardstream-x.txt", "a//x.txt", "a\\..\\x.txt"].iter().enumerate()
    {
        let shard = format!("bad-{number}.tar");
        let mut bytes = member(name, tar::EntryType::Regular, b"out");
        bytes.resize(bytes.len() + 1024, 0);
        fs::write(dir.path().join(&shard), bytes).unwrap();
        let error = failure(dir.path(), &["extract", &shard, "--to", "deep/down"], 1);
        assert!(error.contains("is not written"), "{name}: {error}");
    }
    let left: Vec<String> = tree(dir.path()).into_iter().filter(|name| !name.ends_with(".tar")).collect();
    assert_eq!(left, ["out/a/b/c.txt"]);
    assert!(!Path::new("/tmp/shardstream-x.txt").exists());
}

/// A power failure can leave an empty file. Older versions of the program also left one if they were killed.
#[test]
fn an_empty_file_that_a_killed_run_left_is_written_again() {
    let dir = tempfile::tempdir().unwrap();
    let sample = Sample::new("a").with("txt", "whole").with("bin", "");
    fs::write(dir.path().join("a.tar"), archive(&[sample])).unwrap();
    fs::create_dir(dir.path().join("out")).unwrap();
    fs::write(dir.path().join("out/a.txt"), "").unwrap();
    fs::write(dir.path().join("out/a.bin"), "").unwrap();
    let said = output(dir.path(), &["extract", "a.tar", "--to", "out", "--existing", "skip"]);
    assert_eq!(said, "1 file of 1 sample, 5 B, 1 file skipped\n");
    assert_eq!(fs::read(dir.path().join("out/a.txt")).unwrap(), b"whole");
}

#[test]
#[cfg(unix)]
fn a_killed_extraction_is_resumed() {
    let dir = tempfile::tempdir().unwrap();
    let samples: Vec<Sample> =
        (0..2000).map(|number| Sample::new(format!("d/{number:04}")).with("bin", noise(5000))).collect();
    fs::write(dir.path().join("a.tar"), archive(&samples)).unwrap();
    let out = dir.path().join("out/d");
    let there = || fs::read_dir(&out).into_iter().flatten().count();
    let extract = ["extract", "a.tar", "--to", "out", "--existing", "skip"];
    let mut child = program(dir.path()).args(extract).spawn().unwrap();
    while there() < 20 && child.try_wait().unwrap().is_none() {
        std::thread::sleep(std::time::Duration::from_micros(300));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    // The killed run may have left no partial file, so the test writes one.
    fs::write(out.join(".0001.bin.0123456789abcdef.partial"), "half").unwrap();
    output(dir.path(), &extract);
    let names = tree(&dir.path().join("out"));
    assert_eq!(names.len(), 2000, "no partial files are left");
    assert!(names.iter().every(|name| fs::read(dir.path().join("out").join(name)).unwrap() == noise(5000)));
}

/// The process is killed when it calls `rename` to give the first file its final name.
#[test]
#[cfg(target_os = "linux")]
#[ignore = "needs strace"]
fn without_hard_links_a_kill_leaves_no_empty_file() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.tar"), archive(&[Sample::new("a").with("txt", "whole")])).unwrap();
    let extract = |injected: &[&str]| {
        let mut strace = std::process::Command::new("strace");
        strace.current_dir(dir.path()).args([
            "-f",
            "-qq",
            "-o",
            "/dev/null",
            "-e",
            "trace=link,linkat,rename",
        ]);
        strace.args(["-e", "inject=link,linkat:error=EPERM"]).args(injected);
        strace.args([
            env!("CARGO_BIN_EXE_shardstream"),
            "extract",
            "a.tar",
            "--to",
            "out",
            "--existing",
            "skip",
        ]);
        strace.output().unwrap()
    };
    let killed = extract(&["-e", "inject=rename:signal=KILL"]);
    assert!(!killed.status.success(), "{killed:?}");
    let left = tree(&dir.path().join("out"));
    let is_whole = |name: &&String| {
        name.ends_with(".partial") || fs::read(dir.path().join("out").join(name)).unwrap() == b"whole"
    };
    assert!(left.iter().every(|name| is_whole(&name)), "{left:?}");
    let ran = extract(&[]);
    assert!(ran.status.success(), "{ran:?}");
    assert_eq!(tree(&dir.path().join("out")), ["a.txt"]);
    assert_eq!(fs::read(dir.path().join("out/a.txt")).unwrap(), b"whole");
}

#[test]
fn with_an_index_only_the_wanted_samples_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let samples: Vec<Sample> =
        (0..40).map(|n| Sample::new(format!("{n:02}")).with("bin", noise(300_000 + n))).collect();
    let shard = archive(&samples);
    let served = shard.clone();
    let server = Server::start(move |request| Strong("one").reply(request, &served));
    let url = server.url("/a.tar");
    output(dir.path(), &["index", "build", &url, "--to", "i.json"]);
    let begun = server.requests().len();
    let said = output(dir.path(), &["extract", "--index", "i.json", "--to", "first", "-n", "2"]);
    assert!(said.starts_with("2 files of 2 samples"), "{said}");
    assert_eq!(tree(&dir.path().join("first")), ["00.bin", "01.bin"]);
    let ranges: Vec<_> = server.requests()[begun..].iter().filter_map(Request::range).collect();
    assert!(ranges.iter().every(|(_, last)| *last < 700_000), "{ranges:?}");
    // An index has no keys, so the command reads all headers first. Then it reads the range of one sample.
    let keys = ["extract", &url, "--index", "i.json", "--to", "one", "--keys", "17"];
    assert!(output(dir.path(), &keys).starts_with("1 file of 1 sample"));
    assert!(fs::read(dir.path().join("one/17.bin")).unwrap() == noise(300_017));
    let error = failure(dir.path(), &[&keys[..6], &["--keys", "x"]].concat(), 1);
    assert!(error.contains("none of 40 samples has a key of --keys"), "{error}");
    // Extract all samples. Then extract from a shard that has changed since its index was built.
    let said = output(dir.path(), &["extract", &url, "--index", "i.json", "--to", "all"]);
    assert!(said.starts_with("40 files of 40 samples"), "{said}");
    fs::write(dir.path().join("a.tar"), &shard).unwrap();
    output(dir.path(), &["index", "build", "a.tar", "--to", "j.json"]);
    fs::write(dir.path().join("a.tar"), &shard[..shard.len() - 10_240]).unwrap();
    let error = failure(dir.path(), &["extract", "--index", "j.json", "--to", "none"], 1);
    assert!(error.contains("changed since the index was built") && error.contains("a.tar"), "{error}");
}
