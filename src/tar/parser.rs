//! Parses samples from the bytes of a shard.

use super::grouper::{GroupEvent, Grouper};
use super::limits::Limits;
use super::pending::Pending;
use crate::error::{Error, Result};
use crate::sample::{Position, Sample, Value};
use crate::secret_url::SecretUrl;
use bytes::Bytes;

/// What the [`SampleParser`] found next; of an [`Outline`](super::Outline), samples without their content.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Parsed<S = Sample> {
    /// Nothing, until more bytes are [pushed](SampleParser::push) or the input is
    /// [finished](SampleParser::finish).
    NeedInput,
    /// A whole sample.
    Sample(S),
    /// The shard has ended.
    End,
}

/// Parses the samples of one shard, from chunks of any size.
///
/// Like the [`Walker`](super::Walker) that it drives, it owns no file, socket or thread. Adjacent members
/// with the same key are one sample. A sample is returned only when it is complete: when the next key or the
/// end of the archive, with its padding, has been read. Fields are named by the extension in lower case and
/// keep the order of the shard. Directories, hidden files, names without an extension and `__metadata__` are
/// skipped.
///
/// Raw fields are slices of the pushed chunks unless they span several: see [`Sample::compact`]. Keys and
/// names are copies. The size of a sample is [limited](super::Limits).
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

    /// Starts in the middle of a shard: the pushed bytes begin at `offset` of the archive, where sample
    /// number `sample` begins. The samples' positions, and the offsets in errors, count from there.
    ///
    /// An [`Outline`](super::Outline) has these offsets ([`SampleOutline::offset`](super::SampleOutline)),
    /// and says whether samples of a shard can be read on their own
    /// ([`Outline::seekable`](super::Outline::seekable)). A repeated key is found only among the samples that
    /// are read.
    #[must_use]
    pub fn starting(mut self, sample: u64, offset: u64) -> Self {
        self.0.position.sample = sample;
        self.0.walker = self.0.walker.starting(offset);
        self
    }

    /// Lets the bytes end where a sample ends, before the end of the archive. No end marker is expected
    /// there, and there may be none, except between [several archives](super::Limits::archives). An end
    /// inside a member is still [`Truncated`](crate::ErrorKind::Truncated); missing members at the end of the
    /// last sample are not noticed.
    #[must_use]
    pub fn cut(mut self) -> Self {
        self.0.walker = self.0.walker.cut();
        self
    }

    /// Says that there are members up to `offset`, according to an index. If the archive ends before, its
    /// last members were overwritten with zeros.
    #[must_use]
    pub(crate) fn reaching(mut self, offset: u64) -> Self {
        self.0.walker = self.0.walker.reaching(offset);
        self
    }

    /// Sets the limits on what is accepted of the shard.
    #[must_use]
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.0 = self.0.with_limits(limits);
        self
    }

    /// Gives the parser the next bytes of the shard.
    pub fn push(&mut self, chunk: Bytes) {
        self.0.walker.push(chunk);
    }

    /// Says that no more bytes will come.
    pub fn finish(&mut self) {
        self.0.walker.finish();
    }

    /// The next sample.
    ///
    /// # Errors
    /// Damage to the archive, as from [`Walker::next`](super::Walker::next): the current sample is not
    /// returned, and [`Parsed::End`] follows. The error names the current sample if the archive ends in it,
    /// and no sample if a header is damaged, which may be of any.
    ///
    /// An error of one sample ([`DuplicateMember`](crate::ErrorKind::DuplicateMember),
    /// [`ScatteredSample`](crate::ErrorKind::ScatteredSample), more bytes or members than the
    /// [limits](super::Limits) allow, a sparse file, a link in place of a file, a name that is not UTF-8):
    /// that sample is not returned, and the next one follows.
    #[allow(clippy::should_implement_trait)] // It asks for input in between, which no iterator can.
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

    /// Adds the place to an error of the source of the bytes.
    pub(super) fn broken(&mut self, error: Error) -> Error {
        self.0.broken(error)
    }
}
