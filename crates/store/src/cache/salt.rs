//! The salt of a cache's directory: random bytes in a file that only its owner can read.

use super::directory::CacheDirectory;
use crate::local;
use std::collections::hash_map::RandomState;
use std::fs;
use std::hash::{BuildHasher, Hasher};
use std::io::{self, Write};

pub(super) type Salt = [u8; 32];

/// Random bytes. The standard library seeds each [`RandomState`] from the operating system.
pub(super) fn new() -> Salt {
    let mut salt = Salt::default();
    for (number, bytes) in salt.chunks_exact_mut(8).enumerate() {
        let mut hasher = RandomState::new().build_hasher();
        hasher.write_usize(number);
        bytes.copy_from_slice(&hasher.finish().to_le_bytes());
    }
    salt
}

impl CacheDirectory {
    /// The salt of the directory, which the first process that needs it makes. May block.
    pub(super) fn salt(&self) -> io::Result<Salt> {
        let path = self.path().join("salt");
        let saved = || fs::read(&path).ok().and_then(|bytes| Salt::try_from(bytes).ok());
        if let Some(salt) = saved() {
            return Ok(salt);
        }
        let _lock = self.lock()?;
        if let Some(salt) = saved() {
            return Ok(salt);
        }
        let (salt, aside) = (new(), path.with_extension("new"));
        let mut file = local::private_file().create(true).truncate(true).write(true).open(&aside)?;
        file.write_all(&salt)?;
        fs::rename(&aside, &path)?;
        Ok(salt)
    }
}
