//! Shards on a web server and in a bucket, and a server that hangs.

use crate::program::{Ran, demo, output, program, run};
use crate::support::Every;
use crate::support::bucket;
use crate::support::server::{Reply, Request, Server};
use std::collections::HashMap;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Starts a server for the files in a directory.
fn serve(directory: &Path) -> Server {
    let files: HashMap<String, Vec<u8>> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            (format!("/{}", path.file_name().unwrap().to_str().unwrap()), fs::read(path).unwrap())
        })
        .collect();
    Server::start(move |request| match files.get(request.path()) {
        Some(bytes) => Reply::object(request, bytes, "\"1\""),
        None => Reply::new(404, ""),
    })
}

#[test]
fn commands_read_from_a_web_server() {
    let dir = demo();
    let server = serve(&dir.path().join("data"));
    let url = server.url("/train-{000000..000002}.tar?sig=s3cret");
    let here = |arguments: &[&str]| output(dir.path(), arguments);
    for command in [&["info"][..], &["info", "--fast"], &["stats"], &["cat", "--field", "png"], &["verify"]] {
        let there = run(dir.path(), &[command, &[&url]].concat());
        assert_eq!((there.code, &*there.err), (Some(0), ""), "{command:?}: {there:?}");
        if command != ["cat", "--field", "png"] {
            assert_eq!(there.out, here(&[command, &["data"]].concat()), "{command:?}");
        }
        assert!(!there.out.contains("s3cret"), "{there:?}");
    }
    let listed = here(&["ls", "-l", &url]);
    assert!(listed.ends_with("3 shards, 61.4 kB (61,440 bytes)\n") && !listed.contains("s3cret"), "{listed}");
    here(&["index", "build", &url, "--to", "i.json", "--checksums"]);
    assert!(!fs::read_to_string(dir.path().join("i.json")).unwrap().contains("s3cret"));
    let verified = here(&["verify", &url, "--index", "i.json", "--resume", "log"]);
    assert!(verified.ends_with("3 shards of 12 samples, 61.4 kB: no damage found\n"), "{verified}");
    assert!(!fs::read_to_string(dir.path().join("log")).unwrap().contains("s3cret"));
    let again = here(&["verify", &url, "--index", "i.json", "--resume", "log"]);
    assert!(again.contains(", 3 of them verified before: no damage found"), "{again}");
}

#[test]
fn shards_that_differ_in_their_query_are_told_apart_in_a_log() {
    let dir = demo();
    let whole = fs::read(dir.path().join("data/train-000000.tar")).unwrap();
    let mut damaged = whole.clone();
    damaged[150] ^= 1;
    let server = Server::start(move |request| {
        let bytes = if request.query() == "shard=2" { &damaged } else { &whole };
        Reply::object(request, bytes, "\"1\"")
    });
    let verify = |shard: &str| {
        let url = server.url(&format!("/a.tar?shard={shard}"));
        run(dir.path(), &["verify", &url, "--resume", "log"])
    };
    for (shard, code, resumed) in [("1", 0, false), ("2", 3, false), ("1", 0, true), ("2", 3, true)] {
        let ran = verify(shard);
        assert_eq!(
            (ran.code, ran.out.contains("1 of them verified before")),
            (Some(code), resumed),
            "{ran:?}"
        );
    }
    assert!(!fs::read_to_string(dir.path().join("log")).unwrap().contains("?shard="));
}

#[test]
fn a_missing_shard_is_a_finding_and_an_outage_is_not() {
    let dir = demo();
    let server = serve(&dir.path().join("data"));
    let Ran { code, out, .. } = run(dir.path(), &["verify", &server.url("/train-{000000..000003}.tar")]);
    assert_eq!(code, Some(3), "{out}");
    assert!(out.contains("/train-000003.tar: not_found: not found"), "{out}");
    let down = Server::start(|_| Reply::new(503, ""));
    let ran = run(dir.path(), &["verify", &down.url("/a.tar"), "--retries", "0"]);
    assert_eq!((ran.code, ran.out.starts_with("not verified: ")), (Some(1), true), "{ran:?}");
}

