//! A directory between the sources and their readers: what is read is the object, from wherever it comes.

mod damage;

use crate::store::conformance::{read, read_range, reading, small_ranges, write};
use crate::support::noise;
use bytes::Bytes;
use futures::StreamExt;
use futures::future::BoxFuture;
use shardstream::store::object_store::memory::InMemory;
use shardstream::store::{
    Cache, CacheBuilder, Checksum, GetOptions, GetResponse, Source, Store, StoreBuilder,
};
use shardstream::{ErrorKind, Result};
use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Objects with versions, which remembers what it was asked for, and holds back bytes until it is told to go
/// on.
#[derive(Debug, Default)]
struct Desk(Arc<Mutex<Inside>>);

#[derive(Debug, Default)]
struct Inside {
    objects: BTreeMap<String, (Bytes, Option<String>)>,
    asked: Vec<(String, Range<u64>)>,
    /// No byte from this on is handed out yet.
    held: Option<u64>,
    /// No byte from this on comes at all.
    broken: Option<u64>,
    checksum: Option<Checksum>,
}

const URL: &str = "desk://d/0.tar";
/// What is asked for where only the version matters.
const VERSION: Range<u64> = 0..1;
/// Bytes of one chunk.
const CHUNK: usize = 100;

impl Desk {
    fn of(content: &[u8]) -> Arc<Self> {
        let desk = Arc::new(Desk::default());
        desk.put(URL, content, Some("v1"));
        desk
    }

    fn put(&self, url: &str, content: &[u8], version: Option<&str>) {
        let object = (Bytes::copy_from_slice(content), version.map(Into::into));
        self.0.lock().unwrap().objects.insert(url.into(), object);
    }

    fn hold(&self, from: Option<u64>) {
        self.0.lock().unwrap().held = from;
    }

    /// The ranges that were asked for since the last time, but for those that ask for the version alone.
    fn bodies(&self) -> usize {
        self.asked().into_iter().filter(|range| *range != VERSION).count()
    }

    fn asked(&self) -> Vec<Range<u64>> {
        std::mem::take(&mut self.0.lock().unwrap().asked).into_iter().map(|(_, range)| range).collect()
    }

    fn store(self: &Arc<Self>, cache: &Cache) -> Store {
        self.builder(cache).build().unwrap()
    }

    fn builder(self: &Arc<Self>, cache: &Cache) -> StoreBuilder {
        small_ranges().retries(0).with_source("desk", Arc::clone(self) as _).cache(cache.clone())
    }
}

impl Source for Desk {
    fn get(&self, url: &str, options: GetOptions) -> BoxFuture<'static, Result<GetResponse>> {
        let inside = Arc::clone(&self.0);
        let range = options.range.unwrap_or(0..u64::MAX);
        let (found, checksum) = {
            let mut inside = inside.lock().unwrap();
            inside.asked.push((url.into(), range.clone()));
            (inside.objects.get(url).cloned(), inside.checksum)
        };
        Box::pin(async move {
            let (content, version) = found.ok_or_else(|| ErrorKind::NotFound("no such object".into()))?;
            if let (Some(before), Some(after)) = (&options.if_version, &version)
                && before != after
            {
                return Err(ErrorKind::Changed { before: before.clone(), after: after.clone() }.into());
            }
            let length = content.len() as u64;
            let whole = range == (0..u64::MAX);
            let range = range.start.min(length)..range.end.min(length);
            let (inside, start, end) = (Arc::clone(&inside), range.start, range.end);
            let body = futures::stream::unfold(start, move |at| {
                let (inside, content) = (Arc::clone(&inside), content.clone());
                async move {
                    if at == end {
                        return None;
                    }
                    while inside.lock().unwrap().held.is_some_and(|held| held <= at) {
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                    if inside.lock().unwrap().broken.is_some_and(|broken| broken <= at) {
                        return Some((Err(std::io::Error::other("the line is cut").into()), end));
                    }
                    let next = end.min(at + CHUNK as u64);
                    Some((Ok(content.slice(at as usize..next as usize)), next))
                }
            });
            let response = GetResponse::new(body.boxed()).with_size(length);
            let response = if whole { response } else { response.with_range(range) };
            let checksum = checksum.into_iter();
            let response = checksum.fold(response, GetResponse::with_checksum);
            Ok(match version {
                Some(version) => response.with_version(version),
                None => response,
            })
        })
    }
}

