//! Which kinds of errors a policy may skip.

use super::ErrorKind;

/// The classes of failures that may be skipped.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureClass {
    Damage,
    Decode,
    Step,
    Panic,
    MissingShard,
}

impl FailureClass {
    pub const ALL: [Self; 5] = [Self::Damage, Self::Decode, Self::Step, Self::Panic, Self::MissingShard];
}

impl ErrorKind {
    /// The class of the error; `None` if no policy may skip it. The match has no wildcard, so that a new kind
    /// must be classified.
    #[doc(hidden)]
    #[must_use]
    pub fn failure_class(&self) -> Option<FailureClass> {
        match self {
            ErrorKind::Damaged { .. }
            | ErrorKind::SampleChecksum { .. }
            | ErrorKind::Truncated { .. }
            | ErrorKind::ArchiveEnd(_)
            | ErrorKind::Checksum
            | ErrorKind::Header(_)
            | ErrorKind::Decompress { .. }
            | ErrorKind::TooManyMembers { .. }
            | ErrorKind::DuplicateMember { .. }
            | ErrorKind::Format(_)
            | ErrorKind::ScatteredSample => Some(FailureClass::Damage),
            ErrorKind::TooLarge { what, .. } => what.is_of_shard().then_some(FailureClass::Damage),
            ErrorKind::MissingSample { damaged: true } => Some(FailureClass::Damage),
            ErrorKind::Decode { .. }
            | ErrorKind::Array(_)
            | ErrorKind::WrongType { .. }
            | ErrorKind::MissingSample { damaged: false }
            | ErrorKind::FieldConflict { .. }
            | ErrorKind::MissingField { .. }
            | ErrorKind::MissingTensor { .. }
            | ErrorKind::Pickle { .. } => Some(FailureClass::Decode),
            // `Encode` and `Unwritable` come from a step of the caller that writes samples: reading itself
            // never encodes or writes.
            ErrorKind::Step(_) | ErrorKind::Encode { .. } | ErrorKind::Unwritable(_) => {
                Some(FailureClass::Step)
            }
            ErrorKind::Panicked(_) => Some(FailureClass::Panic),
            ErrorKind::NotFound(_) => Some(FailureClass::MissingShard),
            // Wrong options and inputs of the job.
            ErrorKind::Pattern { .. }
            | ErrorKind::MissingVariable { .. }
            | ErrorKind::NoShards(_)
            | ErrorKind::Topology(_)
            | ErrorKind::TooFewShards { .. }
            | ErrorKind::Config(_)
            | ErrorKind::State(_)
            | ErrorKind::Index(_)
            | ErrorKind::NoSuchKey { .. }
            | ErrorKind::RepeatedKey { .. }
            | ErrorKind::NotAnArchive { .. }
            | ErrorKind::UnsupportedScheme { .. }
            | ErrorKind::Unsupported(_)
            | ErrorKind::UnsupportedCompression(_) => None,
            // Errors of the network, the store and the disk: the shard may be intact.
            ErrorKind::Denied(_)
            | ErrorKind::Io(_)
            | ErrorKind::Store(_)
            | ErrorKind::Busy { .. }
            | ErrorKind::Length { .. }
            | ErrorKind::DamagedCache { .. }
            | ErrorKind::SourcePanicked(_) => None,
            // Another version of a shard has other samples at the same positions.
            ErrorKind::Changed { .. } | ErrorKind::Stale { .. } => None,
            ErrorKind::Stopped | ErrorKind::TooManySkipped { .. } => None,
        }
    }
}
