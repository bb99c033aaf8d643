//! Why a member is refused although the archive can be read past it.

use crate::error::{ErrorKind, SizeLimit};

/// Why a member is refused. It is an error of its sample alone: the next member follows.
#[derive(Debug, Clone, Copy)]
pub(super) enum MemberRefusal {
    /// It is larger than the limit.
    Size { size: u64, limit: u64 },
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

impl MemberRefusal {
    pub(super) fn name(self) -> NameKnown {
        match self {
            MemberRefusal::Extension { name, .. } => name,
            MemberRefusal::Size { .. } | MemberRefusal::Sparse => NameKnown::Whole,
        }
    }

    pub(super) fn kind(self) -> ErrorKind {
        match self {
            MemberRefusal::Size { size, limit } => {
                ErrorKind::TooLarge { what: SizeLimit::Member, size, limit }
            }
            MemberRefusal::Extension { size, limit, .. } => {
                ErrorKind::TooLarge { what: SizeLimit::ExtensionHeader, size, limit }
            }
            MemberRefusal::Sparse => {
                ErrorKind::Header("a sparse member; write the shard again without `--sparse`".into())
            }
        }
    }
}
