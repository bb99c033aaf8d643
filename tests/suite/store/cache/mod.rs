//! The cache: readers get the bytes of the object, from the directory or from the source.

mod damage;
mod fixture;

use self::fixture::{CHUNK, CacheFixture, ControlledSource, URL, VERSION, files, until};
use crate::store::conformance::{read, read_range, reading, small_ranges, write};
use crate::support::Every;
use crate::support::noise;
use bytes::Bytes;
use futures::StreamExt;
use futures::future::BoxFuture;
use shardstream::store::object_store::memory::InMemory;
use shardstream::store::{Cache, Checksum, GetOptions, GetResponse, Source, Store};
use shardstream::{ErrorKind, Result};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// A source that waits before each response.
#[derive(Debug)]
struct Late(Arc<ControlledSource>, Duration);

impl Source for Late {
    fn get(&self, url: &str, options: GetOptions) -> BoxFuture<'static, Result<GetResponse>> {
        let (time, response) = (self.1, self.0.get(url, options));
        Box::pin(async move {
            tokio::time::sleep(time).await;
            response.await
        })
    }
}

/// Both for the reader that fills the cache, and for one that revalidates an entry.
#[test]
fn the_wait_for_a_first_response_is_counted_once() {
    let (directory, time) = (tempfile::tempdir().unwrap(), Duration::from_millis(150));
    let cache = Cache::builder(directory.path()).build().unwrap();
    let late = Arc::new(Late(ControlledSource::of(&noise(500)), time));
    let store = small_ranges().retries(0).with_source("test", late).cache(cache).build().unwrap();
    for _ in 0..2 {
        let (before, begun) = (store.report(), std::time::Instant::now());
        read(&store, URL).unwrap();
        let waited = store.report().since(&before).total().waited;
        assert!((time..=begun.elapsed()).contains(&waited), "{waited:?}");
    }
}

#[test]
fn conformance() {
    let directory = tempfile::tempdir().unwrap();
    let memory = Arc::new(InMemory::new());
    let cache = Cache::builder(directory.path()).build().unwrap();
    let store = small_ranges().with_object_store("mem://", memory).cache(cache.clone()).build().unwrap();
    let url = |name: &str| format!("mem://reading/{name}");
    reading(&store, &url, &|name, content| write(&store, &url(name), content));
    assert_eq!(cache.warning(), None);
    cache.flush();
    assert!(!files(directory.path()).is_empty());
}

/// The size of all files, including partial ones.
fn taken(directory: &Path) -> u64 {
    files(directory).iter().filter_map(|path| Some(path.metadata().ok()?.len())).sum()
}

#[test]
fn an_object_is_fetched_once_and_then_revalidated() {
    let fixture = CacheFixture::new();
    fixture.read();
    let mut asked = fixture.source.requested();
    asked.sort_by_key(|range| range.start);
    assert_eq!(asked, [0..1000, 1000..2000, 2000..3000, 3000..4000, 4000..4500]);
    fixture.read();
    assert_eq!(fixture.source.requested(), [VERSION]);
    assert!(read_range(&fixture.store, URL, 990..2001).unwrap() == fixture.content[990..2001]);
    assert_eq!(fixture.source.requested(), [VERSION, VERSION], "one for each API");
    fixture.entry();
    assert_eq!(fixture.cache.warning(), None);
}

#[test]
fn without_revalidation_a_cached_object_needs_no_request() {
    let fixture = CacheFixture::with(|cache| cache.revalidate(false));
    let stat = fixture.store.stat(URL).unwrap();
    fixture.read();
    fixture.source.requested();
    fixture.source.put(URL, b"another", Some("v2"));
    fixture.read();
    assert!(fixture.store.stat(URL).unwrap().is_identical(&stat));
    assert!(read_range(&fixture.store, URL, 4400..9000).unwrap() == fixture.content[4400..]);
    let mut body = fixture.store.open(URL).unwrap();
    assert!(body.object().is_none());
    assert!(body.next().unwrap().is_ok());
    assert!(body.object().unwrap().is_identical(&stat));
    assert_eq!(fixture.source.requested(), []);
    // As in another process, later.
    let again = Cache::builder(fixture.directory.path()).revalidate(false).build().unwrap();
    assert!(fixture.source.store(&again).open(URL).unwrap().read_all().unwrap() == fixture.content);
    assert_eq!(fixture.source.requested(), []);
}

