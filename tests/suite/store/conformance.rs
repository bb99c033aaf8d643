//! The behaviour that every store must have, in the blocking and the asynchronous API.

use crate::support::{archive, noise};
use bytes::Bytes;
use futures::TryStreamExt;
use shardstream::store::object_store::memory::InMemory;
use shardstream::store::{Body, ObjectVersion, PutCondition, Store, StoreBuilder};
use shardstream::{Dataset, ErrorKind, Result, Sample, ShardList, Topology};
use std::io::{self, Write};
use std::ops::Range;
use std::sync::Arc;

const RANGE: usize = 1000;

const NAMES: [&str; 11] = [
    "plain.tar",
    "with space.tar",
    "100%25 or 50%.tar",
    "ünï–😀.tar",
    "a+b=c&d;e.tar",
    "deep/er/x.tar",
    "hash#1.tar",
    "what?x=1&y#z.tar",
    "all of +#?%2F, ü@:~!$'()*[]{}|^`\"<>.tar",
    ".tar",
    "deep ü+/#/?/%/x.tar",
];

/// A store with ranges so small that even small objects need several.
pub(crate) fn small_ranges() -> StoreBuilder {
    Store::builder().range_size(RANGE as u64)
}

pub(crate) fn write(store: &Store, url: &str, content: &[u8]) {
    let mut writer = store.create(url).unwrap();
    writer.write_all(content).unwrap();
    let info = writer.finish().unwrap();
    assert_eq!((info.url.as_str(), info.size), (url, content.len() as u64));
}

/// Reads an object with the blocking and the asynchronous API, whose results must agree.
pub(crate) fn read(store: &Store, url: &str) -> Result<Bytes> {
    read_with_both_apis(url, || store.open(url))
}

pub(crate) fn read_range(store: &Store, url: &str, range: Range<u64>) -> Result<Bytes> {
    read_with_both_apis(url, || store.open_range(url, range.clone(), &ObjectVersion::any()))
}

fn read_with_both_apis(url: &str, open: impl Fn() -> Result<Body>) -> Result<Bytes> {
    let blocking = open()?.read_all();
    let chunks = open()?.into_stream().try_collect::<Vec<_>>();
    let asynchronous = futures::executor::block_on(chunks).map(|chunks| Bytes::from(chunks.concat()));
    match (&blocking, &asynchronous) {
        (Ok(one), Ok(other)) => assert!(one == other, "the APIs differ: {url}"),
        (Err(one), Err(other)) => assert_eq!(one.to_string(), other.to_string()),
        (one, other) => panic!("only one API failed: {:?}, {:?}", one.as_ref().err(), other.as_ref().err()),
    }
    blocking
}

/// Runs the tests of reading. `url` makes the URL for a name, and `put` stores an object at a URL.
pub(crate) fn reading(store: &Store, url: &dyn Fn(&str) -> String, put: &dyn Fn(&str, &[u8])) {
    let lengths = [0, 1, RANGE - 1, RANGE, RANGE + 1, 2 * RANGE, 10 * RANGE + 7];
    for length in lengths {
        let content = noise(length);
        put("object.tar", &content);
        assert!(read(store, &url("object.tar")).unwrap() == content, "{length} bytes");
    }
    for name in NAMES {
        let content = noise(RANGE * 3 / 2 + name.len());
        put(name, &content);
        assert!(read(store, &url(name)).unwrap() == content, "{name}");
    }
    samples(store, url, put);
    ranged(store, &url("ranged.tar"), &|content| put("ranged.tar", content));
    compressed(store, url, put);
    let missing = url("missing.tar");
    let error = read(store, &missing).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::NotFound(_)), "{error:?}");
    assert_eq!(error.location().shard(), Some(missing.as_str()));
    for error in [read_range(store, &missing, 9..17).unwrap_err(), store.stat(&missing).unwrap_err()] {
        assert!(matches!(error.kind(), ErrorKind::NotFound(_)), "{error:?}");
        assert_eq!(error.location().shard(), Some(missing.as_str()));
    }
    inside_executors(store, &url("plain.tar"));
}

