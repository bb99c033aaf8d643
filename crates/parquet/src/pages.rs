//! Reads the pages of one column chunk: their headers, checksums and compressed bytes.
//!
//! The decoders of the crate `parquet` trust the counts in page headers and allocate memory for them. So each
//! count is compared with the bytes of its page before a decoder gets the page.

use crate::decompress::decompress;
use crate::delta;
use crate::thrift::{Numbers, PageHeader};
use bytes::Bytes;
use parquet::basic::{Compression, Encoding, Type};
use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::errors::{ParquetError, Result};
use parquet::schema::types::ColumnDescriptor;

/// Reads the pages of a column chunk one after the other.
pub(crate) struct ChunkPages {
    /// The bytes of the column chunk that have not been read.
    bytes: Bytes,
    codec: Compression,
    /// The size in bytes of the largest accepted page.
    limit: u64,
    max_definition: i16,
    max_repetition: i16,
    /// Minimum size in bytes of a value in a dictionary page, which is in plain encoding.
    smallest: u32,
    has_dictionary: bool,
    /// The next page, once its header has been read.
    next: Option<RawPage>,
}

/// A page as it is in the file. Its bytes have not been decompressed.
struct RawPage {
    header: PageHeader,
    bytes: Bytes,
}

fn bad(what: impl Into<String>) -> ParquetError {
    ParquetError::General(what.into())
}

impl ChunkPages {
    pub(crate) fn new(bytes: Bytes, codec: Compression, column: &ColumnDescriptor, limit: u64) -> Self {
        let smallest = match column.physical_type() {
            Type::BOOLEAN => 0,
            Type::INT32 | Type::FLOAT | Type::BYTE_ARRAY => 4,
            Type::INT64 | Type::DOUBLE => 8,
            Type::INT96 => 12,
            Type::FIXED_LEN_BYTE_ARRAY => u32::try_from(column.type_length()).unwrap_or_default(),
        };
        ChunkPages {
            bytes,
            codec,
            limit,
            max_definition: column.max_def_level(),
            max_repetition: column.max_rep_level(),
            smallest,
            has_dictionary: false,
            next: None,
        }
    }

    /// Checks that the headers of all pages can be read, and that the pages have `values` values and `rows`
    /// rows, as the footer says. To skip rows, the decoder relies on the counts in page headers, so a wrong
    /// count would shift all later rows.
    ///
    /// The decoder may decode a whole page of lists in one call. Run-length encoding stores any number of
    /// equal values in a few bytes, so the decoded page can be far larger than in the file. A page whose
    /// decoded levels and values would take more than `limit` bytes is refused.
    pub(crate) fn check(mut self, values: u64, rows: u64, limit: u64) -> Result<()> {
        let (mut found_values, mut found_rows, mut largest) = (0, Some(0), 0);
        let is_flat = self.max_repetition == 0;
        while let Some(RawPage { header, .. }) = self.fill()? {
            if let Some(page) = header.data.as_ref().or(header.data_v2.as_ref()) {
                largest = largest.max(u64::from(count(page, 1)?));
            }
            if let Some(page) = &header.data {
                found_values += u64::from(count(page, 1)?);
                // The header of a page of version 1 does not have the number of rows.
                found_rows = None;
            } else if let Some(page) = &header.data_v2 {
                found_values += u64::from(count(page, 1)?);
                let of_page = u64::from(count(page, 3)?);
                if is_flat && page.get(1) != page.get(3) {
                    return Err(bad(format!("a page has {of_page} rows, and another number of values")));
                }
                found_rows = found_rows.map(|rows: u64| rows + of_page);
            }
            self.next = None;
        }
        if found_values != values || (is_flat && values != rows) {
            return Err(bad(format!("its pages have {found_values} values, of {values} in {rows} rows")));
        }
        if let Some(found) = found_rows.filter(|found| *found != rows) {
            return Err(bad(format!("its pages have {found} rows, of {rows}")));
        }
        // Each value takes two levels of 16 bits, and its own bytes.
        let decoded = largest * (4 + u64::from(self.smallest.max(1)));
        if !is_flat && decoded > limit {
            return Err(ParquetError::NYI(format!(
                "a page with lists of {largest} values, which take {decoded} bytes, where `Limits::sample` \
                 allows {limit}: write smaller pages, or set another limit"
            )));
        }
        Ok(())
    }

    /// Returns the next data page or dictionary page; reads its header if that has not been read.
    fn fill(&mut self) -> Result<Option<&RawPage>> {
        while self.next.is_none() {
            if self.bytes.is_empty() {
                return Ok(None);
            }
            let (header, length) =
                PageHeader::read(&self.bytes).ok_or_else(|| bad("the header of a page is cut or damaged"))?;
            let size = usize::try_from(header.compressed).map_err(|_| bad("a page of a negative size"))?;
            if size > self.bytes.len() - length {
                let left = self.bytes.len() - length;
                return Err(bad(format!("a page of {size} bytes, of which {left} are in its column chunk")));
            }
            let _ = self.bytes.split_to(length);
            let bytes = self.bytes.split_to(size);
            // Pages of other kinds are skipped, since they have no values. Data pages without values, which
            // some writers write, are skipped as well: the decoder would take one for the end of the column.
            let data = header.data.as_ref().or(header.data_v2.as_ref());
            if header.dictionary.is_some() || data.is_some_and(|page| page.get(1) != Some(0)) {
                self.next = Some(RawPage { header, bytes });
            }
        }
        Ok(self.next.as_ref())
    }

