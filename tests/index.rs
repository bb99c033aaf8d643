//! Indexes: what they promise is what reading gives, and they fetch little to know it.

mod support;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::{BoxStream, StreamExt};
use shardstream::index::{Index, ShardIndex};
use shardstream::store::object_store::memory::InMemory;
use shardstream::store::{GetOptions, GetResponse, ObjectInfo, Source, Store};
use shardstream::tar::{SampleParser, read};
use shardstream::write::{ShardInfo, ShardWriter, ShardWriterBuilder};
use shardstream::{ErrorKind, Result, Sample, ShardList};
use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use support::shards::put;
use support::{archive, files, member, noise};
use tar::EntryType;

/// Objects in memory, and how much of them was asked for and taken.
#[derive(Debug, Default)]
struct Noted {
    objects: Mutex<HashMap<String, (Bytes, String)>>,
    requests: AtomicUsize,
    taken: Arc<AtomicUsize>,
}

impl Noted {
    fn put(&self, url: &str, content: impl Into<Bytes>) {
        static VERSIONS: AtomicUsize = AtomicUsize::new(0);
        let version = format!("v{}", VERSIONS.fetch_add(1, Ordering::Relaxed));
        self.objects.lock().unwrap().insert(url.to_owned(), (content.into(), version));
    }

    /// The requests since the last time, and the bytes that were taken.
    fn noted(&self) -> (usize, usize) {
        (self.requests.swap(0, Ordering::SeqCst), self.taken.swap(0, Ordering::SeqCst))
    }

    fn store(self: &Arc<Self>) -> Store {
        Store::builder().with_source("noted", Arc::clone(self) as Arc<dyn Source>).build()
    }
}

impl Source for Noted {
    fn get(&self, url: &str, options: GetOptions) -> BoxFuture<'static, Result<GetResponse>> {
        self.requests.fetch_add(1, Ordering::SeqCst);
        let found = self.objects.lock().unwrap().get(url).cloned();
        let taken = Arc::clone(&self.taken);
        Box::pin(async move {
            let (content, version) = found.ok_or_else(|| ErrorKind::NotFound("no".into()))?;
            let length = content.len() as u64;
            let range = options.range.unwrap_or(0..length);
            let range = range.start.min(length)..range.end.min(length);
            let part = content.slice(range.start as usize..range.end as usize);
            taken.fetch_add(part.len(), Ordering::SeqCst);
            let body = futures::stream::once(async { Ok(part) }).boxed();
            Ok(GetResponse::new(body).with_size(length).with_version(version).with_range(range))
        })
    }

    fn list(&self, prefix: &str) -> BoxStream<'static, Result<ObjectInfo>> {
        let objects = self.objects.lock().unwrap();
        let below = objects.iter().filter(|(url, _)| url.starts_with(prefix));
        let info = |(url, (content, version)): (&String, &(Bytes, String))| {
            Ok(ObjectInfo::new(url.clone(), content.len() as u64).with_version(version.clone()))
        };
        futures::stream::iter(below.map(info).collect::<Vec<_>>()).boxed()
    }
}

fn build(store: &Store, url: &str) -> Result<ShardIndex> {
    let index = Index::builder().store(store.clone()).build(&ShardList::from_urls([url]))?;
    Ok(index.iter().next().unwrap().clone())
}

fn of_bytes(bytes: Vec<u8>) -> Result<ShardIndex> {
    let noted = Arc::new(Noted::default());
    noted.put("noted://s.tar", bytes);
    build(&noted.store(), "noted://s.tar")
}

/// Reads the archive with the samples' own bytes, and compares what the index says of them.
fn check(bytes: &[u8], index: &ShardIndex) {
    let samples: Vec<Sample> = read([Ok(Bytes::copy_from_slice(bytes))].into_iter(), SampleParser::new("s"))
        .collect::<Result<_>>()
        .unwrap();
    let count = samples.len() as u64;
    assert_eq!((index.samples(), index.bytes()), (count, Some(bytes.len() as u64)));
    assert_eq!(index.range(0..count).map(|range| range.end), Some(bytes.len() as u64));
    for (number, sample) in (0..).zip(&samples) {
        assert_eq!(index.size_of(number), Some(sample.size() as u64));
        let content = |offset: u64, size: u64| &bytes[offset as usize..(offset + size) as usize];
        let members = index.members(number).unwrap();
        let members: Vec<_> = members.map(|m| (m.field.to_owned(), content(m.offset, m.size))).collect();
        let fields = sample.fields().map(|(name, value)| (name.to_owned(), &**value.as_bytes().unwrap()));
        assert_eq!(members, fields.collect::<Vec<_>>());

        let range = index.range(number..number + 1).unwrap();
        let piece = Bytes::copy_from_slice(&bytes[range.start as usize..range.end as usize]);
        let parser = SampleParser::new("s").starting(number, range.start).cut();
        let alone: Vec<_> = read([Ok(piece)].into_iter(), parser).collect::<Result<_>>().unwrap();
        assert_eq!((alone.len(), alone[0].position()), (1, sample.position()));
        assert_eq!(format!("{:?}", alone[0]), format!("{sample:?}"));
    }
    assert!(index.range(0..count + 1).is_none() && index.members(count).is_none());
}

