//! Blocks of zeros in shards: whichever way a shard is read, samples are never lost without an error.

use crate::support::versioned_source::{VersionedSource, url};
use crate::support::{archive, noise};
use futures::StreamExt;
use futures::executor::block_on;
use shardstream::dataset::DatasetBuilder;
use shardstream::index::Index;
use shardstream::prelude::*;
use shardstream::store::Store;
use shardstream::tar::{Limits, SampleParser, read};
use shardstream::{Error, ErrorKind, Result};
use std::ops::Range;
use std::sync::Arc;

const BLOCK: usize = 512;
const SAMPLES: usize = 6;

/// A shard without padding.
fn shard() -> Vec<u8> {
    let sample = |n: usize| Sample::new(format!("{n:03}")).with("bin", noise(300 * n)).with("cls", n as i64);
    let mut bytes = archive(&(0..SAMPLES).map(sample).collect::<Vec<_>>());
    let end = bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    bytes.truncate(end.next_multiple_of(BLOCK) + 1024);
    bytes
}

/// Limits under which zeros never count as padding.
fn unpadded() -> Limits {
    let mut limits = Limits::default();
    limits.padding = Some(0);
    limits
}

fn zeroed(zeros: &Range<usize>) -> Vec<u8> {
    let mut bytes = shard();
    bytes[zeros.clone()].fill(0);
    bytes
}

/// Short and long runs of blocks, beginning at every block.
fn runs() -> impl Iterator<Item = Range<usize>> {
    let blocks = shard().len() / BLOCK;
    let lengths = move |from: usize| [1, 2, 3, 4, 5, 8, 13, 21].into_iter().chain([blocks - from]);
    (0..blocks).flat_map(move |from| {
        lengths(from).map(move |length| from * BLOCK..(from + length).min(blocks) * BLOCK)
    })
}

/// A sample's key, fields and sizes of fields.
fn shape(sample: &Sample) -> String {
    let fields: Vec<_> = sample.fields().map(|(name, value)| (name, value.size())).collect();
    format!("{} {fields:?}", sample.key())
}

/// Fails if a sample is missing and there is no error. Also fails if a sample is not whole.
fn check(what: &str, found: &[Result<Sample>]) {
    let mut good: Vec<String> = found.iter().filter_map(|item| item.as_ref().ok().map(shape)).collect();
    good.sort();
    let whole: Vec<String> =
        crate::support::read_bytes(&shard()).iter().map(|sample| shape(sample.as_ref().unwrap())).collect();
    let errors: Vec<&Error> = found.iter().filter_map(|item| item.as_ref().err()).collect();
    assert!(good == whole || !errors.is_empty(), "{what}: {good:?}");
    assert!(good.iter().all(|sample| whole.contains(sample)), "{what}: {good:?}");
    for error in errors {
        let kinds = matches!(error.kind(), ErrorKind::ArchiveEnd(_) | ErrorKind::Stale { .. });
        assert!(kinds, "{what}: {error}");
        assert_eq!(error.location().shard(), Some(&*url(0)), "{what}");
    }
}

fn check_both_apis(what: &str, dataset: DatasetBuilder) {
    let dataset = dataset.build().unwrap();
    check(what, &dataset.samples(0).collect::<Vec<_>>());
    check(&format!("{what}, as a stream"), &block_on(dataset.stream(0).collect::<Vec<_>>()));
}

fn index(source: &Arc<VersionedSource>) -> Result<Index> {
    Index::builder().store(source.store()).limits(unpadded()).build(&ShardList::from_urls([url(0)]))
}

