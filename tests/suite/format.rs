//! The rules of the format as tables: names of members, grouping into samples, and damage.

use crate::support::names::{ALIKE, HIDDEN};
use crate::support::{archive, content, files, member, read_bytes};
use shardstream::{Error, Result, Sample};
use tar::EntryType;

fn kind(error: &Error) -> String {
    let kind = format!("{:?}", error.kind());
    kind.split(|c: char| !c.is_alphanumeric()).next().unwrap().to_owned()
}

/// Splits results into the good samples and the error after them, if any.
fn good_and_error(mut samples: Vec<Result<Sample>>) -> (Vec<Sample>, Option<Error>) {
    let error = samples.pop_if(|last| last.is_err()).map(Result::unwrap_err);
    (samples.into_iter().collect::<Result<_>>().expect("an error ends the shard"), error)
}

#[test]
fn member_names_are_split_into_key_and_field() {
    let hidden = HIDDEN.iter().map(|(name, _)| (*name, None));
    for (name, expected) in ALIKE.iter().copied().chain(hidden) {
        let samples: Vec<Sample> = read_bytes(&files(&[name])).into_iter().collect::<Result<_>>().unwrap();
        let content = content(&samples);
        let found = content.first().map(|(key, fields)| (key.as_str(), fields[0].0.as_str()));
        assert_eq!(found, expected, "{name}");
    }
}

/// The members of an archive; and the expected samples as keys with fields, or the kind of an error.
type Grouping = (&'static [&'static str], &'static [&'static str]);

const GROUPINGS: &[Grouping] = &[
    (&[], &[]),
    (&["a.txt", "a.cls", "b.txt"], &["a: txt cls", "b: txt"]),
    (&["d/a.txt", "a.txt", "D/a.txt"], &["d/a: txt", "a: txt", "D/a: txt"]),
    (&["a.txt", "README", "a.cls", "__x__/b.txt", "a.jpg"], &["a: txt cls jpg"]),
    (&["a.txt", "d/.hidden.txt", "a.cls"], &["a: txt cls"]),
    (&["a.png", "a.seg.png", "a.seg"], &["a: png seg.png seg"]),
    (&["a.TXT", "a.Cls"], &["a: txt cls"]),
    (&["a.txt", "b.txt", "b.TXT", "b.cls", "c.txt"], &["a: txt", "DuplicateMember", "c: txt"]),
    (&["a.txt", "a.txt"], &["DuplicateMember"]),
    (&["a.txt", "b.txt", "a.cls", "a.jpg", "c.txt"], &["a: txt", "b: txt", "ScatteredSample", "c: txt"]),
];

#[test]
fn members_are_grouped_by_key() {
    for (members, expected) in GROUPINGS {
        let shown = |sample: &Result<Sample>| match sample {
            Ok(sample) => {
                let fields: Vec<&str> = sample.fields().map(|(name, _)| name).collect();
                format!("{}: {}", sample.key(), fields.join(" "))
            }
            Err(error) => kind(error),
        };
        let found: Vec<String> = read_bytes(&files(members)).iter().map(shown).collect();
        assert_eq!(found, *expected, "{members:?}");
    }
}

#[test]
fn directories_contribute_no_fields() {
    let bytes = [
        member("a.d/", EntryType::Directory, b""),
        member("a.d/a.txt", EntryType::Regular, b"1"),
        vec![0; 1024],
    ];
    let (good, error) = good_and_error(read_bytes(&bytes.concat()));
    assert_eq!((good.len(), error.is_none()), (1, true));
}

/// An archive of three samples `s0` to `s2` with the fields `cls` and `txt`: 1024 bytes per member, 2048 per
/// sample.
fn sound() -> Vec<u8> {
    archive(&[0, 1, 2].map(|i| Sample::new(format!("s{i}")).with("cls", i).with("txt", "text")))
}

/// A kind of damage: its name, the damaged archive, the expected number of good samples, and the kind and
/// offset of the error after them.
type Damage = (&'static str, Vec<u8>, usize, Option<(&'static str, u64)>);

