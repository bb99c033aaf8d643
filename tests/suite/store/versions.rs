//! Readers, caches and indexes that compare versions. The server gives strong and weak ETags, times in whole
//! seconds, or an ETag first and a time later. The content changes each time, but its size and layout stay
//! the same.

use crate::store::conformance::small_ranges;
use crate::support::server::Naming::{Old, Strong, Unversioned, Weak, Young};
use crate::support::server::{Naming, Server};
use crate::support::{archive, noise};
use shardstream::prelude::*;
use shardstream::store::VersionComparison::{self, Different, Same, Unknown};
use shardstream::store::{Cache, ObjectVersion, Store};
use shardstream::{ErrorKind, Index, Result};
use std::sync::{Arc, Mutex};

/// The version that a server reports first, the version that it reports later, and what the two versions say
/// about whether the bytes are the same.
const PAIRS: [(Naming, Naming, VersionComparison); 14] = [
    (Strong("a"), Strong("a"), Same),
    (Strong("a"), Strong("b"), Different),
    (Weak("a"), Weak("a"), Unknown),
    (Weak("a"), Weak("b"), Different),
    (Strong("a"), Weak("a"), Unknown),
    (Weak("a"), Strong("b"), Different),
    (Old(0), Old(0), Same),
    (Old(0), Old(1), Different),
    (Young(0), Old(0), Unknown),
    (Young(0), Young(0), Unknown),
    (Young(0), Old(1), Different),
    (Strong("a"), Old(0), Unknown),
    (Old(0), Strong("a"), Unknown),
    (Strong("a"), Unversioned, Unknown),
];

/// After a number of requests, the object's bytes change. Its weak version stays the same, or it has no
/// version.
#[test]
fn weak_versions_join_no_responses() {
    let old = noise(4500);
    let new: Vec<u8> = old.iter().rev().copied().collect();
    let mut changed = 0;
    for naming in [Weak("a"), Young(0), Unversioned] {
        for (after, cut) in (0..8).flat_map(|after| [(after, None), (after, Some(after.max(1) - 1))]) {
            let server = Server::start({
                let (old, new) = (old.clone(), new.clone());
                move |request| {
                    let reply = naming.reply(request, if request.number < after { &old } else { &new });
                    if Some(request.number) == cut { reply.cut(300) } else { reply }
                }
            });
            let store = small_ranges().retries(9).build().unwrap();
            for range in [0..u64::MAX, 500..4000] {
                let slice =
                    |bytes: &[u8]| bytes[range.start as usize..bytes.len().min(range.end as usize)].to_vec();
                let body =
                    store.open_range(&server.url("/a.tar"), range.clone(), &ObjectVersion::any()).unwrap();
                match body.read_all() {
                    Ok(bytes) => assert!(bytes == slice(&old) || bytes == slice(&new), "{naming:?} {after}"),
                    Err(error) => {
                        assert!(matches!(error.kind(), ErrorKind::Changed { .. }), "{error}");
                        changed += 1;
                    }
                }
            }
        }
    }
    assert!(changed > 0);
}

#[test]
fn strong_versions_join_ranges_and_two_kinds_do_not() {
    let content = noise(4500);
    let read = |script: fn(usize) -> Naming| {
        let server = Server::start({
            let content = content.clone();
            move |request| script(request.number).reply(request, &content)
        });
        let read = small_ranges().build().unwrap().open(&server.url("/a.tar")).unwrap().read_all();
        read.map(|bytes| assert!(bytes == content)).map(|()| server.requests().len())
    };
    assert_eq!(read(|_| Strong("a")).unwrap(), 5);
    assert_eq!(read(|_| Old(0)).unwrap(), 5);
    assert_eq!(read(|_| Weak("a")).unwrap(), 2);
    assert_eq!(read(|_| Young(0)).unwrap(), 2);
    let other: [fn(usize) -> Naming; 3] = [
        |number| if number < 2 { Strong("a") } else { Old(0) },
        |number| if number < 2 { Old(0) } else { Strong("a") },
        |number| if number < 2 { Strong("a") } else { Weak("a") },
    ];
    for script in other {
        let error = read(script).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Changed { .. }), "{error}");
    }
}

/// A shard on a server. `replace` gives it new content of the same size and layout.
struct Shard {
    state: Arc<Mutex<(char, Naming)>>,
    server: Server,
}

impl Shard {
    fn new(naming: Naming) -> Self {
        let state = Arc::new(Mutex::new(('1', naming)));
        let shared = Arc::clone(&state);
        let server = Server::start(move |request| {
            let (content, naming) = *shared.lock().unwrap();
            let sample = |i| Sample::new(format!("{i:02}")).with("v", content.to_string().into_bytes());
            naming.reply(request, &archive(&(0..5).map(sample).collect::<Vec<_>>()))
        });
        Shard { state, server }
    }

    fn replace(&self, naming: Naming) {
        *self.state.lock().unwrap() = ('2', naming);
    }

    fn url(&self) -> String {
        self.server.url("/0.tar")
    }

