//! No archive makes a sample take more memory than the limits allow.

use super::*;
use crate::error::SizeLimit;
use std::sync::Arc;

fn too_large(limits: Limits, bytes: &[u8]) -> Vec<Result<Sample>> {
    let found = parse_with(limits, [Bytes::copy_from_slice(bytes)]);
    // The outline finds the same error.
    let mut outline = Outline::new("s.tar").with_limits(limits);
    outline.push(Bytes::copy_from_slice(bytes));
    outline.finish();
    let mut outlined = Vec::new();
    loop {
        match outline.next() {
            Ok(Parsed::Sample(sample)) => outlined.push(sample.key.to_string()),
            Err(error) => outlined.push(error.to_string()),
            Ok(_) => break,
        }
    }
    let shown = |item: &Result<Sample>| item.as_ref().map_or_else(Error::to_string, |s| s.key().to_owned());
    assert_eq!(found.iter().map(shown).collect::<Vec<_>>(), outlined);
    found
}

#[test]
fn a_sample_of_too_many_bytes_is_an_error_of_that_sample() {
    let bytes = archive(&[
        ("a.x", &[1; 600]),
        ("a.y", &[1; 400]),
        ("b.x", &[2; 600]),
        ("b.y", &[2; 400]),
        ("b.z", &[2; 1]),
        ("b.more", &[2; 5000]),
        ("c.x", &[3; 1000]),
    ]);
    let found = too_large(Limits { sample: 1000, ..Limits::default() }, &bytes);
    assert_eq!((found.len(), found[0].as_ref().unwrap().size()), (3, 1000));
    let error = found[1].as_ref().unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::TooLarge { size: 1001, limit: 1000, .. })
            && error.to_string().contains("`tar::Limits::sample`"),
        "{error}"
    );
    let at = error.location();
    assert_eq!((at.key(), at.member(), at.offset()), (Some("b"), Some("b.z"), Some(512 * 10)));
    assert_eq!(found[2].as_ref().unwrap().position().sample, 2);
}

/// A header can claim any size, and a few MB of compressed zeros can expand to that size.
#[test]
fn by_default_a_sample_has_up_to_a_gibibyte() {
    const GIB: usize = 1 << 30;
    let claims = |sizes: &[usize]| {
        let mut outline = Outline::new("s.tar");
        for (at, &size) in sizes.iter().enumerate() {
            let name = format!("film.{at}");
            outline.push(raw(&header(&name, EntryType::Regular, size), b"").into());
            match outline.next() {
                Ok(Parsed::NeedInput) => outline.skip_to(outline.wanted()),
                other => return other.map(drop),
            }
        }
        Ok(())
    };
    assert!(claims(&[700 << 20, 324 << 20]).is_ok(), "two members of 1 GiB in total");
    for sizes in [vec![GIB + 1], vec![2_200_000_000], vec![400 << 20; 3]] {
        let error = claims(&sizes).unwrap_err();
        let ErrorKind::TooLarge { what: SizeLimit::Sample, limit, .. } = error.kind() else {
            panic!("{error}")
        };
        assert_eq!(*limit, GIB as u64);
        assert!(error.to_string().contains("`tar::Limits::sample`"), "{error}");
        let mut parser = SampleParser::new("s.tar");
        let claim = raw(&header("film.mp4", EntryType::Regular, sizes.iter().sum()), b"");
        parser.push(claim.into());
        assert_eq!(parser.next().unwrap_err().kind().to_string(), error_of(sizes.iter().sum()), "{sizes:?}");
    }
    fn error_of(size: usize) -> String {
        ErrorKind::TooLarge { what: SizeLimit::Sample, size: size as u64, limit: GIB as u64 }.to_string()
    }
    for (what, limits, error) in [
        ("`tar::Limits::member`", Limits { member: 9, ..Limits::default() }, "a tar member of 10 bytes"),
        ("`tar::Limits::extension`", Limits { extension: 1, ..Limits::default() }, "a tar extension header"),
    ] {
        let bytes = [
            extended(EntryType::XHeader, &pax("path", "a.x")),
            [raw(&header("b.x", EntryType::Regular, 10), &[0; 10]), END.to_vec()].concat(),
        ];
        let bytes = if limits.member == 9 { bytes[1].clone() } else { bytes.concat() };
        let found = only_error(parse_with(limits, [bytes.into()])).to_string();
        assert!(found.contains(what) && found.contains(error), "{found}");
    }
}

#[test]
fn a_sample_of_too_many_members_is_an_error_of_that_sample() {
    let names: Vec<String> = (0..7).map(|at| format!("b.{at}")).collect();
    let mut members: Vec<(&str, &[u8])> = vec![("a.0", b""), ("a.1", b""), ("a.2", b"")];
    members.extend(names.iter().map(|name| (name.as_str(), &b""[..])));
    members.push(("c.0", b""));
    let found = too_large(Limits { members: 3, ..Limits::default() }, &archive(&members));
    assert_eq!((found.len(), found[0].as_ref().unwrap().len()), (3, 3));
    let error = found[1].as_ref().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::TooManyMembers { limit: 3 }), "{error}");
    assert_eq!((error.location().key(), error.location().member()), (Some("b"), Some("b.3")));
    assert_eq!(found[2].as_ref().unwrap().key(), "c");
}

/// The memory of a chunk. The strong count of the `Arc` shows whether the chunk is still alive.
#[derive(Debug)]
struct Chunk(Vec<u8>, #[allow(dead_code)] Arc<()>);

impl AsRef<[u8]> for Chunk {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Chunk {
    fn of(part: &[u8], held: &Arc<()>) -> Bytes {
        Bytes::from_owner(Chunk(part.to_vec(), Arc::clone(held)))
    }
}

/// The fields of a sample that is too large are dropped before the rest of the sample is skipped.
#[test]
fn a_sample_beyond_its_limits_is_dropped_at_once() {
    let bytes = archive(&[("a.x", &[1; 600]), ("a.y", &[2; 600])]);
    for limits in [Limits { sample: 1000, ..Limits::default() }, Limits { members: 1, ..Limits::default() }] {
        let held = Arc::new(());
        let mut parser = SampleParser::new("s.tar").with_limits(limits);
        parser.push(Chunk::of(&bytes[..1536], &held));
        assert!(matches!(parser.next(), Ok(Parsed::NeedInput)));
        assert_eq!(Arc::strong_count(&held), 2);
        parser.push(Chunk::of(&bytes[1536..2048], &held));
        assert!(parser.next().is_err());
        assert_eq!(Arc::strong_count(&held), 1);
    }
}

#[test]
fn keys_and_names_keep_no_chunk_in_memory() {
    let long = format!("{}.txt", "k".repeat(300));
    let bytes = [
        archive(&[("a.cls", b""), ("a.JPG", b""), ("a.é", b""), ("b.cls", b"")])[..2048].to_vec(),
        extended(EntryType::XHeader, &pax("path", &long)),
        raw(&header("c.cls", EntryType::Regular, 0), b""),
        END.to_vec(),
    ]
    .concat();
    let held = Arc::new(());
    for chunk in [512, 700, 100_000] {
        let samples = parse(bytes.chunks(chunk).map(|part| Chunk::of(part, &held)));
        assert_eq!(keys(&samples), ["a", "b", &"k".repeat(300)], "{chunk}");
        assert_eq!(Arc::strong_count(&held), 1, "{chunk}");
    }
}
