//! What is accepted of a shard.

use crate::error::{ErrorKind, Result};

/// Limits on what is accepted of a shard: what its headers may claim, what a sample may hold, and what may
/// follow the end of the archive.
///
/// ```
/// use shardstream::tar::Limits;
///
/// let mut limits = Limits::default();
/// limits.sample = 8 << 30; // samples of up to 8 GiB, and members of up to 4 GiB
/// limits.archives = u64::MAX; // shards made by `cat a.tar b.tar`
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// The largest member that is accepted, in bytes. Default: 4 GiB.
    pub member: u64,
    /// The largest extension header (pax records or a GNU long name) that is accepted, in bytes. Default: 1
    /// MiB.
    pub extension: u64,
    /// The largest sample that is accepted: the bytes of all its members. A larger one is an error of this
    /// sample, and is not kept in memory. Default: 1 GiB, enough for long videos; a few MB of gzip can claim
    /// more than any machine has.
    pub sample: u64,
    /// The most members of one sample that are accepted. A sample of more is an error of this sample, and is
    /// not kept in memory. Default: 65 536.
    pub members: u64,
    /// The most bytes of zeros that are accepted after the two blocks of zeros that mark the end of an
    /// archive, whatever the length of the archive is.
    ///
    /// Default: `None`, as many as padding to whole records explains. Writers pad archives to a multiple of a
    /// record, GNU tar, Python and this crate to one of 10 240 bytes. Accepted are records of 512 · 2ⁿ and 5
    /// 120 · 2ⁿ bytes up to 1 MiB; an archive of up to 1 MiB may be a single record, and one without members
    /// has up to 10 240 bytes. More zeros were probably written over samples.
    pub padding: Option<u64>,
    /// How many archives a shard may consist of, one after the other, as `cat a.tar b.tar` makes them.
    /// Default: 1.
    ///
    /// Where there may be several, a region of zeros that ends where a member begins can be taken for the end
    /// of one archive and the beginning of the next.
    pub archives: u64,
}

impl Limits {
    /// Refuses limits that no shard with samples can keep to.
    pub(crate) fn check(&self) -> Result<()> {
        let none = match self {
            Limits { archives: 0, .. } => "archives",
            Limits { members: 0, .. } => "members",
            Limits { member: 0, .. } => "member",
            Limits { sample: 0, .. } => "sample",
            _ => return Ok(()),
        };
        let message = format!("`tar::Limits::{none}` is 0: no shard with samples would be read");
        Err(ErrorKind::Config(message).into())
    }
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            member: 4 << 30,
            extension: 1 << 20,
            sample: 1 << 30,
            members: 1 << 16,
            padding: None,
            archives: 1,
        }
    }
}
