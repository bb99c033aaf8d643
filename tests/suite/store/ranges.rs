//! Reads an object in ranges. In each test, a script defines the responses of the source.

use crate::store::conformance::small_ranges;
use crate::support::Every;
use crate::support::noise;
use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt};
use futures::stream::{self, StreamExt};
use shardstream::store::{Budget, GetOptions, GetResponse, ObjectInfo, ObjectVersion, Source, Store};
use shardstream::{ErrorKind, Result};
use std::fmt;
use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

type Script = dyn Fn(usize, &GetOptions) -> Result<GetResponse> + Send + Sync;

/// A source that responds as its script says, and records the requests.
pub(crate) struct Scripted {
    script: Box<Script>,
    pub(crate) requests: Mutex<Vec<GetOptions>>,
    bodies: Arc<AtomicUsize>,
}

impl fmt::Debug for Scripted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Scripted")
    }
}

impl Source for Scripted {
    fn get(&self, _: &str, options: GetOptions) -> BoxFuture<'static, Result<GetResponse>> {
        let mut requests = self.requests.lock().unwrap();
        let response = (self.script)(requests.len(), &options);
        requests.push(options);
        self.bodies.fetch_add(1, Ordering::SeqCst);
        async { response }.boxed()
    }
}

pub(crate) fn scripted(
    script: impl Fn(usize, &GetOptions) -> Result<GetResponse> + Send + Sync + 'static,
) -> (Arc<Scripted>, Store) {
    let source =
        Arc::new(Scripted { script: Box::new(script), requests: Mutex::default(), bodies: Arc::default() });
    // The store has a budget of its own, so that the latencies that other tests measure have no influence.
    let store = small_ranges()
        .budget(Budget::new(64, 1 << 20))
        .ranges_in_flight(4)
        .retries(2)
        .with_source("test", source.clone())
        .build()
        .unwrap();
    (source, store)
}

/// The correct response, in chunks of 300 bytes.
pub(crate) fn honest(content: &Bytes, options: &GetOptions) -> GetResponse {
    let size = content.len() as u64;
    let range = options.range.clone().map(|range| range.start.min(size)..range.end.min(size));
    let part = match &range {
        Some(range) => content.slice(range.start as usize..range.end as usize),
        None => content.clone(),
    };
    let chunks: Vec<Result<Bytes>> =
        part.chunks(300).map(|chunk| Ok(Bytes::copy_from_slice(chunk))).collect();
    let mut response = GetResponse::new(stream::iter(chunks).boxed()).with_size(size).with_version("v1");
    response.range = range;
    response
}

pub(crate) fn content(length: usize) -> Bytes {
    noise(length).into()
}

#[test]
fn each_byte_is_requested_once_at_one_version() {
    for length in [1, 999, 1000, 1001, 4500] {
        let bytes = content(length);
        let (source, store) = scripted({
            let bytes = bytes.clone();
            move |_, options| Ok(honest(&bytes, options))
        });
        assert_eq!(store.open("test://a").unwrap().read_all().unwrap(), bytes);
        let mut requests = source.requests.lock().unwrap().clone();
        requests.sort_by_key(|request| request.range.as_ref().map(|range| range.start));
        assert_eq!(requests.len(), length.div_ceil(1000));
        for (i, request) in requests.iter().enumerate() {
            let start = i as u64 * 1000;
            let end = if i == 0 { 1000 } else { (start + 1000).min(length as u64) };
            assert_eq!(request.range, Some(start..end));
            assert_eq!(request.if_version.as_deref(), (i > 0).then_some("v1"));
        }
    }
}

#[test]
fn nothing_is_requested_before_the_first_read() {
    let (source, store) = scripted(|_, _| unreachable!());
    drop(store.open("test://a").unwrap());
    drop(store.open("test://a").unwrap().into_stream());
    assert!(source.requests.lock().unwrap().is_empty());
}

#[test]
fn an_unversioned_object_is_one_request() {
    let bytes = content(4500);
    for (unknown_size, requests) in [(false, 2), (true, 2)] {
        let (source, store) = scripted({
            let bytes = bytes.clone();
            move |_, options| {
                let mut response = honest(&bytes, options);
                response.version = None;
                response.size = response.size.filter(|_| !unknown_size);
                Ok(response)
            }
        });
        assert_eq!(store.open("test://a").unwrap().read_all().unwrap(), bytes);
        assert_eq!(source.requests.lock().unwrap().len(), requests);
        assert_eq!(source.requests.lock().unwrap()[1].range, None);
    }
}

