//! The layout of a file of the cache: a head that says which object this is, a checksum of each block, the
//! object's bytes as they are stored, and a tail.
//!
//! The head comes first, so that others can follow a file that is still growing. A block's checksum is
//! written before its last byte is, so that whoever sees the whole block can check it. The tail makes the
//! file whole.

use crate::Result;
use crate::secret_url::SecretUrl;
use crate::store::ObjectVersion;
use crate::store::buffer::{self, Buffer};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

const MAGIC: &[u8; 12] = b"shardstream\n";
/// The magic and the length of the document that follows.
const FIXED: u64 = 16;
/// A longer document is damage, or describes a URL that isn't worth it.
const LONGEST_DOCUMENT: u64 = 64 << 10;
/// The first layout had one checksum of all bytes, which is of no use to those who read a part.
const FORMAT: u32 = 2;
/// The checksum of the head, and the magic.
pub(super) const TAIL: u64 = 16;
/// Bytes of an object that share a checksum. A part is read in whole blocks: they are small beside most
/// parts, and their checksums take less than a ten-thousandth of the object.
pub(super) const BLOCK: u64 = 64 << 10;
/// Blocks that are read at once, at the most.
const MOST_BLOCKS: u64 = buffer::LARGEST as u64 / BLOCK;
/// Bytes of a checksum (CRC-32C).
const SUM: u64 = 4;

/// Which object a file holds.
#[derive(Debug, Serialize, Deserialize)]
struct Document {
    format: u32,
    /// That of the file's name, which a copy under another name does not have.
    key: String,
    /// For people: without what must not be shown.
    url: String,
    version: String,
    size: u64,
}

/// The part of a [`Document`] that all layouts have.
#[derive(Deserialize)]
struct Layout {
    format: u32,
}

/// A file of the cache that holds an object, or will.
#[derive(Debug)]
pub(super) struct Content {
    pub(super) file: File,
    pub(super) size: u64,
    pub(super) version: String,
    /// Where the checksums of the blocks begin in the file.
    sums: u64,
    /// Where the object's first byte is in the file.
    begins: u64,
    head_sum: u32,
    /// Whether a reader has found damage in it.
    damaged: AtomicBool,
}

/// How much of an object has been written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Written {
    /// Bytes of the object, from the first on.
    pub(super) bytes: u64,
    /// The checksum of those of them that follow the last whole block. That of the object's last block is in
    /// the file.
    rest: u32,
}

impl Written {
    /// Counts a chunk in, and adds the checksums of the blocks that it completes in an object of `size`
    /// bytes.
    pub(super) fn add(&mut self, mut chunk: &[u8], size: u64, complete: &mut Vec<u8>) {
        while !chunk.is_empty() {
            let left = BLOCK - self.bytes % BLOCK;
            let (block, behind) =
                chunk.split_at(usize::try_from(left).unwrap_or(usize::MAX).min(chunk.len()));
            self.bytes += block.len() as u64;
            self.rest = crc32c::crc32c_append(self.rest, block);
            if self.bytes.is_multiple_of(BLOCK) || self.bytes == size {
                complete.extend_from_slice(&self.rest.to_le_bytes());
                self.rest = 0;
            }
            chunk = behind;
        }
    }
}

/// Why bytes of a file cannot be handed out.
#[derive(Debug)]
pub(super) enum Fault {
    Io(io::Error),
    /// The file ends before them.
    Short,
    /// A block does not have the checksum that it was written with.
    Damaged {
        expected: u32,
        received: u32,
    },
}

impl Fault {
    pub(super) fn other(error: crate::Error) -> Self {
        Fault::Io(io::Error::other(error))
    }
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Fault::Io(error)
    }
}

/// The head of a file for an object; none for one that can't be described in reasonable space.
pub(super) fn head(key: &str, url: &SecretUrl, version: &str, size: u64) -> Option<Vec<u8>> {
    let (key, url, version) = (key.into(), url.to_string(), version.into());
    let document = serde_json::to_vec(&Document { format: FORMAT, key, url, version, size }).ok()?;
    let length =
        u32::try_from(document.len()).ok().filter(|length| u64::from(*length) <= LONGEST_DOCUMENT)?;
    Some([&MAGIC[..], &length.to_le_bytes(), &document].concat())
}

/// The bytes that the checksums of an object of `size` bytes take.
fn sums_length(size: u64) -> u64 {
    size.div_ceil(BLOCK) * SUM
}

/// The length and checksum of a head, and the document in it; none if the file does not begin with one.
fn document(file: &File) -> io::Result<Option<(u64, u32, Vec<u8>)>> {
    let mut fixed = [0; FIXED as usize];
    if read_at(file, &mut fixed, 0)? < fixed.len() || !fixed.starts_with(MAGIC) {
        return Ok(None);
    }
    let [.., a, b, c, d] = fixed;
    let length = u64::from(u32::from_le_bytes([a, b, c, d]));
    let mut document = vec![0; length.min(LONGEST_DOCUMENT) as usize];
    if length > LONGEST_DOCUMENT || read_at(file, &mut document, FIXED)? < document.len() {
        return Ok(None);
    }
    let head_sum = crc32c::crc32c_append(crc32c::crc32c(&fixed), &document);
    Ok(Some((FIXED + length, head_sum, document)))
}

