//! Flipped bits in samples whose checksums are in the index, and in compressed shards.

use super::*;
use crate::support::Every;
use crate::support::{Content, content, member};
use shardstream::prelude::*;
use std::fs;
use tar::EntryType;

fn samples() -> Vec<Sample> {
    let sample = |i: usize| Sample::new(format!("s{i}")).with("cls", i as i64).with("bin", noise(i * 300));
    (0..6).map(sample).collect()
}

/// The samples that were read, and the errors.
fn read_all(dataset: &Dataset) -> (Content, Vec<shardstream::Error>) {
    let (mut samples, mut errors) = (Vec::new(), Vec::new());
    for item in dataset.samples(0) {
        match item {
            Ok(sample) => samples.push(sample),
            Err(error) => errors.push(error),
        }
    }
    (content(&samples), errors)
}

fn verified(store: &Store, index: &Index, streams: usize) -> Dataset {
    let builder = Dataset::builder(index.shards()).store(store.clone()).index(index.clone());
    builder.streams(streams).checksums(true).topology(Topology::single()).build().unwrap()
}

#[test]
fn a_writer_and_a_builder_record_the_same_checksums() {
    let dir = tempfile::tempdir().unwrap();
    for suffix in [".tar", ".tar.gz", ".tar.zst"] {
        if suffix == ".tar.gz" && !cfg!(feature = "gzip") || suffix == ".tar.zst" && !cfg!(feature = "zstd") {
            continue;
        }
        let builder = ShardWriter::builder(pattern(dir.path(), suffix)).index(true).checksums(true);
        let infos = write(builder, &motley());
        let written: Index = infos.iter().collect();
        let urls = written.shards();
        let built = Index::builder().checksums(true).build(&urls).unwrap();
        for (built, written) in built.iter().zip(&written) {
            assert_eq!(built, written);
            assert!((0..built.samples()).every(|sample| built.checksum_of(sample).is_some()));
            assert_eq!(built.checksum_of(built.samples()), None);
        }
        // Saved and cached indexes keep the checksums; an index that holds only counts does not.
        let place = dir.path().join("index.json");
        written.save(&Store::default(), place.to_str().unwrap()).unwrap();
        assert_eq!(Index::load(&Store::default(), place.to_str().unwrap()).unwrap(), written);
        assert_eq!(Index::builder().beside(true).build(&urls).unwrap(), written);
        assert_eq!(written.counts().get(urls[0].expose_secret()).unwrap().checksum_of(0), None);
        // A cached index without checksums is built again if checksums are requested.
        let plain = Index::builder().build(&urls).unwrap();
        assert_ne!(plain, written);
        let sidecar = format!("{}.index.json", urls[0]);
        fs::write(&sidecar, serde_json::to_vec(&plain.get(urls[0].expose_secret()).unwrap()).unwrap())
            .unwrap();
        fs::write(
            &sidecar,
            fs::read_to_string(&sidecar).unwrap().replace(urls[0].expose_secret(), "s-000.tar"),
        )
        .unwrap();
        assert_eq!(Index::builder().beside(true).checksums(true).build(&urls).unwrap(), written);
        let (found, errors) = read_all(&verified(&Store::default(), &written, 3));
        assert_eq!((found.len(), errors.len()), (40, 0));
    }
}

#[test]
fn checksums_need_an_index_that_has_them() {
    let store = crate::support::shards::memory();
    let infos = write(ShardWriter::builder("mem://b/%d.tar").store(store.clone()), &samples());
    let index: Index = infos.iter().collect();
    let builder = || Dataset::builder(index.shards()).store(store.clone()).topology(Topology::single());
    for (builder, why) in [
        (builder(), "give the dataset one"),
        (builder().index(index.clone()), "`IndexBuilder::checksums`"),
        (builder().index(index.counts()), "`IndexBuilder::checksums`"),
    ] {
        let error = builder.checksums(true).build().unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Config(_)), "{error}");
        assert!(error.to_string().contains(why), "{error}");
    }
}

