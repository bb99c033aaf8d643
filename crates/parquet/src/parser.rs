//! The parser of a file: reads the footer at the end of the file, then one row group after the other.

use crate::incoming::IncomingRanges;
use crate::options::Options;
use crate::row_group::RowGroup;
use crate::table::{GroupPlace, TAIL, Table, metadata_length};
use bytes::Bytes;
use shardstream::error::SizeLimit;
use shardstream::formats::{Parsed, ParserStart, ShardParser};
use shardstream::tar::Limits;
use shardstream::{Error, ErrorKind, Result, Sample, Value};
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

/// Number of bytes at the end of a file that are read first. The footers of most files are smaller.
const FOOTER: u64 = 64 << 10;
/// The largest accepted footer in bytes. A decoded footer takes several times as much memory.
const MAX_FOOTER: u64 = 256 << 20;
/// Number of row groups that are requested while the rows of one are decoded.
const GROUPS_AHEAD: usize = 1;

/// Reads the rows from [`ParserStart::sample`] to [`ParserStart::end`].
pub(crate) struct ParquetParser {
    options: Arc<Options>,
    start: ParserStart,
    incoming: IncomingRanges,
    state: ParserState,
    /// Whether all bytes have been pushed.
    is_finished: bool,
    /// Number of rows in the file, once the footer has been read.
    samples: Option<u64>,
    /// Whether all rows up to [`ParserStart::end`] have been returned.
    is_complete: bool,
}

enum ParserState {
    /// Holds an error that [`new`](ParquetParser::new) found. The first step returns it.
    Failed(Option<Error>),
    /// Waits for the footer, which is in this number of ranges.
    Footer(usize),
    Rows(Box<Rows>),
    Ended,
}

struct Rows {
    table: Table,
    /// The number of the next row.
    next: u64,
    /// The number of the first row that is not read.
    end: u64,
    /// The row group whose rows are being returned.
    group: Option<RowGroup>,
    /// The row groups that have been requested and not opened.
    requested: VecDeque<GroupPlace>,
    /// The number of the next row group to request.
    next_group: usize,
    /// The number of the first row group that is not read.
    end_group: usize,
}

impl ParquetParser {
    pub(crate) fn new(options: Arc<Options>, start: &ParserStart) -> Self {
        let mut incoming = IncomingRanges::new(start.ranges.clone());
        let unsupported = |what: &str| ParserState::Failed(Some(ErrorKind::Unsupported(what.into()).into()));
        let state = match start.size {
            None => unsupported(
                "a Parquet file has its table of contents at the end, so that its size must be known: \
                 read it by a dataset, whose index has the size",
            ),
            Some(size) if size < TAIL + 4 => {
                let what = format!("a file of {size} bytes is no Parquet file");
                ParserState::Failed(Some(Error::from(ErrorKind::Format(what)).at_offset(0)))
            }
            Some(size) => {
                incoming.request(size.saturating_sub(FOOTER)..size);
                ParserState::Footer(1)
            }
        };
        let start = start.clone();
        ParquetParser {
            options,
            start,
            incoming,
            state,
            is_finished: false,
            samples: None,
            is_complete: false,
        }
    }

    /// Reads the footer from `parts`, the bytes at the end of the file. If the footer begins before them,
    /// requests its missing bytes.
    fn footer(&mut self, parts: &[(u64, Bytes)]) -> Result<ParserState> {
        let size = self.start.size.unwrap_or_default();
        let (from, bytes) = match parts {
            [(from, bytes)] => (*from, bytes.clone()),
            // The last bytes of the file were fetched first.
            [(_, tail), (from, head)] => (*from, [&head[..], &tail[..]].concat().into()),
            _ => (size, Bytes::new()),
        };
        let length = metadata_length(&bytes, size)?;
        let begin = size.saturating_sub(TAIL + length);
        if length > MAX_FOOTER {
            let what = format!("a footer of {length} bytes, where {MAX_FOOTER} are allowed");
            return Err(Error::from(ErrorKind::Format(what)).at_offset(begin));
        }
        if begin < from {
            // The end of the footer has arrived. It is kept, and the beginning of the footer is requested.
            self.incoming.keep(from, bytes);
            self.incoming.request(begin..from);
            return Ok(ParserState::Footer(2));
        }
        let metadata = (begin - from) as usize..bytes.len() - TAIL as usize;
        let table = Table::read(bytes.get(metadata).unwrap_or_default(), begin, &self.options)?;
        self.samples = Some(table.rows());
        let end = self.start.end.min(table.rows());
        let next = self.start.sample.min(end);
        if next == end {
            self.is_complete = true;
            return Ok(ParserState::Ended);
        }
        let (next_group, end_group) = (table.group_of(next), table.group_end(end));
        let (group, requested) = (None, VecDeque::new());
        Ok(ParserState::Rows(Box::new(Rows { table, next, end, group, requested, next_group, end_group })))
    }

