use super::shared::key;
use super::*;
use crate::store::meter::Meter;
use crate::store::object::ObjectSource;
use crate::store::object_store::memory::InMemory;
use crate::store::{Body, ObjectCell, Place, Store};
use std::io::Write;
use std::sync::atomic::Ordering::SeqCst;

const URL: &str = "mem://a/b.tar";

fn place() -> (tempfile::TempDir, Cache, Store, Vec<u8>) {
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

fn entry(cache: &Cache) -> Option<file::Content> {
    match cache.0.directory.find(&key(URL)).unwrap() {
        directory::Entry::Sound(content) => Some(content),
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
    let (directory, cache, store, content) = place();
    assert!(store.open(URL).unwrap().read_all().unwrap() == content);
    cache.flush();
    let total = entry(&cache).unwrap().total();
    std::fs::remove_file(cache.0.directory.entry(&key(URL))).unwrap();
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

/// Whatever is written to the disk is another thing when it is read.
#[test]
fn a_disk_that_always_flips_ends_in_an_error() {
    let (directory, cache, store, content) = place();
    let flips = &cache.0.directory.flips;
    flips.store(true, SeqCst);
    // What comes first is known from the source.
    assert!(store.open(URL).unwrap().read_all().unwrap() == content);
    let warning = cache.warning().unwrap();
    // Whichever comes last: a reader says so, or who would make an entry of the file.
    let why = ["damaged", "what was written to it is not what can be read from it"];
    assert!(warning.contains(directory.path().to_str().unwrap()), "{warning}");
    assert!(why.iter().any(|why| warning.contains(why)), "{warning}");
    until_empty(&directory);
    for _ in 0..3 {
        assert_names_a_file(&store.open(URL).unwrap().read_all().unwrap_err(), &directory);
        until_empty(&directory);
    }
    // A part is not kept, and needs no disk.
    assert!(store.open_range(URL, 100..2000).unwrap().read_all().unwrap() == content[100..2000]);
    flips.store(false, SeqCst);
    assert!(store.open(URL).unwrap().read_all().unwrap() == content);
    cache.flush();
    assert_eq!(files(&directory), 1);
}

/// The same for entries that have been sound until now.
#[test]
fn what_is_fetched_for_a_damaged_entry_is_not_trusted_either() {
    for range in [0..u64::MAX, 100..2000, 37_000..40_000] {
        let (directory, cache, store, content) = place();
        assert!(store.open(URL).unwrap().read_all().unwrap() == content);
        cache.flush();
        let path = cache.0.directory.entry(&key(URL));
        let mut file = std::fs::read(&path).unwrap();
        let at = file.len() - 100;
        file[at] ^= 1;
        std::fs::write(&path, file).unwrap();
        cache.0.directory.flips.store(true, SeqCst);
        assert_names_a_file(&store.open_range(URL, range).unwrap().read_all().unwrap_err(), &directory);
        cache.flush();
        until_empty(&directory);
    }
}

#[test]
fn a_body_can_be_begun_before_it_is_read() {
    let (directory, cache, store, content) = place();
    let mut body: Body = store.open(URL).unwrap();
    (0..3).for_each(|_| assert!(body.begin() > 0));
    while entry(&cache).is_none() {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    assert_eq!(body.object(), None, "nothing has been read");
    assert!(body.read_all().unwrap() == content);
    assert_eq!(files(&directory), 1);

    // One that is given up again has no effect.
    let mut writer = store.create(URL).unwrap();
    writer.write_all(b"changed").unwrap();
    writer.finish().unwrap();
    let mut body = store.open(URL).unwrap();
    assert!(body.begin() > 0);
    drop(body);
    assert_eq!(store.open(URL).unwrap().read_all().unwrap(), "changed");
}

#[test]
fn bytes_that_come_from_the_cache_are_counted() {
    let (_directory, cache, store, content) = place();
    let meter: Arc<Meter> = Arc::default();
    let read = || {
        let object = fetch::Object {
            source: match store.place(URL).unwrap() {
                Place::Source(source) => source,
                Place::Local(_) => unreachable!(),
            },
            url: URL.into(),
            wanted: 0..u64::MAX,
            expected: None,
            limits: fetch::Limits::default(),
            told: ObjectCell::default(),
            meter: Arc::clone(&meter),
            lane: crate::store::Budget::process().lane(&crate::memory::Gauge::default()),
            kept: false,
        };
        let chunks = cache.read(object).into_stream(true);
        assert!(Body::from_stream(chunks).read_all().unwrap() == content);
        cache.flush();
        meter.report(String::new()).cached
    };
    assert_eq!((read(), read()), (0, content.len() as u64));
}

/// A key is a name of a file: whatever is in the URL, it is one that is known again.
#[test]
fn keys_are_names() {
    for url in ["", "a/../../b", "https://host/a b?c=d&e", "gs://b/ü"] {
        let key = key(url);
        assert!(key.len() == 32 && key.bytes().all(|c| c.is_ascii_hexdigit()), "{key}");
    }
    assert_ne!(key("a"), key("b"));
}
