//! Regions of zeros, as left by preallocated downloads, power failures and bad network file systems.

use super::*;
use futures::executor::block_on_stream;
use std::ops::Range;

const BLOCK: usize = 512;

/// A member of more than a mebibyte that belongs to no sample. An archive with this member is larger than any
/// record.
fn large_member() -> Vec<u8> {
    raw(&header("README", EntryType::Regular, 1 << 20), &[7; 1 << 20])
}

/// An archive with every kind of header, with bodies of no block, one block and several blocks, and without
/// padding after the end marker.
fn motley() -> Vec<u8> {
    let long = format!("{}/b.txt", "d".repeat(600));
    let longer = format!("{}/c.txt\0", "e".repeat(1200));
    [
        extended(EntryType::XGlobalHeader, &pax("comment", "git")),
        raw(&header("a.txt", EntryType::Regular, 700), &[1; 700]),
        raw(&header("a.cls", EntryType::Regular, 1), b"1"),
        extended(EntryType::XHeader, &[pax("mtime", "1.5"), pax("path", &long)].concat()),
        raw(&header("b.txt", EntryType::Regular, 0), b""),
        raw(&header("dir/", EntryType::Directory, 0), b""),
        extended(EntryType::GNULongName, longer.as_bytes()),
        raw(&header("c.txt", EntryType::Regular, 600), &[3; 600]),
        raw(&header("d.txt", EntryType::Regular, 1), b"4"),
        raw(&header("d.cls", EntryType::Regular, 0), b""),
        raw(&header("d.json", EntryType::Regular, 0), b""),
        END.to_vec(),
    ]
    .concat()
}

fn zeroed(bytes: &[u8], zeros: Range<usize>) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[zeros].fill(0);
    bytes
}

/// A sample without the content of its fields.
fn shape(sample: &Sample) -> String {
    let fields: Vec<_> = sample.fields().map(|(name, value)| (name, value.size())).collect();
    format!("{} {fields:?} {:?}", sample.key(), sample.position())
}

fn shapes(samples: &[Result<Sample>]) -> Vec<String> {
    samples.iter().filter_map(|sample| sample.as_ref().ok()).map(shape).collect()
}

/// The samples and the error of the outline. The outline reads two blocks at a time and skips the bytes that
/// it does not need.
fn outlined(limits: Limits, bytes: &[u8]) -> (Vec<String>, Option<String>) {
    let mut outline = Outline::new("s.tar").with_limits(limits);
    let mut found = Vec::new();
    loop {
        match outline.next() {
            Ok(Parsed::NeedInput) => {
                let at = outline.wanted().min(bytes.len() as u64) as usize;
                outline.skip_to(at as u64);
                let end = bytes.len().min(at + 2 * BLOCK);
                if at < end {
                    outline.push(Bytes::copy_from_slice(&bytes[at..end]));
                } else {
                    outline.finish();
                }
            }
            Ok(Parsed::Sample(sample)) => found.push(format!("{} {}", sample.number, sample.key)),
            Ok(Parsed::End) => return (found, None),
            Err(error) => return (found, Some(format!("{error:?}"))),
        }
    }
}

/// Parses `bytes` in four ways: as one chunk, as small chunks, from a stream of small chunks, and with an
/// `Outline`. Checks that the results agree.
fn read_in_every_way(limits: Limits, bytes: &[u8]) -> Vec<Result<Sample>> {
    let found = parse_with(limits, [Bytes::copy_from_slice(bytes)]);
    let expected = shown(&found);
    let pieces = || bytes.chunks(300).map(Bytes::copy_from_slice);
    assert_eq!(shown(&parse_with(limits, pieces())), expected);
    let stream = futures::stream::iter(pieces().map(Ok));
    let parser = SampleParser::new("s.tar").with_limits(limits);
    let streamed: Vec<_> = block_on_stream(read(stream, parser)).collect();
    assert_eq!(shown(&streamed), expected);
    let (samples, error) = outlined(limits, bytes);
    let named = |sample: &Sample| format!("{} {}", sample.position().sample, sample.key());
    assert_eq!(samples, found.iter().filter_map(|item| item.as_ref().ok().map(named)).collect::<Vec<_>>());
    assert_eq!(error, found.iter().find_map(|item| item.as_ref().err().map(|error| format!("{error:?}"))));
    found
}

