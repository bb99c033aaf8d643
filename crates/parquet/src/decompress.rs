//! Decompression of pages, which takes no more memory than a page has bytes, or than its data could become.

use parquet::basic::Compression;
use std::io::Read;

/// What a page of `size` bytes was compressed to.
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

/// Why this compression cannot be read, if it cannot.
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
    // One byte more shows that there are too many.
    let limit = (size as u64).saturating_add(1);
    decoder.take(limit).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    Ok(bytes)
}

fn snappy(bytes: &[u8], size: usize) -> Result<Vec<u8>, String> {
    let length = snap::raw::decompress_len(bytes).map_err(|error| error.to_string())?;
    // A copy of 64 bytes takes 2.
    check_length(length, size, bytes.len(), 32)?;
    snap::raw::Decoder::new().decompress_vec(bytes).map_err(|error| error.to_string())
}

fn lz4(bytes: &[u8], size: usize) -> Result<Vec<u8>, String> {
    // A byte of a length adds 255 bytes.
    check_length(size, size, bytes.len(), 256)?;
    lz4_flex::block::decompress(bytes, size).map_err(|error| error.to_string())
}

/// Refuses a length that the header does not have, or that the data cannot become.
fn check_length(length: usize, size: usize, compressed: usize, ratio: usize) -> Result<(), String> {
    if length != size || length > compressed.saturating_mul(ratio).saturating_add(64) {
        return Err(format!("a page of {size} bytes, of which {compressed} are stored that become {length}"));
    }
    Ok(())
}
