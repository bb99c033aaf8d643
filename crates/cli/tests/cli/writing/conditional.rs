//! Two runs write the same series, or the same object of a bucket, at the same time: at most one of them
//! succeeds, and none of its files are overwritten.

use super::files;
use crate::program::{Ran, demo, output, program};
use crate::remote::put;
use crate::support::emulator::Emulator;
use crate::support::server::{Reply, Request, Server};
use crate::support::{bucket, noise};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

fn start(mut command: Command) -> Child {
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn tars(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    files(directory).into_iter().filter(|(name, _)| name.ends_with(".tar")).collect()
}

/// Starts two runs of `reshard` at the same time, and repeats this five times. Both runs write the same
/// series, but with different numbers of samples per shard. `command` returns the program with the
/// environment variables for the bucket.
fn check_two_runs_at_once(directory: &Path, bucket: &str, command: impl Fn() -> Command) {
    let counts = ["2", "3"];
    let alone = counts.map(|count| {
        let to = format!("alone{count}/%03d.tar");
        output(directory, &["reshard", "data", "--to", &to, "--count", count]);
        tars(&directory.join(format!("alone{count}")))
    });
    let mut succeeded = 0;
    for round in 0..5 {
        let place = format!("{bucket}/round{round}");
        let children = counts.map(|count| {
            let mut command = command();
            command.args(["reshard", "data", "-j", "1", "--count", count, "--to"]);
            command.arg(format!("{place}/%03d.tar"));
            start(command)
        });
        let ended = children.map(|child| Ran::from(child.wait_with_output().unwrap()));
        let messages = [
            "another run wrote shards of this series",
            "of this series already exist",
            "already exists: --resume",
        ];
        for ran in ended.iter().filter(|ran| ran.code != Some(0)) {
            assert_eq!(ran.code, Some(1), "{ended:?}");
            assert!(messages.iter().any(|message| ran.err.contains(message)), "{ran:?}");
        }
        let winners: Vec<usize> = (0..2).filter(|run| ended[*run].code == Some(0)).collect();
        assert!(winners.len() <= 1, "{ended:?}");
        // Both runs may fail: the run that began last stops the other run, but may then find a shard that the
        // other run has written.
        let Some(winner) = winners.first().copied() else { continue };
        succeeded += 1;
        let back = format!("back{round}");
        let copied = command().args(["cp", &format!("{place}/*.tar"), &format!("{back}/")]).output().unwrap();
        assert!(copied.status.success(), "{copied:?}");
        assert!(tars(&directory.join(back)) == alone[winner], "round {round}: a mix of shards");
    }
    assert!(succeeded > 0, "no run was ever whole");
}

#[test]
fn of_two_runs_on_one_series_at_most_one_succeeds() {
    let dir = demo();
    let server = bucket::start();
    check_two_runs_at_once(dir.path(), "gs://bucket", || {
        let mut command = program(dir.path());
        command.env("STORAGE_EMULATOR_HOST", server.url(""));
        command
    });
}

#[test]
#[ignore = "needs moto_server and azurite: see CONTRIBUTING.md"]
fn of_two_runs_on_one_series_at_most_one_succeeds_in_other_clouds() {
    for emulator in [Emulator::s3(), Emulator::azure()] {
        let dir = demo();
        check_two_runs_at_once(dir.path(), emulator.bucket(), || {
            let mut command = program(dir.path());
            command.envs(emulator.environment());
            command
        });
    }
}

/// The test server ignores the header `if-none-match` when an upload is completed, like many servers with the
/// API of S3. So the test checks that the header is sent.
#[test]
fn a_multipart_upload_to_s3_is_completed_only_if_no_object_exists() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("large.tar"), noise((16 << 20) + 1)).unwrap();
    let server = bucket::start();
    let keys =
        [("AWS_ACCESS_KEY_ID", "test"), ("AWS_SECRET_ACCESS_KEY", "test"), ("AWS_REGION", "us-east-1")];
    let run = |arguments: &[&str], conditional: Option<&str>| {
        let mut command = program(dir.path());
        command.envs(keys).env("AWS_ENDPOINT_URL", server.url("")).args(arguments);
        command.envs(conditional.map(|value| ("AWS_CONDITIONAL_PUT", value)));
        let ran = Ran::from(command.output().unwrap());
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let requests = server.requests();
        let last = requests.iter().rfind(|request| request.method == "POST").unwrap();
        assert!(last.query().contains("uploadId="), "{}", last.target);
        ["if-none-match", "if-match"].map(|name| last.header(name).map(str::to_owned))
    };
    let copy = ["cp", "large.tar", "s3://bucket/copy/"];
    assert_eq!(run(&copy, None), [Some("*".into()), None]);
    let [none, tag] = run(&["cp", "--force", "large.tar", "s3://bucket/copy/"], None);
    assert!(none.is_none() && tag.is_some_and(|tag| tag.starts_with('"')));
    assert_eq!(run(&["cp", "large.tar", "s3://bucket/other/"], Some("disabled")), [None, None]);
}

/// Keys are percent-encoded in a request.
fn decoded(request: &Request) -> String {
    percent_encoding::percent_decode_str(request.path()).decode_utf8().unwrap().into_owned()
}

/// Another run writes a shard after this run has checked that the shard does not exist.
#[test]
fn an_object_that_another_run_writes_meanwhile_is_not_replaced() {
    let dir = demo();
    let is_look = |method: &str, path: &str| method == "GET" && path.ends_with("tar");
    // A request that checks whether a shard exists gets the response 404, even if the shard exists.
    // Therefore, the run finds the existing shard only when the condition of its write fails.
    let server = bucket::start_with(move |request| {
        let is_hidden = is_look(&request.method, request.path()) && request.range().is_some();
        is_hidden.then(|| Reply::new(404, "<Error><Code>NoSuchKey</Code></Error>"))
    });
    let theirs = b"another run's".to_vec();
    put(server.port(), "copy/train-000000.tar", &theirs);
    put(server.port(), "series/0.tar", &theirs);
    let run = |server: &Server, arguments: &[&str]| -> Ran {
        let mut command = program(dir.path());
        command.env("STORAGE_EMULATOR_HOST", server.url("")).args(arguments).output().unwrap().into()
    };
    let ran = run(&server, &["cp", "data/train-000000.tar", "gs://bucket/copy/"]);
    assert!(ran.code == Some(1) && ran.err.contains("it exists already"), "{ran:?}");
    let ran = run(&server, &["reshard", "data", "--to", "gs://bucket/series/%d.tar", "--resume"]);
    assert!(ran.code == Some(1), "{ran:?}");
    let stored = |path: &str| {
        let puts = server.requests().into_iter().filter(|request| request.method == "PUT");
        let answered = puts.filter(|request| decoded(request).ends_with(path));
        answered
            .map(|request| request.header("x-goog-if-generation-match").map(str::to_owned))
            .collect::<Vec<_>>()
    };
    assert_eq!(stored("copy/train-000000.tar"), [None, Some("0".into())]);
    let first = stored("series/0.tar");
    assert!(first[1..].iter().all(|condition| condition.as_deref() == Some("0")), "{first:?}");
}
