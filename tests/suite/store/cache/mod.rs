//! The cache: readers get the bytes of the object, from the directory or from the source.

mod damage;
#[cfg(all(feature = "gcs", feature = "s3", feature = "azure"))]
mod endpoints;
mod fixture;
#[cfg(target_os = "linux")]
mod full_disk;
mod prefetch;
mod slices;

use self::fixture::{BLOCK, CHUNK, CacheFixture, ControlledSource, URL, VERSION, files};
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

/// The first read fills the cache, and the second read revalidates the cached object.
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
    for block in [700, 1 << 20] {
        let directory = tempfile::tempdir().unwrap();
        let memory = Arc::new(InMemory::new());
        let cache = Cache::builder(directory.path()).block_size(block).build().unwrap();
        let store = small_ranges().with_object_store("mem://", memory).cache(cache.clone()).build().unwrap();
        let url = |name: &str| format!("mem://reading/{name}");
        reading(&store, &url, &|name, content| write(&store, &url(name), content));
        assert_eq!(cache.warning(), None);
        cache.flush();
        assert!(!files(directory.path()).is_empty());
    }
}

/// The total size of all files, including partial files.
fn taken(directory: &Path) -> u64 {
    files(directory).iter().filter_map(|path| Some(path.metadata().ok()?.len())).sum()
}

