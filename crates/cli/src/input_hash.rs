//! [`InputHash`], which tells whether two runs have the same input.

use md5::{Digest, Md5};

/// An MD5 hash of numbers, and of texts with their lengths. It detects changes, but not forgery.
#[derive(Clone, Default)]
pub(crate) struct InputHash(Md5);

impl std::fmt::Debug for InputHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("InputHash")
    }
}

impl InputHash {
    pub(crate) fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.0.update(text);
    }

    pub(crate) fn number(&mut self, number: u64) {
        self.0.update(number.to_le_bytes());
    }

    /// The first 8 bytes of the hash, as a big-endian number.
    pub(crate) fn finish_number(self) -> u64 {
        self.0.finalize().iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte))
    }

    /// The hash in hexadecimal.
    pub(crate) fn finish(self) -> String {
        self.0.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}
