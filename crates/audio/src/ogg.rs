//! Checks of Ogg Vorbis files: the last page is complete, and the codebooks do not take too much memory.
//! Symphonia's decoder does neither check.

use super::AudioError;
use symphonia::core::checksum::Crc32;
use symphonia::core::errors::Result;
use symphonia::core::io::{BitReaderRtl, Monitor, ReadBitsRtl};

/// Maximum number of bytes that a file's codebooks may take in memory. The codebooks that encoders write take
/// only a small fraction.
const MAX_CODEBOOKS: u64 = 16 << 20;

/// Checks that the last page of an Ogg file is complete, matches its checksum, and is marked as the end of
/// the stream. The decoder itself skips damaged pages, and takes the number of frames from the last page that
/// it finds.
pub(super) fn check_last_page(file: &[u8]) -> std::result::Result<(), AudioError> {
    let last = memchr::memmem::rfind(file, b"OggS").map(|at| &file[at..]).unwrap_or_default();
    // The flags are at byte 5, the checksum at 22, the number of segments at 26, and the lengths of the
    // segments from 27 on.
    let page = || {
        let count = usize::from(*last.get(26)?);
        let lengths = last.get(27..27 + count)?;
        let size = 27 + count + lengths.iter().map(|length| usize::from(*length)).sum::<usize>();
        last.get(..size).filter(|page| page[5] & 4 > 0)
    };
    let mut page = page().ok_or(AudioError::Unfinished)?.to_vec();
    let wanted = u32::from_le_bytes([page[22], page[23], page[24], page[25]]);
    // The checksum is computed over the page with zeros in the four bytes of the checksum.
    page[22..26].fill(0);
    let mut checksum = Crc32::new(0);
    checksum.process_buf_bytes(&page);
    if checksum.crc() == wanted { Ok(()) } else { Err(AudioError::Checksum) }
}

/// Limits the memory that the decoder will allocate for codebooks. `packets` are the identification and the
/// setup packet. Without this check, a codebook of 20 bytes can announce 16 million entries, and a file can
/// have 256 codebooks.
pub(super) fn check_codebooks(packets: &[u8]) -> std::result::Result<(), AudioError> {
    // The identification packet has 30 bytes; the setup packet begins with its 1-byte type and "vorbis".
    let size = codebook_bytes(packets.get(37..).unwrap_or_default());
    match size.map_err(|error| AudioError::Decode(error.into()))? {
        0..=MAX_CODEBOOKS => Ok(()),
        size => {
            let text = format!("its codebooks take {size} bytes, more than the limit of {MAX_CODEBOOKS}");
            Err(AudioError::Decode(text.into()))
        }
    }
}

/// The memory of the codebooks of a setup packet (Vorbis I specification, section 3.2.1).
fn codebook_bytes(setup: &[u8]) -> Result<u64> {
    let mut bits = BitReaderRtl::new(setup);
    let mut size = 0;
    for _ in 0..=bits.read_bits_leq32(8)? {
        // The synchronization pattern of a codebook.
        bits.ignore_bits(24)?;
        let dimensions = bits.read_bits_leq32(16)?;
        let entries = bits.read_bits_leq32(24)?;
        let is_ordered = bits.read_bool()?;
        if is_ordered {
            bits.ignore_bits(5)?;
            let mut left = entries;
            while left > 0 {
                // If there are too many lengths, the decoder itself fails.
                left = left.saturating_sub(bits.read_bits_leq32(u32::BITS - left.leading_zeros())?);
            }
        } else {
            let is_sparse = bits.read_bool()?;
            for _ in 0..entries {
                if !is_sparse || bits.read_bool()? {
                    bits.ignore_bits(5)?;
                }
            }
        }
        // Bytes for each entry: the length of its code, the code, the entry itself, and its slot in the
        // lookup table.
        size += 24 * u64::from(entries);
        let numbers = match bits.read_bits_leq32(4)? {
            0 => continue,
            // This must be the decoder's formula. A different result would make this function look for the
            // next codebook at a different bit than the decoder does.
            1 => (entries as f32).powf(1.0 / dimensions as f32).floor() as u32,
            _ => entries.saturating_mul(dimensions),
        };
        size += size_of::<f32>() as u64 * u64::from(entries) * u64::from(dimensions);
        // The minimum value and the step between two values.
        bits.ignore_bits(64)?;
        let width = bits.read_bits_leq32(4)? + 1;
        bits.ignore_bits(1)?;
        bits.ignore_bits(numbers.saturating_mul(width))?;
    }
    Ok(size)
}
