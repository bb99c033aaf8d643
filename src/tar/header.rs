//! Parses a tar header block and the extension headers before it.
//!
//! Formats: POSIX ustar and pax (IEEE Std 1003.1, pax interchange format), GNU tar, and the v7 layout. The
//! types of the `tar` crate read the fields.

use super::chunk_queue::SharedSlice;
use crate::error::{Error, ErrorKind, Result};
use bytes::Bytes;
use tar::{EntryType, Header};

pub(super) const BLOCK: usize = 512;
/// The checksum field of a header. The checksum is computed as if this field contained spaces.
const CHECKSUM: std::ops::Range<usize> = 148..156;

/// The offset of a flag in the header of a sparse member. If the flag is set, a block with the next part of
/// the member's map follows.
const SPARSE_CONTINUED: usize = 482;
/// The offset of a flag in a block with a part of a sparse member's map. If the flag is set, another such
/// block follows.
const MAP_CONTINUED: usize = 504;

/// The kind of a tar member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum EntryKind {
    /// A file with content.
    File,
    /// A hard or symbolic link. The member has no content; the target of the link has it.
    Link,
    /// Any other kind, such as a directory, a device or a volume label. Such a member has no data of a
    /// sample.
    Other,
}

/// The values that extension headers set for the next member; `None` for a value that they do not set.
#[derive(Debug, Default)]
pub(super) struct Extension {
    /// Whether one of the extension headers is a pax header.
    pub(super) pax: bool,
    pub(super) path: Option<Bytes>,
    pub(super) size: Option<u64>,
    /// Whether pax records say that the member is sparse.
    sparse: bool,
    /// The name of a sparse member. For such a member, `path` has a generated name.
    sparse_name: Option<Bytes>,
}

/// Where the map of a sparse member ends. The map says which parts of the file are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SparseMap {
    /// The whole map is in the header, in pax records, or in the content.
    Whole,
    /// The map continues in blocks between the header and the content, as in GNU's older form.
    Continued,
}

/// The meaning of one header block.
#[derive(Debug)]
pub(super) enum Block {
    /// A block of zeros, such as at the end of the archive.
    Zeros,
    /// A member, with the size of its content.
    Member { name: Bytes, kind: EntryKind, size: u64, sparse: Option<SparseMap> },
    /// A pax header for the next member.
    Pax { size: u64 },
    /// A pax header for all members that follow.
    GlobalPax { size: u64 },
    /// A GNU long name for the next member.
    LongName { size: u64 },
    /// A header whose content does not matter for samples. `size` is the size of this content.
    Ignored { size: u64 },
}

/// Parses one header block. `extension` has the values of the extension headers before this block.
pub(super) fn parse(block: SharedSlice<'_>, extension: &mut Extension, global: &Extension) -> Result<Block> {
    let header = Header::from_byte_slice(&block);
    let sum = sum(header.as_bytes());
    if sum == 0 {
        return Ok(Block::Zeros);
    }
    verify(header, sum)?;
    let size = size(header)?;
    let kind = match header.entry_type() {
        EntryType::XHeader => return Ok(Block::Pax { size }),
        // Solaris tar's letter for pax headers, which is older than POSIX's letter.
        other if other.as_byte() == b'X' => return Ok(Block::Pax { size }),
        EntryType::XGlobalHeader => return Ok(Block::GlobalPax { size }),
        EntryType::GNULongName => return Ok(Block::LongName { size }),
        EntryType::GNULongLink => return Ok(Block::Ignored { size }),
        EntryType::Regular | EntryType::Continuous => EntryKind::File,
        EntryType::Link | EntryType::Symlink => EntryKind::Link,
        EntryType::GNUSparse => EntryKind::File,
        other if other.as_byte() == b'M' => {
            return Err(invalid("a continuation of a multi-volume archive; join the volumes first"));
        }
        _ => EntryKind::Other,
    };
    let path = extension.path.take();
    let name = match extension.sparse_name.take().or(path).or_else(|| global.path.clone()) {
        Some(path) => path,
        None => name(block, header),
    };
    let sparse = match header.entry_type() {
        EntryType::GNUSparse if block[SPARSE_CONTINUED] != 0 => Some(SparseMap::Continued),
        EntryType::GNUSparse => Some(SparseMap::Whole),
        _ => (extension.sparse || global.sparse).then_some(SparseMap::Whole),
    };
    extension.sparse = false;
    let size = extension.size.take().or(global.size).unwrap_or(size);
    extension.pax = false;
    // GNU tar and Python's tarfile agree that these types have no data blocks, whatever their size field
    // says.
    let no_data = matches!(header.entry_type().as_byte(), b'1'..=b'6');
    let sparse = sparse.filter(|_| kind == EntryKind::File);
    Ok(Block::Member { name, kind, size: if no_data { 0 } else { size }, sparse })
}

/// Whether another block with a part of a sparse member's map follows this block.
pub(super) fn has_more_map(block: &[u8]) -> bool {
    block[MAP_CONTINUED] != 0
}

