//! Tests of the cache, some with a simulated disk that fails.

use super::block::CachedObject;
use super::room::Eviction;
use super::*;
use crate::meter::SourceMeter;
use crate::object::ObjectSource;
use crate::object_store::memory::InMemory;
use crate::source_registry::ObjectLocation;
use crate::{Body, ObjectCell, ObjectVersion, Source, Store};
use bytes::Bytes;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::Ordering::SeqCst;

const URL: &str = "mem://a/b.tar";
const BLOCK: u64 = 1000;

fn setup() -> (tempfile::TempDir, Cache, Store, Vec<u8>) {
    let directory = tempfile::tempdir().unwrap();
    let cache = Cache::builder(directory.path()).block_size(BLOCK).build().unwrap();
    let source = Arc::new(ObjectSource::new("mem:/".into(), Arc::new(InMemory::new())));
    let store = Store::builder().range_size(1000).with_source("mem", source);
    let store = store.cache(cache.clone()).build().unwrap();
    let content: Vec<u8> = (0..9500_u32).flat_map(|n| n.to_le_bytes()).collect();
    let mut writer = store.create(URL).unwrap();
    writer.write_all(&content).unwrap();
    writer.finish().unwrap();
    (directory, cache, store, content)
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let under = |path: PathBuf| match path.is_dir() {
        true => files(&path),
        false => vec![path],
    };
    std::fs::read_dir(directory).unwrap().flat_map(|file| under(file.unwrap().path())).collect()
}

#[test]
fn a_full_disk_does_not_stop_readers() {
    let (directory, cache, store, content) = setup();
    let read = || {
        assert!(store.open(URL).unwrap().read_all().unwrap() == content);
        cache.flush();
    };
    read();
    let total: u64 = files(directory.path()).iter().map(|path| path.metadata().unwrap().len()).sum();
    for disk in [0, 10, 200, 1000, 5000, 37_000, 38_000, total - 1] {
        files(directory.path()).iter().for_each(|path| std::fs::remove_file(path).unwrap());
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
        let left = files(directory.path());
        assert!(left.iter().all(|path| path.extension().unwrap() == "block"), "{left:?}");
        read();
    }
    cache.0.directory.disk.store(u64::MAX, SeqCst);
    cache.0.warning.lock().unwrap().take();
    read();
    assert_eq!((cache.warning(), files(directory.path()).len()), (None, 38));
}

fn assert_names_a_file(error: &Error, directory: &Path) {
    let ErrorKind::DamagedCache { file, .. } = error.kind() else { panic!("{error:?}") };
    assert!(file.starts_with(directory) && error.to_string().contains(file.to_str().unwrap()));
    assert_eq!(error.location().shard(), Some(URL));
}

#[test]
fn a_disk_that_damages_every_write_is_an_error() {
    let (directory, cache, store, content) = setup();
    let flips = &cache.0.directory.flips;
    flips.store(true, SeqCst);
    // The second reader finds all blocks damaged, and continues with bytes from the source.
    for _ in 0..2 {
        assert!(store.open(URL).unwrap().read_all().unwrap() == content);
        cache.flush();
    }
    let warning = cache.warning().unwrap();
    assert!(warning.contains(directory.path().to_str().unwrap()) && warning.contains("damaged"), "{warning}");
    for range in [0..u64::MAX, 1500..2600] {
        let error = store.open_range(URL, range, &ObjectVersion::any()).unwrap().read_all().unwrap_err();
        assert_names_a_file(&error, directory.path());
        cache.flush();
    }
    flips.store(false, SeqCst);
    // All files that are left are damaged, and this process has found damage in the same blocks before. A
    // read of such a file would return `DamagedCache`, so the test deletes the files.
    let left = files(directory.path());
    left.iter().for_each(|path| std::fs::remove_file(path).unwrap());
    for _ in 0..2 {
        assert!(store.open(URL).unwrap().read_all().unwrap() == content);
        cache.flush();
    }
    assert_eq!(files(directory.path()).len(), 38);
}

#[test]
fn a_body_can_begin_before_it_is_read() {
    let (directory, cache, store, content) = setup();
    let mut body: Body = store.open(URL).unwrap();
    (0..3).for_each(|_| assert!(body.begin() > 0));
    while store.budget().in_use() == 0 {
        std::thread::yield_now();
    }
    assert!(body.object().is_none(), "nothing has been read");
    assert!(body.read_all().unwrap() == content);
    cache.flush();
    assert_eq!(files(directory.path()).len(), 38);

    // A body that has begun and is dropped does not affect the next body.
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
            source: source(&store),
            url: URL.into(),
            wanted: 0..u64::MAX,
            expected: None,
            limits: fetch::FetchLimits::default(),
            object: ObjectCell::default(),
            meter: Arc::clone(&meter),
            queue: crate::Budget::process().queue(&crate::memory::Gauge::default()),
            for_cache: false,
            opens_connections: false,
        };
        let chunks = cache.read(target).into_stream(true);
        assert!(Body::from_stream(chunks).read_all().unwrap() == content);
        cache.flush();
        meter.report(String::new()).cached
    };
    assert_eq!((read(), read()), (0, content.len() as u64));
}

