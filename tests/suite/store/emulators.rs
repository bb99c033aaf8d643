//! The conformance suite for clients of cloud stores that are configured through environment variables, as
//! users configure them.
//!
//! The environment of a running process cannot be changed safely, so each test runs the suite in a process of
//! its own. The tests of S3 and Azure need servers: see `support/emulator.rs`.

use crate::store::conformance::{conditional, deleting, odd_keys, reading, small_ranges, write, writing};
use crate::support::Every;
use crate::support::child::child;
use shardstream::store::Store;

fn default() -> Store {
    Store::builder().build().unwrap()
}

const BASE: &str = "SHARDSTREAM_TEST_BASE";

/// Runs in a child process: runs the suite on the URL in the environment variable [`BASE`].
#[test]
#[ignore = "run by other tests, with environment variables that they set"]
fn suite_in_child() {
    let base = std::env::var(BASE).unwrap();
    let store = small_ranges().build().unwrap();
    let url = |name: &str| format!("{base}/reading/{name}");
    reading(&store, &url, &|name, content| write(&store, &url(name), content));
    writing(&default(), &format!("{base}/writing"));
    deleting(&store, &format!("{base}/deleting"));
    conditional(&default(), &format!("{base}/conditional"));
    // Odd keys are only tested with `gs:`, as some emulators of the other clouds change them.
    if base.starts_with("gs:") {
        odd_keys(&default(), &format!("{base}/odd"));
    }
}

/// Keys that are not valid paths.
const ODD_KEYS: [&str; 11] = [
    "/lead.tar",
    "//lead.tar",
    "a//b.tar",
    "a///b.tar",
    "a/./b.tar",
    "a/../b.tar",
    "a/",
    "a//",
    "plain & <simple>.tar",
    "\u{10fffe}/x.tar",
    "a/\u{10fffe}\u{10fffe}/x.tar",
];

/// Runs in a child process: lists the objects on the server of [`no_key_stops_a_listing`].
#[test]
#[ignore = "run by another test, with environment variables that it sets"]
fn listing_in_child() {
    let base = std::env::var(BASE).unwrap();
    let store = default();
    let list = |prefix: &str| -> Vec<String> {
        store.list(prefix).unwrap().into_iter().map(|info| info.url).collect()
    };
    let mut all = ODD_KEYS.map(|key| format!("{base}/{key}"));
    all.sort();
    assert_eq!(list(&base), all);
    let directory = format!("{base}/a");
    let inside: Vec<_> =
        all.iter().filter(|url| url.starts_with(&format!("{directory}/"))).cloned().collect();
    assert_eq!(list(&directory), inside);
    for key in ODD_KEYS {
        let url = format!("{base}/{key}");
        let read = store.open(&url).and_then(|body| body.read_all());
        // Clients cannot request these keys: they begin with a slash, or their URL would be normalised to
        // that of another key.
        if key.starts_with('/') || key.split('/').any(|part| [".", ".."].contains(&part)) {
            let error = read.unwrap_err();
            assert!(matches!(error.kind(), shardstream::ErrorKind::Config(_)), "{error:?}");
            assert_eq!(error.location().shard(), Some(url.as_str()));
        } else {
            assert_eq!(read.unwrap(), key);
        }
    }
}

/// Every key in a bucket is listed, and is read if a client can request it.
#[test]
#[cfg(feature = "gcs")]
fn no_key_stops_a_listing() {
    let server = crate::support::bucket::start_holding(&ODD_KEYS);
    run("listing_in_child", "gs://bucket", &[("STORAGE_EMULATOR_HOST", &server.url(""))]);
}

/// Runs in a child process: deletes objects on the server of [`deletions_are_retried`].
#[test]
#[ignore = "run by another test, with environment variables that it sets"]
fn deletions_in_child() {
    let base = std::env::var(BASE).unwrap();
    let store = default();
    store.delete(&format!("{base}/busy")).unwrap();
    let denied = format!("{base}/denied");
    let error = store.delete(&denied).unwrap_err();
    assert!(matches!(error.kind(), shardstream::ErrorKind::Denied(_)), "{error:?}");
    assert_eq!(error.location().shard(), Some(denied.as_str()));
}

fn run_suite(base: &str, environment: &[(&str, &str)]) {
    run("suite_in_child", base, environment);
}

#[cfg(any(feature = "s3", feature = "azure"))]
fn run_suite_on(emulator: &crate::support::emulator::Emulator) {
    run_suite(emulator.bucket(), &emulator.environment().collect::<Vec<_>>());
}

fn run(test: &str, base: &str, environment: &[(&str, &str)]) {
    let output =
        child(module_path!(), test).env(BASE, base).envs(environment.iter().copied()).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

/// Runs the suite with both forms of the emulator's address, against the test server.
#[test]
#[cfg(feature = "gcs")]
fn gcs() {
    for scheme in ["http://", ""] {
        let server = crate::support::bucket::start();
        run_suite("gs://bucket", &[("STORAGE_EMULATOR_HOST", &server.url("").replace("http://", scheme))]);
        let requests = server.requests();
        // The large upload that the suite abandons is aborted, so that no parts of it remain.
        assert!(
            requests.iter().any(|request| request.method == "DELETE" && request.query().contains("uploadId"))
        );
        let reads = requests.iter().filter(|request| request.method == "GET");
        assert!(reads.every(|request| request.header("authorization").is_none()));
    }
}

/// The second try gets "not found", as if the response to a successful first try had been lost.
#[test]
#[cfg(feature = "gcs")]
fn deletions_are_retried() {
    use crate::support::server::{Reply, Server};
    let server = Server::start(|request| match (request.path(), request.number) {
        ("/bucket/denied", _) => Reply::new(403, ""),
        (_, 0) => Reply::new(503, "busy"),
        _ => Reply::new(404, "<Error><Code>NoSuchKey</Code></Error>"),
    });
    run("deletions_in_child", "gs://bucket", &[("STORAGE_EMULATOR_HOST", &server.url(""))]);
    let asked: Vec<_> =
        server.requests().into_iter().map(|request| (request.method, request.target)).collect();
    let delete = |name: &str| ("DELETE".to_owned(), format!("/bucket/{name}"));
    assert_eq!(asked, [delete("busy"), delete("busy"), delete("denied")]);
}

#[test]
#[cfg(feature = "s3")]
#[ignore = "needs moto_server: see CONTRIBUTING.md"]
fn s3() {
    run_suite_on(&crate::support::emulator::Emulator::s3());
}

#[test]
#[cfg(feature = "azure")]
#[ignore = "needs azurite: see CONTRIBUTING.md"]
fn azure() {
    run_suite_on(&crate::support::emulator::Emulator::azure());
}
