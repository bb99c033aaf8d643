//! Finds the offsets of samples and their fields from the headers alone.

use super::event::Entry;
use super::grouper::{FieldContent, GroupEvent, Grouper};
use super::limits::Limits;
use super::parser::Parsed;
use super::pending::Pending;
use crate::error::{Error, Result};
use crate::secret_url::SecretUrl;
use bytes::Bytes;
use bytestring::ByteString;
use std::ops::Range;

/// The offsets of a sample and of its fields in their archive.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SampleOutline {
    /// The key.
    pub key: ByteString,
    /// The number of the sample in its shard, from 0.
    pub number: u64,
    /// The offset of the sample's first header in the archive. This may be an extension header.
    pub offset: u64,
    /// The names of the fields, in the order of the shard, each with the byte range of the field's content in
    /// the archive.
    pub fields: Vec<(ByteString, Range<u64>)>,
}

impl FieldContent for Range<u64> {
    fn of_header(entry: &Entry) -> Option<Self> {
        Some(entry.data_offset..entry.data_offset.saturating_add(entry.size))
    }

    fn of_body(_: Bytes) -> Option<Self> {
        None
    }
}

/// Finds the samples of a shard from the headers of its archive.
///
/// An outline finds the same samples and the same errors as a [`SampleParser`](super::SampleParser), but does
/// not read the content of members, and the caller need not push this content. When the outline needs input,
/// call [`wanted`](Outline::wanted) for the offset of the next byte that it needs,
/// [`skip_to`](Outline::skip_to) to leave out the bytes before that offset, and [`push`](Outline::push) for
/// the bytes from that offset on.
///
/// ```
/// use shardstream::tar::{Outline, Parsed};
///
/// let archive = std::fs::read("docs/data/digits-000000.tar")?;
/// let mut outline = Outline::new("digits-000000.tar");
/// let (mut at, mut read) = (0, 0);
/// loop {
///     match outline.next()? {
///         Parsed::NeedInput => {
///             at = at.max(outline.wanted() as usize).min(archive.len());
///             outline.skip_to(at as u64);
///             match &archive[at..archive.len().min(at + 512)] {
///                 [] => outline.finish(),
///                 chunk => outline.push(chunk.to_vec().into()),
///             }
///             (at, read) = (archive.len().min(at + 512), read + 512);
///         }
///         Parsed::Sample(sample) => {
///             let (name, field) = &sample.fields[0];
///             assert_eq!((&**name, field.end - field.start), ("cls", 1));
///         }
///         _ => break,
///     }
/// }
/// assert!(read < archive.len());
/// # Ok::<(), shardstream::Error>(())
/// ```
#[derive(Debug)]
pub struct Outline(Grouper<Range<u64>>);

impl Outline {
    /// An outline from the beginning of a shard. Errors contain the shard's URL or name without
    /// [secrets](SecretUrl).
    #[must_use]
    pub fn new(shard: impl Into<SecretUrl>) -> Self {
        Outline(Grouper::new(shard.into().shown()))
    }

    /// Sets the limits on the shard's contents.
    #[must_use]
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.0 = self.0.with_limits(limits);
        self
    }

    /// Gives the outline the next bytes of the archive.
    pub fn push(&mut self, chunk: Bytes) {
        self.0.walker.push(chunk);
    }

    /// Records that the last bytes have been pushed.
    pub fn finish(&mut self) {
        self.0.walker.finish();
    }

    /// The offset of the next byte that the outline needs. It may be beyond the end of a damaged archive.
    #[must_use]
    pub fn wanted(&self) -> u64 {
        self.0.walker.wanted()
    }

    /// Leaves out the bytes before `offset`: the next pushed byte is at `offset` in the archive. `offset`
    /// must be at most [`wanted`](Outline::wanted). If the archive ends before `wanted`, skip to the end of
    /// the archive: the outline then reports the archive as truncated.
    pub fn skip_to(&mut self, offset: u64) {
        self.0.walker.skip_to(offset);
    }

    /// Whether every sample that has been returned can be read from its own offset, by
    /// [`SampleParser::starting`]. False if a global pax header set the name or size of later members, or if
    /// members of several samples are [mixed](Limits::unsorted).
    ///
    /// [`SampleParser::starting`]: super::SampleParser::starting
    #[must_use]
    pub fn seekable(&self) -> bool {
        !self.0.walker.global_used() && !self.0.is_mixed()
    }

    /// The next sample.
    ///
    /// # Errors
    /// The same errors as for [`SampleParser::next`](super::SampleParser::next).
    #[allow(clippy::should_implement_trait)] // An iterator could not ask for input in between.
    pub fn next(&mut self) -> Result<Parsed<SampleOutline>> {
        Ok(match self.0.next()? {
            GroupEvent::NeedInput => Parsed::NeedInput,
            GroupEvent::End => Parsed::End,
            GroupEvent::Sample(Pending { content, offset, .. }) => Parsed::Sample(SampleOutline {
                key: String::from(content.key).into(),
                number: content.position.sample,
                offset,
                fields: content.fields.into_vec(),
            }),
        })
    }

    /// Adds shard, key and offset to an error of the source of the bytes.
    pub(crate) fn broken(&mut self, error: Error) -> Error {
        self.0.broken(error)
    }
}
