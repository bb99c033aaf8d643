//! The format of a file of the cache: a head that identifies the object, a checksum of each block, the
//! object's bytes as stored, and a tail.
//!
//! The head comes first, so that other processes can follow a file that is still growing. The checksum of a
//! block is written before the block's last byte, so that whoever sees the whole block can verify it. A file
//! with a tail is complete.

use crate::ObjectVersion;
use crate::Result;
use crate::aligned::ALIGNMENT;
use crate::read_buffer::{self, ReadBuffer};
use crate::secret_url::SecretUrl;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

const MAGIC: &[u8; 12] = b"shardstream\n";
/// Length in bytes of the magic, and of the length of the document that follows.
const PREFIX: u64 = 16;
/// Maximum length of a document in bytes. A longer one is damaged, or has a URL that is not worth caching.
const MAX_DOCUMENT: u64 = 64 << 10;
/// The format version. Version 1 had one checksum of all bytes, which cannot verify a range.
const FORMAT: u32 = 2;
/// Length of the tail in bytes: the checksum of the head, and the magic.
pub(super) const TAIL: u64 = 16;
/// Size of a block in bytes. Each block has a checksum, and ranges are read in whole blocks. Blocks are small
/// compared with most ranges, and their checksums take less than a ten-thousandth of the object.
pub(super) const BLOCK: u64 = 64 << 10;
/// Maximum number of blocks that are read at once.
const MAX_BLOCKS: u64 = read_buffer::MAX_SIZE as u64 / BLOCK;
/// Size of a checksum (CRC-32C) in bytes.
const SUM: u64 = 4;

/// The document in the head, which identifies the object.
#[derive(Debug, Serialize, Deserialize)]
struct HeadDocument {
    format: u32,
    /// The key in the name of the file. It differs in a copy under another name.
    key: String,
    /// For people. Secrets are redacted.
    url: String,
    version: String,
    size: u64,
}

/// The field of a [`HeadDocument`] that all format versions have.
#[derive(Deserialize)]
struct FormatVersion {
    format: u32,
}

/// The content of an object in a file of the cache, which may still be growing.
#[derive(Debug)]
pub(super) struct CachedContent {
    pub(super) file: File,
    pub(super) size: u64,
    pub(super) version: String,
    /// Offset of the checksums of the blocks in the file.
    sums: u64,
    /// Offset of the object's first byte in the file.
    begin: u64,
    /// Checksum of the head.
    head_sum: u32,
    /// Whether a reader has found damage.
    damaged: AtomicBool,
}

/// The part of an object that has been written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Written {
    /// Number of bytes, from the first one.
    pub(super) bytes: u64,
    /// Checksum of the bytes after the last complete block; 0 if there are none. The checksums of complete
    /// blocks are in the file.
    partial_sum: u32,
}

impl Written {
    /// Adds a chunk, and appends the checksums of the blocks that it completes to `sums`. The object has
    /// `size` bytes.
    pub(super) fn add(&mut self, mut chunk: &[u8], size: u64, sums: &mut Vec<u8>) {
        while !chunk.is_empty() {
            let left = BLOCK - self.bytes % BLOCK;
            let (block, rest) = chunk.split_at(usize::try_from(left).unwrap_or(usize::MAX).min(chunk.len()));
            self.bytes += block.len() as u64;
            self.partial_sum = crc32c::crc32c_append(self.partial_sum, block);
            if self.bytes.is_multiple_of(BLOCK) || self.bytes == size {
                sums.extend_from_slice(&self.partial_sum.to_le_bytes());
                self.partial_sum = 0;
            }
            chunk = rest;
        }
    }
}

/// Why bytes of a file cannot be returned.
#[derive(Debug)]
pub(super) enum CacheReadError {
    Io(io::Error),
    /// The file ends before them.
    Short,
    /// A block does not match its checksum.
    Damaged {
        expected: u32,
        received: u32,
    },
}

impl CacheReadError {
    pub(super) fn other(error: crate::Error) -> Self {
        CacheReadError::Io(io::Error::other(error))
    }
}

impl From<io::Error> for CacheReadError {
    fn from(error: io::Error) -> Self {
        CacheReadError::Io(error)
    }
}

