use super::super::document::tests::call_all_getters;
use super::super::selection::SelectionBuilder;
use super::super::shard_entry::ShardEntry;
use super::super::{Index, LayoutBuilder, ShardIndex};
use super::*;
use crate::error::ErrorKind;
use proptest::prelude::*;

fn written(index: &Index) -> Vec<u8> {
    let mut bytes = Vec::new();
    let entries = index.iter().cloned().map(ShardEntry::from);
    let out = |piece: &[u8]| {
        bytes.extend_from_slice(piece);
        Ok(())
    };
    write(index.len(), entries, out).unwrap();
    bytes
}

/// A document of these frames, with correct checksums.
fn document(frames: &[&[u8]]) -> Vec<u8> {
    let mut bytes = [MAGIC, &[VERSION]].concat();
    for content in frames {
        bytes.extend((content.len() as u32).to_le_bytes());
        bytes.extend(crc32c::crc32c(content).to_le_bytes());
        bytes.extend_from_slice(content);
    }
    bytes
}

/// The contents of the frames of a document.
fn frames(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    bytes = &bytes[MAGIC.len() + 1..];
    let mut frames = Vec::new();
    while let Some((length, rest)) = bytes.split_first_chunk::<4>() {
        let (content, rest) = rest[4..].split_at(u32::from_le_bytes(*length) as usize);
        frames.push(content.to_vec());
        bytes = rest;
    }
    frames
}

/// The message of the error that reading the document returns.
fn read_error(bytes: &[u8]) -> String {
    let error = Index::from_compact(bytes, "").unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Index(_)), "{error}");
    error.to_string()
}

#[derive(Debug, Clone)]
struct Made {
    name: String,
    version: Option<String>,
    /// For each sample: the sizes of its fields, its checksum, and whether it is selected.
    samples: Vec<(Vec<u64>, u32, bool)>,
    /// Whether the index has a layout, checksums, a selection and the size of the shard.
    known: [bool; 4],
}

fn made() -> impl Strategy<Value = Made> {
    let sample = (prop::collection::vec(0u64..2000, 1..4), any::<u32>(), any::<bool>());
    let version = prop::option::of("[0-9.é]{0,20}");
    ("[ab/]{0,9}", version, prop::collection::vec(sample, 0..6), any::<[bool; 4]>())
        .prop_map(|(name, version, samples, known)| Made { name, version, samples, known })
}

fn index(made: &[Made]) -> Index {
    let shard = |(number, made): (usize, &Made)| {
        let [layout, checksums, selected, size] = made.known;
        let mut builder = LayoutBuilder::default();
        let mut at = 0;
        for (sizes, sum, _) in &made.samples {
            let begin = at;
            let members = ["a", "bb", "c"].into_iter().zip(sizes).map(|(name, &size)| {
                let offset = at + 512;
                at = (offset + size).next_multiple_of(512);
                (name, offset, size)
            });
            let members: Vec<_> = members.collect();
            builder.push(begin, members);
            if checksums {
                builder.push_checksum(*sum);
            }
        }
        let url = format!("gs://b/{}{number}.tar", made.name);
        let shard = ShardIndex::new(url, Some(at + 1024), made.version.as_deref(), builder.finish(true));
        let mut selection = SelectionBuilder::new("f".into());
        made.samples.iter().for_each(|(_, _, is_selected)| selection.push(*is_selected));
        let shard = if selected { shard.with_selection(selection.finish()) } else { shard };
        let shard = if layout { shard } else { shard.counts() };
        if layout || size { shard } else { ShardIndex { bytes: None, ..shard } }
    };
    made.iter().enumerate().map(shard).collect()
}