/// Reads shards with unusual names through a dataset.
fn samples(store: &Store, url: &dyn Fn(&str) -> String, put: &dyn Fn(&str, &[u8])) {
    for (number, name) in NAMES.iter().enumerate() {
        put(name, &archive(&[Sample::new(format!("{number:02}")).with("cls", number as i64)]));
    }
    let shards = ShardList::from_urls(NAMES.map(url));
    let dataset = Dataset::builder(shards).store(store.clone()).topology(Topology::single()).build().unwrap();
    let mut keys: Vec<_> =
        dataset.samples(0).results().map(|sample| sample.unwrap().key().to_owned()).collect();
    keys.sort();
    assert_eq!(keys, (0..NAMES.len()).map(|number| format!("{number:02}")).collect::<Vec<_>>());
}

/// Reads every range of small objects. Of a larger object, reads ranges that begin or end just before or
/// after the boundary between two requests. `put` stores the object at `url`.
fn ranged(store: &Store, url: &str, put: &dyn Fn(&[u8])) {
    let check = |content: &[u8], start: usize, end: usize| {
        let expected =
            &content[start.min(content.len())..end.min(content.len()).max(start.min(content.len()))];
        let found = read_range(store, url, start as u64..end as u64).unwrap();
        assert!(found == expected, "{start}..{end} of {url}, which has {} bytes", content.len());
    };
    for length in [0, 1, 7] {
        let content = noise(length);
        put(&content);
        for start in 0..length + 3 {
            (start..length + 3).for_each(|end| check(&content, start, end));
        }
        assert_eq!(store.stat(url).unwrap().size, Some(length as u64));
    }
    let content = noise(3 * RANGE + 7);
    put(&content);
    let places = [1, RANGE, RANGE + 1, 2 * RANGE - 1, 3 * RANGE + 6, 3 * RANGE + 7, 9 * RANGE];
    for (i, start) in places.into_iter().enumerate() {
        places[i + 1..].iter().for_each(|end| check(&content, start, *end));
    }
    let stat = store.stat(url).unwrap();
    assert_eq!(stat.size, Some(content.len() as u64));
    for mut body in
        [store.open(url).unwrap(), store.open_range(url, 5..RANGE as u64 + 5, &ObjectVersion::any()).unwrap()]
    {
        assert!(body.object().is_none());
        assert!(body.next().unwrap().is_ok());
        assert!(body.object().unwrap().is_identical(&stat));
    }
    let whole = store.open_range(url, 0..u64::MAX, &ObjectVersion::any()).unwrap().read_all().unwrap();
    assert!(whole == content);
    // Reads a range of one version.
    let of_version = |range: Range<u64>, version: &ObjectVersion| {
        read_with_both_apis(url, || store.open_range(url, range.clone(), version))
    };
    let mut other = ObjectVersion::any();
    other.size = Some(content.len() as u64 + 1);
    for range in [0..7, 5..RANGE as u64 + 5, 0..u64::MAX] {
        let part = &content[range.start as usize..content.len().min(range.end as usize)];
        assert!(of_version(range.clone(), &stat).unwrap() == part);
        let error = of_version(range, &other).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Changed { .. }), "{error}");
    }
    // A range after the end is empty, but the object's version is still checked.
    let behind = content.len() as u64..content.len() as u64 + 9;
    assert!(of_version(behind.clone(), &stat).unwrap().is_empty());
    let error = of_version(behind, &other).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Changed { .. }), "{error}");
}

type Compress = fn(&[u8]) -> Vec<u8>;

fn compressed(store: &Store, url: &dyn Fn(&str) -> String, put: &dyn Fn(&str, &[u8])) {
    let (first, second) = (noise(3 * RANGE), noise(2 * RANGE));
    let whole = [first.clone(), second.clone()].concat();
    #[cfg_attr(not(any(feature = "gzip", feature = "zstd")), allow(unused_mut))]
    let mut suffixes: Vec<(&str, Compress)> = Vec::new();
    #[cfg(feature = "gzip")]
    suffixes.push((".tar.gz", |bytes| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }));
    #[cfg(feature = "zstd")]
    suffixes.push((".tar.zst", |bytes| zstd::encode_all(bytes, 1).unwrap()));
    for (suffix, compress) in suffixes {
        let name = format!("compressed{suffix}");
        let bytes = [compress(&first), compress(&second)].concat();
        put(&name, &bytes);
        assert!(read(store, &url(&name)).unwrap() == whole, "{suffix}");
        let mut body = store.open(&url(&name)).unwrap();
        assert!(body.next().unwrap().is_ok());
        assert_eq!(body.object().unwrap().size, Some(bytes.len() as u64));
        assert!(body.object().unwrap().is_identical(&store.stat(&url(&name)).unwrap()));
        put(&name, &bytes[..bytes.len() - 1]);
        let error = read(store, &url(&name)).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Decompress { .. }), "truncated {suffix}: {error:?}");
    }
}

