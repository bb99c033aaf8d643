//! Archivers write different kinds of headers. The parser reads each kind as its archiver defines it.

use super::*;

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
        // Names of more than 100 characters: in the prefix field, as GNU long name, as pax path.
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

/// The pax header gives a larger size than the ustar header. A reader that ignores the pax size misreads a
/// header inside the content as a member (CVE-2025-62518).
#[test]
fn a_pax_size_wins_over_the_size_in_the_header() {
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

/// The end of a pax record follows from its length alone: a line break in a value neither ends nor begins a
/// record.
#[test]
fn pax_values_may_contain_line_breaks() {
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
    let samples = parse_with(several(), [bytes.into()]);
    let sizes: Vec<usize> = samples.iter().map(|sample| sample.as_ref().unwrap().size()).collect();
    assert_eq!(sizes, [2, 1, 3]);
}

/// Python's `tarfile` refuses such an archive.
#[test]
fn a_global_pax_header_may_be_the_last_one() {
    let global = extended(EntryType::XGlobalHeader, &pax("comment", "git"));
    let file = raw(&header("a.txt", EntryType::Regular, 1), b"1");
    assert_eq!(keys(&parse_whole(&[file, global.clone(), END.to_vec()].concat())), ["a"]);
    assert!(parse_whole(&[global, END.to_vec()].concat()).is_empty());
}

/// Like Python's `tarfile`, the parser removes trailing slashes from a path in a pax record. A name in the
/// tar header itself keeps its trailing slash. A member whose name ends with a slash is not part of a sample.
#[test]
fn trailing_slashes_of_a_pax_path_are_removed() {
    let bytes = [
        extended(EntryType::XHeader, &pax("path", "d/a.txt//")),
        raw(&header("short", EntryType::Regular, 1), b"1"),
        raw(&header("b.txt/", EntryType::Regular, 1), b"2"),
        extended(EntryType::XHeader, &pax("path", "/")),
        raw(&header("c.txt", EntryType::Regular, 1), b"3"),
        END.to_vec(),
    ]
    .concat();
    assert_eq!(keys(&parse_whole(&bytes)), ["d/a"]);
}

#[test]
fn members_that_are_no_files_are_skipped() {
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

/// With `--label`, GNU tar writes a volume label whose size is blank.
#[test]
fn a_blank_size_means_zero() {
    for blank in [[0; 12], [b' '; 12], *b"          \0\0"] {
        let mut label = header("volume.x", EntryType::new(b'V'), 0);
        label.as_old_mut().size = blank;
        let bytes = [raw(&label, b""), archive(&[("a.txt", b"1")])].concat();
        assert_eq!(keys(&parse_whole(&bytes)), ["a"]);
    }
}

#[test]
fn solaris_pax_headers_are_read() {
    let bytes = [
        extended(EntryType::new(b'X'), &pax("path", "long.txt")),
        raw(&header("short.txt", EntryType::Regular, 1), b"1"),
        END.to_vec(),
    ]
    .concat();
    assert_eq!(keys(&parse_whole(&bytes)), ["long"]);
}

/// A header with any version after `ustar` has a prefix field. Only GNU's own header (`ustar`, two spaces,
/// NUL) has other fields in its place.
#[test]
fn the_prefix_is_read_in_any_version_of_ustar() {
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
fn a_later_global_pax_header_keeps_values_that_it_does_not_set() {
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