#[test]
fn a_change_between_ranges_is_an_error() {
    let bytes = content(4500);
    let change_version: fn(&mut GetResponse) = |response| response.version = Some("v2".into());
    let forget_version: fn(&mut GetResponse) = |response| response.version = None;
    let change_size: fn(&mut GetResponse) = |response| response.size = Some(4501);
    for change in [change_version, forget_version, change_size] {
        let bytes = bytes.clone();
        let (_, store) = scripted(move |number, options| {
            let mut response = honest(&bytes, options);
            if number >= 2 {
                change(&mut response);
            }
            Ok(response)
        });
        let error = store.open("test://a").unwrap().read_all().unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Changed { .. }), "{error:?}");
    }
}

#[test]
fn contradictions_about_ranges_are_errors_and_never_wrong_bytes() {
    let shifted: fn(&mut GetResponse) = |response| {
        response.range = response.range.take().map(|range| range.start + 1..range.end + 1);
    };
    let too_long: fn(&mut GetResponse) = |response| {
        let body = std::mem::replace(&mut response.body, stream::empty().boxed());
        response.body = body.chain(stream::iter([Ok("x".into())])).boxed();
    };
    let whole: fn(&mut GetResponse) = |response| response.range = None;
    let more_than_it_says: fn(&mut GetResponse) = |response| {
        response.range = response.range.take().map(|range| range.start..range.start + 200);
    };
    let nothing: fn(&mut GetResponse) = |response| {
        response.range = response.range.take().map(|range| range.start..range.start);
        response.body = stream::empty().boxed();
    };
    for from in [0, 1] {
        for lie in [shifted, too_long, whole, more_than_it_says, nothing] {
            let (_, store) = scripted({
                let bytes = content(4500);
                move |number, options| {
                    let mut response = honest(&bytes, options);
                    if number >= from {
                        lie(&mut response);
                    }
                    Ok(response)
                }
            });
            match store.open("test://a").unwrap().read_all() {
                // With `whole`, the first response claims to be the whole object, but ends early. The object
                // is then requested again, and arrives.
                Ok(bytes) => assert!(from == 0 && bytes == content(4500)),
                Err(error) => {
                    assert!(
                        matches!(error.kind(), ErrorKind::Store(_) | ErrorKind::Length { .. }),
                        "{error:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_part_with_a_total_size_of_zero_is_an_error() {
    let (_, store) = scripted(|_, options| {
        let mut response = honest(&content(4500), options);
        response.size = Some(0);
        Ok(response)
    });
    let error = store.open("test://a").unwrap().read_all().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Store(_)), "{error:?}");
}

/// The object has no version. After a fault, the new response must repeat the received bytes exactly.
#[test]
fn an_unversioned_retry_must_repeat_the_received_bytes() {
    let (long, short) = (content(900), Bytes::from(vec![7; 600]));
    for (second, whole) in [(long.clone(), true), (short, false), (long.slice(..600), false)] {
        let (_, store) = scripted({
            let long = long.clone();
            move |number, _| {
                let part = long.slice(..600);
                let body = match number {
                    0 => stream::iter([Ok(part), Err(std::io::Error::other("broken").into())]).boxed(),
                    _ => stream::iter([Ok(second.clone())]).boxed(),
                };
                Ok(GetResponse::new(body))
            }
        });
        match store.open("test://a").unwrap().read_all() {
            Ok(bytes) if whole => assert_eq!(bytes, long),
            // The second response ends after the 600 bytes that were already received.
            Ok(bytes) => assert_eq!(bytes, long.slice(..600)),
            Err(error) => {
                assert!(!whole && matches!(error.kind(), ErrorKind::Changed { .. }), "{error:?}");
            }
        }
    }
}

/// If one response takes much longer than the others, a second request is sent for its range. The bytes stay
/// the same.
#[test]
fn late_requests_are_hedged() {
    let bytes = content(60_000);
    for (share, hedged) in [(0.0, false), (0.5, true)] {
        // The 25th request is late. By then, the usual response time is known.
        let source = Arc::new(Late(bytes.clone(), AtomicUsize::new(0)));
        let store =
            small_ranges().ranges_in_flight(2).hedge(share).with_source("test", source).build().unwrap();
        assert_eq!(store.open("test://a").unwrap().read_all().unwrap(), bytes);
        let report = store.report().total();
        assert_eq!(report.hedges > 0, hedged, "{report}");
        assert_eq!(report.requests, 60 + report.hedges);
    }
}

#[derive(Debug)]
struct Late(Bytes, AtomicUsize);

impl Source for Late {
    fn get(&self, _: &str, options: GetOptions) -> BoxFuture<'static, Result<GetResponse>> {
        let late = self.1.fetch_add(1, Ordering::SeqCst) == 24;
        let response = honest(&self.0, &options);
        async move {
            tokio::time::sleep(std::time::Duration::from_millis(if late { 1500 } else { 1 })).await;
            Ok(response)
        }
        .boxed()
    }
}

/// The last bytes of a body and its end may arrive at the same moment.
#[test]
fn small_objects_are_read_whole_every_time() {
    let bytes = content(1500);
    let (_, store) = scripted({
        let bytes = bytes.clone();
        move |_, options| Ok(honest(&bytes, options))
    });
    for _ in 0..4000 {
        assert_eq!(store.open("test://a").unwrap().read_all().unwrap(), bytes);
    }
}

/// A response that is shorter than the requested range is not a fault, and does not count as a retry.
#[test]
fn responses_may_be_shorter_than_their_ranges() {
    let bytes = content(4500);
    for step in [70, 300, 999] {
        let (_, store) = capped(&bytes, step);
        assert_eq!(store.open("test://a").unwrap().read_all().unwrap(), bytes);
    }
}

/// A store whose source sends at most `most` bytes per response.
fn capped(content: &Bytes, most: u64) -> (Arc<Scripted>, Store) {
    let content = content.clone();
    scripted(move |_, options| {
        let range = options.range.clone().unwrap();
        let mut capped = options.clone();
        capped.range = Some(range.start..range.end.min(range.start + most));
        Ok(honest(&content, &capped))
    })
}

/// A response of a few bytes counts as a failed try.
#[test]
fn responses_of_a_few_bytes_are_an_error() {
    for most in [1, 50] {
        let (source, store) = capped(&content(1000), most);
        let error = store.open("test://a").unwrap().read_all().unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Store(_)), "{error:?}");
        assert!(format!("{error:#}").contains("requested bytes"), "{error:#}");
        assert_eq!(error.attempts().map(|attempts| attempts.tries), Some(3));
        assert_eq!(source.requests.lock().unwrap().len(), 3);
    }
}

