//! Parses samples from tar archives, without I/O.
//!
//! [`Walker`] turns bytes into tar members, [`SampleParser`] groups members by key into samples, and
//! [`Outline`] finds the offsets of samples from headers alone. All three are state machines that own no
//! file, socket or thread. [`read`] drives the parser from an iterator or a stream of chunks.

mod archive_end;
mod chunk_queue;
mod event;
mod grouper;
mod header;
mod held_samples;
mod intern;
mod limits;
mod long_extension;
mod name;
mod outline;
mod parser;
mod pending;
mod read;
mod refusal;
mod seen_keys;
mod shard_parser;
#[cfg(test)]
mod tests;
mod walker;

pub use event::{Entry, Event};
pub use header::EntryKind;
pub use limits::Limits;
pub(crate) use name::is_meta;
pub use name::split_name;
pub use outline::{Outline, SampleOutline};
pub use parser::{Parsed, SampleParser};
pub use read::{Read, read};
pub use shard_parser::{SamplePlace, ShardParser};
pub use walker::Walker;