/// The name in the header itself: the `prefix` field, if any, and the `name` field.
///
/// The `tar` crate reads the prefix only if the header's version is `00`, but some old writers set another
/// version. As in other readers, the prefix is read from every `ustar` header that is not GNU's.
fn name(block: SharedSlice<'_>, header: &Header) -> Bytes {
    const MAGIC: std::ops::Range<usize> = 257..265;
    const PREFIX: std::ops::Range<usize> = 345..500;
    let text = |field: &[u8]| field.iter().position(|&byte| byte == 0).unwrap_or(field.len());
    let name = &header.as_old().name;
    let name = &name[..text(name)];
    let magic = &block[MAGIC];
    let prefix = &block[PREFIX];
    let prefix = &prefix[..text(prefix)];
    if prefix.is_empty() || !magic.starts_with(b"ustar") || magic == b"ustar  \0" {
        return block.share(name);
    }
    [prefix, b"/", name].concat().into()
}

/// The size field: octal digits or a base-256 number. GNU tar leaves the field blank in volume labels.
///
/// The `tar` crate reads only the last eight bytes of a base-256 number; the other bytes are checked here.
fn size(header: &Header) -> Result<u64> {
    let field = &header.as_old().size;
    if let Some(size) = plain_octal(field) {
        return Ok(size);
    }
    let digits = field.split(|&byte| byte == 0).next().unwrap_or_default();
    if digits.iter().all(|&byte| byte == b' ') {
        return Ok(0);
    }
    if field[0] & 0x80 != 0 && (field[0] != 0x80 || field[1..4] != [0; 3]) {
        return Err(invalid("a base-256 size that is negative or beyond 64 bits"));
    }
    header.entry_size().map_err(malformed)
}

/// Octal digits up to a NUL, as nearly all writers write them. The `tar` crate reads all other forms.
fn plain_octal(field: &[u8]) -> Option<u64> {
    // Sizes have 11 digits, and checksums 6.
    if let Some((digits, [0, ..])) = field.split_first_chunk::<11>()
        && let Some(number) = octal_digits(digits)
    {
        return Some(number);
    }
    if let Some((digits, [0, ..])) = field.split_first_chunk::<6>()
        && let Some(number) = octal_digits(digits)
    {
        return Some(number);
    }
    let end = field.iter().position(|&byte| byte == 0).unwrap_or(field.len());
    octal_digits(&field[..end]).filter(|_| end > 0)
}

/// Parses octal digits, without a branch per digit.
fn octal_digits(digits: &[u8]) -> Option<u64> {
    let (mut number, mut others) = (0, 0);
    for byte in digits {
        let digit = byte ^ b'0';
        others |= digit;
        number = number << 3 | u64::from(digit);
    }
    (others < 8).then_some(number)
}

/// The sum of a header's bytes. Adds eight bytes at a time, in four sums of 16 bits. A header has 64 words of
/// eight bytes, which cannot overflow these sums. In unoptimised builds, adding byte by byte took a quarter
/// of the time of all tests.
fn sum(block: &[u8; BLOCK]) -> u32 {
    const EVERY_OTHER_BYTE: u64 = 0x00ff_00ff_00ff_00ff;
    let (words, _) = block.as_chunks::<8>();
    let mut sums = 0;
    for word in words {
        let word = u64::from_ne_bytes(*word);
        sums += (word & EVERY_OTHER_BYTE) + (word >> 8 & EVERY_OTHER_BYTE);
    }
    (0..4).map(|part| (sums >> (16 * part)) as u32 & 0xffff).sum()
}

/// Checks the header's checksum: the sum of its bytes. Some old archivers added the bytes as signed numbers.
fn verify(header: &Header, sum: u32) -> Result<()> {
    let block = header.as_bytes();
    let spaces = (b' ' as u32) * CHECKSUM.len() as u32;
    let field: u32 = block[CHECKSUM].iter().map(|&byte| u32::from(byte)).sum();
    let expected = match plain_octal(&header.as_old().cksum) {
        Some(sum) => sum as u32,
        None => header.cksum().map_err(|_| Error::from(ErrorKind::Checksum))?,
    };
    if expected == sum - field + spaces {
        return Ok(());
    }
    let signed: i64 = block.iter().map(|&byte| i64::from(byte as i8)).sum();
    let signed_field: i64 = block[CHECKSUM].iter().map(|&byte| i64::from(byte as i8)).sum();
    if i64::from(expected) == signed - signed_field + i64::from(spaces) {
        return Ok(());
    }
    Err(ErrorKind::Checksum.into())
}

