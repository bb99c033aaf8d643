//! Format rules, damage, and the properties that hold for every archive and every way to cut it.

use super::*;
use crate::error::{Error, ErrorKind, Result};
use crate::sample::Sample;
use bytes::Bytes;
use futures::executor::block_on_stream;
use proptest::prelude::*;
use tar::{Builder, EntryType, Header};

/// A member for a test archive.
fn member(archive: &mut Builder<Vec<u8>>, name: &str, content: &[u8]) {
    let mut header = Header::new_ustar();
    header.set_size(content.len() as u64);
    header.set_mode(0o444);
    archive.append_data(&mut header, name, content).unwrap();
}

fn archive(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut archive = Builder::new(Vec::new());
    for (name, content) in members {
        member(&mut archive, name, content);
    }
    archive.into_inner().unwrap()
}

/// One raw header with a right checksum, followed by its content and padding.
fn raw(header: &Header, content: &[u8]) -> Vec<u8> {
    let mut header = header.clone();
    header.set_cksum();
    let mut bytes = header.as_bytes().to_vec();
    bytes.extend_from_slice(content);
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes
}

fn header(name: &str, kind: EntryType, size: usize) -> Header {
    let mut header = Header::new_ustar();
    header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
    header.set_entry_type(kind);
    header.set_size(size as u64);
    header
}

fn extended(kind: EntryType, records: &[u8]) -> Vec<u8> {
    raw(&header("ext", kind, records.len()), records)
}

fn pax(key: &str, value: &str) -> Vec<u8> {
    let mut length = 0;
    loop {
        let record = format!("{length} {key}={value}\n");
        if record.len() == length {
            return record.into_bytes();
        }
        length = record.len();
    }
}

const END: [u8; 1024] = [0; 1024];

fn parse(chunks: impl IntoIterator<Item = Bytes>) -> Vec<Result<Sample>> {
    read(chunks.into_iter().map(Ok), SampleParser::new("s.tar")).collect()
}

fn parse_whole(bytes: &[u8]) -> Vec<Result<Sample>> {
    parse([Bytes::copy_from_slice(bytes)])
}

/// Samples and errors as text that can be compared.
fn shown(samples: &[Result<Sample>]) -> Vec<String> {
    samples
        .iter()
        .map(|sample| match sample {
            Ok(sample) => format!("{sample:?} {:?}", sample.position()),
            Err(error) => format!("{error}"),
        })
        .collect()
}

fn keys(samples: &[Result<Sample>]) -> Vec<String> {
    samples.iter().map(|sample| sample.as_ref().unwrap().key().to_string()).collect()
}

fn only_error(samples: Vec<Result<Sample>>) -> Error {
    let mut errors: Vec<Error> = samples.into_iter().filter_map(Result::err).collect();
    assert_eq!(errors.len(), 1, "{errors:?}");
    errors.remove(0)
}

#[test]
fn groups_adjacent_members() {
    let samples = parse_whole(&archive(&[
        ("__index__/x.json", b"{}"),
        ("d/a.JPG", b"jpg"),
        ("d/a.cls", b"1"),
        ("README", b"no extension"),
        ("d/._a.jpg", b"a resource fork"),
        ("d/b.seg.Png", b""),
    ]));
    assert_eq!(
        shown(&samples),
        [
            r#"{"__key__": "d/a", "__url__": "s.tar", "jpg": b"jpg", "cls": b"1"} "#,
            r#"{"__key__": "d/b", "__url__": "s.tar", "seg.png": b""} "#,
        ]
        .iter()
        .enumerate()
        .map(|(at, text)| format!("{text}Position {{ epoch: 0, shard: 0, sample: {at} }}"))
        .collect::<Vec<_>>()
    );
}

#[test]
fn bodies_in_one_chunk_are_not_copied() {
    let bytes = Bytes::from(archive(&[("a.bin", &[7; 1000])]));
    let samples = parse([bytes.clone()]);
    let field = samples[0].as_ref().unwrap().get("bin").unwrap().as_bytes().unwrap();
    assert_eq!(field.as_ptr(), bytes[512..].as_ptr());
}

