//! The format of Parquet files.

use crate::options::Options;
use crate::parser::ParquetParser;
use shardstream::formats::{ParserStart, ShardFormat, ShardParser};
use std::sync::Arc;

/// Parquet files (`.parquet`): each row is a sample, and each column is a field of it.
///
/// - The key of a sample is the number of its row in the file, in nine digits, or the value of a
///   [column](Parquet::key).
/// - Each column is a field with the column's name. Each column of a struct is a field as well, with a dot
///   between the names: `image.bytes`. Where a value is null, the sample has no such field.
/// - The footer is read first: the last 64 KiB of the file, and more if the footer is longer. Then the row
///   groups that have rows of the slice are read one after the other. Only the chosen
///   [columns](Parquet::columns) of a row group are read. While the rows of one row group are decoded, the
///   next row group is fetched.
/// - A slice or a restore can begin at any row: its row group is read, and the rows before it are skipped.
/// - If the file has checksums of pages, they are checked. Damage is [an error](shardstream::ErrorKind) that
///   names the row group and the column. After any error, also one of a single row, the remaining rows of the
///   slice are not read.
/// - Several rows are decoded together. In each column they may have at most
///   [`Limits::sample`](shardstream::tar::Limits::sample) bytes, or 16 MiB if that limit is smaller. The
///   chosen columns of a row group may have at most
///   [`Limits::member`](shardstream::tar::Limits::member) bytes. A file beyond these limits is `Unsupported`.
///   No policy skips this error, because the file is not damaged.
///
/// | in the file | in a sample |
/// |---|---|
/// | texts and bytes | [`Value::Bytes`](shardstream::Value), as in a tar shard, for a decoder |
/// | integers, booleans, dates and times | `Value::Int`, the number that is stored |
/// | unsigned integers of 64 bits | `Value::Array` of `uint64` without axes |
/// | floating-point numbers of 16, 32 and 64 bits | `Value::Array` without axes |
/// | a list of numbers or booleans | `Value::Array` with one axis and the type of the list's elements |
/// | a list of numbers with a null in it | [`Unsupported`](shardstream::ErrorKind::Unsupported) at its row |
/// | a list of texts, structs or lists, a map, decimal numbers, 96-bit timestamps | `Unsupported`, unless other columns are chosen |
///
/// Pages may be compressed by snappy, gzip, zstd (feature `zstd`) and LZ4 (`LZ4_RAW`). Brotli, LZO, LZ4 in
/// its deprecated framing and encrypted files are `Unsupported`.
///
/// ```
/// use shardstream::prelude::*;
/// use shardstream_parquet::Parquet;
///
/// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/files/data/texts-*.parquet");
/// // let path = "hf://datasets/OWNER/NAME/data/train-*.parquet";
/// let dataset = Dataset::builder(path).format(Parquet::new().columns(["text"])).build()?;
/// assert_eq!(dataset.len(), Some(600));
/// let texts = Loader::builder(dataset).decode(Decoder::new());
/// let texts = texts.map(|mut sample| sample.take::<String>("text"));
/// let batch = texts.batch(8).build()?.epoch(0).next().unwrap()?;
/// assert_eq!(batch[0], "text 0 of shard 0");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Default)]
#[must_use = "a format does nothing until a dataset reads by it"]
pub struct Parquet {
    options: Arc<Options>,
}

impl Parquet {
    /// Reads all columns. The key of a sample is the number of its row.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads only these columns. Columns that are not chosen are not fetched, except where they fill a gap of
    /// at most 256 KiB between two chosen columns: one request that includes the gap is faster than two. The
    /// name of a struct chooses all columns in it, unless a column has this name. If a file lacks one of
    /// these columns, that is [an error](shardstream::ErrorKind::Unsupported). Default: all columns.
    pub fn columns<N: Into<String>>(self, names: impl IntoIterator<Item = N>) -> Self {
        let columns = Some(names.into_iter().map(Into::into).collect());
        Parquet { options: Arc::new(Options { columns, ..Options::clone(&self.options) }) }
    }

    /// Takes the key of a sample from this column, whose values must be texts or integers. A null or an empty
    /// text is [an error](shardstream::ErrorKind::Format), and the remaining rows of the slice are then not
    /// read: choose a column without nulls. The column is also a field if it is one of the chosen
    /// [columns](Parquet::columns). Default: the key is the number of the row.
    pub fn key(self, column: impl Into<String>) -> Self {
        let key = Some(column.into());
        Parquet { options: Arc::new(Options { key, ..Options::clone(&self.options) }) }
    }
}

impl ShardFormat for Parquet {
    fn parser(&self, start: &ParserStart) -> Box<dyn ShardParser> {
        Box::new(ParquetParser::new(Arc::clone(&self.options), start))
    }

    fn reads_ranges(&self) -> bool {
        true
    }
}
