//! The suite over clients of clouds that are configured from the environment, as users do it.
//!
//! The environment of a running process cannot be changed safely, so each test runs the suite in a process of its own.
//! A server that is not installed skips its test with a line on standard error, unless
//! `SHARDSTREAM_REQUIRE_SERVERS=1`.

use crate::store::conformance::{deleting, odd_keys, reading, small_ranges, write, writing};
use crate::support::child::child;
use shardstream::store::Store;

const BASE: &str = "SHARDSTREAM_TEST_BASE";

/// Runs in a child process: the suite under the URL that the variable names.
#[test]
#[ignore = "run by the other tests, in an environment of their making"]
fn suite() {
    let base = std::env::var(BASE).unwrap();
    let store = small_ranges().build().unwrap();
    let url = |name: &str| format!("{base}/reading/{name}");
    reading(&store, &url, &|name, content| write(&store, &url(name), content));
    writing(&Store::default(), &format!("{base}/writing"));
    deleting(&store, &format!("{base}/deleting"));
    // Some emulators of other clouds change such keys.
    if base.starts_with("gs:") {
        odd_keys(&Store::default(), &format!("{base}/odd"));
    }
}

/// Keys that are like no path.
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

/// Runs in a child process: lists what the server of [`no_key_stops_a_listing`] has.
#[test]
#[ignore = "run by another test, in an environment of its making"]
fn listing() {
    let base = std::env::var(BASE).unwrap();
    let store = Store::default();
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
        // What begins with a slash, or would be another URL once a client has tidied it up.
        if key.starts_with('/') || key.split('/').any(|part| [".", ".."].contains(&part)) {
            let error = read.unwrap_err();
            assert!(matches!(error.kind(), shardstream::ErrorKind::Config(_)), "{error:?}");
            assert_eq!(error.location().shard(), Some(url.as_str()));
        } else {
            assert_eq!(read.unwrap(), key);
        }
    }
}

/// Whatever is in a bucket: all of it is listed, and read if a client can ask for it.
#[test]
#[cfg(feature = "gcs")]
fn no_key_stops_a_listing() {
    let server = crate::support::bucket::start_holding(&ODD_KEYS);
    run("listing", "gs://bucket", &[("STORAGE_EMULATOR_HOST", &server.url(""))]);
}

/// Runs in a child process: deletes what the server of [`deletions_are_tried_again`] has.
#[test]
#[ignore = "run by another test, in an environment of its making"]
fn deletions() {
    let base = std::env::var(BASE).unwrap();
    let store = Store::default();
    store.delete(&format!("{base}/busy")).unwrap();
    let denied = format!("{base}/denied");
    let error = store.delete(&denied).unwrap_err();
    assert!(matches!(error.kind(), shardstream::ErrorKind::Denied(_)), "{error:?}");
    assert_eq!(error.location().shard(), Some(denied.as_str()));
}

fn run_suite(base: &str, environment: &[(&str, &str)]) {
    run("suite", base, environment);
}

