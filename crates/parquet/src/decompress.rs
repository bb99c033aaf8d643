//! Decompresses pages. The memory for a page is at most the size that its header declares, and at most what
//! its compressed bytes can expand to.

use parquet::basic::Compression;
use std::io::Read;

/// Decompresses a page. It is an error if the result does not have `size` bytes.
pub(crate) fn decompress(codec: Compression, bytes: &[u8], size: usize) -> Result<Vec<u8>, String> {
    if size == 0 {
        return Ok(Vec::new());
    }
    let found = match codec {
        Compression::UNCOMPRESSED => Ok(bytes.to_vec()),
        Compression::SNAPPY => snappy(bytes, size),
        Compression::GZIP(_) => read(flate2::read::MultiGzDecoder::new(bytes), size),
        #[cfg(feature = "zstd")]
        Compression::ZSTD(_) => zstd::stream::read::Decoder::with_buffer(bytes)
            .map_or_else(|error| Err(error.to_string()), |zstd| read(zstd, size)),
        Compression::LZ4_RAW => lz4(bytes, size),
        _ => Err("its compression is not supported".into()),
    }?;
    match found.len() == size {
        true => Ok(found),
        false => Err(format!("a page has {} bytes, and its header says {size}", found.len())),
    }
}

/// If this compression is not supported, returns its name and what to do instead, for an error.
pub(crate) fn unsupported(codec: Compression) -> Option<&'static str> {
    match codec {
        Compression::UNCOMPRESSED | Compression::SNAPPY | Compression::GZIP(_) | Compression::LZ4_RAW => None,
        Compression::ZSTD(_) if cfg!(feature = "zstd") => None,
        Compression::ZSTD(_) => Some("zstd, which the feature `zstd` reads"),
        Compression::BROTLI(_) => Some("Brotli: write it with zstd or snappy"),
        Compression::LZ4 => {
            Some("LZ4 in its deprecated framing: write it as LZ4_RAW, or with zstd or snappy")
        }
        Compression::LZO => Some("LZO: write it with zstd or snappy"),
    }
}

fn read(decoder: impl Read, size: usize) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    // Reads up to one byte more than `size`, so that the caller notices data that is too long.
    let limit = (size as u64).saturating_add(1);
    decoder.take(limit).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    Ok(bytes)
}

fn snappy(bytes: &[u8], size: usize) -> Result<Vec<u8>, String> {
    let length = snap::raw::decompress_len(bytes).map_err(|error| error.to_string())?;
    // Snappy encodes a copy of up to 64 bytes in at least 2 bytes, so a page expands at most 32 times.
    check_length(length, size, bytes.len(), 32)?;
    snap::raw::Decoder::new().decompress_vec(bytes).map_err(|error| error.to_string())
}

fn lz4(bytes: &[u8], size: usize) -> Result<Vec<u8>, String> {
    // LZ4 extends a length by at most 255 bytes with each byte of input. A page therefore expands less than
    // 256 times.
    check_length(size, size, bytes.len(), 256)?;
    lz4_flex::block::decompress(bytes, size).map_err(|error| error.to_string())
}

/// Checks the `length` in bytes of a decompressed page. It must equal the header's `size`, and `compressed`
/// bytes must be able to expand to it. One byte expands to at most `ratio` bytes.
fn check_length(length: usize, size: usize, compressed: usize, ratio: usize) -> Result<(), String> {
    if length != size || length > compressed.saturating_mul(ratio).saturating_add(64) {
        return Err(format!("a page of {size} bytes, of which {compressed} are stored that become {length}"));
    }
    Ok(())
}