/// A source that takes its time before it says anything.
#[derive(Debug)]
struct Late(Arc<Desk>, Duration);

impl Source for Late {
    fn get(&self, url: &str, options: GetOptions) -> BoxFuture<'static, Result<GetResponse>> {
        let (time, response) = (self.1, self.0.get(url, options));
        Box::pin(async move {
            tokio::time::sleep(time).await;
            response.await
        })
    }
}

/// Of whoever fills the cache, and of whoever asks whether what is in it is still right.
#[test]
fn the_wait_for_a_first_response_is_counted_once() {
    let (directory, time) = (tempfile::tempdir().unwrap(), Duration::from_millis(150));
    let cache = Cache::builder(directory.path()).build().unwrap();
    let late = Arc::new(Late(Desk::of(&noise(500)), time));
    let store = small_ranges().retries(0).with_source("desk", late).cache(cache).build().unwrap();
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

fn files(directory: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = fs::read_dir(directory).unwrap().map(|file| file.unwrap().path()).collect();
    files.retain(|path| path.file_name().is_some_and(|name| name != "lock"));
    files.sort();
    files
}

/// The bytes of all files, the partial ones included.
fn taken(directory: &Path) -> u64 {
    files(directory).iter().filter_map(|path| Some(path.metadata().ok()?.len())).sum()
}

/// Waits for something that happens by itself.
fn until(what: impl Fn() -> bool) {
    while !what() {
        std::thread::sleep(Duration::from_millis(1));
    }
}

struct Place {
    directory: tempfile::TempDir,
    desk: Arc<Desk>,
    cache: Cache,
    store: Store,
    content: Vec<u8>,
}

impl Place {
    fn new() -> Self {
        Self::with(|builder| builder)
    }

    fn with(settings: impl FnOnce(CacheBuilder) -> CacheBuilder) -> Self {
        Self::of(4500, settings)
    }

    fn of(length: usize, settings: impl FnOnce(CacheBuilder) -> CacheBuilder) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let content = noise(length);
        let desk = Desk::of(&content);
        let cache = settings(Cache::builder(directory.path())).build().unwrap();
        let store = desk.store(&cache);
        Place { directory, desk, cache, store, content }
    }

    fn files(&self) -> Vec<PathBuf> {
        files(self.directory.path())
    }

    /// The same place with another cache in the directory, as in another process.
    fn again(self) -> Self {
        let cache = Cache::builder(self.directory.path()).revalidate(false).build().unwrap();
        Place { store: self.desk.store(&cache), cache, ..self }
    }

    /// Reads the object as it should be, until it is an entry.
    fn read(&self) {
        assert!(self.store.open(URL).unwrap().read_all().unwrap() == self.content);
        self.cache.flush();
    }

    fn entry(&self) -> PathBuf {
        let files = self.files();
        assert_eq!(files.len(), 1, "{files:?}");
        assert_eq!(files[0].extension().unwrap(), "shard");
        files[0].clone()
    }
}

#[test]
fn an_object_is_fetched_once_and_then_revalidated() {
    let place = Place::new();
    place.read();
    let mut asked = place.desk.asked();
    asked.sort_by_key(|range| range.start);
    assert_eq!(asked, [0..1000, 1000..2000, 2000..3000, 3000..4000, 4000..4500]);
    place.read();
    assert_eq!(place.desk.asked(), [VERSION]);
    assert!(read_range(&place.store, URL, 990..2001).unwrap() == place.content[990..2001]);
    assert_eq!(place.desk.asked(), [VERSION, VERSION], "one for each face");
    place.entry();
    assert_eq!(place.cache.warning(), None);
}

#[test]
fn without_revalidation_a_cached_object_needs_no_request() {
    let place = Place::with(|cache| cache.revalidate(false));
    let stat = place.store.stat(URL).unwrap();
    place.read();
    place.desk.asked();
    place.desk.put(URL, b"another", Some("v2"));
    place.read();
    assert_eq!(place.store.stat(URL).unwrap(), stat);
    assert!(read_range(&place.store, URL, 4400..9000).unwrap() == place.content[4400..]);
    let mut body = place.store.open(URL).unwrap();
    assert_eq!(body.object(), None);
    assert!(body.next().unwrap().is_ok());
    assert_eq!(body.object(), Some(stat));
    assert_eq!(place.desk.asked(), []);
    // Another process, later.
    let again = Cache::builder(place.directory.path()).revalidate(false).build().unwrap();
    assert!(place.desk.store(&again).open(URL).unwrap().read_all().unwrap() == place.content);
    assert_eq!(place.desk.asked(), []);
}

