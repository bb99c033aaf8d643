//! Reads a range of an object. In each test, a script defines the responses of the source.

use crate::store::conformance::{read_range, small_ranges};
use crate::store::ranges::{Scripted, content, honest, scripted};
use crate::support::Every;
use bytes::Bytes;
use futures::stream::{self, StreamExt};
use proptest::prelude::*;
use shardstream::store::{GetOptions, GetResponse, ObjectVersion, Store};
use shardstream::{Error, ErrorKind, Result};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

fn requested_ranges(source: &Scripted) -> Vec<Range<u64>> {
    source.requests.lock().unwrap().iter().map(|request| request.range.clone().unwrap()).collect()
}

fn slice(bytes: &Bytes, range: &Range<u64>) -> Bytes {
    let place = |bound: u64| (bound as usize).min(bytes.len());
    bytes.slice(place(range.start)..place(range.end).max(place(range.start)))
}

#[test]
fn a_small_range_is_always_one_request() {
    let bytes = content(4500);
    let honest_one: fn(&mut GetResponse) = |_| {};
    let unversioned: fn(&mut GetResponse) = |response| response.version = None;
    let of_unknown_size: fn(&mut GetResponse) = |response| response.size = None;
    let unknown: fn(&mut GetResponse) = |response| (response.size, response.version) = (None, None);
    for known in [honest_one, unversioned, of_unknown_size, unknown] {
        for range in [0..1, 0..1000, 999..1001, 1234..2234, 4499..4500] {
            let (source, store) = scripted({
                let bytes = bytes.clone();
                move |_, options| {
                    let mut response = honest(&bytes, options);
                    known(&mut response);
                    Ok(response)
                }
            });
            let body = store.open_range("test://a", range.clone(), &ObjectVersion::any()).unwrap();
            assert_eq!(body.read_all().unwrap(), slice(&bytes, &range));
            assert_eq!(requested_ranges(&source), [range]);
        }
    }
}

/// A store with one object that has no version.
fn unversioned(content: &Bytes) -> (Arc<Scripted>, Store) {
    let content = content.clone();
    scripted(move |_, options| {
        let mut response = honest(&content, options);
        response.version = None;
        Ok(response)
    })
}

#[test]
fn a_range_at_the_end_is_one_request_of_an_object_of_known_size() {
    let bytes = content(4500);
    let (source, store) = unversioned(&bytes);
    let tail = store.open_range("test://a", 4400..5000, &ObjectVersion::any()).unwrap().read_all().unwrap();
    assert_eq!(tail, bytes[4400..]);
    assert_eq!(requested_ranges(&source), vec![Range { start: 4400, end: 5000 }]);
}

#[test]
fn each_byte_of_a_range_is_requested_once_at_one_version() {
    let bytes = content(9000);
    let (source, store) = scripted({
        let bytes = bytes.clone();
        move |_, options| Ok(honest(&bytes, options))
    });
    assert_eq!(
        store.open_range("test://a", 1500..7001, &ObjectVersion::any()).unwrap().read_all().unwrap(),
        bytes[1500..7001]
    );
    let mut requests = source.requests.lock().unwrap().clone();
    requests.sort_by_key(|request| request.range.as_ref().map(|range| range.start));
    assert!(requests[1..].iter().every(|request| request.if_version.as_deref() == Some("v1")));
    let ranges: Vec<_> = requests.into_iter().map(|request| request.range.unwrap()).collect();
    assert_eq!(ranges, [1500..2500, 2500..3500, 3500..4500, 4500..5500, 5500..6500, 6500..7001]);
}

#[test]
fn an_empty_range_is_no_request() {
    let (source, store) = scripted(|_, _| unreachable!());
    #[expect(clippy::reversed_empty_ranges, reason = "it is what is tested")]
    for range in [0..0, 7..7, 7..3, u64::MAX..u64::MAX] {
        let mut body = store.open_range("test://a", range, &ObjectVersion::any()).unwrap();
        assert!(body.next().is_none());
        assert!(body.object().is_none());
    }
    assert!(source.requests.lock().unwrap().is_empty());
    // The URL is checked even if there is no request.
    assert!(store.open_range("none://a", 0..0, &ObjectVersion::any()).is_err());
}

