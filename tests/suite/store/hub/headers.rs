//! HTTP headers that the caller sets for web servers.

use crate::support::Every;
use crate::support::noise;
use crate::support::server::{Reply, Server};
use shardstream::store::{HttpHeaders, Store};
use shardstream::{ErrorKind, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const TAG: &str = "\"v1\"";

#[test]
fn headers_are_sent_below_their_prefix_and_to_no_other_server() {
    let content = noise(2500);
    let other = Server::start({
        let content = content.clone();
        move |request| Reply::object(request, &content, TAG)
    });
    let elsewhere = other.url("/moved.tar");
    let server = Server::start({
        let content = content.clone();
        move |request| match request.path() {
            "/private/redirected.tar" => Reply::new(302, "").with("Location", &elsewhere),
            "/private/moved.tar" => Reply::new(302, "").with("Location", "/private/a.tar"),
            _ => Reply::object(request, &content, TAG),
        }
    });
    let headers = HttpHeaders::new()
        .with("X-Api-Key", "s3cret")
        .with("Authorization", "Digest s3cret")
        .with("User-Agent", "s3cret agent");
    let store = Store::builder().range_size(1000).headers(&server.url("/private"), headers).build().unwrap();
    let sent = |path: &str| {
        let before = [server.requests().len(), other.requests().len()];
        assert_eq!(store.open(&server.url(path)).unwrap().read_all().unwrap(), content);
        [server.requests()[before[0]..].to_vec(), other.requests()[before[1]..].to_vec()]
    };
    let has = |requests: &[crate::support::server::Request], expected: bool| {
        let names =
            [("x-api-key", "s3cret"), ("authorization", "Digest s3cret"), ("user-agent", "s3cret agent")];
        requests.iter().every(|request| {
            names.iter().all(|(name, value)| (request.header(name) == Some(*value)) == expected)
        })
    };
    for path in ["/private/a.tar", "/private/moved.tar"] {
        let [own, none] = sent(path);
        assert!(has(&own, true) && none.is_empty(), "{path}: {own:?}");
    }
    let [own, none] = sent("/public/a.tar");
    assert!(has(&own, false) && none.is_empty());
    let [own, there] = sent("/private/redirected.tar");
    assert!(has(&own, true) && has(&there, false) && there.len() == 3, "{there:?}");
}

#[test]
fn a_bearer_token_is_asked_for_again_after_401() {
    let content = noise(2500);
    let valid = Arc::new(AtomicUsize::new(1));
    let server = Server::start({
        let (content, valid) = (content.clone(), valid.clone());
        move |request| match request.header("authorization") {
            Some(sent) if sent == format!("Bearer s3cret-{}", valid.load(Ordering::SeqCst)) => {
                Reply::object(request, &content, TAG)
            }
            sent => Reply::new(401, format!("{{\"error\": \"{sent:?} has ended\"}}").replace("\\\"", "")),
        }
    });
    let issued = Arc::new(AtomicUsize::new(0));
    let count = issued.clone();
    let headers = HttpHeaders::new().bearer(move || {
        let number = count.fetch_add(1, Ordering::SeqCst) + 1;
        async move { Ok(format!("s3cret-{}", number.min(2))) }
    });
    let store = Store::builder().range_size(1000).headers(&server.url(""), headers).build().unwrap();
    let read = || store.open(&server.url("/a.tar")).unwrap().read_all();
    assert_eq!(read().unwrap(), content);
    assert_eq!((issued.load(Ordering::SeqCst), server.requests().len()), (1, 3));
    valid.store(2, Ordering::SeqCst);
    assert_eq!(read().unwrap(), content);
    assert_eq!(issued.load(Ordering::SeqCst), 2);
    // The function has no third token.
    valid.store(3, Ordering::SeqCst);
    let error = read().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Denied(_)), "{error:?}");
    assert!(!format!("{error} {error:?}").contains("s3cret"), "{error:?}");
    // A user and password in the URL take precedence over the caller's token.
    let own = server.url("/a.tar").replace("http://", "http://me:pw@");
    assert!(store.stat(&own).is_err());
    assert_eq!(server.requests().last().unwrap().header("authorization"), Some("Basic bWU6cHc="));
}

#[test]
fn an_error_of_the_token_function_is_the_error_of_the_request() {
    let server = Server::start(|request| Reply::object(request, b"x", TAG));
    let headers =
        HttpHeaders::new().bearer(|| async { Err(ErrorKind::Denied("no token today".into()).into()) });
    let store = Store::builder().headers(&server.url(""), headers).build().unwrap();
    let read = |store: &Store| -> Result<_> { store.open(&server.url("/a.tar"))?.read_all() };
    let error = read(&store).unwrap_err();
    assert!(format!("{error:#}").contains("no token today"), "{error}");
    assert!(server.requests().is_empty());
    for headers in [HttpHeaders::new().with("Range", "s3cret"), HttpHeaders::new().with("X Y", "s3cret")] {
        let error = Store::builder().headers("https://host", headers).build().unwrap_err();
        assert!(!format!("{error:#}").contains("s3cret"), "{error}");
    }
    let error = Store::builder().headers("http://host", HttpHeaders::new()).build().unwrap_err();
    assert!(format!("{error:#}").contains("https only"), "{error}");
}