#[test]
fn reads_every_dialect_of_names() {
    let long = format!("{}/{}", "d".repeat(90), "k".repeat(60));
    let longer = "n".repeat(300);
    let mut v7 = Header::new_old();
    v7.as_old_mut().name[..5].copy_from_slice(b"v.txt");
    v7.set_size(1);
    let mut base256 = header("b.txt", EntryType::Regular, 0);
    base256.as_old_mut().size = [0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    let bytes = [
        raw(&v7, b"1"),
        raw(&base256, b"2"),
        // Prefix field; GNU long name; pax path; each over 100 characters.
        archive(&[(&format!("{long}.txt"), b"3")])[..1024].to_vec(),
        extended(EntryType::GNULongName, format!("{longer}.txt\0").as_bytes()),
        raw(&header("short", EntryType::Regular, 1), b"4"),
        extended(EntryType::XHeader, &[pax("mtime", "1.5"), pax("path", &format!("p{longer}.txt"))].concat()),
        raw(&header("short", EntryType::Regular, 1), b"5"),
        raw(&header("plain.txt", EntryType::Continuous, 1), b"6"),
        END.to_vec(),
    ]
    .concat();
    let samples = parse_whole(&bytes);
    assert_eq!(keys(&samples), ["v", "b", &long, &longer, &format!("p{longer}"), "plain"]);
    for (at, sample) in samples.iter().enumerate() {
        let content = sample.as_ref().unwrap().get("txt").unwrap().as_bytes().unwrap();
        assert_eq!(content, (at + 1).to_string().as_bytes());
    }
}

/// A pax size over a smaller ustar size: readers that ignore it see the inner header as a member (CVE-2025-62518).
#[test]
fn a_pax_size_hides_what_it_covers() {
    let inner = raw(&header("evil.txt", EntryType::Regular, 4), b"evil");
    for claimed in [0, 512] {
        let bytes = [
            extended(EntryType::XHeader, &pax("size", &inner.len().to_string())),
            raw(&header("good.bin", EntryType::Regular, claimed), &inner),
            END.to_vec(),
        ]
        .concat();
        let samples = parse_whole(&bytes);
        assert_eq!(keys(&samples), ["good"]);
        assert_eq!(samples[0].as_ref().unwrap().get("bin").unwrap().as_bytes().unwrap(), &inner);
    }
}

/// Only its length says where a pax record ends: a line break in a value hides no record, and makes none.
#[test]
fn pax_values_may_hold_line_breaks() {
    let comment = pax("comment", "\n\n18 path=evil.txt\n");
    for records in [[comment.clone(), pax("path", "good.txt")], [pax("path", "good.txt"), comment]] {
        let bytes = [
            extended(EntryType::XHeader, &records.concat()),
            raw(&header("short", EntryType::Regular, 1), b"1"),
            END.to_vec(),
        ]
        .concat();
        assert_eq!(keys(&parse_whole(&bytes)), ["good"]);
    }
}

#[test]
fn global_pax_headers_last_to_the_end_of_their_archive() {
    let bytes = [
        extended(EntryType::XGlobalHeader, &[pax("comment", "git"), pax("size", "2")].concat()),
        raw(&header("a.txt", EntryType::Regular, 0), b"aa"),
        extended(EntryType::XHeader, &pax("size", "1")),
        raw(&header("b.txt", EntryType::Regular, 0), b"b"),
        END.to_vec(),
        raw(&header("c.txt", EntryType::Regular, 3), b"ccc"),
        END.to_vec(),
    ]
    .concat();
    let samples = parse_whole(&bytes);
    let sizes: Vec<usize> = samples.iter().map(|sample| sample.as_ref().unwrap().size()).collect();
    assert_eq!(sizes, [2, 1, 3]);
}

#[test]
fn other_members_are_passed_over() {
    let bytes = [
        raw(&header("dir.d/", EntryType::Directory, 0), b""),
        // A directory has no data, whatever its size field says.
        raw(&header("dir.e/", EntryType::Directory, 512), b""),
        raw(&header("label.v", EntryType::new(b'V'), 3), b"vol"),
        extended(EntryType::GNULongLink, &[b'l'; 600]),
        raw(&header("a.txt", EntryType::Regular, 1), b"a"),
        END.to_vec(),
    ]
    .concat();
    assert_eq!(keys(&parse_whole(&bytes)), ["a"]);
}

#[test]
fn a_link_spoils_its_sample_only() {
    let mut link = header("a.jpg", EntryType::Link, 0);
    link.set_link_name("x.jpg").unwrap();
    let bytes = [
        raw(&header("a.cls", EntryType::Regular, 1), b"1"),
        raw(&link, b""),
        raw(&header("b.cls", EntryType::Regular, 1), b"2"),
        END.to_vec(),
    ]
    .concat();
    let samples = parse_whole(&bytes);
    assert_eq!(samples.len(), 2);
    assert_eq!(samples[0].as_ref().unwrap_err().location().member(), Some("a.jpg"));
    assert_eq!(samples[1].as_ref().unwrap().key(), "b");
}

#[test]
fn a_duplicate_spoils_its_sample_only() {
    let samples = parse_whole(&archive(&[
        ("z.txt", b""),
        ("a.TXT", b"1"),
        ("a.txt", b"2"),
        ("a.cls", b"3"),
        ("b.txt", b"4"),
    ]));
    assert_eq!(samples.len(), 3);
    let error = samples[1].as_ref().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::DuplicateMember { field } if field == "txt"), "{error}");
    let at = error.location();
    assert_eq!((at.shard(), at.member(), at.key()), (Some("s.tar"), Some("a.txt"), Some("a")));
    assert_eq!(at.offset(), Some(512 + 1024));
    assert_eq!(samples[2].as_ref().unwrap().position().sample, 2);
}

