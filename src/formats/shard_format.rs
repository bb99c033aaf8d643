//! The interface of a shard format: it makes a parser for each shard.

use crate::sample::Position;
use crate::store::RangeRequests;
use crate::tar::{Limits, ShardParser};
use std::fmt;

/// A format of shards. It makes a parser for each shard that is read.
///
/// A parser sets the key and the fields of each sample. The caller of the parser sets the positions of
/// samples, and the name of the shard in samples and errors. The `Debug` text of a format is part of the
/// names of [saved indexes](crate::index::AutoIndex). So the text must contain all options that change the
/// samples, and nothing that differs between processes. `examples/own_format.rs` reads a made-up format. In
/// the format below, each byte is a sample:
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
/// let dir = tempfile::tempdir()?;
/// let path = dir.path().join("0.bytes").display().to_string();
/// std::fs::write(&path, [7, 8, 9])?;
/// let dataset = Dataset::builder(path).format(EachByte).build()?;
/// let samples = dataset.samples(0).results().collect::<Result<Vec<_>>>()?;
/// assert_eq!((samples[2].key(), samples[2].position().sample), ("000002", 2));
/// # Ok::<(), shardstream::Error>(())
/// ```
pub trait ShardFormat: fmt::Debug + Send + Sync {
    /// Makes a parser for the bytes of a shard from [`ParserStart::offset`] on. The bytes are decompressed if
    /// the shard's name ends in `.gz` or `.zst`. The offset is 0, or the offset of a
    /// [place](ShardParser::place) that an earlier parser of the same format returned.
    fn parser(&self, start: &ParserStart) -> Box<dyn ShardParser>;

    /// Whether the format's parsers request the ranges of bytes that they need, through
    /// [`ParserStart::ranges`], instead of getting all bytes from an offset on. This is for formats with a
    /// table of contents at the end of the file. Default: false.
    ///
    /// A dataset of such a format always has an index. If the caller gives no index, building the dataset
    /// reads the table of contents of each shard, to get its [number of samples](ShardParser::samples). A
    /// slice or a restore can then begin at any sample: the parser reads the table, and the ranges that the
    /// requested samples need. Shards of such a format cannot be compressed as a whole, and cannot be read
    /// from a stream.
    fn reads_ranges(&self) -> bool {
        false
    }
}

/// Where a parser starts, and the limits that it applies.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ParserStart {
    /// The number of the first sample in its shard.
    pub sample: u64,
    /// The number of the sample before which the parser must stop, if the parser [reads
    /// ranges](ShardFormat::reads_ranges); [`u64::MAX`] if it must read all samples. It is always
    /// [`u64::MAX`] for other parsers, which stop where their bytes end: see [`is_cut`](Self::is_cut).
    pub end: u64,
    /// The offset of the first pushed byte in the uncompressed shard.
    pub offset: u64,
    /// The size of the shard in bytes, for a parser that reads ranges.
    pub size: Option<u64>,
    /// The queue of requests of a parser that reads ranges. The bytes of the ranges are pushed in the order
    /// of the requests. The parser must request its first range when it is made. When it needs bytes but has
    /// no open request, the shard ends.
    pub ranges: RangeRequests,
    /// Whether the bytes end after a sample, before the end of the shard.
    pub is_cut: bool,
    /// Limits on the shard's contents. [`Limits::sample`] applies to every format. The format decides which
    /// of the other limits it applies.
    pub limits: Limits,
    /// The epoch, shard and dataset in the positions of the samples.
    pub(crate) position: Position,
    /// The offset at which the shard's last sample ends, according to an index.
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
