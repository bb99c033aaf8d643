//! Datasets of the Hugging Face Hub, read from an emulated Hub.

mod headers;
mod peer;
mod refusals;

use super::conformance::{read, read_range, reading, small_ranges};
use crate::support::hub::Hub;
use crate::support::server::{Reply, Request};
use crate::support::{Every, archive, noise};
use shardstream::dataset::Shards;
use shardstream::prelude::*;
use shardstream::store::{Cache, ObjectUrl, StoreBuilder};
use shardstream::{ErrorKind, Result};
use std::sync::atomic::{AtomicUsize, Ordering};

/// A store with small ranges that uses this Hub.
fn at(hub: &Hub) -> StoreBuilder {
    small_ranges().hub_endpoint(&hub.endpoint())
}

fn url(path: &str) -> String {
    format!("hf://datasets/o/n/{path}")
}

/// A shard of one sample.
fn shard(key: &str) -> Vec<u8> {
    archive(&[Sample::new(key).with("cls", 1)])
}

fn paths(requests: &[Request]) -> Vec<&str> {
    requests.iter().map(Request::path).collect()
}

/// The suite overwrites files, although the files of a commit never change on the real Hub. A link that the
/// store kept would lead to the old content. Therefore, the links of the first Hub expire at once, and the
/// store requests a new link for each read. The second Hub sends files itself, without links.
#[test]
fn conformance() {
    for has_links in [true, false] {
        let hub = Hub::start();
        hub.state().has_links = has_links;
        hub.state().link_end = "Expires=1".into();
        let store = at(&hub).build().unwrap();
        reading(&store, &url, &|name, content| hub.put(name, content));
        let [own, linked] = hub.requests();
        assert_eq!(linked.is_empty(), !has_links);
        let revisions = own.iter().filter(|request| request.path().contains("/revision/"));
        assert_eq!(revisions.count(), 1, "the commit is requested once");
        for info in store.list(&url("")).unwrap() {
            let stat = store.stat(&info.url).unwrap();
            assert_eq!((stat.size, stat.version), (Some(info.size), info.version), "{}", info.url);
        }
    }
}

#[test]
fn a_pattern_lists_one_commit_in_pages() {
    let hub = Hub::start();
    let shards: Vec<_> =
        (0..7).map(|number| (format!("train/{number}.tar"), shard(&number.to_string()))).collect();
    let mut files: Vec<_> =
        shards.iter().map(|(path, content)| (path.as_str(), content.as_slice())).collect();
    files.push(("train/deep/7.tar", &[]));
    files.push(("val/0.tar", &[]));
    let commit = hub.commit("main", &files);
    for is_mirror in [false, true] {
        (hub.state().page, hub.state().is_mirror) = (3, is_mirror);
        let before = hub.requests()[0].len();
        let store = at(&hub).build().unwrap();
        for base in ["hf://datasets/o/n", "hf://datasets/o/n@main"] {
            let found = Shards::from(format!("{base}/train/*.tar")).resolve(&store).unwrap();
            let expected: Vec<_> = shards.iter().map(|(path, _)| format!("{base}/{path}")).collect();
            assert_eq!(
                found.iter().map(ToString::to_string).collect::<Vec<_>>(),
                expected,
                "as it was written"
            );
        }
        let own = &hub.requests()[0][before..];
        // For each of the two spellings of the dataset's URL: one request for the commit, and three pages
        // with seven shards, a directory and the file in it.
        assert_eq!(own.len(), 2 * (1 + 3), "{:?}", paths(own));
        let pages = own.iter().filter(|request| request.path().ends_with(&format!("/tree/{commit}/train")));
        assert_eq!(pages.count(), 6);
        let directory = Shards::from(url("train/")).resolve(&store).unwrap();
        assert_eq!(directory.len(), 7, "shards directly in it");
        let all = Shards::from(url("**/*.tar")).resolve(&store).unwrap();
        assert_eq!(all.len(), 9);
        let dataset = Dataset::builder(url("train/{0..6}.tar")).store(store).topology(Topology::single());
        assert_eq!(dataset.build().unwrap().samples(0).results().map(Result::unwrap).count(), 7);
    }
    let error = at(&hub).build().unwrap().list(&url("nowhere")).unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::NotFound(_)) && format!("{error:#}").contains("\"nowhere\""),
        "{error}"
    );
}

