//! Reasons to refuse one member of an archive that is otherwise readable.

use crate::error::{ErrorKind, SizeLimit};

/// Why the walker refuses a member. Only the sample of this member fails. The walker then continues with the
/// next member.
#[derive(Debug, Clone, Copy)]
pub(super) enum MemberRefusal {
    /// The member is larger than the limit.
    Size { size: u64, limit: u64 },
    /// One of the member's extension headers is larger than the limit.
    Extension { size: u64, limit: u64, name: NameKnown },
    /// The member is a sparse file: the archive stores only the parts of the file between its holes.
    Sparse,
}

/// Whether the whole name of a member is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NameKnown {
    Whole,
    /// Only the beginning of the name is known, because the name is longer than the limit.
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
