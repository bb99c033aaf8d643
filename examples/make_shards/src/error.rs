//! What can end the making of shards.

use crate::tree::BadFile;
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
    /// A file or folder whose name is not UTF-8.
    #[error("the name {0:?} is not UTF-8: rename it")]
    Name(PathBuf),
    /// No class has an image.
    #[error("{0}: there is no folder with images (.jpg, .jpeg, .png, .webp) in it")]
    NoImages(PathBuf),
    /// Files that are no images of their kind, found before anything was written.
    #[error("{}; mend them, or pass --skip-bad to leave them out", bad_files(.0))]
    BadFiles(Vec<BadFile>),
    /// A file was there when the shards were planned.
    #[error("{path} has vanished since the shards were planned: {AGAIN}")]
    Vanished {
        /// Which file.
        path: PathBuf,
    },
    /// A file was another one when the shards were planned.
    #[error("{path} had {planned} bytes when the shards were planned, and has {now} now: {AGAIN}")]
    Changed {
        /// Which file.
        path: PathBuf,
        /// Its size then.
        planned: u64,
        /// Its size now.
        now: u64,
    },
    /// What is there was made by another plan.
    #[error(
        "{place} is the plan of other shards: {}; run with the arguments and files of then to go on, or with \
         --overwrite to remove those shards and start over", .differences.join(", ")
    )]
    OtherPlan {
        /// Where the plan is.
        place: SecretUrl,
        /// What differs, each with both values.
        differences: Vec<String>,
    },
    /// What should be a plan is something else.
    #[error("{place} is not the plan of a series of shards; --overwrite replaces it, and removes the shards")]
    NoPlan {
        /// Where it is.
        place: SecretUrl,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// Shards that nobody planned.
    #[error(
        "{count} shards of this series are there already, such as {first}; --overwrite removes them, or choose \
         another name"
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

const AGAIN: &str = "plan again, with --overwrite";

impl Error {
    pub(crate) fn file(path: &Path, source: io::Error) -> Self {
        Error::File { path: path.to_owned(), source }
    }
}

fn bad_files(files: &[BadFile]) -> String {
    const SHOWN: usize = 10;
    let mut lines: Vec<String> = files.iter().take(SHOWN).map(BadFile::to_string).collect();
    if files.len() > SHOWN {
        lines.push(format!("and {} more", files.len() - SHOWN));
    }
    lines.join("\n")
}
