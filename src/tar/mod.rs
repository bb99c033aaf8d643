//! From bytes to samples: the sans-I/O tar walker and the grouping of members by key.
//!
//! [`Walker`] turns bytes into tar members, [`SampleParser`] turns them into samples, and [`Outline`] only
//! finds where those are; all are state machines that own no file, socket or thread. [`read`] drives the
//! parser from an iterator or a stream of chunks.

mod end;
mod group;
mod header;
mod input;
mod intern;
mod limits;
mod name;
mod outline;
mod parser;
mod read;
mod seen;
#[cfg(test)]
mod tests;
mod walker;

pub use header::EntryKind;
pub use limits::Limits;
pub(crate) use name::is_meta;
pub use name::split_name;
pub use outline::{FieldOutline, Outline, Outlined, SampleOutline};
pub use parser::{Parsed, SampleParser};
pub use read::{Read, read};
pub use walker::{Entry, Event, Walker};
