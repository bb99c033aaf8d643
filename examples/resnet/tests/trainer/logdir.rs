//! Tests of the log directory: the content and order of the records, and the effects of a failing store on
//! the log and on the training.

use resnet::logdir::{Appender, AppenderSettings, LogDir};
use shardstream::store::Store;
use shardstream::store::object_store::memory::InMemory;
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

/// Settings without waits between writes.
fn no_interval() -> AppenderSettings {
    AppenderSettings { interval: Duration::ZERO, ..AppenderSettings::default() }
}

fn memory() -> Store {
    Store::builder().with_object_store("mem://bucket", Arc::new(InMemory::new())).build().unwrap()
}

fn line(number: usize) -> Vec<u8> {
    format!("line {number}\n").into_bytes()
}

fn lines(numbers: std::ops::Range<usize>) -> Vec<u8> {
    numbers.flat_map(line).collect()
}

/// The objects whose URLs begin with `url`, in the order of their names.
fn objects(store: &Store, url: &str) -> Vec<(String, Vec<u8>)> {
    let listed = store.list(url.rsplit_once('/').unwrap().0).unwrap();
    let read = |url: String| {
        let content = store.open(&url).unwrap().read_all().unwrap().to_vec();
        (url, content)
    };
    listed.into_iter().map(|object| read(object.url)).filter(|(object, _)| object.starts_with(url)).collect()
}

#[test]
fn a_restarted_process_appends_to_its_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("new/run/log.txt");
    let url = path.to_str().unwrap();
    for process in 0..3 {
        let log = Appender::start(&Store::default(), url, b"header\n".to_vec(), no_interval()).unwrap();
        for number in process * 100..(process + 1) * 100 {
            log.write(line(number));
        }
        log.finish().unwrap();
        let expected = [&b"header\n"[..], &lines(0..(process + 1) * 100)].concat();
        assert!(fs::read(&path).unwrap() == expected, "process {process}");
    }
}

#[test]
fn a_dropped_appender_writes_its_records() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log.txt");
    let log = Appender::start(&Store::default(), path.to_str().unwrap(), vec![], AppenderSettings::default())
        .unwrap();
    log.write(line(1));
    drop(log);
    assert_eq!(fs::read(&path).unwrap(), line(1));
    // Without records, no file is created.
    Appender::start(&Store::default(), dir.path().join("x").to_str().unwrap(), vec![], no_interval())
        .unwrap()
        .finish()
        .unwrap();
    assert!(!dir.path().join("x").exists());
}

#[test]
fn a_full_object_is_followed_by_another() {
    let (store, url) = (memory(), "mem://bucket/run/log.txt");
    let settings = AppenderSettings { rotate: 1000, ..no_interval() };
    let log = Appender::start(&store, url, b"header\n".to_vec(), settings).unwrap();
    (0..1000).for_each(|number| log.write(line(number)));
    log.finish().unwrap();
    let first = objects(&store, url);
    let names: Vec<_> = first.iter().map(|(url, _)| url.as_str()).collect();
    let expected: Vec<_> = (1..first.len()).map(|n| format!("{url}.{n:05}")).collect();
    assert_eq!(names[0], url);
    assert_eq!(names[1..], expected);
    assert!(first.len() >= 9);
    let mut all = Vec::new();
    for (name, content) in &first {
        assert!(content.len() <= 1000 + 9 && content.ends_with(b"\n"), "{name}");
        assert!(content.len() >= 1000 || name == names.last().unwrap(), "{name}");
        all.extend_from_slice(content.strip_prefix(b"header\n").expect("each object begins with the header"));
    }
    assert!(all == lines(0..1000));

    // A second process that opens the log leaves these objects unchanged.
    let log = Appender::start(&store, url, vec![], settings).unwrap();
    log.write(line(1000));
    log.finish().unwrap();
    let second = objects(&store, url);
    assert!(second[..first.len()] == first);
    assert_eq!(second[first.len()..], [(format!("{url}.{:05}", first.len()), line(1000))]);
}

#[test]
fn directories_that_are_certainly_mistakes_are_refused() {
    for url in ["", "/", "file:///tmp/x"] {
        assert!(LogDir::new(url, 0).is_err(), "{url:?}");
    }
}