#[test]
fn a_short_range_is_completed_or_an_error() {
    for honest_again in [true, false] {
        let bytes = content(2500);
        let (source, store) = scripted({
            let bytes = bytes.clone();
            move |number, options| {
                let mut response = honest(&bytes, options);
                if number == 0 || !honest_again {
                    let body = std::mem::replace(&mut response.body, stream::empty().boxed());
                    response.body = body.take(1).boxed();
                }
                Ok(response)
            }
        });
        match store.open("test://a").unwrap().read_all() {
            Ok(received) => {
                assert!(honest_again && received == bytes);
                let requests = source.requests.lock().unwrap();
                assert!(requests.iter().any(|request| request.range == Some(300..1000)), "{requests:?}");
            }
            Err(error) => {
                assert!(!honest_again);
                assert!(matches!(error.kind(), ErrorKind::Length { expected: 1000, .. }), "{error:?}");
            }
        }
    }
}

#[test]
fn transient_faults_are_retried_and_others_are_not() {
    for (fault, tries) in [(None, 3), (Some("final"), 1)] {
        let (source, store) = scripted(move |_, _| match fault {
            None => Err(std::io::Error::other("broken").into()),
            Some(text) => Err(ErrorKind::Store(text.into()).into()),
        });
        assert!(store.open("test://a").unwrap().read_all().is_err());
        assert_eq!(source.requests.lock().unwrap().len(), tries);
    }
}

#[test]
fn a_source_that_panics_is_an_error() {
    let (_, store) = scripted({
        let bytes = content(2500);
        move |_, options| {
            let mut response = honest(&bytes, options);
            response.body = stream::poll_fn(|_| panic!("on purpose")).boxed();
            Ok(response)
        }
    });
    let error = store.open("test://a").unwrap().read_all().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::SourcePanicked(text) if text == "on purpose"), "{error:?}");
}