#[test]
fn zeros_over_members_are_an_error_for_every_reader() {
    let source = VersionedSource::of(&[]);
    source.put(&url(0), shard(), Some("v1"));
    let sound = index(&source).unwrap();
    assert_eq!(sound.samples(), SAMPLES as u64);
    check_both_apis("sound", source.dataset(1).index(sound.clone()).streams(3));
    for zeros in runs() {
        source.put(&url(0), zeroed(&zeros), Some("v1"));
        check_both_apis(&format!("{zeros:?}"), source.dataset(1).limits(unpadded()));
        // Reads with the index of the undamaged shard: with the complete index, and with the number of
        // samples only.
        for streams in [1, 3, SAMPLES] {
            let dataset = |index| source.dataset(1).limits(unpadded()).streams(streams).index(index);
            check_both_apis(&format!("{zeros:?}, {streams} slices"), dataset(sound.clone()));
            check_both_apis(&format!("{zeros:?}, {streams} counted slices"), dataset(sound.counts()));
        }
        match index(&source) {
            Ok(index) => assert_eq!(index.samples(), SAMPLES as u64, "{zeros:?}"),
            Err(error) => assert!(matches!(error.kind(), ErrorKind::ArchiveEnd(_)), "{zeros:?}: {error}"),
        }
    }
}

/// In a shard that is padded to a whole record, zeros in place of the last members look like padding. Only an
/// index with the members' offsets shows that members are missing.
#[test]
fn an_index_reveals_zeros_that_look_like_padding() {
    let mut padded = shard();
    let marker = padded.len() - 1024;
    padded.resize(padded.len().next_multiple_of(10_240), 0);
    let source = VersionedSource::of(&[]);
    source.put(&url(0), padded.clone(), Some("v1"));
    let sound = Index::builder().store(source.store()).build(&ShardList::from_urls([url(0)])).unwrap();
    for from in (0..marker).step_by(BLOCK) {
        let mut bytes = padded.clone();
        bytes[from..marker].fill(0);
        source.put(&url(0), bytes, Some("v1"));
        for streams in [1, 2, SAMPLES] {
            let dataset = || source.dataset(1).streams(streams).index(sound.clone());
            check_both_apis(&format!("{from}.., {streams} slices"), dataset());
            // The error must blame the shard, not the index: a rebuilt index would no longer list the lost
            // samples.
            for error in dataset().build().unwrap().samples(0).results().filter_map(Result::err) {
                assert!(
                    matches!(error.kind(), ErrorKind::ArchiveEnd(_)),
                    "{from}.., {streams} slices: {error}"
                );
            }
        }
    }
}

/// Compressed shards: zeros in the archive before compression, and zeros in the compressed bytes.
#[test]
fn zeros_in_a_compressed_shard_are_an_error() {
    type Compress = fn(&[u8]) -> Vec<u8>;
    #[cfg_attr(not(any(feature = "gzip", feature = "zstd")), allow(unused_mut))]
    let mut formats: Vec<(&str, Compress)> = Vec::new();
    #[cfg(feature = "gzip")]
    formats.push(("tar.gz", |bytes| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut encoder, bytes).unwrap();
        encoder.finish().unwrap()
    }));
    #[cfg(feature = "zstd")]
    formats.push(("tar.zst", |bytes| {
        let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
        encoder.include_checksum(true).unwrap();
        std::io::Write::write_all(&mut encoder, bytes).unwrap();
        encoder.finish().unwrap()
    }));
    let dir = tempfile::tempdir().unwrap();
    let whole: Vec<String> =
        crate::support::read_bytes(&shard()).iter().map(|sample| shape(sample.as_ref().unwrap())).collect();
    for (suffix, compress) in formats {
        let path = dir.path().join(format!("s.{suffix}"));
        let read_damaged = |bytes: &[u8], kinds: fn(&ErrorKind) -> bool, what: &str| {
            std::fs::write(&path, bytes).unwrap();
            let body = Store::default().open(path.to_str().unwrap()).unwrap();
            let found: Vec<_> = read(body, SampleParser::new("s").with_limits(unpadded())).collect();
            let good: Vec<String> = found.iter().filter_map(|item| item.as_ref().ok().map(shape)).collect();
            assert_eq!(good, whole[..good.len()], "{suffix}, {what}");
            match found.iter().find_map(|item| item.as_ref().err()) {
                None => assert_eq!(good.len(), whole.len(), "{suffix}, {what}"),
                Some(error) => assert!(kinds(error.kind()), "{suffix}, {what}: {error}"),
            }
        };
        for zeros in runs() {
            let bytes = compress(&zeroed(&zeros));
            read_damaged(
                &bytes,
                |kind| matches!(kind, ErrorKind::ArchiveEnd(_)),
                &format!("{zeros:?} before"),
            );
        }
        let compressed = compress(&shard());
        for from in (0..compressed.len()).step_by(61) {
            for length in [16, 100, 1000, compressed.len()] {
                let mut bytes = compressed.clone();
                let zeros = from..compressed.len().min(from + length);
                bytes[zeros.clone()].fill(0);
                let damaged = |kind: &ErrorKind| {
                    matches!(
                        kind,
                        ErrorKind::Decompress { .. } | ErrorKind::Checksum | ErrorKind::ArchiveEnd(_)
                    )
                };
                read_damaged(&bytes, damaged, &format!("{zeros:?}"));
            }
        }
    }
}

