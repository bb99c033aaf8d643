//! Checks the end of an archive: two blocks of zeros, followed by padding only.
//!
//! Preallocated downloads, power failures and bad network file systems leave regions of zeros in files. A
//! region of zeros that begins where a header should be looks like the end of the archive. These checks
//! distinguish such a region from the end of the archive, so that overwritten samples are an error.

use super::header::BLOCK;
use crate::error::{Error, ErrorKind};
use std::iter;

/// Size in bytes of the end-of-archive marker.
const MARKER: u64 = 2 * BLOCK as u64;
/// Size in bytes of a usual record: nearly all writers pad archives to a multiple of this size.
const RECORD: u64 = 20 * BLOCK as u64;
/// Largest accepted record size in bytes. An archive is refused if its padding requires a larger record.
const MAX_RECORD: u64 = 1 << 20;

/// An archive that ends with an end marker.
#[derive(Debug)]
pub(super) struct ArchiveEnd {
    /// The offset of the first block of zeros.
    pub(super) first: u64,
    /// The offset at which the archive begins, if known.
    pub(super) archive: Option<u64>,
    /// Largest accepted number of zeros after the marker, if the caller has set it.
    pub(super) max_padding: Option<u64>,
}

impl ArchiveEnd {
    /// Checks that the zeros up to the offset `end` can be padding. More zeros may follow after `end`.
    pub(super) fn check_more(&self, end: u64) -> Result<(), Error> {
        let max = self.max_padding.unwrap_or(if self.is_empty() { RECORD } else { MAX_RECORD });
        if self.padding(end) <= max { Ok(()) } else { Err(self.too_long(end)) }
    }

    /// Checks that the zeros up to the offset `end` can be padding. The input ends or the next archive begins
    /// at `end`.
    pub(super) fn check(&self, end: u64) -> Result<(), Error> {
        let padding = self.padding(end);
        let explained = match (self.max_padding, self.archive) {
            (Some(max), _) => padding <= max,
            (None, Some(start)) => self.is_padded(end.saturating_sub(start), padding),
            (None, None) => padding < MAX_RECORD,
        };
        if explained { Ok(()) } else { Err(self.too_long(end)) }
    }

    /// Whether the last `padding` bytes of an archive can be the padding that completes its last record.
    /// `length` is the length of the archive in bytes, padding included.
    fn is_padded(&self, length: u64, padding: u64) -> bool {
        let largest = if self.is_empty() { RECORD } else { MAX_RECORD };
        // A small archive may be a single record.
        if length <= largest && length.is_multiple_of(BLOCK as u64) {
            return true;
        }
        let doubled = |unit: u64| iter::successors(Some(unit), |record| record.checked_mul(2));
        let records = [BLOCK as u64, RECORD / 2].into_iter();
        let mut records = records.flat_map(|unit| doubled(unit).take_while(|record| *record <= largest));
        records.any(|record| padding < record && length.is_multiple_of(record))
    }

    /// Whether the archive has no member.
    fn is_empty(&self) -> bool {
        self.archive == Some(self.first)
    }

    /// Number of zeros after the end marker, up to `end`.
    fn padding(&self, end: u64) -> u64 {
        end.saturating_sub(self.first).saturating_sub(MARKER)
    }

    fn too_long(&self, end: u64) -> Error {
        let zeros = self.padding(end);
        let message = format!(
            "{zeros} bytes of zeros or more follow the end-of-archive marker, which no padding explains: \
             members were probably overwritten with zeros (if the writer of the shard pads it that far, \
             set `tar::Limits::padding`, `--limit padding=SIZE` in the program)"
        );
        Error::from(ErrorKind::ArchiveEnd(message)).at_offset(self.first)
    }
}

/// The error for a single block of zeros in place of a header.
pub(super) fn lone_block() -> Error {
    let message = "a single block of zeros is in place of a header, where an end-of-archive marker has \
                   two: members were probably overwritten with zeros";
    ErrorKind::ArchiveEnd(message.into()).into()
}

/// The error for a block of zeros in place of a header, in a range that ends before the archive does.
pub(super) fn zeros_in_range() -> Error {
    let message = "zeros are in place of a header, in a part of the shard that ends before the archive \
                   does: members were probably overwritten with zeros, or the index is that of another shard";
    ErrorKind::ArchiveEnd(message.into()).into()
}

/// The error for an archive that ends before `reach`, although the index lists members up to `reach`.
pub(super) fn ends_too_early(reach: u64) -> Error {
    let message = format!(
        "there are zeros where the index says that members reach up to byte {reach}: the members were \
         probably overwritten"
    );
    ErrorKind::ArchiveEnd(message).into()
}

/// The error for data after the end marker, whose zeros begin at `first`.
pub(super) fn data_after(first: u64) -> Error {
    let message = format!(
        "data follows the end-of-archive marker, whose zeros begin at byte {first}: members were probably \
         overwritten with zeros, or the data was appended to the archive"
    );
    ErrorKind::ArchiveEnd(message).into()
}

/// The error for another archive after the end marker, whose zeros begin at `first`.
pub(super) fn archive_after(first: u64) -> Error {
    let message = format!(
        "a tar header follows the end-of-archive marker, whose zeros begin at byte {first}: members were \
         probably overwritten with zeros (if archives were concatenated on purpose, set \
         `tar::Limits::archives`, `--limit archives=COUNT` in the program)"
    );
    ErrorKind::ArchiveEnd(message).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(members: u64, length: u64, max_padding: Option<u64>) -> bool {
        let end = ArchiveEnd { first: members, archive: Some(0), max_padding };
        let accepted = end.check(length).is_ok();
        assert!(!accepted || end.check_more(length).is_ok(), "{members} {length}");
        accepted
    }

    #[test]
    fn padding_of_all_writers_is_accepted() {
        for members in [512, 1024, 10_240 - 1024, 10_240, 5_000_192] {
            let marked = members + MARKER;
            // Go, Rust and libarchive write no padding.
            assert!(ends(members, marked, None), "{members}");
            // GNU tar with `--blocking-factor`, and Python, pad to whole records.
            for factor in [1, 2, 4, 8, 10, 20, 40, 64, 128, 160, 256, 512, 640, 1024, 2048] {
                assert!(ends(members, marked.next_multiple_of(factor * 512), None), "{members}, {factor}");
            }
        }
    }

    #[test]
    fn zeros_beyond_a_record_need_a_set_limit() {
        // These archives are refused: they have more records than they need, or their length is no multiple
        // of a record or of a block.
        for (members, length) in [
            (205 * 10_240, 207 * 10_240),
            (205 * 10_240, 215 * 10_240),
            (200 * 10_240, 201 * 10_240 + 512),
            (4000 * 512, 4003 * 512),
            (1024, 2049),
        ] {
            assert!(!ends(members, length, None), "{members}, {length}");
            assert!(ends(members, length, Some(200_000)), "{members}, {length}");
        }
        assert!(ends(1024, 30_720, None), "a single record");
        assert!(ends(2 << 20, (4 << 20) - 512, Some(u64::MAX)));
        assert!(!ends(2 << 20, 4 << 20, None));
        assert!(!ends(1024, 10_240, Some(0)) && ends(1024, 2048, Some(0)));
    }

    #[test]
    fn an_archive_without_members_has_at_most_one_record() {
        for (length, expected) in [(1024, true), (10_240, true), (20_480, false), (1 << 20, false)] {
            assert_eq!(ends(0, length, None), expected, "{length}");
        }
    }
}
