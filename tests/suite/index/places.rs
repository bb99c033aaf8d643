//! Where an index is stored, and locations that cannot be written to.

use super::logged::LoggedBucket;
use super::*;
#[cfg(feature = "http")]
use crate::support::Every;
use shardstream::index::AutoIndex;
use std::fs;

#[test]
fn an_unwritable_location_is_an_error_with_alternatives() {
    let logged = LoggedBucket::of(&[3, 2], true, false);
    let error = logged.dataset(AutoIndex::beside()).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Config(_)), "{error}");
    assert!(error.to_string().contains("AutoIndex::in_directory"), "{error}");
    let requests = ["list", "get s-*.index.json", "get s-*.probe.index.json"];
    assert_eq!(logged.take_requests(), requests, "the error comes before a shard is read");

    let cache = tempfile::tempdir().unwrap();
    for auto in [
        AutoIndex::beside().or_in_directory(cache.path().join("a")),
        AutoIndex::in_directory(cache.path().join("b")),
        AutoIndex::at(cache.path().join("c.json").to_str().unwrap()),
    ] {
        assert_eq!(logged.dataset(auto.clone()).unwrap().len(), Some(5));
        logged.take_requests();
        assert_eq!(logged.dataset(auto).unwrap().len(), Some(5));
        let mut requests = logged.take_requests();
        requests.retain(|line| line != "get s-*.index.json");
        assert_eq!(requests, ["list"], "no shard is requested");
    }
    assert_eq!(fs::read_dir(cache.path().join("a")).unwrap().count(), 1);
}

/// The bucket only accepts objects of one part, so it refuses the document while the document is being
/// written.
#[test]
fn a_document_refused_during_its_write_goes_to_the_directory() {
    let mut logged = LoggedBucket::of(&[3, 2], true, true);
    Arc::get_mut(&mut logged).unwrap().part = Some(1 << 20);
    // The document repeats the filter's name for each shard, so it exceeds the writer's buffer.
    let name = "f".repeat(4 << 20);
    let auto = |auto: AutoIndex| auto.select(name.clone(), |_| true);
    let error = logged.dataset(auto(AutoIndex::beside())).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Config(_)), "{error}");
    assert!(error.to_string().contains("AutoIndex::in_directory"), "{error}");

    let cache = tempfile::tempdir().unwrap();
    let auto = auto(AutoIndex::beside().or_in_directory(cache.path()));
    assert_eq!(logged.dataset(auto.clone()).unwrap().len(), Some(5));
    logged.take_requests();
    assert_eq!(logged.dataset(auto).unwrap().len(), Some(5));
    assert_eq!(logged.take_requests(), ["list", "get s-*.index.json"], "no shard is requested");
}

/// Until the new index is complete, the saved index stays: another rank may use the saved index, and this
/// process may be killed.
#[test]
fn a_saved_index_is_replaced_only_by_a_complete_one() {
    let logged = LoggedBucket::of(&[3, 4], true, true);
    logged.dataset(AutoIndex::beside()).unwrap();
    let kept = |logged: &LoggedBucket| {
        let objects = logged.objects.objects.lock().unwrap();
        let mut kept: Vec<_> = objects.iter().filter(|(url, _)| url.ends_with(".index.json")).collect();
        assert_eq!(kept.len(), 1, "{kept:?}");
        kept.remove(0).1.clone()
    };
    let before = kept(&logged);
    logged.shard(1, 5);
    let (seen, weak) = (Arc::new(Mutex::new(Vec::new())), Arc::downgrade(&logged));
    let noted = Arc::clone(&seen);
    let auto = AutoIndex::beside().on_shard(move |_| {
        noted.lock().unwrap().push(kept(&weak.upgrade().unwrap()));
    });
    assert_eq!(logged.dataset(auto).unwrap().len(), Some(8));
    assert_eq!(seen.lock().unwrap()[..], *std::slice::from_ref(&before));
    assert_ne!(kept(&logged), before);
}

/// A job was stopped before it saved its index. The bucket only accepts new objects, so the job could not
/// delete its probe.
#[test]
fn a_leftover_probe_does_not_make_a_location_unwritable() {
    let mut logged = LoggedBucket::of(&[3, 2], true, true);
    Arc::get_mut(&mut logged).unwrap().fixed = true;
    logged.dataset(AutoIndex::beside()).unwrap();
    let is_probe = |url: &str| url.contains(".probe.");
    {
        let mut objects = logged.objects.objects.lock().unwrap();
        objects.retain(|url, _| is_probe(url) || !url.ends_with(".index.json"));
        assert_eq!(objects.keys().filter(|url| is_probe(url)).count(), 1);
    }
    assert_eq!(logged.dataset(AutoIndex::beside()).unwrap().len(), Some(5));
    logged.take_requests();
    assert_eq!(logged.dataset(AutoIndex::beside()).unwrap().len(), Some(5));
    assert_eq!(logged.take_requests(), ["list", "get s-*.index.json"]);
}

/// Many ranks that start together probe the location at the same time, and the store answers that it is busy.
#[test]
fn a_busy_location_counts_as_writable() {
    let logged = LoggedBucket::of(&[3, 2], true, true);
    let busy = ErrorKind::Busy { retry_after: None, source: "slow down".into() };
    *logged.fault.lock().unwrap() = Some(busy.into());
    assert_eq!(logged.dataset(AutoIndex::beside()).unwrap().len(), Some(5));
    assert_eq!(logged.take_requests().pop().unwrap(), "put s-*.index.json");
    // Any other error of the probe is reported before shards are read.
    logged.shard(1, 3);
    *logged.fault.lock().unwrap() = Some(ErrorKind::NotFound("no such bucket".into()).into());
    let error = logged.dataset(AutoIndex::beside()).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::NotFound(_)), "{error}");
    assert_eq!(logged.take_requests(), ["list", "get s-*.index.json"]);
}

#[cfg(feature = "http")]
#[test]
fn indexes_of_a_web_server_are_kept_in_a_directory() {
    use crate::support::files;
    use crate::support::server::{Reply, Server};
    use shardstream::prelude::*;
    let shard = files(&["a.txt", "b.txt"]);
    let server = Server::start(move |request| match request.path().ends_with(".tar") {
        true => Reply::object(request, &shard, "\"v1\""),
        false => Reply::new(404, ""),
    });
    let pattern = server.url("/s-{0..2}.tar");
    let build = |auto| Dataset::builder(&pattern).topology(Topology::single()).auto_index(auto).build();
    let error = build(AutoIndex::beside()).unwrap_err();
    assert!(error.to_string().contains("web servers cannot be written to"), "{error}");
    assert!(
        server.requests().iter().all(|request| !request.path().ends_with(".tar")),
        "the error comes before a shard is read"
    );
    let cache = tempfile::tempdir().unwrap();
    let kept = || build(AutoIndex::in_directory(cache.path())).unwrap();
    assert_eq!(kept().len(), Some(6));
    let before = server.requests().len();
    assert_eq!(kept().len(), Some(6));
    let requests = server.requests().split_off(before);
    assert_eq!(requests.len(), 3, "one byte of each shard");
    assert!(requests.iter().every(|request| request.range() == Some((0, 0))), "{requests:?}");
}