/// Overwrites every range of blocks with zeros. The result must be all samples, or the samples before the
/// zeros and an error.
#[test]
fn zeros_in_any_blocks_lose_no_sample_silently() {
    // If no padding is allowed, zeros before the end marker cannot be mistaken for padding after the end
    // marker.
    let (bytes, limits) = (motley(), Limits { padding: Some(0), ..Limits::default() });
    let whole = shapes(&parse_whole(&bytes));
    assert_eq!(whole.len(), 4);
    let blocks = bytes.len() / BLOCK;
    let (mut undetected, mut ends) = (0, 0);
    for from in 0..blocks {
        for to in from + 1..=blocks {
            let zeros = from * BLOCK..to * BLOCK;
            let found = read_in_every_way(limits, &zeroed(&bytes, zeros.clone()));
            let good = shapes(&found);
            assert_eq!(good, whole[..good.len()], "{zeros:?}");
            let Some(error) = found.iter().find_map(|item| item.as_ref().err()) else {
                assert_eq!(good.len(), whole.len(), "{zeros:?}");
                undetected += 1;
                continue;
            };
            assert!(
                matches!(error.kind(), ErrorKind::ArchiveEnd(_) | ErrorKind::Header(_)),
                "{zeros:?}: {error}"
            );
            ends += usize::from(matches!(error.kind(), ErrorKind::ArchiveEnd(_)));
            let offset = error.location().offset().unwrap() as usize;
            assert!((zeros.start.saturating_sub(2048)..=zeros.end).contains(&offset), "{zeros:?}: {error}");
        }
    }
    // Zeros stay undetected only if all of them are in the content of one file, or all in the end marker. In
    // 2 blocks, there are 3 such ranges of zeros: the first block, the second block, and both. In 1 block,
    // there is 1 range. `a.txt` has 2 blocks, `a.cls` 1, `c.txt` 2, `d.txt` 1, the end marker 2.
    assert_eq!(undetected, 3 + 1 + 3 + 1 + 3);
    assert!(ends > 100, "{ends}");
}

/// In an archive padded to whole records, only zeros that reach the end marker can be mistaken for padding.
#[test]
fn zeros_in_any_blocks_of_a_padded_archive_are_noticed() {
    let mut bytes = motley();
    let marker = bytes.len() - END.len();
    bytes.resize(20_480, 0);
    let whole = shapes(&parse_whole(&bytes));
    for from in 0..marker / BLOCK {
        for to in from + 1..=marker / BLOCK {
            let zeros = from * BLOCK..to * BLOCK;
            let found = read_in_every_way(Limits::default(), &zeroed(&bytes, zeros.clone()));
            let noticed = found.iter().any(Result::is_err);
            assert!(noticed || shapes(&found) == whole || zeros.end == marker, "{zeros:?}");
        }
    }
    // In this large archive, more than 10,240 bytes (a usual record) follow the last header. So if zeros
    // replace a header and everything after it, they are too many to be padding, and the parser reports an
    // error.
    let last = raw(&header("e.bin", EntryType::Regular, 30_000), &[5; 30_000]);
    let mut bytes = [&large_member()[..], &motley()[..marker], &last].concat();
    let marker = bytes.len();
    bytes.resize((marker + 1024).next_multiple_of(10_240), 0);
    assert_eq!((parse_whole(&bytes).len(), bytes.len() / 10_240 % 2), (5, 1));
    for blocks in 1..=marker / BLOCK {
        let found = parse_whole(&zeroed(&bytes, marker - blocks * BLOCK..marker));
        assert!(shapes(&found).len() == 5 || found.iter().any(Result::is_err), "{blocks}");
    }
}

