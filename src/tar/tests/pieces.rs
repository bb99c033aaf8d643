//! Reads ranges of a shard's samples, and makes outlines from headers alone.

use super::properties::{built, chunks, members};
use super::*;
use proptest::prelude::*;
use std::ops::Range;

/// Returns the samples of the outline, and whether the outline is seekable. Pushes chunks of the sizes
/// `steps`. Before each chunk, if the next value of `jumps` is true, skips the bytes that the outline does
/// not need.
fn outlined(bytes: &[u8], steps: &[usize], jumps: &[bool]) -> (Vec<Result<SampleOutline>>, bool) {
    let mut outline = Outline::new("s.tar").with_limits(several());
    let (mut steps, mut jumps) = (steps.iter().cycle(), jumps.iter().cycle());
    let (mut at, mut found) = (0, Vec::new());
    loop {
        match outline.next() {
            Ok(Parsed::NeedInput) => {
                if *jumps.next().unwrap() {
                    at = outline.wanted().min(bytes.len() as u64) as usize;
                    outline.skip_to(at as u64);
                }
                let end = bytes.len().min(at + steps.next().unwrap());
                match at < end {
                    true => outline.push(Bytes::copy_from_slice(&bytes[at..end])),
                    false => outline.finish(),
                }
                at = end;
            }
            Ok(Parsed::Sample(sample)) => found.push(Ok(sample)),
            Ok(Parsed::End) => return (found, outline.seekable()),
            Err(error) => found.push(Err(error)),
        }
    }
}

/// The samples that an outline describes, with their content from `bytes`.
fn filled(bytes: &[u8], found: &[Result<SampleOutline>]) -> Vec<String> {
    let sample = |outline: &SampleOutline| {
        let content = |field: &Range<u64>| &bytes[field.start as usize..field.end as usize];
        let fields: Vec<_> = outline.fields.iter().map(|(name, field)| (&**name, content(field))).collect();
        format!("{} {} {fields:?}", outline.number, outline.key)
    };
    found.iter().map(|item| item.as_ref().map_or_else(|error| format!("{error:?}"), sample)).collect()
}

fn read_whole(bytes: &[u8]) -> Vec<String> {
    let sample = |sample: &Sample| {
        let content = |value: &crate::Value| value.as_bytes().unwrap().to_vec();
        let fields: Vec<_> = sample.fields().map(|(name, value)| (name, content(value))).collect();
        format!("{} {} {fields:?}", sample.position().sample, sample.key())
    };
    parse_with(several(), [Bytes::copy_from_slice(bytes)])
        .iter()
        .map(|item| item.as_ref().map_or_else(|error| format!("{error:?}"), sample))
        .collect()
}

/// Reads the samples from number `from` up to number `to`. The parser gets only the bytes of these samples.
fn piece(bytes: &[u8], starts: &[u64], from: usize, to: usize, cuts: &[usize]) -> Vec<Result<Sample>> {
    let start = starts.get(from).map_or(bytes.len(), |&start| start as usize);
    let parser = SampleParser::new("s.tar").with_limits(several()).starting(from as u64, start as u64);
    let (end, parser) = match starts.get(to) {
        Some(&end) => (end as usize, parser.cut()),
        None if from < starts.len() => (bytes.len(), parser),
        None => (bytes.len(), parser.cut()),
    };
    read(chunks(&bytes[start..end], cuts).into_iter().map(Ok), parser).collect()
}

fn starts(bytes: &[u8]) -> Vec<u64> {
    let (found, seekable) = outlined(bytes, &[4096], &[true]);
    assert!(seekable);
    found.into_iter().map(|sample| sample.unwrap().offset).collect()
}

