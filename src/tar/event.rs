//! Events of a walker: members and their content.

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
    /// The kind of member.
    pub kind: EntryKind,
    /// The size of the member's content in bytes.
    pub size: u64,
    /// The offset of the member's first header block in the archive. This may be the block of an extension
    /// header.
    pub offset: u64,
    /// The offset of the member's content in the archive.
    pub data_offset: u64,
}

impl Entry {
    /// The error for this member, which was refused. The error contains the member's name if the whole name
    /// is known.
    pub(super) fn refused(&self, refusal: MemberRefusal) -> Error {
        let error = Error::from(refusal.kind()).at_offset(self.offset);
        match refusal.name() {
            NameKnown::Whole => error.in_member(String::from_utf8_lossy(&self.name)),
            NameKnown::Beginning => error,
        }
    }
}

/// The next result of a [`Walker`](super::Walker).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The walker needs more bytes: [`push`](super::Walker::push) a chunk or call
    /// [`finish`](super::Walker::finish).
    NeedInput,
    /// A member. After a [file](EntryKind::File), the next event is its [`Body`](Event::Body), unless
    /// [`skip_body`](super::Walker::skip_body) was called. For a refused member,
    /// [`Walker::next`](super::Walker::next) returns an error instead.
    Entry(Entry),
    /// The whole content of the file that the last [`Entry`](Event::Entry) announced: a slice of the pushed
    /// chunk, or a copy if the content spans several chunks.
    Body(Bytes),
    /// An end-of-archive marker: two blocks of zeros. Another archive may follow if
    /// [`Limits::archives`](super::Limits::archives) allows it.
    EndOfArchive,
    /// The end of the input, after a complete archive or after an error.
    End,
}