#[test]
fn a_directory_that_cannot_be_written_is_an_error_at_the_end() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let settings = AppenderSettings { on_error: |_| {}, ..no_interval() };
    let dir = LogDir::over(Store::default(), file.path().to_str().unwrap(), 0, settings).unwrap();
    let mut out = Vec::new();
    let mut log = dir.log(&mut out).unwrap();
    writeln!(log, "line").unwrap();
    let e = log.finish().unwrap_err();
    assert!(e.to_string().contains("log-rank-00000.txt could not be written"), "{e}");
    assert_eq!(out, b"line\n");
}

#[test]
fn text_is_written_to_the_output_and_to_the_log_file() {
    let dir = tempfile::tempdir().unwrap();
    let logdir = LogDir::new(&format!("{}/", dir.path().display()), 3).unwrap();
    let mut out = Vec::new();
    let mut log = logdir.log(&mut out).unwrap();
    write!(log, "a {}", 7).unwrap();
    writeln!(log, " c\nd").unwrap();
    log.flush().unwrap();
    write!(log, "the end").unwrap();
    log.finish().unwrap();
    assert_eq!(out, b"a 7 c\nd\nthe end");
    assert_eq!(fs::read(dir.path().join("log-rank-00003.txt")).unwrap(), out);
}

/// When the pending records exceed the limit, the newest records are kept.
#[test]
fn the_memory_of_pending_records_is_limited() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let nowhere = format!("{}/log.txt", file.path().display());
    let settings =
        AppenderSettings { max_pending: 100, rotate: 1, on_error: |_| {}, ..AppenderSettings::default() };
    let log = Appender::start(&Store::default(), &nowhere, vec![], settings).unwrap();
    (0..1000).for_each(|number| log.write(line(number)));
    let debug = format!("{log:?}");
    assert!(
        debug.contains("dropped: DroppedRecords { records: 98"),
        "all but the newest and those being written: {debug}"
    );
    log.write(vec![0; 101]);
    assert!(format!("{log:?}").contains("bytes: 0"), "a record above the limit is dropped too");
}

/// The scalars that [`write_events`] writes, by their tags.
type Curves = BTreeMap<String, Vec<(u64, f64)>>;

fn curves() -> Curves {
    let value = |n: u64| ((n as f64 * 0.37).sin() * 1e3) as f32 as f64;
    let curve = |steps: u64| (0..steps).map(|n| (n * 10, value(n + steps))).collect();
    BTreeMap::from([("loss".into(), curve(300)), ("epoch/validation accuracy".into(), curve(40))])
}

fn write_events(dir: &LogDir) {
    let events = dir.events().unwrap();
    events.text("options", 0, "| lr | 0.2 |\n|---|---|\nünï");
    for (tag, points) in curves() {
        points.into_iter().for_each(|(step, value)| events.scalar(&tag, step, value));
    }
    events.finish().unwrap();
}

