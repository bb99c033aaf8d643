//! Computes the size of an archive before the archive is written.

use super::header::{BLOCK, headers_length};
use super::tar::whole_archive;

/// The size of an archive, computed from the names and sizes of its members. Use it to plan shards before the
/// data is read, or to check that a shard is complete.
///
/// ```
/// use shardstream::{Sample, write::{ArchiveSize, TarWriter}};
///
/// let mut size = ArchiveSize::new();
/// size.add("0001", "cls", 1);
/// size.add("0001", "jpg", 12_345);
///
/// let mut writer = TarWriter::new(Vec::new());
/// writer.write(&Sample::new("0001").with("cls", 7).with("jpg", vec![0; 12_345]))?;
/// assert_eq!(writer.finish()?.len() as u64, size.bytes());
/// # Ok::<(), shardstream::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArchiveSize {
    members: u64,
}

impl ArchiveSize {
    /// An archive without a member.
    #[must_use]
    pub fn new() -> Self {
        ArchiveSize { members: 0 }
    }

    /// Adds the member `KEY.FIELD` with `bytes` bytes of content. This function does not check that a reader
    /// accepts the name.
    pub fn add(&mut self, key: &str, field: &str, bytes: u64) {
        let head = headers_length(&format!("{key}.{field}"), bytes);
        let body = bytes.checked_next_multiple_of(BLOCK as u64).unwrap_or(u64::MAX);
        self.members = self.members.saturating_add(head).saturating_add(body);
    }

    /// Adds a member with `headers` bytes of headers and `bytes` bytes of content. The name of the member
    /// need not be known. The headers have 512 bytes, or more if the name is long. Their length can be
    /// computed from an [`Index`](crate::Index): they end where the member's
    /// [content](crate::index::ShardIndex::members) begins.
    pub fn add_member(&mut self, headers: u64, bytes: u64) {
        let round = |bytes: u64| bytes.checked_next_multiple_of(BLOCK as u64).unwrap_or(u64::MAX);
        self.members = self.members.saturating_add(round(headers)).saturating_add(round(bytes));
    }

    /// The size of the whole archive in bytes, with all headers, padding and the end marker, before
    /// compression.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        whole_archive(self.members)
    }
}

impl Default for ArchiveSize {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Sample;
    use crate::write::TarWriter;

    #[test]
    fn the_computed_size_is_that_of_the_written_archive() {
        let long = format!("{}2", "d/".repeat(70));
        let mut writer = TarWriter::new(Vec::new());
        let mut size = ArchiveSize::default();
        assert_eq!(size.bytes(), 10_240);
        for (key, field, bytes) in
            [("0", "jpg", 0), ("1", "seg.png", 1), ("猫", "cls", 512), (&*long, "bin", 40_961)]
        {
            size.add(key, field, bytes);
            writer.write(&Sample::new(key).with(field, vec![0; bytes as usize])).unwrap();
        }
        let archive = writer.finish().unwrap();
        assert_eq!(archive.len() as u64, size.bytes());
        let mut by_headers = ArchiveSize::new();
        for (headers, bytes) in [(512, 0), (512, 1), (1536, 512), (1536, 40_961)] {
            by_headers.add_member(headers, bytes);
        }
        assert_eq!(by_headers.bytes(), size.bytes());
    }

    #[test]
    fn huge_sizes_do_not_overflow() {
        let mut size = ArchiveSize::new();
        size.add("a", "bin", u64::MAX);
        size.add("b", "bin", u64::MAX);
        size.add_member(u64::MAX, u64::MAX);
        assert_eq!(size.bytes(), u64::MAX - u64::MAX % 10_240);
    }
}
