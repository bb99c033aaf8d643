//! Reasons to refuse one member of an archive that is otherwise readable.

use crate::error::{ErrorKind, SizeLimit};

/// Why the walker refuses a member. Only the member's sample fails; the walker then returns the next member.
#[derive(Debug, Clone, Copy)]
pub(super) enum MemberRefusal {
    /// The member is larger than the limit.
    Size { size: u64, limit: u64 },
    /// One of the member's extension headers is larger than the limit.
    Extension { size: u64, limit: u64, name: NameKnown },
    /// The member is a sparse file: the archive stores only the parts between its holes.
    Sparse,
}

/// How much of a member's name is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NameKnown {
    Whole,
    /// Only the beginning, since the name is longer than the limit.
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
