//! The compact form of an index: some 15 bytes for each shard, in addition to its layout.
//!
//! ```text
//! 89 53 48 49 44 58 0d 0a   magic number
//! 01                        version of the form
//! frames                    up to the number of shards in the first frame
//! ```
//!
//! A frame is the length and the CRC-32C of its content, as 4 bytes each (little-endian), and the content.
//! The first frame contains the number of shards. The others contain whole shards, one after the other. All
//! numbers are LEB128. A shard is
//!
//! - a byte of flags: 1 for a size, 2 for a version, 4 for a layout, 8 for a selection;
//! - its URL, as the numbers of bytes that it shares with the beginning and the end of the previous URL in
//!   the frame, and the bytes between them; then the number of samples, as the difference (zigzag) from the
//!   previous one in the frame;
//! - the parts in the flags: the size as the difference from the previous one in the frame, the version
//!   encoded as the URL is, the parts of the [JSON document](super::Index) of the layout and of the
//!   selection, each list with its length.
//!
//! Texts that share their ends could expand to any amount of memory. So their total length may be at most
//! [`MAX_EXPANSION`] times the length of the frame's content up to there, and a writer shares nothing beyond
//! that.

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

/// Size in bytes of the longest frame: that of one shard with a layout of some hundred million samples.
const MAX_FRAME: usize = 1 << 30;

/// Limit on the length of expanded texts, relative to the frame's content before them.
const MAX_EXPANSION: usize = 64;

// The flags of a shard.
const SIZE: u8 = 1;
const VERSIONED: u8 = 2;
const LAYOUT: u8 = 4;
const SELECTION: u8 = 8;

/// Values of the previous shard in the frame.
#[derive(Default)]
struct Previous {
    url: Vec<u8>,
    version: Vec<u8>,
    samples: u64,
    bytes: u64,
    /// Total length of the texts that may be shared.
    expanded: usize,
}
