//! Archives whose members are in any order.

use super::properties::{built, chunks, members};
use super::*;
use crate::error::SizeLimit;
use proptest::prelude::*;
use std::collections::BTreeMap;

fn unsorted(distance: u64) -> Limits {
    Limits { unsorted: distance, ..Limits::default() }
}

fn parse_unsorted(distance: u64, bytes: &[u8]) -> Vec<Result<Sample>> {
    parse_with(unsorted(distance), [Bytes::copy_from_slice(bytes)])
}

/// The fields of each sample, by key.
fn by_key(samples: &[Result<Sample>]) -> BTreeMap<String, BTreeMap<String, Vec<u8>>> {
    let fields = |sample: &Sample| {
        let bytes = |value: &crate::Value| value.as_bytes().unwrap().to_vec();
        sample.fields().map(|(name, value)| (name.to_owned(), bytes(value))).collect()
    };
    samples.iter().flatten().map(|sample| (sample.key().to_owned(), fields(sample))).collect()
}

/// Returns what the outline finds, as text: number, key and fields of each sample, and the message of each
/// error. Also returns whether the outline is seekable.
fn outlined(limits: Limits, bytes: &[u8]) -> (Vec<String>, bool) {
    let mut outline = Outline::new("s.tar").with_limits(limits);
    outline.push(Bytes::copy_from_slice(bytes));
    outline.finish();
    let mut found = Vec::new();
    loop {
        match outline.next() {
            Ok(Parsed::Sample(sample)) => {
                let fields: Vec<_> =
                    sample.fields.iter().map(|(name, field)| (&**name, field.end - field.start)).collect();
                found.push(format!("{} {} {fields:?}", sample.number, sample.key));
            }
            Ok(Parsed::End) => return (found, outline.seekable()),
            Ok(Parsed::NeedInput) => unreachable!(),
            Err(error) => found.push(error.to_string()),
        }
    }
}

fn parsed(samples: &[Result<Sample>]) -> Vec<String> {
    let shown = |sample: &Sample| {
        let size = |value: &crate::Value| value.as_bytes().unwrap().len() as u64;
        let fields: Vec<_> = sample.fields().map(|(name, value)| (name, size(value))).collect();
        format!("{} {} {fields:?}", sample.position().sample, sample.key())
    };
    samples.iter().map(|sample| sample.as_ref().map_or_else(ToString::to_string, shown)).collect()
}

/// An archive of files. The content of each file is its name. The archive is not made by `tar::Builder`,
/// because that would drop the `./`.
fn dotted(names: &[&str]) -> Vec<u8> {
    let file = |name: &&str| raw(&header(name, EntryType::Regular, name.len()), name.as_bytes());
    names.iter().map(file).chain([END.to_vec()]).collect::<Vec<_>>().concat()
}

/// `tar -cf x.tar .` writes members in the order of the directory, each with a `./` before its name.
#[test]
fn samples_are_returned_in_the_order_of_their_first_members() {
    let names = ["./b.txt", "./a.txt", "./__MACOSX/b.cls", "./c.txt", "./a.cls", "./d/e.txt", "./b.CLS"];
    let bytes = dotted(&names);
    let samples = parse_unsorted(1 << 20, &bytes);
    assert_eq!(
        parsed(&samples),
        [
            r#"0 b [("txt", 7), ("cls", 7)]"#,
            r#"1 a [("txt", 7), ("cls", 7)]"#,
            r#"2 __MACOSX/b [("cls", 16)]"#,
            r#"3 c [("txt", 7)]"#,
            r#"4 d/e [("txt", 9)]"#,
        ]
    );
    let without = parse_whole(&bytes);
    assert_eq!(without[0].as_ref().unwrap().key(), "./b", "as webdataset reads it");
    let error = without.iter().find_map(|sample| sample.as_ref().err()).unwrap();
    assert!(error.to_string().contains("`shardstream reshard --limit unsorted=1GiB`"), "{error}");
    assert!(!outlined(unsorted(1 << 20), &bytes).1, "mixed samples have no byte ranges");
    // Samples of a sorted archive have byte ranges for any limit.
    assert!(outlined(unsorted(1 << 20), &dotted(&["./a.cls", "./a.txt", "./b.cls"])).1);
}