/// Sources may report an empty range in several ways.
#[test]
fn a_range_at_the_end_or_after_it_is_empty() {
    type Answer = fn(GetResponse, &GetOptions) -> GetResponse;
    let nothing_there: Answer = |mut response, options| {
        let start = options.range.clone().unwrap().start;
        response.body = stream::empty().boxed();
        response.with_range(start..start)
    };
    let nothing_at_the_end: Answer = |mut response, _| {
        response.body = stream::empty().boxed();
        response.with_range(100..100)
    };
    let whole_unread: Answer = |mut response, _| {
        response.range = None;
        response.body = stream::poll_fn(|_| panic!("nobody needs it")).boxed();
        response
    };
    let whole_of_unknown_size: Answer = |mut response, _| {
        (response.range, response.size) = (None, None);
        response.body = stream::iter([Ok(content(100))]).boxed();
        response
    };
    for answer in [nothing_there, nothing_at_the_end, whole_unread, whole_of_unknown_size] {
        for range in [100..101, 100..u64::MAX, 5000..5010, 5000..50_000, u64::MAX - 1..u64::MAX] {
            let (source, store) = scripted(move |_, options| {
                let response = honest(&content(100), &GetOptions::default());
                Ok(answer(response, options))
            });
            let mut body = store.open_range("test://a", range, &ObjectVersion::any()).unwrap();
            assert!(body.next().is_none());
            assert_eq!(body.object().unwrap().version.as_deref(), Some("v1"));
            assert_eq!(source.requests.lock().unwrap().len(), 1);
        }
    }
}

#[test]
fn a_cut_within_a_range_resumes_at_the_byte() {
    let bytes = content(4500);
    for cut in 0..3 {
        let (source, store) = scripted({
            let bytes = bytes.clone();
            move |number, options| {
                let mut response = honest(&bytes, options);
                if number == cut {
                    // The body ends with an error after one chunk of 300 bytes.
                    let fault = || Err(std::io::Error::other("broken").into());
                    response.body = response.body.take(1).chain(stream::once(async move { fault() })).boxed();
                }
                Ok(response)
            }
        });
        assert_eq!(
            store.open_range("test://a", 1500..4000, &ObjectVersion::any()).unwrap().read_all().unwrap(),
            bytes[1500..4000]
        );
        let ranges = requested_ranges(&source);
        assert_eq!(ranges.len(), 4, "{ranges:?}");
        let resumed = ranges.iter().filter(|range| range.start % 1000 == 800).count();
        assert_eq!(resumed, 1, "{ranges:?}");
    }
}

/// Bytes before the range are received and dropped. Bytes after the range are not read.
#[test]
fn a_source_without_ranges_is_read_up_to_the_end_of_the_range() {
    let bytes = content(4500);
    for size_known in [true, false] {
        for range in [0..10, 299..301, 1500..3800, 3000..4500, 4499..9999] {
            let received = Arc::new(AtomicU64::new(0));
            let (source, store) = scripted({
                let (bytes, received) = (bytes.clone(), received.clone());
                move |_, _| {
                    let mut response = honest(&bytes, &GetOptions::default());
                    response.size = response.size.filter(|_| size_known);
                    let received = received.clone();
                    let count = move |chunk: &Result<Bytes>| {
                        received.fetch_add(chunk.as_ref().unwrap().len() as u64, Ordering::SeqCst);
                    };
                    response.body = response.body.inspect(count).boxed();
                    Ok(response)
                }
            });
            let body = store.open_range("test://a", range.clone(), &ObjectVersion::any()).unwrap();
            assert_eq!(body.read_all().unwrap(), slice(&bytes, &range));
            assert_eq!(source.requests.lock().unwrap().len(), 1);
            assert_eq!(received.load(Ordering::SeqCst), range.end.min(4500).next_multiple_of(300));
        }
    }
}