#[cfg(unix)]
#[test]
fn a_second_signal_ends_a_read_that_hangs() {
    let dir = demo();
    let server = Server::start(|_| {
        std::thread::sleep(Duration::from_secs(5));
        Reply::new(503, "")
    });
    let mut child = program(dir.path())
        .args(["cat", "--field", "txt", &server.url("/a.tar")])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let start = Instant::now();
    while server.requests().is_empty() {
        assert!(start.elapsed() < Duration::from_secs(30));
        std::thread::sleep(Duration::from_millis(5));
    }
    let asked = Instant::now();
    for _ in 0..2 {
        Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(asked.elapsed() < Duration::from_secs(4), "{:?}", asked.elapsed());
}

/// Runs `info` on a URL with these environment variables. It must fail; returns its message.
fn refused_request(directory: &Path, url: &str, variables: &[(&str, &str)]) -> String {
    let mut command = program(directory);
    for name in
        ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"]
    {
        command.env_remove(name);
    }
    command.args(["info", url, "--retries", "1"]).envs(variables.iter().copied());
    let ran = Ran::from(command.output().unwrap());
    assert_eq!(ran.code, Some(1), "{ran:?}");
    ran.err
}

#[test]
fn errors_name_a_proxy_that_refuses_or_cannot_be_reached() {
    let dir = tempfile::tempdir().unwrap();
    for (status, what) in [(407, "into the URL of the proxy"), (403, "HTTP_PROXY"), (502, "HTTP_PROXY")] {
        let proxy = Server::start(move |_| Reply::new(status, ""));
        let error =
            refused_request(dir.path(), "http://shards.test/a.tar", &[("HTTP_PROXY", &proxy.url(""))]);
        assert!(error.contains(&status.to_string()) && error.contains("the proxy in HTTP_PROXY"), "{error}");
        assert!(error.contains(what), "{error}");
    }
    // If a proxy refuses a tunnel, `hyper` has one error message for status 407 and another for all others.
    for (status, what) in [(407, "into the URL of the proxy"), (403, "tunnel error")] {
        let proxy = Server::start(move |_| Reply::new(status, ""));
        let error =
            refused_request(dir.path(), "https://shards.test/a.tar", &[("HTTPS_PROXY", &proxy.url(""))]);
        assert!(error.contains("the proxy in HTTPS_PROXY") && error.contains(what), "{error}");
        let tries = proxy.requests().len();
        assert_eq!(tries, if status == 407 { 1 } else { 2 }, "a password that is missing is missing again");
    }
    for (name, url) in
        [("HTTP_PROXY", "http://shards.test/a.tar"), ("HTTPS_PROXY", "https://shards.test/a.tar")]
    {
        let error = refused_request(dir.path(), url, &[(name, "http://127.0.0.1:9")]);
        assert!(error.contains("Connection refused") && error.contains(name), "{error}");
    }
}

#[test]
fn a_missing_billing_project_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(|_| Reply::new(400, "<Error><Code>UserProjectMissing</Code></Error>"));
    let (url, project) = (server.url("/bucket/a.tar"), [("GOOGLE_USER_PROJECT", "payer")]);
    let error = refused_request(dir.path(), &url, &project);
    assert!(error.contains("GOOGLE_USER_PROJECT is sent for gs:// URLs alone"), "{error}");
    let error = refused_request(dir.path(), &url, &[]);
    assert!(error.contains("set GOOGLE_USER_PROJECT"), "{error}");
}

/// Puts an object into a bucket of [`bucket::start`].
pub(crate) fn put(port: u16, key: &str, bytes: &[u8]) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let head = format!("PUT /bucket/{key} HTTP/1.1\r\nHost: bucket\r\nContent-Length: {}\r\n", bytes.len());
    stream.write_all(&[head.as_bytes(), b"\r\n", bytes].concat()).unwrap();
    let mut reply = [0; 12];
    stream.read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b"HTTP/1.1 200");
}

#[test]
fn commands_list_read_and_write_a_bucket() {
    let dir = demo();
    let server = bucket::start();
    for number in 0..3 {
        let name = format!("data/train-{number:06}.tar");
        put(server.port(), &name, &fs::read(dir.path().join(&name)).unwrap());
    }
    put(server.port(), "data/deeper/x.tar", b"");
    let run = |arguments: &[&str]| -> String {
        let mut command = program(dir.path());
        command.env("STORAGE_EMULATOR_HOST", server.url("")).args(arguments);
        let ran = Ran::from(command.output().unwrap());
        assert_eq!((ran.code, &*ran.err), (Some(0), ""), "{arguments:?}: {ran:?}");
        ran.out
    };
    let names: String = (0..3).map(|n| format!("gs://bucket/data/train-{n:06}.tar\n")).collect();
    assert_eq!(run(&["ls", "gs://bucket/data/*.tar"]), names);
    assert_eq!(run(&["ls", "gs://bucket/data/"]), names);
    let before = server.requests().len();
    assert!(run(&["ls", "-l", "gs://bucket/data/*.tar"]).ends_with("3 shards, 61.4 kB (61,440 bytes)\n"));
    // The sizes come from the listing.
    let asked = server.requests().split_off(before);
    assert!(asked.iter().every(|request| request.query().contains("list-type")), "{asked:?}");

    let local = output(dir.path(), &["info", "data"]);
    assert_eq!(run(&["info", "gs://bucket/data/"]), local);
    let index = "gs://bucket/data/index.json";
    run(&["index", "build", "gs://bucket/data/", "--to", index, "--checksums"]);
    assert_eq!(run(&["index", "check", index, "gs://bucket/data/"]), "3 shards: as indexed\n");
    let verified = run(&["verify", "gs://bucket/data/", "--index", index, "--decode"]);
    assert!(verified.ends_with(": no damage found\n"), "{verified}");

    let extract = ["extract", "gs://bucket/data/", "--to", "gs://bucket/files", "--fields", "txt"];
    assert_eq!(run(&extract), "12 files of 12 samples, 116 B\n");
    let again = run(&[&extract[..], &["--existing", "skip"]].concat());
    assert_eq!(again, "0 files of 12 samples, 0 B, 12 files skipped\n");
    run(&["head", "gs://bucket/data/", "--sheet", "gs://bucket/sheet.png"]);
    let written = |request: &Request| request.method == "PUT" && request.path() == "/bucket/sheet%2Epng";
    assert!(server.requests().iter().any(written));
}
