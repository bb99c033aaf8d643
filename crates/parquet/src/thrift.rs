//! Reads page headers, which are in Thrift's compact protocol, and checks the types in a file's metadata.

/// Maximum depth of nested structs and lists in a skipped value. A deeper value is damage.
const MAX_DEPTH: u8 = 16;

/// The fields of a page header that a reader needs. The numbers are those in the file, unchecked.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct PageHeader {
    pub(crate) kind: i64,
    pub(crate) uncompressed: i64,
    pub(crate) compressed: i64,
    pub(crate) crc: Option<u32>,
    /// For a data page: the number of values, the encoding of the values, and the encodings of the definition
    /// and repetition levels. These are fields 1 to 4.
    pub(crate) data: Option<Numbers>,
    /// For a dictionary page: the number of values and their encoding. These are fields 1 and 2.
    pub(crate) dictionary: Option<Numbers>,
    /// For a data page of version 2: the numbers of values, of nulls and of rows, the encoding, the sizes in
    /// bytes of the definition and repetition levels, and whether the values are compressed. These are fields
    /// 1 to 7.
    pub(crate) data_v2: Option<Numbers>,
}

/// The integers and booleans of a struct, indexed by the number of the field.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Numbers([Option<i64>; 9]);

impl Numbers {
    pub(crate) fn get(&self, field: usize) -> Option<i64> {
        self.0.get(field).copied().flatten()
    }
}

impl PageHeader {
    /// Reads the header at the beginning of `bytes`. Returns the header and its length in bytes, or `None` if
    /// the header is damaged or cut.
    pub(crate) fn read(bytes: &[u8]) -> Option<(Self, usize)> {
        let mut input = CompactReader::new(bytes);
        let mut header = PageHeader::default();
        let mut field = 0;
        while let Some(kind) = input.field(&mut field)? {
            match (field, kind) {
                (1, INTEGERS) => header.kind = input.integer()?,
                (2, INTEGERS) => header.uncompressed = input.integer()?,
                (3, INTEGERS) => header.compressed = input.integer()?,
                (4, INTEGERS) => header.crc = Some(input.integer()? as u32),
                (5, STRUCT) => header.data = Some(input.numbers()?),
                (7, STRUCT) => header.dictionary = Some(input.numbers()?),
                (8, STRUCT) => header.data_v2 = Some(input.numbers()?),
                (_, kind) => input.skip(kind, 0)?,
            }
        }
        Some((header, input.at))
    }
}

/// Whether `bytes` begins with complete file metadata, in which each known field has the type that Parquet
/// declares for it.
///
/// The decoder of the crate `parquet` does not check the types of known fields. If a field has another type,
/// the decoder reads the next field from a wrong offset. It may find a list there that claims any number of
/// booleans; skipping that list takes seconds.
pub(crate) fn is_metadata(bytes: &[u8]) -> bool {
    CompactReader::new(bytes).known(&FILE).is_some()
}

/// The types of a struct's fields, from field 1 on.
struct KnownStruct {
    kinds: &'static [u8],
    /// The numbers of the fields that are structs or lists of structs, and the types of these structs.
    nested: &'static [(i64, &'static KnownStruct)],
}

const BOOLEAN: u8 = 1;
const FILE: KnownStruct = KnownStruct {
    kinds: &[INTEGERS, LIST, 6, LIST, LIST, BINARY, LIST, STRUCT, BINARY],
    nested: &[(2, &SCHEMA_ELEMENT), (4, &ROW_GROUP), (5, &KEY_VALUE)],
};
const SCHEMA_ELEMENT: KnownStruct =
    KnownStruct { kinds: &[5, 5, 5, BINARY, 5, 5, 5, 5, 5, STRUCT], nested: &[] };
const ROW_GROUP: KnownStruct =
    KnownStruct { kinds: &[LIST, 6, 6, LIST, 6, 6, 4], nested: &[(1, &COLUMN_CHUNK), (4, &SORTING_COLUMN)] };
const COLUMN_CHUNK: KnownStruct =
    KnownStruct { kinds: &[BINARY, 6, STRUCT, 6, 5, 6, 5, STRUCT, BINARY], nested: &[(3, &COLUMN)] };
