//! Decodes the values of one column of a row group to values of fields.
//!
//! A few bytes of a file can decode to many values: a text of a dictionary may be in any number of rows, and
//! a delta-encoded text may repeat the text before it. So texts and lists are decoded one row at a time, and
//! their bytes are counted before they are copied.

use crate::columns::{ValueKind, Values};
use bytes::{Bytes, BytesMut};
use parquet::column::page::PageReader;
use parquet::column::reader::{ColumnReader, ColumnReaderImpl, get_column_reader};
use parquet::data_type::{ByteArray, DataType};
use parquet::errors::ParquetError;
use parquet::schema::types::ColumnDescPtr;
use shardstream::codec::DType;
use shardstream::{Array, Value};
use std::collections::HashSet;
use std::ops::Range;

/// Rows may share the memory of a value that has more bytes than this. However many rows share it, such a
/// value counts once towards the limit of a batch.
const LARGE: usize = 4 << 10;
/// If the texts of a batch have at most this many bytes, all are copied into one allocation. Otherwise, texts
/// of more than [`LARGE`] bytes are not copied: they are slices of their page.
const COPIED: u64 = 16 << 20;
/// The reason for the error of a row whose list contains a null.
const NULL_IN_LIST: &str = "a list with a null in it, which an array cannot hold: choose other columns by \
                            `Parquet::columns`, or write another value";

/// Reads a column of a row group, from the first row of the row group on.
pub(crate) struct ColumnValues {
    reader: ColumnReader,
    values: Values,
    /// The definition level of a value that is not null.
    max_definition: i16,
    /// Maximum number of decoded bytes in one call of [`read`](Self::read).
    limit: u64,
}

/// The value of a row; `None` if it is null; or an error that says why no field can hold it.
pub(crate) type RowValue = Result<Option<Value>, &'static str>;

/// The values of the rows of a batch.
type RowValues = Result<Vec<RowValue>, ValuesError>;

/// Why the rows of a column cannot be read.
pub(crate) enum ValuesError {
    /// The rows are damaged.
    Damaged(String),
    /// The rows may be valid, but they use an unsupported feature or exceed a limit.
    Refused(String),
}

impl From<&str> for ValuesError {
    fn from(what: &str) -> Self {
        ValuesError::Damaged(what.into())
    }
}

impl From<ParquetError> for ValuesError {
    fn from(error: ParquetError) -> Self {
        match error {
            ParquetError::NYI(what) => ValuesError::Refused(what),
            ParquetError::General(what) => ValuesError::Damaged(what),
            other => ValuesError::Damaged(other.to_string()),
        }
    }
}

/// The definition and repetition levels of a batch, in the order of the rows.
#[derive(Default)]
struct Levels {
    definition: Vec<i16>,
    repetition: Vec<i16>,
}

/// The parameters by which a column is read.
#[derive(Clone, Copy)]
struct ColumnKind {
    values: Values,
    /// The definition level of a value that is not null.
    max: i16,
    /// Maximum number of decoded bytes of a batch.
    limit: u64,
}

/// Evaluates `$call` with the typed reader that is in `$reader`, whatever its type.
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
    /// Creates the reader of `column`, whose pages are `pages`. The rows of one [`read`](Self::read) may have
    /// at most `limit` decoded bytes.
    pub(crate) fn new(column: ColumnDescPtr, values: Values, pages: Box<dyn PageReader>, limit: u64) -> Self {
        let max_definition = column.max_def_level();
        ColumnValues { reader: get_column_reader(column, pages), values, max_definition, limit }
    }

    /// Skips rows. If a page's header has the number of rows and all of them are skipped, the page is not
    /// decompressed.
    pub(crate) fn skip(&mut self, rows: usize) -> Result<(), ValuesError> {
        let skipped = with_reader!(&mut self.reader, reader => reader.skip_records(rows))?;
        if skipped == rows { Ok(()) } else { Err("it ends before its rows do".into()) }
    }

    /// Checks that no row follows.
    pub(crate) fn check_end(&mut self) -> Result<(), ValuesError> {
        match with_reader!(&mut self.reader, reader => reader.skip_records(1))? {
            0 => Ok(()),
            _ => Err("it has more rows than its row group".into()),
        }
    }

    /// Reads the values of the next `rows` rows.
    pub(crate) fn read(&mut self, rows: usize) -> RowValues {
        let column = ColumnKind { values: self.values, max: self.max_definition, limit: self.limit };
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
            ColumnReader::ByteArrayColumnReader(reader) => bytes(reader, rows, column, |value| value),
            ColumnReader::FixedLenByteArrayColumnReader(reader) => match self.values.kind {
                ValueKind::Float(_) => {
                    floats(reader, rows, column, |value, bytes| bytes.extend_from_slice(value.data()))
                }
                _ => bytes(reader, rows, column, |value| value),
            },
            ColumnReader::Int96ColumnReader(_) => Err("timestamps of 96 bits are not read".into()),
        }
    }
}

