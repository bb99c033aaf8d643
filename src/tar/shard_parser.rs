//! What a parser of a shard does, of any format: bytes in, samples out.

use super::parser::{Parsed, SampleParser};
use crate::error::{Error, Result};
use bytes::Bytes;
use std::fmt;
use std::ops::Range;

/// Parses the samples of one shard, from chunks of any size. It owns no file, socket or thread.
///
/// [`SampleParser`] is the one of tar archives. A format of one's own implements this trait and
/// [`ShardFormat`](crate::formats::ShardFormat), whose page has an example.
pub trait ShardParser: fmt::Debug + Send {
    /// Gives the parser the next bytes of the shard.
    fn push(&mut self, chunk: Bytes);

    /// Says that no more bytes will come. [`next`](Self::next) then never returns [`Parsed::NeedInput`].
    fn finish(&mut self);

    /// The next sample; [`Parsed::NeedInput`] if that takes more bytes; [`Parsed::End`] at the end, and ever
    /// after.
    ///
    /// # Errors
    /// An error of one sample, with its [offset](Error::at_offset): the next sample follows. It counts as a
    /// sample, so that those after it keep their numbers. Or damage, after which nothing can be read:
    /// [`Parsed::End`] follows. [`ErrorKind::Format`](crate::ErrorKind::Format) is for what has no kind of
    /// its own.
    fn next(&mut self) -> Result<Parsed>;

    /// Where the sample is that [`next`](Self::next) returned last. An index records it, so that reading
    /// [starts](crate::formats::ParserStart) there. `None`, the default, if reading cannot start at a sample:
    /// a restore then reads the shard from its beginning, and drops what was read before.
    fn place(&self) -> Option<SamplePlace> {
        None
    }

    /// The number of samples of the whole shard, once the parser has read a table of contents that says it.
    /// Default: none. A format that [reads ranges](crate::formats::ShardFormat::reads_ranges) says it, also
    /// to a parser that [ends](crate::formats::ParserStart::end) before the first sample.
    fn samples(&self) -> Option<u64> {
        None
    }

    /// Whether what was read is the whole shard, once [`Parsed::End`] was returned: false if damage ended it.
    /// Default: true.
    fn is_complete(&self) -> bool {
        true
    }

    /// Adds the place to an error of the source of the bytes, such as the offset that was reached. Default:
    /// the error as it is.
    fn broken(&mut self, error: Error) -> Error {
        error
    }
}

/// Where a sample is in its shard, in bytes of the uncompressed shard.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SamplePlace {
    /// Where a parser can start, so that this sample is the first one. Bytes from here up to the offset of
    /// the next sample are read for this sample alone.
    pub offset: u64,
    /// The bytes of the content of each field, in the order of the sample's fields, at or after `offset`.
    /// They must not overlap.
    pub fields: Vec<Range<u64>>,
}

impl SamplePlace {
    /// A place at this offset, with the bytes of each field.
    #[must_use]
    pub fn new(offset: u64, fields: impl IntoIterator<Item = Range<u64>>) -> Self {
        SamplePlace { offset, fields: fields.into_iter().collect() }
    }
}

impl ShardParser for SampleParser {
    fn push(&mut self, chunk: Bytes) {
        self.push(chunk);
    }

    fn finish(&mut self) {
        self.finish();
    }

    #[inline]
    fn next(&mut self) -> Result<Parsed> {
        self.next()
    }

    fn is_complete(&self) -> bool {
        self.is_complete()
    }

    fn broken(&mut self, error: Error) -> Error {
        self.broken(error)
    }
}