#[test]
fn a_store_keeps_the_commit_it_found_when_the_branch_moves() {
    let hub = Hub::start();
    let [old, new] = [noise(2500), noise(2501)];
    let before = hub.commit("main", &[("a.tar", &old), ("b.tar", &old), ("small.txt", b"old")]);
    let store = at(&hub).build().unwrap();
    assert_eq!(read(&store, &url("a.tar")).unwrap(), old);
    hub.commit("main", &[("a.tar", &new), ("b.tar", &new), ("c.tar", &new), ("small.txt", b"new")]);
    hub.end_links();
    for (path, expected) in [("a.tar", &old[..]), ("b.tar", &old), ("small.txt", b"old")] {
        assert_eq!(read(&store, &url(path)).unwrap(), expected, "{path}");
    }
    assert!(matches!(read(&store, &url("c.tar")).unwrap_err().kind(), ErrorKind::NotFound(_)));
    assert_eq!(store.list(&url("")).unwrap().len(), 3);
    // The version that the first store reports belongs to the old commit. Another store reads the new commit,
    // so it returns an error if the caller requests a range of the old version.
    let version = store.stat(&url("a.tar")).unwrap();
    let later = at(&hub).build().unwrap();
    assert_eq!(read(&later, &url("a.tar")).unwrap(), new);
    let error = later.open_range(&url("a.tar"), 0..9, &version).unwrap().read_all().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Changed { .. }), "{error}");
    // The commit of a URL with a commit hash never changes, so no request asks for the commit.
    let pinned = at(&hub).build().unwrap();
    let earlier = hub.requests()[0].len();
    let old_url = format!("hf://datasets/o/n@{before}/a.tar");
    assert_eq!(read(&pinned, &old_url).unwrap(), old);
    let own = &hub.requests()[0][earlier..];
    assert!(own.iter().every(|request| request.path().contains("/resolve/")), "{:?}", paths(own));
}

/// A state contains the URLs without a commit, as the caller gave them, and the versions of the open shards.
#[test]
fn a_restore_on_a_moved_branch_ends_where_an_open_shard_has_changed() {
    let shard = |keys: [&str; 3]| archive(&keys.map(|key| Sample::new(key).with("cls", 1)));
    let (first, second) = (shard(["a0", "a1", "a2"]), shard(["b0", "b1", "b2"]));
    for (changed, expected) in [("a.tar", None), ("c.txt", Some("a1"))] {
        let hub = Hub::start();
        hub.commit("main", &[("a.tar", &first), ("b.tar", &second), ("c.txt", b"old")]);
        let loader = || {
            let store = at(&hub).build().unwrap();
            let dataset = Dataset::builder(url("{a,b}.tar")).store(store).topology(Topology::single());
            Loader::builder(dataset.build().unwrap())
                .threads(0)
                .map(|sample| Ok(sample.key().to_owned()))
                .batch(1)
                .build()
                .unwrap()
        };
        let mut epoch = loader().epoch(0);
        epoch.next().unwrap().unwrap();
        let state = epoch.state();
        assert!(state.to_string().contains(&url("a.tar")) || !state.to_string().contains("hf://"), "{state}");
        let files: Vec<(&str, &[u8])> = [("a.tar", &first[..]), ("b.tar", &second), ("c.txt", b"old")]
            .into_iter()
            .map(|(path, content)| if path == changed { (path, &second[..]) } else { (path, content) })
            .collect();
        hub.commit("main", &files);
        let next = loader().restore(&state).unwrap().next().unwrap();
        match expected {
            Some(key) => assert_eq!(next.unwrap().into_items(), [key]),
            None => {
                let error = next.unwrap_err();
                assert!(matches!(error.kind(), ErrorKind::Stale { .. }), "{error:?}");
            }
        }
    }
}

#[test]
fn a_link_is_reused_until_it_expires() {
    let content = noise(4500);
    for (end, links) in [
        ("X-Amz-Date=20260101T000000Z&X-Amz-Expires=3600", 1),
        ("Expires=1767229200", 1),
        ("", 1),
        ("X-Amz-Date=20250101T000000Z&X-Amz-Expires=3600", 5),
    ] {
        let hub = Hub::start();
        hub.commit("main", &[("a.tar", &content)]);
        hub.state().link_end = end.into();
        let store = at(&hub).build().unwrap();
        assert_eq!(store.open(&url("a.tar")).unwrap().read_all().unwrap(), content);
        let [own, linked] = hub.requests();
        assert_eq!((own.len(), linked.len()), (1 + links, 5), "{end}: {:?}", paths(&own));
        let tags = linked.iter().filter(|request| request.header("if-match").is_some()).count();
        assert_eq!(
            tags,
            if links == 1 { 4 } else { 0 },
            "the tag of the other server is named once it is known"
        );
    }
}

#[test]
fn a_refused_link_is_requested_again_once() {
    let hub = Hub::start();
    let content = noise(4500);
    hub.commit("main", &[("a.tar", &content)]);
    let store = at(&hub).build().unwrap();
    for _ in 0..3 {
        hub.end_links();
        assert_eq!(read_range(&store, &url("a.tar"), 7..3000).unwrap(), content[7..3000]);
    }
    // The blocking and the asynchronous reader each meet an expired link once at most.
    let [own, linked] = hub.requests();
    let refused = linked.len() - 3 * 2 * 3;
    assert_eq!((own.len(), refused), (1 + 3, 2), "{:?}", paths(&own));

    let broken = Hub::with(|request| request.query().contains("s1gned").then(|| Reply::new(403, "no")));
    broken.commit("main", &[("a.tar", &content)]);
    let error = at(&broken).build().unwrap().open(&url("a.tar")).unwrap().read_all().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Denied(_)), "{error:?}");
    let [own, linked] = broken.requests();
    assert_eq!((own.len(), linked.len()), (3, 2));
    assert!(!format!("{error} {error:?} {error:#}").contains("s1gned"), "{error:?}");
}

