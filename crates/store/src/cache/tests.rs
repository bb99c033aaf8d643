//! Faults of the disk, with a simulated disk.

use super::*;
use crate::meter::SourceMeter;
use crate::object::ObjectSource;
use crate::object_store::memory::InMemory;
use crate::source_registry::ObjectLocation;
use crate::{Body, ObjectCell, ObjectVersion, Store};
use std::io::Write;
use std::sync::atomic::Ordering::SeqCst;

const URL: &str = "mem://a/b.tar";

fn setup() -> (tempfile::TempDir, Cache, Store, Vec<u8>) {
    let directory = tempfile::tempdir().unwrap();
    let cache = Cache::builder(directory.path()).build().unwrap();
    let source = Arc::new(ObjectSource::new("mem:/".into(), Arc::new(InMemory::new())));
    let store = Store::builder().range_size(1000).with_source("mem", source);
    let store = store.cache(cache.clone()).build().unwrap();
    let content: Vec<u8> = (0..9500_u32).flat_map(|n| n.to_le_bytes()).collect();
    let mut writer = store.create(URL).unwrap();
    writer.write_all(&content).unwrap();
    writer.finish().unwrap();
    (directory, cache, store, content)
}

fn files(directory: &tempfile::TempDir) -> usize {
    std::fs::read_dir(directory.path()).unwrap().count() - 1
}

fn entry(cache: &Cache) -> Option<file::CachedContent> {
    match cache.0.directory.find(&cache.0.key(URL)).unwrap() {
        directory::CacheEntry::Valid(content) => Some(content),
        _ => None,
    }
}

