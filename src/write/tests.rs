//! Series of shards: their limits, their publication, and reading them back.

use super::tar::whole_archive;
use super::*;
use crate::store::Store;
use crate::store::object_store::memory::InMemory;
use crate::tar::{SampleParser, read};
use crate::{ErrorKind, Result, Sample};
use proptest::prelude::*;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};

fn sample(i: usize, size: usize) -> Sample {
    Sample::new(format!("{i:06}")).with("bin", vec![i as u8; size])
}

fn builder(dir: &Path, name: &str) -> ShardWriterBuilder {
    ShardWriter::builder(dir.join(name).to_str().unwrap())
}

fn files(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_writer_without_samples_writes_no_shard() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(builder(dir.path(), "%d.tar").build().unwrap().finish().unwrap(), []);
    let mut writer = builder(dir.path(), "%d.tar").build().unwrap();
    assert!(writer.write(&Sample::new("a.b").with("txt", "")).is_err());
    assert_eq!(writer.finish().unwrap(), []);
    assert_eq!(files(dir.path()), [""; 0]);
}

#[test]
fn unfinished_shards_do_not_appear() {
    let dir = tempfile::tempdir().unwrap();
    let shards = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&shards);
    let mut writer = builder(dir.path(), "s-%03d.tar")
        .max_count(2)
        .start_shard(10)
        .on_shard(move |shard| seen.lock().unwrap().push(shard.clone()))
        .build()
        .unwrap();
    for i in 0..5 {
        writer.write(&sample(i, 10)).unwrap();
    }
    assert_eq!(files(dir.path()).len(), 3, "two shards and a temporary file");
    drop(writer);
    assert_eq!(files(dir.path()), ["s-010.tar", "s-011.tar"]);
    let shards = shards.lock().unwrap();
    assert_eq!(shards.len(), 2);
    assert_eq!((shards[1].samples, shards[1].bytes, shards[1].archive_bytes), (2, 10_240, 10_240));
    assert_eq!(fs::metadata(&shards[1].url).unwrap().len(), shards[1].bytes);
}

#[test]
fn a_key_may_be_repeated_only_in_another_shard() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = builder(dir.path(), "%d.tar").max_count(2).build().unwrap();
    writer.write(&sample(0, 1)).unwrap();
    let error = writer.write(&sample(0, 1)).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unwritable(_)));
    assert!(error.location().shard().unwrap().ends_with("0.tar"));
    assert_eq!(error.location().key(), Some("000000"));
    writer.write(&sample(1, 1)).unwrap();
    writer.write(&sample(0, 1)).unwrap();
    let samples: Vec<u64> = writer.finish().unwrap().iter().map(|shard| shard.samples).collect();
    assert_eq!(samples, [2, 1]);
}

#[test]
#[cfg(feature = "gzip")]
fn sizes_and_checksum_of_a_compressed_shard_are_those_of_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str| {
        let mut writer = builder(dir.path(), name).build().unwrap();
        writer.write(&sample(0, 100_000)).unwrap();
        let [shard] = &writer.finish().unwrap()[..] else { panic!("one shard") };
        assert_eq!(fs::metadata(&shard.url).unwrap().len(), shard.bytes);
        assert_eq!(shard.archive_bytes, 102_400);
        assert_eq!(shard.crc32c, crc32c::crc32c(&fs::read(&shard.url).unwrap()));
        assert!(shard.bytes < 10_000);
        fs::read(&shard.url).unwrap()
    };
    assert_eq!(write("a%d.tar.gz"), write("b%d.tgz"), "the bytes contain neither time nor name");
}

fn shown_bin(sample: &Sample) -> String {
    format!("{:?}", sample.get("bin").unwrap().as_bytes().unwrap())
}

fn read_back(store: &Store, shards: &[ShardInfo]) -> Vec<String> {
    let shown = |sample: Result<Sample>| shown_bin(&sample.unwrap());
    let samples = |shard: &ShardInfo| {
        let body = store.open(&shard.url).unwrap();
        read(body, SampleParser::new(&*shard.url)).map(shown).collect::<Vec<_>>()
    };
    shards.iter().flat_map(samples).collect()
}

