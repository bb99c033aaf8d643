//! Reads an extension header that exceeds the limit, piece by piece, and keeps only the member's name and
//! size.

use super::chunk_queue::SharedSlice;
use super::header::{Extension, invalid};
use crate::error::Result;
use bytes::Bytes;

/// If a name is too long to be kept as a whole, this number of bytes is kept.
const MAX_NAME: usize = 4096;
/// Pax records are kept up to this number of bytes. A usual path and a size take fewer bytes.
const MAX_KEPT: u64 = 64 << 10;
/// The length and keyword of a record are kept up to this number of bytes. In a record that sets a name or a
/// size, the length and keyword together take fewer bytes.
const MAX_HEAD: usize = 64;

/// Keeps the name and size of a member from an extension header of any size, in bounded memory. The walker
/// needs the size to find the next member, and the name to say in the error which sample is refused.
#[derive(Debug, Default)]
pub(super) struct LongExtension {
    /// Complete pax records: those that have the name or the size.
    kept: Vec<u8>,
    /// The beginning of a name that is too long.
    name: Vec<u8>,
    /// The beginning of the current record, up to its `=`.
    head: Vec<u8>,
    /// Number of unread bytes of the current record's value.
    left: u64,
    use_of_value: UseOfValue,
    malformed: bool,
}

/// What is done with the value of the current record.
#[derive(Debug, Default, Clone, Copy)]
enum UseOfValue {
    #[default]
    Skip,
    /// The whole record is kept.
    Keep,
    /// The value is a name that is too long. Its beginning is kept.
    Name,
}

impl LongExtension {
    /// Takes the next bytes of a GNU long name.
    pub(super) fn take_name(&mut self, bytes: &[u8]) {
        let room = MAX_NAME.saturating_sub(self.name.len());
        self.name.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    /// Takes the next bytes of a pax header.
    pub(super) fn take_records(&mut self, mut bytes: &[u8]) {
        while let Some((&byte, after)) = bytes.split_first() {
            if self.left == 0 {
                self.head.push(byte);
                bytes = after;
                if byte == b'=' || self.head.len() >= MAX_HEAD {
                    self.begin_value();
                }
                continue;
            }
            let count = usize::try_from(self.left).unwrap_or(usize::MAX).min(bytes.len());
            let (part, rest) = bytes.split_at(count);
            match self.use_of_value {
                UseOfValue::Skip => {}
                UseOfValue::Keep => self.kept.extend_from_slice(part),
                UseOfValue::Name => self.take_name(part),
            }
            self.left -= count as u64;
            bytes = rest;
        }
    }

    /// Decides what happens to the value of the record whose beginning is in `head`.
    fn begin_value(&mut self) {
        let head = std::mem::take(&mut self.head);
        let parts = head.iter().position(|&byte| byte == b' ').map(|space| head.split_at(space));
        let length = |digits: &[u8]| std::str::from_utf8(digits).ok()?.parse::<u64>().ok();
        let left_and_key = parts.and_then(|(digits, key)| {
            Some((length(digits)?.checked_sub(head.len() as u64).filter(|left| *left > 0)?, &key[1..]))
        });
        let Some((left, key)) = left_and_key else {
            (self.malformed, self.left, self.use_of_value) = (true, u64::MAX, UseOfValue::Skip);
            return;
        };
        self.left = left;
        self.use_of_value = match key {
            b"path=" | b"GNU.sparse.name=" if left > MAX_KEPT => UseOfValue::Name,
            b"path=" | b"size=" => UseOfValue::Keep,
            key if key.starts_with(b"GNU.sparse.") && key.ends_with(b"=") => UseOfValue::Keep,
            _ => UseOfValue::Skip,
        };
        if matches!(self.use_of_value, UseOfValue::Keep) {
            let kept = (self.kept.len() + head.len()) as u64;
            match left.saturating_add(kept) <= MAX_KEPT {
                true => self.kept.extend_from_slice(&head),
                false => (self.malformed, self.use_of_value) = (true, UseOfValue::Skip),
            }
        }
    }

    /// Called at the end of the header. Writes the kept name and size to `extension`. Returns whether the
    /// name was too long; if so, `extension` has only the beginning of the name.
    pub(super) fn finish(self, extension: &mut Extension) -> Result<bool> {
        if self.malformed || self.left > 0 || !self.head.is_empty() {
            return Err(invalid("a malformed pax record"));
        }
        let kept = Bytes::from(self.kept);
        extension.read_pax(SharedSlice::whole(&kept))?;
        let is_cut = !self.name.is_empty();
        if is_cut {
            extension.name(self.name.into())?;
        }
        Ok(is_cut)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(key: &str, value: &str) -> String {
        let rest = key.len() + value.len() + 3;
        let length = (rest..rest + 9).find(|length| length.to_string().len() + rest == *length).unwrap();
        format!("{length} {key}={value}\n")
    }

    fn read(records: &str, piece: usize) -> Result<(Extension, bool)> {
        let (mut long, mut extension) = (LongExtension::default(), Extension::default());
        records.as_bytes().chunks(piece).for_each(|piece| long.take_records(piece));
        long.finish(&mut extension).map(|is_cut| (extension, is_cut))
    }

    #[test]
    fn the_name_and_the_size_are_kept() {
        let long = "x".repeat(200_000);
        let text = [
            record("comment", &long),
            record("path", "a.jpg"),
            record(&"k".repeat(100), "path=b"),
            record("size", "77"),
        ];
        for piece in [1, 7, 512, 1 << 20] {
            let (extension, is_cut) = read(&text.concat(), piece).unwrap();
            assert_eq!((extension.path.as_deref(), extension.size), (Some(&b"a.jpg"[..]), Some(77)));
            assert!(!is_cut);
            let (extension, is_cut) =
                read(&[record("path", &long), text[0].clone()].concat(), piece).unwrap();
            assert!(is_cut && extension.path.unwrap() == long.as_bytes()[..MAX_NAME]);
        }
    }

    #[test]
    fn malformed_records_and_too_many_sizes_are_refused() {
        let many = record("size", "7").repeat(20_000);
        for text in ["7", "x path=a\n", "3 path=a\n", "9999 comment=x\n", &many, &"9".repeat(100)] {
            assert!(read(text, 100).is_err(), "{:?}", &text[..text.len().min(20)]);
        }
    }
}