/// Of 100 fields, any may come again, at any place.
#[test]
fn a_duplicate_among_many_is_found() {
    let names: Vec<String> = (0..100).map(|at| format!("a.{at}")).collect();
    let members: Vec<(&str, &[u8])> = names.iter().map(|name| (name.as_str(), &b""[..])).collect();
    assert_eq!(parse_whole(&archive(&members))[0].as_ref().unwrap().len(), 100);
    for count in [1, 31, 32, 33, 34, 100] {
        for again in [0, count / 2, count - 1] {
            let mut members = members[..count].to_vec();
            members.push(members[again]);
            let error = only_error(parse_whole(&archive(&members)));
            assert!(matches!(error.kind(), ErrorKind::DuplicateMember { .. }), "{error}");
        }
    }
}

#[test]
fn a_key_that_comes_back_is_an_error() {
    let samples =
        parse_whole(&archive(&[("a.txt", b"1"), ("b.txt", b"2"), ("a.cls", b"3"), ("c.txt", b"4")]));
    assert_eq!(keys(&samples[..2]), ["a", "b"]);
    assert!(matches!(samples[2].as_ref().unwrap_err().kind(), ErrorKind::ScatteredSample));
    assert_eq!(samples[3].as_ref().unwrap().key(), "c");
}

#[test]
fn a_name_that_is_not_utf8_is_an_error_of_that_member() {
    let mut bad = header("x.txt", EntryType::Regular, 1);
    bad.as_old_mut().name[0] = 0xff;
    let bytes = [raw(&bad, b"1"), raw(&header("a.txt", EntryType::Regular, 1), b"2"), END.to_vec()].concat();
    let samples = parse_whole(&bytes);
    assert!(matches!(samples[0].as_ref().unwrap_err().kind(), ErrorKind::Header(_)));
    assert_eq!(samples[1].as_ref().unwrap().key(), "a");
}