/// If a file was preallocated and filled only in part, the zeros at its end are longer than a record.
#[test]
fn more_zeros_after_the_end_marker_than_a_record_are_an_error() {
    let bytes = [large_member(), motley()].concat();
    let marker = bytes.len() - END.len();
    let with_tail = |tail: usize| {
        let mut bytes = bytes.clone();
        bytes.resize(bytes.len() + tail, 0);
        bytes
    };
    let padded = |record: usize| bytes.len().next_multiple_of(record) - bytes.len();
    for record in [512, 1024, 10_240, 65_536, 1 << 20] {
        let found = read_in_every_way(Limits::default(), &with_tail(padded(record)));
        assert_eq!(found.len(), 4, "{record}");
    }
    assert_eq!(padded(1024), 0);
    for tail in [1, 512, padded(10_240) + 10_240, padded(1 << 20) + (1 << 20), 5 << 20] {
        let error = only_error(read_in_every_way(Limits::default(), &with_tail(tail)));
        assert!(matches!(error.kind(), ErrorKind::ArchiveEnd(_)), "{tail}: {error}");
        assert_eq!(error.location().offset(), Some(marker as u64), "{tail}");
        let limited = |padding| {
            let limits = Limits { padding: Some(padding), ..Limits::default() };
            parse_with(limits, [with_tail(tail).into()])
        };
        assert_eq!(keys(&limited(tail as u64)).len(), 4, "{tail}");
        assert!(matches!(only_error(limited(tail as u64 - 1)).kind(), ErrorKind::ArchiveEnd(_)), "{tail}");
    }
}

#[test]
fn at_most_a_mebibyte_of_endless_zeros_is_read() {
    for (before, most) in [(motley(), 1 << 20), (Vec::new(), 10_240)] {
        let consumed = std::cell::Cell::new(0);
        let zeros = std::iter::repeat_with(|| {
            consumed.set(consumed.get() + 4096);
            Bytes::from_static(&[0; 4096])
        });
        let samples = parse([Bytes::from(before)].into_iter().chain(zeros));
        let error = only_error(samples);
        assert!(matches!(error.kind(), ErrorKind::ArchiveEnd(_)), "{error}");
        assert!(consumed.get() <= most + 2 * 4096, "{}", consumed.get());
    }
}

/// If the parser reads a range that ends before the archive ends, zeros in the range are not an end marker.
#[test]
fn zeros_in_a_range_of_a_shard_are_an_error() {
    let bytes = archive(&[("a.x", b"1"), ("a.y", b"2"), ("b.x", b"3"), ("b.y", b"4"), ("c.x", b"5")]);
    let part = 1024..4096;
    let whole = |bytes: &[u8]| {
        let parser = SampleParser::new("s.tar").starting(0, part.start as u64).cut();
        read([Ok(Bytes::copy_from_slice(&bytes[part.clone()]))].into_iter(), parser).collect::<Vec<_>>()
    };
    let expected = shapes(&whole(&bytes));
    for from in (part.start..part.end).step_by(BLOCK) {
        for to in (from + BLOCK..=part.end).step_by(BLOCK) {
            let found = whole(&zeroed(&bytes, from..to));
            let noticed = found.iter().any(Result::is_err);
            assert!(noticed || shapes(&found) == expected, "{from}..{to}");
            assert!(shapes(&found).len() <= expected.len());
        }
    }
}

#[test]
fn zeros_between_archives_must_be_an_end_marker_and_padding() {
    let mut padded = [large_member(), archive(&[("a.txt", b"1"), ("a.cls", b"1")])].concat();
    padded.resize(padded.len().next_multiple_of(10_240), 0);
    let joined = |parts: &[&[u8]]| parse_with(several(), [Bytes::from(parts.concat())]);
    let next = archive(&[("b.txt", b"2")]);
    assert_eq!(keys(&joined(&[&padded, &next])), ["a", "b"]);
    for zeros in [512, 20_480, 1 << 20] {
        let found = joined(&[&padded, &vec![0; zeros], &next]);
        assert!(matches!(only_error(found).kind(), ErrorKind::ArchiveEnd(_)), "{zeros}");
    }
    let garbage = joined(&[&padded, &[b'x'; 600]]);
    assert!(matches!(only_error(garbage).kind(), ErrorKind::ArchiveEnd(_)));
}
