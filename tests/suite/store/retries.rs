//! Retries of requests that do not read objects: listings, uploads, deletions, credentials.
//!
//! Clients of cloud stores take their settings from environment variables, so each of these tests makes its
//! requests in a process of its own.

use crate::support::bucket;
use crate::support::child::child;
use crate::support::noise;
use crate::support::server::{Reply, Request, Server};
use futures::future::{self, BoxFuture, FutureExt};
use futures::stream::{self, BoxStream, StreamExt};
use shardstream::store::{GetOptions, GetResponse, ObjectInfo, Source, Store};
use shardstream::{Error, ErrorKind, Result};
use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const SIZE: &str = "SHARDSTREAM_TEST_SIZE";
const RETRIES: &str = "SHARDSTREAM_TEST_RETRIES";

/// Runs in a child process: writes an object of this many bytes, lists its bucket, reads the object and
/// deletes it.
#[test]
#[ignore = "run by other tests, with environment variables that they set"]
fn write_list_read_delete_in_child() {
    let number = |name: &str| std::env::var(name).unwrap().parse::<u32>().unwrap();
    let store =
        Store::builder().retries(number(RETRIES)).retry_pause(Duration::from_micros(10)).build().unwrap();
    let url = "gs://bucket/a.tar";
    let write = || {
        let mut object = store.create(url)?;
        object.write_all(&noise(number(SIZE) as usize)).map_err(Error::from)?;
        object.finish().map(|info| info.size)
    };
    let list = || store.list("gs://bucket").map(|objects| objects.len() as u64);
    let read = || store.open(url)?.read_all().map(|bytes| bytes.len() as u64);
    let delete = || store.delete(url).map(|()| 0);
    let calls: [(&str, &dyn Fn() -> Result<u64>); 4] =
        [("writing", &write), ("listing", &list), ("reading", &read), ("deleting", &delete)];
    for (what, call) in calls {
        match call() {
            Ok(number) => println!("{what} gave {number}"),
            Err(error) => println!("{what} failed: {error:#}"),
        }
    }
}

/// The child's output for each of its calls.
fn child_says(size: usize, retries: u32, environment: &[(&str, &str)]) -> Vec<String> {
    let mut command = child(module_path!(), "write_list_read_delete_in_child");
    for (name, _) in std::env::vars() {
        let of_cloud = ["GOOGLE_", "GCE_", "STORAGE_"].iter().any(|prefix| name.starts_with(prefix));
        if of_cloud || name.to_ascii_lowercase().ends_with("_proxy") {
            command.env_remove(name);
        }
    }
    command.env(SIZE, size.to_string()).env(RETRIES, retries.to_string()).env("HOME", "/nowhere");
    let output = command.envs(environment.iter().copied()).output().unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
    let of_call = |line: &&str| {
        ["writing ", "listing ", "reading ", "deleting "].iter().any(|what| line.starts_with(what))
    };
    // The first line begins with the name of the test.
    let lines = text.lines().map(|line| line.rsplit(" ... ").next().unwrap_or(line));
    lines.filter(of_call).map(str::to_owned).collect()
}

const WELL: [&str; 4] = ["writing gave 3", "listing gave 1", "reading gave 3", "deleting gave 0"];

#[test]
fn every_kind_of_request_is_retried_alike() {
    for reply in [Reply::new(500, ""), Reply::new(503, "").with("Retry-After", 0)] {
        let seen = Mutex::new(HashMap::<String, u32>::new());
        let server = bucket::start_with(move |request| {
            let mut seen = seen.lock().unwrap();
            let tries = seen.entry(format!("{} {}", request.method, request.path())).or_default();
            *tries += 1;
            (*tries <= 12).then(|| reply.clone())
        });
        assert_eq!(child_says(3, 16, &[("STORAGE_EMULATOR_HOST", &server.url(""))]), WELL);
    }
}

#[test]
fn a_failed_request_reports_its_number_of_tries() {
    let server = Server::start(|_| Reply::new(500, "down"));
    for text in child_says(3, 2, &[("STORAGE_EMULATOR_HOST", &server.url(""))]) {
        assert!(text.contains("after 3 tries in ") && text.contains("500"), "{text}");
    }
    assert_eq!(server.requests().len(), 4 * 3);
}

#[test]
fn all_requests_respect_retry_after() {
    let server = bucket::start_with(|request| {
        (request.number == 0).then(|| Reply::new(503, "later").with("Retry-After", 1))
    });
    let begun = std::time::Instant::now();
    assert_eq!(child_says(3, 1, &[("STORAGE_EMULATOR_HOST", &server.url(""))]), WELL);
    assert!(begun.elapsed() >= Duration::from_secs(1));
}

/// Environment variables for a bucket at `url` whose tokens come from a metadata server at the same address.
fn metadata<'a>(url: &'a str, host: &'a str) -> [(&'static str, &'a str); 3] {
    [("GOOGLE_BASE_URL", url), ("GCE_METADATA_HOST", host), ("GCE_METADATA_IP", host)]
}

