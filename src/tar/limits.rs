//! Limits on the contents of a shard.

use crate::error::{ErrorKind, Result};

/// Limits on a shard's contents: the sizes in its headers, the size of a sample, and the data after the end
/// of the archive.
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
    /// Size of the largest accepted member in bytes. A larger member makes its sample an error; reading
    /// continues with the next sample. Default: 4 GiB.
    pub member: u64,
    /// Size of the largest accepted extension header (pax records or a GNU long name) in bytes. A member with
    /// a larger extension header makes its sample an error; reading continues with the next sample. Default:
    /// 1 MiB.
    pub extension: u64,
    /// Size of the largest accepted sample: the bytes of all its members. A larger sample is an error, and is
    /// not kept in memory. Default: 1 GiB, which is enough for long videos. The limit protects against
    /// decompression bombs: a few MB of compressed data that expand to more than the memory of the machine.
    pub sample: u64,
    /// Largest accepted number of members of a sample. A sample with more members is an error, and is not
    /// kept in memory. Default: 65 536.
    pub members: u64,
    /// Largest accepted number of bytes of zeros after the end-of-archive marker, which is two blocks of
    /// zeros.
    ///
    /// Default: `None`, which accepts padding to whole records. Writers pad archives to a multiple of a
    /// record size; GNU tar, Python and this crate use records of 10 240 bytes. Record sizes of `512 * 2^n`
    /// and `5120 * 2^n` bytes up to 1 MiB are accepted. An archive of up to 1 MiB may be a single record; an
    /// archive without members may have up to 10 240 bytes. More zeros are an error: they have probably
    /// overwritten samples.
    pub padding: Option<u64>,
    /// Largest accepted number of concatenated archives in a shard, as made by `cat a.tar b.tar`. Default: 1.
    ///
    /// With a larger value, some damage can stay undetected. If samples were overwritten with zeros, up to
    /// the beginning of a later member, the zeros can look like the end of one archive, and the member like
    /// the beginning of the next.
    pub archives: u64,
    /// Largest accepted distance of a member from the first member of its sample, in bytes of the archive
    /// from header to header. Default: 0, which means that the members of a sample must be adjacent.
    ///
    /// A larger value also accepts archives that are not sorted by name, such as those that `tar -cf x.tar .`
    /// and `find | tar` write. Samples are returned in the order of their first members, without a `./` at
    /// the beginning of their keys. A sample is held in memory as long as more of its members may follow. The
    /// held samples take at most as many bytes as this limit. If the archive is damaged, the held samples are
    /// lost. A member beyond this distance is an error, because its sample was already returned without the
    /// member.
    ///
    /// A sample whose members are mixed with members of other samples has no byte range of its own, so a
    /// `Dataset` refuses this limit. `shardstream reshard --limit unsorted=1GiB` rewrites such archives as
    /// shards that can be indexed.
    pub unsorted: u64,
}

impl Limits {
    /// Refuses limits that a dataset cannot use: a dataset needs the members of a sample to be adjacent.
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