const COLUMN: KnownStruct = KnownStruct {
    kinds: &[5, LIST, LIST, 5, 6, 6, 6, LIST, 6, 6, 6, STRUCT, LIST, 6, 5, STRUCT, STRUCT],
    nested: &[(8, &KEY_VALUE), (12, &STATISTICS), (13, &ENCODING_COUNT)],
};
const KEY_VALUE: KnownStruct = KnownStruct { kinds: &[BINARY, BINARY], nested: &[] };
const SORTING_COLUMN: KnownStruct = KnownStruct { kinds: &[5, BOOLEAN, BOOLEAN], nested: &[] };
const ENCODING_COUNT: KnownStruct = KnownStruct { kinds: &[5, 5, 5], nested: &[] };
const STATISTICS: KnownStruct =
    KnownStruct { kinds: &[BINARY, BINARY, 6, 6, BINARY, BINARY, BOOLEAN, BOOLEAN], nested: &[] };

/// Thrift's type of 32-bit integers. Page headers have no other integers.
pub(crate) const INTEGERS: u8 = 5;
pub(crate) const BINARY: u8 = 8;
pub(crate) const LIST: u8 = 9;
const STRUCT: u8 = 12;

pub(crate) struct CompactReader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> CompactReader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        CompactReader { bytes, at: 0 }
    }

    pub(crate) fn byte(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    pub(crate) fn advance(&mut self, bytes: u64) -> Option<()> {
        let end = self.at.checked_add(usize::try_from(bytes).ok()?)?;
        (end <= self.bytes.len()).then(|| self.at = end)
    }

    pub(crate) fn varint(&mut self) -> Option<u64> {
        let (number, length) = varint(self.bytes.get(self.at..)?)?;
        self.at += length;
        Some(number)
    }

    /// Reads a signed integer.
    pub(crate) fn integer(&mut self) -> Option<i64> {
        self.varint().map(zigzag)
    }

    /// Reads the head of the next field: sets `number` to the field's number, and returns the field's type.
    /// At the end of the struct, returns `Some(None)`; if the bytes are cut or damaged, `None`.
    pub(crate) fn field(&mut self, number: &mut i64) -> Option<Option<u8>> {
        let head = self.byte()?;
        if head == 0 {
            return Some(None);
        }
        *number = match i64::from(head >> 4) {
            0 => self.integer()?,
            difference => number.checked_add(difference)?,
        };
        Some(Some(head & 0xf))
    }

    fn numbers(&mut self) -> Option<Numbers> {
        let (mut numbers, mut field) = (Numbers::default(), 0);
        while let Some(kind) = self.field(&mut field)? {
            let value = match kind {
                1 | 2 => i64::from(kind == 1),
                4..=6 => self.integer()?,
                kind => {
                    self.skip(kind, 0)?;
                    continue;
                }
            };
            if let Some(number) = usize::try_from(field).ok().and_then(|field| numbers.0.get_mut(field)) {
                *number = Some(value);
            }
        }
        Some(numbers)
    }

    /// Skips a struct. Returns `None` if a field of it has another type than in `known`.
    fn known(&mut self, known: &KnownStruct) -> Option<()> {
        let mut field = 0;
        while let Some(kind) = self.field(&mut field)? {
            let index = usize::try_from(field).ok().and_then(|field| field.checked_sub(1));
            let expected = index.and_then(|index| known.kinds.get(index));
            let is_boolean = expected == Some(&BOOLEAN) && kind == 2;
            if expected.is_some_and(|expected| *expected != kind) && !is_boolean {
                return None;
            }
            match known.nested.iter().find(|(nested, _)| *nested == field) {
                None => self.skip(kind, 0)?,
                Some((_, nested)) if kind == STRUCT => self.known(nested)?,
                Some((_, nested)) => {
                    let head = self.byte()?;
                    let count = self.count(head)?;
                    if count > 0 && head & 0xf != STRUCT {
                        return None;
                    }
                    (0..count).try_for_each(|_| self.known(nested).ok_or(())).ok()?;
                }
            }
        }
        Some(())
    }

    /// Reads the number of elements of a list, whose first byte is `head`.
    pub(crate) fn count(&mut self, head: u8) -> Option<u64> {
        match head >> 4 {
            15 => self.varint(),
            count => Some(u64::from(count)),
        }
    }

    /// Skips the value of a field whose type is `kind`.
    pub(crate) fn skip(&mut self, kind: u8, depth: u8) -> Option<()> {
        match kind {
            1 | 2 => Some(()),
            3 => self.advance(1),
            4..=6 => self.varint().map(drop),
            7 => self.advance(8),
            8 => self.varint().and_then(|length| self.advance(length)),
            9 | 10 => {
                let head = self.byte()?;
                let count = self.count(head)?;
                self.skip_elements(count, &[head & 0xf], depth)
            }
            11 => match self.varint()? {
                0 => Some(()),
                count => {
                    let kinds = self.byte()?;
                    self.skip_elements(count, &[kinds >> 4, kinds & 0xf], depth)
                }
            },
            STRUCT if depth < MAX_DEPTH => {
                let mut field = 0;
                while let Some(kind) = self.field(&mut field)? {
                    self.skip(kind, depth + 1)?;
                }
                Some(())
            }
            _ => None,
        }
    }

    fn skip_elements(&mut self, count: u64, kinds: &[u8], depth: u8) -> Option<()> {
        if depth >= MAX_DEPTH {
            return None;
        }
        for _ in 0..count {
            for kind in kinds {
                match kind {
                    // Lists of booleans are refused. Page headers and footers have none, and decoders differ
                    // in the number of bytes that they read for a boolean in a list.
                    1 | 2 => return None,
                    kind => self.skip(*kind, depth + 1)?,
                }
            }
        }
        Some(())
    }
}

