//! Damage to an archive is an error: no sample is lost silently.

use super::*;

#[test]
fn an_archive_without_members_is_valid_and_no_bytes_are_not() {
    assert!(parse_whole(&END).is_empty());
    assert!(parse_whole(&[0; 10_240]).is_empty());
    assert!(matches!(only_error(parse_whole(b"")).kind(), ErrorKind::Truncated { missing: 512 }));
}

#[test]
fn data_that_is_no_archive_is_refused() {
    let error = only_error(parse_whole(&[b'x'; 2000]));
    assert!(matches!(error.kind(), ErrorKind::NotAnArchive { .. }), "{error}");
    assert_eq!(error.location().offset(), Some(0));
    let trailing = [archive(&[("a.txt", b"1")]), b"garbage".repeat(100)].concat();
    let samples = parse_whole(&trailing);
    let error = only_error(samples);
    assert!(matches!(error.kind(), ErrorKind::ArchiveEnd(_)), "{error}");
    assert_eq!(error.location().offset(), Some(2048));
}

/// The error says what to do: add the suffix of a supported compression to the name, or use another
/// compression.
#[test]
fn compressed_data_of_any_length_is_recognised() {
    for (magic, hint) in [
        (&b"\x1f\x8b\x08\0"[..], ".tar.gz"),
        (b"\x28\xb5\x2f\xfd", ".tar.zst"),
        (b"BZh91AY&SY", "gzip"),
        (b"\xfd7zXZ\0", "zstd"),
        (b"\x04\x22\x4d\x18", "zstd"),
    ] {
        for length in [20, 511, 512, 513, 5000] {
            let bytes: Vec<u8> = magic.iter().copied().chain((1..=255).cycle()).take(length).collect();
            for chunk in [1, 5000] {
                let error = only_error(parse(bytes.chunks(chunk).map(Bytes::copy_from_slice)));
                assert!(matches!(error.kind(), ErrorKind::UnsupportedCompression(_)), "{error}");
                assert!(error.to_string().contains(hint), "{error}");
                assert_eq!(error.location().offset(), Some(0));
            }
        }
    }
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
        ("pax size of letters", [extended(EntryType::XHeader, &pax("size", "zz")), file.clone()].concat()),
        ("broken pax record", [extended(EntryType::XHeader, b"99 path=x\n"), file.clone()].concat()),
        ("signed pax length", [extended(EntryType::XHeader, b"+10 path=x\n"), file.clone()].concat()),
        ("pax record without a key", [extended(EntryType::XHeader, b"6 path\n"), file.clone()].concat()),
        ("empty pax record", [extended(EntryType::XHeader, b"\n12 path=abcd\n"), file.clone()].concat()),
        ("extension at the end", [long.clone(), END.to_vec()].concat()),
        ("two pax headers", [path.clone(), path.clone(), file.clone()].concat()),
        ("an empty long name", [extended(EntryType::GNULongName, b"\0"), file.clone()].concat()),
        ("zeros in a long name", [extended(EntryType::GNULongName, b"x\0.txt\0"), file.clone()].concat()),
        ("zeros behind a long name", [extended(EntryType::GNULongName, b"x.txt\0\0"), file.clone()].concat()),
        (
            "zeros in a pax path",
            [extended(EntryType::XHeader, &pax("path", "x\0.txt")), file.clone()].concat(),
        ),
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

/// The headers claim more bytes than the archive has, so the archive ends inside the content.
#[test]
fn a_claimed_size_beyond_the_limits_is_refused_and_then_truncated() {
    let extension = raw(&header("e", EntryType::XHeader, 1 << 30), b"");
    let error = only_error(parse_whole(&[extension, END.to_vec()].concat()));
    assert!(matches!(error.kind(), ErrorKind::Truncated { missing } if *missing > 1 << 29), "{error}");
    let file = raw(&header("a.txt", EntryType::Regular, 1), b"a");
    let found = parse_whole(
        &[extended(EntryType::XHeader, &pax("size", "1099511627776")), file, END.to_vec()].concat(),
    );
    let kinds: Vec<_> = found.iter().map(|found| found.as_ref().unwrap_err().kind().name()).collect();
    assert_eq!(kinds, ["too_large", "truncated"]);
}

#[test]
fn members_beyond_the_limit_are_refused() {
    let limits = Limits { member: 10, ..Limits::default() };
    let bytes = Bytes::from(archive(&[("a.txt", &[0; 10]), ("b.txt", &[0; 11])]));
    let parser = SampleParser::new("s").with_limits(limits);
    let error = only_error(read([Ok(bytes)].into_iter(), parser).collect());
    assert!(matches!(error.kind(), ErrorKind::TooLarge { size: 11, limit: 10, .. }));
}

#[test]
fn an_archive_cut_at_any_byte_is_an_error() {
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
    for cut in 0..bytes.len() {
        let samples = parse_whole(&bytes[..cut]);
        let good = samples.iter().filter(|sample| sample.is_ok()).count();
        assert_eq!(shown(&samples[..good]), whole[..good], "cut at {cut}");
        // The last sample is never returned, even if its last member is complete.
        assert!(good <= 1, "cut at {cut}");
        let error = only_error(samples);
        let ErrorKind::Truncated { missing } = *error.kind() else { panic!("cut at {cut}: {error}") };
        assert_eq!(error.location().offset(), Some(cut as u64));
        assert!(missing > 0 && cut as u64 + missing <= bytes.len() as u64);
    }
}

#[test]
fn a_flipped_bit_in_a_header_is_an_error_or_changes_nothing() {
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
fn an_error_of_the_source_has_offset_and_key_and_keeps_earlier_samples() {
    let bytes = archive(&[("a.txt", b"1"), ("b.txt", b"2"), ("c.txt", b"3")]);
    let chunks =
        [Ok(Bytes::copy_from_slice(&bytes[..2100])), Err(ErrorKind::Checksum.into()), Ok(Bytes::new())];
    let samples: Vec<_> = read(chunks.into_iter(), SampleParser::new("s.tar")).collect();
    assert_eq!(samples.len(), 2);
    assert_eq!(samples[0].as_ref().unwrap().key(), "a");
    let error = samples[1].as_ref().unwrap_err();
    assert_eq!((error.location().offset(), error.location().key()), (Some(2100), Some("b")));
}
