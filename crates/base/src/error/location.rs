//! Where an error happened, and after how many tries.

use std::sync::Arc;
use std::time::Duration;

/// The number and duration of the tries of a request that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Attempts {
    /// The number of tries, including the first.
    pub tries: u32,
    /// The time from the first try to the end of the last try, without the time in which the reader did not
    /// ask for data.
    pub elapsed: Duration,
}

/// Where an error happened. Parts that are unknown are absent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Location {
    pub(super) shard: Option<Arc<str>>,
    pub(super) offset: Option<u64>,
    pub(super) member: Option<String>,
    pub(super) key: Option<String>,
}

impl Location {
    /// The URL or path of the shard, without [secrets](crate::SecretUrl).
    #[must_use]
    pub fn shard(&self) -> Option<&str> {
        self.shard.as_deref()
    }

    /// The byte offset in the uncompressed shard: the offset of the wrong tar header, or of the first missing
    /// byte.
    #[must_use]
    pub fn offset(&self) -> Option<u64> {
        self.offset
    }

    /// The name of the tar member.
    #[must_use]
    pub fn member(&self) -> Option<&str> {
        self.member.as_deref()
    }

    /// The key of the sample.
    #[must_use]
    pub fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }
}