#[test]
fn requests_in_flight_are_bounded_and_end_with_the_body() {
    let held = Arc::new(());
    let (source, store) = scripted({
        let (bytes, held) = (content(20_000), held.clone());
        move |_, options| {
            // The latency is high, so that several ranges are requested at the same time.
            std::thread::sleep(std::time::Duration::from_millis(20));
            let mut response = honest(&bytes, options);
            let held = held.clone();
            // The body sends at most one byte and never ends. It holds `held` as long as it is alive.
            let first: Vec<_> =
                (options.range.as_ref().unwrap().start == 0).then(|| Ok("x".into())).into_iter().collect();
            response.body =
                stream::iter(first).chain(stream::pending()).inspect(move |_| drop(held.clone())).boxed();
            Ok(response)
        }
    });
    let mut body = store.open("test://a").unwrap();
    assert_eq!(body.next().unwrap().unwrap(), "x");
    while source.requests.lock().unwrap().len() < 4 {
        std::thread::yield_now();
    }
    let stopper = body.stopper();
    let reader = std::thread::spawn(move || body.next());
    stopper.stop();
    let error = reader.join().unwrap().unwrap().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Stopped));
    assert_eq!(source.requests.lock().unwrap().len(), 4);
    drop(store);
    drop(source);
    // All bodies are dropped. The drop of a body on another thread takes a moment.
    while Arc::strong_count(&held) > 1 {
        std::thread::yield_now();
    }
}

#[derive(Debug)]
struct Silent;

impl Source for Silent {
    fn get(&self, _: &str, _: GetOptions) -> BoxFuture<'static, Result<GetResponse>> {
        std::future::pending().boxed()
    }
}

#[test]
fn a_report_counts_the_wait_in_progress() {
    let store = Store::builder().with_source("test", Arc::new(Silent)).build().unwrap();
    let mut body = store.open("test://a").unwrap();
    let stopper = body.stopper();
    let reader = std::thread::spawn(move || body.next());
    // If the report did not count the wait in progress, this loop would never end.
    while store.report().total().waited < std::time::Duration::from_millis(20) {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    stopper.stop();
    assert!(reader.join().unwrap().unwrap().is_err());
}

#[test]
fn a_read_only_source_says_so() {
    let (_, store) = scripted(|_, _| unreachable!());
    let unsupported = |result: Result<()>| {
        let error = result.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Unsupported(_)), "{error:?}");
    };
    unsupported(store.list("test://a").map(drop));
    let mut writer = store.create("test://a/b").unwrap();
    let _ = writer.write_all(b"x");
    unsupported(writer.finish().map(drop));
}

/// The bytes that `put` received, and whether the body ended without an error.
#[derive(Debug, Default)]
struct Recorded(Mutex<Vec<(Vec<u8>, bool)>>);

#[derive(Debug, Default)]
struct Recorder(Arc<Recorded>);

impl Source for Recorder {
    fn get(&self, _: &str, _: GetOptions) -> BoxFuture<'static, Result<GetResponse>> {
        unreachable!()
    }

    fn put(
        &self,
        url: &str,
        mut body: futures::stream::BoxStream<'static, Result<Bytes>>,
    ) -> BoxFuture<'static, Result<ObjectInfo>> {
        let (recorded, url) = (self.0.clone(), url.to_owned());
        async move {
            let mut bytes = Vec::new();
            let mut end = Ok(());
            while let Some(chunk) = body.next().await {
                match chunk {
                    Ok(chunk) => bytes.extend_from_slice(&chunk),
                    Err(error) => end = Err(error),
                }
            }
            let size = bytes.len() as u64;
            recorded.0.lock().unwrap().push((bytes, end.is_ok()));
            end.map(|()| ObjectInfo::new(url, size))
        }
        .boxed()
    }
}

#[test]
fn only_finish_commits_an_upload() {
    let recorder = Recorder::default();
    let recorded = recorder.0.clone();
    let store = Store::builder().with_source("test", Arc::new(recorder)).build().unwrap();
    let large = noise(3 << 20);
    let mut writer = store.create("test://a").unwrap();
    for chunk in large.chunks(70_001) {
        writer.write_all(chunk).unwrap();
    }
    let info = writer.finish().unwrap();
    assert_eq!((&*info.url, info.size, info.version), ("test://a", 3 << 20, None));
    assert!(*recorded.0.lock().unwrap() == [(large, true)]);
    let mut abandoned = store.create("test://b").unwrap();
    abandoned.write_all(b"x").unwrap();
    drop(abandoned);
    // After a while, the source sees that the body ended with an error.
    while recorded.0.lock().unwrap().len() < 2 {
        std::thread::yield_now();
    }
    assert!(!recorded.0.lock().unwrap()[1].1);
}

