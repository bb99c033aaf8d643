//! Errors of checkpoints.

use super::version::VERSION;
use shardstream::prelude::*;
use shardstream::{ErrorKind, SecretUrl};
use std::io;

/// An error of writing, finding or loading a checkpoint.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// The URL cannot be used as the directory of checkpoints.
    #[error("cannot keep checkpoints in {url:?}: {reason}")]
    Place {
        /// The URL.
        url: SecretUrl,
        /// What is wrong with the URL.
        reason: &'static str,
    },
    /// The checkpoints cannot be listed.
    #[error("cannot list the checkpoints in {url}")]
    List {
        /// The URL.
        url: SecretUrl,
        /// The cause.
        source: shardstream::Error,
    },
    /// A new training would mix its checkpoints with the checkpoints of an older training.
    #[error(
        "the checkpoint {newest} exists already: resume from it with --resume, or start a new training after \
         removing it or in another directory"
    )]
    Exists {
        /// The newest checkpoint.
        newest: SecretUrl,
    },
    /// The checkpoint could not be written.
    #[error("cannot write the checkpoint {url}")]
    Write {
        /// The object.
        url: SecretUrl,
        /// The cause.
        source: shardstream::Error,
    },
    /// The checkpoint could not be read.
    #[error(
        "cannot read the checkpoint {url}; if it is damaged, remove it: --resume then uses the previous one"
    )]
    Read {
        /// The object.
        url: SecretUrl,
        /// The cause.
        source: shardstream::Error,
    },
    /// The checkpoint was changed after it was written.
    #[error("the checkpoint {url} is damaged ({reason}): remove it, and --resume uses the previous one")]
    Damaged {
        /// The object.
        url: SecretUrl,
        /// What is wrong with the checkpoint.
        reason: String,
    },
    /// The part of a rank is missing, because the rank ended before it had written its part.
    #[error("the checkpoint {url} is incomplete: {missing} is missing")]
    Incomplete {
        /// The object of the first rank.
        url: SecretUrl,
        /// The missing object of another rank.
        missing: SecretUrl,
    },
    /// An older or newer trainer wrote the checkpoint.
    #[error(
        "the checkpoint {url} has version {version}, and this trainer reads version {}: finish that training \
         with the version of the trainer that started it, or start a new training in another directory",
        VERSION
    )]
    Version {
        /// The object.
        url: SecretUrl,
        /// The version of the checkpoint.
        version: u64,
    },
    /// The checkpoint belongs to another training.
    #[error("the checkpoint {url} is of another training ({})", differences.join("; "))]
    Other {
        /// The object.
        url: SecretUrl,
        /// The values that differ.
        differences: Vec<String>,
    },
    /// Another rank may have resumed from another checkpoint than this rank.
    #[error(
        "the checkpoint {newest} was completed while the ranks of the job were starting, and other ranks may \
         have resumed from it: start all ranks again"
    )]
    Changed {
        /// The newest checkpoint.
        newest: SecretUrl,
    },
    /// The log could not be written.
    #[error("cannot write the report")]
    Output(#[source] io::Error),
    /// The batches have no state.
    #[error("the batches have no state, so no checkpoint can be saved")]
    NoState,
    /// The thread that writes checkpoints panicked; the panic's message is on the standard error.
    #[error("the thread that writes checkpoints panicked")]
    Panicked,
    /// No thread could be started.
    #[error("cannot start the thread that writes checkpoints")]
    Thread(#[from] io::Error),
}

impl CheckpointError {
    /// Whether the checkpoint itself is damaged, so that no retry can read it.
    pub(super) fn is_damage(&self) -> bool {
        match self {
            Self::Damaged { .. } | Self::Incomplete { .. } => true,
            // The trainer writes every checkpoint as an archive, so an object that is not an archive is
            // damaged.
            Self::Read { source, .. } => {
                let is_not_an_archive = matches!(source.kind(), ErrorKind::NotAnArchive { .. });
                is_not_an_archive || Failures::damage().contains(source.kind())
            }
            _ => false,
        }
    }
}