/// Reads the variable-length integer at the beginning of `bytes`. Each byte holds seven bits of the integer.
/// Returns the integer and its length in bytes.
pub(crate) fn varint(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut number = 0;
    for (at, byte) in bytes.iter().take(10).enumerate() {
        number |= u64::from(byte & 0x7f).checked_shl(7 * at as u32)?;
        if byte & 0x80 == 0 {
            return Some((number, at + 1));
        }
    }
    None
}

/// Decodes a signed integer from its zigzag encoding, in which the last bit is the sign.
fn zigzag(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The header of a data page of 3 values in plain encoding. It has a checksum, and statistics, which
    /// [`PageHeader::read`] skips.
    const HEADER: [u8; 26] = [
        0x15, 0, 0x15, 0x18, 0x15, 0x18, 0x15, 0x09, 0x1c, 0x15, 6, 0x15, 0, 0x15, 6, 0x15, 6, 0x1c, 0x18, 1,
        b'x', 0x11, 0, 0, 0, 7,
    ];

    #[test]
    fn a_header_is_read_to_its_end() {
        let (header, length) = PageHeader::read(&HEADER).unwrap();
        let data = header.data.as_ref().unwrap();
        assert_eq!((header.kind, header.uncompressed, header.compressed), (0, 12, 12));
        assert_eq!(
            (header.crc, data.get(1), data.get(2), data.get(3)),
            (Some(-5_i32 as u32), Some(3), Some(0), Some(3))
        );
        assert_eq!(length, 25);
    }

    #[test]
    fn a_header_that_is_cut_is_none() {
        for end in 0..25 {
            assert_eq!(PageHeader::read(&HEADER[..end]), None, "{end}");
        }
    }

    #[test]
    fn a_list_that_is_longer_than_its_bytes_is_damage() {
        let skipped = |bytes| CompactReader::new(bytes).skip(STRUCT, 0);
        assert!(skipped(&[0x19, 0x33, 1, 2, 1, 0]).is_some());
        for bad in [&[0x19, 0xf3, 0xff, 0xff, 0xff, 0xff, 0x07, 1, 2, 1, 0][..], &[0x19, 0x32, 1, 2, 1, 0]] {
            assert_eq!(skipped(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn metadata_with_a_field_of_another_type_is_damage() {
        // Metadata of version 2 with no columns and 5 rows.
        assert!(is_metadata(&[0x15, 4, 0x19, 0x0c, 0x16, 10, 0]));
        assert!(!is_metadata(&[0x16, 4, 0x19, 0x0c, 0x16, 10, 0]), "field 1 has 32 bits");
        assert!(!is_metadata(&[0x15, 4, 0x19, 0x1c, 0x25, 2, 0x18, 1, b'a', 0, 0]), "field 3 is no name");
        assert!(is_metadata(&[0x15, 4, 0x19, 0x1c, 0x25, 2, 0x28, 1, b'a', 0, 0]));
    }

    #[test]
    fn structs_within_structs_end() {
        assert_eq!(PageHeader::read(&[0x1c; 1000]), None);
    }
}
