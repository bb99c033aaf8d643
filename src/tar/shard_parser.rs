//! The interface of a shard parser of any format: it takes bytes and returns samples.

use super::parser::{Parsed, SampleParser};
use crate::error::{Error, Result};
use bytes::Bytes;
use std::fmt;
use std::ops::Range;

/// Parses the samples of one shard, from chunks of any size. It owns no file, socket or thread.
///
/// [`SampleParser`] parses tar archives. To add a format, implement this trait and
/// [`ShardFormat`](crate::formats::ShardFormat). The page of `ShardFormat` has an example.
pub trait ShardParser: fmt::Debug + Send {
    /// Gives the parser the next bytes of the shard.
    fn push(&mut self, chunk: Bytes);

    /// Records that the last bytes have been pushed. [`next`](Self::next) then never returns
    /// [`Parsed::NeedInput`].
    fn finish(&mut self);

    /// The next sample; [`Parsed::NeedInput`] if the parser needs more bytes for the next sample;
    /// [`Parsed::End`] at the end of the shard and on every later call.
    ///
    /// # Errors
    /// An error of one sample, with its [offset](Error::at_offset). The next call returns the next sample.
    /// The failed sample is counted, so the numbers of later samples stay the same.
    ///
    /// Damage that makes the rest of the shard unreadable. The next call returns [`Parsed::End`].
    ///
    /// Use [`ErrorKind::Format`](crate::ErrorKind::Format) for errors that have no kind of their own.
    fn next(&mut self) -> Result<Parsed>;

    /// The [place](SamplePlace) of the last sample that [`next`](Self::next) returned. An index records this
    /// place, so that a later parser can [start](crate::formats::ParserStart) at the place's offset. The
    /// default, `None`, means that a parser cannot start in the middle of a shard: a restore then reads the
    /// shard from its beginning and drops the samples that were consumed before.
    fn place(&self) -> Option<SamplePlace> {
        None
    }

    /// The number of samples of the whole shard, if the parser has read this number from the shard's table of
    /// contents. Default: `None`. A parser of a format that [reads
    /// ranges](crate::formats::ShardFormat::reads_ranges) returns the number even if the parser
    /// [ends](crate::formats::ParserStart::end) before the first sample.
    fn samples(&self) -> Option<u64> {
        None
    }

    /// Whether the whole shard was read. Called after [`next`](Self::next) returned [`Parsed::End`]; false if
    /// damage ended the shard early. Default: true.
    fn is_complete(&self) -> bool {
        true
    }

    /// Adds the parser's position, such as the offset that it reached, to an error of the source of the
    /// bytes. Default: returns the error unchanged.
    fn broken(&mut self, error: Error) -> Error {
        error
    }
}

/// The place of a sample in its shard. Offsets and ranges are in bytes of the uncompressed shard.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SamplePlace {
    /// The offset at which a parser can start so that it returns this sample first. To read only this sample,
    /// a reader reads the bytes from this offset to the offset of the next sample.
    pub offset: u64,
    /// The byte range of each field's content, in the order of the sample's fields. Ranges begin at or after
    /// `offset` and must not overlap.
    pub fields: Vec<Range<u64>>,
}

impl SamplePlace {
    /// A place at this offset, with the byte range of each field.
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