/// Each of them is a sample that is lost; those beside them are whole.
#[test]
fn names_that_are_not_utf8_spoil_their_samples_only() {
    let file = |name: &[u8], kind| {
        let mut header = header("", kind, 0);
        header.as_old_mut().name[..name.len()].copy_from_slice(name);
        raw(&header, b"")
    };
    let bytes = [
        file(b"a.txt", EntryType::Regular),
        file(b"d.\xff/", EntryType::Directory),
        file(b"README-\xff", EntryType::Regular),
        file(b"a.cls", EntryType::Regular),
        file(b"\xfe.cls", EntryType::Regular),
        file(b"\xfe.txt", EntryType::Regular),
        file(b"\xff.txt", EntryType::Regular),
        file("猫.cls".as_bytes(), EntryType::Regular),
        file(b"\xe7\x8c\xab.\xff", EntryType::Regular),
        file("猫.txt".as_bytes(), EntryType::Regular),
        file(b"b.txt", EntryType::Regular),
        END.to_vec(),
    ]
    .concat();
    let samples = parse_whole(&bytes);
    assert_eq!(samples.len(), 5, "{samples:?}");
    assert_eq!(samples[0].as_ref().unwrap().len(), 2);
    for (sample, key) in samples[1..4].iter().zip(["\\xfe", "\\xff", "猫"]) {
        assert_eq!(sample.as_ref().unwrap_err().location().key(), Some(key));
    }
    assert_eq!(samples[4].as_ref().unwrap().position().sample, 4);
}

/// What GNU tar writes for `--label`.
#[test]
fn a_blank_size_is_none() {
    for blank in [[0; 12], [b' '; 12], *b"          \0\0"] {
        let mut label = header("volume.x", EntryType::new(b'V'), 0);
        label.as_old_mut().size = blank;
        let bytes = [raw(&label, b""), archive(&[("a.txt", b"1")])].concat();
        assert_eq!(keys(&parse_whole(&bytes)), ["a"]);
    }
}

#[test]
fn solaris_pax_headers_count() {
    let bytes = [
        extended(EntryType::new(b'X'), &pax("path", "long.txt")),
        raw(&header("short.txt", EntryType::Regular, 1), b"1"),
        END.to_vec(),
    ]
    .concat();
    assert_eq!(keys(&parse_whole(&bytes)), ["long"]);
}

/// Only GNU's own header has other things where the prefix stands in a ustar header.
#[test]
fn a_prefix_counts_in_any_version_of_ustar() {
    for (magic, expected) in [
        (b"ustar\x0000", "dir/a"),
        (b"ustar\0\0\0", "dir/a"),
        (b"ustar\0  ", "dir/a"),
        (b"ustar   ", "dir/a"),
        (b"ustar  \0", "a"),
        (&[0; 8], "a"),
    ] {
        let mut file = header("a.txt", EntryType::Regular, 0);
        file.as_mut_bytes()[257..265].copy_from_slice(magic);
        file.as_mut_bytes()[345..348].copy_from_slice(b"dir");
        assert_eq!(keys(&parse_whole(&[raw(&file, b""), END.to_vec()].concat())), [expected], "{magic:?}");
    }
}

#[test]
fn global_pax_headers_add_up() {
    let bytes = [
        extended(EntryType::XGlobalHeader, &pax("size", "1")),
        extended(EntryType::XGlobalHeader, &pax("comment", "no size")),
        raw(&header("a.txt", EntryType::Regular, 0), b"a"),
        extended(EntryType::XGlobalHeader, &pax("size", "2")),
        raw(&header("b.txt", EntryType::Regular, 0), b"bb"),
        END.to_vec(),
    ]
    .concat();
    let sizes: Vec<usize> =
        parse_whole(&bytes).iter().map(|sample| sample.as_ref().unwrap().size()).collect();
    assert_eq!(sizes, [1, 2]);
}