#[test]
fn a_changed_object_is_fetched_again() {
    let mut fixture = CacheFixture::new();
    for (version, length) in [("v1", 4500), ("v2", 4500), ("v3", 700), ("v4", 0), ("v1", 4500)] {
        fixture.content = noise(length);
        fixture.content.iter_mut().for_each(|byte| *byte ^= version.as_bytes()[1]);
        fixture.source.put(URL, &fixture.content, Some(version));
        fixture.read();
        fixture.entry();
        fixture.source.requested();
        assert!(read(&fixture.store, URL).unwrap() == fixture.content);
        assert_eq!(fixture.source.bodies(), 0);
    }
    fixture.source.0.lock().unwrap().objects.clear();
    assert!(matches!(read(&fixture.store, URL).unwrap_err().kind(), ErrorKind::NotFound(_)));
}

#[test]
fn versions_are_never_mixed_within_a_read() {
    let fixture = CacheFixture::new();
    fixture.source.hold(Some(1500));
    let mut body = fixture.store.open(URL).unwrap();
    let mut found = body.next().unwrap().unwrap().to_vec();
    let after = noise(4501)[1..].to_vec();
    fixture.source.put(URL, &after, Some("v2"));
    // The object is requested while another version of it is being fetched.
    let mut second = fixture.store.open(URL).unwrap();
    let other = second.next().unwrap().unwrap();
    assert!(after.starts_with(&other));
    fixture.source.hold(None);
    let rest: Result<Vec<_>> = body.collect();
    match rest {
        Ok(rest) => {
            found.extend(rest.concat());
            assert!(found == fixture.content);
        }
        Err(error) => assert!(matches!(error.kind(), ErrorKind::Changed { .. }), "{error:?}"),
    }
    let rest: Vec<_> = second.map(Result::unwrap).collect();
    assert!([&other[..], &rest.concat()].concat() == after);
    assert!(read(&fixture.store, URL).unwrap() == after);
}

#[test]
fn concurrent_threads_fetch_an_object_once() {
    let fixture = CacheFixture::new();
    fixture.source.hold(Some(2500));
    let begun = std::sync::Barrier::new(17);
    std::thread::scope(|scope| {
        for number in 0..16 {
            let (fixture, begun) = (&fixture, &begun);
            scope.spawn(move || {
                let body = fixture.store.open(URL).unwrap();
                let chunks: Vec<Bytes> = if number % 2 == 0 {
                    let mut body = body;
                    let first = body.next().unwrap().unwrap();
                    begun.wait();
                    std::iter::once(first).chain(body.map(Result::unwrap)).collect()
                } else {
                    let mut stream = body.into_stream();
                    let first = futures::executor::block_on(stream.next()).unwrap().unwrap();
                    begun.wait();
                    let rest = futures::executor::block_on_stream(stream).map(Result::unwrap);
                    std::iter::once(first).chain(rest).collect()
                };
                assert!(chunks.concat() == fixture.content);
            });
        }
        begun.wait();
        fixture.source.hold(None);
    });
    assert_eq!(fixture.source.bodies(), 5);
    fixture.cache.flush();
    fixture.entry();
}