/// A listing and a token response break off after 20 bytes of their bodies.
#[test]
fn a_short_response_that_breaks_off_is_requested_again() {
    let (page, token) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let server = bucket::start_with(move |request: &Request| {
        let (reply, count) = match (request.method.as_str(), request.path()) {
            ("GET", path) if path.ends_with("/token") => {
                (Reply::new(200, r#"{"access_token": "t", "expires_in": 3600}"#), &token)
            }
            ("GET", "/bucket" | "/bucket/") => {
                (Reply::new(200, "<ListBucketResult></ListBucketResult>"), &page)
            }
            _ => return None,
        };
        let first = count.fetch_add(1, Ordering::SeqCst) == 0;
        Some(if first { reply.cut(20) } else { reply })
    });
    let (url, host) = (server.url(""), server.url("").replace("http://", ""));
    let says = child_says(3, 1, &metadata(&url, &host));
    assert_eq!(says, ["writing gave 3", "listing gave 0", "reading gave 3", "deleting gave 0"]);
    let server = Server::start(|request| match request.path().ends_with("/token") {
        true => Reply::new(200, r#"{"access_token": "t", "expires_in": 3600}"#),
        false => Reply::new(200, "<ListBucketResult></ListBucketResult>").cut(20),
    });
    let (url, host) = (server.url(""), server.url("").replace("http://", ""));
    let says = child_says(3, 1, &metadata(&url, &host));
    assert!(says[1].contains("input/output error") && says[1].contains("after 2 tries"), "{says:?}");
}

/// The credential server is unreachable for longer than one series of tries. The server has answered before,
/// so reading retries as after any other fault.
#[test]
fn reading_survives_a_short_outage_of_the_credential_server() {
    let (listed, refused) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let server = bucket::start_with(move |request: &Request| match request.path() {
        path if path.ends_with("/token") => {
            let away = listed.load(Ordering::SeqCst) > 0 && refused.fetch_add(1, Ordering::SeqCst) < 10;
            let token = Reply::new(200, r#"{"access_token": "t", "expires_in": 1}"#);
            Some(if away { Reply::raw("").then_closed() } else { token })
        }
        "/bucket" | "/bucket/" => {
            listed.fetch_add(1, Ordering::SeqCst);
            Some(Reply::new(200, "<ListBucketResult></ListBucketResult>"))
        }
        _ => None,
    });
    let (url, host) = (server.url(""), server.url("").replace("http://", ""));
    let says = child_says(3, 3, &metadata(&url, &host));
    assert_eq!(says, ["writing gave 3", "listing gave 0", "reading gave 3", "deleting gave 0"]);
}

/// A server's connection that stops reading for `time` once it has read `before` bytes.
struct Resting {
    stream: TcpStream,
    before: usize,
    time: Duration,
}

impl Read for Resting {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.stream.read(buffer)?;
        match self.before.checked_sub(read) {
            Some(before) => self.before = before,
            None => std::thread::sleep(std::mem::take(&mut self.time)),
        }
        Ok(read)
    }
}

impl Write for Resting {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// The object is larger than the socket buffers, so it is still being sent when the response timeout is over.
#[test]
fn a_slow_upload_does_not_time_out() {
    let rest = |stream| Resting { stream, before: 1 << 20, time: Duration::from_millis(900) };
    let server = Server::over(Arc::new(rest), |request| match request.method.as_str() {
        "PUT" => Reply::new(200, "").with("ETag", "\"v1\""),
        _ => Reply::new(404, ""),
    });
    let length = 15 << 20;
    let environment = [("STORAGE_EMULATOR_HOST", server.url("")), ("GOOGLE_READ_TIMEOUT", "400ms".into())];
    let environment = environment.each_ref().map(|(name, value)| (*name, value.as_str()));
    assert_eq!(child_says(length, 0, &environment)[0], format!("writing gave {length}"));
}

/// A source that never answers listings and deletions. Its first body breaks off.
#[derive(Debug, Default)]
struct Mute(AtomicUsize);

impl Source for Mute {
    fn get(&self, _: &str, _: GetOptions) -> BoxFuture<'static, Result<GetResponse>> {
        let chunks = (0..40).map(|byte| Ok(vec![byte].into()));
        let fault = stream::once(async { Err(io::Error::other("broken").into()) });
        let first = self.0.fetch_add(1, Ordering::SeqCst) == 0;
        let body = if first {
            stream::iter(chunks).take(30).chain(fault).boxed()
        } else {
            stream::iter(chunks).boxed()
        };
        future::ready(Ok(GetResponse::new(body).with_size(40))).boxed()
    }

    fn list(&self, _: &str) -> BoxStream<'static, Result<ObjectInfo>> {
        stream::once(async { Ok(ObjectInfo::new("mute://a", 1)) }).chain(stream::pending()).boxed()
    }

    fn delete(&self, _: &str) -> BoxFuture<'static, Result<()>> {
        future::pending().boxed()
    }
}

fn mute() -> Store {
    let builder =
        Store::builder().retry_timeout(Duration::from_millis(200)).retry_pause(Duration::from_millis(1));
    builder.with_source("mute", Arc::new(Mute::default())).build().unwrap()
}

#[test]
fn a_source_that_never_responds_times_out() {
    let store = mute();
    for error in [store.list("mute://").unwrap_err(), store.delete("mute://a").unwrap_err()] {
        let late = matches!(error.kind(), ErrorKind::Io(error) if error.kind() == io::ErrorKind::TimedOut);
        assert!(late, "{error:?}");
    }
}

/// Chunks of the body are received until the queue of its reader is full. Waiting for the reader then does
/// not count as a fault.
#[test]
fn an_idle_reader_uses_up_no_retry_time() {
    let mut body = mute().open("mute://a").unwrap();
    let mut bytes = body.next().unwrap().unwrap().to_vec();
    std::thread::sleep(Duration::from_millis(300));
    for chunk in body {
        bytes.extend_from_slice(&chunk.unwrap());
    }
    assert_eq!(bytes, (0..40).collect::<Vec<u8>>());
}
