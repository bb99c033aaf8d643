//! Compresses and decompresses fields with gzip.

use super::BoxError;
use crate::error::{Error, ErrorKind, SizeLimit};
use bytes::Bytes;
use flate2::Compression;
use flate2::bufread::GzDecoder;
use flate2::write::GzEncoder;
use std::io::{Read, Write};

const MAGIC: &[u8] = b"\x1f\x8b";
const NO_GZIP: &str = "not a gzip file";
const TRAILING: &str = "other data follows the gzip data";

pub(super) fn is_gzip(bytes: &[u8]) -> bool {
    bytes.starts_with(MAGIC)
}

/// Decompresses all members of a gzip file, up to `limit` bytes. Zeros after a member are skipped as padding,
/// as the program `gzip` does.
pub(super) fn decompress(bytes: &[u8], limit: usize) -> Result<Bytes, BoxError> {
    let mut out = Vec::new();
    let mut rest = bytes;
    // The loop runs at least once: an empty file is not a gzip file.
    loop {
        if !is_gzip(rest) {
            return Err(if rest.len() == bytes.len() { NO_GZIP } else { TRAILING }.into());
        }
        let mut member = GzDecoder::new(rest);
        let left = limit - out.len();
        member.by_ref().take((left as u64).saturating_add(1)).read_to_end(&mut out)?;
        if out.len() > limit {
            let (size, limit) = (out.len() as u64, limit as u64);
            let error = ErrorKind::TooLarge { what: SizeLimit::DecompressedField, size, limit };
            return Err(Error::from(error).into());
        }
        rest = member.into_inner();
        rest = &rest[rest.iter().take_while(|byte| **byte == 0).count()..];
        if rest.is_empty() {
            return Ok(out.into());
        }
    }
}

/// Compresses bytes. The same bytes always give the same result, because the header has neither a name nor a
/// time.
pub(super) fn compress(bytes: &[u8]) -> Result<Bytes, BoxError> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes)?;
    Ok(encoder.finish()?.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compressed_bytes_read_back_within_the_limit() {
        let zeros = vec![0; 1 << 20];
        let small = compress(&zeros).unwrap();
        assert!(small.len() < 4096);
        assert_eq!(compress(&zeros).unwrap(), small);
        assert_eq!(decompress(&small, 1 << 20).unwrap(), zeros);
        let error = decompress(&small, (1 << 20) - 1).unwrap_err();
        assert!(error.to_string().contains("limit"), "{error}");
    }

    #[test]
    fn all_members_are_read_and_damage_is_an_error() {
        let one = compress(b"one").unwrap();
        let two = [&one[..], &compress(b"two").unwrap()].concat();
        assert_eq!(decompress(&two, 100).unwrap(), "onetwo");
        let padded = [&one[..], &[0; 3], &two[..], &[0; 512]].concat();
        assert_eq!(decompress(&padded, 100).unwrap(), "oneonetwo");
        assert!(decompress(&padded, 8).is_err());
        let error = decompress(&[&one[..], &[0; 3], b"x"].concat(), 100).unwrap_err();
        assert!(error.to_string().contains("follows"), "{error}");
        assert!(decompress(b"", 100).is_err());
        assert!(decompress(&[0; 20], 100).is_err());
        for end in (0..two.len()).filter(|end| *end != one.len()) {
            assert!(decompress(&two[..end], 100).is_err(), "{end}");
        }
        // Bytes 3 to 9 of the header (flags, time, system) do not affect the content.
        for at in (0..one.len()).filter(|at| !(3..10).contains(at)) {
            let mut damaged = one.to_vec();
            damaged[at] ^= 0x10;
            // Between the last code and the checksum there may be unused bits, whose value does not matter.
            assert!(decompress(&damaged, 100).map_or(true, |content| content == "one"), "{at}");
        }
    }
}
