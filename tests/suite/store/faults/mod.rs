//! Reads samples from a server with every kind of fault. A read returns all samples of the shard, or ends
//! early with a typed error. Samples are never missing without an error, and samples of two versions are
//! never mixed.
//!
//! The name of an object selects the fault, so that `http://` and `gs://` URLs are tested with the same
//! faults. The client of `gs://` takes its address from an environment variable, so it reads in a process of
//! its own.

mod cases;

#[cfg(feature = "gcs")]
use crate::support::child::child;
use crate::support::server::{Reply, Server};
use crate::support::{Content, content};
use cases::{Case, Expected, RANGE, STALL, cases, shard};
use shardstream::store::{ObjectVersion, Store};
use shardstream::{Dataset, Result, Sample, ShardList, Topology};
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// Number of cases that are read at the same time. Most of these cases wait for a retry and need no processor
/// time.
const READERS: usize = 64;

fn store() -> Store {
    let store = Store::builder().range_size(RANGE as u64).ranges_in_flight(3);
    store.retries(3).retry_pause(Duration::from_millis(1)).stall_timeout(STALL).build().unwrap()
}

/// Starts a server that replies to a request with the case named in the URL. It ignores the bucket's name.
fn serve(cases: Vec<Case>) -> Server {
    let named = |case: Case| (case.name.clone(), (case, AtomicUsize::new(0)));
    let cases: HashMap<_, _> = cases.into_iter().map(named).collect();
    Server::forgetful(move |request| {
        let path = percent_encoding::percent_decode_str(request.path()).decode_utf8_lossy();
        match cases.get(path.rsplit('/').next().unwrap_or_default()) {
            Some((case, count)) => (case.answer)(request, count.fetch_add(1, Ordering::SeqCst)),
            None => Reply::new(404, ""),
        }
    })
}

/// Reads all cases under the URL `base`, several at a time.
fn read_all(base: &str, cases: &[Case]) {
    let versions = [0, 1].map(|version| {
        let samples = crate::support::read_bytes(&shard(version));
        content(&samples.into_iter().collect::<Result<Vec<_>>>().unwrap())
    });
    let (store, next, failures) = (store(), AtomicUsize::new(0), Mutex::new(Vec::new()));
    let read = || {
        while let Some(case) = cases.get(next.fetch_add(1, Ordering::SeqCst)) {
            let url = format!("{base}/{}", case.name);
            let dataset = Dataset::builder(ShardList::from_urls([url.as_str()])).store(store.clone());
            let dataset = dataset.topology(Topology::single()).build().unwrap();
            if let Err(failure) = check(&url, dataset.samples(0).collect(), case.expected, &versions) {
                failures.lock().unwrap().push(format!("{url}: {failure}"));
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..READERS.min(cases.len()) {
            scope.spawn(read);
        }
    });
    let failures = failures.into_inner().unwrap();
    let some: Vec<_> = failures.iter().take(9).map(String::as_str).collect();
    assert!(failures.is_empty(), "{} of {} cases:\n{}", failures.len(), cases.len(), some.join("\n"));
}

fn check(
    url: &str,
    items: Vec<Result<Sample>>,
    expected: Expected,
    versions: &[Content],
) -> Result<(), String> {
    let good = items.iter().take_while(|item| item.is_ok()).count();
    let samples = content(items[..good].iter().flatten());
    let error = items.get(good).map(|item| item.as_ref().unwrap_err());
    let sound = match (error, expected) {
        (None, Expected::Error(_)) => false,
        (None, Expected::Samples) => samples == versions[0],
        (None, Expected::Either(_)) => versions.contains(&samples),
        (Some(_), Expected::Samples) => false,
        (Some(error), Expected::Error(kinds) | Expected::Either(kinds)) => {
            kinds(error.kind())
                && items.len() == good + 1
                && error.location().shard() == Some(url)
                && versions.iter().any(|whole| whole.starts_with(&samples))
        }
    };
    match error {
        _ if sound => Ok(()),
        None => Err(format!("{good} samples and no error")),
        Some(error) => Err(format!("{good} samples, {error:#}, {} items more", items.len() - good - 1)),
    }
}

/// Reads the cases of a group through `http://` and `gs://` URLs.
fn both(group: &str) {
    #[cfg(feature = "http")]
    over_http(group);
    #[cfg(feature = "gcs")]
    over_gs(group);
    let _ = group;
}

#[cfg(feature = "http")]
fn over_http(group: &str) {
    let server = serve(cases(group));
    read_all(&server.url("/bucket"), &cases(group));
}

#[cfg(feature = "gcs")]
fn over_gs(group: &str) {
    let server = serve(cases(group));
    let output = child(module_path!(), "reader_in_child")
        .env("STORAGE_EMULATOR_HOST", server.url(""))
        .env(GROUP, group)
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

const GROUP: &str = "SHARDSTREAM_TEST_FAULTS";

#[test]
#[ignore = "run by other tests, with environment variables that they set"]
fn reader_in_child() {
    read_all("gs://bucket", &cases(&std::env::var(GROUP).unwrap()));
}

#[test]
fn retries_hide_a_cut_at_any_byte() {
    both("cuts");
}

#[test]
fn a_cut_without_a_version_is_hidden_or_an_error() {
    both("cuts_without_version");
}

#[test]
fn a_cut_without_a_length_is_hidden_or_an_error() {
    both("cuts_without_length");
}

#[test]
fn contradictory_responses_are_errors() {
    both("lies");
}

#[test]
fn versions_are_never_mixed() {
    both("changes");
}

#[test]
fn retries_hide_a_short_overload() {
    both("storms");
}

#[test]
fn unusual_valid_responses_are_read() {
    both("oddities");
}

#[test]
fn a_truncated_shard_is_an_error() {
    both("truncated");
}

#[test]
#[cfg(feature = "gzip")]
fn a_truncated_compressed_shard_is_an_error() {
    both("compressed");
}

#[test]
fn endless_faults_are_an_error() {
    both("endless");
}

#[test]
fn retries_hide_stalls_unless_they_are_endless() {
    both("stalls");
}

#[test]
fn a_wrong_checksum_is_an_error() {
    both("checksums");
}

/// With each range, a store sends the checksum of the whole object. The checksum must not be compared with
/// the bytes of the range.
#[test]
#[cfg(feature = "http")]
fn a_checksum_of_the_whole_is_not_compared_with_a_range() {
    let server = serve(cases("checksums"));
    let (store, content) = (store(), shard(0));
    for name in ["google", "digest"] {
        let url = server.url(&format!("/bucket/{name}-true.tar"));
        assert_eq!(store.stat(&url).unwrap().size, Some(content.len() as u64));
        for range in [0..1, 0..RANGE, 0..content.len() - 1, 0..content.len(), 1..content.len()] {
            let body =
                store.open_range(&url, range.start as u64..range.end as u64, &ObjectVersion::any()).unwrap();
            assert!(body.read_all().unwrap() == content[range.clone()], "{range:?}");
        }
    }
}