/// With any bit of an archive flipped, each sample is read as it was written, or is an error.
#[test]
fn no_sample_with_a_flipped_bit_is_returned() {
    let noted = Arc::new(CountingSource::default());
    let store = noted.store();
    let url = "noted://0.tar";
    let archive = crate::support::archive(&samples());
    noted.put(url, archive.clone());
    let list = ShardList::from_urls([url]);
    let index = Index::builder().store(store.clone()).checksums(true).build(&list).unwrap();
    // Damage in transit or on disk does not change a shard's version, so the index is used without versions.
    let index = index.without_versions();
    let shard = index.get(url).unwrap();
    let expected = read_all(&verified(&store, &index, 1)).0;
    assert_eq!(expected.len(), 6);
    let mut seen = 0;
    for at in (0..archive.len()).step_by(3) {
        let mut damaged = archive.clone();
        damaged[at] ^= 1 << (at % 8);
        noted.put(url, damaged);
        let (found, errors) = read_all(&verified(&store, &index, 1));
        assert_eq!(found, expected[..found.len()], "byte {at}");
        assert!(!errors.is_empty() || found.len() == expected.len(), "byte {at}");
        let body = (0..6).find(|&sample| {
            let mut members = shard.members(sample).unwrap();
            members.any(|(_, content)| content.contains(&(at as u64)))
        });
        let Some(sample) = body else { continue };
        seen += 1;
        let [error] = &errors[..] else { panic!("byte {at}: {errors:?}") };
        assert!(matches!(error.kind(), ErrorKind::SampleChecksum { .. }), "{error}");
        let place = error.location();
        assert_eq!((place.shard(), place.key()), (Some(url), Some(&*format!("s{sample}"))));
        assert_eq!(place.offset(), shard.range(sample..sample + 1).map(|range| range.start));
        assert_eq!(found.len() as u64, sample);
        if at % 60 == 0 {
            // The other slices of the shard are still read.
            let (found, errors) = read_all(&verified(&store, &index, 6));
            assert_eq!((found.len(), errors.len()), (5, 1));
            let builder = Dataset::builder(list.clone()).store(store.clone()).index(index.clone());
            let unchecked = builder.streams(1).topology(Topology::single()).build().unwrap();
            let (found, errors) = read_all(&unchecked);
            assert_eq!((found.len(), errors.len()), (6, 0), "without checksums, the damage goes unnoticed");
            assert_ne!(found, expected);
        }
    }
    assert!(seen > 1000, "{seen}");
}

/// The reader of a slice of a compressed shard skips the samples before that slice. The readers of all slices
/// must give each sample the same number.
#[cfg(feature = "gzip")]
#[test]
fn a_damaged_sample_of_a_compressed_shard_is_skipped_once() {
    let dir = tempfile::tempdir().unwrap();
    let writer = |checksums| ShardWriter::builder(pattern(dir.path(), ".tar.gz")).checksums(checksums);
    let index: Index = write(writer(true), &samples()).iter().collect();
    let expected = read_all(&verified(&Store::default(), &index, 1)).0;
    let mut other = samples();
    let mut bytes = noise(600);
    bytes[77] ^= 4;
    other[2].set("bin", bytes);
    // The damaged object has another size, so the entry is made without a size.
    let text = serde_json::to_value(index.iter().next().unwrap()).unwrap();
    let entry = serde_json::json!({"url": text["url"], "nsamples": 6, "layout": text["layout"]});
    let index: Index = [serde_json::from_value::<ShardIndex>(entry).unwrap()].into_iter().collect();
    write(writer(false), &other);
    for streams in [1, 2, 3, 6] {
        let (mut found, errors) = read_all(&verified(&Store::default(), &index, streams));
        found.sort();
        let sound: Content = expected.iter().filter(|(key, _)| key != "s2").cloned().collect();
        assert_eq!(found, sound, "{streams} streams");
        assert!(!errors.is_empty());
        for error in errors {
            assert!(matches!(error.kind(), ErrorKind::SampleChecksum { .. }), "{error}");
            assert_eq!(error.location().key(), Some("s2"));
        }
    }
}

