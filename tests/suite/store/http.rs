//! Web servers, correct and faulty. Whatever a server does, reading returns the object or a typed error.

use crate::store::conformance::{read, reading, small_ranges};
use crate::support::Every;
use crate::support::noise;
use crate::support::server::{Framing, Reply, Request, Server};
use shardstream::ErrorKind;
use shardstream::store::{ObjectVersion, Store};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

const TAG: &str = "\"v1\"";

fn encoded(name: &str) -> String {
    percent_encoding::utf8_percent_encode(name, percent_encoding::NON_ALPHANUMERIC).to_string()
}

#[test]
fn conformance() {
    let objects: Arc<Mutex<HashMap<String, Vec<u8>>>> = Arc::default();
    let server = Server::start({
        let objects = objects.clone();
        move |request| match objects.lock().unwrap().get(request.path()) {
            Some(content) => Reply::object(request, content, TAG),
            None => Reply::new(404, "no"),
        }
    });
    let path = |name: &str| format!("/data/{}", encoded(name));
    let put = |name: &str, content: &[u8]| drop(objects.lock().unwrap().insert(path(name), content.to_vec()));
    reading(&small_ranges().build().unwrap(), &|name| server.url(&path(name)), &put);
}

/// Reads an object of 4500 bytes in ranges of 1000 from a server that follows `script`. Returns the result
/// and the requests.
fn misbehaving(
    script: impl Fn(&Request, &[u8]) -> Reply + Send + Sync + 'static,
) -> (shardstream::Result<()>, Vec<Request>) {
    let content = noise(4500);
    let server = Server::start({
        let content = content.clone();
        move |request| script(request, &content)
    });
    let store = small_ranges().retries(3).build().unwrap();
    let result = store.open(&server.url("/a.tar?sig=s3cret")).unwrap().read_all();
    let requests = server.requests();
    let result = result.map(|bytes| assert!(bytes == content, "wrong bytes"));
    if let Err(error) = &result {
        let text = format!("{error} {error:?}");
        assert!(!text.contains("s3cret"), "{text}");
    }
    (result, requests)
}

fn honest(request: &Request, content: &[u8]) -> Reply {
    Reply::object(request, content, TAG)
}

#[test]
fn a_cut_at_any_byte_resumes_there() {
    for cut in [0, 1, 499, 999] {
        let cut_before = AtomicBool::new(false);
        let (result, requests) = misbehaving(move |request, content| {
            let reply = honest(request, content);
            if request.range() == Some((1000, 1999)) && !cut_before.swap(true, Ordering::SeqCst) {
                reply.cut(cut)
            } else {
                reply
            }
        });
        result.unwrap();
        let rest = requests.iter().filter(|request| request.range() == Some((1000 + cut, 1999))).count();
        assert_eq!(rest, if cut == 0 { 2 } else { 1 }, "cut at {cut}");
    }
}

#[test]
fn a_cut_in_the_first_range_resumes_too() {
    let (result, _) = misbehaving(|request, content| {
        let reply = honest(request, content);
        if request.number == 0 { reply.cut(10) } else { reply }
    });
    result.unwrap();
}

#[test]
fn endless_cuts_are_an_error() {
    let (result, _) = misbehaving(|request, content| honest(request, content).cut(1));
    assert!(matches!(result.unwrap_err().kind(), ErrorKind::Io(_)));
}

#[test]
fn without_a_version_a_cut_is_an_error_and_a_whole_body_is_not() {
    let unversioned =
        |request: &Request, content: &[u8]| honest(request, content).without("ETag").without("Last-Modified");
    let (result, requests) = misbehaving(unversioned);
    result.unwrap();
    assert_eq!(requests.last().unwrap().range(), None);
    let (result, _) = misbehaving(move |request, content| unversioned(request, content).cut(700));
    assert!(matches!(result.unwrap_err().kind(), ErrorKind::Io(_)));
}

