//! What can end the making of shards.

use shardstream::SecretUrl;
use std::io;
use std::path::{Path, PathBuf};

/// Result of the tools.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why no shards were made, or not all of them.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The library: the place that is written to, above all.
    #[error(transparent)]
    Stream(#[from] shardstream::Error),
    /// Something on the disk.
    #[error("{path}")]
    File {
        /// Which file or folder.
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
    /// There are shards of the series already.
    #[error(
        "{count} shards of this series are there already, such as {first}; --overwrite removes them, or \
         choose another name"
    )]
    Taken {
        /// How many.
        count: usize,
        /// One of them.
        first: SecretUrl,
    },
    /// Neither form of CIFAR-10 is there.
    #[error(
        "{0}: neither data_batch_1.bin nor data_batch_1 is there; it should be cifar-10-binary.tar.gz or \
         cifar-10-python.tar.gz, or the folder that is in it"
    )]
    NoBatches(PathBuf),
    /// A batch of CIFAR-10.
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
