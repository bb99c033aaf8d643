//! Members are grouped into samples.

use super::*;

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
    let shown = |sample: &Result<Sample>| {
        let sample = sample.as_ref().unwrap();
        format!("{sample:?} {:?}", sample.position())
    };
    assert_eq!(
        samples.iter().map(shown).collect::<Vec<_>>(),
        [
            r#"{"__key__": "d/a", "__url__": "s.tar", "jpg": b"jpg", "cls": b"1"} "#,
            r#"{"__key__": "d/b", "__url__": "s.tar", "seg.png": b""} "#,
        ]
        .iter()
        .enumerate()
        .map(|(at, text)| format!(
            "{text}Position {{ epoch: 0, shard: 0, sample: {at}, part: 0, dataset: 0 }}"
        ))
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
fn a_link_is_an_error_of_its_sample_only() {
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
fn a_duplicate_field_is_an_error_of_its_sample_only() {
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

#[test]
fn a_duplicate_among_100_fields_is_found() {
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
fn a_key_repeated_after_another_key_is_an_error() {
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

/// Each error loses one sample; the samples before and after it are complete.
#[test]
fn names_that_are_not_utf8_are_errors_of_their_samples_only() {
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

#[test]
fn archives_may_be_concatenated_if_the_limit_allows_it() {
    let one = archive(&[("a.txt", b"1"), ("b.txt", b"2")]);
    let two = archive(&[("c.txt", b"3")]);
    let three = archive(&[("d.txt", b"4")]);
    let bytes = Bytes::from([one.clone(), two, three].concat());
    for (archives, expected) in
        [(u64::MAX, &["a", "b", "c", "d"][..]), (3, &["a", "b", "c", "d"]), (2, &["a", "b"])]
    {
        let mut samples = parse_with(Limits { archives, ..Limits::default() }, [bytes.clone()]);
        let error = samples.pop_if(|last| last.is_err()).map(Result::unwrap_err);
        assert_eq!(keys(&samples), expected);
        assert_eq!(error.is_none(), archives > 2);
    }
    let error = only_error(parse([bytes]));
    assert!(matches!(error.kind(), ErrorKind::ArchiveEnd(_)), "{error}");
    assert_eq!(error.location().offset(), Some(one.len() as u64));
    // A sample does not span two archives.
    let again = archive(&[("b.cls", b"3")]);
    let samples = parse_with(several(), [Bytes::from([one, again].concat())]);
    assert_eq!(keys(&samples[..2]), ["a", "b"]);
    assert!(matches!(samples[2].as_ref().unwrap_err().kind(), ErrorKind::ScatteredSample));
}
