//! The values of one column of a row group, as values of fields.

use crate::columns::{ValueKind, Values};
use bytes::{Bytes, BytesMut};
use parquet::column::page::PageReader;
use parquet::column::reader::{ColumnReader, ColumnReaderImpl, get_column_reader};
use parquet::data_type::DataType;
use parquet::errors::ParquetError;
use parquet::schema::types::ColumnDescPtr;
use shardstream::codec::DType;
use shardstream::{Array, Value};
use std::ops::Range;

/// Reads a column of a row group from its first row on.
pub(crate) struct ColumnValues {
    reader: ColumnReader,
    values: Values,
    /// The definition level of a value that is there.
    max_definition: i16,
}

/// A value of each row; none where it is a null.
pub(crate) type RowValues = Vec<Option<Value>>;

/// Definition and repetition levels, in the order of the rows.
#[derive(Default)]
struct Levels {
    definition: Vec<i16>,
    repetition: Vec<i16>,
}

/// The text of an error.
pub(crate) fn shown(error: ParquetError) -> String {
    match error {
        ParquetError::General(what) => what,
        other => other.to_string(),
    }
}

/// Calls the reader of any type.
macro_rules! with_reader {
    ($reader:expr, $typed:ident => $call:expr) => {
        match $reader {
            ColumnReader::BoolColumnReader($typed) => $call,
            ColumnReader::Int32ColumnReader($typed) => $call,
            ColumnReader::Int64ColumnReader($typed) => $call,
            ColumnReader::Int96ColumnReader($typed) => $call,
            ColumnReader::FloatColumnReader($typed) => $call,
            ColumnReader::DoubleColumnReader($typed) => $call,
            ColumnReader::ByteArrayColumnReader($typed) => $call,
            ColumnReader::FixedLenByteArrayColumnReader($typed) => $call,
        }
    };
}

impl ColumnValues {
    pub(crate) fn new(column: ColumnDescPtr, values: Values, pages: Box<dyn PageReader>) -> Self {
        let max_definition = column.max_def_level();
        ColumnValues { reader: get_column_reader(column, pages), values, max_definition }
    }

    /// Skips rows. Pages of skipped rows are not decompressed where their headers say the number of rows.
    pub(crate) fn skip(&mut self, rows: usize) -> Result<(), String> {
        let skipped = with_reader!(&mut self.reader, reader => reader.skip_records(rows)).map_err(shown)?;
        if skipped == rows { Ok(()) } else { Err("it ends before its rows do".into()) }
    }

    /// The values of the next rows.
    pub(crate) fn read(&mut self, rows: usize) -> Result<RowValues, String> {
        let column = (self.values, self.max_definition);
        match &mut self.reader {
            ColumnReader::BoolColumnReader(reader) => ints(reader, rows, column, |value| i64::from(*value)),
            ColumnReader::Int32ColumnReader(reader) => {
                let is_unsigned = self.values.kind == ValueKind::Int(DType::U32);
                ints(reader, rows, column, |value| match is_unsigned {
                    true => i64::from(*value as u32),
                    false => i64::from(*value),
                })
            }
            ColumnReader::Int64ColumnReader(reader) => ints(reader, rows, column, |value| *value),
            ColumnReader::FloatColumnReader(reader) => {
                floats(reader, rows, column, |value, bytes| bytes.extend(value.to_le_bytes()))
            }
            ColumnReader::DoubleColumnReader(reader) => {
                floats(reader, rows, column, |value, bytes| bytes.extend(value.to_le_bytes()))
            }
            ColumnReader::ByteArrayColumnReader(reader) => bytes(reader, rows, column, |value| value.data()),
            ColumnReader::FixedLenByteArrayColumnReader(reader) => match self.values.kind {
                ValueKind::Float(_) => {
                    floats(reader, rows, column, |value, bytes| bytes.extend_from_slice(value.data()))
                }
                _ => bytes(reader, rows, column, |value| value.data()),
            },
            ColumnReader::Int96ColumnReader(_) => Err("timestamps of 96 bits are not read".into()),
        }
    }
}

/// Reads the values of the next rows, without nulls, and their levels.
fn read<T: DataType>(reader: &mut ColumnReaderImpl<T>, rows: usize) -> Result<(Vec<T::T>, Levels), String> {
    let (mut values, mut levels) = (Vec::new(), Levels::default());
    let (definition, repetition) = (&mut levels.definition, &mut levels.repetition);
    let read = reader.read_records(rows, Some(definition), Some(repetition), &mut values);
    let (found, ..) = read.map_err(shown)?;
    if found == rows { Ok((values, levels)) } else { Err("it ends before its rows do".into()) }
}

