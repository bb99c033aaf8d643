//! Parses samples from the bytes of a shard.

use super::grouper::{GroupEvent, Grouper};
use super::limits::Limits;
use super::pending::Pending;
use crate::error::{Error, Result};
use crate::sample::{Position, Sample, Value};
use crate::secret_url::SecretUrl;
use bytes::Bytes;

/// The next result of a [`SampleParser`], or of an [`Outline`](super::Outline), whose samples have no
/// content.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Parsed<S = Sample> {
    /// The parser needs more bytes: [`push`](SampleParser::push) a chunk or call
    /// [`finish`](SampleParser::finish).
    NeedInput,
    /// A whole sample.
    Sample(S),
    /// The shard has ended.
    End,
}

/// Parses the samples of one shard, from chunks of any size.
///
/// The parser owns no file, socket or thread; it drives a [`Walker`](super::Walker). Adjacent members with
/// the same key are one sample. A sample is returned only when it is complete: after a member with another
/// key was read, or after the end of the archive and its padding were read. A field's name is the member's
/// extension in lower case; fields keep the order of the shard. Directories, hidden files, members without an
/// extension and `__metadata__` members are skipped.
///
/// Field contents are slices of the pushed chunks, or copies if they span several chunks: see
/// [`Sample::compact`]. Keys and field names are copies. The size of a sample is [limited](super::Limits).
#[derive(Debug)]
pub struct SampleParser(Grouper<Value>);

impl SampleParser {
    /// A parser at the beginning of a shard. Samples and errors contain the shard's URL or name without
    /// [secrets](SecretUrl).
    #[must_use]
    pub fn new(shard: impl Into<SecretUrl>) -> Self {
        SampleParser(Grouper::new(shard.into().shown()))
    }

    /// Sets the epoch and the number of the shard in the samples' [positions](Sample::position).
    #[must_use]
    pub fn at(mut self, epoch: u64, shard: u64) -> Self {
        self.0.position = Position { epoch, shard, ..self.0.position };
        self
    }

    /// Sets the number of the dataset in the samples' positions.
    pub(crate) fn of_dataset(mut self, dataset: u64) -> Self {
        self.0.position.dataset = dataset;
        self
    }

    /// Starts in the middle of a shard: the pushed bytes begin at `offset` in the archive, where the sample
    /// with the number `sample` begins. The positions of samples and the offsets in errors still refer to the
    /// whole shard.
    ///
    /// An [`Outline`](super::Outline) finds the offset of each sample
    /// ([`SampleOutline::offset`](super::SampleOutline)), and whether the samples of a shard can be read from
    /// their own offsets ([`Outline::seekable`](super::Outline::seekable)). The parser detects repeated keys
    /// only among the samples that it reads.
    #[must_use]
    pub fn starting(mut self, sample: u64, offset: u64) -> Self {
        self.0.position.sample = sample;
        self.0.walker = self.0.walker.starting(offset);
        self
    }

    /// Accepts input that ends after a sample, before the end of the archive. End-of-archive markers are then
    /// refused, except between [several archives](super::Limits::archives). Input that ends inside a member
    /// is still [`Truncated`](crate::ErrorKind::Truncated). Missing members at the end of the last sample are
    /// not detected.
    #[must_use]
    pub fn cut(mut self) -> Self {
        self.0.walker = self.0.walker.cut();
        self
    }

    /// Sets the offset up to which the archive has members, according to an index. If an end marker of zeros
    /// is before `offset`, zeros have overwritten the last members, and the parser returns an error.
    #[must_use]
    pub(crate) fn reaching(mut self, offset: u64) -> Self {
        self.0.walker = self.0.walker.reaching(offset);
        self
    }

    /// Sets the limits on the shard's contents.
    #[must_use]
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.0 = self.0.with_limits(limits);
        self
    }

    /// Gives the parser the next bytes of the shard.
    pub fn push(&mut self, chunk: Bytes) {
        self.0.walker.push(chunk);
    }

    /// Records that the last bytes have been pushed.
    pub fn finish(&mut self) {
        self.0.walker.finish();
    }

    /// The next sample.
    ///
    /// # Errors
    /// Damage to the archive, as from [`Walker::next`](super::Walker::next): the current sample is not
    /// returned, and the next call returns [`Parsed::End`]. The error names the current sample if the archive
    /// ends inside it. The error of a damaged header names no sample, because the header may belong to the
    /// next sample.
    ///
    /// An error of one sample: [`DuplicateMember`](crate::ErrorKind::DuplicateMember),
    /// [`ScatteredSample`](crate::ErrorKind::ScatteredSample), more bytes or members than the
    /// [limits](super::Limits) allow, a sparse file, a link in place of a file, or a name that is not UTF-8.
    /// That sample is not returned, and the next call returns the next sample.
    #[allow(clippy::should_implement_trait)] // An iterator could not ask for input in between.
    pub fn next(&mut self) -> Result<Parsed> {
        Ok(match self.0.next()? {
            GroupEvent::NeedInput => Parsed::NeedInput,
            GroupEvent::End => Parsed::End,
            GroupEvent::Sample(Pending { content, .. }) => Parsed::Sample(Sample::from_content(content)),
        })
    }

    pub(super) fn is_complete(&self) -> bool {
        self.0.walker.is_complete()
    }

    /// Adds shard, key and offset to an error of the source of the bytes.
    pub(super) fn broken(&mut self, error: Error) -> Error {
        self.0.broken(error)
    }
}