fn large(count: usize, size: usize) -> Vec<u8> {
    let sample = |i: usize| Sample::new(format!("{i:04}")).with("cls", 1).with("npy", noise(size));
    archive(&(0..count).map(sample).collect::<Vec<_>>())
}

#[test]
fn large_bodies_are_not_fetched() {
    let noted = Arc::new(Noted::default());
    let bytes = large(6, 10 << 20);
    noted.put("noted://s.tar", bytes.clone());
    let index = build(&noted.store(), "noted://s.tar").unwrap();
    check(&bytes, &index);
    // One small window before each body, and one at the end.
    let (requests, taken) = noted.noted();
    assert_eq!(requests, 7);
    assert!(taken <= 7 * (64 << 10), "{taken}");
}

#[test]
fn small_samples_are_read_in_few_requests() {
    let noted = Arc::new(Noted::default());
    let bytes = large(10_000, 3000);
    noted.put("noted://s.tar", bytes.clone());
    let index = build(&noted.store(), "noted://s.tar").unwrap();
    assert_eq!(index.samples(), 10_000);
    let (requests, taken) = noted.noted();
    // 64 KiB, doubled up to 8 MiB, and then so on.
    assert!(requests <= 8 + bytes.len() / (8 << 20) + 1, "{requests} requests for {} bytes", bytes.len());
    assert!(taken <= bytes.len());
}

/// What comes in windows of all sizes is what is there.
#[test]
fn small_and_large_bodies_in_turn() {
    let sizes = [0, 1, 500, 70_000, 3 << 20, 10, 1 << 20, 100_000, 2 << 20, 9 << 20, 65_024, 64_512, 0, 5];
    let sample = |(i, size): (usize, &usize)| Sample::new(format!("{i:04}")).with("npy", noise(*size));
    let bytes = archive(&sizes.iter().enumerate().map(sample).collect::<Vec<_>>());
    check(&bytes, &of_bytes(bytes.clone()).unwrap());
}

#[test]
fn damage_is_refused() {
    let sound = large(3, 2 << 20);
    let kind = |bytes: Vec<u8>| {
        let error = of_bytes(bytes).unwrap_err();
        assert_eq!(error.location().shard(), Some("noted://s.tar"), "{error}");
        assert!(error.location().offset().is_some(), "{error}");
        error
    };
    for cut in [0, 1, 512, 1024, 100_000, 3 << 20, sound.len() / 2, sound.len() - (20 << 10)] {
        let error = kind(sound[..cut].to_vec());
        assert!(matches!(error.kind(), ErrorKind::Truncated { .. }), "{cut}: {error}");
        let read: Vec<_> =
            read([Ok(Bytes::copy_from_slice(&sound[..cut]))].into_iter(), SampleParser::new("noted://s.tar"))
                .collect();
        let expected = read.into_iter().find_map(Result::err).unwrap();
        assert_eq!(format!("{error:?}"), format!("{expected:?}"), "cut at {cut}");
    }
    let error = kind(files(&["a.txt", "b.txt", "b.TXT", "c.txt"]));
    assert!(matches!(error.kind(), ErrorKind::DuplicateMember { .. }), "{error}");
    let error = kind(files(&["a.txt", "b.txt", "a.cls"]));
    assert!(matches!(error.kind(), ErrorKind::ScatteredSample), "{error}");
    assert_eq!(error.location().key(), Some("a"));
}

/// The first one in the list, whatever the threads do.
#[test]
fn the_first_damaged_shard_is_named() {
    let noted = Arc::new(Noted::default());
    let urls: Vec<String> = (0..20).map(|i| format!("noted://{i:02}.tar")).collect();
    for (number, url) in urls.iter().enumerate() {
        noted.put(url, if [7, 8, 15].contains(&number) { files(&["a.b", "a.B"]) } else { large(2, 100) });
    }
    for threads in [1, 3, 16] {
        let built =
            Index::builder().store(noted.store()).threads(threads).build(&ShardList::from_urls(urls.clone()));
        assert_eq!(built.unwrap_err().location().shard(), Some("noted://07.tar"));
    }
}

