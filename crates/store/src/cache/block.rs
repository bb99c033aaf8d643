//! The format of a file of the cache: a header that identifies one block of one version of an object, and the
//! bytes of the block.
//!
//! The header has a checksum of itself, and a checksum of each piece of the block. So any damage to a file,
//! by a crash or a disk, is detected.

use crate::aligned::ALIGNMENT;
use crate::read_buffer::{self, ReadBuffer};
use crate::{Checksum, ErrorKind, ObjectVersion, Result};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::PathBuf;
use std::time::SystemTime;

const MAGIC: &[u8; 12] = b"shardstream\n";
/// The format version. Versions 1 and 2 were files of whole objects.
const FORMAT: u32 = 3;
/// Number of bytes before the header's JSON document: the magic, the length of the document, and a checksum
/// of magic, length and document.
const PREFIX: usize = 20;
/// Maximum length of a header's JSON document in bytes. A longer document is damaged, or has a URL that is
/// too long to be cached.
const MAX_DOCUMENT: usize = 64 << 10;
/// Number of bytes that are read first: enough for the header, unless the URL is long.
const FIRST_READ: u64 = 2 << 10;
/// Size in bytes of a piece. Each piece has its own checksum, so that a part of a block can be read and
/// verified without the rest.
const PIECE: u64 = 64 << 10;

/// One version of an object, and the size of its blocks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct CachedObject {
    /// The hash of the object's source, its URL and the block size. A copy of the object under another name
    /// has another hash.
    pub(super) key: String,
    /// The object's URL, only for people who look at the file. Secrets are redacted.
    url: String,
    pub(super) version: String,
    pub(super) size: u64,
    block_size: u64,
}

/// The document in the header.
#[derive(Debug, Serialize, Deserialize)]
struct BlockHeader {
    format: u32,
    #[serde(flatten)]
    object: CachedObject,
    block: u64,
    /// CRC-32C of each piece of the block.
    sums: Vec<u32>,
}

impl CachedObject {
    /// The object of this size and version; `None` if it cannot be cached, because its size or version is
    /// unknown or its version is weak.
    pub(super) fn new(key: &str, url: String, object: &ObjectVersion, block_size: u64) -> Option<Self> {
        let (size, version) = (object.size?, object.strong()?.to_owned());
        Some(CachedObject { key: key.into(), url, version, size, block_size })
    }

    pub(super) fn object(&self) -> ObjectVersion {
        ObjectVersion { size: Some(self.size), version: Some(self.version.clone()) }
    }

    /// The range of the object's bytes in a block.
    pub(super) fn block(&self, number: u64) -> Range<u64> {
        let start = number.saturating_mul(self.block_size).min(self.size);
        start..start.saturating_add(self.block_size).min(self.size)
    }

    /// The number of the block that contains byte `at`.
    pub(super) fn block_of(&self, at: u64) -> u64 {
        at / self.block_size
    }

    /// The prefix of the file names of this version's blocks. The number of the block follows it.
    pub(super) fn name(&self) -> String {
        version_name(&self.version)
    }
}

/// The prefix of the file names of this version's blocks. An ETag has the same prefix with and without
/// quotes.
pub(super) fn version_name(version: &str) -> String {
    hex(&Sha256::digest(version.trim_matches('"')))[..32].into()
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Why bytes of a file cannot be returned.
#[derive(Debug)]
pub(super) enum BlockError {
    Io(io::Error),
    /// A checksum or another part of the header has the value `received` instead of `expected`.
    Damaged {
        expected: String,
        received: String,
    },
}

impl BlockError {
    fn mismatch(expected: u32, received: u32) -> Self {
        let shown = |sum: u32| Checksum::Crc32c(sum).to_string();
        BlockError::Damaged { expected: shown(expected), received: shown(received) }
    }

    /// The error for a file that is too short, has no header, or has the header of another block.
    fn invalid(received: &str) -> Self {
        BlockError::Damaged { expected: "that of its header".into(), received: received.into() }
    }

    pub(super) fn is_missing(&self) -> bool {
        matches!(self, BlockError::Io(error) if error.kind() == io::ErrorKind::NotFound)
    }

    /// The error for a file that is damaged again after its block was fetched again.
    pub(super) fn repeated(self, file: PathBuf) -> crate::Error {
        match self {
            BlockError::Io(error) => error.into(),
            BlockError::Damaged { expected, received } => {
                ErrorKind::DamagedCache { file, expected, received }.into()
            }
        }
    }
}

impl From<io::Error> for BlockError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => BlockError::invalid("cut short"),
            _ => BlockError::Io(error),
        }
    }
}

/// The header of the file of a block; `None` if the document would be too long.
pub(super) fn header(object: &CachedObject, block: u64, chunks: &[Bytes]) -> Option<Vec<u8>> {
    let (object, sums) = (object.clone(), piece_sums(chunks));
    let mut document = serde_json::to_vec(&BlockHeader { format: FORMAT, object, block, sums }).ok()?;
    // Spaces after the document let the block begin at a multiple of the alignment of read buffers. Copies of
    // unaligned data can be slow (see `aligned`).
    document.resize((PREFIX + document.len()).next_multiple_of(ALIGNMENT) - PREFIX, b' ');
    let length = u32::try_from(document.len()).ok().filter(|_| document.len() <= MAX_DOCUMENT)?;
    let begin = [&MAGIC[..], &length.to_le_bytes()].concat();
    let sum = crc32c::crc32c_append(crc32c::crc32c(&begin), &document);
    Some([&begin[..], &sum.to_le_bytes(), &document].concat())
}

