//! A refused member is an error of its own sample: the samples before and after it are returned.

use super::*;

/// A base-256 size, which GNU tar writes for members of 8 GiB and more.
fn base_256(mut header: Header, size: u64) -> Header {
    let field = &mut header.as_old_mut().size;
    field[..4].copy_from_slice(&[0x80, 0, 0, 0]);
    field[4..].copy_from_slice(&size.to_be_bytes());
    header
}

/// The chunks `before`, a body of `zeros` zeros, and `after`. The chunks of the body share their memory.
fn around(before: Vec<u8>, zeros: u64, after: Vec<u8>) -> Vec<Bytes> {
    let chunk = Bytes::from(vec![0; 64 << 20]);
    let mut chunks = vec![Bytes::from(before)];
    let mut left = zeros.next_multiple_of(512);
    while left > 0 {
        let size = left.min(chunk.len() as u64);
        chunks.push(chunk.slice(..size as usize));
        left -= size;
    }
    chunks.push(after.into());
    chunks
}

fn outlined(chunks: &[Bytes]) -> Vec<String> {
    let mut outline = Outline::new("s.tar");
    let (mut chunks, mut found) = (chunks.iter(), Vec::new());
    loop {
        match outline.next() {
            Ok(Parsed::Sample(sample)) => found.push(sample.key.to_string()),
            Err(error) => found.push(error.to_string()),
            Ok(Parsed::NeedInput) => match chunks.next() {
                Some(chunk) => outline.push(chunk.clone()),
                None => outline.finish(),
            },
            Ok(Parsed::End) => return found,
        }
    }
}

/// Asserts that sample 001 is refused with this kind of error, and that samples 000 and 002 are returned, by
/// the parser and by the outline.
#[track_caller]
fn assert_only_the_middle_is_refused(chunks: &[Bytes], kind: &str) {
    let found = parse(chunks.iter().cloned());
    let shown: Vec<String> = found
        .iter()
        .map(|item| match item {
            Ok(sample) => format!("{} {}", sample.position().sample, sample.key()),
            Err(error) => {
                let place = error.location();
                assert_eq!(place.offset(), Some(1024), "{error}");
                assert_eq!(place.member(), Some("001.mp4"), "{error}");
                format!("{} {:?}", error.kind().name(), place.key())
            }
        })
        .collect();
    assert_eq!(shown, ["0 000", &format!("{kind} Some(\"001\")"), "2 002"]);
    let outlined = outlined(chunks);
    let error = found[1].as_ref().unwrap_err().to_string();
    assert_eq!(outlined, ["000", &error, "002"]);
}

fn first() -> Vec<u8> {
    raw(&header("000.mp4", EntryType::Regular, 1), b"0")
}

fn last() -> Vec<u8> {
    [raw(&header("002.mp4", EntryType::Regular, 1), b"2"), END.to_vec()].concat()
}

#[test]
fn a_member_above_its_limit_is_an_error_of_its_sample_only() {
    const LARGE: u64 = (8 << 30) + 512;
    let gnu = raw(&base_256(header("001.mp4", EntryType::Regular, 0), LARGE), b"");
    let posix = [
        extended(EntryType::XHeader, &pax("size", &LARGE.to_string())),
        raw(&header("001.mp4", EntryType::Regular, 0), b""),
    ];
    for middle in [gnu, posix.concat()] {
        assert_only_the_middle_is_refused(&around([first(), middle].concat(), LARGE, last()), "too_large");
    }
    for size in [3 << 29, 5 << 30] {
        let middle = raw(&header("001.mp4", EntryType::Regular, size), b"");
        assert_only_the_middle_is_refused(
            &around([first(), middle].concat(), size as u64, last()),
            "too_large",
        );
    }
}

#[test]
fn a_sample_with_a_refused_member_is_not_returned_in_part() {
    let bytes = archive(&[("a.x", b"1"), ("a.y", &[0; 20]), ("a.z", b"3"), ("b.x", b"4")]);
    let limits = Limits { member: 10, ..Limits::default() };
    let found = parse_with(limits, [Bytes::from(bytes)]);
    assert_eq!(found.len(), 2);
    assert_eq!(found[0].as_ref().unwrap_err().location().key(), Some("a"));
    assert_eq!(found[1].as_ref().unwrap().key(), "b");
}