/// An archive with every kind of header before and between its samples.
fn motley() -> Vec<u8> {
    let long = format!("{}/b", "d".repeat(120));
    [
        raw(&header("label.v", EntryType::new(b'V'), 3), b"vol"),
        extended(EntryType::XGlobalHeader, &pax("comment", "a commit")),
        extended(EntryType::XHeader, &[pax("mtime", "1.5"), pax("path", "d/long.txt")].concat()),
        raw(&header("a.txt", EntryType::Regular, 700), &[1; 700]),
        extended(EntryType::GNULongLink, &[b'l'; 600]),
        extended(EntryType::GNULongName, b"d/long.cls\0"),
        raw(&header("a.cls", EntryType::Regular, 1), b"7"),
        raw(&header("dir/", EntryType::Directory, 512), b""),
        raw(&header("__index__", EntryType::Regular, 3), b"{}\n"),
        extended(EntryType::XHeader, &pax("path", &format!("{long}.txt"))),
        // A global header between a member and its extension header.
        extended(EntryType::XGlobalHeader, &pax("comment", "another")),
        raw(&header("b.txt", EntryType::Regular, 0), b""),
        archive(&[(&format!("{long}.cls"), b"8"), ("c.txt", &[2; 512])]),
        archive(&[("e.txt", b"another archive"), ("f.txt", b"")]),
    ]
    .concat()
}

#[test]
fn every_range_of_samples_can_be_read_alone() {
    let bytes = motley();
    let whole = shown(&parse_with(several(), [Bytes::copy_from_slice(&bytes)]));
    let starts = starts(&bytes);
    assert_eq!((whole.len(), starts.len()), (5, 5));
    for from in 0..=starts.len() {
        for to in from..=starts.len() {
            assert_eq!(shown(&piece(&bytes, &starts, from, to, &[])), whole[from..to], "{from}..{to}");
        }
    }
}

/// A range of samples may end without an end marker, but not inside a member.
#[test]
fn the_bytes_of_a_range_may_end_only_between_members() {
    let bytes = motley();
    let starts = starts(&bytes);
    let (start, end) = (starts[0] as usize, starts[2] as usize);
    for cut in start..end {
        let parser = SampleParser::new("s.tar").starting(0, start as u64).cut();
        let samples: Vec<_> =
            read([Ok(Bytes::copy_from_slice(&bytes[start..cut]))].into_iter(), parser).collect();
        let Some(error) = samples.iter().find_map(|sample| sample.as_ref().err()) else { continue };
        assert!(matches!(error.kind(), ErrorKind::Truncated { .. }), "{error}");
        assert_eq!(error.location().offset(), Some(cut as u64));
    }
    let truncated = |cut: usize| {
        let parser = SampleParser::new("s.tar").starting(0, start as u64).cut();
        read([Ok(Bytes::copy_from_slice(&bytes[start..cut]))].into_iter(), parser)
            .any(|sample| sample.is_err())
    };
    // A cut within a header, body or padding, or between an extension header and its member, is an error. A
    // cut between members is not an error.
    let fine: Vec<usize> = (start..end).filter(|cut| !truncated(*cut)).map(|cut| cut - start).collect();
    let member = 1024 + 512 + 1024;
    let next = member + (512 + 1024) + 1024 + 1024;
    assert_eq!(fine, [0, member, next, next + 512, next + 1536, next + 1536 + 2560]);
}

#[test]
fn errors_and_positions_in_a_range_are_those_of_the_shard() {
    let bytes = archive(&[("a.txt", b"1"), ("b.txt", b"2"), ("b.TXT", b"3"), ("c.txt", b"4")]);
    let parser = SampleParser::new("s.tar").at(2, 7).starting(1, 1024).at(2, 7);
    let samples: Vec<_> = read([Ok(Bytes::copy_from_slice(&bytes[1024..]))].into_iter(), parser).collect();
    let error = samples[0].as_ref().unwrap_err();
    assert_eq!((error.location().offset(), error.location().key()), (Some(2048), Some("b")));
    let position = samples[1].as_ref().unwrap().position();
    assert_eq!((position.epoch, position.shard, position.sample), (2, 7, 2));
    let at_the_end = SampleParser::new("s.tar").starting(0, u64::MAX - 3).cut();
    assert!(
        read([Ok(Bytes::from(bytes))].into_iter(), at_the_end)
            .all(|sample| sample.is_ok() || sample.is_err())
    );
}

