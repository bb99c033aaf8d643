//! Aborted uploads: no part of an aborted upload remains in the bucket, and no part arrives later.

use crate::support::bucket;
use crate::support::child::child;
use crate::support::noise;
use crate::support::server::{Reply, Request, Server};
use shardstream::ErrorKind;
use shardstream::store::object_store::ClientOptions;
use shardstream::store::object_store::gcp::GoogleCloudStorageBuilder;
use shardstream::store::{ObjectWriter, Store};
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

const BASE: &str = "SHARDSTREAM_TEST_BASE";
/// Number of bytes: more than one part, and less than two.
const LENGTH: usize = (16 << 20) + (2 << 20);

/// The events in the bucket, in order.
#[derive(Clone, Default)]
struct Events(Arc<(Mutex<Vec<String>>, Condvar)>);

impl Events {
    fn push(&self, event: impl Into<String>) {
        self.0.0.lock().unwrap().push(event.into());
        self.0.1.notify_all();
    }

    fn now(&self) -> Vec<String> {
        self.0.0.lock().unwrap().clone()
    }

    fn wait_for(&self, count: usize, event: &str) {
        let seen = |events: &mut Vec<String>| events.iter().filter(|seen| *seen == event).count() < count;
        let (events, result) =
            self.0.1.wait_timeout_while(self.0.0.lock().unwrap(), Duration::from_secs(60), seen).unwrap();
        assert!(!result.timed_out(), "{event} {count} times: {events:?}");
    }
}

fn is_part(request: &Request) -> bool {
    request.method == "PUT" && request.query().contains("partNumber")
}

fn is_abort(request: &Request) -> bool {
    request.method == "DELETE" && request.query().contains("uploadId")
}

/// A bucket that calls `part` for each part of an upload. `part` may block, and may return a refusal.
fn slow(part: impl Fn(&Request) -> Option<Reply> + Send + Sync + 'static) -> (Server, Events) {
    let events = Events::default();
    let log = events.clone();
    let server = bucket::start_with(move |request| {
        if is_part(request) {
            log.push("part begins");
            let refusal = part(request);
            log.push(if refusal.is_some() { "part refused" } else { "part arrives" });
            return refusal;
        }
        if is_abort(request) {
            log.push("called off");
        }
        None
    });
    (server, events)
}

fn store(server: &Server) -> Store {
    let bucket = GoogleCloudStorageBuilder::new()
        .with_bucket_name("bucket")
        .with_base_url(&server.url(""))
        .with_skip_signature(true)
        .with_bearer_token("token")
        .with_client_options(ClientOptions::new().with_allow_http(true))
        .build()
        .unwrap();
    Store::builder().with_object_store("gs://bucket", Arc::new(bucket)).build().unwrap()
}

fn begin(store: &Store, length: usize) -> Box<dyn ObjectWriter> {
    let mut writer = store.create("gs://bucket/given/up.tar").unwrap();
    writer.write_all(&noise(length)).unwrap();
    writer
}

/// Fails unless all parts that began have ended before the abort, and the abort was the last event.
fn assert_clean(events: &Events, parts: usize) {
    let events = events.now();
    let count = |event: &str| events.iter().filter(|seen| *seen == event).count();
    assert_eq!(count("part begins"), parts, "{events:?}");
    assert_eq!(count("part arrives") + count("part refused"), parts, "{events:?}");
    assert_eq!((count("called off"), events.last().unwrap().as_str()), (1, "called off"), "{events:?}");
}

#[test]
fn dropping_a_writer_aborts_its_upload() {
    let (server, events) = slow(|_| {
        std::thread::sleep(Duration::from_millis(300));
        None
    });
    let store = store(&server);
    let writer = begin(&store, LENGTH);
    events.wait_for(1, "part begins");
    drop(writer);
    // The drop has waited for the abort, as the process may end right after the drop.
    assert_clean(&events, 1);
    assert!(store.list("gs://bucket/").unwrap().is_empty());
}

/// The upload's identifier only arrives after the writer was dropped.
#[test]
fn an_upload_about_to_start_is_aborted_too() {
    let events = Events::default();
    let log = events.clone();
    let server = bucket::start_with(move |request| {
        if request.method == "POST" {
            log.push("begins");
            // Waits longer than `END_TIMEOUT`, after which a dropped writer cancels its upload.
            std::thread::sleep(Duration::from_millis(1300));
        } else if is_abort(request) {
            log.push("called off");
        }
        None
    });
    let writer = begin(&store(&server), LENGTH);
    events.wait_for(1, "begins");
    drop(writer);
    assert_eq!(events.now(), ["begins", "called off"]);
}

/// The largest number of parts is in flight, and the upload waits until one of them has arrived.
#[test]
fn a_waiting_upload_is_aborted_too() {
    let released = Arc::new(AtomicBool::new(false));
    let (server, events) = slow({
        let released = Arc::clone(&released);
        move |_| {
            while !released.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(1));
            }
            None
        }
    });
    let store = store(&server);
    // Writes as many bytes as the writer accepts while four parts are in flight.
    let writer = begin(&store, 4 * (16 << 20) + (2 << 20));
    events.wait_for(4, "part begins");
    let dropping = std::thread::spawn(move || drop(writer));
    // Waits longer than `END_TIMEOUT`, after which a dropped writer cancels its upload.
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(events.now().iter().filter(|event| *event == "called off").count(), 0);
    released.store(true, Ordering::SeqCst);
    dropping.join().unwrap();
    assert_clean(&events, 4);
}