fn ints<T: DataType>(
    reader: &mut ColumnReaderImpl<T>,
    rows: usize,
    (column, max): (Values, i16),
    int: impl Fn(&T::T) -> i64,
) -> Result<RowValues, String> {
    let (values, levels) = read(reader, rows)?;
    let ValueKind::Int(dtype) = column.kind else { return Err("it has integers".into()) };
    let Some(element) = column.list else {
        let values = values.iter().map(|value| match (int(value), dtype) {
            (value, DType::U64) if value < 0 => {
                Err(format!("the number {} is too large for a field", value as u64))
            }
            (value, _) => Ok(Value::Int(value)),
        });
        return flat(values, levels, max);
    };
    let (size, mut bytes) = (dtype.size(), Vec::new());
    for value in &values {
        bytes.extend_from_slice(int(value).to_le_bytes().get(..size).unwrap_or_default());
    }
    arrays(bytes.into(), dtype, &lists(&levels, max, element)?)
}

fn floats<T: DataType>(
    reader: &mut ColumnReaderImpl<T>,
    rows: usize,
    (column, max): (Values, i16),
    append: impl Fn(&T::T, &mut Vec<u8>),
) -> Result<RowValues, String> {
    let (values, levels) = read(reader, rows)?;
    let ValueKind::Float(dtype) = column.kind else { return Err("it has numbers with fractions".into()) };
    let mut bytes = Vec::new();
    values.iter().for_each(|value| append(value, &mut bytes));
    let bytes = Bytes::from(bytes);
    if let Some(element) = column.list {
        return arrays(bytes, dtype, &lists(&levels, max, element)?);
    }
    let starts = (0..bytes.len()).step_by(dtype.size());
    let number = |start: usize| array(dtype, Vec::new(), bytes.slice(start..start + dtype.size()));
    flat(starts.map(number), levels, max)
}

/// Texts and bytes. They share one allocation, of this column in these rows alone: a page may have many more
/// rows, and would be held by any of them.
fn bytes<T: DataType>(
    reader: &mut ColumnReaderImpl<T>,
    rows: usize,
    (_, max): (Values, i16),
    data: impl Fn(&T::T) -> &[u8],
) -> Result<RowValues, String> {
    let (values, levels) = read(reader, rows)?;
    let mut all = BytesMut::with_capacity(values.iter().map(|value| data(value).len()).sum());
    values.iter().for_each(|value| all.extend_from_slice(data(value)));
    let mut all = all.freeze();
    flat(values.iter().map(|value| Ok(Value::Bytes(all.split_to(data(value).len())))), levels, max)
}

/// Puts values into their rows. `max` is the definition level of a row that has one.
fn flat(
    mut values: impl Iterator<Item = Result<Value, String>>,
    levels: Levels,
    max: i16,
) -> Result<RowValues, String> {
    if max == 0 {
        return values.map(|value| value.map(Some)).collect();
    }
    let missing = || "it has fewer values than rows that have one".to_owned();
    let value = |level: &i16| match *level == max {
        true => values.next().ok_or_else(missing)?.map(Some),
        false => Ok(None),
    };
    levels.definition.iter().map(value).collect()
}

/// The values of each row that is a list, by their numbers. `element` is the definition level of an element.
fn lists(levels: &Levels, max: i16, element: i16) -> Result<Vec<Option<Range<usize>>>, String> {
    let mut rows: Vec<Option<Range<usize>>> = Vec::new();
    let mut at = 0;
    for (definition, repetition) in levels.definition.iter().zip(&levels.repetition) {
        let is_element = *definition >= element;
        if is_element && *definition < max {
            return Err("a list with a null in it, which an array cannot hold".into());
        }
        match rows.last_mut() {
            Some(Some(list)) if *repetition > 0 && is_element => list.end += 1,
            _ if *repetition > 0 => return Err("a list that has no beginning".into()),
            _ if is_element => rows.push(Some(at..at + 1)),
            _ if *definition + 1 == element => rows.push(Some(at..at)),
            _ => rows.push(None),
        }
        at += usize::from(is_element);
    }
    Ok(rows)
}

fn arrays(bytes: Bytes, dtype: DType, rows: &[Option<Range<usize>>]) -> Result<RowValues, String> {
    let list = |row: &Option<Range<usize>>| {
        let Some(row) = row else { return Ok(None) };
        let size = dtype.size();
        let (start, end) = (row.start * size, row.end * size);
        if end > bytes.len() {
            return Err("it has fewer values than its lists".into());
        }
        array(dtype, vec![row.len()], bytes.slice(start..end)).map(Some)
    };
    rows.iter().map(list).collect()
}

fn array(dtype: DType, shape: Vec<usize>, bytes: Bytes) -> Result<Value, String> {
    Array::new(dtype, shape, bytes).map(Value::Array).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_may_be_empty_and_null() {
        let levels = Levels { definition: vec![3, 3, 1, 0, 3], repetition: vec![0, 1, 0, 0, 0] };
        let rows = lists(&levels, 3, 2).unwrap();
        assert_eq!(rows, [Some(0..2), Some(2..2), None, Some(2..3)]);
    }

    #[test]
    fn a_null_in_a_list_is_an_error() {
        let levels = Levels { definition: vec![3, 2], repetition: vec![0, 1] };
        assert!(lists(&levels, 3, 2).is_err());
        let levels = Levels { definition: vec![3, 3], repetition: vec![1, 1] };
        assert!(lists(&levels, 3, 2).is_err(), "the first row has no beginning");
    }
}