    /// Checks the checksum and the sizes of a page, and decompresses it.
    fn page(&mut self, RawPage { header, bytes }: RawPage) -> Result<Page> {
        if let Some(expected) = header.crc
            && expected != crc32fast::hash(&bytes)
        {
            return Err(bad("the CRC-32 of a page is not the one in its header"));
        }
        let size = usize::try_from(header.uncompressed).map_err(|_| bad("a page of a negative size"))?;
        if size as u64 > self.limit {
            return Err(ParquetError::NYI(format!(
                "a page of {size} bytes, where `Limits::member` allows {}: write smaller pages, or set \
                 another limit",
                self.limit
            )));
        }
        // In a page of version 2, the levels come first and are not compressed.
        let levels = header.data_v2.as_ref().map_or(Ok(0), |page| {
            let levels = count(page, 5)?.saturating_add(count(page, 6)?) as usize;
            if levels <= size.min(bytes.len()) {
                Ok(levels)
            } else {
                Err(bad("levels longer than their page"))
            }
        })?;
        let is_compressed = header.data_v2.as_ref().is_none_or(|page| page.get(7) != Some(0));
        let codec = if is_compressed { self.codec } else { Compression::UNCOMPRESSED };
        let found = match codec {
            Compression::UNCOMPRESSED if bytes.len() == size => bytes,
            _ => {
                let values = decompress(codec, &bytes[levels..], size - levels).map_err(bad)?;
                match levels {
                    0 => values.into(),
                    levels => [&bytes[..levels], &values].concat().into(),
                }
            }
        };
        if let Some(page) = header.dictionary {
            return self.dictionary(&page, found);
        }
        match (header.data, header.data_v2) {
            (Some(page), _) => self.data(&page, found),
            (None, Some(page)) => self.data_v2(&page, found),
            (None, None) => Err(bad("a page without values")),
        }
    }

    fn dictionary(&mut self, page: &Numbers, buf: Bytes) -> Result<Page> {
        if std::mem::replace(&mut self.has_dictionary, true) {
            return Err(bad("a column chunk with two dictionaries"));
        }
        let num_values = count(page, 1)?;
        if u64::from(num_values) * u64::from(self.smallest.max(1)) > buf.len() as u64 {
            return Err(bad(format!("a dictionary of {num_values} values in {} bytes", buf.len())));
        }
        Ok(Page::DictionaryPage { buf, num_values, encoding: encoding(page, 2)?, is_sorted: false })
    }

    fn data(&self, page: &Numbers, buf: Bytes) -> Result<Page> {
        let (num_values, encoding_of_values) = (count(page, 1)?, encoding(page, 2)?);
        let (def_level_encoding, rep_level_encoding) = (encoding(page, 3)?, encoding(page, 4)?);
        let mut values = &buf[..];
        for (max, encoding) in
            [(self.max_repetition, rep_level_encoding), (self.max_definition, def_level_encoding)]
        {
            if max > 0 {
                values = behind_levels(values, max, encoding, num_values)?;
            }
        }
        self.check_values(encoding_of_values, values, num_values)?;
        Ok(Page::DataPage {
            num_values,
            encoding: encoding_of_values,
            def_level_encoding,
            rep_level_encoding,
            statistics: None,
            buf,
        })
    }

    fn data_v2(&self, page: &Numbers, buf: Bytes) -> Result<Page> {
        let (num_values, encoding) = (count(page, 1)?, encoding(page, 4)?);
        let (def_levels_byte_len, rep_levels_byte_len) = (count(page, 5)?, count(page, 6)?);
        let levels = def_levels_byte_len as usize + rep_levels_byte_len as usize;
        let values = buf.get(levels..).ok_or_else(|| bad("levels longer than their page"))?;
        self.check_values(encoding, values, num_values)?;
        Ok(Page::DataPageV2 {
            num_values,
            encoding,
            num_nulls: count(page, 2)?,
            num_rows: count(page, 3)?,
            def_levels_byte_len,
            rep_levels_byte_len,
            is_compressed: false,
            statistics: None,
            buf,
        })
    }

    fn check_values(&self, encoding: Encoding, values: &[u8], count: u32) -> Result<()> {
        let parts = match encoding {
            Encoding::DELTA_BINARY_PACKED | Encoding::DELTA_LENGTH_BYTE_ARRAY => 1,
            Encoding::DELTA_BYTE_ARRAY => 2,
            Encoding::RLE_DICTIONARY | Encoding::PLAIN_DICTIONARY if !self.has_dictionary => {
                return Err(bad("values of a dictionary that is not there"));
            }
            _ => return Ok(()),
        };
        delta::check(values, count.into(), parts).map_err(bad)
    }
}