#[test]
fn a_changed_object_is_fetched_again() {
    let mut place = Place::new();
    for (version, length) in [("v1", 4500), ("v2", 4500), ("v3", 700), ("v4", 0), ("v1", 4500)] {
        place.content = noise(length);
        place.content.iter_mut().for_each(|byte| *byte ^= version.as_bytes()[1]);
        place.desk.put(URL, &place.content, Some(version));
        place.read();
        place.entry();
        place.desk.asked();
        assert!(read(&place.store, URL).unwrap() == place.content);
        assert_eq!(place.desk.bodies(), 0);
    }
    place.desk.0.lock().unwrap().objects.clear();
    assert!(matches!(read(&place.store, URL).unwrap_err().kind(), ErrorKind::NotFound(_)));
}

#[test]
fn versions_are_never_mixed_within_a_read() {
    let place = Place::new();
    place.desk.hold(Some(1500));
    let mut body = place.store.open(URL).unwrap();
    let mut found = body.next().unwrap().unwrap().to_vec();
    let after = noise(4501)[1..].to_vec();
    place.desk.put(URL, &after, Some("v2"));
    // It is asked for while that of another version comes.
    let mut second = place.store.open(URL).unwrap();
    let other = second.next().unwrap().unwrap();
    assert!(after.starts_with(&other));
    place.desk.hold(None);
    let rest: Result<Vec<_>> = body.collect();
    match rest {
        Ok(rest) => {
            found.extend(rest.concat());
            assert!(found == place.content);
        }
        Err(error) => assert!(matches!(error.kind(), ErrorKind::Changed { .. }), "{error:?}"),
    }
    let rest: Vec<_> = second.map(Result::unwrap).collect();
    assert!([&other[..], &rest.concat()].concat() == after);
    assert!(read(&place.store, URL).unwrap() == after);
}

#[test]
fn concurrent_threads_fetch_an_object_once() {
    let place = Place::new();
    place.desk.hold(Some(2500));
    let begun = std::sync::Barrier::new(17);
    std::thread::scope(|scope| {
        for number in 0..16 {
            let (place, begun) = (&place, &begun);
            scope.spawn(move || {
                let body = place.store.open(URL).unwrap();
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
                assert!(chunks.concat() == place.content);
            });
        }
        begun.wait();
        place.desk.hold(None);
    });
    assert_eq!(place.desk.bodies(), 5);
    place.cache.flush();
    place.entry();
}

/// Two of one object and two of others, in one thread, of which none can wait for the other.
#[test]
fn bodies_can_be_read_alternately() {
    let place = Place::with(|cache| cache.max_bytes(6000));
    place.desk.put("desk://d/1.tar", &place.content, Some("w"));
    let urls = [URL, URL, "desk://d/1.tar", "desk://d/1.tar"];
    for _ in 0..3 {
        let mut bodies = urls.map(|url| (place.store.open(url).unwrap(), Vec::new()));
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
        assert!(bodies.iter().all(|(_, found)| *found == place.content));
        place.cache.flush();
        assert!(taken(place.directory.path()) <= 6000);
    }
}

#[test]
fn a_fetch_stops_when_its_last_reader_is_dropped() {
    let place = Place::new();
    place.desk.hold(Some(2500));
    let mut bodies = [place.store.open(URL).unwrap(), place.store.open(URL).unwrap()];
    for body in &mut bodies {
        assert!(body.next().unwrap().is_ok());
    }
    let [first, second] = bodies;
    drop(first);
    assert_eq!(place.files().len(), 1);
    drop(second);
    until(|| place.files().is_empty());
    place.desk.hold(None);
    place.read();
    place.entry();
}

#[test]
fn readers_may_be_slower_or_faster_than_the_network() {
    let place = Place::new();
    let mut slow = place.store.open(URL).unwrap();
    let first = slow.next().unwrap().unwrap();
    until(|| place.files().iter().any(|path| path.extension().is_some_and(|name| name == "shard")));
    assert_eq!(place.desk.bodies(), 5);
    let rest: Vec<_> = slow.map(Result::unwrap).collect();
    assert!([&first[..], &rest.concat()].concat() == place.content);

    let place = Place::new();
    place.desk.hold(Some(0));
    let (desk, length) = (Arc::clone(&place.desk), place.content.len() as u64);
    let network = std::thread::spawn(move || {
        for at in (0..length).step_by(CHUNK) {
            desk.hold(Some(at));
            std::thread::sleep(Duration::from_millis(1));
        }
        desk.hold(None);
    });
    place.read();
    network.join().unwrap();
}

