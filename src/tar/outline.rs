//! Where samples and their fields are, from the headers alone.

use super::group::{Found, Group, Keep};
use super::limits::Limits;
use super::walker::Entry;
use crate::error::{Error, Result};
use crate::secret_url::SecretUrl;
use bytes::Bytes;
use bytestring::ByteString;

/// What the [`Outline`] found next.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outlined {
    /// Nothing, until more bytes are [pushed](Outline::push) or the input is [finished](Outline::finish).
    NeedInput,
    /// A whole sample.
    Sample(SampleOutline),
    /// The shard has ended.
    End,
}

/// Where a sample is in its archive.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SampleOutline {
    /// The key.
    pub key: ByteString,
    /// The number of the sample in its shard, from 0.
    pub number: u64,
    /// The offset in the archive of the first header of the first member, extension headers included.
    pub offset: u64,
    /// The fields by name, in the order of the shard.
    pub fields: Vec<(ByteString, FieldOutline)>,
}

/// Where the content of a field is in the archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct FieldOutline {
    /// The offset of the first byte.
    pub offset: u64,
    /// The number of bytes.
    pub size: u64,
}

impl Keep for FieldOutline {
    fn of_header(entry: &Entry) -> Option<Self> {
        Some(FieldOutline { offset: entry.data_offset, size: entry.size })
    }

    fn of_body(_: Bytes) -> Option<Self> {
        None
    }
}

/// Finds where the samples of a shard are, from the headers of its archive.
///
/// It sees the same samples and the same faults as a [`SampleParser`](super::SampleParser), and does not look
/// at the content of members: whoever drives it may leave that out. When it needs input, it has no use for
/// the bytes before [`wanted`](Outline::wanted); [`skip_to`](Outline::skip_to) says which of them do not
/// come.
///
/// ```
/// use shardstream::tar::{Outline, Outlined};
///
/// # fn main() -> shardstream::Result<()> {
/// # let archive = { let mut t = tar::Builder::new(vec![]); let mut h = tar::Header::new_ustar(); h.set_size(100_000);
/// #   t.append_data(&mut h, "0001.jpg", &[7; 100_000][..])?; t.into_inner()? };
/// let mut outline = Outline::new("train-000000.tar");
/// let (mut at, mut read) = (0, 0);
/// loop {
///     match outline.next()? {
///         Outlined::NeedInput => {
///             at = at.max(outline.wanted() as usize).min(archive.len());
///             outline.skip_to(at as u64);
///             match &archive[at..archive.len().min(at + 512)] {
///                 [] => outline.finish(),
///                 chunk => outline.push(chunk.to_vec().into()),
///             }
///             (at, read) = (archive.len().min(at + 512), read + 512);
///         }
///         Outlined::Sample(sample) => {
///             let (name, field) = &sample.fields[0];
///             assert_eq!((&**name, field.offset, field.size), ("jpg", 512, 100_000));
///         }
///         _ => break,
///     }
/// }
/// assert!(read < 5000);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Outline(Group<FieldOutline>);

impl Outline {
    /// An outline from the beginning of a shard, whose URL or name is used, without its [secrets](SecretUrl),
    /// in errors.
    #[must_use]
    pub fn new(shard: impl Into<SecretUrl>) -> Self {
        Outline(Group::new(shard.into().shown()))
    }

    /// Sets the limits on what is accepted of the shard.
    #[must_use]
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.0 = self.0.with_limits(limits);
        self
    }

    /// Gives the outline the next bytes of the archive.
    pub fn push(&mut self, chunk: Bytes) {
        self.0.walker.push(chunk);
    }

    /// Says that no more bytes will come.
    pub fn finish(&mut self) {
        self.0.walker.finish();
    }

    /// The offset of the next byte that is wanted. It may lie behind the end of a damaged archive.
    #[must_use]
    pub fn wanted(&self) -> u64 {
        self.0.walker.wanted()
    }

    /// Says that the next byte to be pushed is the one at `offset` of the archive, which must not lie behind
    /// the one that is [wanted](Outline::wanted). In an archive that ends before that one, the end is the
    /// furthest to go: what is missing is only noticed from there.
    pub fn skip_to(&mut self, offset: u64) {
        self.0.walker.skip_to(offset);
    }

    /// Whether every sample so far can be read from its own offset, by [`SampleParser::starting`]. It cannot
    /// where a global pax header gives a name or a size to the members after it.
    ///
    /// [`SampleParser::starting`]: super::SampleParser::starting
    #[must_use]
    pub fn seekable(&self) -> bool {
        !self.0.walker.global_used()
    }

    /// The next sample.
    ///
    /// # Errors
    /// As [`SampleParser::next`](super::SampleParser::next).
    #[allow(clippy::should_implement_trait)] // It asks for input in between, which no iterator can.
    pub fn next(&mut self) -> Result<Outlined> {
        Ok(match self.0.next()? {
            Found::NeedInput => Outlined::NeedInput,
            Found::End => Outlined::End,
            Found::Sample(found) => Outlined::Sample(SampleOutline {
                key: String::from(found.key).into(),
                number: found.position.sample,
                offset: found.offset,
                fields: found.fields.into_vec(),
            }),
        })
    }

    /// The source of the bytes failed: says where.
    pub(crate) fn broken(&mut self, error: Error) -> Error {
        self.0.broken(error)
    }
}