proptest! {
    #[test]
    fn json_and_the_compact_form_have_the_same_content(
        shards in prop::collection::vec(made(), 0..12),
        cut in 1usize..50,
    ) {
        let index = index(&shards);
        let bytes = written(&index);
        prop_assert_eq!(&Index::from_compact(&bytes, "").unwrap(), &index);
        let json: Vec<String> = index.iter().map(|shard| serde_json::to_string(shard).unwrap()).collect();
        let json = format!(r#"{{"wids_version":1,"shardlist":[{}]}}"#, json.join(","));
        prop_assert_eq!(written(&Index::from_json(json.as_bytes(), "").unwrap()), bytes.clone());
        // The chunks may have any size.
        let mut reader = CompactReader::new();
        bytes.chunks(cut).try_for_each(|piece| reader.push(piece, u64::MAX, |shard| shard)).unwrap();
        prop_assert_eq!(reader.finish().unwrap().into_iter().collect::<Index>(), index);
    }

    #[test]
    fn a_cut_or_a_flipped_bit_is_an_error(
        shards in prop::collection::vec(made(), 1..5), at in any::<prop::sample::Index>(), bit in 0u8..8,
    ) {
        let mut bytes = written(&index(&shards));
        let at = at.index(bytes.len());
        read_error(&bytes[..at]);
        bytes[at] ^= 1 << bit;
        read_error(&bytes);
    }

    #[test]
    fn changed_frames_with_correct_checksums_are_an_error_or_consistent(
        shards in prop::collection::vec(made(), 1..5),
        damage in prop::collection::vec((any::<prop::sample::Index>(), 0u8..3, any::<u8>()), 1..4),
    ) {
        let mut frames = frames(&written(&index(&shards)));
        for (at, how, byte) in damage {
            let content = &mut frames[1];
            if content.is_empty() {
                break;
            }
            let at = at.index(content.len());
            match how {
                0 => drop(content.remove(at)),
                1 => content.insert(at, byte),
                _ => content[at] = byte,
            }
        }
        let frames: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
        if let Ok(index) = Index::from_compact(&document(&frames), "") {
            call_all_getters(&index);
        }
    }
}

#[test]
fn malformed_documents_are_errors() {
    let shard = b"\0\0\0\x01a\0";
    assert_eq!(Index::from_compact(&document(&[b"\x01", shard]), "d").unwrap().shards()[0], "d/a");
    for (bytes, expected) in [
        (b"".to_vec(), "ends too early"),
        (b"{\"wids_version\":1}".to_vec(), "does not begin"),
        ([MAGIC, &[2]].concat(), "version [2]"),
        (document(&[]), "ends too early"),
        (document(&[b"\x02", shard]), "ends too early"),
        (document(&[b"\0", shard]), "more shards"),
        (document(&[b"\x01\x01", shard]), "a number of shards"),
        (document(&[b"\xff\xff\xff\x7f"]), "10 million"),
        (document(&[b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02"]), "64 bits"),
        (document(&[b"\x01", b""]), "empty frame"),
        (document(&[b"\x01", b"\x10\0\0\x01a\0"]), "an unknown flag"),
        (document(&[b"\x01", b"\0\x01\0\x01a\0"]), "shares more"),
        (document(&[b"\x01", b"\0\0\0\x09a\0"]), "longer than its frame"),
        (document(&[b"\x01", b"\0\0\0\x01\xff\0"]), "UTF-8"),
        (document(&[b"\x01", b"\0\0\0\0\0"]), "URL is empty"),
        ([&document(&[b"\x01"])[..], &[0xff; 8]].concat(), "too long"),
    ] {
        let error = read_error(&bytes);
        assert!(error.contains(expected), "{error} for {expected}");
    }
    // Two entries for the same shard that disagree.
    assert!(read_error(&document(&[b"\x02", b"\0\0\0\x01a\x02\0\x01\0\0\x02"])).contains("disagree"));
}

/// In the first document, each shard after the first takes only six bytes: all 1000 bytes of its URL are
/// shared with the previous URL.
#[test]
fn shared_texts_are_limited_by_the_size_of_their_frame() {
    let mut content = b"\0\0\0\xe8\x07".to_vec();
    content.extend([b'a'; 1000]);
    content.push(0);
    for _ in 0..1000 {
        content.extend(b"\0\xe8\x07\0\0\0");
    }
    assert!(read_error(&document(&[b"\xe9\x07", &content])).contains("too long for their frame"));
    // A writer stays below the limit.
    let long = "x".repeat(5000);
    let shards = |number: usize| {
        ShardIndex::new(format!("{long}{number}"), Some(0), None, LayoutBuilder::default().finish(true))
            .counts()
    };
    let index: Index = (0..500).map(shards).collect();
    let bytes = written(&index);
    assert_eq!(Index::from_compact(&bytes, "").unwrap(), index);
    assert!(bytes.len() < 500 * 5000 / 30, "{} bytes", bytes.len());
}

#[test]
fn a_shard_without_layout_takes_less_than_18_bytes() {
    const SHARDS: usize = 20_000;
    let shard = |number: usize| {
        let url = format!("gs://bucket/datasets/train/shard-{number:07}-of-1000000.tar");
        let version = (1_764_000_000_000_000 + 37 * number as u64).to_string();
        let layout = LayoutBuilder::default().finish(true);
        let shard = ShardIndex::new(url, Some(0), Some(&version), layout).counts();
        ShardIndex { samples: 1000, bytes: Some(1_000_000 + number as u64 % 100), ..shard }
    };
    let index: Index = (0..SHARDS).map(shard).collect();
    let bytes = written(&index);
    assert!(bytes.len() < 18 * SHARDS, "{} bytes", bytes.len());
    assert!(frames(&bytes).len() > 3);
    assert_eq!(Index::from_compact(&bytes, "").unwrap(), index);
}