/// The head of a file for an object; `None` if the document would be too long.
pub(super) fn head(key: &str, url: &SecretUrl, version: &str, size: u64) -> Option<Vec<u8>> {
    let (key, url, version) = (key.into(), url.to_string(), version.into());
    let mut document = serde_json::to_vec(&HeadDocument { format: FORMAT, key, url, version, size }).ok()?;
    // Spaces behind the document let the content begin at a multiple of the alignment of read buffers, so
    // that no copy begins a few bytes behind its source.
    let begin = PREFIX + document.len() as u64 + sums_length(size);
    let padded = document.len() as u64 + begin.next_multiple_of(ALIGNMENT as u64) - begin;
    document.resize(usize::try_from(padded).ok()?, b' ');
    let length = u32::try_from(document.len()).ok().filter(|length| u64::from(*length) <= MAX_DOCUMENT)?;
    Some([&MAGIC[..], &length.to_le_bytes(), &document].concat())
}

/// Length in bytes of the checksums of an object of `size` bytes.
fn sums_length(size: u64) -> u64 {
    size.div_ceil(BLOCK) * SUM
}

/// Reads the head of a file: its length, its checksum, and the document. Returns `None` if the file does not
/// begin with a head.
fn read_head(file: &File) -> io::Result<Option<(u64, u32, Vec<u8>)>> {
    let mut prefix = [0; PREFIX as usize];
    if read_at(file, &mut prefix, 0)? < prefix.len() || !prefix.starts_with(MAGIC) {
        return Ok(None);
    }
    let [.., a, b, c, d] = prefix;
    let length = u64::from(u32::from_le_bytes([a, b, c, d]));
    let mut document = vec![0; length.min(MAX_DOCUMENT) as usize];
    if length > MAX_DOCUMENT || read_at(file, &mut document, PREFIX)? < document.len() {
        return Ok(None);
    }
    let head_sum = crc32c::crc32c_append(crc32c::crc32c(&prefix), &document);
    Ok(Some((PREFIX + length, head_sum, document)))
}

/// Whether the file has another format version, which another version of this crate has written.
pub(super) fn has_other_format(file: &File) -> io::Result<bool> {
    let head = read_head(file)?;
    let version = head.and_then(|(.., document)| serde_json::from_slice::<FormatVersion>(&document).ok());
    Ok(version.is_some_and(|version| version.format != FORMAT))
}

impl CachedContent {
    /// Reads the head of a file. Gives the file back if it has no head yet, or not that of `key`.
    pub(super) fn open(file: File, key: &str) -> io::Result<Result<CachedContent, File>> {
        let Some((sums, head_sum, document)) = read_head(&file)? else { return Ok(Err(file)) };
        match serde_json::from_slice::<HeadDocument>(&document) {
            Ok(found) if found.format == FORMAT && found.key == key => {
                let HeadDocument { version, size, .. } = found;
                let begin = sums + sums_length(size);
                Ok(Ok(CachedContent {
                    file,
                    size,
                    version,
                    sums,
                    begin,
                    head_sum,
                    damaged: AtomicBool::new(false),
                }))
            }
            _ => Ok(Err(file)),
        }
    }

    pub(super) fn object(&self) -> ObjectVersion {
        ObjectVersion { size: Some(self.size), version: Some(self.version.clone()) }
    }

    /// Size of the complete file in bytes.
    pub(super) fn file_size(&self) -> u64 {
        (self.begin + TAIL).saturating_add(self.size)
    }

    /// All bytes of the object as written.
    pub(super) fn all(&self) -> Written {
        Written { bytes: self.size, partial_sum: 0 }
    }

    /// The part that another process has written, in complete blocks. The checksum of the bytes after them is
    /// not in the file.
    pub(super) fn written(&self) -> io::Result<Written> {
        let bytes = self.file.metadata()?.len().saturating_sub(self.begin).min(self.size);
        let bytes = if bytes == self.size { bytes } else { bytes - bytes % BLOCK };
        Ok(Written { bytes, partial_sum: 0 })
    }

    /// The tail, and its offset in the file.
    pub(super) fn tail(&self) -> ([u8; TAIL as usize], u64) {
        let mut tail = [0; TAIL as usize];
        tail[..4].copy_from_slice(&self.head_sum.to_le_bytes());
        tail[4..].copy_from_slice(MAGIC);
        (tail, self.begin.saturating_add(self.size))
    }

    /// Whether the file is complete. Its blocks are verified when they are read.
    pub(super) fn is_complete(&self) -> io::Result<bool> {
        let (expected, at) = self.tail();
        let mut found = [0; TAIL as usize];
        Ok(self.file.metadata()?.len() == self.file_size()
            && read_at(&self.file, &mut found, at)? == found.len()
            && found == expected)
    }

