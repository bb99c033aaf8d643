//! Tests that compressed shards are decompressed exactly, or result in an error.

use super::*;
use crate::error::SizeLimit;

#[test]
fn the_suffix_selects_the_decompressor() {
    for plain in ["a.tar", "gz", "https://h/a.tar?file=b.gz", "a.gz/b.tar"] {
        assert_eq!(Decompressor::of(plain).unwrap(), None, "{plain}");
    }
    for unreadable in ["a.tar.bz2", "a.TAR.XZ", "https://h/a.tar.lz4?x=1", "https://h/a%2Etar%2Ebz2"] {
        let error = Decompressor::of(unreadable).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::UnsupportedCompression(_)), "{unreadable}");
    }
}

#[test]
#[cfg(not(feature = "zstd"))]
fn the_error_names_the_missing_feature() {
    assert!(Decompressor::of("a.tar.zst").unwrap_err().to_string().contains("feature `zstd`"));
}

#[cfg(feature = "gzip")]
mod gzip {
    use super::super::*;
    use crate::Body;
    use std::io::Write;

    fn gz(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn read(compressed: &[u8], chunk: usize) -> Result<Bytes> {
        let chunks: Vec<_> = compressed.chunks(chunk).map(|part| Ok(Bytes::copy_from_slice(part))).collect();
        Body::from_chunks(chunks).compressed(Decompressor::of("a.TGZ")?, Expansion::default()).read_all()
    }

    #[test]
    fn reads_all_members_however_they_are_split() {
        let compressed = [gz(b""), gz(b"one"), gz(b""), gz(b""), gz(b"two"), gz(b"")].concat();
        for chunk in 1..=compressed.len() {
            assert_eq!(read(&compressed, chunk).unwrap(), "onetwo", "chunks of {chunk}");
        }
    }

    #[test]
    fn a_truncation_anywhere_is_an_error() {
        let first = gz(b"one");
        let compressed = [first.clone(), gz(b"two")].concat();
        for end in (1..compressed.len()).filter(|end| *end != first.len()) {
            let error = read(&compressed[..end], 7).unwrap_err();
            super::assert_damaged(&error, "gzip", end as u64);
        }
    }

    #[test]
    fn a_flipped_bit_is_an_error_or_changes_nothing() {
        let compressed = gz(&super::noise(3000));
        for bit in 0..compressed.len() * 8 {
            let mut damaged = compressed.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            match read(&damaged, 500) {
                Ok(read) => assert_eq!(read, super::noise(3000), "bit {bit}"),
                Err(error) => super::assert_damaged(&error, "gzip", compressed.len() as u64),
            }
        }
    }

    /// Decoders know the offset of damage only approximately: it may be up to one chunk too low.
    #[test]
    fn damage_has_an_offset_in_the_object() {
        let compressed = gz(&super::noise(50_000)).repeat(3);
        let second = compressed.len() / 3;
        let mut damaged = compressed.clone();
        damaged[second] ^= 1;
        let chunks = damaged.chunks(1000).map(|part| Ok(Bytes::copy_from_slice(part)));
        let mut body = Body::from_chunks(chunks.collect::<Vec<_>>())
            .compressed(Some(Decompressor::Gzip), Expansion::default());
        let mut read_bytes = 0;
        let error = loop {
            match body.next().unwrap() {
                Ok(chunk) => read_bytes += chunk.len(),
                Err(error) => break error,
            }
        };
        assert_eq!((read_bytes, error.location().offset()), (50_000, Some(50_000)));
        let ErrorKind::Decompress { offset, .. } = *error.kind() else { panic!("{error}") };
        assert!((second as u64 - 1000..=second as u64 + 10).contains(&offset), "{offset} for {second}");
    }

    #[test]
    fn a_decompression_bomb_is_an_error() {
        let bomb = gz(&vec![0; 8 << 20]);
        super::assert_bomb(Decompressor::Gzip, &bomb, 20);
        let members: Vec<u8> = std::iter::repeat_n(gz(&vec![0; 1 << 20]), 9).flatten().collect();
        super::assert_bomb(Decompressor::Gzip, &members, 20);
    }

    #[test]
    fn an_error_of_the_source_is_returned_unchanged() {
        let error_after_a_member = |fault: Error| {
            let broken = vec![Ok(Bytes::from(gz(b"one"))), Err(fault)];
            let body = Body::from_chunks(broken).compressed(Some(Decompressor::Gzip), Expansion::default());
            body.read_all().unwrap_err()
        };
        let error = error_after_a_member(ErrorKind::Checksum.into());
        assert!(matches!(error.kind(), ErrorKind::Checksum));
        // A fault of the disk is not reported as damaged data.
        let error = error_after_a_member(std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into());
        assert!(matches!(error.kind(), ErrorKind::Io(_)));
    }
}

#[cfg(feature = "zstd")]
mod zstd {
    use super::super::*;
    use crate::Body;

