//! Fields that are compressed with gzip.

use super::BoxError;
use crate::ErrorKind;
use bytes::Bytes;
use flate2::Compression;
use flate2::bufread::MultiGzDecoder;
use flate2::write::GzEncoder;
use std::io::{Read, Write};

const MAGIC: &[u8] = b"\x1f\x8b";

pub(super) fn is_gzip(bytes: &[u8]) -> bool {
    bytes.starts_with(MAGIC)
}

/// Decompresses all members of a gzip file, up to `limit` bytes.
pub(super) fn decompress(bytes: &[u8], limit: usize) -> Result<Bytes, BoxError> {
    // Without this, no bytes at all would decompress to no bytes.
    if !is_gzip(bytes) {
        return Err("not a gzip file".into());
    }
    let mut out = Vec::new();
    let limit = limit as u64;
    MultiGzDecoder::new(bytes).take(limit.saturating_add(1)).read_to_end(&mut out)?;
    let size = out.len() as u64;
    if size > limit {
        return Err(
            crate::Error::from(ErrorKind::TooLarge { what: "decompressed field", size, limit }).into()
        );
    }
    Ok(out.into())
}

/// Compresses to the same bytes every time: no name, no time.
pub(super) fn compress(bytes: &[u8]) -> Result<Bytes, BoxError> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes)?;
    Ok(encoder.finish()?.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_writes_and_refuses_bombs() {
        let zeros = vec![0; 1 << 20];
        let small = compress(&zeros).unwrap();
        assert!(small.len() < 4096);
        assert_eq!(compress(&zeros).unwrap(), small);
        assert_eq!(decompress(&small, 1 << 20).unwrap(), zeros);
        let error = decompress(&small, (1 << 20) - 1).unwrap_err();
        assert!(error.to_string().contains("limit"), "{error}");
    }

    #[test]
    fn reads_all_members_and_no_truncated_one() {
        let one = compress(b"one").unwrap();
        let two = [&one[..], &compress(b"two").unwrap()].concat();
        assert_eq!(decompress(&two, 100).unwrap(), "onetwo");
        assert!(decompress(b"", 100).is_err());
        for end in (0..two.len()).filter(|end| *end != one.len()) {
            assert!(decompress(&two[..end], 100).is_err(), "{end}");
        }
        // The flags, time and system in the header say nothing about the content.
        for at in (0..one.len()).filter(|at| !(3..10).contains(at)) {
            let mut damaged = one.to_vec();
            damaged[at] ^= 0x10;
            // Between the last code and the checksum there may be unused bits.
            assert!(decompress(&damaged, 100).map_or(true, |content| content == "one"), "{at}");
        }
    }
}