#[test]
fn the_modification_time_pins_where_there_is_no_etag() {
    let (result, requests) = misbehaving(|request, content| honest(request, content).without("ETag"));
    result.unwrap();
    assert!(requests[1..].iter().every(|request| request.header("if-unmodified-since").is_some()));
}

#[test]
fn weak_etags_are_compared_and_not_sent() {
    let (result, requests) = misbehaving(|request, content| Reply::object(request, content, "W/\"v1\""));
    result.unwrap();
    let ranges: Vec<_> = requests.iter().map(Request::range).collect();
    assert_eq!(ranges, [Some((0, 999)), None], "one response has the object");
    // The response after a fault must have the same ETag as the response before it.
    let script = |after: &'static str| {
        misbehaving(move |request, content| match request.number {
            0 | 1 => Reply::object(request, content, "W/\"v1\"").cut(700),
            _ => Reply::object(request, content, after),
        })
    };
    let (result, requests) = script("W/\"v1\"");
    result.unwrap();
    assert!(requests.iter().every(|request| request.header("if-match").is_none()));
    let (result, _) = script("W/\"v2\"");
    assert!(matches!(result.unwrap_err().kind(), ErrorKind::Changed { .. }));
}

#[test]
fn a_new_etag_between_ranges_is_an_error() {
    let (result, _) = misbehaving(|request, content| {
        Reply::object(request, content, if request.number < 2 { TAG } else { "\"v2\"" })
    });
    match result.unwrap_err().kind() {
        ErrorKind::Changed { before, after } => {
            assert_eq!((before.as_str(), after.as_str()), (TAG, "\"v2\""))
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_new_etag_in_a_resumed_range_is_an_error_even_if_the_condition_is_ignored() {
    let (result, _) = misbehaving(|request, content| match request.number {
        0 => honest(request, content).cut(10),
        _ => honest(request, content).without("ETag").with("ETag", "\"v2\""),
    });
    assert!(matches!(result.unwrap_err().kind(), ErrorKind::Changed { .. }));
}

#[test]
fn overload_is_retried_and_refusals_are_not() {
    for status in [429, 500, 503] {
        let (result, _) = misbehaving(move |request, content| {
            if request.number % 3 == 0 { Reply::new(status, "busy") } else { honest(request, content) }
        });
        result.unwrap();
    }
    let (result, requests) = misbehaving(|_, _| Reply::new(503, "down"));
    assert!(matches!(result.unwrap_err().kind(), ErrorKind::Busy { .. }));
    assert_eq!(requests.len(), 4);
    let (result, _) = misbehaving(|_, _| Reply::new(500, "down"));
    assert!(matches!(result.unwrap_err().kind(), ErrorKind::Io(_)));
    let denied: fn(&ErrorKind) -> bool = |kind| matches!(kind, ErrorKind::Denied(_));
    let missing: fn(&ErrorKind) -> bool = |kind| matches!(kind, ErrorKind::NotFound(_));
    let other: fn(&ErrorKind) -> bool = |kind| matches!(kind, ErrorKind::Store(_));
    for (status, expected) in [
        (401, denied),
        (403, denied),
        (404, missing),
        (410, missing),
        (400, other),
        // Server errors that are not retried, as a retry would get the same error.
        (501, other),
        (505, other),
        (510, other),
        (511, other),
    ] {
        let (result, requests) = misbehaving(move |_, _| Reply::new(status, "no"));
        assert!(expected(result.unwrap_err().kind()), "{status}");
        assert_eq!(requests.len(), 1, "{status}");
    }
}

#[test]
fn a_server_without_ranges_gives_the_whole_body() {
    for framing in [Framing::Length, Framing::Chunked, Framing::Close] {
        let (result, requests) =
            misbehaving(move |_, content| Reply::new(200, content).with("ETag", TAG).framed(framing));
        result.unwrap();
        assert_eq!(requests.len(), 1);
    }
    for framing in [Framing::Length, Framing::Chunked] {
        let (result, _) = misbehaving(move |_, content| Reply::new(200, content).framed(framing).cut(2000));
        assert!(matches!(result.unwrap_err().kind(), ErrorKind::Io(_)), "{framing:?}");
    }
}

#[test]
fn ranges_may_be_chunked_or_end_by_closing() {
    for framing in [Framing::Chunked, Framing::Close] {
        let (result, _) = misbehaving(move |request, content| honest(request, content).framed(framing));
        result.unwrap();
        // A connection that closes early looks like the end of the body. The length of the range reveals the
        // fault.
        let (result, _) = misbehaving(move |request, content| {
            let reply = honest(request, content).framed(framing);
            if request.number == 1 { reply.cut(100) } else { reply }
        });
        result.unwrap();
    }
}

#[test]
fn wrong_ranges_are_errors() {
    for from in [0, 1] {
        let (result, _) = misbehaving(move |request, content| {
            let reply = honest(request, content);
            let (first, last) = request.range().unwrap();
            if request.number < from {
                return reply;
            }
            let shifted = format!("bytes {}-{}/4500", first + 1, last + 1);
            reply.without("Content-Range").with("Content-Range", shifted)
        });
        assert!(matches!(result.unwrap_err().kind(), ErrorKind::Store(_)));
        let (result, _) = misbehaving(move |request, content| match request.number {
            number if number < from => honest(request, content),
            _ => honest(request, content).without("Content-Range"),
        });
        assert!(matches!(result.unwrap_err().kind(), ErrorKind::Store(_)));
    }
}

#[test]
fn ranges_shorter_than_requested_are_completed() {
    let (result, _) = misbehaving(|request, content| {
        let (first, last) = request.range().unwrap();
        let last = last.min(first + 599).min(content.len() - 1);
        Reply::new(206, &content[first..=last])
            .with("Content-Range", format!("bytes {first}-{last}/{}", content.len()))
            .with("ETag", TAG)
    });
    result.unwrap();
}

#[test]
fn a_range_longer_than_requested_is_an_error() {
    let (result, _) = misbehaving(|request, content| {
        let (first, last) = request.range().unwrap();
        let reply = honest(request, content);
        Reply { body: content[first..content.len().min(last + 2)].to_vec(), ..reply }
    });
    assert!(matches!(result.unwrap_err().kind(), ErrorKind::Store(_)));
}

#[test]
fn the_size_of_the_object_may_be_unknown() {
    let (result, _) = misbehaving(|request, content| {
        let reply = honest(request, content);
        match request.range() {
            Some((first, last)) => {
                reply.without("Content-Range").with("Content-Range", format!("bytes {first}-{last}/*"))
            }
            None => reply,
        }
    });
    result.unwrap();
}

#[test]
fn redirects_are_followed_and_queries_kept_byte_for_byte() {
    let query = "X-Sig=a%2Fb%2fc+d%20e==&x=%7B1%7D";
    let content = noise(2500);
    let target = Server::start({
        let content = content.clone();
        move |request| Reply::object(request, &content, TAG)
    });
    let location = target.url(&format!("/b.tar?{query}"));
    let front = Server::start(move |_| Reply::new(302, "").with("Location", &location));
    let store = small_ranges().build().unwrap();
    assert!(read(&store, &front.url(&format!("/a.tar?{query}"))).unwrap() == content);
    for (server, path) in [(&front, "/a.tar"), (&target, "/b.tar")] {
        for request in server.requests() {
            assert_eq!(request.target, format!("{path}?{query}"));
            assert!(request.range().is_some());
        }
    }
    let endless = Server::start(|request| Reply::new(302, "").with("Location", &request.target));
    let error = store.open(&endless.url("/a.tar?sig=s3cret")).unwrap().read_all().unwrap_err();
    assert!(!format!("{error:?}").contains("s3cret"));
}

#[test]
fn passwords_are_sent_but_not_shown() {
    let server = Server::start(|request| match request.header("authorization") {
        Some("Basic bWU6czNjcmV0") => Reply::object(request, b"in", TAG),
        _ => Reply::new(401, ""),
    });
    let store = Store::builder().build().unwrap();
    let url = server.url("/a.tar").replace("http://", "http://me:s3cret@");
    assert_eq!(read(&store, &url).unwrap(), "in");
    let body = store.open(&url.replace("/a.tar", "/b.tar")).unwrap();
    assert!(!format!("{body:?}").contains("s3cret"));
    let error = read(&store, &url.replace("s3cret", "wrong-s3cret")).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Denied(_)));
    assert!(!format!("{error:?} {error}").contains("s3cret"));
}

#[test]
fn a_dead_server_is_an_error() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let store = Store::builder().retries(1).build().unwrap();
    let error = store.open(&format!("http://{address}/a.tar?sig=s3cret")).unwrap().read_all().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Io(_)));
    assert!(!format!("{error:?}").contains("s3cret"));
}