/// Reads the values of the next rows, without nulls, and their levels. `size` returns the number of bytes
/// that a value takes; it is 0 if the value shares the memory of an earlier value.
fn read<T: DataType>(
    reader: &mut ColumnReaderImpl<T>,
    rows: usize,
    column: ColumnKind,
    mut size: impl FnMut(&T::T) -> usize,
) -> Result<(Vec<T::T>, Levels), ValuesError> {
    let (mut values, mut levels) = (Vec::new(), Levels::default());
    // A row without texts and lists has only a few bytes, so all rows are read at once.
    let is_small = column.values.kind != ValueKind::Bytes && column.values.list.is_none();
    let step = if is_small { rows } else { 1 };
    let (mut found, mut bytes) = (0, 0_u64);
    while found < rows {
        let (first, levels_before) = (values.len(), levels.definition.len());
        let (definition, repetition) = (&mut levels.definition, &mut levels.repetition);
        let count = step.min(rows - found);
        let (read, ..) = reader.read_records(count, Some(definition), Some(repetition), &mut values)?;
        if read == 0 {
            return Err("it ends before its rows do".into());
        }
        found += read;
        let of_levels = 4 * (levels.definition.len() - levels_before) as u64;
        let of_values = values.iter().skip(first).map(|value| size(value) as u64).sum::<u64>();
        bytes = bytes.saturating_add(of_levels).saturating_add(of_values);
        if bytes > column.limit {
            let limit = column.limit;
            return Err(ValuesError::Refused(format!(
                "{found} rows that are decoded together have {bytes} bytes, where `Limits::sample` allows \
                 {limit}: write smaller rows or row groups, or set another limit"
            )));
        }
    }
    Ok((values, levels))
}

fn ints<T: DataType>(
    reader: &mut ColumnReaderImpl<T>,
    rows: usize,
    column: ColumnKind,
    int: impl Fn(&T::T) -> i64,
) -> RowValues {
    let ValueKind::Int(dtype) = column.values.kind else { return Err("it has integers".into()) };
    let (values, levels) = read(reader, rows, column, |_| size_of::<T::T>())?;
    let append = |value: &T::T, bytes: &mut Vec<u8>| {
        bytes.extend_from_slice(int(value).to_le_bytes().get(..dtype.size()).unwrap_or_default());
    };
    match (column.values.list, dtype) {
        (Some(element), _) => arrays(&values, dtype, lists(&levels, column.max, element)?, append),
        // A large `u64` does not fit into `Value::Int`. So all values are arrays, also the small ones: the
        // type of a field must not depend on its value.
        (None, DType::U64) => scalars(&values, dtype, &levels, column.max, append),
        (None, _) => flat(values.iter().map(|value| Ok(Value::Int(int(value)))), &levels, column.max),
    }
}

fn floats<T: DataType>(
    reader: &mut ColumnReaderImpl<T>,
    rows: usize,
    column: ColumnKind,
    append: impl Fn(&T::T, &mut Vec<u8>),
) -> RowValues {
    let ValueKind::Float(dtype) = column.values.kind else {
        return Err("it has numbers with fractions".into());
    };
    let (values, levels) = read(reader, rows, column, |_| size_of::<T::T>())?;
    match column.values.list {
        Some(element) => arrays(&values, dtype, lists(&levels, column.max, element)?, append),
        None => scalars(&values, dtype, &levels, column.max, append),
    }
}

/// Reads texts and bytes. If all of them together have at most [`COPIED`] bytes, they are copied into one
/// allocation. A slice of a page would keep the whole page in memory as long as its row is kept.
fn bytes<T: DataType>(
    reader: &mut ColumnReaderImpl<T>,
    rows: usize,
    column: ColumnKind,
    value: impl Fn(&T::T) -> &ByteArray,
) -> RowValues {
    let mut large = HashSet::new();
    let (values, levels) = read(reader, rows, column, |found| {
        let data = value(found).data();
        let is_repeated = data.len() > LARGE && !large.insert(data.as_ptr());
        if is_repeated { 0 } else { data.len() }
    })?;
    let size = values.iter().map(|found| value(found).len() as u64).fold(0, u64::saturating_add);
    if size > COPIED {
        let values = values.iter().map(|found| Ok(Value::Bytes(shared(value(found)))));
        return flat(values, &levels, column.max);
    }
    let mut all = BytesMut::with_capacity(size as usize);
    values.iter().for_each(|found| all.extend_from_slice(value(found).data()));
    let mut all = all.freeze();
    let values = values.iter().map(|found| Ok(Value::Bytes(all.split_to(value(found).len()))));
    flat(values, &levels, column.max)
}

/// The bytes of a value. They are copied if there are at most [`LARGE`] of them.
fn shared(value: &ByteArray) -> Bytes {
    struct Owner(ByteArray);

    impl AsRef<[u8]> for Owner {
        fn as_ref(&self) -> &[u8] {
            self.0.data()
        }
    }

    if value.len() > LARGE {
        Bytes::from_owner(Owner(value.clone()))
    } else {
        Bytes::copy_from_slice(value.data())
    }
}