/// Two bodies of each of two objects, in one thread, so that none may wait for another.
#[test]
fn bodies_can_be_read_alternately() {
    let fixture = CacheFixture::with(|cache| cache.max_bytes(6000));
    fixture.source.put("test://d/1.tar", &fixture.content, Some("w"));
    let urls = [URL, URL, "test://d/1.tar", "test://d/1.tar"];
    for _ in 0..3 {
        let mut bodies = urls.map(|url| (fixture.store.open(url).unwrap(), Vec::new()));
        let mut going = true;
        while going {
            going = false;
            for (body, found) in &mut bodies {
                if let Some(chunk) = body.next() {
                    found.extend_from_slice(&chunk.unwrap());
                    going = true;
                }
            }
        }
        assert!(bodies.iter().every(|(_, found)| *found == fixture.content));
        fixture.cache.flush();
        assert!(taken(fixture.directory.path()) <= 6000);
    }
}

#[test]
fn a_fetch_stops_when_its_last_reader_is_dropped() {
    let fixture = CacheFixture::new();
    fixture.source.hold(Some(2500));
    let mut bodies = [fixture.store.open(URL).unwrap(), fixture.store.open(URL).unwrap()];
    for body in &mut bodies {
        assert!(body.next().unwrap().is_ok());
    }
    let [first, second] = bodies;
    drop(first);
    assert_eq!(fixture.files().len(), 1);
    drop(second);
    until(|| fixture.files().is_empty());
    fixture.source.hold(None);
    fixture.read();
    fixture.entry();
}

#[test]
fn readers_may_be_slower_or_faster_than_the_network() {
    let fixture = CacheFixture::new();
    let mut slow = fixture.store.open(URL).unwrap();
    let first = slow.next().unwrap().unwrap();
    until(|| fixture.files().iter().any(|path| path.extension().is_some_and(|name| name == "shard")));
    assert_eq!(fixture.source.bodies(), 5);
    let rest: Vec<_> = slow.map(Result::unwrap).collect();
    assert!([&first[..], &rest.concat()].concat() == fixture.content);

    let fixture = CacheFixture::new();
    fixture.source.hold(Some(0));
    let (source, length) = (Arc::clone(&fixture.source), fixture.content.len() as u64);
    let network = std::thread::spawn(move || {
        for at in (0..length).step_by(CHUNK) {
            source.hold(Some(at));
            std::thread::sleep(Duration::from_millis(1));
        }
        source.hold(None);
    });
    fixture.read();
    network.join().unwrap();
}

#[test]
fn foreign_files_in_the_directory_do_no_harm() {
    let fixture = CacheFixture::with(|cache| cache.max_bytes(12_000));
    let other = "test://d/1.tar";
    fixture.source.put(other, &noise(4500)[..4499], Some("v1"));
    fixture.read();
    let entry = fixture.entry();
    assert!(fixture.store.open(other).unwrap().read_all().unwrap() == fixture.content[..4499]);
    fixture.cache.flush();
    let second = fixture.files().into_iter().find(|path| *path != entry).unwrap();

    // An entry under the name of another, a directory, and an abandoned partial file.
    fs::copy(&entry, &second).unwrap();
    fs::write(fixture.directory.path().join("notes.txt"), "mine").unwrap();
    fs::create_dir(fixture.directory.path().join("0123456789abcdef0123456789abcdeg.shard")).unwrap();
    let partial = second.with_extension("partial");
    fs::copy(&entry, &partial).unwrap();
    assert!(fixture.store.open(other).unwrap().read_all().unwrap() == fixture.content[..4499]);
    fixture.cache.flush();
    assert!(!partial.exists());
    fs::write(&partial, "half").unwrap();
    Cache::builder(fixture.directory.path()).max_bytes(1).build().unwrap();
    let left: Vec<_> = fixture.files();
    assert_eq!(left.len(), 2, "{left:?}");
    assert_eq!(fs::read(fixture.directory.path().join("notes.txt")).unwrap(), b"mine");
    assert_eq!(fixture.cache.warning(), None);
}