#[test]
fn refused_connections_end_in_an_error_with_the_number_of_tries() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    // The default time limit ends the retries after about two seconds.
    let store = Store::builder().retries(u32::MAX).build().unwrap();
    let error = store.open(&format!("http://{address}/a.tar")).unwrap().read_all().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Io(_)), "{error:?}");
    let attempts = error.attempts().unwrap();
    assert!(attempts.tries > 1, "{attempts:?}");
    let text = format!("{error:#}");
    assert!(text.contains(&format!("after {} tries in ", attempts.tries)), "{text}");
    assert!(text.contains("onnection refused"), "{text}");
}

#[test]
fn the_time_limit_bounds_all_tries_together() {
    let later: fn() -> Reply = || Reply::new(503, "later").with("Retry-After", 86_400);
    let failed: fn() -> Reply = || Reply::new(500, "down");
    for reply in [later, failed] {
        let server = Server::start(move |_| reply());
        let store = Store::builder()
            .retries(u32::MAX)
            .retry_timeout(std::time::Duration::from_millis(300))
            .build()
            .unwrap();
        let error = store.open(&server.url("/a.tar")).unwrap().read_all().unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Busy { .. } | ErrorKind::Io(_)), "{error:?}");
        let attempts = error.attempts().unwrap();
        assert_eq!(attempts.tries as usize, server.requests().len());
        assert!(
            attempts.elapsed >= std::time::Duration::from_millis(300) && attempts.tries > 1,
            "{attempts:?}"
        );
    }
}

