//! Checks that the headers of a WebP file agree about the size of the picture.

use super::{ImageError, Size};

const CONTRADICTS: &str = "the WebP file contradicts itself about its size";

/// Checks that every coded picture is as large as its canvas or frame. The decoder allocates memory for the
/// coded picture, but checks only the size of the canvas against the limit.
pub(super) fn check_frames(file: &[u8]) -> Result<(), ImageError> {
    let Some(mut rest) = file.get(12..) else { return Ok(()) };
    let mut canvas = None;
    while let Some((chunk, behind)) = next_chunk(rest) {
        match chunk {
            (b"VP8X", [_, _, _, _, size @ ..]) => canvas = size_of(size).or(canvas),
            // The content: the frame's position, its size, its duration and flags, and its chunks.
            (b"ANMF", [_, _, _, _, _, _, size @ ..]) => {
                let frame = size_of(size);
                let mut inside = size.get(10..).unwrap_or_default();
                while let Some((chunk, behind)) = next_chunk(inside) {
                    check_picture(chunk, frame)?;
                    inside = behind;
                }
            }
            chunk => check_picture(chunk, canvas)?,
        }
        rest = behind;
    }
    Ok(())
}

/// The name and the content of a chunk. The content of the last chunk of a file may be truncated.
type RiffChunk<'a> = (&'a [u8; 4], &'a [u8]);

fn next_chunk(file: &[u8]) -> Option<(RiffChunk<'_>, &[u8])> {
    let (name, rest) = file.split_first_chunk()?;
    let (length, rest) = rest.split_first_chunk()?;
    let length = u32::from_le_bytes(*length) as usize;
    let content = rest.get(..length).unwrap_or(rest);
    // Chunks are padded to even lengths.
    let behind = rest.get(length.saturating_add(length % 2)..).unwrap_or_default();
    Some(((name, content), behind))
}

/// Fails if a chunk is a coded picture of another size than `expected`.
fn check_picture((name, content): RiffChunk<'_>, expected: Option<Size>) -> Result<(), ImageError> {
    let found = match name {
        b"VP8 " => lossy_size(content),
        b"VP8L" => lossless_size(content),
        _ => return Ok(()),
    };
    match (found, expected) {
        (Some(found), Some(expected)) if found != expected => Err(ImageError::Decode(CONTRADICTS.into())),
        _ => Ok(()),
    }
}

/// Reads two numbers of 24 bits: width - 1 and height - 1.
fn size_of(bytes: &[u8]) -> Option<Size> {
    let &[w0, w1, w2, h0, h1, h2, ..] = bytes else { return None };
    let number = |bytes: [u8; 3]| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], 0]) + 1;
    Some(Size { height: number([h0, h1, h2]), width: number([w0, w1, w2]) })
}

fn lossy_size(content: &[u8]) -> Option<Size> {
    let &[_, _, _, 0x9d, 0x01, 0x2a, w0, w1, h0, h1, ..] = content else { return None };
    let number = |bytes| u32::from(u16::from_le_bytes(bytes) & 0x3fff);
    Some(Size { height: number([h0, h1]), width: number([w0, w1]) })
}

fn lossless_size(content: &[u8]) -> Option<Size> {
    let &[0x2f, a, b, c, d, ..] = content else { return None };
    let bits = u32::from_le_bytes([a, b, c, d]);
    Some(Size { height: (bits >> 14 & 0x3fff) + 1, width: (bits & 0x3fff) + 1 })
}
