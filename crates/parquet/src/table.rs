//! The footer of a file: which columns the file has, and where its row groups are.

use crate::columns::{ChosenColumns, Column, Values, columns};
use crate::decompress;
use crate::options::Options;
use crate::schema;
use crate::thrift::is_metadata;
use parquet::basic::Compression;
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData, ParquetMetaDataReader};
use parquet::schema::types::ColumnDescPtr;
use shardstream::{Error, ErrorKind, Result};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Number of bytes at the end of a file after the metadata: the length of the metadata, and four letters.
pub(crate) const TAIL: u64 = 8;
/// The first four bytes of a file, and its last four bytes.
const MAGIC: &[u8] = b"PAR1";
/// The last four bytes of a file whose metadata is encrypted.
const ENCRYPTED: &[u8] = b"PARE";
/// Two column chunks with at most this many bytes between them are read as one range: a second request would
/// take longer than reading these bytes.
const GAP: u64 = 256 << 10;
/// Approximate size in bytes of a batch: the rows that are decoded together.
const BATCH: u64 = 4 << 20;
const MAX_BATCH_ROWS: u64 = 1024;

/// The content of the footer, and the columns that are read.
pub(crate) struct Table {
    metadata: ParquetMetaData,
    /// The columns that are read: first the fields, then the key column if it is not a field.
    pub(crate) columns: Vec<TableColumn>,
    /// Number of columns that are fields.
    pub(crate) fields: usize,
    /// The index of the key column in `columns`.
    pub(crate) key: Option<usize>,
    /// For each row group, the number of rows before it; then the number of all rows.
    starts: Vec<u64>,
    /// The offset of the metadata in the file. All row groups end before it.
    end: u64,
}

/// A column that is read.
#[derive(Debug)]
pub(crate) struct TableColumn {
    pub(crate) column: Column,
    pub(crate) values: Values,
    pub(crate) descriptor: ColumnDescPtr,
}

/// The position of a row group's columns in the file.
pub(crate) struct GroupPlace {
    pub(crate) number: usize,
    /// The numbers of the row group's rows in the file.
    pub(crate) rows: Range<u64>,
    /// Number of rows in a batch. The rows of a batch are decoded together. The first batch begins at the
    /// group's first row.
    pub(crate) batch: u64,
    /// The column chunks that are read, in the order of [`Table::columns`].
    pub(crate) chunks: Vec<ChunkPlace>,
    /// The ranges of the file that contain these column chunks.
    pub(crate) ranges: Vec<Range<u64>>,
}

/// The position of a column chunk, which is one column of one row group.
pub(crate) struct ChunkPlace {
    pub(crate) range: Range<u64>,
    pub(crate) codec: Compression,
    /// Number of values, including nulls.
    pub(crate) values: u64,
}

/// Reads the length of a file's metadata from `tail`, the last bytes of the file. `size` is the size of the
/// file in bytes.
pub(crate) fn metadata_length(tail: &[u8], size: u64) -> Result<u64> {
    let format =
        |what: String| Err(Error::from(ErrorKind::Format(what)).at_offset(size.saturating_sub(TAIL)));
    let Some((length, magic)) = tail.last_chunk::<8>().and_then(|tail| tail.split_first_chunk::<4>()) else {
        return format(format!("a file of {size} bytes is no Parquet file"));
    };
    if magic == ENCRYPTED {
        let what = "an encrypted Parquet file: its metadata cannot be read without a key";
        return Err(ErrorKind::Unsupported(what.into()).into());
    }
    if magic != MAGIC {
        let what = "this is no Parquet file, or it is cut: it does not end with `PAR1`";
        return format(what.into());
    }
    let length = u64::from(u32::from_le_bytes(*length));
    match length <= size.saturating_sub(TAIL + MAGIC.len() as u64) {
        true => Ok(length),
        false => format(format!("the footer says {length} bytes of metadata, and the file has {size}")),
    }
}