/// A star in the name marks damage for which Python's `webdataset` reports no error. `webdataset` then
/// usually returns an incomplete sample.
fn damages() -> Vec<Damage> {
    let cut = |length: usize| sound()[..length].to_vec();
    let with = |at: usize, byte: u8| {
        let mut bytes = sound();
        bytes[at] = byte;
        bytes
    };
    let zeros = |zeros: std::ops::Range<usize>| {
        let mut bytes = sound();
        bytes[zeros].fill(0);
        bytes
    };
    let followed = |by: &[u8]| [&sound(), by].concat();
    let whole = sound().len() as u64;
    let other = archive(&[Sample::new("t0").with("cls", 1)]);
    let again = archive(&[Sample::new("s2").with("jpg", b"")]);
    vec![
        ("none", sound(), 3, None),
        ("empty file", vec![], 0, Some(("Truncated", 0))),
        ("zeros *", vec![0; 10_240], 0, None),
        ("garbage", b"garbage ".repeat(100), 0, Some(("NotAnArchive", 0))),
        ("short garbage", b"garbage".to_vec(), 0, Some(("Truncated", 7))),
        ("cut between members *", cut(3072), 1, Some(("Truncated", 3072))),
        ("cut between samples *", cut(4096), 1, Some(("Truncated", 4096))),
        ("cut in a header *", cut(4096 + 100), 1, Some(("Truncated", 4196))),
        ("cut before the data", cut(4096 + 512), 2, Some(("Truncated", 4608))),
        ("cut in the data", cut(3072 + 514), 1, Some(("Truncated", 3586))),
        ("cut in the padding", cut(3072 + 600), 1, Some(("Truncated", 3672))),
        ("no end marker *", cut(6144), 2, Some(("Truncated", 6144))),
        ("half an end block *", cut(6144 + 256), 2, Some(("Truncated", 6400))),
        ("an end marker of one block *", cut(6144 + 512), 2, Some(("Truncated", 6656))),
        ("half of the second end block *", cut(6144 + 768), 2, Some(("Truncated", 6912))),
        ("no padding after the end marker", cut(6144 + 1024), 3, None),
        ("a wrong name *", with(2048, b'x'), 0, Some(("Checksum", 2048))),
        ("a wrong name in mid-sample *", with(3072, b'x'), 1, Some(("Checksum", 3072))),
        ("a wrong size *", with(3072 + 130, b'1'), 1, Some(("Checksum", 3072))),
        ("garbage at the end *", followed(&b"garbage ".repeat(100)), 2, Some(("ArchiveEnd", whole))),
        ("short garbage at the end *", followed(b"garbage"), 2, Some(("ArchiveEnd", whole))),
        ("two archives *", followed(&other), 2, Some(("ArchiveEnd", whole))),
        ("a sample across two archives *", followed(&again), 2, Some(("ArchiveEnd", whole))),
        ("a header of zeros *", zeros(2048..2560), 0, Some(("ArchiveEnd", 2048))),
        ("a header and a body of zeros *", zeros(3072..4096), 1, Some(("ArchiveEnd", 4096))),
        ("a sample of zeros *", zeros(2048..4096), 0, Some(("ArchiveEnd", 4096))),
        ("zeros up to a body *", zeros(3072..4608), 1, Some(("ArchiveEnd", 4608))),
        ("zeros from the beginning *", zeros(0..4096), 0, Some(("ArchiveEnd", 4096))),
        ("zeros after the padding", followed(&[0; 512]), 3, None),
        ("a mebibyte of zeros after it *", followed(&[0; 1 << 20]), 2, Some(("ArchiveEnd", 6144))),
        ("padding to records of a mebibyte", followed(&vec![0; (1 << 20) - 10_240]), 3, None),
        ("nothing but zeros *", vec![0; 20_480], 0, Some(("ArchiveEnd", 0))),
    ]
}

#[test]
fn damage_is_an_error_at_its_offset() {
    for (what, bytes, count, expected) in damages() {
        let (good, error) = good_and_error(read_bytes(&bytes));
        assert_eq!(good.len(), count, "{what}: samples");
        for (i, sample) in good.iter().take(3).enumerate() {
            assert_eq!((sample.key(), sample.len()), (&*format!("s{i}"), 2), "{what}");
        }
        let found = error.as_ref().map(|error| (kind(error), error.location().offset().unwrap()));
        assert_eq!(found, expected.map(|(kind, offset)| (kind.to_owned(), offset)), "{what}: {error:?}");
    }
}

/// An archive that is cut anywhere gives the complete samples before the cut, then an error.
#[test]
fn a_cut_anywhere_is_truncation() {
    let bytes = sound();
    for cut in (0..6144 + 512).step_by(3) {
        let (good, error) = good_and_error(read_bytes(&bytes[..cut]));
        assert!(
            good.len() * 2048 < cut.max(1) && good.iter().all(|sample| sample.len() == 2),
            "cut at {cut}"
        );
        let error = error.unwrap_or_else(|| panic!("cut at {cut}: no error"));
        assert_eq!((&*kind(&error), error.location().offset()), ("Truncated", Some(cut as u64)));
    }
}

#[test]
#[cfg(feature = "gzip")]
fn a_compressed_shard_cut_anywhere_is_an_error() {
    use std::io::Write;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::none());
    encoder.write_all(&sound()).unwrap();
    let bytes = encoder.finish().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let mut most = 0;
    for cut in (0..bytes.len()).step_by(97) {
        let path = dir.path().join("cut.tar.gz");
        std::fs::write(&path, &bytes[..cut]).unwrap();
        let (good, error) = good_and_error(crate::support::read_samples(&path));
        assert!(good.iter().all(|sample| sample.len() == 2));
        assert!(error.is_some(), "cut at {cut}");
        most = most.max(good.len());
    }
    assert_eq!(most, 2, "whole samples before the last cut");
}
