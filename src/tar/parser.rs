//! From bytes to samples.

use super::group::{Found, Group, Pending};
use super::limits::Limits;
use crate::error::{Error, Result};
use crate::sample::{Position, Sample, Value};
use crate::secret_url::SecretUrl;
use bytes::Bytes;
use std::sync::Arc;

/// What the [`SampleParser`] found next.
#[derive(Debug)]
#[non_exhaustive]
pub enum Parsed {
    /// Nothing, until more bytes are [pushed](SampleParser::push) or the input is
    /// [finished](SampleParser::finish).
    NeedInput,
    /// A whole sample.
    Sample(Sample),
    /// The shard has ended.
    End,
}

/// Parses the samples of one shard, in whatever chunks its bytes come.
///
/// Like the [`Walker`](super::Walker) that it drives, it owns no file, socket or thread. Adjacent members
/// that share a key are one sample; a sample is given out only when it is certain to be whole, that is when
/// the next key or the end of the archive, with its padding, has been seen. Fields are named by the extension
/// in lower case and keep the order of the shard. Skipped are directories, hidden files, names without an
/// extension and `__metadata__`.
///
/// The raw fields are slices of the chunks pushed, where they don't straddle two: see [`Sample::compact`].
/// Keys and names are copies. What a sample may hold is [limited](super::Limits).
#[derive(Debug)]
pub struct SampleParser(Group<Value>);

impl SampleParser {
    /// A parser at the beginning of a shard, whose URL or name is used, without its [secrets](SecretUrl), in
    /// samples and errors.
    #[must_use]
    pub fn new(shard: impl Into<SecretUrl>) -> Self {
        SampleParser(Group::new(shard.into().shown()))
    }

    /// Sets the epoch and the number of the shard that the samples' [positions](Sample::position) will name.
    #[must_use]
    pub fn at(mut self, epoch: u64, shard: u64) -> Self {
        self.0.position = Position { epoch, shard, ..self.0.position };
        self
    }

    /// Begins in the middle of a shard: the bytes pushed begin at `offset` of the archive, where sample
    /// number `sample` begins. The samples' positions, and the offsets in errors, count from there.
    ///
    /// An index says where that is ([`SampleOutline::offset`](super::SampleOutline)), and whether samples of
    /// this shard can be read so ([`Outline::seekable`](super::Outline::seekable)). That a key comes twice in
    /// the shard is noticed in what is read only.
    #[must_use]
    pub fn starting(mut self, sample: u64, offset: u64) -> Self {
        self.0.position.sample = sample;
        self.0.walker = self.0.walker.starting(offset);
        self
    }

    /// The bytes will end where a sample ends, and not where the archive does: no end marker is missed there,
    /// nor may there be one, except between [several archives](super::Limits::archives). An end in the middle
    /// of anything else is [`Truncated`](crate::ErrorKind::Truncated) all the same; that a sample's last
    /// members are missing cannot be seen.
    #[must_use]
    pub fn cut(mut self) -> Self {
        self.0.walker = self.0.walker.cut();
        self
    }

    /// The members of the archive reach up to `offset` at least, which an index knows. Where the archive ends
    /// before, its last members were overwritten with zeros.
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
    /// Damage to the archive, as from [`Walker::next`](super::Walker::next): the sample in hand is not given
    /// out, and [`Parsed::End`] comes next. A fault of one sample only
    /// ([`DuplicateMember`](crate::ErrorKind::DuplicateMember),
    /// [`ScatteredSample`](crate::ErrorKind::ScatteredSample), more bytes or members than the
    /// [limits](super::Limits) allow, a link in place of a file, a name that is not UTF-8): that sample is
    /// not given out, and the next one comes next.
    #[allow(clippy::should_implement_trait)] // It asks for input in between, which no iterator can.
    pub fn next(&mut self) -> Result<Parsed> {
        Ok(match self.0.next()? {
            Found::NeedInput => Parsed::NeedInput,
            Found::End => Parsed::End,
            Found::Sample(Pending { key, fields, position, .. }) => {
                Parsed::Sample(Sample::from_parts(key, fields, Arc::clone(&self.0.shard), position))
            }
        })
    }

    /// The source of the bytes failed: says where.
    pub(super) fn broken(&mut self, error: Error) -> Error {
        self.0.broken(error)
    }
}