#[test]
fn the_least_recently_used_entries_are_evicted() {
    let fixture = CacheFixture::new();
    let url = |name: &str| format!("test://d/{name}.tar");
    let fetched = |name: &str| {
        assert!(fixture.store.open(&url(name)).unwrap().read_all().unwrap() == fixture.content);
        fixture.cache.flush();
        fixture.source.bodies() > 0
    };
    for name in ["a", "b", "c", "d"] {
        fixture.source.put(&url(name), &fixture.content, Some("v1"));
    }
    assert!(fetched("a"));
    let each = taken(fixture.directory.path());
    let small = Cache::builder(fixture.directory.path()).max_bytes(3 * each + 10).build().unwrap();
    let fixture = CacheFixture { store: fixture.source.store(&small), cache: small, ..fixture };
    let fetched = |name: &str| {
        let found = fixture.store.open(&url(name)).unwrap().read_all().unwrap();
        assert!(found == fixture.content);
        fixture.cache.flush();
        assert!(taken(fixture.directory.path()) <= 3 * each + 10);
        fixture.source.bodies() > 0
    };
    assert!(fetched("b") && fetched("c"));
    assert!(!fetched("a"));
    assert!(fetched("d"));
    assert!(!fetched("c") && !fetched("a") && !fetched("d"));
    assert!(fetched("b"));
    assert!(fetched("c"), "it was the oldest");
    assert!(!fetched("d") && !fetched("b"));
}

#[test]
fn objects_being_fetched_count_toward_the_size() {
    let fixture = CacheFixture::with(|cache| cache.max_bytes(6000));
    fixture.source.put("test://d/1.tar", &fixture.content, Some("v1"));
    fixture.source.hold(Some(1500));
    let mut first = fixture.store.open(URL).unwrap();
    let begin = first.next().unwrap().unwrap();
    until(|| fixture.files().len() == 1);
    let mut second = fixture.store.open("test://d/1.tar").unwrap();
    let other = second.next().unwrap().unwrap();
    fixture.source.hold(None);
    for (body, begin) in [(first, begin), (second, other)] {
        let rest: Vec<_> = body.map(Result::unwrap).collect();
        assert!([&begin[..], &rest.concat()].concat() == fixture.content);
    }
    fixture.cache.flush();
    fixture.entry();
    assert_eq!(fixture.cache.warning(), None);
    assert_eq!(fixture.source.bodies(), 10, "a fetch that was started continues");
}

#[test]
fn objects_that_cannot_be_cached_are_still_read() {
    let large = CacheFixture::with(|cache| cache.max_bytes(4500));
    let unversioned = CacheFixture::new();
    unversioned.source.put(URL, &unversioned.content, None);
    for (fixture, requests) in [(large, 5), (unversioned, 2)] {
        for _ in 0..2 {
            fixture.read();
            assert_eq!(fixture.source.bodies(), requests, "no more than without a cache");
            until(|| fixture.files().is_empty());
        }
        assert_eq!(fixture.cache.warning(), None);
    }
}

/// A source that sends more bytes than it announces.
#[derive(Debug)]
struct Generous;

impl Source for Generous {
    fn get(&self, _: &str, _: GetOptions) -> BoxFuture<'static, Result<GetResponse>> {
        let body = futures::stream::repeat_with(|| Ok(Bytes::from_static(&[7; 1000]))).take(9);
        Box::pin(async { Ok(GetResponse::new(body.boxed()).with_size(4500).with_version("v1")) })
    }
}

#[test]
fn objects_longer_than_announced_are_not_cached() {
    let fixture = CacheFixture::new();
    let store = Store::builder()
        .with_source("more", Arc::new(Generous))
        .cache(fixture.cache.clone())
        .build()
        .unwrap();
    for _ in 0..2 {
        let error = store.open("more://a.tar").unwrap().read_all().unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Length { expected: 4500, .. }), "{error:?}");
        until(|| fixture.files().is_empty());
    }
}