#[test]
fn a_link_to_other_bytes_is_an_error() {
    let content = noise(2500);
    let hub = Hub::with({
        let other = noise(2400);
        move |request| {
            let is_link = request.query().contains("s1gned");
            is_link.then(|| Reply::object(request, &other, "\"other\""))
        }
    });
    hub.commit("main", &[("a.tar", &content)]);
    let error = at(&hub).build().unwrap().open(&url("a.tar")).unwrap().read_all().unwrap_err();
    assert!(format!("{error:#}").contains("leads to 2400 bytes, and the file has 2500"), "{error}");
}

/// The Hub is busy for a while, and so is the server that its download links lead to. The Hub's headers tell
/// when its rate limit ends.
#[test]
fn requests_to_busy_servers_are_retried() {
    let requests = AtomicUsize::new(0);
    let hub = Hub::with(move |request| {
        let number = requests.fetch_add(1, Ordering::SeqCst);
        let busy =
            || Reply::new(429, "slow down").with("RateLimit-Policy", "\"fixed window\";\"api\";q=500;w=300");
        match (number % 3, request.query().contains("s1gned")) {
            (2, _) => None,
            (_, true) => Some(busy().with("Retry-After", "0")),
            _ => Some(busy().with("RateLimit", "\"api\";r=0;t=0")),
        }
    });
    let content = noise(2500);
    hub.commit("main", &[("a.tar", &content)]);
    let store = at(&hub).retry_pause(std::time::Duration::from_millis(1)).build().unwrap();
    assert_eq!(store.list(&url("")).unwrap().len(), 1);
    assert_eq!(read(&store, &url("a.tar")).unwrap(), content);
    let report = store.report();
    assert_eq!(report.sources.len(), 1);
    assert_eq!(report.sources[0].source, "hf://datasets/o/n");
    assert!(report.sources[0].throttled >= 4, "{report}");
}

#[test]
fn a_cache_knows_files_by_the_hash_of_their_content() {
    let hub = Hub::start();
    let directory = tempfile::tempdir().unwrap();
    let store = || {
        let cache = Cache::builder(directory.path()).build().unwrap();
        Store::builder().hub_endpoint(&hub.endpoint()).cache(cache.clone()).build().unwrap()
    };
    let content = noise(3 << 20);
    hub.commit("main", &[("a.tar", &content)]);
    let first = store();
    assert_eq!(first.open(&url("a.tar")).unwrap().read_all().unwrap(), content);
    drop(first);
    // A new commit with an unchanged file.
    hub.commit("main", &[("a.tar", &content), ("README.md", b"new")]);
    let before = hub.requests()[1].len();
    assert_eq!(store().open(&url("a.tar")).unwrap().read_all().unwrap(), content);
    let later = &hub.requests()[1][before..];
    assert!(later.iter().every(|request| request.range() == Some((0, 0))), "only the version is requested");
}

#[test]
fn a_dataset_is_read_only_and_names_what_is_supported() {
    let hub = Hub::start();
    let store = at(&hub).build().unwrap();
    let error = store.put(&url("a.tar"), b"").unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::Unsupported(_)) && format!("{error:#}").contains("hf://"),
        "{error}"
    );
    for bad in
        ["hf://o/n/a.tar", "hf://buckets/o/n/a.tar", "hf://datasets/n/a.tar", "hf://datasets/o/n//a.tar"]
    {
        let error = store.open(bad).and_then(|body| body.read_all()).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Config(_)), "{error:?}");
    }
    assert!(hub.requests().concat().is_empty());
    assert!(Store::builder().hub_endpoint("hub").build().is_err());
    assert!(ObjectUrl::parse(&url("a.tar")).is_same_place(&ObjectUrl::parse("hf://datasets/o/n@main/a.tar")));
}

/// The responses of a server that is not a Hub are errors that say so.
#[test]
fn a_server_that_is_not_a_hub_is_an_error_that_says_so() {
    for reply in [
        Reply::new(200, "<html>"),
        Reply::new(200, "{\"sha\": \"../../x\"}"),
        Reply::new(302, "").with("Location", "https://log.in/"),
    ] {
        let hub = Hub::with(move |_| Some(reply.clone()));
        let error = at(&hub).build().unwrap().stat(&url("a.tar")).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Store(_)), "{error:?}");
        assert!(format!("{error:#}").contains("HF_ENDPOINT"), "{error}");
    }
}
