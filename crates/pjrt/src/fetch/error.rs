//! Errors of downloading a plugin.

use std::io;
use std::path::PathBuf;

/// An error of downloading or unpacking a wheel. The message includes the cause, so `source` has none.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FetchError {
    /// No CPU plugin is published for this platform.
    #[error("no CPU plugin is published for {platform}")]
    Platform {
        /// Operating system and processor.
        platform: String,
    },
    /// No environment variable sets a cache directory.
    #[error("no cache directory: set SHARDSTREAM_CACHE, XDG_CACHE_HOME or HOME")]
    NoCache,
    /// `python3` cannot be run.
    #[error("cannot run python3, which is needed to download {wheel} with pip: {cause}\n{advice}")]
    NoPython {
        /// The wheel.
        wheel: String,
        /// The cause.
        cause: io::Error,
        /// What to do.
        advice: String,
    },
    /// Pip failed, for example because there is no network, no pip or no such wheel.
    #[error("pip could not download {wheel}: {message}\n{advice}")]
    Pip {
        /// The wheel.
        wheel: String,
        /// The end of pip's error output.
        message: String,
        /// What to do.
        advice: String,
    },
    /// The download does not have the pinned hash.
    #[error(
        "{wheel} was downloaded but is not the pinned file (sha256 {got}, expected {expected}); it was \
         deleted. Check whether a package mirror or proxy changes the file."
    )]
    Hash {
        /// The wheel.
        wheel: String,
        /// The pinned sha256.
        expected: String,
        /// The sha256 of the download.
        got: String,
    },
    /// The disk is full.
    #[error("no space is left in the cache {path} for {wheel}: {needed_mb} MB are needed{also}")]
    Full {
        /// The directory.
        path: PathBuf,
        /// The wheel that was to be unpacked into the cache.
        wheel: String,
        /// The free space in MB that downloading and unpacking need.
        needed_mb: u64,
        /// What to do.
        also: &'static str,
    },
    /// The wheel cannot be read, or lacks the wanted file.
    #[error("cannot unpack {member} of {wheel}: {cause}")]
    Unpack {
        /// The wheel.
        wheel: String,
        /// The wanted file in the wheel.
        member: String,
        /// The cause.
        cause: zip::result::ZipError,
    },
    /// The cache directory cannot be used.
    #[error(
        "cannot use the cache {path}: {cause}\nSet SHARDSTREAM_CACHE to a directory that can be written."
    )]
    Cache {
        /// The directory.
        path: PathBuf,
        /// The cause.
        cause: io::Error,
    },
}
