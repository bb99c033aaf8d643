//! Loading any bytes as a key index returns an error, or an index whose lookups return samples of its shards.

use shardstream::ErrorKind;
use shardstream::index::KeyIndex;

/// Makes a key index with correct checksums: few inputs would have correct checksums by chance.
///
/// The first byte of the input is the number of bits that choose a block, the second the length of a sample's
/// number, and the third the number of keys. Then two bytes for each block say at which entry the block ends.
/// The rest are the entries.
fn document(bytes: &[u8]) -> Option<Vec<u8>> {
    let ([bits, length, keys], rest) = bytes.split_first_chunk::<3>()?;
    let (bits, each) = (bits % 4, 8 + usize::from(*length));
    let (ends, rest) = rest.split_at_checked(2 << bits)?;
    let entries = rest.get(..usize::from(*keys) * each).unwrap_or(rest);
    let (mut blocks, mut begin) = (Vec::new(), 0);
    for end in ends.chunks_exact(2) {
        let end = usize::from(u16::from_le_bytes([end[0], end[1]]));
        let block = entries.get(begin * each..end * each).unwrap_or_default();
        blocks.extend((end as u64).to_le_bytes());
        blocks.extend(crc32c::crc32c(block).to_le_bytes());
        begin = end;
    }
    let frame = |content: &[u8]| {
        let head = [(content.len() as u32).to_le_bytes(), crc32c::crc32c(content).to_le_bytes()];
        [&head.concat(), content].concat()
    };
    // One shard, named `a`, with `keys` samples. The index stores `2 * keys`, seven bits per byte.
    let samples = [keys << 1 | 0x80, keys >> 6];
    let shards =
        [b"\x89SHIDX\r\n\x01", &frame(&[1])[..], &frame(&[&[0, 0, 0, 1, b'a'], &samples[..]].concat())];
    let shards = shards.concat();
    let mut head = b"\x89SHKEY\r\n\x01".to_vec();
    head.extend(u64::from(*keys).to_le_bytes());
    head.extend((shards.len() as u64).to_le_bytes());
    head.extend([bits, *length]);
    head.extend(crc32c::crc32c(&blocks).to_le_bytes());
    head.extend(crc32c::crc32c(&head).to_le_bytes());
    Some([&head, &shards, &blocks, entries].concat())
}

pub fn run(bytes: &[u8]) {
    for document in [Some(bytes.to_vec()), document(bytes)].into_iter().flatten() {
        let keys = match KeyIndex::from_bytes(document, "gs://bucket/dir") {
            Ok(keys) => keys,
            Err(error) => {
                assert!(matches!(error.kind(), ErrorKind::Index(_)), "{error}");
                continue;
            }
        };
        assert_eq!(keys.len() as u64, keys.index().samples());
        for key in ["a", "b", "000042", ""] {
            match keys.find(key) {
                Ok(matches) => {
                    for (shard, sample) in matches {
                        let shard = keys.index().iter().nth(shard).expect("the shard is in the index");
                        assert!(sample < shard.samples());
                    }
                }
                Err(error) => assert!(matches!(error.kind(), ErrorKind::Index(_)), "{error}"),
            }
        }
    }
}