fn source(store: &Store) -> Arc<dyn Source> {
    match store.0.sources.location(URL).unwrap() {
        ObjectLocation::Source(source) => source,
        ObjectLocation::Local(_) => unreachable!(),
    }
}

/// The block in the file and the buffer are both aligned.
#[test]
fn blocks_begin_where_the_kernel_copies_fast() {
    let directory = tempfile::tempdir().unwrap();
    let object = crate::ObjectVersion::new(Some(3 << 20), Some("v1"));
    for url in ["gs://b/a.tar".to_owned(), format!("gs://b/{}", "long/".repeat(800))] {
        let object = block::CachedObject::new("key", url, &object, 1 << 20).unwrap();
        let content = bytes::Bytes::from_iter((0..1 << 20).map(|n: u32| (n % 251) as u8));
        let header = block::header(&object, 1, std::slice::from_ref(&content)).unwrap();
        assert!(header.len().is_multiple_of(crate::aligned::ALIGNMENT), "{}", header.len());
        let path = directory.path().join("file");
        std::fs::write(&path, [&header[..], &content].concat()).unwrap();
        let mut file = block::BlockFile::open(std::fs::File::open(&path).unwrap(), &object, 1).unwrap();
        let chunk = file.read(1 << 20, 2 << 20).unwrap();
        assert!(content.starts_with(&chunk) && crate::aligned::is_aligned(&chunk));
    }
}

/// The key of any URL is a valid file name, and reveals no secret of the URL. A URL with a secret has a
/// different key in each directory, because each directory has its own salt.
#[test]
fn keys_are_file_names_without_secrets() {
    let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let caches = directories.each_ref().map(|directory| Cache::builder(directory.path()).build().unwrap());
    let (.., store, _) = setup();
    let source = source(&store);
    for (url, is_secret) in [
        ("", false),
        ("a/../../b", false),
        ("gs://b/ü", false),
        ("https://host/a", false),
        ("https://host/a b?c=d&e", true),
        ("https://me:s3cret@host/a", true),
    ] {
        let [one, other] = caches.each_ref().map(|cache| cache.0.key(&*source, url));
        assert!(one.len() == 64 && one.bytes().all(|c| c.is_ascii_hexdigit()), "{one}");
        assert_eq!(one != other, is_secret, "{url}");
        // Another process finds the same file.
        let again = Cache::builder(directories[0].path()).build().unwrap();
        assert_eq!(again.0.key(&*source, url), one);
    }
    let key = |url| caches[0].0.key(&*source, url);
    assert_ne!(key("a"), key("b"));
    let other_size = Cache::builder(directories[0].path()).block_size(7).build().unwrap();
    assert_ne!(other_size.0.key(&*source, "a"), key("a"));
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let salt = std::fs::metadata(directories[0].path().join("salt")).unwrap();
        assert_eq!(salt.permissions().mode() & 0o777, 0o600);
    }
}

/// Eight readers discard the same damaged block at once, and each stores the block again if it has removed
/// the file. Only one of them removes a file: the stored block stays.
#[test]
fn a_block_that_was_stored_again_is_not_discarded() {
    let parent = tempfile::tempdir().unwrap();
    let directory = CacheDirectory::new(parent.path().into(), u64::MAX);
    let content = Bytes::from(vec![7; 100_000]);
    let version = ObjectVersion { size: Some(content.len() as u64), version: Some("\"v\"".into()) };
    let object = CachedObject::new("key", URL.into(), &version, 1 << 20).unwrap();
    let store =
        || directory.store(&object, 0, std::slice::from_ref(&content), Eviction::LeastRecent).unwrap();
    let path = directory.file(&object, 0);
    for round in 0..100 {
        assert!(store());
        let mut damaged = std::fs::read(&path).unwrap();
        *damaged.last_mut().unwrap() ^= 1;
        std::fs::write(&path, damaged).unwrap();
        let readers = std::sync::Barrier::new(8);
        let discard = || {
            readers.wait();
            directory.discard(&object, 0).unwrap() && store()
        };
        let removed = std::thread::scope(|scope| {
            let threads = [(); 8].map(|()| scope.spawn(discard));
            threads.map(|thread| thread.join().unwrap()).into_iter().filter(|removed| *removed).count()
        });
        assert_eq!((removed, path.exists()), (1, true), "round {round}");
        std::fs::remove_file(&path).unwrap();
    }
}
