//! The errors of this crate.

use shardstream::SecretUrl;
use std::io;
use std::path::{Path, PathBuf};

/// The result of an operation of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of making shards. Some shards may have been written before the error.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An error from `shardstream`, mostly while writing to the destination.
    #[error(transparent)]
    Stream(#[from] shardstream::Error),
    /// A file or folder cannot be read.
    #[error("{path}")]
    File {
        /// The file or folder.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// An image could not be encoded.
    #[error("cannot encode an image")]
    Image(#[from] shardstream::image::ImageError),
    /// The arguments cannot be used.
    #[error("{0}")]
    Usage(String),
    /// Shards of the series exist already.
    #[error(
        "{count} shards of this series exist already, such as {first}: remove them with --overwrite, or \
         choose another name"
    )]
    Taken {
        /// Number of existing shards.
        count: usize,
        /// URL of one of the existing shards.
        first: SecretUrl,
    },
    /// The source has no file of CIFAR-10.
    #[error(
        "{0} has neither data_batch_1.bin nor data_batch_1: give cifar-10-binary.tar.gz or \
         cifar-10-python.tar.gz, or the folder of one of these archives"
    )]
    NoBatches(PathBuf),
    /// A batch of CIFAR-10 is missing or damaged.
    #[error("{place}, {name}: {what}")]
    Batch {
        /// The archive or folder.
        place: PathBuf,
        /// The name of the batch's file.
        name: String,
        /// What is wrong with the batch.
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
