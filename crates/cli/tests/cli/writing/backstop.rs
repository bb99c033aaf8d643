//! Checks that are repeated while shards are written: a listing may be outdated, and other runs may write at
//! the same time.

use super::{files, samples};
use crate::program::{Ran, demo, output, program, write};
use crate::support::archive;
use crate::support::bucket;
use crate::support::server::{Reply, Request};
use shardstream::Sample;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

fn reshard(directory: &Path, url: &str, more: &[&str]) -> Ran {
    let mut command = program(directory);
    command
        .args(["reshard", "data", "--to", "gs://bucket/d/x-%03d.tar", "--count", "5", "-j", "1"])
        .args(more);
    command.env("STORAGE_EMULATOR_HOST", url).output().unwrap().into()
}

/// Whether the name of the requested object ends in `end`.
fn is_named(request: &Request, end: &str) -> bool {
    request.path().replace("%2E", ".").ends_with(end)
}

/// Whether a request lists objects.
fn is_listing(request: &Request) -> bool {
    request.method == "GET" && request.path().trim_matches('/') == "bucket"
}

#[test]
fn shards_that_a_listing_does_not_show_are_not_overwritten() {
    let dir = demo();
    let lags = Arc::new(AtomicBool::new(false));
    let is_late = Arc::clone(&lags);
    let server = bucket::start_with(move |request| {
        let empty = is_listing(request) && is_late.load(Ordering::SeqCst);
        empty
            .then(|| Reply::new(200, "<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>"))
    });
    assert_eq!(reshard(dir.path(), &server.url(""), &[]).code, Some(0));
    lags.store(true, Ordering::SeqCst);
    let puts = || {
        let is_put = |request: &&Request| request.method == "PUT" && is_named(request, ".tar");
        server.requests().iter().filter(is_put).count()
    };
    let before = puts();
    // The listing shows no shards, but existing shards are not overwritten.
    let ran = reshard(dir.path(), &server.url(""), &[]);
    assert!(ran.code == Some(1) && ran.err.contains("this shard already exists"), "{ran:?}");
    assert_eq!(puts(), before);
    let ran = reshard(dir.path(), &server.url(""), &["--resume"]);
    assert!(ran.code == Some(0) && ran.out.ends_with("; 3 already there\n"), "{ran:?}");
    assert_eq!(puts(), before);
}

/// A resumed run detects a replaced object by its version, so it need not read all shards.
#[test]
fn a_replaced_object_is_written_again() {
    let dir = demo();
    let server = bucket::start();
    let url = server.url("");
    assert_eq!(reshard(dir.path(), &url, &[]).code, Some(0));
    let of = |number: usize, method: &str| {
        let end = format!("{number:03}.tar");
        let of_shard = |request: &&Request| request.method == method && is_named(request, &end);
        server.requests().iter().filter(of_shard).cloned().collect::<Vec<_>>()
    };
    let mut damaged = of(1, "PUT").pop().unwrap().body;
    let before = damaged.clone();
    damaged[600] ^= 1;
    fs::write(dir.path().join("damaged.tar"), damaged).unwrap();
    let mut replace = program(dir.path());
    replace
        .args(["cp", "damaged.tar", "gs://bucket/d/x-001.tar", "--force"])
        .env("STORAGE_EMULATOR_HOST", &url);
    assert!(replace.output().unwrap().status.success());
    let reads = of(0, "GET").len();
    let ran = reshard(dir.path(), &url, &["--resume"]);
    assert!(ran.out.ends_with("; 2 already there; 1 not as planned and written again\n"), "{ran:?}");
    assert!(of(1, "PUT").pop().unwrap().body == before);
    assert_eq!(
        (of(0, "PUT").len(), of(0, "GET").len()),
        (1, reads + 2),
        "one for its version, one for its index"
    );
}