fn run(test: &str, base: &str, environment: &[(&str, &str)]) {
    let output =
        child(module_path!(), test).env(BASE, base).envs(environment.iter().copied()).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

/// Both spellings of the emulator's address, over a server of the test's own.
#[test]
#[cfg(feature = "gcs")]
fn gcs() {
    for scheme in ["http://", ""] {
        let server = crate::support::bucket::start();
        run_suite("gs://bucket", &[("STORAGE_EMULATOR_HOST", &server.url("").replace("http://", scheme))]);
        let requests = server.requests();
        // The large upload that the suite abandons is called off, so that no part of it stays behind.
        assert!(
            requests.iter().any(|request| request.method == "DELETE" && request.query().contains("uploadId"))
        );
        let mut reads = requests.iter().filter(|request| request.method == "GET");
        assert!(reads.all(|request| request.header("authorization").is_none()));
    }
}

/// The second try finds the object gone, as it does when the answer to the first is lost.
#[test]
#[cfg(feature = "gcs")]
fn deletions_are_tried_again() {
    use crate::support::server::{Reply, Server};
    let server = Server::start(|request| match (request.path(), request.number) {
        ("/bucket/denied", _) => Reply::new(403, ""),
        (_, 0) => Reply::new(503, "busy"),
        _ => Reply::new(404, "<Error><Code>NoSuchKey</Code></Error>"),
    });
    run("deletions", "gs://bucket", &[("STORAGE_EMULATOR_HOST", &server.url(""))]);
    let asked: Vec<_> =
        server.requests().into_iter().map(|request| (request.method, request.target)).collect();
    let delete = |name: &str| ("DELETE".to_owned(), format!("/bucket/{name}"));
    assert_eq!(asked, [delete("busy"), delete("busy"), delete("denied")]);
}

#[cfg(any(feature = "s3", feature = "azure"))]
mod servers {
    use super::run_suite;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::process::{Child, Command, Stdio};
    use std::time::{Duration, Instant};

    /// A server in a process of its own, ended with the test.
    struct Server {
        process: Child,
        port: u16,
    }

    impl Drop for Server {
        fn drop(&mut self) {
            let _ = self.process.kill();
            let _ = self.process.wait();
        }
    }

    impl Server {
        /// Starts `program`, or what the environment variable `variable` names; `None` if it isn't installed.
        fn start(variable: &str, program: &str, arguments: &dyn Fn(&str) -> Vec<String>) -> Option<Self> {
            let program = std::env::var(variable).unwrap_or_else(|_| program.to_owned());
            let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            let spawned = Command::new(&program)
                .args(arguments(&port.to_string()))
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn();
            let mut process = match spawned {
                Ok(process) => process,
                Err(error) => {
                    let required =
                        std::env::var("SHARDSTREAM_REQUIRE_SERVERS").is_ok_and(|value| value == "1");
                    assert!(!required, "{program}: {error}");
                    eprintln!("SKIPPED: {program} is not installed ({error}); set {variable} to its path");
                    return None;
                }
            };
            let deadline = Instant::now() + Duration::from_secs(60);
            while TcpStream::connect(("127.0.0.1", port)).is_err() {
                if let Some(status) = process.try_wait().unwrap() {
                    panic!("{program} ended: {status}");
                }
                assert!(Instant::now() < deadline, "{program} does not answer");
                std::thread::sleep(Duration::from_millis(50));
            }
            Some(Server { process, port })
        }

        /// A request without a body, as raw as can be; the first line of the answer.
        fn request(&self, method: &str, target: &str, headers: &str) -> String {
            let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
            let host = format!("127.0.0.1:{}", self.port);
            write!(
                stream,
                "{method} {target} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\nConnection: close\r\n{headers}\r\n"
            )
            .unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            answer.lines().next().unwrap_or_default().to_owned()
        }
    }

    #[test]
    #[cfg(feature = "s3")]
    fn s3() {
        let arguments = |port: &str| ["-H", "127.0.0.1", "-p", port].map(String::from).to_vec();
        let Some(server) = Server::start("SHARDSTREAM_TEST_MOTO", "moto_server", &arguments) else { return };
        let answer = server.request("PUT", "/bucket", "Authorization: AWS test:test\r\n");
        assert!(answer.contains("200"), "{answer}");
        let endpoint = format!("http://127.0.0.1:{}", server.port);
        let keys =
            [("AWS_ACCESS_KEY_ID", "test"), ("AWS_SECRET_ACCESS_KEY", "test"), ("AWS_REGION", "us-east-1")];
        run_suite("s3://bucket", &[&keys[..], &[("AWS_ENDPOINT_URL", endpoint.as_str())]].concat());
    }

    /// Signs for the well-known account of the emulator, whose key is public: all services, to the end of the century.
    #[cfg(feature = "azure")]
    const SIGNATURE: &str = "sv=2019-12-12&ss=b&srt=sco&sp=rwdlac&se=2099-01-01T00%3A00%3A00Z&spr=https%2Chttp\
                             &sig=0inStVod1SiNNw%2FCJ4fRrpJIdRZAadbisT7bZCD4KQs%3D";

    #[test]
    #[cfg(feature = "azure")]
    fn azure() {
        let directory = tempfile::tempdir().unwrap();
        let location = directory.path().to_str().unwrap();
        let arguments = |port: &str| {
            let options = ["--blobHost", "127.0.0.1", "--blobPort", port, "--location", location];
            let flags = ["--loose", "--skipApiVersionCheck", "--disableTelemetry", "--silent"];
            options.into_iter().chain(flags).map(String::from).collect()
        };
        let Some(server) = Server::start("SHARDSTREAM_TEST_AZURITE", "azurite-blob", &arguments) else {
            return;
        };
        let target = format!("/devstoreaccount1/container?restype=container&{SIGNATURE}");
        let answer = server.request("PUT", &target, "x-ms-version: 2019-12-12\r\n");
        assert!(answer.contains("201"), "{answer}");
        let url = format!("http://127.0.0.1:{}", server.port);
        run_suite(
            "az://container",
            &[("AZURE_STORAGE_USE_EMULATOR", "true"), ("AZURITE_BLOB_STORAGE_URL", &url)],
        );
    }
}