    fn dataset(&self, index: Option<Index>) -> Dataset {
        let builder = Dataset::builder(ShardList::from_urls([self.url()])).topology(Topology::single());
        index.into_iter().fold(builder, |builder, index| builder.index(index)).build().unwrap()
    }
}

fn content(sample: &Sample) -> Result<String> {
    Ok(String::from_utf8(sample.field("v")?.as_bytes().unwrap().to_vec()).unwrap())
}

/// True if all samples have the new content; false if all items are errors that the shard has changed. Fails
/// otherwise.
fn reads(items: impl Iterator<Item = Result<String>>) -> bool {
    let items: Vec<_> = items.collect();
    assert!(!items.is_empty());
    if items[0].is_ok() {
        assert!(items.iter().all(|item| item.as_ref().unwrap() == "2"), "{items:?}");
        return true;
    }
    for item in items {
        assert!(matches!(item.unwrap_err().kind(), ErrorKind::Stale { .. }));
    }
    false
}

#[test]
fn an_index_accepts_a_shard_unless_its_version_is_different() {
    for (then, now, expected) in PAIRS {
        let shard = Shard::new(then);
        let (urls, url) = (ShardList::from_urls([shard.url()]), shard.url());
        let index = Index::builder().build(&urls).unwrap();
        shard.replace(now);
        let accepted = expected != Different;
        let object = Store::default().stat(&url).unwrap();
        let compared = index.get(&url).unwrap().object().compare(&object);
        assert_eq!(compared, expected, "{then:?} {now:?}");
        assert_eq!(
            index.get(&url).unwrap().check_object(&url, &object).is_ok(),
            accepted,
            "{then:?} {now:?}"
        );
        let samples = shard.dataset(Some(index)).samples(0).results().map(|sample| content(&sample?));
        assert_eq!(reads(samples), accepted, "{then:?} {now:?}");
    }
}

#[test]
fn a_state_accepts_a_shard_unless_its_version_is_different() {
    for (then, now, expected) in PAIRS {
        let shard = Shard::new(then);
        let loader = Loader::builder(shard.dataset(None)).threads(0).map(|sample| content(&sample));
        let loader = loader.batch(1).build().unwrap();
        let mut batches = loader.epoch(0);
        assert_eq!(batches.by_ref().take(2).map(Result::unwrap).count(), 2);
        let state = batches.state();
        drop(batches);
        shard.replace(now);
        let rest = loader.restore(&state).unwrap().map(|batch| Ok(batch?.into_items().remove(0)));
        assert_eq!(reads(rest), expected != Different, "{then:?} {now:?}");
    }
}

#[test]
fn a_range_accepts_an_object_unless_its_version_is_different() {
    for (then, now, expected) in PAIRS {
        let (shard, directory) = (Shard::new(then), tempfile::tempdir().unwrap());
        let cache = Cache::builder(directory.path()).build().unwrap();
        let (plain, cached) = (Store::default(), Store::builder().cache(cache).build().unwrap());
        let (url, object) = (shard.url(), plain.stat(&shard.url()).unwrap());
        shard.replace(now);
        for store in [&plain, &cached] {
            for body in [
                store.open_range(&url, 500..700, &object).unwrap(),
                store.open(&url).unwrap().of_version(&object),
            ] {
                match body.read_all() {
                    Ok(_) => assert_ne!(expected, Different, "{then:?} {now:?}"),
                    Err(error) => {
                        assert_eq!(expected, Different, "{then:?} {now:?}: {error}");
                        assert!(matches!(error.kind(), ErrorKind::Changed { .. }), "{error}");
                        assert_eq!(error.location().shard(), Some(&*url));
                    }
                }
            }
            assert!(store.open_range(&url, 500..700, &ObjectVersion::any()).unwrap().read_all().is_ok());
        }
    }
}

#[test]
fn a_saved_index_is_used_for_the_same_shard_only() {
    for (then, now, expected) in PAIRS {
        let (shard, directory) = (Shard::new(then), tempfile::tempdir().unwrap());
        let index = || {
            let urls = ShardList::from_urls([shard.url()]);
            Index::builder().cache(directory.path()).build(&urls).unwrap()
        };
        index();
        let before = shard.server.requests().len();
        shard.replace(now);
        index();
        // The first request only asks for the version.
        assert_eq!(shard.server.requests().len() == before + 1, expected == Same, "{then:?} {now:?}");
    }
}

#[test]
fn the_cache_serves_an_object_only_if_its_version_is_the_same() {
    for (then, now, expected) in PAIRS {
        let (shard, directory) = (Shard::new(then), tempfile::tempdir().unwrap());
        let cache = Cache::builder(directory.path()).build().unwrap();
        let store = Store::builder().cache(cache.clone()).build().unwrap();
        let read = || {
            let bytes = store.open(&shard.url()).unwrap().read_all().unwrap();
            cache.flush();
            bytes
        };
        let first = read();
        shard.replace(now);
        assert_eq!(read() == first, expected == Same, "{then:?} {now:?}");
        assert_eq!(cache.warning(), None);
    }
}