#[test]
fn foreign_files_in_the_directory_do_no_harm() {
    let place = Place::with(|cache| cache.max_bytes(12_000));
    let other = "desk://d/1.tar";
    place.desk.put(other, &noise(4500)[..4499], Some("v1"));
    place.read();
    let entry = place.entry();
    assert!(place.store.open(other).unwrap().read_all().unwrap() == place.content[..4499]);
    place.cache.flush();
    let second = place.files().into_iter().find(|path| *path != entry).unwrap();

    // An entry under the name of another, a directory, and a partial file that nobody fills.
    fs::copy(&entry, &second).unwrap();
    fs::write(place.directory.path().join("notes.txt"), "mine").unwrap();
    fs::create_dir(place.directory.path().join("0123456789abcdef0123456789abcdeg.shard")).unwrap();
    let partial = second.with_extension("partial");
    fs::copy(&entry, &partial).unwrap();
    assert!(place.store.open(other).unwrap().read_all().unwrap() == place.content[..4499]);
    place.cache.flush();
    assert!(!partial.exists());
    fs::write(&partial, "half").unwrap();
    Cache::builder(place.directory.path()).max_bytes(1).build().unwrap();
    let left: Vec<_> = place.files();
    assert_eq!(left.len(), 2, "{left:?}");
    assert_eq!(fs::read(place.directory.path().join("notes.txt")).unwrap(), b"mine");
    assert_eq!(place.cache.warning(), None);
}

#[test]
fn the_least_recently_used_entries_are_evicted() {
    let place = Place::new();
    let url = |name: &str| format!("desk://d/{name}.tar");
    let fetched = |name: &str| {
        assert!(place.store.open(&url(name)).unwrap().read_all().unwrap() == place.content);
        place.cache.flush();
        place.desk.bodies() > 0
    };
    for name in ["a", "b", "c", "d"] {
        place.desk.put(&url(name), &place.content, Some("v1"));
    }
    assert!(fetched("a"));
    let each = taken(place.directory.path());
    let small = Cache::builder(place.directory.path()).max_bytes(3 * each + 10).build().unwrap();
    let place = Place { store: place.desk.store(&small), cache: small, ..place };
    let fetched = |name: &str| {
        let found = place.store.open(&url(name)).unwrap().read_all().unwrap();
        assert!(found == place.content);
        place.cache.flush();
        assert!(taken(place.directory.path()) <= 3 * each + 10);
        place.desk.bodies() > 0
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
    let place = Place::with(|cache| cache.max_bytes(6000));
    place.desk.put("desk://d/1.tar", &place.content, Some("v1"));
    place.desk.hold(Some(1500));
    let mut first = place.store.open(URL).unwrap();
    let begin = first.next().unwrap().unwrap();
    until(|| place.files().len() == 1);
    let mut second = place.store.open("desk://d/1.tar").unwrap();
    let other = second.next().unwrap().unwrap();
    place.desk.hold(None);
    for (body, begin) in [(first, begin), (second, other)] {
        let rest: Vec<_> = body.map(Result::unwrap).collect();
        assert!([&begin[..], &rest.concat()].concat() == place.content);
    }
    place.cache.flush();
    place.entry();
    assert_eq!(place.cache.warning(), None);
    assert_eq!(place.desk.bodies(), 10, "what was begun is gone on with");
}

#[test]
fn objects_that_cannot_be_cached_are_still_read() {
    let large = Place::with(|cache| cache.max_bytes(4500));
    let unversioned = Place::new();
    unversioned.desk.put(URL, &unversioned.content, None);
    for (place, requests) in [(large, 5), (unversioned, 2)] {
        for _ in 0..2 {
            place.read();
            assert_eq!(place.desk.bodies(), requests, "no more than without a cache");
            until(|| place.files().is_empty());
        }
        assert_eq!(place.cache.warning(), None);
    }
}

/// A source that tells the size of its objects, and gives more.
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
    let place = Place::new();
    let store =
        Store::builder().with_source("more", Arc::new(Generous)).cache(place.cache.clone()).build().unwrap();
    for _ in 0..2 {
        let error = store.open("more://a.tar").unwrap().read_all().unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Length { expected: 4500, .. }), "{error:?}");
        until(|| place.files().is_empty());
    }
}