#[test]
fn archives_may_be_concatenated() {
    let one = archive(&[("a.txt", b"1"), ("b.txt", b"2")]);
    let two = archive(&[("c.txt", b"3")]);
    assert_eq!(keys(&parse_whole(&[one.clone(), two].concat())), ["a", "b", "c"]);
    // A sample does not reach over the end of an archive.
    let again = archive(&[("b.cls", b"3")]);
    let samples = parse_whole(&[one, again].concat());
    assert!(matches!(samples[2].as_ref().unwrap_err().kind(), ErrorKind::ScatteredSample));
}

#[test]
fn empty_archives() {
    assert!(parse_whole(&END).is_empty());
    assert!(parse_whole(&[0; 10_240]).is_empty());
    assert!(matches!(only_error(parse_whole(b"")).kind(), ErrorKind::Truncated { missing: 512 }));
}

#[test]
fn what_is_no_archive_is_refused() {
    let error = only_error(parse_whole(&[b'x'; 2000]));
    assert!(matches!(error.kind(), ErrorKind::Checksum), "{error}");
    assert_eq!(error.location().offset(), Some(0));
    let trailing = [archive(&[("a.txt", b"1")]), b"garbage".repeat(100)].concat();
    let samples = parse_whole(&trailing);
    assert_eq!(samples[0].as_ref().unwrap().key(), "a");
    assert!(matches!(only_error(samples).kind(), ErrorKind::Checksum));
}

#[test]
fn hostile_headers_are_refused() {
    let file = raw(&header("a.txt", EntryType::Regular, 1), b"a");
    let mut negative = header("n.txt", EntryType::Regular, 0);
    negative.as_old_mut().size = [0xff; 12];
    let mut huge = header("h.txt", EntryType::Regular, 0);
    huge.as_old_mut().size = [0x80, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff];
    let mut letters = header("l.txt", EntryType::Regular, 0);
    letters.as_old_mut().size = *b"0000000zzzz ";
    let long = extended(EntryType::GNULongName, b"x.txt\0");
    let path = extended(EntryType::XHeader, &pax("path", "y.txt"));
    for (what, bytes) in [
        ("negative size", raw(&negative, b"")),
        ("size beyond the address space", raw(&huge, b"")),
        ("size of letters", raw(&letters, b"")),
        ("huge extension", raw(&header("e", EntryType::XHeader, 1 << 30), b"")),
        ("pax size of letters", [extended(EntryType::XHeader, &pax("size", "zz")), file.clone()].concat()),
        (
            "pax size of a terabyte",
            [extended(EntryType::XHeader, &pax("size", "1099511627776")), file.clone()].concat(),
        ),
        ("broken pax record", [extended(EntryType::XHeader, b"99 path=x\n"), file.clone()].concat()),
        ("signed pax length", [extended(EntryType::XHeader, b"+10 path=x\n"), file.clone()].concat()),
        ("pax record without a key", [extended(EntryType::XHeader, b"6 path\n"), file.clone()].concat()),
        ("empty pax record", [extended(EntryType::XHeader, b"\n12 path=abcd\n"), file.clone()].concat()),
        ("extension at the end", [long.clone(), END.to_vec()].concat()),
        ("two pax headers", [path.clone(), path.clone(), file.clone()].concat()),
        ("two names", [long.clone(), path, file.clone()].concat()),
        ("sparse", raw(&header("s.txt", EntryType::GNUSparse, 1), b"s")),
        ("pax sparse", [extended(EntryType::XHeader, &pax("GNU.sparse.major", "1")), file.clone()].concat()),
        ("multi-volume", raw(&header("m.txt", EntryType::new(b'M'), 1), b"m")),
    ] {
        let samples = parse_whole(&[bytes, file.clone(), END.to_vec()].concat());
        let error = only_error(samples);
        assert!(matches!(error.kind(), ErrorKind::Header(_) | ErrorKind::TooLarge { .. }), "{what}: {error}");
        assert!(error.location().offset().is_some(), "{what}: {error}");
    }
}

