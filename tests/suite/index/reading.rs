//! Indexes that are built from the headers of members, without their bodies.

use super::*;
use crate::support::{archive, files, member};
use shardstream::store::object_store::memory::InMemory;
use tar::EntryType;

fn large(count: usize, size: usize) -> Vec<u8> {
    let sample = |i: usize| Sample::new(format!("{i:04}")).with("cls", 1).with("npy", noise(size));
    archive(&(0..count).map(sample).collect::<Vec<_>>())
}

#[test]
fn large_bodies_are_not_fetched() {
    let noted = Arc::new(CountingSource::default());
    let bytes = large(6, 10 << 20);
    noted.put("noted://s.tar", bytes.clone());
    let index = build(&noted.store(), "noted://s.tar").unwrap();
    check(&bytes, &index);
    // One small read before each body, and one at the end of the archive.
    let (requests, taken) = noted.take_counts();
    assert_eq!(requests, 7);
    assert!(taken <= 7 * (64 << 10), "{taken}");
}

#[test]
fn small_samples_are_indexed_in_few_requests() {
    let noted = Arc::new(CountingSource::default());
    let bytes = large(10_000, 3000);
    noted.put("noted://s.tar", bytes.clone());
    let index = build(&noted.store(), "noted://s.tar").unwrap();
    assert_eq!(index.samples(), 10_000);
    let (requests, taken) = noted.take_counts();
    // Reads start at 64 KiB and double up to 8 MiB.
    assert!(requests <= 8 + bytes.len() / (8 << 20) + 1, "{requests} requests for {} bytes", bytes.len());
    assert!(taken <= bytes.len());
}

/// The index is the same for any size of reads.
#[test]
fn alternating_small_and_large_bodies_are_indexed() {
    let sizes = [0, 1, 500, 70_000, 3 << 20, 10, 1 << 20, 100_000, 2 << 20, 9 << 20, 65_024, 64_512, 0, 5];
    let sample = |(i, size): (usize, &usize)| Sample::new(format!("{i:04}")).with("npy", noise(*size));
    let bytes = archive(&sizes.iter().enumerate().map(sample).collect::<Vec<_>>());
    check(&bytes, &of_bytes(bytes.clone()).unwrap());
}

#[test]
fn damaged_shards_are_not_indexed() {
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

/// On any number of threads, the error is the error of the first damaged shard in the list.
#[test]
fn an_error_names_the_first_damaged_shard() {
    let noted = Arc::new(CountingSource::default());
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
fn a_shard_that_changes_during_indexing_is_an_error() {
    #[derive(Debug)]
    struct Changing(CountingSource);
    impl Source for Changing {
        fn get(&self, url: &str, options: GetOptions) -> BoxFuture<'static, Result<GetResponse>> {
            if self.0.requests.load(Ordering::SeqCst) > 2 {
                self.0.put(url, large(3, 2 << 20));
            }
            self.0.get(url, options)
        }
    }
    let source = Changing(CountingSource::default());
    source.0.put("noted://s.tar", large(4, 2 << 20));
    let store = Store::builder().with_source("noted", Arc::new(source)).build().unwrap();
    let error = build(&store, "noted://s.tar").unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Changed { .. }), "{error}");
    assert_eq!(error.location().shard(), Some("noted://s.tar"));
}

#[test]
fn global_pax_headers_with_sizes_leave_only_counts() {
    let sound = files(&["b.txt", "c.txt"]);
    let record = |text: &str| member("global", EntryType::XGlobalHeader, text.as_bytes());
    let index = of_bytes([record("10 size=1\n"), sound.clone()].concat()).unwrap();
    assert_eq!((index.samples(), index.size_of(1)), (2, Some(1)));
    assert!(index.range(0..1).is_none() && index.members(0).is_none());
    let bytes = [record("13 comment=x\n"), sound].concat();
    check(&bytes, &of_bytes(bytes.clone()).unwrap());
}

/// The index that the writer makes equals the index that a builder makes from the shards.
#[test]
fn the_writer_and_the_builder_make_the_same_index() {
    let dir = tempfile::tempdir().unwrap();
    let memory = Store::builder().with_object_store("mem://", Arc::new(InMemory::new())).build().unwrap();
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
    /// The number of bytes of a sample's fields in an archive. The field `cls` has two decimal digits.
    fn size_written(self) -> u64 {
        let size = |(name, value): (&str, &shardstream::Value)| match name {
            "cls" => 2,
            _ => value.size() as u64,
        };
        self.fields().map(size).sum()
    }
}

/// A minimal web server: it ignores ranges, and may report neither version nor length.
#[derive(Debug)]
struct Plain {
    objects: CountingSource,
    sized: bool,
    versioned: bool,
}

impl Source for Plain {
    fn get(&self, url: &str, _: GetOptions) -> BoxFuture<'static, Result<GetResponse>> {
        let whole = self.objects.get(url, GetOptions::default());
        let (sized, versioned) = (self.sized, self.versioned);
        Box::pin(async move {
            let GetResponse { size, version, body, .. } = whole.await?;
            let plain =
                size.filter(|_| sized).into_iter().fold(GetResponse::new(body), GetResponse::with_size);
            Ok(version.filter(|_| versioned).into_iter().fold(plain, GetResponse::with_version))
        })
    }
}

#[test]
fn objects_without_versions_or_ranges_are_read_whole() {
    let bytes = large(3, 3 << 20);
    for (sized, versioned) in [(false, false), (true, false), (false, true), (true, true)] {
        let source = Arc::new(Plain { objects: CountingSource::default(), sized, versioned });
        let store =
            Store::builder().with_source("noted", Arc::clone(&source) as Arc<dyn Source>).build().unwrap();
        source.objects.put("noted://s.tar", bytes.clone());
        check(&bytes, &build(&store, "noted://s.tar").unwrap());
        // One request to ask for the version, and one to read the object.
        assert_eq!(source.objects.take_counts().0, 2);
        source.objects.put("noted://s.tar", bytes[..bytes.len() - (20 << 10)].to_vec());
        let error = build(&store, "noted://s.tar").unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Truncated { .. }), "{error}");
    }
}
