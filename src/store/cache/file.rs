//! What a file of the cache looks like: a head that says which object this is, its bytes as they are stored, and a tail.
//!
//! The head comes first, so that others can follow a file that is still growing. The tail makes it whole.

use crate::Result;
use crate::store::ObjectVersion;
use crate::store::buffer::{Buffer, SIZE};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io;

const MAGIC: &[u8; 12] = b"shardstream\n";
/// The magic and the length of the document that follows.
const FIXED: u64 = 16;
/// A longer document is damage, or describes a URL that isn't worth it.
const LONGEST_DOCUMENT: u64 = 64 << 10;
const FORMAT: u32 = 1;
/// The checksums of the head and of the content, and the magic.
pub(super) const TAIL: u64 = 20;

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

/// A file of the cache that holds an object, or will.
#[derive(Debug)]
pub(super) struct Content {
    pub(super) file: File,
    pub(super) size: u64,
    pub(super) version: String,
    /// Where the object's first byte stands in the file.
    begins: u64,
    head_sum: u32,
}

/// The head of a file for an object; none for one that can't be described in reasonable space.
pub(super) fn head(key: &str, url: &str, version: &str, size: u64) -> Option<Vec<u8>> {
    let (key, url, version) = (key.into(), crate::store::location::redacted(url).into(), version.into());
    let document = serde_json::to_vec(&Document { format: FORMAT, key, url, version, size }).ok()?;
    let length =
        u32::try_from(document.len()).ok().filter(|length| u64::from(*length) <= LONGEST_DOCUMENT)?;
    Some([&MAGIC[..], &length.to_le_bytes(), &document].concat())
}

impl Content {
    /// Reads the head of a file; none if it isn't that of `key`, or isn't there yet.
    pub(super) fn of(file: File, key: &str) -> io::Result<Result<Content, File>> {
        let mut fixed = [0; FIXED as usize];
        if read_at(&file, &mut fixed, 0)? < fixed.len() || !fixed.starts_with(MAGIC) {
            return Ok(Err(file));
        }
        let [.., a, b, c, d] = fixed;
        let length = u64::from(u32::from_le_bytes([a, b, c, d]));
        let mut document = vec![0; length.min(LONGEST_DOCUMENT) as usize];
        if length > LONGEST_DOCUMENT || read_at(&file, &mut document, FIXED)? < document.len() {
            return Ok(Err(file));
        }
        let head_sum = crc32c::crc32c_append(crc32c::crc32c(&fixed), &document);
        match serde_json::from_slice::<Document>(&document) {
            Ok(found) if found.format == FORMAT && found.key == key => {
                let Document { version, size, .. } = found;
                Ok(Ok(Content { file, size, version, begins: FIXED + length, head_sum }))
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

    /// How many bytes of the object are there.
    pub(super) fn written(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len().saturating_sub(self.begins).min(self.size))
    }

    /// What makes a file whole, and where it stands.
    pub(super) fn tail(&self, sum: u32) -> ([u8; TAIL as usize], u64) {
        let mut tail = [0; TAIL as usize];
        tail[..4].copy_from_slice(&self.head_sum.to_le_bytes());
        tail[4..8].copy_from_slice(&sum.to_le_bytes());
        tail[8..].copy_from_slice(MAGIC);
        (tail, self.begins.saturating_add(self.size))
    }

    /// The checksum of the object's bytes (CRC-32C) if the file is whole.
    pub(super) fn whole(&self) -> io::Result<Option<u32>> {
        let (mut expected, at) = self.tail(0);
        let mut found = [0; TAIL as usize];
        if self.file.metadata()?.len() != self.total() || read_at(&self.file, &mut found, at)? < found.len() {
            return Ok(None);
        }
        let [_, _, _, _, a, b, c, d, ..] = found;
        expected[4..8].copy_from_slice(&[a, b, c, d]);
        Ok((expected == found).then_some(u32::from_le_bytes([a, b, c, d])))
    }

    /// Where in the file a byte of the object stands.
    pub(super) fn place(&self, at: u64) -> u64 {
        self.begins.saturating_add(at)
    }

    /// A buffer of the object's bytes from `at` on and before `end`; fewer where the file ends.
    pub(super) fn read(&self, at: u64, end: u64) -> io::Result<Bytes> {
        let mut buffer = Buffer::full();
        let wanted = usize::try_from(end.saturating_sub(at)).unwrap_or(SIZE).min(SIZE);
        let read = read_at(&self.file, &mut buffer[..wanted], self.place(at))?;
        Ok(buffer.freeze_first(read))
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