fn piece_sums(chunks: &[Bytes]) -> Vec<u32> {
    let (mut sums, mut length, mut sum) = (Vec::new(), 0, 0);
    for mut chunk in chunks.iter().map(|chunk| &chunk[..]) {
        while !chunk.is_empty() {
            let (piece, rest) = chunk.split_at(chunk.len().min(PIECE as usize - length));
            (sum, length, chunk) = (crc32c::crc32c_append(sum, piece), length + piece.len(), rest);
            if length == PIECE as usize {
                sums.push(std::mem::take(&mut sum));
                length = 0;
            }
        }
    }
    if length > 0 {
        sums.push(sum);
    }
    sums
}

/// Reads the header of a file. Returns the header and its length in bytes.
fn read_header(file: &mut File) -> Result<(BlockHeader, u64), BlockError> {
    let mut bytes = Vec::with_capacity(FIRST_READ as usize);
    file.seek(SeekFrom::Start(0))?;
    file.take(FIRST_READ).read_to_end(&mut bytes)?;
    let prefix = bytes.first_chunk::<PREFIX>().filter(|prefix| prefix.starts_with(MAGIC));
    let Some([.., a, b, c, d, e, f, g, h]) = prefix.copied() else {
        return Err(BlockError::invalid("missing"));
    };
    let (length, sum) = (u32::from_le_bytes([a, b, c, d]) as usize, u32::from_le_bytes([e, f, g, h]));
    if length > MAX_DOCUMENT {
        return Err(BlockError::invalid("too long"));
    }
    let read = bytes.len();
    bytes.resize((PREFIX + length).max(read), 0);
    file.read_exact(&mut bytes[read..])?;
    let document = &bytes[PREFIX..PREFIX + length];
    let received = crc32c::crc32c_append(crc32c::crc32c(&bytes[..PREFIX - 4]), document);
    if received != sum {
        return Err(BlockError::mismatch(sum, received));
    }
    match serde_json::from_slice::<BlockHeader>(document) {
        Ok(header) if header.format == FORMAT => Ok((header, (PREFIX + length) as u64)),
        _ => Err(BlockError::invalid("of another format")),
    }
}

/// Reads the header of a file. Returns the object to which the block in the file belongs.
pub(super) fn read_object(file: &mut File) -> Result<CachedObject, BlockError> {
    read_header(file).map(|(header, _)| header.object)
}

/// Sets the file's time of modification, which is the time of the block's last use. This is necessary for new
/// files too: the system sets their time from a clock that is some milliseconds late. A new block could
/// therefore seem older than a block that was read just before it.
pub(super) fn mark_used(file: &File) {
    let _ = file.set_modified(SystemTime::now());
}

/// The open file of a block. Its header is valid, and each piece is verified when it is read.
#[derive(Debug)]
pub(super) struct BlockFile {
    file: File,
    pub(super) number: u64,
    /// When the block was last used before it was opened.
    pub(super) used: SystemTime,
    /// The bytes of the object in this block.
    range: Range<u64>,
    /// Offset of the block's bytes in the file.
    begin: u64,
    sums: Vec<u32>,
}

impl BlockFile {
    /// Reads the header of a file. Returns an error if the file does not belong to block `number` of
    /// `object`.
    pub(super) fn open(mut file: File, object: &CachedObject, number: u64) -> Result<Self, BlockError> {
        let (header, begin) = read_header(&mut file)?;
        let range = object.block(number);
        let length = range.end - range.start;
        if (&header.object, header.block) != (object, number)
            || header.sums.len() as u64 != length.div_ceil(PIECE)
        {
            return Err(BlockError::invalid("that of another block"));
        }
        let metadata = file.metadata()?;
        if metadata.len() != begin + length {
            return Err(BlockError::invalid("cut short"));
        }
        let used = metadata.modified()?;
        Ok(BlockFile { file, number, used, range, begin, sums: header.sums })
    }

    /// Reads the bytes `at..end` of the object, at most as many as fit into a read buffer, and verifies them
    /// piece by piece.
    pub(super) fn read(&mut self, at: u64, end: u64) -> Result<Bytes, BlockError> {
        let Range { start, end: stop } = self.range;
        let first = (at - start) / PIECE;
        let pieces = (end.min(stop) - start).div_ceil(PIECE) - first;
        let pieces = pieces.min((read_buffer::size() as u64 / PIECE).max(1));
        let begin = first * PIECE;
        let length = (begin + pieces * PIECE).min(stop - start) - begin;
        let mut buffer = ReadBuffer::with_length(length);
        self.file.seek(SeekFrom::Start(self.begin + begin))?;
        self.file.read_exact(&mut buffer)?;
        for (piece, expected) in buffer.chunks(PIECE as usize).zip(self.sums.iter().skip(first as usize)) {
            let received = crc32c::crc32c(piece);
            if received != *expected {
                return Err(BlockError::mismatch(*expected, received));
            }
        }
        let length = buffer.len();
        let index = |at: u64| usize::try_from(at - start - begin).map_or(length, |at| at.min(length));
        Ok(buffer.freeze_range(index(at)..index(end.min(stop))))
    }

    pub(super) fn mark_used(&self) {
        mark_used(&self.file);
    }
}
