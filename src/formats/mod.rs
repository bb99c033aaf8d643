//! Formats of shards: what a file must have so that its samples can be read in order, resumed and mixed.
//!
//! A dataset needs little of a format: a parser that turns bytes into samples, one after the other.
//! Everything else (the order, the state, slices by an index, mixtures, packing) is a matter of numbers.
//! Without more, a restore reads a shard from its beginning; a parser that says [where](ShardParser::place)
//! its samples are lets an index cut shards into slices, and a restore starts at the byte. A format whose
//! table of contents is at the end of the file [reads ranges](ShardFormat::reads_ranges) that it chooses.
//!
//! The name of a shard says its format: `.jsonl` and `.ndjson` (also with `.gz` or `.zst`) are
//! [`JsonLines`], anything else is a tar archive. [`DatasetBuilder::format`] gives a dataset another one.
//!
//! [`DatasetBuilder::format`]: crate::dataset::DatasetBuilder::format

mod json_lines;
mod key_member;
mod parser;
mod reader_chunks;
mod shard_format;

pub use json_lines::JsonLines;
pub(crate) use parser::FormatChoice;
pub use parser::FormatParser;
pub use reader_chunks::ReaderChunks;
pub use shard_format::{ParserStart, ShardFormat};

#[doc(no_inline)]
pub use crate::store::RangeRequests;
#[doc(no_inline)]
pub use crate::tar::{Parsed, Read, SamplePlace, ShardParser, read};