/// Skips the definition or repetition levels at the beginning of `bytes`, and returns the remaining bytes of
/// the version 1 data page. `max` is the maximum level, and `count` is the number of levels.
fn behind_levels(bytes: &[u8], max: i16, encoding: Encoding, count: u32) -> Result<&[u8]> {
    let length = match encoding {
        Encoding::RLE => {
            bytes.first_chunk().map(|length| u64::from(u32::from_le_bytes(*length)).saturating_add(4))
        }
        #[expect(deprecated, reason = "old files have it")]
        Encoding::BIT_PACKED => {
            let width = u64::from(i16::BITS - max.leading_zeros());
            Some((u64::from(count) * width).div_ceil(8))
        }
        _ => return Err(bad("levels in an encoding that is not for levels")),
    };
    let length = length.and_then(|length| usize::try_from(length).ok());
    length.and_then(|length| bytes.get(length..)).ok_or_else(|| bad("levels longer than their page"))
}

/// Reads the field with number `field` of a page header as a count.
fn count(page: &Numbers, field: usize) -> Result<u32> {
    let found = page.get(field).and_then(|number| u32::try_from(number).ok());
    found.filter(|number| *number <= i32::MAX as u32).ok_or_else(|| bad("a page header without a count"))
}

/// Reads the field with number `field` of a page header as an encoding.
fn encoding(page: &Numbers, field: usize) -> Result<Encoding> {
    Ok(match page.get(field) {
        Some(0) => Encoding::PLAIN,
        Some(2) => Encoding::PLAIN_DICTIONARY,
        Some(3) => Encoding::RLE,
        #[expect(deprecated, reason = "old files have it")]
        Some(4) => Encoding::BIT_PACKED,
        Some(5) => Encoding::DELTA_BINARY_PACKED,
        Some(6) => Encoding::DELTA_LENGTH_BYTE_ARRAY,
        Some(7) => Encoding::DELTA_BYTE_ARRAY,
        Some(8) => Encoding::RLE_DICTIONARY,
        Some(9) => Encoding::BYTE_STREAM_SPLIT,
        other => return Err(bad(format!("a page in the encoding {other:?}, which is not known"))),
    })
}

impl PageReader for ChunkPages {
    fn get_next_page(&mut self) -> Result<Option<Page>> {
        self.fill()?;
        self.next.take().map(|page| self.page(page)).transpose()
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>> {
        self.fill()?;
        let Some(RawPage { header, .. }) = &self.next else { return Ok(None) };
        let of = |page: &Option<Numbers>, field| page.as_ref().map(|page| count(page, field)).transpose();
        let levels = match of(&header.data, 1)? {
            None => of(&header.data_v2, 1)?,
            levels => levels,
        };
        Ok(Some(PageMetadata {
            // `None` for lists: the decoder then counts the rows by their levels, whatever the header says.
            num_rows: levels.filter(|_| self.max_repetition == 0).map(|rows| rows as usize),
            num_levels: levels.map(|levels| levels as usize),
            is_dict: header.dictionary.is_some(),
        }))
    }

    fn at_record_boundary(&mut self) -> Result<bool> {
        // A page of version 2 always begins with a new row. A page of version 1 may continue a row.
        Ok(self.fill()?.is_none_or(|page| page.header.data_v2.is_some()))
    }

    fn skip_next_page(&mut self) -> Result<()> {
        self.fill()?;
        self.next = None;
        Ok(())
    }
}

impl Iterator for ChunkPages {
    type Item = Result<Page>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parquet::file::metadata::ParquetMetaDataReader;

    #[test]
    fn a_changed_byte_of_a_page_with_a_checksum_is_an_error() {
        for file in ["kinds-dictionary", "kinds-delta"] {
            let path = format!("{}/tests/files/data/{file}.parquet", env!("CARGO_MANIFEST_DIR"));
            let file = Bytes::from(std::fs::read(path).unwrap());
            let length = u32::from_le_bytes(*file[..file.len() - 4].last_chunk().unwrap()) as usize;
            let footer = &file[file.len() - 8 - length..file.len() - 8];
            let footer = ParquetMetaDataReader::decode_metadata(footer).unwrap();
            let mut tried = 0;
            for chunk in footer.row_groups().iter().flat_map(|group| group.columns()) {
                let (start, length) = chunk.byte_range();
                let bytes = file.slice(start as usize..(start + length) as usize);
                let pages =
                    |bytes| ChunkPages::new(bytes, chunk.compression(), chunk.column_descr(), 1 << 20);
                let mut whole = pages(bytes.clone());
                while let Some(page) = whole.fill().unwrap() {
                    let offset = page.bytes.as_ptr() as usize - bytes.as_ptr() as usize;
                    for at in offset..offset + page.bytes.len() {
                        let mut changed = bytes.to_vec();
                        changed[at] ^= 0x20;
                        assert!(pages(changed.into()).any(|page| page.is_err()), "{at}");
                        tried += 1;
                    }
                    whole.skip_next_page().unwrap();
                }
            }
            assert!(tried > 500, "{tried}");
        }
    }
}