#[test]
fn an_archive_with_a_global_name_or_size_is_not_seekable() {
    for (record, seekable) in
        [(pax("comment", "x"), true), (pax("size", "1"), false), (pax("path", "a.txt"), false)]
    {
        let bytes = [
            extended(EntryType::XGlobalHeader, &record),
            raw(&header("a.txt", EntryType::Regular, 1), b"a"),
            END.to_vec(),
            // The values of a global header apply only to its own archive.
            archive(&[("b.txt", b"b")]),
        ]
        .concat();
        assert_eq!(outlined(&bytes, &[512], &[true]).1, seekable);
    }
}

/// The test truncates the archive at each byte in turn.
#[test]
fn a_cut_in_skipped_content_is_noticed() {
    let bytes = motley();
    for cut in 0..bytes.len() {
        let (found, _) = outlined(&bytes[..cut], &[512], &[true]);
        assert_eq!(filled(&bytes, &found), read_whole(&bytes[..cut]), "cut at {cut}");
    }
}

#[test]
fn the_outline_finds_the_errors_of_the_parser() {
    let mut link = header("d.jpg", EntryType::Link, 0);
    link.set_link_name("x.jpg").unwrap();
    let mut foreign = header("e.txt", EntryType::Regular, 1);
    foreign.as_mut_bytes()[0] = 0xff;
    let bytes = [
        archive(&[("a.txt", b"1"), ("a.TXT", b"2"), ("b.txt", b"3"), ("c.txt", b""), ("b.cls", b"4")]),
        raw(&link, b""),
        raw(&foreign, b"e"),
        archive(&[("f.txt", b"5")]),
    ]
    .concat();
    let (found, _) = outlined(&bytes, &[512], &[true]);
    assert_eq!(found.iter().filter(|item| item.is_err()).count(), 4);
    assert_eq!(filled(&bytes, &found), read_whole(&bytes));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn ranges_of_samples_make_up_the_whole_shard(
        members in members(),
        cuts in prop::collection::vec(any::<usize>(), 0..6),
        ends in (any::<prop::sample::Index>(), any::<prop::sample::Index>()),
    ) {
        let mut seen = std::collections::HashSet::new();
        let key = |name: &str| split_name(name).unwrap().0.to_owned();
        let mut members = members;
        members.retain(|(name, _)| seen.insert(name.to_lowercase()));
        members.sort_by_key(|(name, _)| key(name));
        let bytes = built(&members);
        let whole = shown(&parse_whole(&bytes));
        let starts = starts(&bytes);
        prop_assert_eq!(whole.len(), starts.len());
        let ends = [ends.0.index(starts.len() + 1), ends.1.index(starts.len() + 1)];
        let (from, to) = (ends[0].min(ends[1]), ends[0].max(ends[1]));
        let pieces = [(0, from), (from, to), (to, starts.len())];
        let pieces = pieces.map(|(a, b)| shown(&piece(&bytes, &starts, a, b, &cuts)));
        prop_assert_eq!(pieces.concat(), whole);
    }

    #[test]
    fn the_outline_agrees_with_the_parser(
        members in members(),
        steps in prop::collection::vec(1usize..3000, 1..20),
        jumps in prop::collection::vec(any::<bool>(), 1..20),
        damage in prop::collection::vec((any::<usize>(), any::<u8>()), 0..3),
        cut in any::<prop::sample::Index>(),
        whole in any::<bool>(),
    ) {
        let mut bytes = built(&members);
        for (at, byte) in damage {
            let at = at % bytes.len();
            bytes[at] = byte;
            let at = at / 512 * 512;
            let mut header = Header::from_byte_slice(&bytes[at..at + 512]).clone();
            header.set_cksum();
            bytes[at..at + 512].copy_from_slice(header.as_bytes());
        }
        if !whole {
            bytes.truncate(cut.index(bytes.len()));
        }
        let (found, _) = outlined(&bytes, &steps, &jumps);
        prop_assert_eq!(filled(&bytes, &found), read_whole(&bytes));
    }
}