    /// Offset of byte `at` of the object in the file.
    pub(super) fn offset(&self, at: u64) -> u64 {
        self.begin.saturating_add(at)
    }

    /// Offset in the file of the checksum of the block that contains byte `at` of the object.
    pub(super) fn sum_offset(&self, at: u64) -> u64 {
        self.sums + at / BLOCK * SUM
    }

    /// Reads up to a buffer of the bytes `at..end` of the object, and verifies them block by block. Only
    /// `written` bytes are in the file.
    pub(super) fn read(&self, at: u64, end: u64, written: Written) -> Result<Bytes, CacheReadError> {
        let (first, end) = (at / BLOCK, end.min(written.bytes));
        let blocks =
            end.div_ceil(BLOCK).saturating_sub(first).min((read_buffer::size() as u64 / BLOCK).max(1));
        let (begin, stop) = (first * BLOCK, ((first + blocks) * BLOCK).min(written.bytes));
        let mut buffer = ReadBuffer::with_length(stop.saturating_sub(begin));
        let length = buffer.len();
        let mut sums = [0; (MAX_BLOCKS * SUM) as usize];
        let sums = &mut sums[..(blocks * SUM) as usize];
        if read_at(&self.file, &mut buffer, self.offset(begin))? < length
            || read_at(&self.file, sums, self.sum_offset(begin))? < sums.len()
        {
            return Err(CacheReadError::Short);
        }
        let (blocks, _) = sums.as_chunks::<{ SUM as usize }>();
        for (block, sum) in buffer.chunks(BLOCK as usize).zip(blocks) {
            let is_complete = block.len() as u64 == BLOCK || stop == self.size;
            let expected = if is_complete { u32::from_le_bytes(*sum) } else { written.partial_sum };
            let received = crc32c::crc32c(block);
            if received != expected {
                return Err(CacheReadError::Damaged { expected, received });
            }
        }
        let index = |at: u64| usize::try_from(at.saturating_sub(begin)).unwrap_or(length).min(length);
        Ok(buffer.freeze_range(index(at)..index(end)))
    }

    /// Marks the file as damaged, so that it is not kept. Returns whether it was not marked before.
    pub(super) fn set_damaged(&self) -> bool {
        !self.damaged.swap(true, Ordering::AcqRel)
    }

    pub(super) fn is_damaged(&self) -> bool {
        self.damaged.load(Ordering::Acquire)
    }
}

/// Fills `bytes` from the file, beginning at byte `at`. Returns the number of bytes read, which is less than
/// the length of `bytes` only at the end of the file.
fn read_at(file: &File, bytes: &mut [u8], at: u64) -> io::Result<usize> {
    let mut read = 0;
    while read < bytes.len() {
        match system::read_at(file, &mut bytes[read..], at.saturating_add(read as u64)) {
            Ok(0) => break,
            Ok(more) => read += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(read)
}

/// Writes all of `bytes` to the file, beginning at byte `at`.
pub(super) fn write_at(file: &File, mut bytes: &[u8], mut at: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match system::write_at(file, bytes, at) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => {
                bytes = &bytes[written..];
                at += written as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Positioned reads and writes. The readers of this process and the writer share one open file, so that its
/// cursor is of no use.
#[cfg(unix)]
mod system {
    use std::{fs::File, io, os::unix::fs::FileExt};

    pub(super) fn read_at(file: &File, bytes: &mut [u8], at: u64) -> io::Result<usize> {
        file.read_at(bytes, at)
    }

    pub(super) fn write_at(file: &File, bytes: &[u8], at: u64) -> io::Result<usize> {
        file.write_at(bytes, at)
    }
}

#[cfg(windows)]
mod system {
    use std::{fs::File, io, os::windows::fs::FileExt};

    pub(super) fn read_at(file: &File, bytes: &mut [u8], at: u64) -> io::Result<usize> {
        file.seek_read(bytes, at)
    }

    pub(super) fn write_at(file: &File, bytes: &[u8], at: u64) -> io::Result<usize> {
        file.seek_write(bytes, at)
    }
}

#[cfg(not(any(unix, windows)))]
mod system {
    use std::{fs::File, io};

    pub(super) fn read_at(_: &File, _: &mut [u8], _: u64) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn write_at(_: &File, _: &[u8], _: u64) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
