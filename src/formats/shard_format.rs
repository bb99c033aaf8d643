//! What a format is: it makes a parser for each shard.

use crate::sample::Position;
use crate::store::RangeRequests;
use crate::tar::{Limits, ShardParser};
use std::fmt;

/// A format of shards. It makes a parser for each shard that is read.
///
/// Samples need a key and fields. Their positions, and the name of the shard in them and in errors, are set
/// by whoever drives the parser. The `Debug` text of a format tells it apart from others in the names of
/// [saved indexes](crate::index::AutoIndex), so it contains what changes the samples, such as options, and
/// nothing that differs between processes. `examples/own_format.rs` reads a made-up format; this one has a
/// sample in each byte:
///
/// ```
/// use bytes::{Buf, Bytes};
/// use shardstream::formats::{Parsed, ParserStart, SamplePlace, ShardFormat, ShardParser};
/// use shardstream::{Dataset, Result, Sample};
///
/// #[derive(Debug)]
/// struct EachByte;
///
/// #[derive(Debug)]
/// struct ByteParser {
///     chunk: Bytes,
///     offset: u64,
///     is_finished: bool,
/// }
///
/// impl ShardFormat for EachByte {
///     fn parser(&self, start: &ParserStart) -> Box<dyn ShardParser> {
///         Box::new(ByteParser { chunk: Bytes::new(), offset: start.offset, is_finished: false })
///     }
/// }
///
/// impl ShardParser for ByteParser {
///     fn push(&mut self, chunk: Bytes) {
///         self.chunk = [&self.chunk[..], &chunk[..]].concat().into();
///     }
///
///     fn finish(&mut self) {
///         self.is_finished = true;
///     }
///
///     fn next(&mut self) -> Result<Parsed> {
///         if self.chunk.is_empty() {
///             return Ok(if self.is_finished { Parsed::End } else { Parsed::NeedInput });
///         }
///         self.offset += 1;
///         let key = format!("{:06}", self.offset - 1);
///         Ok(Parsed::Sample(Sample::new(key).with("cls", i64::from(self.chunk.get_u8()))))
///     }
/// }
///
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("0.bytes").display().to_string();
/// # std::fs::write(&path, [7, 8, 9])?;
/// let dataset = Dataset::builder(path).format(EachByte).build()?;
/// let samples = dataset.samples(0).results().collect::<Result<Vec<_>>>()?;
/// assert_eq!((samples[2].key(), samples[2].position().sample), ("000002", 2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait ShardFormat: fmt::Debug + Send + Sync {
    /// A parser that gets the bytes of a shard from [`ParserStart::offset`] on, decompressed if the shard's
    /// name ends in `.gz` or `.zst`. The offset is that of a [place](ShardParser::place) which a parser of
    /// the same format gave, and otherwise 0.
    fn parser(&self, start: &ParserStart) -> Box<dyn ShardParser>;

    /// Whether its parsers choose the bytes that they get, by [`ParserStart::ranges`], and do not get all
    /// bytes from an offset on: for a format with a table of contents at the end of the file. Default: no.
    ///
    /// A dataset of such a format always has an index. If it is given none, it reads the tables when it is
    /// built, for the [number of samples](ShardParser::samples) of each shard. Then a slice and a restore
    /// begin at any sample: the parser reads the table, and what it takes of the bytes behind it. Shards of
    /// such a format cannot be compressed as a whole, nor be read from a stream.
    fn reads_ranges(&self) -> bool {
        false
    }
}

/// Where a parser starts, and what it accepts.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ParserStart {
    /// The number in its shard of the first sample.
    pub sample: u64,
    /// The number in its shard of the first sample that is not read, for a parser that
    /// [reads ranges](ShardFormat::reads_ranges). Others get bytes up to there. [`u64::MAX`] if all samples
    /// are read.
    pub end: u64,
    /// The offset in the uncompressed shard of the first byte that is pushed.
    pub offset: u64,
    /// The size of the shard in bytes, for a parser that reads ranges.
    pub size: Option<u64>,
    /// Takes the ranges of a parser that reads ranges: their bytes are pushed in this order. The parser
    /// requests the first one when it is made. Where it asks for more bytes and none are requested, the
    /// shard has ended for it.
    pub ranges: RangeRequests,
    /// Whether the bytes end where a sample ends, before the end of the shard.
    pub is_cut: bool,
    /// Limits on what is accepted. [`Limits::sample`] is for any format; the others as far as they apply.
    pub limits: Limits,
    /// The rest of the samples' positions.
    pub(crate) position: Position,
    /// An offset up to which there are samples, according to an index.
    pub(crate) reach: Option<u64>,
}

impl ParserStart {
    /// The beginning of a shard.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        let position = Position::default();
        ParserStart {
            sample: 0,
            end: u64::MAX,
            offset: 0,
            size: None,
            ranges: RangeRequests::default(),
            is_cut: false,
            limits,
            position,
            reach: None,
        }
    }
}