#[test]
fn an_extension_header_above_its_limit_is_an_error_of_its_sample_only() {
    let long = "x".repeat(2 << 20);
    let comment = pax("comment", &long);
    let body = raw(&header("001.mp4", EntryType::Regular, 700), &[1; 700]);
    let other = raw(&header("cut", EntryType::Regular, 700), &[1; 700]);
    let sized = raw(&header("001.mp4", EntryType::Regular, 0), b"");
    for middle in [
        [extended(EntryType::XHeader, &comment), body].concat(),
        [extended(EntryType::XHeader, &[comment.clone(), pax("path", "001.mp4")].concat()), other].concat(),
        [extended(EntryType::XHeader, &[pax("size", "700"), comment].concat()), sized, vec![1; 1024]]
            .concat(),
    ] {
        let bytes = [first(), middle, last()].concat();
        for size in [512, 5000, bytes.len()] {
            let chunks: Vec<Bytes> = bytes.chunks(size).map(Bytes::copy_from_slice).collect();
            assert_only_the_middle_is_refused(&chunks, "too_large");
        }
    }
}

/// If only the beginning of the member's name is known, the error has no key. Samples to which the member may
/// belong are not returned.
#[test]
fn a_name_above_the_limit_drops_the_samples_that_it_may_belong_to() {
    let named = |name: String| {
        let long = extended(EntryType::GNULongName, &[name.as_bytes(), b"\0"].concat());
        [long, raw(&header("cut", EntryType::Regular, 3), b"abc")].concat()
    };
    let parse = |name: String| {
        let found = parse_whole(&[first(), named(name), last()].concat());
        assert!(
            found.iter().filter_map(|item| item.as_ref().err()).next().unwrap().location().key().is_none()
        );
        found.into_iter().filter_map(Result::ok).map(|sample| sample.key().to_owned()).collect::<Vec<_>>()
    };
    let long = "x".repeat(2 << 20);
    assert_eq!(parse(format!("other.{long}")), ["000", "002"]);
    assert_eq!(parse(format!("000{long}.a")), ["000", "002"]);
    assert_eq!(parse(format!("000.{long}")), ["002"]);
    assert_eq!(parse(format!("002.{long}")), ["000"]);
}

/// The stored content of a sparse member lacks the holes of the file, so it is never returned. The walker
/// finds the next member after it.
#[test]
fn a_sparse_member_is_an_error_of_its_sample_only() {
    let gnu = header("001.mp4", EntryType::GNUSparse, 600);
    let mut continued = header("001.mp4", EntryType::GNUSparse, 600);
    continued.as_mut_bytes()[482] = 1;
    let mut map = vec![0; 1024];
    map[504] = 1;
    let pax_1_0 =
        [pax("GNU.sparse.major", "1"), pax("GNU.sparse.name", "001.mp4"), pax("size", "600")].concat();
    let pax_0_0 = [pax("GNU.sparse.size", "99999"), pax("GNU.sparse.numblocks", "1")].concat();
    let condensed = raw(&header("GNUSparseFile.7/cut", EntryType::Regular, 0), b"");
    for middle in [
        raw(&gnu, &[1; 600]),
        [raw(&continued, b""), map, vec![1; 1024]].concat(),
        [extended(EntryType::XHeader, &pax_1_0), condensed, vec![1; 1024]].concat(),
        [extended(EntryType::XHeader, &pax_0_0), raw(&header("001.mp4", EntryType::Regular, 600), &[1; 600])]
            .concat(),
    ] {
        assert_only_the_middle_is_refused(&[[first(), middle, last()].concat().into()], "header");
    }
}

/// A damaged header may belong to any sample, so the error has no key. The sample before the header may be
/// incomplete, so it is not returned.
#[test]
fn a_damaged_header_names_no_sample() {
    let mut bytes = archive(&[("a.x", b"1"), ("b.x", b"2"), ("c.x", b"3")]);
    bytes[2048 + 3] ^= 1;
    let found = parse_whole(&bytes);
    assert_eq!((found.len(), found[0].as_ref().unwrap().key()), (2, "a"));
    let error = found[1].as_ref().unwrap_err();
    assert_eq!((error.kind().name(), error.location().key()), ("checksum", None));
    assert!(!is_complete(&bytes) && is_complete(&archive(&[("a.x", b"1")])));
}

fn is_complete(bytes: &[u8]) -> bool {
    let mut read = read([Ok(Bytes::copy_from_slice(bytes))].into_iter(), SampleParser::new("s"));
    assert!(!read.is_complete());
    read.by_ref().for_each(drop);
    read.is_complete()
}
