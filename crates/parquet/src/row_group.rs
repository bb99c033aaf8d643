//! Decodes the rows of one row group from the bytes of its columns.

use crate::pages::ChunkPages;
use crate::table::{GroupPlace, Table, TableColumn};
use crate::values::{ColumnValues, RowValue, ValuesError};
use bytes::Bytes;
use shardstream::tar::Limits;
use shardstream::{Error, ErrorKind, Result, Value};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::vec;

/// A batch of rows or a page of lists may always have this many decoded bytes in a column, even if
/// [`Limits::sample`] is smaller.
const MIN_DECODED: u64 = 16 << 20;

/// Decodes the rows of a row group, one batch at a time.
///
/// The batches of a row group begin at the same rows wherever reading starts. Damage fails a whole batch, so
/// a restore does not change which rows are lost to damage.
pub(crate) struct RowGroup {
    columns: Vec<GroupColumn>,
    number: usize,
    /// The numbers of the row group's rows in the file.
    rows_of_file: Range<u64>,
    /// Number of rows of the row group before the next batch.
    at: u64,
    /// The row at which reading ends, counted from the beginning of the row group.
    end: u64,
    /// Maximum number of rows in a batch.
    batch: u64,
    /// Number of rows of the first batch that are in front of the first row to return.
    dropped: usize,
    /// For each column, the decoded values of the rows that have not been returned.
    rows: Vec<vec::IntoIter<RowValue>>,
    /// Number of decoded rows that have not been returned.
    left: usize,
}

struct GroupColumn {
    values: ColumnValues,
    /// The name of the column, for errors.
    name: String,
    group: usize,
    /// The offset of the column chunk in the file, for errors.
    offset: u64,
}

impl RowGroup {
    /// Opens the row group at `place`. `rows` are the rows to read, by their numbers in the file. `parts` are
    /// the fetched bytes of the row group's ranges, each with its offset in the file.
    ///
    /// A page may have at most [`Limits::member`] bytes. The rows of a batch may have at most
    /// [`Limits::sample`] bytes in a column.
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

    /// Returns the values of the next row, one for each column. After an error, returns `None`.
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
    /// Calls `call` with the decoder. The decoder may panic on damaged data; a panic is returned as an error.
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

    /// The error of a valid row that cannot be a sample, because no field can hold its value. The row is not
    /// damaged, so no policy may skip it.
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

/// Returns the bytes of `range` from the part that contains it; `None` if no part does.
fn part(parts: &[(u64, Bytes)], range: &Range<u64>) -> Option<Bytes> {
    let within = |(start, bytes): &&(u64, Bytes)| {
        *start <= range.start && range.end <= start.saturating_add(bytes.len() as u64)
    };
    let (start, bytes) = parts.iter().find(within)?;
    Some(bytes.slice((range.start - start) as usize..(range.end - start) as usize))
}