#[test]
fn concatenated_archives_and_odd_padding_are_read_on_request() {
    let other = archive(&[Sample::new("other").with("cls", 1)]);
    // The archive is longer than a record of 10,240 bytes, and its padding is shorter than a record.
    let mut odd = archive(&[Sample::new("odd").with("bin", noise(1 << 20))]);
    odd.resize(odd.len() + 512, 0);
    let source = VersionedSource::of(&[]);
    let mut limits = [Limits::default(); 3];
    limits[1].archives = 2;
    limits[2].padding = Some(20_000);
    let shards = [("plain", shard()), ("two", [shard(), other].concat()), ("odd", odd)];
    for (name, bytes) in shards {
        source.put(&url(0), bytes, Some("v1"));
        for (number, limits) in limits.into_iter().enumerate() {
            let fine = name == "plain" || (name, number) == ("two", 1) || (name, number) == ("odd", 2);
            let found: Vec<_> = source.dataset(1).limits(limits).build().unwrap().samples(0).collect();
            let list = ShardList::from_urls([url(0)]);
            let index = Index::builder().store(source.store()).limits(limits).build(&list);
            let errors: Vec<&Error> =
                found.iter().filter_map(|item| item.as_ref().err()).chain(index.as_ref().err()).collect();
            assert_eq!(errors.len(), if fine { 0 } else { 2 }, "{name}, {number}: {errors:?}");
            assert!(errors.iter().all(|error| matches!(error.kind(), ErrorKind::ArchiveEnd(_))));
            // Slices may also cross the end of an archive.
            if let Ok(index) = index {
                let count = index.samples();
                assert_eq!(count, found.len() as u64);
                for streams in 1..=count as usize {
                    let dataset = source.dataset(1).limits(limits).index(index.clone()).streams(streams);
                    let sliced: Vec<_> =
                        dataset.build().unwrap().samples(0).results().map(Result::unwrap).collect();
                    assert_eq!(sliced.len() as u64, count, "{name}, {streams} slices");
                }
            }
        }
    }
}

/// The size of a sample with many members counts their names and content, not the headers.
#[test]
fn limits_of_a_sample_apply_to_datasets_and_indexes() {
    let many = (0..50).fold(Sample::new("many"), |sample, n| sample.with(format!("f{n}"), b""));
    let large = Sample::new("large").with("bin", noise(5000));
    let bytes = archive(&[Sample::new("a").with("cls", 1), many, large, Sample::new("z").with("cls", 2)]);
    let source = VersionedSource::of(&[]);
    source.put(&url(0), bytes, Some("v1"));
    let mut limits = Limits::default();
    (limits.members, limits.sample) = (49, 4999);
    let found: Vec<_> = source.dataset(1).limits(limits).build().unwrap().samples(0).collect();
    assert!(matches!(found[1].as_ref().unwrap_err().kind(), ErrorKind::TooManyMembers { limit: 49 }));
    assert!(matches!(found[2].as_ref().unwrap_err().kind(), ErrorKind::TooLarge { size: 5000, .. }));
    assert_eq!((found.len(), found[3].as_ref().unwrap().key()), (4, "z"));
    let index =
        |limits| Index::builder().store(source.store()).limits(limits).build(&ShardList::from_urls([url(0)]));
    assert!(matches!(index(limits).unwrap_err().kind(), ErrorKind::TooManyMembers { .. }));
    (limits.members, limits.sample) = (50, 5000);
    assert_eq!(index(limits).unwrap().samples(), 4);
}