/// The checksum of a zstd frame is only compared after the whole frame has been decompressed.
#[cfg(feature = "zstd")]
#[test]
fn a_flipped_bit_in_a_zstd_shard_is_an_error() {
    // Text compresses well, and compressed text with flipped bits can often still be decompressed.
    let sample = |i: usize| {
        let text: String = (0..200).map(|word| format!("{} ", word * i % 37)).collect();
        Sample::new(format!("s{i}")).with("txt", text).with("bin", noise(i * 20))
    };
    let samples: Vec<Sample> = (0..8).map(sample).collect();
    let dir = tempfile::tempdir().unwrap();
    let mut writer = ShardWriter::builder(pattern(dir.path(), ".tar.zst")).build().unwrap();
    samples.iter().for_each(|sample| writer.write(sample).unwrap());
    let bytes = fs::read(writer.finish().unwrap().remove(0).url).unwrap();
    let noted = Arc::new(CountingSource::default());
    let read = |bytes: &[u8]| {
        noted.put("noted://0.tar.zst", bytes.to_vec());
        let dataset = Dataset::builder(ShardList::from_urls(["noted://0.tar.zst"])).store(noted.store());
        read_all(&dataset.topology(Topology::single()).build().unwrap())
    };
    let (expected, errors) = read(&bytes);
    assert_eq!((expected.len(), errors.len()), (8, 0));
    for at in 0..bytes.len() {
        for bit in [at % 8, (at + 3) % 8] {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << bit;
            let (found, errors) = read(&damaged);
            assert!(!errors.is_empty() || found == expected, "byte {at}, bit {bit}");
        }
    }
}

/// The current and the largest number of chunks in memory.
#[derive(Debug, Default)]
struct Held {
    now: AtomicUsize,
    most: AtomicUsize,
}

/// A chunk of an object. It is counted until it is dropped.
struct Chunk(Bytes, Arc<Held>);

impl AsRef<[u8]> for Chunk {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        self.1.now.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A source of a single object. Each response has the whole object, in chunks that are made on demand.
#[derive(Debug)]
struct Chunks(Bytes, Arc<Held>);

impl Source for Chunks {
    fn get(&self, _: &str, _: GetOptions) -> BoxFuture<'static, Result<GetResponse>> {
        let (object, held) = (self.0.clone(), Arc::clone(&self.1));
        let length = object.len();
        let chunks = (0..length).step_by(64 << 10).map(move |at| {
            held.most.fetch_max(held.now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            let chunk = object.slice(at..length.min(at + (64 << 10)));
            Ok(Bytes::from_owner(Chunk(chunk, Arc::clone(&held))))
        });
        let response = GetResponse::new(futures::stream::iter(chunks).boxed()).with_size(length as u64);
        Box::pin(async move { Ok(response) })
    }

    fn list(&self, _: &str) -> BoxStream<'static, Result<ObjectInfo>> {
        futures::stream::empty().boxed()
    }
}

/// Bytes between two samples are dropped as they are read, not kept until the next sample.
#[test]
fn building_checksums_holds_one_sample_at_a_time() {
    let of_no_sample = member("README", EntryType::Regular, &noise(1 << 20)).repeat(16);
    let (first, last) = (crate::support::files(&["a.cls"]), crate::support::files(&["b.cls"]));
    let archive = [&first[..first.len() - 1024], &of_no_sample, &last].concat();
    let held = Arc::new(Held::default());
    let source = Chunks(archive.clone().into(), Arc::clone(&held));
    let store = Store::builder().with_source("chunks", Arc::new(source)).build().unwrap();
    let list = ShardList::from_urls(["chunks://s.tar"]);
    let index = Index::builder().store(store).checksums(true).build(&list).unwrap();
    let shard = index.iter().next().unwrap();
    check(&archive, shard);
    assert!((0..2).all(|sample| shard.checksum_of(sample).is_some()));
    // The object has 257 chunks; some are in transit.
    let most = held.most.load(Ordering::SeqCst);
    assert!(most < 64, "{most} chunks");
}
