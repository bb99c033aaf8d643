//! Loading any bytes as a compact index returns an error or a consistent index.

use shardstream::{ErrorKind, Index};

/// Frames `content` with its length and its correct checksum: few inputs would have a correct checksum by
/// chance.
fn frame(content: &[u8]) -> Vec<u8> {
    let head = [(content.len() as u32).to_le_bytes(), crc32c::crc32c(content).to_le_bytes()];
    [&head.concat(), content].concat()
}

pub fn run(bytes: &[u8]) {
    // Loads the bytes as they are, and as the contents of two frames.
    let (first, second) = bytes.split_at(bytes.len().min(1));
    let framed = [b"\x89SHIDX\r\n\x01", &frame(first)[..], &frame(second)].concat();
    for bytes in [bytes, &framed] {
        let index = match Index::from_compact(bytes, "gs://bucket/dir") {
            Ok(index) => index,
            Err(error) => {
                assert!(matches!(error.kind(), ErrorKind::Index(_)), "{error}");
                continue;
            }
        };
        for shard in &index {
            assert!(index.get(shard.url()).is_some());
            let samples = shard.samples().min(1000);
            for sample in 0..=samples {
                assert_eq!(shard.position_of(sample).is_some(), sample < shard.samples());
                if let Some(members) = shard.members(sample) {
                    assert_eq!(shard.size_of(sample), Some(members.map(|(_, at)| at.end - at.start).sum()));
                }
                if let Some(range) = shard.range(sample..samples) {
                    let bytes = shard.bytes().expect("places have a size");
                    assert!(range.start <= range.end && range.end <= bytes);
                }
            }
        }
    }
}
