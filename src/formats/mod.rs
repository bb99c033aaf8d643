//! Formats of shards: tar archives, JSON lines, and formats of your own.
//!
//! A format only has to provide a parser that turns bytes into samples, one after the other. The rest of the
//! crate (order, state, slices, mixtures, packing) works with the numbers of samples and needs nothing else.
//! By default, a restore reads a shard from its beginning. If the parser also returns [the place of each
//! sample](ShardParser::place), an index can cut shards into slices, and a restore starts at the offset of
//! the next sample. If a format has its table of contents at the end of the file, its parser [chooses the
//! ranges](ShardFormat::reads_ranges) that it reads.
//!
//! The name of a shard determines its format: `.jsonl` and `.ndjson` (also with `.gz` or `.zst`) are
//! [`JsonLines`], anything else is a tar archive. [`DatasetBuilder::format`] sets another format.
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
