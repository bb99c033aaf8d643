//! What can go wrong with checkpoints.

use super::version::VERSION;
use shardstream::prelude::*;
use shardstream::{ErrorKind, SecretUrl};
use std::io;

/// Why a checkpoint cannot be written or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// The URL is not one that can be listed and written to.
    #[error("cannot keep checkpoints in {url:?}: {reason}")]
    Place {
        /// The URL.
        url: SecretUrl,
        /// What is wrong with it.
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
    /// A new training would mix its checkpoints with those of an older training.
    #[error(
        "{newest} is there already: --resume resumes from it; to start anew, remove it or choose another \
         place"
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
    /// It could not be read.
    #[error(
        "cannot read the checkpoint {url}; if it is damaged, remove it: --resume then takes the one before it"
    )]
    Read {
        /// The object.
        url: SecretUrl,
        /// The cause.
        source: shardstream::Error,
    },
    /// The checkpoint was changed after it was written.
    #[error("the checkpoint {url} is damaged ({reason}): remove it, and --resume takes the one before it")]
    Damaged {
        /// The object.
        url: SecretUrl,
        /// What is wrong with it.
        reason: String,
    },
    /// The part of a rank is missing, which died before it had written it.
    #[error("the checkpoint {url} is incomplete: {missing} is missing")]
    Incomplete {
        /// The object of the first rank.
        url: SecretUrl,
        /// The missing object of another rank.
        missing: SecretUrl,
    },
    /// An older or newer trainer wrote the checkpoint.
    #[error(
        "the checkpoint {url} is of version {version}, and this trainer reads version {}: finish that \
         training with the trainer that began it, or start anew in another place",
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
    /// Another rank may have resumed from another checkpoint.
    #[error(
        "the checkpoint {newest} was completed while the ranks of the job were starting, and others may have \
         resumed from it: start all ranks again"
    )]
    Changed {
        /// The newest checkpoint.
        newest: SecretUrl,
    },
    /// The log could not be written.
    #[error("cannot write the report")]
    Output(#[source] io::Error),
    /// The batches carry no state.
    #[error("the data does not say its state, without which no checkpoint can be made")]
    NoState,
    /// The thread that writes panicked; its message is on the standard error.
    #[error("the thread that writes checkpoints panicked")]
    Panicked,
    /// No thread could be started.
    #[error("cannot start the thread that writes checkpoints")]
    Thread(#[from] io::Error),
}

impl CheckpointError {
    /// Whether the checkpoint itself is damaged, so that retries cannot read it.
    pub(super) fn is_damage(&self) -> bool {
        match self {
            Self::Damaged { .. } | Self::Incomplete { .. } => true,
            // A file of checkpoints that is no archive was one.
            Self::Read { source, .. } => {
                let is_no_archive = matches!(source.kind(), ErrorKind::NotAnArchive { .. });
                is_no_archive || Failures::damage().contains(source.kind())
            }
            _ => false,
        }
    }
}