#[test]
fn the_longest_prefix_of_whole_components_wins() {
    let source = |text: &'static str| {
        let store = shardstream::store::object_store::memory::InMemory::new();
        (Arc::new(store), text)
    };
    let ((all, _), (one, _)) = (source("all"), source("one"));
    let store =
        Store::builder().with_object_store("mem", all).with_object_store("mem://one", one).build().unwrap();
    for url in ["mem://one/x", "mem://one-more/x", "mem://two/x"] {
        store.create(url).unwrap().finish().unwrap();
    }
    let urls = |prefix| store.list(prefix).unwrap().into_iter().map(|info| info.url).collect::<Vec<_>>();
    assert_eq!(urls("mem://one"), ["mem://one/x"]);
    assert_eq!(urls("mem://"), ["mem://one-more/x", "mem://two/x"]);
}

#[test]
fn unknown_schemes_and_commands_are_refused() {
    let store = Store::default();
    for url in ["ftp://host/a.tar", "pipe:cat a.tar", "pipe://x"] {
        let error = store.open(url).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::UnsupportedScheme { .. }), "{error:?}");
    }
    #[cfg(not(feature = "gcs"))]
    assert!(store.open("gs://b/a.tar").unwrap_err().to_string().contains("feature `gcs`"));
    #[cfg(not(feature = "http"))]
    assert!(store.open("https://h/a.tar?sig=s3cret").unwrap_err().to_string().contains("feature `http`"));
    let text = format!("{:?}", store.open("ftp://me:s3cret@host/a.tar?sig=s3cret").unwrap_err());
    assert!(!text.contains("s3cret"), "{text}");
}

/// Large ranges at the end of an object would keep a few connections busy while all other connections are
/// idle.
#[test]
fn the_last_ranges_of_an_object_are_small() {
    const MIB: u64 = 1 << 20;
    let bytes = Bytes::from(vec![7; 150 << 20]);
    let (source, _) = scripted({
        let bytes = bytes.clone();
        move |number, options| {
            // The latency is high, so that several ranges are requested at the same time.
            std::thread::sleep(std::time::Duration::from_millis(if number == 0 { 20 } else { 0 }));
            let range = options.range.clone().unwrap();
            let part = bytes.slice(range.start as usize..range.end as usize);
            let mut response = GetResponse::new(stream::iter([Ok(part)]).boxed());
            (response.size, response.version) = (Some(bytes.len() as u64), Some("v1".into()));
            response.range = Some(range);
            Ok(response)
        }
    });
    let budget = Budget::new(16, 1 << 30);
    let store = Store::builder().budget(budget).with_source("test", source.clone()).build().unwrap();
    let read: usize = store.open("test://a").unwrap().map(|chunk| chunk.unwrap().len()).sum();
    assert_eq!(read, bytes.len());
    let asked = |source: &Scripted| -> Vec<_> {
        source.requests.lock().unwrap().iter().map(|asked| asked.range.clone().unwrap()).collect()
    };
    let mut ranges = asked(&source);
    ranges.sort_by_key(|range| range.start);
    let sizes: Vec<_> = ranges[1..].iter().map(|range| range.end - range.start).collect();
    assert_eq!(sizes[0], 8 * MIB);
    assert!(sizes.is_sorted_by(|one, next| one >= next), "{sizes:?}");
    let last = &sizes[sizes.len() - 16..];
    assert!(last[..15].iter().every(|size| *size == 2 * MIB) && last[15] <= 2 * MIB, "{sizes:?}");
    // `open_range` does not divide the end of the requested range into small ranges.
    let body = store.open_range("test://a", MIB..9 * MIB, &ObjectVersion::any()).unwrap();
    assert_eq!(body.map(|chunk| chunk.unwrap().len() as u64).sum::<u64>(), 8 * MIB);
    let alone = asked(&source).split_off(ranges.len());
    assert_eq!((alone.len(), &alone[0]), (1, &(MIB..9 * MIB)));
}
