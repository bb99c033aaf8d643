//! Private, gated and missing datasets, and the servers to which the token is sent.

use super::{at, url};
use crate::support::hub::Hub;
use crate::support::server::Reply;
use crate::support::{Every, noise};
use shardstream::store::{Cache, HttpHeaders};
use shardstream::{Error, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const TOKEN: &str = "hf_s3cret";

fn with_token(token: &'static str) -> HttpHeaders {
    HttpHeaders::new().bearer(move || async move { Ok(token.to_owned()) })
}

/// The error of reading a file with this token.
fn refusal(hub: &Hub, path: &str, token: &'static str) -> Error {
    let store = at(hub).headers(&hub.endpoint(), with_token(token)).build().unwrap();
    let error = store.stat(path).unwrap_err();
    let text = format!("{error} {error:?} {error:#} {:?}", error.kind());
    assert!(!text.contains("s3cret"), "{text}");
    assert_eq!(error.location().shard(), Some(path));
    error
}

#[test]
fn refusals_name_the_dataset_and_what_to_do() {
    let hub = Hub::start();
    hub.commit("main", &[("a.tar", &noise(100))]);
    hub.state().token = Some(TOKEN.into());
    let denied = |error: &Error| matches!(error.kind(), ErrorKind::Denied(_));
    let missing = |error: &Error| matches!(error.kind(), ErrorKind::NotFound(_));

    let error = refusal(&hub, &url("a.tar"), "hf_s3cret-of-another");
    assert!(
        denied(&error) && format!("{error:#}").contains("the dataset o/n is not read with this token"),
        "{error}"
    );
    assert!(format!("{error:#}").contains("the token that the store was given was sent"), "{error}");

    let error = refusal(&hub, &url("b.tar"), TOKEN);
    assert!(
        missing(&error) && format!("{error:#}").contains("o/n has no \"b.tar\" in its revision main"),
        "{error}"
    );

    let error = refusal(&hub, "hf://datasets/o/n@v2/a.tar", TOKEN);
    assert!(missing(&error) && format!("{error:#}").contains("o/n has no revision v2"), "{error}");

    let error = refusal(&hub, "hf://datasets/o/other/a.tar", TOKEN);
    assert!(
        missing(&error) && format!("{error:#}").contains("there is no dataset o/other, or it is private"),
        "{error}"
    );

    hub.state().is_gated = true;
    let error = refusal(&hub, &url("a.tar"), TOKEN);
    assert!(
        denied(&error) && format!("{error:#}").contains("o/n is gated: accept its conditions"),
        "{error}"
    );
    assert!(
        format!("{error:#}").contains("Access to dataset o/n is restricted"),
        "what the Hub says: {error}"
    );
}

#[test]
fn an_expired_token_is_requested_again() {
    let hub = Hub::start();
    hub.commit("main", &[("a.tar", &noise(100))]);
    hub.state().token = Some("t1".into());
    let issued = Arc::new(AtomicUsize::new(0));
    let count = issued.clone();
    let headers = HttpHeaders::new().bearer(move || {
        let number = count.fetch_add(1, Ordering::SeqCst) + 1;
        async move { Ok(format!("t{number}")) }
    });
    let store = at(&hub).headers(&hub.endpoint(), headers).build().unwrap();
    assert_eq!(store.stat(&url("a.tar")).unwrap().size, Some(100));
    hub.state().token = Some("t2".into());
    hub.end_links();
    assert_eq!(store.stat(&url("a.tar")).unwrap().size, Some(100));
    assert_eq!(issued.load(Ordering::SeqCst), 2);
}

#[test]
fn a_token_that_is_new_each_time_and_always_refused_ends_in_an_error() {
    let hub = Hub::start();
    hub.commit("main", &[("a.tar", &noise(100))]);
    hub.state().token = Some("another".into());
    let issued = Arc::new(AtomicUsize::new(0));
    let count = issued.clone();
    let headers = HttpHeaders::new().bearer(move || {
        let number = count.fetch_add(1, Ordering::SeqCst) + 1;
        async move { Ok(format!("t{number}")) }
    });
    let store = at(&hub).headers(&hub.endpoint(), headers).build().unwrap();
    let error = store.stat(&url("a.tar")).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Denied(_)), "{error}");
    assert_eq!(issued.load(Ordering::SeqCst), 2);
}

#[test]
fn the_token_is_sent_to_the_hub_alone_and_is_in_no_message_or_file() {
    // The Hub and the server that its download links lead to refuse some requests. A refusal contains the
    // request's text.
    let hub = Hub::with(|request| {
        let is_refused = request.path().contains("echo") || request.query().contains("s1gned-3");
        let text = format!("{} {:?}", request.target, request.headers);
        is_refused.then(|| Reply::new(403, serde_json::json!({"error": text}).to_string()))
    });
    let content = noise(4500);
    hub.commit("main", &[("a.tar", &content), ("b.tar", &content), ("c.txt", b"small")]);
    hub.state().token = Some(TOKEN.into());
    let directory = tempfile::tempdir().unwrap();
    let cache = Cache::builder(directory.path()).build().unwrap();
    let headers = with_token(TOKEN).with("X-Own", "s3cret-header");
    let builder = at(&hub).headers(&hub.endpoint(), headers.clone()).cache(cache);
    let store = builder.clone().build().unwrap();
    let mut seen = vec![format!("{builder:?} {headers:?}"), format!("{store:?}")];
    for path in ["a.tar", "c.txt", "echo.tar", "b.tar"] {
        match store.open(&url(path)).unwrap().read_all() {
            Ok(_) => {}
            Err(error) => seen.push(format!("{error} {error:?} {error:#}")),
        }
        seen.push(format!("{} {:?} {:?}", store.report(), store.report(), store.requests()));
    }
    assert_eq!(store.list(&url("")).unwrap().len(), 3);
    drop(store);
    let mut directories = vec![directory.path().to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            seen.push(path.display().to_string());
            match path.is_dir() {
                true => directories.push(path),
                false => seen.push(String::from_utf8_lossy(&std::fs::read(path).unwrap()).into_owned()),
            }
        }
    }
    assert!(seen.len() > 10);
    for text in &seen {
        assert!(!text.contains("s3cret") && !text.contains("s1gned"), "{text}");
    }
    let [own, linked] = hub.requests();
    assert!(own.iter().every(|request| request.header("authorization") == Some("Bearer hf_s3cret")));
    assert!(own.iter().every(|request| request.header("x-own") == Some("s3cret-header")));
    let has_secret = |text: &str| text.contains("s3cret");
    assert!(
        !linked.is_empty()
            && linked.iter().every(|request| {
                !has_secret(&request.target) && request.headers.iter().every(|(_, value)| !has_secret(value))
            })
    );
}
