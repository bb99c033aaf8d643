//! `--force`: the old series stays until the new series is complete, and no other files are removed.

use super::{files, partial};
use crate::program::{Ran, demo, failure, output, program, write};
use crate::support::server::{Reply, Request};
use crate::support::{bucket, noise};
use shardstream::Sample;
use shardstream::write::ShardWriter;
use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Waits until `is_done` returns true.
fn wait(is_done: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_done() {
        assert!(start.elapsed() < Duration::from_secs(60), "nothing happens");
        std::thread::sleep(Duration::from_micros(300));
    }
}

/// A temporary directory with a folder `data` of 400 samples of 20 kB.
fn large_demo() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let pattern = dir.path().join("data/%03d.tar");
    let mut writer = ShardWriter::builder(pattern.to_str().unwrap()).max_count(100).build().unwrap();
    for number in 0..400 {
        writer.write(&Sample::new(format!("{number:06}")).with("bin", noise(20_000 + number))).unwrap();
    }
    writer.finish().unwrap();
    dir
}

#[test]
fn a_file_that_is_not_of_the_series_is_kept() {
    let dir = demo();
    let reshard = |more: &[&'static str]| [&["reshard", "data", "--to", "out/%d.tar"][..], more].concat();
    output(dir.path(), &reshard(&["--count", "3"]));
    fs::write(dir.path().join("out/20240101.tar"), "mine").unwrap();
    output(dir.path(), &reshard(&["--force"]));
    let names: Vec<String> = files(&dir.path().join("out")).into_keys().collect();
    assert_eq!(names, ["0.tar", "20240101.tar", "shards.plan.json"], "three old shards are gone");
    assert_eq!(fs::read(dir.path().join("out/20240101.tar")).unwrap(), b"mine");
    // The user's own file is also kept if there is no plan.
    fs::remove_file(dir.path().join("out/shards.plan.json")).unwrap();
    output(dir.path(), &reshard(&["--count", "6", "--force"]));
    assert_eq!(files(&dir.path().join("out")).len(), 4);
    assert_eq!(fs::read(dir.path().join("out/20240101.tar")).unwrap(), b"mine");
}

#[test]
fn shards_that_no_plan_names_do_not_become_part_of_the_new_series() {
    let dir = demo();
    write(&dir.path().join("out/%d.tar"), 12, 2);
    let before = files(&dir.path().join("out"));
    let reshard = ["reshard", "data", "--to", "out/%d.tar", "--count", "4", "--force"];
    let error = failure(dir.path(), &reshard, 1);
    assert!(error.contains("out/3.tar and 2 more would follow the 3 shards of the new series"), "{error}");
    assert!(files(&dir.path().join("out")) == before);
}

/// The run is killed when the first new shards are complete.
#[test]
#[cfg(unix)]
fn a_killed_run_leaves_the_old_series() {
    let dir = large_demo();
    let out = dir.path().join("out");
    output(
        dir.path(),
        &["reshard", "data", "--to", "out/%03d.tar", "--count", "30", "--to-index", "out/x.json"],
    );
    let before = files(&out);
    let force =
        ["reshard", "data", "--to", "out/%03d.tar", "--count", "4", "--shuffle", "1", "-j", "1", "--force"];
    let mut child =
        program(dir.path()).args(force).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let staged = || {
        let entries = fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().path());
        let directories = entries.filter(|path| path.is_dir());
        directories.flat_map(|path| fs::read_dir(path).into_iter().flatten()).count()
    };
    wait(|| staged() > 2);
    child.kill().unwrap();
    child.wait().unwrap();
    let after = files(&out);
    assert!(after == before, "{:?}", after.keys());
    assert_eq!(partial(&out), 1);
    // Listings show only complete shards.
    assert_eq!(output(dir.path(), &["ls", "out/"]).lines().count(), 14);
    output(dir.path(), &force);
    output(dir.path(), &["reshard", "data", "--to", "alone/%03d.tar", "--count", "4", "--shuffle", "1"]);
    let alone = files(&dir.path().join("alone"));
    let mut now = files(&out);
    now.remove("x.json");
    assert!(now == alone && partial(&out) == 0, "{:?}", now.keys());
}

