//! Writes shards: one archive, or a numbered series of them.
//!
//! [`TarWriter`] writes samples into one tar archive, to any [`Write`](std::io::Write). [`ShardWriter`]
//! starts a new shard when one is full, compresses, and publishes each shard only when it is complete.
//! [`ArchiveSize`] computes the size of an archive before it is written.
//!
//! Written samples read back as they are: a sample that a reader would split, skip or merge is refused with
//! [`ErrorKind::Unwritable`](crate::ErrorKind::Unwritable) before a byte of it is written. The rules, where
//! `KEY.FIELD` is the name of a member:
//!
//! - a key has no dot in its last part (a reader ends the key at the first dot there), no empty part (`a//b`,
//!   `a/`, `/a`), no part `..`, and none `.` but a leading `./`, as `tar -cf shard.tar .` makes them;
//! - a field is in lower case (a reader lower-cases it), has no `/`, and does not start with `__`;
//! - no name has a line break or a NUL, or is longer than 4096 bytes, or is one that readers skip
//!   (`__NAME__`, at the top);
//! - a key occurs once in an archive, and has at least one field;
//! - a sample has no more bytes and fields than readers accept: see [`TarOptions::limits`].
//!
//! The bytes depend only on the samples and the options: the same input makes the same shards.

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