#[test]
fn a_large_range_of_an_unversioned_object_is_one_request() {
    let bytes = content(4500);
    let (source, store) = unversioned(&bytes);
    assert_eq!(
        store.open_range("test://a", 500..4000, &ObjectVersion::any()).unwrap().read_all().unwrap(),
        bytes[500..4000]
    );
    let ranges: Vec<_> =
        source.requests.lock().unwrap().iter().map(|request| request.range.clone()).collect();
    assert_eq!(ranges, [Some(500..1500), Some(500..4000)]);
}

#[test]
fn a_whole_object_that_is_cut_before_or_in_the_range_is_an_error() {
    let bytes = content(4500);
    for range in [2000..2100, 100..2000] {
        let (_, store) = scripted({
            let bytes = bytes.clone();
            move |_, _| {
                let mut response = honest(&bytes, &GetOptions::default());
                response.body = response.body.take(5).boxed();
                Ok(response)
            }
        });
        let error =
            store.open_range("test://a", range, &ObjectVersion::any()).unwrap().read_all().unwrap_err();
        let length = |kind: &ErrorKind| matches!(kind, ErrorKind::Length { expected: 4500, received: 1500 });
        assert!(length(error.kind()), "{error:?}");
    }
}

#[test]
fn errors_of_a_range_name_the_offset_in_the_object() {
    let (_, store) = scripted(|number, options| {
        let mut response = honest(&content(4500), options);
        if number > 0 {
            response.version = Some("v2".into());
        }
        Ok(response)
    });
    let mut body = store.open_range("test://a", 1200..4000, &ObjectVersion::any()).unwrap();
    let error = body.find_map(Result::err).unwrap();
    assert!(matches!(error.kind(), ErrorKind::Changed { .. }), "{error:?}");
    assert_eq!((error.location().shard(), error.location().offset()), (Some("test://a"), Some(2200)));

    let directory = tempfile::tempdir().unwrap();
    let missing = directory.path().join("missing");
    let missing = missing.to_str().unwrap();
    let error =
        Store::default().open_range(missing, 77..99, &ObjectVersion::any()).unwrap().read_all().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::NotFound(_)), "{error:?}");
    assert_eq!((error.location().shard(), error.location().offset()), (Some(missing), Some(77)));
}

#[test]
fn contradictions_about_a_range_are_errors_and_never_wrong_bytes() {
    let from_the_start: fn(&mut GetResponse) = |response| response.range = Some(0..1000);
    let shifted: fn(&mut GetResponse) = |response| {
        response.range = response.range.take().map(|range| range.start + 1..range.end + 1);
    };
    let nothing: fn(&mut GetResponse) = |response| {
        response.range = response.range.take().map(|range| range.start..range.start);
        response.body = stream::empty().boxed();
    };
    let no_size: fn(&mut GetResponse) = |response| response.size = Some(0);
    for lie in [from_the_start, shifted, nothing, no_size] {
        for range in [1500..1600, 1500..3700] {
            let (_, store) = scripted(move |_, options| {
                let mut response = honest(&content(4500), options);
                lie(&mut response);
                Ok(response)
            });
            let error =
                store.open_range("test://a", range, &ObjectVersion::any()).unwrap().read_all().unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Store(_)), "{error:?}");
        }
    }
}

#[test]
fn object_metadata_comes_with_the_first_chunk_or_one_byte() {
    let (source, store) = scripted(|_, options| Ok(honest(&content(4500), options)));
    let mut bodies =
        [store.open("test://a").unwrap(), store.open_range("test://a", 7..9, &ObjectVersion::any()).unwrap()];
    for body in &mut bodies {
        assert!(body.object().is_none());
        assert!(body.next().unwrap().is_ok());
        let object = body.object().unwrap();
        assert_eq!((object.size, object.version.as_deref()), (Some(4500), Some("v1")));
    }
    drop(bodies);
    source.requests.lock().unwrap().clear();
    // `stat` does not look at the compression, which need not be supported.
    for url in ["test://a.tar", "test://a.tar.gz", "test://a.xz"] {
        let object = store.stat(url).unwrap();
        assert_eq!((object.size, object.version.as_deref()), (Some(4500), Some("v1")));
    }
    assert_eq!(requested_ranges(&source), [0..1, 0..1, 0..1]);
}

