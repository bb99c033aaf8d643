//! The rows of one row group, from the bytes of its columns.

use crate::pages::ChunkPages;
use crate::table::{GroupPlace, Table, TableColumn};
use crate::values::{ColumnValues, RowValue, ValuesError};
use bytes::Bytes;
use shardstream::tar::Limits;
use shardstream::{Error, ErrorKind, Result, Value};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::vec;

/// The least number of bytes that the rows of a batch, or a page of lists, may be decoded to in a column,
/// however small samples must be.
const MIN_DECODED: u64 = 16 << 20;

/// Decodes the rows of a row group, a batch at a time.
///
/// The batches of a row group begin at the same rows wherever reading starts: a row in front of damage is
/// read or not read, and a restore does not change which.
pub(crate) struct RowGroup {
    columns: Vec<GroupColumn>,
    number: usize,
    /// The numbers of its rows in the file.
    rows_of_file: Range<u64>,
    /// Number of rows before the next batch, and of those to read, counted in the row group.
    at: u64,
    end: u64,
    batch: u64,
    /// Rows of the first batch that are not read.
    dropped: usize,
    /// The values of the rows that have been decoded, by columns.
    rows: Vec<vec::IntoIter<RowValue>>,
    left: usize,
}

struct GroupColumn {
    values: ColumnValues,
    /// For errors.
    name: String,
    group: usize,
    offset: u64,
}

impl RowGroup {
    /// Begins with the rows of these numbers in the file. `parts` are the ranges of the row group, with their
    /// offsets. No page may have more than [`Limits::member`] bytes, and the rows of a batch no more than
    /// [`Limits::sample`] in a column.
    pub(crate) fn open(
        table: &Table,
        place: &GroupPlace,
        parts: &[(u64, Bytes)],
        rows: Range<u64>,
        limits: &Limits,
    ) -> Result<Self> {
        let (start, end) = (rows.start - place.rows.start, rows.end.min(place.rows.end) - place.rows.start);
        let decoded = limits.sample.max(MIN_DECODED);
        let mut columns = Vec::new();
        for (TableColumn { column, values, descriptor }, chunk) in table.columns.iter().zip(&place.chunks) {
            let bytes = part(parts, &chunk.range).unwrap_or_default();
            let pages = |bytes| ChunkPages::new(bytes, chunk.codec, descriptor, limits.member);
            let rows = place.rows.end - place.rows.start;
            let checked = pages(bytes.clone()).check(chunk.values, rows, decoded);
            let column = GroupColumn {
                values: ColumnValues::new(descriptor.clone(), *values, Box::new(pages(bytes)), decoded),
                name: column.name.to_string(),
                group: place.number,
                offset: chunk.range.start,
            };
            checked.map_err(|error| column.error(error.into()))?;
            columns.push(column);
        }
        let at = start - start % place.batch;
        for column in &mut columns {
            column.call(|values| values.skip(usize::try_from(at).unwrap_or(usize::MAX)))?;
        }
        let dropped = (start - at) as usize;
        let (number, batch, rows_of_file) = (place.number, place.batch, place.rows.clone());
        let (rows, left) = (Vec::new(), 0);
        Ok(RowGroup { columns, number, rows_of_file, at, end, batch, dropped, rows, left })
    }

    pub(crate) fn number(&self) -> usize {
        self.number
    }

    /// The values of the next row, by columns. Nothing follows an error.
    pub(crate) fn next_row(&mut self) -> Option<Result<Vec<Option<Value>>>> {
        while self.left == 0 {
            let rows = self.batch.min(self.end.saturating_sub(self.at)) as usize;
            if rows == 0 {
                return None;
            }
            if let Err(error) = self.decode(rows) {
                self.end = self.at;
                return Some(Err(error));
            }
        }
        let row = self.rows_of_file.start + self.at - self.left as u64;
        self.left -= 1;
        let columns = self.rows.iter_mut().zip(&self.columns);
        let values = columns.map(|(values, column)| match values.next() {
            Some(Ok(value)) => Ok(value),
            Some(Err(why)) => Err(column.refused_row(row, why)),
            None => Ok(None),
        });
        let values = values.collect::<Result<Vec<_>>>();
        if values.is_err() {
            (self.end, self.left) = (self.at, 0);
        }
        Some(values)
    }

    fn decode(&mut self, rows: usize) -> Result<()> {
        self.rows.clear();
        let dropped = std::mem::take(&mut self.dropped);
        for column in &mut self.columns {
            let mut values = column.call(|values| values.read(rows))?;
            if values.len() != rows {
                return Err(column.damaged(&format!("it has {} values in {rows} rows", values.len())));
            }
            values.drain(..dropped.min(rows));
            self.rows.push(values.into_iter());
        }
        self.at += rows as u64;
        if self.rows_of_file.start + self.at == self.rows_of_file.end {
            self.columns.iter_mut().try_for_each(|column| column.call(ColumnValues::check_end))?;
        }
        self.left = rows.saturating_sub(dropped);
        Ok(())
    }
}

impl GroupColumn {
    /// Calls a decoder, which may panic on damaged data.
    fn call<T>(&mut self, call: impl FnOnce(&mut ColumnValues) -> Result<T, ValuesError>) -> Result<T> {
        let done = catch_unwind(AssertUnwindSafe(|| call(&mut self.values)));
        let done = done.unwrap_or_else(|_| Err(ValuesError::Damaged("its pages are damaged".into())));
        done.map_err(|error| self.error(error))
    }

    fn error(&self, error: ValuesError) -> Error {
        match error {
            ValuesError::Damaged(what) => self.damaged(&what),
            ValuesError::Refused(what) => {
                let GroupColumn { group, name, .. } = self;
                let what = format!("the Parquet file: row group {group}, column {name:?}: {what}");
                Error::from(ErrorKind::Unsupported(what)).at_offset(self.offset)
            }
        }
    }

    /// The error of a row that is valid, and that no field can hold. It is no damage: rows that could be read
    /// if the file were written in another way must not be skipped.
    fn refused_row(&self, row: u64, why: &str) -> Error {
        let GroupColumn { group, name, .. } = self;
        let what = format!("the Parquet file: row {row} of row group {group}, column {name:?}: {why}");
        Error::from(ErrorKind::Unsupported(what)).at_offset(self.offset)
    }

    fn damaged(&self, what: &str) -> Error {
        let what = format!("row group {}, column {:?}: {what}", self.group, self.name);
        Error::from(ErrorKind::Format(what)).at_offset(self.offset)
    }
}

/// The bytes of a range, which is within one of the parts.
fn part(parts: &[(u64, Bytes)], range: &Range<u64>) -> Option<Bytes> {
    let within = |(start, bytes): &&(u64, Bytes)| {
        *start <= range.start && range.end <= start.saturating_add(bytes.len() as u64)
    };
    let (start, bytes) = parts.iter().find(within)?;
    Some(bytes.slice((range.start - start) as usize..(range.end - start) as usize))
}