#[test]
fn members_beyond_the_limit_are_refused() {
    let limits = Limits { member: 10, ..Limits::default() };
    let bytes = Bytes::from(archive(&[("a.txt", &[0; 10]), ("b.txt", &[0; 11])]));
    let parser = SampleParser::new("s").with_limits(limits);
    let error = only_error(read([Ok(bytes)].into_iter(), parser).collect());
    assert!(matches!(error.kind(), ErrorKind::TooLarge { size: 11, limit: 10, .. }));
}

/// Every byte at which an archive can be cut: an error, or (from the end marker on) all samples.
#[test]
fn a_cut_anywhere_is_an_error() {
    let bytes = [
        extended(EntryType::XHeader, &pax("mtime", "1.5")),
        raw(&header("a.txt", EntryType::Regular, 3), b"aaa"),
        raw(&header("a.cls", EntryType::Regular, 600), &[1; 600]),
        raw(&header("b.txt", EntryType::Regular, 0), b""),
        raw(&header("b.cls", EntryType::Regular, 512), &[2; 512]),
        END.to_vec(),
    ]
    .concat();
    let whole = shown(&parse_whole(&bytes));
    let marker = bytes.len() - END.len();
    for cut in 0..bytes.len() {
        let samples = parse_whole(&bytes[..cut]);
        if cut >= marker + 512 {
            assert_eq!(shown(&samples), whole, "cut at {cut}");
            continue;
        }
        let good = samples.iter().filter(|sample| sample.is_ok()).count();
        assert_eq!(shown(&samples[..good]), whole[..good], "cut at {cut}");
        // The last sample is never given out, even when its last member came whole.
        assert!(good <= 1, "cut at {cut}");
        let error = only_error(samples);
        let ErrorKind::Truncated { missing } = *error.kind() else { panic!("cut at {cut}: {error}") };
        assert_eq!(error.location().offset(), Some(cut as u64));
        assert!(missing > 0 && cut as u64 + missing <= bytes.len() as u64);
    }
}

/// Every byte at which an archive can come in two chunks, with every kind of header.
#[test]
fn two_chunks_are_the_same_as_one() {
    let bytes = [
        extended(EntryType::XGlobalHeader, &pax("comment", "a commit")),
        extended(EntryType::XHeader, &[pax("mtime", "1.5"), pax("path", "d/long.txt")].concat()),
        raw(&header("a.txt", EntryType::Regular, 700), &[1; 700]),
        extended(EntryType::GNULongName, b"d/long.cls\0"),
        raw(&header("a.cls", EntryType::Regular, 1), b"7"),
        raw(&header("dir/", EntryType::Directory, 0), b""),
        raw(&header("e.txt", EntryType::Regular, 0), b""),
        raw(&header("e.TXT", EntryType::Regular, 1), b"a duplicate"),
        raw(&header("f.txt", EntryType::Regular, 512), &[2; 512]),
        END.to_vec(),
        archive(&[("g.txt", b"another archive")]),
    ]
    .concat();
    let whole = shown(&parse_whole(&bytes));
    assert_eq!(whole.len(), 4);
    for cut in 0..=bytes.len() {
        assert_eq!(shown(&parse(chunks(&bytes, &[cut]))), whole, "cut at {cut}");
    }
}

/// Every bit of every header: a flip is noticed, or changes nothing.
#[test]
fn a_flipped_bit_in_a_header_is_noticed() {
    let bytes = archive(&[("a.txt", b"1"), ("a.cls", b"2"), ("b.txt", b"3")]);
    let whole = shown(&parse_whole(&bytes));
    for header in [0, 1024, 2048] {
        for bit in 0..512 * 8 {
            let mut damaged = bytes.clone();
            damaged[header + bit / 8] ^= 1 << (bit % 8);
            let samples = parse_whole(&damaged);
            let noticed = samples.iter().any(Result::is_err);
            assert!(noticed || shown(&samples) == whole, "bit {bit} of the header at {header}");
        }
    }
}