/// A part that never ends does not block the abort for ever.
#[test]
fn an_upload_with_a_hanging_part_is_aborted_without_it() {
    let released = Arc::new(AtomicBool::new(false));
    let (server, events) = slow({
        let released = Arc::clone(&released);
        move |_| {
            while !released.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(1));
            }
            Some(Reply::new(404, ""))
        }
    });
    let store = store(&server);
    let writer = begin(&store, LENGTH);
    events.wait_for(1, "part begins");
    drop(writer);
    assert_eq!(events.now(), ["part begins", "called off"]);
    released.store(true, Ordering::SeqCst);
    // The upload is aborted again, in case the server had received the whole part and was only slow.
    events.wait_for(2, "called off");
}

/// The abort waits for the parts that are in flight, and the error of the upload is the error of the failed
/// part.
#[test]
fn a_failed_upload_is_aborted() {
    let (server, events) = slow(|request| {
        if request.query().contains("partNumber=2") {
            return Some(Reply::new(403, "<Error><Code>AccessDenied</Code></Error>"));
        }
        std::thread::sleep(Duration::from_millis(500));
        None
    });
    let store = store(&server);
    let mut writer = store.create("gs://bucket/given/up.tar").unwrap();
    let error = match writer.write_all(&noise(3 * (16 << 20))) {
        Ok(()) => writer.finish().unwrap_err(),
        Err(error) => {
            let error = error.downcast::<shardstream::Error>().unwrap();
            drop(writer);
            error
        }
    };
    assert!(matches!(error.kind(), ErrorKind::Denied(_)), "{error:?}");
    let parts = events.now().iter().filter(|event| *event == "part begins").count();
    assert_clean(&events, parts);
}

/// Runs in a child process, which ends with an error or a panic right after it drops an upload.
#[test]
#[ignore = "run by another test, with environment variables that it sets"]
fn gives_up_in_child() {
    let base = std::env::var(BASE).unwrap();
    let store = Store::default();
    let mut writer = store.create(&format!("{base}/given/up.tar")).unwrap();
    writer.write_all(&noise(LENGTH)).unwrap();
    if base.ends_with("panic") {
        panic!("on purpose");
    }
}

#[test]
fn an_upload_is_aborted_before_its_process_ends() {
    for base in ["gs://bucket/return", "gs://bucket/panic"] {
        let (server, events) = slow(|_| None);
        let url = server.url("");
        child(module_path!(), "gives_up_in_child")
            .env(BASE, base)
            .env("STORAGE_EMULATOR_HOST", &url)
            .output()
            .unwrap();
        let events = events.now();
        // The upload of a small part may not have started.
        if events.iter().any(|event| event == "part begins") {
            assert_eq!(events.last().unwrap(), "called off", "{events:?}");
        }
        let begun = server.requests().iter().filter(|request| request.method == "POST").count();
        let ended = server.requests().iter().filter(|request| is_abort(request)).count();
        assert_eq!((begun, ended), (1, 1));
    }
}

fn is_completion(request: &Request) -> bool {
    request.method == "POST" && request.query().contains("uploadId")
}

/// The client repeats the request that completes the upload, and the server answers that there is no such
/// upload.
#[test]
fn a_lost_response_to_the_end_of_an_upload_is_no_error() {
    let lost = AtomicBool::new(false);
    let server =
        bucket::start_losing(move |request| is_completion(request) && !lost.swap(true, Ordering::SeqCst));
    let store = store(&server);
    let info = begin(&store, LENGTH).finish().unwrap();
    assert_eq!(info.size, LENGTH as u64);
    assert_eq!(server.requests().iter().filter(|request| is_completion(request)).count(), 2);
    let stat = store.stat("gs://bucket/given/up.tar").unwrap();
    assert_eq!((stat.size, stat.version), (Some(info.size), info.version));
}

/// An earlier object of the same size does not count as the uploaded object.
#[test]
fn a_lost_upload_is_an_error_even_if_an_earlier_object_exists() {
    let gone = || Reply::new(404, "<Error><Code>NoSuchUpload</Code></Error>");
    let fails = Arc::new(AtomicBool::new(false));
    let failing = Arc::clone(&fails);
    let server = bucket::start_with(move |request| {
        (is_completion(request) && failing.load(Ordering::SeqCst)).then(gone)
    });
    let store = store(&server);
    let mut other = store.create("gs://bucket/given/up.tar").unwrap();
    other.write_all(&vec![7; LENGTH]).unwrap();
    other.finish().unwrap();
    fails.store(true, Ordering::SeqCst);
    let error = begin(&store, LENGTH).finish().unwrap_err();
    assert!(format!("{error:#}").contains("NoSuchUpload"), "{error:?}");
    assert!(server.requests().iter().any(is_abort));
}