#[test]
fn a_member_beyond_the_distance_is_an_error_that_names_the_option() {
    // Each member takes 1024 bytes: `a.cls` begins 2048 bytes after `a.txt`, and `a.npy` 4096.
    let bytes =
        archive(&[("a.txt", b"1"), ("b.txt", b"2"), ("a.cls", b"3"), ("c.txt", b"4"), ("a.npy", b"5")]);
    assert_eq!(by_key(&parse_unsorted(4096, &bytes))["a"].len(), 3);
    let samples = parse_unsorted(2048, &bytes);
    assert_eq!(by_key(&samples).len(), 3);
    let error = only_error(samples);
    let ErrorKind::TooLarge { what: SizeLimit::MemberDistance, size: 4096, limit: 2048 } = error.kind()
    else {
        panic!("{error:?}")
    };
    let at = error.location();
    assert_eq!((at.shard(), at.member(), at.key()), (Some("s.tar"), Some("a.npy"), Some("a")));
    assert_eq!(at.offset(), Some(4096));
    assert!(error.to_string().contains("--limit unsorted=SIZE"), "{error}");
    // If the members of a sample are adjacent, their total size may exceed the maximum distance.
    let large = archive(&[("a.txt", &[1; 5000]), ("a.cls", &[2; 5000]), ("a.npy", b"3"), ("b.txt", b"4")]);
    assert_eq!(by_key(&parse_unsorted(1, &large))["a"].len(), 3);
}

#[test]
fn samples_are_held_only_within_the_distance() {
    let names: Vec<String> = (0..100).map(|n| format!("{n}.txt")).collect();
    let members: Vec<(&str, &[u8])> = names.iter().map(|name| (name.as_str(), &b"1"[..])).collect();
    let mut parser = SampleParser::new("s.tar").with_limits(unsorted(10 * 1024));
    let mut returned = 0;
    for (at, chunk) in archive(&members).chunks(1024).enumerate() {
        parser.push(chunk.to_vec().into());
        while let Parsed::Sample(_) = parser.next().unwrap() {
            returned += 1;
        }
        assert!(at.min(99) - returned.min(99) <= 11, "{at} {returned}");
    }
}

#[test]
fn a_key_repeated_in_another_archive_is_an_error() {
    let bytes = [archive(&[("a.txt", b"1"), ("b.txt", b"2")]), archive(&[("a.cls", b"3"), ("c.txt", b"4")])];
    let limits = Limits { archives: 2, ..unsorted(1 << 20) };
    let samples = parse_with(limits, [bytes.concat().into()]);
    assert_eq!(by_key(&samples).len(), 3);
    assert!(matches!(only_error(samples).kind(), ErrorKind::ScatteredSample));
}

#[test]
fn a_name_that_is_too_long_drops_only_samples_that_it_may_belong_to() {
    let name = format!("{}.jpg", "k".repeat(90_000));
    let limits = Limits { extension: 1000, ..unsorted(1 << 20) };
    let plain = |name: &str| raw(&header(name, EntryType::Regular, 1), b"1");
    let bytes = [
        plain("a.txt"),
        extended(EntryType::GNULongName, format!("{name}\0").as_bytes()),
        plain("x.jpg"),
        plain("b.txt"),
        plain("a.cls"),
        END.to_vec(),
    ];
    let samples = parse_with(limits, [bytes.concat().into()]);
    assert_eq!(by_key(&samples).into_keys().collect::<Vec<_>>(), ["a", "b"]);
    assert!(matches!(only_error(samples).kind(), ErrorKind::TooLarge { .. }));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn an_unsorted_archive_has_the_samples_of_the_sorted_one(
        (members, shuffled) in members().prop_flat_map(|members| {
            (Just(members.clone()), Just(members).prop_shuffle())
        }),
        cuts in prop::collection::vec(any::<usize>(), 0..20),
    ) {
        let mut sorted = members;
        sorted.sort();
        sorted.sort_by(|one, other| split_name(&one.0).cmp(&split_name(&other.0)));
        let expected = parse_whole(&built(&sorted));
        let bytes = built(&shuffled);
        let samples = parse_unsorted(1 << 20, &bytes);
        // A repeated member is an error of its sample in both archives.
        prop_assert_eq!(by_key(&samples), by_key(&expected));
        let pieces = parse_with(unsorted(1 << 20), chunks(&bytes, &cuts));
        prop_assert_eq!(shown(&pieces), shown(&samples));
        prop_assert_eq!(outlined(unsorted(1 << 20), &bytes).0, parsed(&samples));
        for limit in [1, 600, 1500, 4000] {
            prop_assert_eq!(outlined(unsorted(limit), &bytes).0, parsed(&parse_unsorted(limit, &bytes)));
        }
    }

    /// No returned sample lacks a member.
    #[test]
    fn a_cut_archive_returns_only_whole_samples(members in members().prop_shuffle(), cut in any::<usize>()) {
        let bytes = built(&members);
        let whole = by_key(&parse_unsorted(1 << 20, &bytes));
        let samples = parse_unsorted(1 << 20, &bytes[..cut % bytes.len()]);
        prop_assert!(by_key(&samples).iter().all(|(key, fields)| whole.get(key) == Some(fields)));
    }
}