#[test]
fn an_error_of_the_source_says_where_and_loses_nothing_before_it() {
    let bytes = archive(&[("a.txt", b"1"), ("b.txt", b"2"), ("c.txt", b"3")]);
    let chunks =
        [Ok(Bytes::copy_from_slice(&bytes[..2100])), Err(ErrorKind::Checksum.into()), Ok(Bytes::new())];
    let samples: Vec<_> = read(chunks.into_iter(), SampleParser::new("s.tar")).collect();
    assert_eq!(samples.len(), 2);
    assert_eq!(samples[0].as_ref().unwrap().key(), "a");
    let error = samples[1].as_ref().unwrap_err();
    assert_eq!((error.location().offset(), error.location().key()), (Some(2100), Some("b")));
}

/// A few samples with names and contents of all sorts.
fn members() -> impl Strategy<Value = Vec<(String, Vec<u8>)>> {
    let name = prop_oneof!["[a-c]{1,2}", "[a-c]/[a-c]{1,3}", "[a-z]{120,130}", "[é-í]{1,3}/[x-z]"];
    let extension = prop_oneof!["[a-c]{1,3}", Just("SEG.png".into())];
    let content = prop::collection::vec(any::<u8>(), 0..1500);
    prop::collection::vec(((name, extension), content), 0..8).prop_map(|members| {
        members
            .into_iter()
            .map(|((name, extension), content)| (format!("{name}.{extension}"), content))
            .collect()
    })
}

fn chunks(bytes: &[u8], cuts: &[usize]) -> Vec<Bytes> {
    let mut cuts: Vec<usize> =
        cuts.iter().map(|cut| cut % (bytes.len() + 1)).chain([0, bytes.len()]).collect();
    cuts.sort_unstable();
    cuts.windows(2).map(|pair| Bytes::copy_from_slice(&bytes[pair[0]..pair[1]])).collect()
}

fn built(members: &[(String, Vec<u8>)]) -> Vec<u8> {
    archive(&members.iter().map(|(name, content)| (&**name, &**content)).collect::<Vec<_>>())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn however_it_is_cut(members in members(), cuts in prop::collection::vec(any::<usize>(), 0..30)) {
        let bytes = built(&members);
        let whole = shown(&parse_whole(&bytes));
        prop_assert_eq!(shown(&parse(chunks(&bytes, &cuts))), whole.clone());
        let stream = futures::stream::iter(chunks(&bytes, &cuts).into_iter().map(Ok));
        let streamed: Vec<_> = block_on_stream(read(stream, SampleParser::new("s.tar"))).collect();
        prop_assert_eq!(shown(&streamed), whole);
    }

    #[test]
    fn byte_by_byte(members in members()) {
        let bytes = built(&members);
        let single: Vec<Bytes> = bytes.iter().map(|&byte| Bytes::copy_from_slice(&[byte])).collect();
        prop_assert_eq!(shown(&parse(single)), shown(&parse_whole(&bytes)));
    }

    #[test]
    fn any_bytes_end_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..4096)) {
        parse_whole(&bytes);
    }

    #[test]
    fn any_damage_ends_without_a_panic(
        members in members(),
        damage in prop::collection::vec((any::<usize>(), any::<u8>()), 1..20),
        fix in any::<bool>(),
    ) {
        let mut bytes = built(&members);
        for (at, byte) in damage {
            let at = at % bytes.len();
            bytes[at] = byte;
            if fix {
                // Damage behind a right checksum reaches deeper.
                let at = at / 512 * 512;
                let mut header = Header::from_byte_slice(&bytes[at..at + 512]).clone();
                header.set_cksum();
                bytes[at..at + 512].copy_from_slice(header.as_bytes());
            }
        }
        parse_whole(&bytes);
    }
}