#[test]
fn an_object_is_fetched_once_and_then_revalidated() {
    let fixture = CacheFixture::new();
    fixture.read();
    let mut requested = fixture.source.requested();
    requested.sort_by_key(|range| range.start);
    assert_eq!(requested, [0..1000, 1000..2000, 2000..3000, 3000..4000, 4000..4500]);
    fixture.read();
    assert_eq!(fixture.source.requested(), [VERSION]);
    assert!(read_range(&fixture.store, URL, 990..2001).unwrap() == fixture.content[990..2001]);
    assert_eq!(fixture.source.requested(), [VERSION, VERSION], "one request per API");
    assert_eq!(fixture.numbers(), [0, 1, 2, 3, 4]);
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
    // Opens the cache again, as a later process would.
    let fixture = fixture.again();
    fixture.read();
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
        let numbers: Vec<_> = (0..length.div_ceil(BLOCK)).collect();
        assert_eq!(fixture.numbers(), numbers, "no blocks of earlier versions");
        fixture.source.requested();
        assert!(read(&fixture.store, URL).unwrap() == fixture.content);
        // An empty object has no blocks.
        assert_eq!(fixture.source.bodies() == 0, length > 0);
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
    // A new version of the object is requested while the old one is still being fetched.
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
fn concurrent_threads_share_the_blocks() {
    let fixture = CacheFixture::new();
    std::thread::scope(|scope| {
        for number in 0..16 {
            let fixture = &fixture;
            scope.spawn(move || {
                let body = fixture.store.open(URL).unwrap();
                let chunks: Vec<Bytes> = match number % 2 {
                    0 => body.map(Result::unwrap).collect(),
                    _ => futures::executor::block_on_stream(body.into_stream()).map(Result::unwrap).collect(),
                };
                assert!(chunks.concat() == fixture.content);
            });
        }
    });
    fixture.cache.flush();
    assert_eq!((fixture.numbers(), fixture.cache.warning()), (vec![0, 1, 2, 3, 4], None));
    fixture.source.requested();
    fixture.read();
    assert_eq!(fixture.source.bodies(), 0);
}

/// Reads two bodies of each of two objects in turns. One thread reads all four, so a body that waited for
/// another would wait for ever.
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
fn a_reader_that_is_dropped_leaves_whole_blocks() {
    let fixture = CacheFixture::new();
    fixture.source.hold(Some(2500));
    let mut body = fixture.store.open(URL).unwrap();
    let mut found = 0;
    while found < 2500 {
        found += body.next().unwrap().unwrap().len();
    }
    drop(body);
    fixture.cache.flush();
    assert_eq!(fixture.numbers(), [0, 1]);
    fixture.source.hold(None);
    fixture.source.requested();
    fixture.read();
    let mut requested = fixture.source.requested();
    requested.sort_by_key(|range| range.start);
    assert_eq!(requested, [VERSION, 2000..3000, 3000..4000, 4000..4500], "the rest");
    assert_eq!(fixture.numbers(), [0, 1, 2, 3, 4]);
}

#[test]
fn readers_may_be_faster_than_the_network() {
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
    let fixture = CacheFixture::with(|cache| cache.max_bytes(20_000));
    let other = "test://d/1.tar";
    fixture.source.put(other, &noise(4500)[..4499], Some("v1"));
    fixture.read();
    let blocks = fixture.blocks();
    assert!(fixture.store.open(other).unwrap().read_all().unwrap() == fixture.content[..4499]);
    fixture.cache.flush();
    let theirs = fixture.files().into_iter().filter(|path| !blocks.contains(path)).collect::<Vec<_>>();

    // Overwrites one block with the content of another block. Adds files and a directory that the cache did
    // not write, and a partial file.
    fs::copy(&blocks[0], &theirs[0]).unwrap();
    let home = theirs[0].parent().unwrap();
    fs::write(fixture.directory.path().join("notes.txt"), "mine").unwrap();
    fs::write(fixture.directory.path().join("g".repeat(64)), "mine").unwrap();
    fs::create_dir(fixture.directory.path().join("e".repeat(63))).unwrap();
    fs::write(fixture.directory.path().join("e".repeat(64)), "no directory").unwrap();
    fs::write(home.join("notes.block"), "mine").unwrap();
    let partial = theirs[1].with_extension("0123456789abcdef.partial");
    fs::write(&partial, "half").unwrap();
    assert!(fixture.store.open(other).unwrap().read_all().unwrap() == fixture.content[..4499]);
    fixture.cache.flush();
    let warning = fixture.cache.warning().unwrap();
    assert!(warning.contains(theirs[0].to_str().unwrap()), "{warning}");

    // An old partial file is removed. Files that the cache did not write are never removed.
    let old = std::time::SystemTime::now() - Duration::from_secs(1000);
    fs::File::options().write(true).open(&partial).unwrap().set_modified(old).unwrap();
    Cache::builder(fixture.directory.path()).max_bytes(20_000).build().unwrap();
    assert!(!partial.exists());
    Cache::builder(fixture.directory.path()).max_bytes(1).build().unwrap();
    assert_eq!(fixture.files().len(), 4, "{:?}", fixture.files());
    assert_eq!(fs::read(fixture.directory.path().join("notes.txt")).unwrap(), b"mine");
    assert_eq!(fs::read(home.join("notes.block")).unwrap(), b"mine");
}

#[test]
fn the_least_recently_used_blocks_are_evicted() {
    let fixture = CacheFixture::new();
    let url = |name: &str| format!("test://d/{name}.tar");
    for name in ["a", "b", "c", "d"] {
        fixture.source.put(&url(name), &fixture.content, Some("v1"));
    }
    let read = |fixture: &CacheFixture, name: &str| {
        assert!(fixture.store.open(&url(name)).unwrap().read_all().unwrap() == fixture.content);
        fixture.cache.flush();
        fixture.source.bodies()
    };
    assert_eq!(read(&fixture, "a"), 5);
    let each = taken(fixture.directory.path());
    let small = Cache::builder(fixture.directory.path()).block_size(BLOCK as u64).max_bytes(3 * each + 10);
    let small = small.build().unwrap();
    let fixture = CacheFixture { store: fixture.source.store(&small), cache: small, ..fixture };
    let read = |name: &str| {
        let requests = read(&fixture, name);
        assert!(taken(fixture.directory.path()) <= 3 * each + 10);
        requests
    };
    assert_eq!((read("b"), read("c"), read("a")), (5, 5, 0));
    // "b" is the least recently used object, so its blocks are evicted.
    assert_eq!(read("d"), 5);
    assert_eq!((read("c"), read("a"), read("d")), (0, 0, 0));
    assert_eq!(read("b"), 5);
    assert!(read("c") > 0, "its blocks were the oldest");
    assert_eq!(read("b"), 0);
}

#[test]
fn objects_that_cannot_be_cached_are_still_read() {
    let small = CacheFixture::with(|cache| cache.max_bytes(500));
    let unversioned = CacheFixture::new();
    unversioned.source.put(URL, &unversioned.content, None);
    let weak = CacheFixture::new();
    weak.source.put(URL, &weak.content, Some("W/\"v1\""));
    for (fixture, requests) in [(small, 5), (unversioned, 2), (weak, 2)] {
        for _ in 0..2 {
            fixture.read();
            assert_eq!(fixture.source.bodies(), requests, "no more than without a cache");
            fixture.read_range(1500..2600);
            assert_eq!(fixture.files(), Vec::<std::path::PathBuf>::new());
            fixture.source.requested();
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
        .retries(0)
        .with_source("more", Arc::new(Generous))
        .cache(fixture.cache.clone())
        .build()
        .unwrap();
    for _ in 0..2 {
        let error = store.open("more://a.tar").unwrap().read_all().unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Length { expected: 4500, .. }), "{error:?}");
        fixture.cache.flush();
        assert!(fixture.files().is_empty());
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
    fixture.cache.flush();
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
    for _ in 0..3 {
        let mut bodies = [0; 3].map(|_| fixture.store.open(URL).unwrap());
        for body in &mut bodies {
            assert!(body.next().unwrap().is_ok());
        }
        for body in bodies {
            let error = body.filter_map(Result::err).next().expect("it is damaged");
            assert!(matches!(error.kind(), ErrorKind::Damaged { .. }), "{error:?}");
        }
        fixture.cache.flush();
        assert!(fixture.files().is_empty());
    }
}

/// The checksum is compared after the last byte. A process that ends before that leaves the last block out of
/// the cache, so the next reader requests it.
#[test]
fn the_last_block_is_kept_when_the_checksum_has_matched() {
    let fixture = CacheFixture::new();
    let sum = Checksum::Crc32c(crc32c::crc32c(&fixture.content));
    fixture.source.0.lock().unwrap().checksum = Some(sum);
    let mut body = fixture.store.open(URL).unwrap();
    let mut found = 0;
    while found < 4500 {
        found += body.next().unwrap().unwrap().len();
    }
    fixture.cache.flush();
    assert_eq!(fixture.numbers(), [0, 1, 2, 3]);
    assert!(body.next().is_none());
    fixture.cache.flush();
    assert_eq!(fixture.numbers(), [0, 1, 2, 3, 4]);
}

#[test]
fn a_fault_reaches_all_readers_and_leaves_whole_blocks() {
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
    fixture.cache.flush();
    assert_eq!(fixture.numbers(), [0, 1]);
    fixture.source.0.lock().unwrap().broken = None;
    fixture.read();
    assert_eq!(fixture.numbers(), [0, 1, 2, 3, 4]);
    for _ in 0..2 {
        let error = fixture.store.open("test://d/none.tar").unwrap().read_all().unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::NotFound(_)), "{error:?}");
    }
    assert_eq!(fixture.files().len(), 5);
}

/// The cache may hold objects of private buckets, so other users must not be able to read it.
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
    // An existing directory keeps its mode. The files that the cache writes in it are private.
    let shared = directory.path().join("shared");
    fs::create_dir(&shared).unwrap();
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o755)).unwrap();
    let in_shared = Cache::builder(&shared).build().unwrap();
    for (cache, path) in [(cache, &path), (in_shared, &shared)] {
        assert!(source.store(&cache).open(URL).unwrap().read_all().is_ok());
        // For a URL with a secret, the cache also writes a salt.
        let with_secret = "test://me:s3cret@d/0.tar";
        source.put(with_secret, b"content", Some("v1"));
        assert!(source.store(&cache).open(with_secret).unwrap().read_all().is_ok());
        cache.flush();
        let found = files(path);
        let (blocks, others): (Vec<_>, Vec<_>) =
            found.iter().partition(|file| file.extension().is_some_and(|kind| kind == "block"));
        assert_eq!((blocks.len(), others.len()), (2, 1), "{found:?}");
        assert!(found.iter().all(|file| mode(file) == 0o600));
        assert!(blocks.iter().all(|file| mode(file.parent().unwrap()) == 0o700));
    }
    assert_eq!(mode(&shared), 0o755);
}