fn until_empty(directory: &tempfile::TempDir) {
    while files(directory) > 0 {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

#[test]
fn a_full_disk_stops_nobody() {
    let (directory, cache, store, content) = setup();
    assert!(store.open(URL).unwrap().read_all().unwrap() == content);
    cache.flush();
    let total = entry(&cache).unwrap().file_size();
    std::fs::remove_file(cache.0.directory.entry(&cache.0.key(URL))).unwrap();
    for disk in [0, 10, 200, 1000, 5000, 37_000, 38_000, total - 1] {
        let bodies = [0; 4].map(|_| store.open(URL).unwrap());
        cache.0.directory.disk.store(disk, SeqCst);
        std::thread::scope(|scope| {
            for body in bodies {
                scope.spawn(|| assert!(body.read_all().unwrap() == content, "{disk} bytes left"));
            }
        });
        cache.flush();
        let warning = cache.0.warning.lock().unwrap().take().unwrap();
        assert!(warning.contains(directory.path().to_str().unwrap()), "{warning}");
        until_empty(&directory);
    }
    cache.0.directory.disk.store(u64::MAX, SeqCst);
    assert!(store.open(URL).unwrap().read_all().unwrap() == content);
    cache.flush();
    assert_eq!((cache.warning(), files(&directory)), (None, 1));
}

fn assert_names_a_file(error: &Error, directory: &tempfile::TempDir) {
    let ErrorKind::DamagedCache { file, .. } = error.kind() else { panic!("{error:?}") };
    assert!(file.starts_with(directory.path()) && error.to_string().contains(file.to_str().unwrap()));
    assert_eq!(error.location().shard(), Some(URL));
}

/// Every write of an object to the disk is damaged.
#[test]
fn a_disk_that_damages_every_write_is_an_error() {
    let (directory, cache, store, content) = setup();
    let flips = &cache.0.directory.flips;
    flips.store(true, SeqCst);
    // The first reader continues with bytes from the source.
    assert!(store.open(URL).unwrap().read_all().unwrap() == content);
    let warning = cache.warning().unwrap();
    // The last warning comes from a reader, or from the flight that would create an entry.
    let reasons = ["damaged", "its content differs from what was written to it"];
    assert!(warning.contains(directory.path().to_str().unwrap()), "{warning}");
    assert!(reasons.iter().any(|reason| warning.contains(reason)), "{warning}");
    until_empty(&directory);
    for _ in 0..3 {
        assert_names_a_file(&store.open(URL).unwrap().read_all().unwrap_err(), &directory);
        until_empty(&directory);
    }
    // A range is not cached, and needs no disk.
    assert!(
        store.open_range(URL, 100..2000, &ObjectVersion::any()).unwrap().read_all().unwrap()
            == content[100..2000]
    );
    flips.store(false, SeqCst);
    assert!(store.open(URL).unwrap().read_all().unwrap() == content);
    cache.flush();
    assert_eq!(files(&directory), 1);
}

/// The same for entries that were valid when they were created.
#[test]
fn a_replacement_of_a_damaged_entry_is_verified_too() {
    for range in [0..u64::MAX, 100..2000, 37_000..40_000] {
        let (directory, cache, store, content) = setup();
        assert!(store.open(URL).unwrap().read_all().unwrap() == content);
        cache.flush();
        let path = cache.0.directory.entry(&cache.0.key(URL));
        let mut file = std::fs::read(&path).unwrap();
        let at = file.len() - 100;
        file[at] ^= 1;
        std::fs::write(&path, file).unwrap();
        cache.0.directory.flips.store(true, SeqCst);
        assert_names_a_file(
            &store.open_range(URL, range, &ObjectVersion::any()).unwrap().read_all().unwrap_err(),
            &directory,
        );
        cache.flush();
        until_empty(&directory);
    }
}

#[test]
fn a_body_can_begin_before_it_is_read() {
    let (directory, cache, store, content) = setup();
    let mut body: Body = store.open(URL).unwrap();
    (0..3).for_each(|_| assert!(body.begin() > 0));
    while entry(&cache).is_none() {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    assert!(body.object().is_none(), "nothing has been read");
    assert!(body.read_all().unwrap() == content);
    assert_eq!(files(&directory), 1);

    // A body that is dropped after it has begun has no effect.
    let mut writer = store.create(URL).unwrap();
    writer.write_all(b"changed").unwrap();
    writer.finish().unwrap();
    let mut body = store.open(URL).unwrap();
    assert!(body.begin() > 0);
    drop(body);
    assert_eq!(store.open(URL).unwrap().read_all().unwrap(), "changed");
}

#[test]
fn bytes_from_the_cache_are_counted() {
    let (_directory, cache, store, content) = setup();
    let meter: Arc<SourceMeter> = Arc::default();
    let read = || {
        let target = fetch::FetchTarget {
            source: match store.0.sources.location(URL).unwrap() {
                ObjectLocation::Source(source) => source,
                ObjectLocation::Local(_) => unreachable!(),
            },
            url: URL.into(),
            wanted: 0..u64::MAX,
            expected: None,
            limits: fetch::FetchLimits::default(),
            object: ObjectCell::default(),
            meter: Arc::clone(&meter),
            queue: crate::Budget::process().queue(&crate::memory::Gauge::default()),
            for_cache: false,
        };
        let chunks = cache.read(target).into_stream(true);
        assert!(Body::from_stream(chunks).read_all().unwrap() == content);
        cache.flush();
        meter.report(String::new()).cached
    };
    assert_eq!((read(), read()), (0, content.len() as u64));
}

/// Both ends of the copy from the file are aligned: the block in the file, and the buffer.
#[test]
fn content_begins_where_the_kernel_copies_fast() {
    let (_directory, cache, store, content) = setup();
    assert!(store.open(URL).unwrap().read_all().unwrap() == content);
    cache.flush();
    let entry = entry(&cache).unwrap();
    assert!(entry.offset(0).is_multiple_of(crate::aligned::ALIGNMENT as u64), "{}", entry.offset(0));
    let chunk = entry.read(0, entry.size, entry.all()).unwrap();
    assert!(chunk == content && crate::aligned::is_aligned(&chunk));
}

/// The key of any URL is a valid file name. It does not tell a secret of the URL: two directories have
/// different ones.
#[test]
fn keys_are_file_names_without_secrets() {
    let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let caches = directories.each_ref().map(|directory| Cache::builder(directory.path()).build().unwrap());
    for (url, is_secret) in [
        ("", false),
        ("a/../../b", false),
        ("gs://b/ü", false),
        ("https://host/a", false),
        ("https://host/a b?c=d&e", true),
        ("https://me:s3cret@host/a", true),
    ] {
        let [one, other] = caches.each_ref().map(|cache| cache.0.key(url));
        assert!(one.len() == 32 && one.bytes().all(|c| c.is_ascii_hexdigit()), "{one}");
        assert_eq!(one != other, is_secret, "{url}");
        // Another process finds the same file.
        let again = Cache::builder(directories[0].path()).build().unwrap();
        assert_eq!(again.0.key(url), one);
    }
    assert_ne!(caches[0].0.key("a"), caches[0].0.key("b"));
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let salt = std::fs::metadata(directories[0].path().join("salt")).unwrap();
        assert_eq!(salt.permissions().mode() & 0o777, 0o600);
    }
}