    /// Does one step of parsing. Returns `None` if only the state changed; the caller then does another step.
    fn step(&mut self) -> Result<Option<Parsed>> {
        let parts = match &mut self.state {
            ParserState::Ended => return Ok(Some(Parsed::End)),
            ParserState::Failed(error) => {
                let error = error.take();
                self.state = ParserState::Ended;
                return error.map_or(Ok(None), Err);
            }
            ParserState::Rows(rows) => {
                let key = self.options.key.as_deref();
                let parsed = rows.step(&mut self.incoming, &self.start.limits, key)?;
                self.is_complete |= matches!(parsed, Some(Parsed::End));
                return Ok(parsed);
            }
            ParserState::Footer(ranges) => match self.incoming.take(*ranges) {
                Some(parts) => parts,
                None => return Ok(Some(Parsed::NeedInput)),
            },
        };
        self.state = self.footer(&parts)?;
        Ok(None)
    }
}

impl Rows {
    fn step(
        &mut self,
        incoming: &mut IncomingRanges,
        limits: &Limits,
        key: Option<&str>,
    ) -> Result<Option<Parsed>> {
        if let Some(group) = &mut self.group {
            match group.next_row() {
                None => self.group = None,
                Some(values) => {
                    let row = RowNumber { row: self.next, group: group.number() };
                    self.next += 1;
                    return self.sample(row, values?, limits, key).map(|sample| Some(Parsed::Sample(sample)));
                }
            }
        }
        while self.next_group < self.end_group && self.requested.len() <= GROUPS_AHEAD {
            let number = self.next_group;
            self.next_group += 1;
            // A row group without rows is skipped: pyarrow writes 0 as the offsets of its columns.
            if self.table.has_rows(number) {
                let place = self.table.group(number, limits.member)?;
                place.ranges.iter().for_each(|range| incoming.request(range.clone()));
                self.requested.push_back(place);
            }
        }
        let Some(place) = self.requested.front() else { return Ok(Some(Parsed::End)) };
        let Some(parts) = incoming.take(place.ranges.len()) else { return Ok(Some(Parsed::NeedInput)) };
        let rows = self.next..self.end;
        self.group = Some(RowGroup::open(&self.table, place, &parts, rows, limits)?);
        self.requested.pop_front();
        Ok(None)
    }

    /// Makes the sample of a row from the values of its columns.
    fn sample(
        &self,
        RowNumber { row, group }: RowNumber,
        values: Vec<Option<Value>>,
        limits: &Limits,
        key: Option<&str>,
    ) -> Result<Sample> {
        let size = values.iter().flatten().map(|value| value.size() as u64).fold(0, u64::saturating_add);
        if size > limits.sample {
            let kind = ErrorKind::TooLarge { what: SizeLimit::Sample, size, limit: limits.sample };
            let name = format!("row {row} of row group {group}");
            return Err(Error::from(kind).with_key(name));
        }
        let key = match self.table.key {
            None => format!("{row:09}"),
            Some(column) => key_of(values.get(column).and_then(Option::as_ref)).ok_or_else(|| {
                let key = key.unwrap_or_default();
                let what = format!(
                    "row group {group}: the column {key:?} of row {row}, its key, is no text and no whole \
                     number"
                );
                Error::from(ErrorKind::Format(what))
            })?,
        };
        let fields = self.table.columns.iter().take(self.table.fields).zip(values);
        let fields = fields.filter_map(|(column, value)| Some((column.column.name.clone(), value?)));
        Ok(fields.fold(Sample::new(key), |sample, (name, value)| sample.with(name, value)))
    }
}

/// The number of a row and of its row group, for keys and errors.
#[derive(Clone, Copy)]
struct RowNumber {
    /// The number of the row in the file.
    row: u64,
    /// The number of the row group in the file.
    group: usize,
}

/// Converts the value of the key column to a key; `None` if the value cannot be a key.
fn key_of(value: Option<&Value>) -> Option<String> {
    match value? {
        Value::Int(number) => Some(number.to_string()),
        // An unsigned integer of 64 bits.
        Value::Array(array) => Some(array.to_vec::<u64>().ok()?.first()?.to_string()),
        Value::Bytes(bytes) => String::from_utf8(bytes.to_vec()).ok().filter(|text| !text.is_empty()),
        _ => None,
    }
}

impl ShardParser for ParquetParser {
    fn push(&mut self, chunk: Bytes) {
        self.incoming.push(chunk);
    }

    fn finish(&mut self) {
        self.is_finished = true;
    }

    fn next(&mut self) -> Result<Parsed> {
        loop {
            match self.step() {
                Ok(None) => {}
                Ok(Some(Parsed::NeedInput)) if self.is_finished => {
                    self.state = ParserState::Ended;
                    let what = "the bytes of the Parquet file end before what its footer says";
                    return Err(ErrorKind::Format(what.into()).into());
                }
                Ok(Some(parsed)) => return Ok(parsed),
                Err(error) => {
                    self.state = ParserState::Ended;
                    return Err(error);
                }
            }
        }
    }

    fn samples(&self) -> Option<u64> {
        self.samples
    }

    fn is_complete(&self) -> bool {
        self.is_complete
    }
}

impl fmt::Debug for ParquetParser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ParquetParser { options, start, is_finished, samples, .. } = self;
        f.debug_struct("ParquetParser")
            .field("options", options)
            .field("start", start)
            .field("is_finished", is_finished)
            .field("samples", samples)
            .finish_non_exhaustive()
    }
}