impl Table {
    /// Decodes the metadata, which begins at the offset `end` of the file.
    pub(crate) fn read(metadata: &[u8], end: u64, options: &Options) -> Result<Self> {
        let damaged = |what: String| {
            Error::from(ErrorKind::Format(format!("the footer of the Parquet file: {what}"))).at_offset(end)
        };
        if !is_metadata(metadata) {
            return Err(damaged("it is damaged".into()));
        }
        schema::check(metadata).map_err(damaged)?;
        let decoded = catch_unwind(AssertUnwindSafe(|| ParquetMetaDataReader::decode_metadata(metadata)));
        let metadata = match decoded {
            Ok(Ok(metadata)) => metadata,
            Ok(Err(error)) => return Err(damaged(error.to_string())),
            Err(_) => return Err(damaged("it is damaged".into())),
        };
        let (mut starts, mut rows) = (vec![0], 0_u64);
        for (number, group) in metadata.row_groups().iter().enumerate() {
            let count = u64::try_from(group.num_rows()).ok();
            let sum = count.and_then(|count| rows.checked_add(count)).filter(|sum| *sum < 1 << 62);
            rows = sum.ok_or_else(|| damaged(format!("row group {number} has {} rows", group.num_rows())))?;
            starts.push(rows);
        }
        let said = metadata.file_metadata().num_rows();
        if u64::try_from(said) != Ok(rows) {
            return Err(damaged(format!("it says {said} rows, and its row groups have {rows}")));
        }
        let schema = metadata.file_metadata().schema_descr();
        let chosen = ChosenColumns::new(&columns(schema), options.columns.as_deref(), options.key.as_deref())
            .map_err(|what| Error::from(ErrorKind::Unsupported(format!("the Parquet file: {what}"))))?;
        let ChosenColumns { columns, key, fields } = chosen;
        let columns = columns.into_iter().map(|column| {
            let values = column.values.map_err(|why| damaged(why.into()))?;
            if column.leaf >= schema.num_columns() {
                return Err(damaged("a column without a type".into()));
            }
            let descriptor = schema.column(column.leaf);
            Ok(TableColumn { values, descriptor, column })
        });
        let columns = columns.collect::<Result<Vec<_>>>()?;
        Ok(Table { columns, key, fields, starts, end, metadata })
    }

    /// Number of rows in the file.
    pub(crate) fn rows(&self) -> u64 {
        self.starts.last().copied().unwrap_or_default()
    }

    /// The number of the row group that contains `row`; the number of row groups if none does.
    pub(crate) fn group_of(&self, row: u64) -> usize {
        self.starts.partition_point(|start| *start <= row).saturating_sub(1)
    }

    /// The number of the first row group that begins at row `end` or later; the number of row groups if none
    /// does.
    pub(crate) fn group_end(&self, end: u64) -> usize {
        let groups = self.starts.len().saturating_sub(1);
        self.starts.partition_point(|start| *start < end).min(groups)
    }

    /// Whether a row group has rows.
    pub(crate) fn has_rows(&self, number: usize) -> bool {
        matches!(self.starts.get(number..number + 2), Some([start, end]) if start < end)
    }