/// The directory has the files that a run leaves if it is killed while its new shards replace the old ones.
#[test]
fn an_interrupted_replacement_is_resumed() {
    let dir = demo();
    let reshard = |to: &'static str, more: &[&'static str]| {
        [&["reshard", "data", "--to", to, "--count", "3", "--shuffle", "1"][..], more].concat()
    };
    output(dir.path(), &reshard("out/%d.tar", &[]));
    let out = dir.path().join("out");
    let new = files(&out);
    write(&dir.path().join("old/%d.tar"), 12, 2);
    for number in [1, 5] {
        fs::copy(dir.path().join(format!("old/{number}.tar")), out.join(format!("{number}.tar"))).unwrap();
    }
    let plan = out.join("shards.plan.json");
    let text = fs::read_to_string(&plan).unwrap();
    let open = text.trim_end().strip_suffix('}').unwrap().trim_end();
    fs::write(&plan, format!("{open},\n  \"replaced\": {{ \"shards\": 6, \"run\": \"x\" }}\n}}\n")).unwrap();
    let error = failure(dir.path(), &reshard("out/%d.tar", &["--rank", "0", "--world-size", "2"]), 1);
    assert!(error.contains("resume it on one machine"), "{error}");
    let said = output(dir.path(), &reshard("out/%d.tar", &["--resume"]));
    assert!(said.ends_with("; 3 already there; 1 not as planned and written again\n"), "{said}");
    assert!(files(&out) == new, "{:?}", files(&out).keys());
}

#[test]
#[cfg(target_os = "linux")]
#[ignore = "needs root, to mount a small tmpfs"]
fn a_full_disk_leaves_the_old_series() {
    let dir = large_demo();
    let small = dir.path().join("small");
    fs::create_dir(&small).unwrap();
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=12m", "small"]).arg(&small).status();
    assert!(mounted.unwrap().success());
    let checked = std::panic::catch_unwind(|| {
        let reshard = ["reshard", "data", "--to", "small/%03d.tar", "--count", "30"];
        output(dir.path(), &reshard);
        let before = files(&small);
        let error = failure(dir.path(), &[&reshard[..], &["--force", "--shuffle", "1"]].concat(), 1);
        assert!(error.contains("No space left"), "{error}");
        assert!(files(&small) == before && partial(&small) == 0);
    });
    assert!(Command::new("umount").arg(&small).status().unwrap().success());
    checked.unwrap();
}

#[test]
fn two_runs_in_one_directory_leave_the_whole_series_of_one() {
    let dir = large_demo();
    let counts = ["7", "30"];
    let alone = counts.map(|count| {
        let to = format!("alone{count}/%03d.tar");
        output(dir.path(), &["reshard", "data", "--to", &to, "--count", count]);
        files(&dir.path().join(format!("alone{count}")))
    });
    let start = |count: &str| {
        let mut command = program(dir.path());
        command.args(["reshard", "data", "--to", "out/%03d.tar", "--force", "-j", "1", "--count", count]);
        command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
    };
    for _ in 0..3 {
        let ended = counts.map(start).map(|child| child.wait_with_output().unwrap());
        assert!(ended.iter().all(|run| run.status.success()), "{ended:?}");
        let there = files(&dir.path().join("out"));
        assert!(alone.contains(&there), "{:?}", there.keys());
    }
}

/// The objects that a bucket contains after these requests. Only names that end in `end` are included.
fn stored_objects(requests: &[Request], end: &str) -> BTreeMap<String, Vec<u8>> {
    let mut objects = BTreeMap::new();
    for request in requests.iter().filter(|request| request.path().replace("%2E", ".").ends_with(end)) {
        match request.method.as_str() {
            "PUT" => drop(objects.insert(request.path().to_owned(), request.body.clone())),
            "DELETE" => drop(objects.remove(request.path())),
            _ => {}
        }
    }
    objects
}

