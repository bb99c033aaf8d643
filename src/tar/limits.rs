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
    /// Largest accepted distance of a member from the first one of its sample: the bytes of the archive from
    /// header to header. Default: 0, members of a sample are adjacent.
    ///
    /// With more, archives are read that are not sorted by name, as `tar -cf x.tar .` and `find | tar` make
    /// them. Samples are returned in the order of their first members, without a `./` at the beginning of
    /// their keys, and up to this many bytes are held in memory: all samples of which a member may follow. If
    /// the archive is damaged, these are lost. A member that is further away is an error, and its sample has
    /// been returned without it.
    ///
    /// Samples whose members are mixed have no range of bytes, so a `Dataset` refuses this limit.
    /// `shardstream reshard --limit unsorted=1GiB` writes such archives as shards that can be indexed.
    pub unsorted: u64,
}

impl Limits {
    /// Refuses limits that a dataset cannot keep.
    pub(crate) fn check_sorted(&self) -> Result<()> {
        if self.unsorted == 0 {
            return self.check();
        }
        let message = "`tar::Limits::unsorted` is for `SampleParser`: samples whose members are mixed have \
                       no position to resume from; `shardstream reshard --limit unsorted=1GiB` writes sound \
                       shards";
        Err(ErrorKind::Config(message.into()).into())
    }

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
            unsorted: 0,
        }
    }
}
