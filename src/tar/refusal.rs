//! Why a member is refused although the archive can be read past it.

use super::walker::Entry;
use crate::error::{Error, ErrorKind};

/// Why a member is refused. It is an error of its sample alone: the next member follows.
#[derive(Debug, Clone, Copy)]
pub(super) enum Refusal {
    /// It is larger than the limit.
    Size { limit: u64 },
    /// One of its extension headers is larger than the limit.
    Extension { size: u64, limit: u64, name: NameKnown },
    /// It is sparse: its content is only the parts that are no holes.
    Sparse,
}

/// Whether the name of a member is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NameKnown {
    Whole,
    /// Only its beginning is known, since it is longer than the limit.
    Beginning,
}

impl Refusal {
    pub(super) fn name(self) -> NameKnown {
        match self {
            Refusal::Extension { name, .. } => name,
            Refusal::Size { .. } | Refusal::Sparse => NameKnown::Whole,
        }
    }

    pub(super) fn kind(self, entry: &Entry) -> ErrorKind {
        match self {
            Refusal::Size { limit } => ErrorKind::TooLarge { what: "a tar member", size: entry.size, limit },
            Refusal::Extension { size, limit, .. } => {
                ErrorKind::TooLarge { what: "a tar extension header", size, limit }
            }
            Refusal::Sparse => {
                ErrorKind::Header("a sparse member; write the shard again without `--sparse`".into())
            }
        }
    }

    /// The error, with the name of the member if it is known.
    pub(super) fn error(self, entry: &Entry) -> Error {
        let error = Error::from(self.kind(entry)).at_offset(entry.offset);
        match self.name() {
            NameKnown::Whole => error.in_member(String::from_utf8_lossy(&entry.name)),
            NameKnown::Beginning => error,
        }
    }
}
