//! What a walker finds: members and their content.

use super::header::EntryKind;
use super::refusal::{MemberRefusal, NameKnown};
use crate::error::Error;
use bytes::Bytes;

/// The header of a tar member.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry {
    /// The name, with pax and GNU long names resolved. Usually UTF-8.
    pub name: Bytes,
    /// What the member is.
    pub kind: EntryKind,
    /// The size of its content in bytes.
    pub size: u64,
    /// The offset in the archive of its first header block, including extension headers.
    pub offset: u64,
    /// The offset in the archive of its content.
    pub data_offset: u64,
}

impl Entry {
    /// The error of this member, which names it if its name is known.
    pub(super) fn refused(&self, refusal: MemberRefusal) -> Error {
        let error = Error::from(refusal.kind()).at_offset(self.offset);
        match refusal.name() {
            NameKnown::Whole => error.in_member(String::from_utf8_lossy(&self.name)),
            NameKnown::Beginning => error,
        }
    }
}

/// What the [`Walker`](super::Walker) found next.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// Nothing, until more bytes are [pushed](super::Walker::push) or the input is
    /// [finished](super::Walker::finish).
    NeedInput,
    /// A member. If it is a [file](EntryKind::File), its [`Body`](Event::Body) comes next, unless it is
    /// [skipped](super::Walker::skip_body). A member that is refused is an error of
    /// [`Walker::next`](super::Walker::next) instead.
    Entry(Entry),
    /// The whole content of the file before: a slice of the pushed chunk, or a copy if it spans several
    /// chunks.
    Body(Bytes),
    /// An end-of-archive marker: two blocks of zeros. Another archive may follow if
    /// [`Limits::archives`](super::Limits::archives) allows it.
    EndOfArchive,
    /// The end of the input, where it may end.
    End,
}