#[test]
fn an_object_may_lack_size_and_version() {
    let (_, store) = scripted(|_, _| {
        let mut response = honest(&content(4500), &GetOptions::default());
        (response.size, response.version) = (None, None);
        Ok(response)
    });
    let mut body = store.open_range("test://a", 7..9, &ObjectVersion::any()).unwrap();
    assert!(body.next().unwrap().is_ok());
    assert!(body.object().is_none());
    let object = store.stat("test://a").unwrap();
    assert_eq!((object.size, object.version), (None, None));
}

#[test]
fn stat_of_a_missing_object_is_an_error() {
    let (_, store) = scripted(|_, _| Err(ErrorKind::NotFound("no".into()).into()));
    let (store, url) = (&store, "test://a");
    let found = |result: Result<()>| {
        let error: Error = result.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::NotFound(_)), "{error:?}");
        assert_eq!(error.location().shard(), Some(url));
    };
    found(store.stat(url).map(drop));
    found(store.open_range(url, 5..6, &ObjectVersion::any()).unwrap().read_all().map(drop));
    let error = Store::default().stat("none://a?sig=s3cret").unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::UnsupportedScheme { .. }), "{error:?}");
    assert!(!format!("{error:?}").contains("s3cret"));
}

/// Ranges count compressed bytes. The position of a decompressed byte among the compressed bytes is unknown.
#[test]
#[cfg(feature = "gzip")]
fn a_compressed_object_has_no_ranges() {
    let (_, store) = scripted(|_, _| unreachable!());
    let error = store.open_range("test://a.tar.gz", 0..1, &ObjectVersion::any()).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unsupported(_)), "{error:?}");
    assert_eq!(error.location().shard(), Some("test://a.tar.gz"));
}

/// How a source responds. All variants are correct responses.
#[derive(Debug, Clone, Copy)]
enum Manner {
    Exact,
    /// At most this many bytes per response.
    Capped(u64),
    /// The whole object for any range.
    Whole,
    Unversioned,
}

fn manner() -> impl Strategy<Value = Manner> {
    prop_oneof![
        Just(Manner::Exact),
        (1..9u64).prop_map(Manner::Capped),
        Just(Manner::Whole),
        Just(Manner::Unversioned)
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn a_range_is_a_slice(
        length in 0..120usize,
        (start, end) in (0..140u64, 0..140u64),
        (size, in_flight) in (1..50u64, 1..5usize),
        manner in manner(),
        cut in prop::option::weighted(0.2, 0..8usize),
    ) {
        let bytes = content(length);
        let outside = Arc::new(Mutex::new(Vec::new()));
        let (source, _) = scripted({
            let (bytes, outside) = (bytes.clone(), outside.clone());
            move |number, options| {
                let requested = options.range.clone();
                if requested.as_ref().is_some_and(|range| range.start < start || range.end > end) {
                    outside.lock().unwrap().push(requested.clone());
                }
                let mut options = options.clone();
                match (manner, &mut options.range) {
                    (Manner::Capped(most), Some(range)) => range.end = range.end.min(range.start + most),
                    (Manner::Whole, range) => *range = None,
                    _ => {}
                }
                let mut response = honest(&bytes, &options);
                response.version = response.version.filter(|_| !matches!(manner, Manner::Unversioned));
                // A body that is cut can be resumed if it is a range of a known version, but not if it is the
                // whole object.
                if response.range.is_some() && response.version.is_some() && cut == Some(number) {
                    response.body = stream::empty().boxed();
                }
                Ok(response)
            }
        });
        // Very short responses count as failed tries, so the test allows 64 retries.
        let store = small_ranges()
            .range_size(size)
            .ranges_in_flight(in_flight)
            .retries(64)
            .with_source("test", source.clone())
            .build().unwrap();
        let range = start..end;
        prop_assert_eq!(read_range(&store, "test://a", range.clone()).unwrap(), slice(&bytes, &range));
        prop_assert_eq!(&*outside.lock().unwrap(), &[]);
        if range.is_empty() {
            prop_assert!(source.requests.lock().unwrap().is_empty());
        }
    }
}
