//! Limits on the contents of a shard.

use crate::error::{ErrorKind, Result};

/// Limits on what is accepted of a shard: the sizes in its headers, the size of a sample, and the data after
/// the end of the archive.
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
    /// Size of the largest accepted member in bytes. The sample of a larger one is an error, and the next
    /// sample follows. Default: 4 GiB.
    pub member: u64,
    /// Size of the largest accepted extension header (pax records or a GNU long name) in bytes. The sample of
    /// a member with a larger one is an error, and the next sample follows. Default: 1 MiB.
    pub extension: u64,
    /// Size of the largest accepted sample: the bytes of all its members. A larger sample is an error, and is
    /// not kept in memory. Default: 1 GiB, enough for long videos; a few MB of gzip can expand to more than
    /// any machine has.
    pub sample: u64,
    /// Largest accepted number of members of a sample. A sample with more members is an error, and is not
    /// kept in memory. Default: 65 536.
    pub members: u64,
    /// Largest accepted number of bytes of zeros after the end-of-archive marker, which is two blocks of
    /// zeros.
    ///
    /// Default: `None`, which accepts padding to whole records. Writers pad archives to a multiple of a
    /// record: GNU tar, Python and this crate to one of 10 240 bytes. Accepted are records of `512 * 2^n` and
    /// `5120 * 2^n` bytes up to 1 MiB; an archive of up to 1 MiB may be a single record, and one without
    /// members has up to 10 240 bytes. More zeros have probably overwritten samples.
    pub padding: Option<u64>,
    /// Largest accepted number of concatenated archives in a shard, as made by `cat a.tar b.tar`. Default: 1.
    ///
    /// If there may be several, a region of zeros that ends where a member begins can be mistaken for the end
    /// of one archive and the beginning of the next.
    pub archives: u64,
}

impl Limits {
    /// Refuses limits that no shard with samples can satisfy.
    pub(crate) fn check(&self) -> Result<()> {
        let zero = match self {
            Limits { archives: 0, .. } => "archives",
            Limits { members: 0, .. } => "members",
            Limits { member: 0, .. } => "member",
            Limits { sample: 0, .. } => "sample",
            _ => return Ok(()),
        };
        let message = format!("`tar::Limits::{zero}` is 0: no shard with samples would be read");
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
