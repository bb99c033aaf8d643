//! Properties of all archives, for bytes that are pushed in chunks of any sizes.

use super::*;
use futures::executor::block_on_stream;
use proptest::prelude::*;

/// Up to eight members, with names in every form of header and contents of up to 1500 bytes.
pub(super) fn members() -> impl Strategy<Value = Vec<(String, Vec<u8>)>> {
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

pub(super) fn chunks(bytes: &[u8], cuts: &[usize]) -> Vec<Bytes> {
    let mut cuts: Vec<usize> =
        cuts.iter().map(|cut| cut % (bytes.len() + 1)).chain([0, bytes.len()]).collect();
    cuts.sort_unstable();
    cuts.windows(2).map(|pair| Bytes::copy_from_slice(&bytes[pair[0]..pair[1]])).collect()
}

pub(super) fn built(members: &[(String, Vec<u8>)]) -> Vec<u8> {
    archive(&members.iter().map(|(name, content)| (&**name, &**content)).collect::<Vec<_>>())
}

/// The archive has every kind of header. For each byte offset, the test parses the archive in two chunks that
/// meet at this offset.
#[test]
fn two_chunks_give_the_same_samples_as_one() {
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
    let whole = shown(&parse_with(several(), chunks(&bytes, &[])));
    assert_eq!(whole.len(), 4);
    for cut in 0..=bytes.len() {
        assert_eq!(shown(&parse_with(several(), chunks(&bytes, &[cut]))), whole, "cut at {cut}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_chunks_give_the_same_samples_as_one(
        members in members(),
        cuts in prop::collection::vec(any::<usize>(), 0..30),
    ) {
        let bytes = built(&members);
        let whole = shown(&parse_whole(&bytes));
        prop_assert_eq!(shown(&parse(chunks(&bytes, &cuts))), whole.clone());
        let stream = futures::stream::iter(chunks(&bytes, &cuts).into_iter().map(Ok));
        let streamed: Vec<_> = block_on_stream(read(stream, SampleParser::new("s.tar"))).collect();
        prop_assert_eq!(shown(&streamed), whole);
    }

    #[test]
    fn chunks_of_one_byte_give_the_same_samples_as_one(members in members()) {
        let bytes = built(&members);
        let single: Vec<Bytes> = bytes.iter().map(|&byte| Bytes::copy_from_slice(&[byte])).collect();
        prop_assert_eq!(shown(&parse(single)), shown(&parse_whole(&bytes)));
    }

    #[test]
    fn any_bytes_are_parsed_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..4096)) {
        parse_whole(&bytes);
    }

    #[test]
    fn any_damage_is_parsed_without_a_panic(
        members in members(),
        damage in prop::collection::vec((any::<usize>(), any::<u8>()), 1..20),
        fix in any::<bool>(),
    ) {
        let mut bytes = built(&members);
        for (at, byte) in damage {
            let at = at % bytes.len();
            bytes[at] = byte;
            if fix {
                // With a correct checksum, the damaged header passes the first check.
                let at = at / 512 * 512;
                let mut header = Header::from_byte_slice(&bytes[at..at + 512]).clone();
                header.set_cksum();
                bytes[at..at + 512].copy_from_slice(header.as_bytes());
            }
        }
        parse_whole(&bytes);
    }
}