    fn frame(bytes: &[u8]) -> Vec<u8> {
        ::zstd::encode_all(bytes, 3).unwrap()
    }

    fn read(compressed: &[u8], chunk: usize) -> Result<Bytes> {
        let chunks: Vec<_> = compressed.chunks(chunk).map(|part| Ok(Bytes::copy_from_slice(part))).collect();
        let compression = Decompressor::of("gs://b/a.tar.zst")?;
        Body::from_chunks(chunks).compressed(compression, Expansion::default()).read_all()
    }

    #[test]
    fn reads_all_frames_however_they_are_split() {
        let compressed = [frame(b""), frame(b"one"), frame(b""), frame(b""), frame(b"two")].concat();
        for chunk in 1..=compressed.len() {
            assert_eq!(read(&compressed, chunk).unwrap(), "onetwo", "chunks of {chunk}");
        }
    }

    #[test]
    fn a_truncation_anywhere_is_an_error() {
        let first = frame(b"one");
        let compressed = [first.clone(), frame(b"two")].concat();
        for end in (1..compressed.len()).filter(|end| *end != first.len()) {
            let error = read(&compressed[..end], 7).unwrap_err();
            super::assert_damaged(&error, "zstd", end as u64);
        }
    }

    #[test]
    fn a_flipped_bit_is_an_error_if_there_is_a_checksum() {
        let mut encoder = ::zstd::Encoder::new(Vec::new(), 3).unwrap();
        encoder.include_checksum(true).unwrap();
        std::io::Write::write_all(&mut encoder, &super::noise(3000)).unwrap();
        let compressed = encoder.finish().unwrap();
        for bit in 0..compressed.len() * 8 {
            let mut damaged = compressed.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            match read(&damaged, 500) {
                Ok(read) => assert_eq!(read, super::noise(3000), "bit {bit}"),
                Err(error) => super::assert_damaged(&error, "zstd", compressed.len() as u64),
            }
        }
    }

    #[test]
    fn a_decompression_bomb_is_an_error() {
        super::assert_bomb(Decompressor::Zstd, &frame(&vec![0; 8 << 20]), 100);
        let frames: Vec<u8> = std::iter::repeat_n(frame(&vec![0; 2 << 20]), 9).flatten().collect();
        super::assert_bomb(Decompressor::Zstd, &frames, 1000);
    }
}

/// Bytes that are hard to compress.
#[cfg(any(feature = "gzip", feature = "zstd"))]
fn noise(length: usize) -> Vec<u8> {
    let mut state = 1_u32;
    let step = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..length).map(step).collect()
}

/// Asserts that `error` reports damaged data at an offset within an object of `length` bytes.
#[cfg(any(feature = "gzip", feature = "zstd"))]
fn assert_damaged(error: &Error, format: &str, length: u64) {
    let ErrorKind::Decompress { compression, offset, .. } = *error.kind() else { panic!("{error:?}") };
    assert!(compression == format && offset <= length, "{error:?}");
}

/// Asserts that decompression stops with an error at the limit, and succeeds with a higher limit.
#[cfg(any(feature = "gzip", feature = "zstd"))]
fn assert_bomb(compression: Decompressor, bytes: &[u8], ratio: u32) {
    use crate::Body;
    let spare = 1 << 20;
    let max = bytes.len() as u64 * u64::from(ratio) + spare;
    let read = |ratio| {
        let chunks: Vec<_> = bytes.chunks(100).map(|part| Ok(Bytes::copy_from_slice(part))).collect();
        let body = Body::from_chunks(chunks);
        let mut read_bytes = 0;
        for chunk in body.compressed(Some(compression), Expansion { ratio, spare }) {
            read_bytes += chunk?.len() as u64;
            assert!(read_bytes <= bytes.len() as u64 * u64::from(ratio) + spare);
        }
        Ok::<_, Error>(read_bytes)
    };
    let error = read(ratio).unwrap_err();
    let ErrorKind::TooLarge { what, size, limit } = error.kind() else { panic!("{error:?}") };
    assert!(*what == SizeLimit::DecompressedData && size > limit && *limit <= max, "{error:?}");
    assert!(read(1_000_000).unwrap() > max);
}