#[test]
fn a_run_stops_if_its_plan_has_changed() {
    let dir = demo();
    // The server returns the plan of another command, as if another run had replaced the saved plan.
    let (plan, is_other) = (Mutex::new(Vec::new()), Arc::new(AtomicBool::new(false)));
    let swaps = Arc::clone(&is_other);
    let server = bucket::start_with(move |request| {
        let is_plan = is_named(request, "x.plan.json");
        match request.method.as_str() {
            "PUT" if is_plan => plan.lock().unwrap().clone_from(&request.body),
            "GET" if is_plan && swaps.load(Ordering::SeqCst) => {
                let text = String::from_utf8(plan.lock().unwrap().clone()).unwrap();
                let other = text.replace("\"reshard\"", "\"split\"");
                return Some(Reply::object(request, other.as_bytes(), "\"other\""));
            }
            _ => {}
        }
        None
    });
    // With --force, the plan is read only at the end.
    let ran = reshard(dir.path(), &server.url(""), &["--force"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    is_other.store(true, Ordering::SeqCst);
    let ran = reshard(dir.path(), &server.url(""), &["--force"]);
    let expected = "another run wrote shards of this series at the same time";
    assert!(ran.code == Some(1) && ran.err.contains(expected), "{ran:?}");
    assert!(ran.err.contains("command split then, reshard now"), "{ran:?}");
}

#[test]
fn a_shard_with_other_keys_of_the_same_sizes_is_written_again() {
    let dir = demo();
    let shard = |name: &str, first: usize| {
        let samples: Vec<Sample> = (first..first + 4)
            .map(|n| Sample::new(format!("{n:03}")).with("cls", 1).with("txt", "same"))
            .collect();
        fs::create_dir_all(dir.path().join("in")).unwrap();
        fs::write(dir.path().join("in").join(name), archive(&samples)).unwrap();
    };
    shard("0.tar", 0);
    shard("1.tar", 4);
    let reshard = ["reshard", "in", "--to", "out/%d.tar", "--count", "4"];
    output(dir.path(), &reshard);
    let out = dir.path().join("out");
    let before = files(&out);
    // The shards differ only in their keys.
    fs::copy(out.join("1.tar"), out.join("0.tar")).unwrap();
    let again = output(dir.path(), &[&reshard[..], &["--resume"]].concat());
    assert!(again.ends_with("; 1 already there; 1 not as planned and written again\n"), "{again}");
    assert!(files(&out) == before && samples(&out, "0")[0].0 == "000");
    // Samples in another order make another shard.
    let mut samples: Vec<Sample> =
        (0..4).map(|n| Sample::new(format!("{n:03}")).with("cls", 1).with("txt", "same")).collect();
    samples.reverse();
    fs::write(out.join("0.tar"), archive(&samples)).unwrap();
    let again = output(dir.path(), &[&reshard[..], &["--resume"]].concat());
    assert!(again.contains("1 not as planned and written again"), "{again}");
    assert!(files(&out) == before);
}

#[test]
fn the_first_error_stops_all_threads() {
    let dir = tempfile::tempdir().unwrap();
    write(&dir.path().join("data/%03d.tar"), 300, 10);
    // Uploads are slow, except for one upload that is refused at once.
    let server = bucket::start_with(|request| {
        let is_put = request.method == "PUT";
        if is_put && is_named(request, "010.tar") {
            return Some(Reply::new(403, "<Error><Code>AccessDenied</Code></Error>"));
        }
        if is_put && is_named(request, ".tar") {
            std::thread::sleep(std::time::Duration::from_millis(300));
        }
        None
    });
    let url = server.url("");
    for command in [
        &["cp", "data", "gs://bucket/copy/", "-j", "4"][..],
        &["reshard", "data", "--to", "gs://bucket/re/%03d.tar", "--count", "10", "-j", "4"],
    ] {
        let before = server.requests().len();
        let mut program = program(dir.path());
        let ran = Ran::from(program.args(command).env("STORAGE_EMULATOR_HOST", &url).output().unwrap());
        assert!(ran.code == Some(1) && ran.err.contains("010.tar"), "{ran:?}");
        let is_put = |request: &&Request| request.method == "PUT" && is_named(request, ".tar");
        let puts = server.requests()[before..].iter().filter(is_put).count();
        assert!(puts < 18, "{command:?}: {puts} of 30");
    }
    // The copies before the failure are recorded.
    let records =
        server.requests().iter().filter(|r| r.method == "PUT" && is_named(r, "copies.json")).count();
    assert_eq!(records, 1);
}