#[test]
fn a_shard_that_changes_meanwhile_is_an_error() {
    #[derive(Debug)]
    struct Changing(Noted);
    impl Source for Changing {
        fn get(&self, url: &str, options: GetOptions) -> BoxFuture<'static, Result<GetResponse>> {
            if self.0.requests.load(Ordering::SeqCst) > 2 {
                self.0.put(url, large(3, 2 << 20));
            }
            self.0.get(url, options)
        }
    }
    let source = Changing(Noted::default());
    source.0.put("noted://s.tar", large(4, 2 << 20));
    let store = Store::builder().with_source("noted", Arc::new(source)).build();
    let error = build(&store, "noted://s.tar").unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Changed { .. }), "{error}");
    assert_eq!(error.location().shard(), Some("noted://s.tar"));
}

#[test]
fn global_names_and_sizes_leave_counts_only() {
    let sound = files(&["b.txt", "c.txt"]);
    let record = |text: &str| member("global", EntryType::XGlobalHeader, text.as_bytes());
    let index = of_bytes([record("10 size=1\n"), sound.clone()].concat()).unwrap();
    assert_eq!((index.samples(), index.size_of(1)), (2, Some(1)));
    assert!(index.range(0..1).is_none() && index.members(0).is_none());
    let bytes = [record("13 comment=x\n"), sound].concat();
    check(&bytes, &of_bytes(bytes.clone()).unwrap());
}

/// Names and sizes that take extension headers, among samples of different fields.
fn motley() -> Vec<Sample> {
    let sample = |i: usize| {
        let key = match i % 4 {
            0 => format!("{i:05}"),
            1 => format!("{}/{i}", "long/".repeat(30).trim_end_matches('/')),
            2 => format!("猫{i}"),
            _ => format!("{}{i}", "n".repeat(200)),
        };
        let sample = Sample::new(key).with("seg.png", noise(i * 37)).with("cls", i as i64);
        if i % 3 == 0 { sample.with("txt", "") } else { sample }
    };
    (0..40).map(sample).collect()
}

fn write(builder: ShardWriterBuilder, samples: &[Sample]) -> Vec<ShardInfo> {
    let mut writer = builder.max_count(7).build().unwrap();
    samples.iter().for_each(|sample| writer.write(sample).unwrap());
    writer.finish().unwrap()
}

fn built(store: &Store, infos: &[ShardInfo]) -> Index {
    let urls = ShardList::from_urls(infos.iter().map(|info| info.url.clone()));
    Index::builder().store(store.clone()).build(&urls).unwrap()
}

fn pattern(dir: &Path, suffix: &str) -> String {
    dir.join(format!("s-%03d{suffix}")).to_str().unwrap().to_owned()
}

/// What the writer knows is what is found by reading.
#[test]
fn the_writers_index_is_that_of_the_headers() {
    let dir = tempfile::tempdir().unwrap();
    let memory = Store::builder().with_object_store("mem://", Arc::new(InMemory::new())).build();
    for suffix in [".tar", ".tar.gz"] {
        if suffix == ".tar.gz" && !cfg!(feature = "gzip") {
            continue;
        }
        for (store, place) in
            [(&Store::default(), pattern(dir.path(), suffix)), (&memory, format!("mem://b/%d{suffix}"))]
        {
            let infos = write(ShardWriter::builder(place).store(store.clone()), &motley());
            let written: Index = infos.iter().collect();
            let index = built(store, &infos);
            assert_eq!(index, written);
            for (mine, theirs) in index.iter().zip(&written) {
                assert_eq!(mine, theirs);
            }
            assert_eq!((index.len(), index.samples()), (6, 40));
            let shard = index.get(&infos[2].url).unwrap();
            assert_eq!((shard.samples(), shard.bytes()), (infos[2].samples, Some(infos[2].bytes)));
            assert_eq!(shard.size_of(1), Some(motley()[15].clone().size_written()));
            assert_eq!(shard.range(0..1).is_some(), suffix == ".tar");
            if suffix == ".tar" {
                check(&store.open(&infos[2].url).unwrap().read_all().unwrap(), shard);
            }
        }
    }
}

trait SizeWritten {
    fn size_written(self) -> u64;
}