/// Whether another version of this crate has written the file, in a layout of its own.
pub(super) fn is_of_another_layout(file: &File) -> io::Result<bool> {
    let layout = document(file)?.and_then(|(.., document)| serde_json::from_slice::<Layout>(&document).ok());
    Ok(layout.is_some_and(|layout| layout.format != FORMAT))
}

impl Content {
    /// Reads the head of a file; none if it isn't that of `key`, or isn't there yet.
    pub(super) fn of(file: File, key: &str) -> io::Result<Result<Content, File>> {
        let Some((sums, head_sum, document)) = document(&file)? else { return Ok(Err(file)) };
        match serde_json::from_slice::<Document>(&document) {
            Ok(found) if found.format == FORMAT && found.key == key => {
                let Document { version, size, .. } = found;
                let begins = sums + sums_length(size);
                Ok(Ok(Content {
                    file,
                    size,
                    version,
                    sums,
                    begins,
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

    /// The bytes that the file takes when it is whole.
    pub(super) fn total(&self) -> u64 {
        (self.begins + TAIL).saturating_add(self.size)
    }

    /// All bytes of the object.
    pub(super) fn all(&self) -> Written {
        Written { bytes: self.size, rest: 0 }
    }

    /// How much another process has written: whole blocks, since the checksum of what follows them is not in
    /// the file.
    pub(super) fn written(&self) -> io::Result<Written> {
        let bytes = self.file.metadata()?.len().saturating_sub(self.begins).min(self.size);
        let bytes = if bytes == self.size { bytes } else { bytes - bytes % BLOCK };
        Ok(Written { bytes, rest: 0 })
    }

    /// What makes a file whole, and where it is.
    pub(super) fn tail(&self) -> ([u8; TAIL as usize], u64) {
        let mut tail = [0; TAIL as usize];
        tail[..4].copy_from_slice(&self.head_sum.to_le_bytes());
        tail[4..].copy_from_slice(MAGIC);
        (tail, self.begins.saturating_add(self.size))
    }

    /// Whether the file is whole. Its blocks are checked when they are read.
    pub(super) fn is_whole(&self) -> io::Result<bool> {
        let (expected, at) = self.tail();
        let mut found = [0; TAIL as usize];
        Ok(self.file.metadata()?.len() == self.total()
            && read_at(&self.file, &mut found, at)? == found.len()
            && found == expected)
    }

    /// Where in the file a byte of the object is.
    pub(super) fn place(&self, at: u64) -> u64 {
        self.begins.saturating_add(at)
    }

    /// Where in the file the checksum of the block is that byte `at` belongs to.
    pub(super) fn sum_place(&self, at: u64) -> u64 {
        self.sums + at / BLOCK * SUM
    }

    /// A buffer of the object's bytes from `at` on and before `end`, checked block by block. Some have been
    /// written.
    pub(super) fn read(&self, at: u64, end: u64, written: Written) -> Result<Bytes, Fault> {
        let (first, end) = (at / BLOCK, end.min(written.bytes));
        let blocks = end.div_ceil(BLOCK).saturating_sub(first).min((buffer::size() as u64 / BLOCK).max(1));
        let (begin, stop) = (first * BLOCK, ((first + blocks) * BLOCK).min(written.bytes));
        let mut buffer = Buffer::of(stop.saturating_sub(begin));
        let length = buffer.len();
        let mut sums = [0; (MOST_BLOCKS * SUM) as usize];
        let sums = &mut sums[..(blocks * SUM) as usize];
        if read_at(&self.file, &mut buffer, self.place(begin))? < length
            || read_at(&self.file, sums, self.sum_place(begin))? < sums.len()
        {
            return Err(Fault::Short);
        }
        let (blocks, _) = sums.as_chunks::<{ SUM as usize }>();
        for (block, sum) in buffer.chunks(BLOCK as usize).zip(blocks) {
            let whole = block.len() as u64 == BLOCK || stop == self.size;
            let expected = if whole { u32::from_le_bytes(*sum) } else { written.rest };
            let received = crc32c::crc32c(block);
            if received != expected {
                return Err(Fault::Damaged { expected, received });
            }
        }
        let offset = |at: u64| usize::try_from(at.saturating_sub(begin)).unwrap_or(length).min(length);
        Ok(buffer.freeze_range(offset(at)..offset(end)))
    }

    /// Notes damage, so that the file is not kept. Says whether it is the first to be found.
    pub(super) fn set_damaged(&self) -> bool {
        !self.damaged.swap(true, Ordering::AcqRel)
    }

    pub(super) fn is_damaged(&self) -> bool {
        self.damaged.load(Ordering::Acquire)
    }
}

/// Fills `bytes` from byte `at` of the file on, or as much of it as there is.
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

/// Reading and writing at a place of the file: its readers in this process and its writer share one.
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