/// A response may be compressed in transit, or the object may be stored compressed under a name that doesn't
/// show it.
#[test]
fn unrequested_content_codings_are_refused_by_name() {
    for coding in ["gzip", "x-gzip", "br", "zstd", "deflate", "identity, gzip"] {
        for part in [true, false] {
            let (result, requests) = misbehaving(move |request, content| {
                let reply = if part { honest(request, content) } else { Reply::new(200, content) };
                reply.with("Content-Encoding", coding)
            });
            let error = result.unwrap_err();
            let text = format!("{error:#}");
            assert!(matches!(error.kind(), ErrorKind::UnsupportedCompression(_)), "{text}");
            assert!(text.contains("Content-Encoding"), "{text}");
            assert_eq!(requests.len(), 1);
            assert_eq!(requests[0].header("accept-encoding"), Some("identity"));
        }
    }
    for harmless in ["identity", "", "aws-chunked", "utf-8"] {
        let (result, _) =
            misbehaving(move |request, content| honest(request, content).with("Content-Encoding", harmless));
        result.unwrap();
    }
    // Some servers send `Content-Encoding: x-gzip` for every file whose name ends in `.gz`, and send the
    // file's bytes unchanged.
    let server = Server::start(|request| honest(request, &noise(900)).with("Content-Encoding", "x-gzip"));
    let store = Store::builder().build().unwrap();
    assert!(
        store.open_range(&server.url("/a.bin"), 0..900, &ObjectVersion::any()).unwrap().read_all().is_err()
    );
    assert!(store.stat(&server.url("/a.tar.gz?sig=s3cret")).unwrap().size == Some(900));
}

