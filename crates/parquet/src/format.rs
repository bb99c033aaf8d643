//! The format of Parquet files.

use crate::options::Options;
use crate::parser::ParquetParser;
use shardstream::formats::{ParserStart, ShardFormat, ShardParser};
use std::sync::Arc;

/// Parquet files (`.parquet`): each row is a sample, and each column a field of it.
///
/// - The key is the number of the row in its file, in nine digits, or a [column](Parquet::key).
/// - A column is the field of its name. A struct is its columns, with a dot between the names: `image.bytes`.
///   Where a value is null, the sample has no such field.
/// - The footer is read first: 64 KiB at the end of the file, and more if it is longer. Then come the row
///   groups that have rows of the slice, each as a whole, and of these only the [columns](Parquet::columns)
///   that are read. The compressed bytes of one row group are in memory, and those of the next one are
///   fetched meanwhile.
/// - A slice and a restore begin at any row: its row group is read, and the rows before it are skipped.
/// - Checksums of pages are compared where the file has them. Damage is [an error](shardstream::ErrorKind)
///   that names the row group and the column, and ends the slice. So does any error of a single row: the rows
///   behind it in its slice are not read.
/// - Rows that are decoded together have at most [`Limits::sample`](shardstream::tar::Limits::sample) bytes
///   in a column (16 MiB if it is less), and row groups at most
///   [`Limits::member`](shardstream::tar::Limits::member). Beyond these limits, a file is `Unsupported`. This
///   is no damage, so no policy skips it.
///
/// | in the file | in a sample |
/// |---|---|
/// | texts and bytes | [`Value::Bytes`](shardstream::Value), as in a tar shard, for a decoder |
/// | integers, booleans, dates and times | `Value::Int`, the number that is stored |
/// | integers of 64 bits without a sign | `Value::Array` of `uint64` without axes |
/// | numbers of 16, 32 and 64 bits with a fraction | `Value::Array` without axes |
/// | a list of numbers or booleans | `Value::Array` with one axis, of the type that the file says |
/// | a list of numbers with a null in it | [`Unsupported`](shardstream::ErrorKind::Unsupported) at its row |
/// | a list of texts, structs or lists, a map, decimal numbers, timestamps of 96 bits | `Unsupported`, unless other columns are chosen |
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
    /// All columns, with keys that are the numbers of the rows.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads only these columns. The others are not fetched, unless they are less than 256 KiB between two
    /// that are. The name of a struct stands for all columns in it, unless a column has this name. A file
    /// without one of them is [an error](shardstream::ErrorKind::Unsupported). Default: all.
    pub fn columns<N: Into<String>>(self, names: impl IntoIterator<Item = N>) -> Self {
        let columns = Some(names.into_iter().map(Into::into).collect());
        Parquet { options: Arc::new(Options { columns, ..Options::clone(&self.options) }) }
    }

    /// Takes the key of a sample from this column: a text or a whole number. A row in which it is null or
    /// empty is [an error](shardstream::ErrorKind::Format), and the rows behind it in its slice are not read:
    /// choose a column without nulls. It is a field too if it is one of the [columns](Parquet::columns).
    /// Default: the number of the row.
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