/// The blocking API works within an asynchronous function, and the asynchronous API works without tokio.
fn inside_executors(store: &Store, url: &str) {
    let expected = store.open(url).unwrap().read_all().unwrap();
    let inside = futures::executor::block_on(async { store.open(url).unwrap().read_all().unwrap() });
    assert!(inside == expected);
    let tokio = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let inside = tokio.block_on(async {
        let blocking = store.open(url).unwrap().read_all().unwrap();
        let chunks: Vec<_> = store.open(url).unwrap().into_stream().try_collect().await.unwrap();
        assert!(chunks.concat() == blocking);
        blocking
    });
    assert!(inside == expected);
}

/// Tests writing and listing under `base`, which must be empty.
pub(crate) fn writing(store: &Store, base: &str) {
    let url = |name: &str| format!("{base}/{name}");
    for name in NAMES {
        write(store, &url(name), name.as_bytes());
        assert_eq!(read(store, &url(name)).unwrap(), name);
    }
    write(store, &url("plain.tar"), b"replaced");
    write(store, &url("deep2/x.tar"), b"");

    let list = |directory: &str| {
        let listed = store.list(directory).unwrap();
        assert!(listed.is_sorted_by(|one, next| one.url <= next.url));
        listed.into_iter().map(|info| (info.url, info.size)).collect::<Vec<_>>()
    };
    let mut expected: Vec<_> = NAMES.iter().map(|name| (url(name), name.len() as u64)).collect();
    expected[0].1 = 8;
    expected.push((url("deep2/x.tar"), 0));
    expected.sort();
    assert_eq!(list(base), expected);
    assert_eq!(list(&format!("{base}/")), expected);
    assert_eq!(list(&url("deep")), [(url("deep/er/x.tar"), 13)]);

    // An upload of more than one part: first an abandoned one, then a finished one.
    let large = noise((16 << 20) + (1 << 20) + 3);
    let mut abandoned = store.create(&url("large/b.tar")).unwrap();
    abandoned.write_all(&large).unwrap();
    drop(abandoned);
    write(store, &url("large/a.tar"), &large);
    assert!(store.open(&url("large/a.tar")).unwrap().read_all().unwrap() == large);
    let mut abandoned = store.create(&url("large/a.tar")).unwrap();
    abandoned.write_all(b"small").unwrap();
    abandoned.flush().unwrap();
    drop(abandoned);
    assert_eq!(list(&url("large")), [(url("large/a.tar"), large.len() as u64)]);
}

/// Tests keys that only buckets allow, under `base`, which must be empty. In a file path, `a//b` would be
/// `a/b`.
pub(crate) fn odd_keys(store: &Store, base: &str) {
    let url = |name: &str| format!("{base}/{name}");
    let names = ["a//b.tar", "a/b.tar", "c///d e.tar", "c//ü//x.tar", "c/", "d//"];
    let list = |directory: &str| -> Vec<_> {
        store.list(directory).unwrap().into_iter().map(|info| info.url).collect()
    };
    for name in names {
        write(store, &url(name), name.as_bytes());
    }
    let mut expected: Vec<_> = names.iter().map(|name| url(name)).collect();
    expected.sort();
    assert_eq!(list(base), expected);
    for (name, url) in names.iter().map(|name| (name, url(name))) {
        assert_eq!(read(store, &url).unwrap(), *name);
        assert_eq!(read_range(store, &url, 1..2).unwrap(), name[1..2]);
        assert_eq!(store.stat(&url).unwrap().size, Some(name.len() as u64));
    }
    assert_eq!(list(&url("a")), [url("a//b.tar"), url("a/b.tar")]);
    assert_eq!(list(&url("a//")), [url("a//b.tar")], "the directory that is named `a/`");
    assert_eq!(list(&url("c//ü")), [url("c//ü//x.tar")]);
    let dataset = Dataset::builder(format!("{base}/a//*.tar")).store(store.clone());
    let dataset = dataset.topology(Topology::single()).build().unwrap();
    assert_eq!(dataset.shards().iter().map(|url| url.to_string()).collect::<Vec<_>>(), [url("a//b.tar")]);
    for name in names {
        store.delete(&url(name)).unwrap();
        assert!(matches!(store.stat(&url(name)).unwrap_err().kind(), ErrorKind::NotFound(_)));
    }
    assert!(list(base).is_empty());
}