    /// Returns the position of a row group, which must have rows. It is an error if the ranges to read have
    /// more than `limit` bytes.
    pub(crate) fn group(&self, number: usize, limit: u64) -> Result<GroupPlace> {
        let damaged = |what: String| Error::from(ErrorKind::Format(format!("row group {number}: {what}")));
        let (Some(group), Some([start, end])) =
            (self.metadata.row_groups().get(number), self.starts.get(number..number + 2))
        else {
            return Err(damaged("there is none".into()));
        };
        let (mut chunks, mut size) = (Vec::new(), 0_u64);
        for TableColumn { column, .. } in &self.columns {
            let name = &*column.name;
            let chunk = group.columns().get(column.leaf);
            let chunk = chunk.ok_or_else(|| damaged(format!("it has no column {name:?}")))?;
            if chunk.file_path().is_some() {
                let what =
                    format!("the Parquet file: column {name:?} of row group {number} is in another file");
                return Err(ErrorKind::Unsupported(what).into());
            }
            if let Some(codec) = decompress::unsupported(chunk.compression()) {
                let what = format!(
                    "the Parquet file: column {name:?} of row group {number} is compressed by {codec}"
                );
                return Err(ErrorKind::Unsupported(what).into());
            }
            let range = self.range(chunk);
            let range = range.ok_or_else(|| damaged(format!("column {name:?} is not before the footer")))?;
            // A value of a dictionary is stored once, and may be in many rows, so the rows can be larger than
            // the uncompressed pages. Some writers record the size of the texts of all rows.
            let decoded = chunk.unencoded_byte_array_data_bytes().unwrap_or_default();
            let decoded = decoded.max(chunk.uncompressed_size());
            size = size.saturating_add(u64::try_from(decoded).unwrap_or_default());
            let values = u64::try_from(chunk.num_values());
            let values =
                values.map_err(|_| damaged(format!("column {name:?} has a negative number of values")))?;
            chunks.push(ChunkPlace { range, codec: chunk.compression(), values });
        }
        let ranges = joined(chunks.iter().map(|chunk| chunk.range.clone()).collect());
        let bytes = ranges.iter().map(|range| range.end - range.start).fold(0, u64::saturating_add);
        if bytes > limit {
            let what = format!(
                "the Parquet file: the columns of row group {number} have {bytes} bytes, where \
                 `Limits::member` allows {limit}: choose fewer columns, write smaller row groups, or set \
                 another limit"
            );
            return Err(ErrorKind::Unsupported(what).into());
        }
        let rows = *start..*end;
        let each = size / (end - start).max(1);
        let batch = (BATCH / each.max(1)).clamp(1, MAX_BATCH_ROWS);
        Ok(GroupPlace { number, rows, batch, chunks, ranges })
    }

    /// The range of a column chunk in the file: the dictionary, if there is one, and the data pages. Returns
    /// `None` if the range overlaps the first four bytes of the file, or ends after the metadata begins.
    fn range(&self, chunk: &ColumnChunkMetaData) -> Option<Range<u64>> {
        let pages = u64::try_from(chunk.data_page_offset()).ok()?;
        let dictionary = chunk.dictionary_page_offset().and_then(|offset| u64::try_from(offset).ok());
        // Some writers set the offset to 0 if there is no dictionary.
        let start = dictionary.filter(|offset| *offset > 0 && *offset < pages).unwrap_or(pages);
        let end = start.checked_add(u64::try_from(chunk.compressed_size()).ok()?)?;
        (start >= MAGIC.len() as u64 && end <= self.end).then_some(start..end)
    }
}

/// Sorts the ranges, and joins those with at most [`GAP`] bytes between them.
fn joined(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_unstable_by_key(|range| (range.start, range.end));
    let mut found: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match found.last_mut() {
            Some(last) if range.start <= last.end.saturating_add(GAP) => last.end = last.end.max(range.end),
            _ => found.push(range),
        }
    }
    found.retain(|range| !range.is_empty());
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_near_each_other_are_one_range() {
        assert_eq!(joined(vec![9..12, 4..9, 20..30, 5..6]), std::slice::from_ref(&(4..30)));
        let far = GAP + 31;
        assert_eq!(joined(vec![far..far + 2, 4..30, 7..7]), [4..30, far..far + 2]);
    }

    #[test]
    fn the_end_of_the_file_tells_what_it_is() {
        assert_eq!(metadata_length(b"\x05\0\0\0PAR1", 100).unwrap(), 5);
        for (tail, size, expected) in [
            (&b"\x05\0\0\0PARE"[..], 100, "encrypted"),
            (b"\x05\0\0\0PAR2", 100, "does not end with"),
            (b"\x59\0\0\0PAR1", 100, "89 bytes of metadata"),
            (b"PAR1", 4, "no Parquet file"),
        ] {
            let error = metadata_length(tail, size).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