#[test]
fn a_deleted_directory_does_not_stop_reading() {
    let place = Place::new();
    place.read();
    fs::remove_dir_all(place.directory.path()).unwrap();
    assert_eq!(place.cache.warning(), None);
    place.read();
    let warning = place.cache.warning().unwrap();
    assert!(warning.contains(place.directory.path().to_str().unwrap()), "{warning}");

    let place = Place::new();
    place.desk.hold(Some(2500));
    let mut body = place.store.open(URL).unwrap();
    let first = body.next().unwrap().unwrap();
    fs::remove_dir_all(place.directory.path()).unwrap();
    place.desk.hold(None);
    let rest: Vec<_> = body.map(Result::unwrap).collect();
    assert!([&first[..], &rest.concat()].concat() == place.content);
    place.cache.flush();
    assert!(place.cache.warning().is_some());

    let file = tempfile::NamedTempFile::new().unwrap();
    for path in [file.path().to_owned(), file.path().join("under")] {
        let error = Cache::builder(path).build().unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Config(_)), "{error:?}");
    }
}

#[test]
fn all_readers_learn_of_a_wrong_checksum() {
    let place = Place::new();
    place.desk.0.lock().unwrap().checksum = Some(Checksum::Crc32c(1));
    place.desk.hold(Some(2500));
    let mut bodies = [0; 3].map(|_| place.store.open(URL).unwrap());
    for body in &mut bodies {
        assert!(body.next().unwrap().is_ok());
    }
    place.desk.hold(None);
    for body in bodies {
        let error = body.filter_map(Result::err).next().expect("it is damaged");
        assert!(matches!(error.kind(), ErrorKind::Damaged { .. }), "{error:?}");
    }
    until(|| place.files().is_empty());
}

#[test]
fn a_fault_reaches_all_readers_and_leaves_no_file() {
    let place = Place::new();
    place.desk.hold(Some(2500));
    let mut bodies = [0; 3].map(|_| place.store.open(URL).unwrap());
    for body in &mut bodies {
        assert!(body.next().unwrap().is_ok());
    }
    place.desk.0.lock().unwrap().broken = Some(2500);
    place.desk.hold(None);
    for body in bodies {
        let error = body.filter_map(Result::err).next().unwrap();
        assert!(matches!(error.kind(), ErrorKind::Io(_)), "{error:?}");
        assert_eq!((error.location().shard(), error.location().offset()), (Some(URL), Some(2500)));
    }
    until(|| place.files().is_empty());
    place.desk.0.lock().unwrap().broken = None;
    place.read();
    place.entry();
    for _ in 0..2 {
        let error = place.store.open("desk://d/none.tar").unwrap().read_all().unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::NotFound(_)), "{error:?}");
        until(|| place.files().len() == 1);
    }
}

/// Objects of private buckets are nobody else's business.
#[cfg(unix)]
#[test]
fn only_the_owner_can_read_the_cache() {
    use std::os::unix::fs::PermissionsExt;
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("above/cache");
    let cache = Cache::builder(&path).build().unwrap();
    assert_eq!(mode(&path), 0o700);
    let desk = Desk::of(&noise(4500));
    desk.hold(Some(2500));
    let mut body = desk.store(&cache).open(URL).unwrap();
    assert!(body.next().unwrap().is_ok());
    let partial = files(&path);
    assert_eq!((partial.len(), mode(&partial[0])), (1, 0o600), "{partial:?}");
    desk.hold(None);
    body.for_each(|chunk| drop(chunk.unwrap()));
    cache.flush();
    for entry in fs::read_dir(&path).unwrap() {
        assert_eq!(mode(&entry.unwrap().path()), 0o600);
    }

    // One that somebody has made to be shared stays as it is, and its files are private all the same.
    let shared = directory.path().join("shared");
    fs::create_dir(&shared).unwrap();
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o755)).unwrap();
    let cache = Cache::builder(&shared).build().unwrap();
    assert!(desk.store(&cache).open(URL).unwrap().read_all().is_ok());
    cache.flush();
    assert_eq!((mode(&shared), mode(&files(&shared)[0])), (0o755, 0o600));
}
