//! The options of an archive.

use crate::codec::Encoder;
use crate::error::{ErrorKind, Result};
use crate::tar::Limits;

/// Options for the members of an archive.
///
/// Owner and group are always `bigdata` with id 0, the same as in Python's `webdataset`.
#[derive(Debug, Clone)]
pub struct TarOptions {
    pub(super) mtime: u64,
    pub(super) mode: u32,
    pub(super) encoder: Encoder,
    pub(super) limits: Limits,
}

impl TarOptions {
    /// The default options: modification time 0, mode `0o444`, the [standard encoder](Encoder::new), and the
    /// [default limits](Limits::default) of readers.
    #[must_use]
    pub fn new() -> Self {
        TarOptions { mtime: 0, mode: 0o444, encoder: Encoder::new(), limits: Limits::default() }
    }

    /// Sets the modification time of every member, in seconds since 1970. All members have the same time, so
    /// that the same samples give the same archive.
    #[must_use]
    pub fn mtime(mut self, seconds: u64) -> Self {
        self.mtime = seconds;
        self
    }

    /// Sets the permission bits of every member.
    #[must_use]
    pub fn mode(mut self, mode: u32) -> Self {
        self.mode = mode;
        self
    }

    /// Sets the encoder for field values that are not raw bytes.
    #[must_use]
    pub fn encoder(mut self, encoder: Encoder) -> Self {
        self.encoder = encoder;
        self
    }

    /// Checks the options; called before the first sample is written.
    pub(super) fn check(&self) -> Result<()> {
        let bad = |what: String| Err(ErrorKind::Config(what).into());
        if self.mode > 0o7777 {
            return bad(format!("`mode` {:#o}: permission bits are from 0 to 0o7777", self.mode));
        }
        let Limits { member, extension, sample, members, archives, .. } = self.limits;
        let all = [
            ("member", member),
            ("extension", extension),
            ("sample", sample),
            ("members", members),
            ("archives", archives),
        ];
        if let Some((name, _)) = all.iter().find(|(_, limit)| *limit == 0) {
            return bad(format!("`limits` with 0 for `{name}`: make it at least 1"));
        }
        self.encoder.check()
    }

    /// Sets the limits of the archive's readers. The writer refuses a sample that exceeds them. If you raise
    /// these limits, raise the limits of the readers too
    /// ([`DatasetBuilder::limits`](crate::dataset::DatasetBuilder::limits)).
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }
}

impl Default for TarOptions {
    fn default() -> Self {
        Self::new()
    }
}
