//! Responses without a request: they are never read as the bytes of an object.
//!
//! In HTTP/1.1, only the order of responses on a connection tells which request each one answers. If a server
//! or proxy sends a surplus response, each later response answers the wrong request.

use crate::store::transport::{TAG, connections, honest, one_by_one, requests_of};
use crate::support::noise;
use crate::support::server::{Naming, Reply, Request, Server};
use std::time::Duration;

/// The bytes of an object. All objects have the same size and different bytes.
fn content(object: u8) -> Vec<u8> {
    noise(4500).iter().map(|byte| byte ^ object).collect()
}

/// Sends the response for `/NUMBER.tar` twice, the second time after `pause`.
fn twice(request: &Request, naming: fn(u8) -> Naming, pause: Duration) -> Reply {
    let object = request.path().trim_matches(|letter: char| !letter.is_ascii_digit()).parse().unwrap();
    let reply = naming(object).reply(request, &content(object));
    let mut again = format!("HTTP/1.1 {} Again\r\nContent-Length: {}\r\n", reply.status, reply.body.len());
    for (name, value) in &reply.headers {
        again += &format!("{name}: {value}\r\n");
    }
    let again = [again.as_bytes(), b"\r\n", &reply.body].concat();
    reply.followed_by(pause, again)
}

/// The server sends each response twice. The next request is for another object, and its reader could take
/// the second copy for the response.
#[test]
fn a_response_to_another_request_gives_no_bytes() {
    let namings: [fn(u8) -> Naming; 5] = [
        |object| Naming::Strong(["a", "b", "c", "d"][usize::from(object % 4)]),
        |object| Naming::Strong(["1764000000000000", "1764000000000001"][usize::from(object % 2)]),
        |object| Naming::Old(u64::from(object)),
        |object| Naming::Weak(["a", "b"][usize::from(object % 2)]),
        |_| Naming::Unversioned,
    ];
    for (number, naming) in namings.into_iter().enumerate() {
        for pause in [0, 1, 2, 5] {
            let pause = Duration::from_millis(pause);
            let server = Server::start(move |request| twice(request, naming, pause));
            let store = one_by_one().retry_pause(Duration::from_millis(1)).build().unwrap();
            for object in 0..10 {
                let read = store.open(&server.url(&format!("/{object}.tar"))).unwrap().read_all().unwrap();
                assert!(read == content(object), "naming {number}, {pause:?}, object {object}");
            }
        }
    }
}

/// Surplus bytes, such as the beginning of another response, must not be taken for the next response.
#[test]
fn a_connection_with_surplus_bytes_is_not_reused() {
    let followed = |request: &Request| {
        let (first, last) = request.range().unwrap();
        let last = last.min(4499);
        let head = format!(
            "HTTP/1.1 206 Part\r\nETag: {TAG}\r\nContent-Range: bytes {first}-{last}/4500\r\nContent-Length: \
             {}\r\n\r\n",
            last + 1 - first
        );
        let more = "HTTP/1.1 206 Part\r\nETag: \"v1\"\r\nContent-Range: bytes 0-0/4500\r\nContent-Length: \
                    1\r\n\r\nx";
        Reply::raw([head.as_bytes(), &noise(4500)[first..=last], more.as_bytes()].concat())
    };
    let requests = requests_of(followed);
    assert_eq!((requests.len(), connections(&requests)), (5, 5));
}

/// A response that matches any of the requests below, but whose bytes differ from the object's bytes.
fn wrong_answer() -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 206 Part\r\nETag: {TAG}\r\nContent-Range: bytes 0-4499/4500\r\nContent-Length: 4500\r\n\r\n"
    );
    [head.as_bytes(), &[b'x'; 4500]].concat()
}

/// The surplus bytes have arrived before the next request is made.
#[test]
fn surplus_bytes_on_an_idle_connection_answer_nothing() {
    let pause = Duration::from_millis(10);
    let server = Server::start(move |request| honest(request).followed_by(pause, wrong_answer()));
    let store = one_by_one().retries(0).build().unwrap();
    let mut read = Vec::new();
    for chunk in store.open(&server.url("/a.tar")).unwrap() {
        read.extend_from_slice(&chunk.unwrap());
        // The next read requests the next range, so the test waits here for the surplus bytes of the current
        // range.
        while server.surpluses() < server.requests().len() {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(2 * pause);
    }
    assert!(read == noise(4500));
    assert_eq!((server.requests().len(), connections(&server.requests())), (5, 5));
}

/// The surplus bytes arrive after the next request was sent, so they are read as its response. If that
/// response has another range or version, or is an error, none of its bytes are used.
#[test]
fn a_surplus_response_that_does_not_fit_gives_no_bytes() {
    let shifted = "HTTP/1.1 206 Part\r\nETag: \"v1\"\r\nContent-Range: bytes 1-1000/4500\r\nContent-Length: \
                   1000\r\n\r\n";
    let changed = "HTTP/1.1 206 Part\r\nETag: \"v2\"\r\nContent-Range: bytes 2000-2999/4500\r\n\
                   Content-Length: 1000\r\n\r\n";
    let whole = "HTTP/1.1 200 OK\r\nETag: \"v1\"\r\nContent-Length: 1000\r\n\r\n";
    let refused = "HTTP/1.1 408 Late\r\nContent-Length: 1000\r\n\r\n";
    for head in [shifted, changed, whole, refused] {
        for pause in [0, 1, 2, 5] {
            let pause = Duration::from_millis(pause);
            let server = Server::start(move |request| match request.range() {
                // The second request for an object. Its connection is reused afterwards.
                Some((1000, _)) => {
                    honest(request).followed_by(pause, [head.as_bytes(), &[b'x'; 1000]].concat())
                }
                _ => honest(request),
            });
            let store = one_by_one().retries(0).build().unwrap();
            for object in 0..10 {
                let read = store.open(&server.url(&format!("/{object}.tar"))).unwrap().read_all();
                match read {
                    Ok(read) => assert!(read == noise(4500), "{head}, {pause:?}"),
                    Err(error) => assert!(head == refused, "{head}, {pause:?}: {error:?}"),
                }
            }
        }
    }
}