#[test]
fn a_redirect_to_another_scheme_is_named() {
    let (result, _) =
        misbehaving(|_, _| Reply::new(302, "").with("Location", "s3://bucket/a.tar?sig=s3cret"));
    let text = format!("{:#}", result.unwrap_err());
    assert!(text.contains("a redirect to another scheme, s3"), "{text}");
}

#[test]
fn listing_and_writing_a_web_server_are_errors() {
    let store = Store::builder().build().unwrap();
    let error = store.list("http://127.0.0.1:1/").unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unsupported(_)), "{error:?}");
    let error = store.create("http://127.0.0.1:1/a").unwrap().finish().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unsupported(_)), "{error:?}");
}

/// Reads a range of an object of 4500 bytes from a server that follows `script`.
fn ranged(
    range: std::ops::Range<u64>,
    script: impl Fn(&Request, &[u8]) -> Reply + Send + Sync + 'static,
) -> (shardstream::Result<()>, Vec<Request>) {
    let content = noise(4500);
    let server = Server::start({
        let content = content.clone();
        move |request| script(request, &content)
    });
    let store = small_ranges().retries(3).build().unwrap();
    let result =
        store.open_range(&server.url("/a.tar"), range.clone(), &ObjectVersion::any()).unwrap().read_all();
    let expected = &content[range.start.min(4500) as usize..range.end.min(4500) as usize];
    (result.map(|bytes| assert!(bytes == expected, "wrong bytes of {range:?}")), server.requests())
}

#[test]
fn a_small_range_is_one_request() {
    for range in [0..1, 700..1700, 4400..4500, 4400..4600] {
        let (result, requests) = ranged(range.clone(), honest);
        result.unwrap();
        let asked: Vec<_> = requests.iter().filter_map(Request::range).collect();
        assert_eq!(asked, [(range.start as usize, range.end as usize - 1)]);
    }
}

#[test]
fn a_cut_in_a_range_resumes_at_the_byte() {
    for cut in [1, 499, 999] {
        let (result, requests) = ranged(700..3200, move |request, content| {
            let reply = honest(request, content);
            if request.range() == Some((1700, 2699)) { reply.cut(cut) } else { reply }
        });
        result.unwrap();
        let rest = requests.iter().filter(|request| request.range() == Some((1700 + cut, 2699)));
        assert_eq!((rest.count(), requests.len()), (1, 4), "cut at {cut}");
    }
}

#[test]
fn a_server_without_ranges_still_serves_a_range() {
    for framing in [Framing::Length, Framing::Chunked, Framing::Close] {
        for range in [0..10, 1700..3200, 4499..4600, 4500..4600, 9000..9001] {
            let (result, requests) =
                ranged(range, move |_, content| Reply::new(200, content).framed(framing));
            result.unwrap();
            assert_eq!(requests.len(), 1);
        }
    }
}

#[test]
fn a_range_after_the_end_is_empty() {
    for range in [4500..4501, 9000..20_000] {
        let (result, _) = ranged(range.clone(), honest);
        result.unwrap();
        let (result, _) = ranged(range, |request, content| honest(request, content).without("Content-Range"));
        result.unwrap();
    }
}

#[test]
fn a_change_between_requests_of_a_range_is_an_error() {
    let (result, _) = ranged(700..4200, |request, content| {
        Reply::object(request, content, if request.number < 2 { TAG } else { "\"v2\"" })
    });
    let error = result.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Changed { .. }), "{error:?}");
    let offset = error.location().offset().unwrap();
    assert!((1700..4200).contains(&offset) && (offset - 700) % 1000 == 0, "{offset}");
}