/// Tests conditional writes and copies under `base`, which must be empty.
pub(crate) fn conditional(store: &Store, base: &str) {
    let put = |url: &str, bytes: &[u8], condition: PutCondition| {
        let mut writer = store.create_if(url, condition)?;
        writer.write_all(bytes)?;
        writer.finish()
    };
    let is_taken = |error: &shardstream::Error| match error.kind() {
        ErrorKind::Io(error) => error.kind() == io::ErrorKind::AlreadyExists,
        _ => false,
    };
    let is_changed = |error: &shardstream::Error| matches!(error.kind(), ErrorKind::Changed { .. });
    // Writes in a single request, and in parts.
    for length in [1000, (16 << 20) + 3] {
        let url = format!("{base}/{length}.tar");
        let [first, second, third] = [1, 2, 3].map(|more| noise(length + more));
        put(&url, &first, PutCondition::Absent).unwrap();
        let seen = store.stat(&url).unwrap();
        let error = put(&url, &second, PutCondition::Absent).unwrap_err();
        assert!(is_taken(&error), "{error:?}");
        assert!(read(store, &url).unwrap() == first);
        put(&url, &second, PutCondition::Version(seen.clone())).unwrap();
        let error = put(&url, &third, PutCondition::Version(seen)).unwrap_err();
        assert!(is_changed(&error), "{error:?}");
        assert!(read(store, &url).unwrap() == second);
        let seen = store.stat(&url).unwrap();
        if base.contains("://") {
            let copy = format!("{base}/copy of {length}.tar");
            assert!(store.copy(&url, &copy, PutCondition::Absent).unwrap());
            assert!(is_taken(&store.copy(&url, &copy, PutCondition::Absent).unwrap_err()));
            assert!(store.copy(&url, &copy, PutCondition::unchanged(store.stat(&copy).ok())).unwrap());
            assert!(read(store, &copy).unwrap() == second);
            let sums = [&url, &copy].map(|url| store.stat_sums(url).unwrap().1);
            assert!(!sums[0].compare(&sums[1]).is_different());
            store.delete(&copy).unwrap();
        }
        store.delete(&url).unwrap();
        let error = put(&url, &third, PutCondition::Version(seen)).unwrap_err();
        assert!(is_changed(&error), "{error:?}");
        assert!(matches!(store.stat(&url).unwrap_err().kind(), ErrorKind::NotFound(_)));
    }
    // The emulator of S3 compares and writes in two steps, so two writers could both succeed.
    if base.starts_with("s3:") {
        return;
    }
    // Of several writers at the same time, exactly one succeeds.
    let url = format!("{base}/raced.tar");
    let (put, url) = (&put, &url);
    let written = std::thread::scope(|scope| {
        let put = |writer: usize| scope.spawn(move || put(url, &noise(2000 + writer), PutCondition::Absent));
        let writers: Vec<_> = (0..6).map(put).collect();
        writers.into_iter().map(|writer| writer.join().unwrap()).collect::<Vec<_>>()
    });
    let sizes: Vec<u64> = written.iter().flatten().map(|info| info.size).collect();
    assert_eq!(sizes.len(), 1, "{written:?}");
    assert_eq!(store.stat(url).unwrap().size, Some(sizes[0]));
    store.delete(url).unwrap();
}

/// Tests deleting under `base`, which must be empty.
pub(crate) fn deleting(store: &Store, base: &str) {
    let url = |name: &str| format!("{base}/{name}");
    let names = || -> Vec<_> { store.list(base).unwrap().into_iter().map(|info| info.url).collect() };
    let mut left: Vec<_> = NAMES.iter().map(|name| url(name)).collect();
    left.sort();
    left.iter().for_each(|url| write(store, url, b"content"));
    while let Some(gone) = left.pop() {
        store.delete(&gone).unwrap();
        let error = store.stat(&gone).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::NotFound(_)), "{error:?}");
        assert_eq!(names(), left, "nothing but {gone}");
        store.delete(&gone).expect("what is gone is deleted");
    }
    write(store, &url("again.tar"), b"new");
    write(store, &url("again.tar.gz"), b"as it is");
    store.delete(&url("again.tar.gz")).unwrap();
    store.delete(&url("again")).unwrap();
    store.delete(&url("nowhere/at/all.tar")).unwrap();
    assert_eq!(read(store, &url("again.tar")).unwrap(), "new");
    assert_eq!(names(), [url("again.tar")]);
    store.delete(&url("again.tar")).unwrap();
}

