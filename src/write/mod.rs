//! Writes shards: one archive, or a numbered series of archives.
//!
//! [`TarWriter`] writes samples into one tar archive, to any [`Write`](std::io::Write). [`ShardWriter`]
//! writes a series of shards: it starts a new shard when the current shard is full, compresses shards, and
//! publishes each shard only when it is complete. [`ArchiveSize`] computes the size of an archive before it
//! is written.
//!
//! Written samples read back unchanged. A sample that a reader would split, skip or merge is refused with
//! [`ErrorKind::Unwritable`](crate::ErrorKind::Unwritable) before any byte of it is written. The name of a
//! member is `KEY.FIELD`, and the rules are:
//!
//! - A key has no dot in its last part (a reader ends the key at the first dot of that part), no empty part
//!   (`a//b`, `a/`, `/a`), no part `..`, and no part `.` except a leading `./`, which `tar -cf shard.tar .`
//!   writes.
//! - A field is in lower case (a reader converts it to lower case), has no `/`, and does not start with `__`.
//! - The name of a member has no line break and no NUL, and at most 4096 bytes. Its first part does not begin
//!   and end with `__`: readers skip such members as metadata.
//! - A key occurs once in an archive, and has at least one field.
//! - A sample has at most as many bytes and fields as readers accept: see [`TarOptions::limits`].
//!
//! The bytes depend only on the samples and the options: the same input gives the same shards.

mod compress;
mod header;
mod name;
mod options;
mod pattern;
mod shards;
mod size;
mod tar;
#[cfg(test)]
mod tests;

pub use options::TarOptions;
pub use pattern::ShardPattern;
pub use shards::{ShardInfo, ShardWriter, ShardWriterBuilder};
pub use size::ArchiveSize;
pub use tar::TarWriter;
