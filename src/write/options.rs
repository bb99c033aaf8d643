//! The options of an archive.

use crate::codec::Encoder;

/// How members are written.
///
/// Owner and group are `bigdata` with the ids 0, as Python's `webdataset` writes them.
#[derive(Debug, Clone)]
pub struct TarOptions {
    pub(super) mtime: u64,
    pub(super) mode: u32,
    pub(super) encoder: Encoder,
}

impl TarOptions {
    /// Modification time 0, mode `0o444`, the [standard encoder](Encoder::new).
    #[must_use]
    pub fn new() -> Self {
        TarOptions { mtime: 0, mode: 0o444, encoder: Encoder::new() }
    }

    /// The modification time of every member, in seconds since 1970. It is fixed so that the same samples make the
    /// same archive.
    #[must_use]
    pub fn mtime(mut self, seconds: u64) -> Self {
        self.mtime = seconds;
        self
    }

    /// The permission bits of every member.
    #[must_use]
    pub fn mode(mut self, mode: u32) -> Self {
        self.mode = mode;
        self
    }

    /// Turns the values of fields that are not raw bytes into bytes.
    #[must_use]
    pub fn encoder(mut self, encoder: Encoder) -> Self {
        self.encoder = encoder;
        self
    }
}

impl Default for TarOptions {
    fn default() -> Self {
        Self::new()
    }
}