#[test]
fn a_deleted_directory_does_not_stop_reading() {
    let fixture = CacheFixture::new();
    fixture.read();
    fs::remove_dir_all(fixture.directory.path()).unwrap();
    assert_eq!(fixture.cache.warning(), None);
    fixture.read();
    let warning = fixture.cache.warning().unwrap();
    assert!(warning.contains(fixture.directory.path().to_str().unwrap()), "{warning}");

    let fixture = CacheFixture::new();
    fixture.source.hold(Some(2500));
    let mut body = fixture.store.open(URL).unwrap();
    let first = body.next().unwrap().unwrap();
    fs::remove_dir_all(fixture.directory.path()).unwrap();
    fixture.source.hold(None);
    let rest: Vec<_> = body.map(Result::unwrap).collect();
    assert!([&first[..], &rest.concat()].concat() == fixture.content);
    fixture.cache.flush();
    assert!(fixture.cache.warning().is_some());

    let file = tempfile::NamedTempFile::new().unwrap();
    for path in [file.path().to_owned(), file.path().join("under")] {
        let error = Cache::builder(path).build().unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Config(_)), "{error:?}");
    }
}

#[test]
fn all_readers_learn_of_a_wrong_checksum() {
    let fixture = CacheFixture::new();
    fixture.source.0.lock().unwrap().checksum = Some(Checksum::Crc32c(1));
    fixture.source.hold(Some(2500));
    let mut bodies = [0; 3].map(|_| fixture.store.open(URL).unwrap());
    for body in &mut bodies {
        assert!(body.next().unwrap().is_ok());
    }
    fixture.source.hold(None);
    for body in bodies {
        let error = body.filter_map(Result::err).next().expect("it is damaged");
        assert!(matches!(error.kind(), ErrorKind::Damaged { .. }), "{error:?}");
    }
    until(|| fixture.files().is_empty());
}

#[test]
fn a_fault_reaches_all_readers_and_leaves_no_file() {
    let fixture = CacheFixture::new();
    fixture.source.hold(Some(2500));
    let mut bodies = [0; 3].map(|_| fixture.store.open(URL).unwrap());
    for body in &mut bodies {
        assert!(body.next().unwrap().is_ok());
    }
    fixture.source.0.lock().unwrap().broken = Some(2500);
    fixture.source.hold(None);
    for body in bodies {
        let error = body.filter_map(Result::err).next().unwrap();
        assert!(matches!(error.kind(), ErrorKind::Io(_)), "{error:?}");
        assert_eq!((error.location().shard(), error.location().offset()), (Some(URL), Some(2500)));
    }
    until(|| fixture.files().is_empty());
    fixture.source.0.lock().unwrap().broken = None;
    fixture.read();
    fixture.entry();
    for _ in 0..2 {
        let error = fixture.store.open("test://d/none.tar").unwrap().read_all().unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::NotFound(_)), "{error:?}");
        until(|| fixture.files().len() == 1);
    }
}

/// Objects of private buckets must not be readable by other users.
#[cfg(unix)]
#[test]
fn only_the_owner_can_read_the_cache() {
    use std::os::unix::fs::PermissionsExt;
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("above/cache");
    let cache = Cache::builder(&path).build().unwrap();
    assert_eq!(mode(&path), 0o700);
    let source = ControlledSource::of(&noise(4500));
    source.hold(Some(2500));
    let mut body = source.store(&cache).open(URL).unwrap();
    assert!(body.next().unwrap().is_ok());
    let partial = files(&path);
    assert_eq!((partial.len(), mode(&partial[0])), (1, 0o600), "{partial:?}");
    source.hold(None);
    body.for_each(|chunk| drop(chunk.unwrap()));
    cache.flush();
    for entry in fs::read_dir(&path).unwrap() {
        assert_eq!(mode(&entry.unwrap().path()), 0o600);
    }

    // A directory that was made to be shared keeps its mode, and its files are still private.
    let shared = directory.path().join("shared");
    fs::create_dir(&shared).unwrap();
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o755)).unwrap();
    let cache = Cache::builder(&shared).build().unwrap();
    assert!(source.store(&cache).open(URL).unwrap().read_all().is_ok());
    cache.flush();
    assert_eq!((mode(&shared), mode(&files(&shared)[0])), (0o755, 0o600));
}
