//! The errors of making shards.

use shardstream::SecretUrl;
use std::io;
use std::path::{Path, PathBuf};

/// The result of an operation of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why no shards, or not all of them, were made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An error of the library, mostly of the destination.
    #[error(transparent)]
    Stream(#[from] shardstream::Error),
    /// A file or folder cannot be read.
    #[error("{path}")]
    File {
        /// The file or folder.
        path: PathBuf,
        /// What is wrong with it.
        source: io::Error,
    },
    /// An image could not be encoded.
    #[error("cannot encode an image")]
    Image(#[from] shardstream::image::ImageError),
    /// The arguments contradict each other, or make no shards.
    #[error("{0}")]
    Usage(String),
    /// Shards of the series exist already.
    #[error(
        "{count} shards of this series exist already, such as {first}; --overwrite removes them, or \
         choose another name"
    )]
    Taken {
        /// Number of existing shards.
        count: usize,
        /// One of them.
        first: SecretUrl,
    },
    /// The source has neither form of CIFAR-10.
    #[error(
        "{0}: neither data_batch_1.bin nor data_batch_1 is there; it should be cifar-10-binary.tar.gz or \
         cifar-10-python.tar.gz, or the folder that is in it"
    )]
    NoBatches(PathBuf),
    /// A batch of CIFAR-10 is missing or damaged.
    #[error("{place}, {name}: {what}")]
    Batch {
        /// The archive or folder.
        place: PathBuf,
        /// The file in it.
        name: String,
        /// What is wrong with it.
        what: String,
    },
    /// The report could not be written.
    #[error("cannot write the report")]
    Output(#[from] io::Error),
}

impl Error {
    pub(crate) fn file(path: &Path, source: io::Error) -> Self {
        Error::File { path: path.to_owned(), source }
    }
}