impl SizeWritten for Sample {
    /// A class is written as its digits.
    fn size_written(self) -> u64 {
        let size = |(name, value): (&str, &shardstream::Value)| match name {
            "cls" => 2,
            _ => value.size() as u64,
        };
        self.fields().map(size).sum()
    }
}

#[test]
fn indexes_are_kept_beside_and_in_a_directory() {
    let (dir, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = Store::default();
    let infos = write(ShardWriter::builder(pattern(dir.path(), ".tar")), &motley());
    let expected = built(&store, &infos);
    let urls = expected.shards();
    let sidecar = |number: usize| format!("{}.index.json", infos[number].url);
    let keeping = || Index::builder().beside(true).cache(cache.path());
    assert_eq!(keeping().build(&urls).unwrap(), expected);
    let kept: ShardIndex = serde_json::from_slice(&fs::read(sidecar(1)).unwrap()).unwrap();
    assert_eq!(
        (kept.url(), kept.range(0..3)),
        ("s-001.tar", expected.get(&infos[1].url).unwrap().range(0..3))
    );
    assert_eq!(fs::read_dir(cache.path()).unwrap().count(), 6);

    // What is kept is taken in place of the shard: of one whose content is gone behind its back, for instance.
    let ruin = |number: usize| {
        let url = &infos[number].url;
        let time = fs::metadata(url).unwrap().modified().unwrap();
        let length = fs::metadata(url).unwrap().len();
        fs::write(url, vec![b'x'; length as usize]).unwrap();
        fs::File::options().write(true).open(url).unwrap().set_modified(time).unwrap();
    };
    ruin(0);
    assert_eq!(keeping().build(&urls).unwrap(), expected);
    assert_eq!(Index::builder().cache(cache.path()).build(&urls).unwrap(), expected);
    assert_eq!(Index::builder().beside(true).build(&urls).unwrap(), expected);
    assert!(Index::builder().build(&urls).is_err());

    // But not when it is damaged, or of another shard.
    let none = tempfile::tempdir().unwrap();
    for damage in ["", "{", "{}", r#"{"url":"s-000.tar","nsamples":7}"#] {
        fs::write(sidecar(0), damage).unwrap();
        assert!(Index::builder().beside(true).cache(none.path()).build(&urls).is_err());
    }
    fs::copy(sidecar(1), sidecar(0)).unwrap();
    assert!(Index::builder().beside(true).build(&urls).is_err());
    // The cache knows better, and mends nothing that it was not asked to read.
    assert_eq!(keeping().build(&urls).unwrap(), expected);
}

#[test]
fn an_index_of_an_old_version_is_made_again() {
    let (dir, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let infos = write(ShardWriter::builder(pattern(dir.path(), ".tar")).index(true), &motley());
    let (url, store) = (infos[0].url.as_str(), Store::default());
    let urls = ShardList::from_urls([url]);
    let sidecar = format!("{url}.index.json");
    assert!(fs::exists(&sidecar).unwrap());
    let keeping = || Index::builder().beside(true).cache(cache.path());
    assert_eq!(keeping().build(&urls).unwrap().iter().next(), Some(&infos[0].index));
    // As long as before, and another archive.
    let mut other = files(&["x.txt", "y.txt", "z.txt"]);
    other.resize(infos[0].bytes as usize, 0);
    put(&store, url, &other);
    fs::File::options()
        .write(true)
        .open(url)
        .unwrap()
        .set_modified(std::time::SystemTime::UNIX_EPOCH)
        .unwrap();
    let now = keeping().build(&urls).unwrap();
    assert_eq!(now.samples(), 3);
    let kept: ShardIndex = serde_json::from_slice(&fs::read(&sidecar).unwrap()).unwrap();
    assert_eq!((kept.samples(), kept.version()), (3, now.get(url).unwrap().version()));
}

#[test]
fn progress_counts_every_shard_once() {
    let dir = tempfile::tempdir().unwrap();
    let infos = write(ShardWriter::builder(pattern(dir.path(), ".tar")), &motley());
    let urls: Vec<&str> = infos.iter().chain(&infos[..2]).map(|info| info.url.as_str()).collect();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&seen);
    let index = Index::builder()
        .on_shard(move |shard| noted.lock().unwrap().push(shard.url().to_owned()))
        .build(&ShardList::from_urls(urls.clone()))
        .unwrap();
    assert_eq!(index.iter().map(ShardIndex::url).collect::<Vec<_>>(), urls);
    let mut seen = seen.lock().unwrap().clone();
    seen.sort();
    assert_eq!(seen, urls[..6]);
}