/// Assigns the values to rows, in order. `max` is the definition level of a row that has a value.
fn flat(
    mut values: impl Iterator<Item = Result<Value, ValuesError>>,
    levels: &Levels,
    max: i16,
) -> RowValues {
    if max == 0 {
        return values.map(|value| value.map(|value| Ok(Some(value)))).collect();
    }
    let value = |level: &i16| match *level == max {
        true => {
            let value = values.next().ok_or("it has fewer values than rows that have one")?;
            value.map(|value| Ok(Some(value)))
        }
        false => Ok(Ok(None)),
    };
    levels.definition.iter().map(value).collect()
}

/// Converts each value to an array without axes. All arrays share one allocation.
fn scalars<V>(
    values: &[V],
    dtype: DType,
    levels: &Levels,
    max: i16,
    append: impl Fn(&V, &mut Vec<u8>),
) -> RowValues {
    let mut bytes = Vec::with_capacity(values.len() * dtype.size());
    values.iter().for_each(|value| append(value, &mut bytes));
    let bytes = Bytes::from(bytes);
    let starts = (0..bytes.len()).step_by(dtype.size());
    let number = |start: usize| array(dtype, Vec::new(), bytes.slice(start..start + dtype.size()));
    flat(starts.map(number), levels, max)
}

/// The indices of a row's elements among the values; `None` if the row is null; or an error that says why no
/// field can hold the list.
type ListValues = Result<Option<Range<usize>>, &'static str>;

/// Finds the elements of each row's list. `max` is the definition level of an element that is not null.
/// `element` is the lowest definition level at which the list has an element, which may be null.
fn lists(levels: &Levels, max: i16, element: i16) -> Result<Vec<ListValues>, ValuesError> {
    let mut rows: Vec<ListValues> = Vec::new();
    let mut at = 0;
    for (definition, repetition) in levels.definition.iter().zip(&levels.repetition) {
        let is_element = *definition >= element;
        let is_null = is_element && *definition < max;
        if *repetition > 0 {
            match rows.last_mut() {
                Some(Err(_)) => {}
                Some(row) if is_null => *row = Err(NULL_IN_LIST),
                Some(Ok(Some(list))) if is_element => list.end += 1,
                _ => return Err("a list that has no beginning".into()),
            }
        } else if is_null {
            rows.push(Err(NULL_IN_LIST));
        } else if is_element {
            rows.push(Ok(Some(at..at + 1)));
        } else {
            rows.push(Ok((*definition + 1 == element).then_some(at..at)));
        }
        at += usize::from(is_element && !is_null);
    }
    Ok(rows)
}

/// Converts each row's list to an array. Each array has an allocation of its own, so that a row that is kept
/// for long keeps no other row in memory.
fn arrays<V>(
    values: &[V],
    dtype: DType,
    rows: Vec<ListValues>,
    append: impl Fn(&V, &mut Vec<u8>),
) -> RowValues {
    let list = |row: ListValues| {
        let row = match row {
            Ok(Some(row)) => row,
            Ok(None) => return Ok(Ok(None)),
            Err(why) => return Ok(Err(why)),
        };
        let values = values.get(row).ok_or("it has fewer values than its lists")?;
        let mut bytes = Vec::with_capacity(values.len() * dtype.size());
        values.iter().for_each(|value| append(value, &mut bytes));
        array(dtype, vec![values.len()], bytes.into()).map(|array| Ok(Some(array)))
    };
    rows.into_iter().map(list).collect()
}

fn array(dtype: DType, shape: Vec<usize>, bytes: Bytes) -> Result<Value, ValuesError> {
    let array = Array::new(dtype, shape, bytes).map(Value::Array);
    array.map_err(|error| ValuesError::Damaged(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn levels(definition: &[i16], repetition: &[i16]) -> Levels {
        Levels { definition: definition.into(), repetition: repetition.into() }
    }

    #[test]
    fn lists_may_be_empty_and_null() {
        let rows = lists(&levels(&[3, 3, 1, 0, 3], &[0, 1, 0, 0, 0]), 3, 2).ok().unwrap();
        assert_eq!(rows, [Ok(Some(0..2)), Ok(Some(2..2)), Ok(None), Ok(Some(2..3))]);
    }

    #[test]
    fn a_null_in_a_list_fails_its_row_alone() {
        let rows = lists(&levels(&[3, 3, 2, 3, 2, 3, 3], &[0, 0, 1, 1, 0, 1, 0]), 3, 2).ok().unwrap();
        assert_eq!(rows, [Ok(Some(0..1)), Err(NULL_IN_LIST), Err(NULL_IN_LIST), Ok(Some(4..5))]);
        assert!(lists(&levels(&[3, 3], &[1, 1]), 3, 2).is_err(), "the first row has no beginning");
    }
}