/// Reads a directory with TensorBoard.
fn tensorboard(dir: &Path) -> serde_json::Value {
    let python = std::env::var("SHARDSTREAM_TEST_TENSORBOARD");
    let python = python.expect("SHARDSTREAM_TEST_TENSORBOARD must name a Python with tensorboard");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/read_events.py");
    let output = Command::new(python).arg(script).arg(dir).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn check_events(dir: &Path, files: usize) {
    let read = tensorboard(dir);
    let expected: BTreeMap<_, _> = curves()
        .into_iter()
        .map(|(tag, points)| {
            (tag, points.into_iter().map(|(step, v)| serde_json::json!([step, v])).collect::<Vec<_>>())
        })
        .collect();
    assert_eq!(read["scalars"], serde_json::json!(expected));
    assert_eq!(read["texts"], serde_json::json!({"options": [[0, "| lr | 0.2 |\n|---|---|\nünï"]]}));
    assert_eq!(read["plugins"], serde_json::json!({"options": "text"}));
    // Each file begins with the version of the format, and no event is missing.
    assert_eq!(read["versions"], serde_json::json!(vec!["brain.Event:2"; files]));
    assert_eq!(read["events"], 340 + 1 + files);
    assert_eq!(read["now"], true);
}

#[test]
#[ignore = "needs Python with tensorboard: see CONTRIBUTING.md"]
fn tensorboard_reads_the_events_of_a_directory() {
    let dir = tempfile::tempdir().unwrap();
    write_events(&LogDir::new(dir.path().to_str().unwrap(), 2).unwrap());
    let name = fs::read_dir(dir.path()).unwrap().next().unwrap().unwrap().file_name().into_string().unwrap();
    assert!(name.starts_with("events.out.tfevents.") && name.ends_with(".2"), "{name}");
    check_events(dir.path(), 1);
}

/// Downloads all objects below `base` as files.
fn download(store: &Store, base: &str) -> (tempfile::TempDir, usize) {
    let dir = tempfile::tempdir().unwrap();
    let objects = objects(store, &format!("{base}/"));
    for (url, content) in &objects {
        fs::write(dir.path().join(url.rsplit_once('/').unwrap().1), content).unwrap();
    }
    (dir, objects.len())
}

#[test]
#[ignore = "needs Python with tensorboard: see CONTRIBUTING.md"]
fn tensorboard_reads_the_events_of_many_objects() {
    let store = memory();
    let settings = AppenderSettings { rotate: 2000, ..no_interval() };
    write_events(&LogDir::over(store.clone(), "mem://bucket/run", 0, settings).unwrap());
    let (dir, files) = download(&store, "mem://bucket/run");
    assert!(files > 5);
    check_events(dir.path(), files);
}

#[cfg(feature = "gcs")]
mod faults {
    use super::*;
    use crate::server::{Reply, Request, Server};
    use resnet::logdir::LogDirError;
    use shardstream::store::object_store::gcp::GoogleCloudStorageBuilder;
    use shardstream::store::object_store::{ClientOptions, RetryConfig};
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::sync::{Condvar, Mutex};

    const URL: &str = "gs://bucket/run/log.txt";

    /// A store over a server, without retries.
    fn store(server: &Server) -> Store {
        let client = GoogleCloudStorageBuilder::new()
            .with_bucket_name("bucket")
            .with_base_url(&server.url(""))
            .with_skip_signature(true)
            .with_bearer_token("test")
            .with_client_options(ClientOptions::new().with_allow_http(true))
            .with_retry(RetryConfig { max_retries: 0, ..RetryConfig::default() });
        Store::builder().with_object_store("gs://bucket", Arc::new(client.build().unwrap())).build().unwrap()
    }

    fn content(store: &Store, url: &str) -> Vec<u8> {
        objects(store, url).into_iter().flat_map(|(_, content)| content).collect()
    }

    fn is_put(request: &Request) -> bool {
        request.method == "PUT"
    }

    fn puts(server: &Server) -> usize {
        server.requests().iter().filter(|request| is_put(request)).count()
    }

    fn wait_until(mut condition: impl FnMut() -> bool) {
        while !condition() {
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Closed at first. Threads in `pass` wait until `open` is called.
    #[derive(Clone, Default)]
    struct Gate(Arc<(Mutex<bool>, Condvar)>);

    impl Gate {
        fn open(&self) {
            *self.0.0.lock().unwrap() = true;
            self.0.1.notify_all();
        }

        fn pass(&self) {
            drop(self.0.1.wait_while(self.0.0.lock().unwrap(), |open| !*open).unwrap());
        }
    }

    #[test]
    fn writing_does_not_wait_for_a_slow_server() {
        let gate = Gate::default();
        let server_gate = gate.clone();
        let server = crate::bucket::start_with(move |request| {
            if is_put(request) {
                server_gate.pass();
            }
            None
        });
        let store = store(&server);
        let log =
            Appender::start(&store, URL, vec![], AppenderSettings { rotate: 500, ..no_interval() }).unwrap();
        log.write(line(0));
        wait_until(|| puts(&server) == 1);
        // The writes return, although the first request has no response yet.
        (1..1000).for_each(|number| log.write(line(number)));
        assert_eq!(puts(&server), 1);
        gate.open();
        log.finish().unwrap();
        assert!(content(&store, URL) == lines(0..1000));
    }

    #[test]
    fn records_are_written_when_the_server_is_back() {
        static ERRORS: AtomicUsize = AtomicUsize::new(0);
        for status in [403, 500, 503] {
            ERRORS.store(0, Ordering::SeqCst);
            let down = Arc::new(AtomicBool::new(true));
            let is_down = Arc::clone(&down);
            let server = crate::bucket::start_with(move |request| {
                (is_put(request) && is_down.load(Ordering::SeqCst)).then(|| Reply::new(status, "down"))
            });
            let store = store(&server);
            let on_error = |error: &str| {
                assert!(error.contains(URL), "{error}");
                ERRORS.fetch_add(1, Ordering::SeqCst);
            };
            let interval = Duration::from_millis(1);
            let log = Appender::start(
                &store,
                URL,
                vec![],
                AppenderSettings { rotate: 500, interval, on_error, ..no_interval() },
            )
            .unwrap();
            for number in 0..300 {
                log.write(line(number));
                if number % 100 == 0 {
                    // The appender tries again and again.
                    let before = puts(&server);
                    wait_until(|| puts(&server) > before + 2);
                }
            }
            assert!(objects(&store, URL).is_empty());
            down.store(false, Ordering::SeqCst);
            log.finish().unwrap();
            assert!(content(&store, URL) == lines(0..300), "{status}");
            assert_eq!(ERRORS.load(Ordering::SeqCst), 1, "one report of the outage");
        }
    }

    /// If listing the log directory fails, nothing may be written: a new object could overwrite an earlier
    /// process's log.
    #[test]
    fn nothing_is_overwritten_when_the_listing_fails() {
        let down = Arc::new(AtomicBool::new(false));
        let is_down = Arc::clone(&down);
        let server = crate::bucket::start_with(move |request| {
            (request.method == "GET" && is_down.load(Ordering::SeqCst)).then(|| Reply::new(500, "down"))
        });
        let store = store(&server);
        let settings = AppenderSettings { on_error: |_| {}, ..no_interval() };
        for (number, failing) in [(0, false), (1, true), (2, false)] {
            down.store(failing, Ordering::SeqCst);
            let log = Appender::start(&store, URL, vec![], settings).unwrap();
            log.write(line(number));
            assert_eq!(log.finish().is_err(), failing);
        }
        let expected = [(URL.to_owned(), line(0)), (format!("{URL}.00001"), line(2))];
        assert_eq!(objects(&store, URL), expected);
    }

    #[test]
    fn a_lasting_outage_is_an_error_at_the_end() {
        let server = crate::bucket::start_with(|request| is_put(request).then(|| Reply::new(403, "")));
        let settings = AppenderSettings { on_error: |_| {}, ..no_interval() };
        let log = Appender::start(&store(&server), URL, vec![], settings).unwrap();
        log.write(line(0));
        let e = log.finish().unwrap_err();
        assert!(matches!(&e, LogDirError::Write { url, .. } if url == URL), "{e}");
    }

    #[test]
    fn finish_does_not_wait_longer_than_its_timeout() {
        let gate = Gate::default();
        let server_gate = gate.clone();
        let server = crate::bucket::start_with(move |request| {
            if is_put(request) {
                server_gate.pass();
            }
            None
        });
        let settings = AppenderSettings { finish_timeout: Duration::from_millis(50), ..no_interval() };
        let log = Appender::start(&store(&server), URL, vec![], settings).unwrap();
        log.write(line(0));
        assert!(matches!(log.finish(), Err(LogDirError::Late { .. })));
        gate.open();
    }

    #[test]
    fn the_oldest_records_are_dropped_in_a_long_outage() {
        let down = Arc::new(AtomicBool::new(true));
        let is_down = Arc::clone(&down);
        let server = crate::bucket::start_with(move |request| {
            (is_put(request) && is_down.load(Ordering::SeqCst)).then(|| Reply::new(403, ""))
        });
        let store = store(&server);
        let settings = AppenderSettings { on_error: |_| {}, max_pending: 100, rotate: 20, ..no_interval() };
        let log = Appender::start(&store, URL, b"header\n".to_vec(), settings).unwrap();
        (0..1000).for_each(|number| log.write(line(number)));
        wait_until(|| puts(&server) > 3);
        (1000..2000).for_each(|number| log.write(line(number)));
        down.store(false, Ordering::SeqCst);
        let e = log.finish().unwrap_err();
        let LogDirError::Dropped { records, bytes, .. } = &e else { panic!("{e}") };
        let text = String::from_utf8(content(&store, URL)).unwrap().replace("header\n", "");
        let written: Vec<usize> =
            text.lines().map(|line| line.strip_prefix("line ").unwrap().parse().unwrap()).collect();
        assert!(written.is_sorted_by(|a, b| a < b) && written.ends_with(&[1998, 1999]), "{text}");
        assert_eq!(written.len() as u64 + records, 2000);
        assert_eq!(text.len() as u64 + bytes, lines(0..2000).len() as u64);
    }

    #[test]
    #[ignore = "needs Python with tensorboard: see CONTRIBUTING.md"]
    fn tensorboard_reads_the_events_of_a_bucket() {
        let server = crate::bucket::start();
        let store = store(&server);
        let settings = AppenderSettings { rotate: 4000, ..no_interval() };
        write_events(&LogDir::over(store.clone(), "gs://bucket/run", 0, settings).unwrap());
        let (dir, files) = download(&store, "gs://bucket/run");
        assert!(files > 2);
        check_events(dir.path(), files);
    }
}
