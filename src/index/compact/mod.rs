//! The compact form of an index. A shard takes about 15 bytes, plus the bytes of its layout.
//!
//! ```text
//! 89 53 48 49 44 58 0d 0a   magic number
//! 01                        version of the form
//! frames                    the number of shards, then the shards
//! ```
//!
//! A frame is the length and the CRC-32C of its content, in 4 bytes each (little-endian), and the content.
//! The first frame contains the number of shards. The other frames contain whole shards, one after the other.
//! All numbers are LEB128. A shard is:
//!
//! - a byte of flags: 1 for a size, 2 for a version, 4 for a layout, 8 for a selection;
//! - its URL: the number of bytes that it shares with the beginning of the frame's previous URL, the number
//!   of bytes that it shares with that URL's end, and its bytes between the two;
//! - its number of samples, as the (zigzag) difference from the previous number in the frame;
//! - the parts that the flags announce: the size, as the difference from the previous size in the frame; the
//!   version, encoded like the URL; the layout and the selection, with the same parts as in the [JSON
//!   document](super::Index). Each list begins with its length.
//!
//! Texts that share bytes with previous texts could expand to any amount of memory. So the total length of
//! the texts of a frame must be at most [`MAX_EXPANSION`] times the length of the frame's content written so
//! far. A writer stores a text in full if sharing would exceed this limit.

mod reader;
#[cfg(test)]
mod tests;
mod writer;

pub(super) use reader::CompactReader;
pub(super) use writer::write;

pub(super) const MAGIC: &[u8] = b"\x89SHIDX\r\n";

const VERSION: u8 = 1;

/// Suffix of the names of documents in this form.
pub(super) const SUFFIX: &str = ".shidx";

/// Size in bytes of the longest accepted frame. It has room for one shard with a layout of some hundred
/// million samples.
const MAX_FRAME: usize = 1 << 30;

/// Limit on the total length of a frame's expanded texts, relative to the length of the frame's content.
const MAX_EXPANSION: usize = 64;

// The flags of a shard.
const SIZE: u8 = 1;
const VERSIONED: u8 = 2;
const LAYOUT: u8 = 4;
const SELECTION: u8 = 8;

/// Values of the previous shard in the frame. The values of the next shard are encoded as differences from
/// them.
#[derive(Default)]
struct Previous {
    url: Vec<u8>,
    version: Vec<u8>,
    samples: u64,
    bytes: u64,
    /// Total length of the frame's expanded URLs and versions.
    expanded: usize,
}