impl Extension {
    /// Reads the records of a pax header.
    pub(super) fn read_pax(&mut self, records: SharedSlice<'_>) -> Result<()> {
        for record in pax_records(&records) {
            let (key, value) = record?;
            match key {
                b"path" => {
                    if self.path.is_some() {
                        return Err(two_names());
                    }
                    if value.contains(&0) {
                        return Err(invalid("a pax path with a NUL in it"));
                    }
                    // Trailing slashes are removed as in Python's `tarfile`: the header's type, and not a
                    // slash, says whether the member is a directory.
                    let slashes = value.iter().rev().take_while(|&&byte| byte == b'/').count();
                    let path = &value[..value.len() - slashes];
                    self.path = (!value.is_empty()).then(|| records.share(path));
                }
                b"GNU.sparse.name" => {
                    (self.sparse, self.sparse_name) = (true, Some(records.share(value)));
                }
                b"size" => {
                    let size = std::str::from_utf8(value).ok().and_then(|size| size.parse().ok());
                    self.size = Some(size.ok_or_else(|| invalid("a pax size that is not a number"))?);
                }
                key if key.starts_with(b"GNU.sparse.") => self.sparse = true,
                _ => {}
            }
        }
        Ok(())
    }

    /// Reads the records of a later global pax header. Values that the later header does not set stay
    /// unchanged.
    pub(super) fn override_with(&mut self, records: SharedSlice<'_>) -> Result<()> {
        let mut later = Extension::default();
        later.read_pax(records)?;
        self.path = later.path.or(self.path.take());
        self.size = later.size.or(self.size);
        self.sparse |= later.sparse;
        Ok(())
    }

    /// Reads a GNU long name. A long name ends with one NUL, which some writers leave out. Other NULs are an
    /// error: part of the name was overwritten with zeros.
    pub(super) fn read_long_name(&mut self, name: SharedSlice<'_>) -> Result<()> {
        let text = name.strip_suffix(b"\0").unwrap_or(&name);
        if text.is_empty() || text.contains(&0) {
            return Err(invalid("a GNU long name that is empty or has a NUL in it"));
        }
        self.name(name.share(text))
    }

    /// Sets the name. Returns an error if the member has an extended name already.
    pub(super) fn name(&mut self, name: Bytes) -> Result<()> {
        match self.path.replace(name) {
            Some(_) => Err(two_names()),
            None => Ok(()),
        }
    }
}

/// The keywords and values of pax records, `LENGTH KEYWORD=VALUE\n`. The end of a record follows from its
/// length alone, because a value may contain line breaks. (The `tar` crate ends a record at the first line
/// break.)
fn pax_records(mut rest: &[u8]) -> impl Iterator<Item = Result<(&[u8], &[u8])>> {
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let Some((key, value, after)) = split_record(rest) else {
            rest = &[];
            return Some(Err(invalid("a malformed pax record")));
        };
        rest = after;
        Some(Ok((key, value)))
    })
}

/// The keyword and the value of the first record, and the bytes that follow the record.
fn split_record(bytes: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let (mut length, mut space) = (0_usize, 0);
    loop {
        match bytes.get(space)? {
            digit @ b'0'..=b'9' => {
                length = length.checked_mul(10)?.checked_add(usize::from(digit - b'0'))?;
            }
            b' ' if space > 0 => break,
            _ => return None,
        }
        space += 1;
    }
    let (record, after) = bytes.split_at_checked(length)?;
    let text = record.get(space + 1..)?.strip_suffix(b"\n")?;
    let equals = text.iter().position(|&byte| byte == b'=')?;
    Some((&text[..equals], &text[equals + 1..], after))
}

/// The error for a member with two extended names: readers disagree on which of the names is valid, so
/// neither can be trusted.
fn two_names() -> Error {
    invalid("two extended names for one member")
}

fn malformed(error: std::io::Error) -> Error {
    ErrorKind::Header(error.to_string()).into()
}

pub(super) fn invalid(message: &str) -> Error {
    ErrorKind::Header(message.into()).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn plain_octal_agrees_with_the_tar_crate(
            field in prop::collection::vec(prop::sample::select(b"01789 \0\0x".to_vec()), 12),
        ) {
            let mut header = Header::new_old();
            header.as_old_mut().size.copy_from_slice(&field);
            if let Some(size) = plain_octal(&field) {
                prop_assert_eq!(header.entry_size().ok(), Some(size));
            }
        }

        #[test]
        fn the_sum_adds_up_all_bytes(block in prop::collection::vec(any::<u8>(), BLOCK)) {
            let expected = block.iter().map(|&byte| u32::from(byte)).sum::<u32>();
            prop_assert_eq!(sum(Header::from_byte_slice(&block).as_bytes()), expected);
            prop_assert_eq!(sum(&[255; BLOCK]), 255 * BLOCK as u32);
        }
    }

    #[test]
    fn plain_octal_reads_the_numbers_of_most_writers() {
        let fields: [(&[u8], _); 5] = [
            (b"00000001750\0", Some(1000)),
            (b"777777777777", Some((1 << 36) - 1)),
            (b"012345\0 ", Some(0o12345)),
            (b"        1750", None),
            (b"\0\0\0\0\0\0\0\0\0\0\0\0", None),
        ];
        for (field, number) in fields {
            assert_eq!(plain_octal(field), number, "{field:?}");
        }
    }
}