/// The upload of the first run's second shard is delayed until the second run has begun.
#[test]
fn of_two_runs_with_force_in_one_bucket_at_most_one_succeeds() {
    let dir = demo();
    let (shards, plans) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (put, planned) = (Arc::clone(&shards), Arc::clone(&plans));
    let server = bucket::start_with(move |request| -> Option<Reply> {
        let path = request.path().replace("%2E", ".");
        if request.method == "PUT" && path.ends_with("plan.json") {
            planned.fetch_add(1, Ordering::SeqCst);
        }
        if request.method == "PUT" && path.ends_with(".tar") && put.fetch_add(1, Ordering::SeqCst) == 1 {
            let begun = planned.load(Ordering::SeqCst);
            wait(|| planned.load(Ordering::SeqCst) > begun);
        }
        None
    });
    let start = |count: &str| {
        let mut command = program(dir.path());
        command.args([
            "reshard",
            "data",
            "--to",
            "gs://bucket/d/%d.tar",
            "--force",
            "-j",
            "1",
            "--count",
            count,
        ]);
        command.env("STORAGE_EMULATOR_HOST", server.url(""));
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let first = start("3");
    wait(|| shards.load(Ordering::SeqCst) >= 2);
    let second = Ran::from(start("5").wait_with_output().unwrap());
    let first = Ran::from(first.wait_with_output().unwrap());
    let expected = "another run wrote shards of this series";
    assert!(first.code == Some(1) && first.err.contains(expected), "{first:?}");
    assert!(second.code == Some(0) || second.err.contains(expected), "{second:?}");
    if second.code == Some(0) {
        output(dir.path(), &["reshard", "data", "--to", "alone/%d.tar", "--count", "5"]);
        let mut alone = files(&dir.path().join("alone"));
        alone.remove("shards.plan.json");
        let there = stored_objects(&server.requests(), ".tar");
        assert!(there.into_values().eq(alone.into_values()));
    }
}

#[test]
fn old_shards_in_a_bucket_are_removed_after_the_new_ones_are_complete() {
    let dir = demo();
    let server = bucket::start();
    let reshard = |count: &str| {
        let mut command = program(dir.path());
        command.args(["reshard", "data", "--to", "gs://bucket/d/%d.tar", "--force", "--count", count]);
        Ran::from(command.env("STORAGE_EMULATOR_HOST", server.url("")).output().unwrap())
    };
    assert_eq!(reshard("3").code, Some(0));
    let begun = server.requests().len();
    let ran = reshard("6");
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let requests = server.requests();
    let is_of_shard = |request: &&Request, method| {
        request.method == method && request.path().replace("%2E", ".").ends_with(".tar")
    };
    let last_put = requests.iter().rposition(|request| is_of_shard(&request, "PUT")).unwrap();
    let deleted: Vec<usize> =
        (begun..requests.len()).filter(|at| is_of_shard(&&requests[*at], "DELETE")).collect();
    assert!(deleted.len() == 2 && deleted.iter().all(|at| *at > last_put), "{deleted:?}, {last_put}");
    assert_eq!(stored_objects(&requests, ".tar").len(), 2);
}

/// A `.partial` file that is locked belongs to a running process, which may be another rank.
#[test]
fn partial_files_of_a_live_run_are_kept() {
    let dir = demo();
    let reshard = ["reshard", "data", "--to", "out/%d.tar", "--count", "3"];
    output(dir.path(), &reshard);
    let out = dir.path().join("out");
    let (live, dead) =
        (out.join(".3.tar.0123456789abcdef.partial"), out.join(".2.tar.0123456789abcdef.partial"));
    fs::write(&dead, "half").unwrap();
    let file = fs::File::create(&live).unwrap();
    file.lock().unwrap();
    output(dir.path(), &[&reshard[..], &["--resume"]].concat());
    assert!(live.exists() && !dead.exists());
    drop(file);
    output(dir.path(), &[&reshard[..], &["--resume"]].concat());
    assert!(!live.exists());
}