#[test]
fn shards_of_every_compression_and_store_read_back() {
    let dir = tempfile::tempdir().unwrap();
    let memory =
        Store::builder().with_object_store("mem://bucket", Arc::new(InMemory::new())).build().unwrap();
    for suffix in [".tar", ".tar.gz", ".tgz", ".tar.zst", ".tzst"] {
        let local = dir.path().join("new/%d").to_str().unwrap().to_owned();
        for (store, place) in [(&Store::default(), &*local), (&memory, "mem://bucket/dir/%d")] {
            let writer = ShardWriter::builder(format!("{place}{suffix}")).max_count(3).store(store.clone());
            let mut writer = match writer.build() {
                Ok(writer) => writer,
                Err(error) => {
                    assert!(matches!(error.kind(), ErrorKind::UnsupportedCompression(_)), "{error}");
                    continue;
                }
            };
            let samples: Vec<Sample> = (0..7).map(|i| sample(i, i * 1000)).collect();
            samples.iter().for_each(|sample| writer.write(sample).unwrap());
            let shards = writer.finish().unwrap();
            assert_eq!(shards.len(), 3);
            let expected: Vec<String> = samples.iter().map(shown_bin).collect();
            assert_eq!(read_back(store, &shards), expected);
        }
    }
}

#[test]
fn bad_options_are_errors() {
    let build = |pattern: &str| ShardWriter::builder(pattern).build();
    assert!(matches!(build("a.tar").unwrap_err().kind(), ErrorKind::Pattern { .. }));
    assert!(matches!(build("%d.tar.xz").unwrap_err().kind(), ErrorKind::UnsupportedCompression(_)));
    let none = ShardWriter::builder("%d.tar").max_count(0).build().unwrap_err();
    assert!(matches!(none.kind(), ErrorKind::Config(_)));
    let none = ShardWriter::builder("%d.tar").max_bytes(0).build().unwrap_err();
    assert!(matches!(none.kind(), ErrorKind::Config(_)));
}

#[test]
fn no_sample_can_be_written_after_a_failed_shard() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("place");
    fs::write(&place, "no directory").unwrap();
    let mut writer = builder(&place, "%d.tar").build().unwrap();
    let error = writer.write(&sample(0, 1)).unwrap_err();
    assert!(error.location().shard().unwrap().ends_with("0.tar"), "{error}");
    fs::remove_file(&place).unwrap();
    assert!(writer.write(&sample(1, 1)).is_err(), "the series would lack a sample");
    assert!(writer.finish().is_err());
}

#[test]
fn a_writer_moves_between_threads() {
    fn is_send<T: Send>() {}
    is_send::<ShardWriter>();
    is_send::<TarWriter<Vec<u8>>>();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// No archive exceeds the limits, unless it has a single sample. No archive has room for the next sample.
    #[test]
    fn shards_are_full_and_within_the_limits(
        sizes in prop::collection::vec(0usize..9_000, 1..40),
        max_bytes in 10_000u64..60_000,
        max_count in 1u64..12,
    ) {
        let dir = tempfile::tempdir().unwrap();
        let writer = builder(dir.path(), "%d.tar").max_bytes(max_bytes).max_count(max_count);
        let mut writer = writer.build().unwrap();
        for (i, size) in sizes.iter().enumerate() {
            writer.write(&sample(i, *size)).unwrap();
        }
        let shards = writer.finish().unwrap();
        let space = |size: usize| 512 + (size as u64).next_multiple_of(512);
        let mut next = 0;
        for shard in &shards {
            let end = next + shard.samples as usize;
            let used = sizes[next..end].iter().map(|size| space(*size)).sum::<u64>();
            prop_assert_eq!(shard.bytes, whole_archive(used));
            prop_assert_eq!(shard.bytes, fs::metadata(&shard.url).unwrap().len());
            prop_assert!(shard.samples >= 1 && shard.samples <= max_count);
            prop_assert!(shard.bytes <= max_bytes || shard.samples == 1);
            if let Some(size) = sizes.get(end) {
                let full = shard.samples == max_count || whole_archive(used + space(*size)) > max_bytes;
                prop_assert!(full, "the next sample would have fitted");
            }
            next = end;
        }
        prop_assert_eq!(next, sizes.len());
    }
}