/// Listing and reading report the same version if the listing and the object come from the same server.
fn listed_as_read(store: &Store, base: &str) {
    for info in store.list(base).unwrap() {
        let stat = store.stat(&info.url).unwrap();
        assert!(stat.version.is_some());
        assert_eq!((stat.size, stat.version), (Some(info.size), info.version), "{}", info.url);
    }
}

#[test]
fn local_paths() {
    let directory = tempfile::tempdir().unwrap();
    let base = directory.path().to_str().unwrap();
    let store = Store::default();
    let url = |name: &str| format!("{base}/reading/{name}");
    reading(&store, &url, &|name, content| write(&store, &url(name), content));
    writing(&store, &format!("{base}/writing"));
    deleting(&store, &format!("{base}/deleting"));
    conditional(&store, &format!("{base}/conditional"));
    let error = store.list(&format!("{base}/nowhere")).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::NotFound(_)), "{error:?}");
    assert!(matches!(store.stat(base).unwrap_err().kind(), ErrorKind::Io(_)));
    listed_as_read(&store, base);
}

#[test]
fn file_urls() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::default();
    let url = |name: &str| url::Url::from_file_path(directory.path().join(name)).unwrap().to_string();
    reading(&store, &url, &|name, content| write(&store, &url(name), content));
    let urls: Vec<_> = store.list(&url("")).unwrap().into_iter().map(|info| info.url).collect();
    for name in NAMES {
        assert!(urls.contains(&url(name)), "{name} in {urls:?}");
    }
}

#[test]
fn only_files_are_deleted() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::default();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    std::fs::create_dir(path("d")).unwrap();
    let error = store.delete(&path("d")).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Io(_) | ErrorKind::Denied(_)), "{error:?}");
    assert_eq!(error.location().shard(), Some(path("d").as_str()));
    write(&store, &path("d/kept.tar"), b"kept");
    let file = url::Url::from_file_path(path("f.tar")).unwrap().to_string();
    write(&store, &file, b"x");
    store.delete(&file).unwrap();
    assert!(!directory.path().join("f.tar").exists());
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink(path("d/kept.tar"), path("link.tar")).unwrap();
        store.delete(&path("link.tar")).unwrap();
        assert!(store.stat(&path("link.tar")).is_err());
    }
    assert_eq!(store.open(&path("d/kept.tar")).unwrap().read_all().unwrap(), "kept");
}

/// A read-only source refuses to delete.
#[test]
fn objects_that_cannot_be_deleted_are_reported() {
    let store = crate::support::versioned_source::VersionedSource::of(&[1]).store();
    let url = crate::support::versioned_source::url(0);
    let error = store.delete(&url).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unsupported(_)), "{error:?}");
    assert!(error.to_string().contains("cannot delete shelf:// URLs"), "{error}");
    assert_eq!(error.location().shard(), Some(url.as_str()));
    assert!(store.stat(&url).is_ok());
    #[cfg(feature = "http")]
    assert!(matches!(
        Store::default().delete("https://server/x").unwrap_err().kind(),
        ErrorKind::Unsupported(_)
    ));
    let error = Store::default().delete("nowhere://bucket/x").unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::UnsupportedScheme { .. }), "{error:?}");
}

#[test]
fn memory() {
    let memory = Arc::new(InMemory::new());
    let store = small_ranges().with_object_store("mem://", memory.clone()).build().unwrap();
    let url = |name: &str| format!("mem://reading/{name}");
    reading(&store, &url, &|name, content| write(&store, &url(name), content));
    writing(&Store::builder().with_object_store("mem://", memory).build().unwrap(), "mem://writing");
    deleting(&store, "mem://deleting");
    conditional(&store, "mem://conditional");
    odd_keys(&store, "mem://odd");
    assert!(store.list("mem://nowhere").unwrap().is_empty());
    listed_as_read(&store, "mem://reading");
}
