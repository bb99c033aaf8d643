//! JSON lines: each line of a text file is a sample.

use super::key_member::key_of;
use super::shard_format::{ParserStart, ShardFormat};
use crate::error::{Error, ErrorKind, Result, SizeLimit};
use crate::file_kind::not_json_lines;
use crate::sample::Sample;
use crate::tar::{Parsed, SamplePlace, ShardParser};
use bytes::{Buf, Bytes, BytesMut};
use bytestring::ByteString;
use std::collections::VecDeque;
use std::iter;

/// The name of a sample's only field.
const FIELD: &str = "json";

/// Some editors write this mark at the beginning of a file. It is not part of the text.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// JSON lines (`.jsonl`, `.ndjson`): each line is a sample with one field, `json`, the bytes of the line.
///
/// - The key is the number of the sample in its shard, in nine digits, or the value of [a
///   member](JsonLines::key) of the line.
/// - Lines end with `\n` or `\r\n`; the line break of the last line may be missing. Lines of white space are
///   skipped. A byte order mark at the beginning of the file is skipped too.
/// - A line is parsed only when its field is [decoded](crate::codec::Decoder). A line that is not JSON, or
///   not UTF-8, is then an error of that sample alone. If a file was cut within a line, decoding the last
///   line returns an error. If a file was cut at a line break or within a line that is a bare number, only an
///   index detects the cut, because the index records the size of the file.
/// - A file that begins like another kind of file is [an error](ErrorKind::NotAnArchive). Examples:
///   compressed data under a name without `.gz` or `.zst`, a Git LFS pointer, an HTML page, a tar archive.
/// - A line that is longer than [`Limits::sample`](crate::tar::Limits::sample) is
///   [an error](ErrorKind::TooLarge), and is not kept in memory.
///
/// ```
/// use shardstream::prelude::*;
///
/// let dataset = Dataset::builder("docs/data/texts-*.jsonl").build()?; // or "gs://bucket/texts-*.jsonl.zst"
/// let texts = dataset.samples(0).decode(Decoder::new()).map(|sample: Sample| match sample.get("json") {
///     Some(Value::Json(json)) => Ok::<_, shardstream::Error>(json["text"].to_string()),
///     _ => unreachable!("it was decoded"),
/// });
/// let texts = texts.results().collect::<Result<Vec<_>, _>>()?;
/// assert_eq!(texts[..2], ["\"Open today until nine\"", "\"Hello, world!\""]);
/// # Ok::<(), shardstream::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
#[must_use = "a format does nothing until a dataset reads by it"]
pub struct JsonLines {
    key: Option<String>,
}

impl JsonLines {
    /// JSON lines whose keys are the numbers of the samples.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the key of each sample from this member of its line. The value must be a string or a whole
    /// number. A line that lacks the member or is not a JSON object is [an error](ErrorKind::Format) of that
    /// sample. Default: the key is the number of the sample.
    pub fn key(self, member: impl Into<String>) -> Self {
        JsonLines { key: Some(member.into()) }
    }
}

impl ShardFormat for JsonLines {
    fn parser(&self, start: &ParserStart) -> Box<dyn ShardParser> {
        Box::new(LineParser {
            key: self.key.clone(),
            limit: start.limits.sample,
            chunks: VecDeque::new(),
            is_finished: false,
            begun: BytesMut::new(),
            length: 0,
            start: start.offset,
            number: start.sample,
            last: (0, 0),
            has_begun: start.offset > 0,
            is_refused: false,
        })
    }
}

/// Cuts chunks into lines. A line that lies within one chunk is not copied: it is a slice of the chunk.
#[derive(Debug)]
struct LineParser {
    /// The name of the JSON member whose value is the key of the sample.
    key: Option<String>,
    /// Size in bytes of the longest accepted line.
    limit: u64,
    chunks: VecDeque<Bytes>,
    is_finished: bool,
    /// The beginning of a line that spans chunks, unless it is too long.
    begun: BytesMut,
    /// Number of bytes of the current line that have been read.
    length: u64,
    /// The offset of the current line.
    start: u64,
    /// The number of the next sample.
    number: u64,
    /// The offset and the length of the last sample's line.
    last: (u64, u64),
    /// Whether a non-empty line was read. The parser checks that the first non-empty line is not the
    /// beginning of a file other than JSON lines, such as a tar archive.
    has_begun: bool,
    /// Whether the file was refused because its first non-empty line shows that it is not JSON lines.
    is_refused: bool,
}

impl LineParser {
    /// Adds a part of a line that spans chunks.
    fn append(&mut self, part: &[u8]) {
        self.length += part.len() as u64;
        if self.length > self.limit {
            self.begun = BytesMut::new();
        } else {
            self.begun.extend_from_slice(part);
        }
    }

    /// Ends a line whose line break has `line_break` bytes. Returns the line's sample, or `None` if the line
    /// is empty.
    fn end_line(&mut self, mut line: Bytes, line_break: u64) -> Option<Result<Sample>> {
        let (mut start, length) = (self.start, std::mem::take(&mut self.length));
        self.start += length + line_break;
        if length > self.limit {
            self.has_begun = true;
            self.number += 1;
            let kind = ErrorKind::TooLarge { what: SizeLimit::Sample, size: length, limit: self.limit };
            return Some(Err(Error::from(kind).at_offset(start)));
        }
        if start == 0 && line.starts_with(BYTE_ORDER_MARK) {
            line.advance(BYTE_ORDER_MARK.len());
            start = BYTE_ORDER_MARK.len() as u64;
        }
        if line.ends_with(b"\r") {
            line.truncate(line.len() - 1);
        }
        if line.iter().all(u8::is_ascii_whitespace) {
            return None;
        }
        if !std::mem::replace(&mut self.has_begun, true)
            && let Some(error) = not_json_lines(&line)
        {
            self.is_refused = true;
            self.chunks.clear();
            return Some(Err(error.at_offset(start)));
        }
        self.last = (start, line.len() as u64);
        let key = match &self.key {
            None => Ok(format!("{:09}", self.number)),
            Some(member) => key_of(&line, member),
        };
        self.number += 1;
        Some(match key {
            Ok(key) => Ok(Sample::new(key).with(ByteString::from_static(FIELD), line)),
            Err(what) => Err(Error::from(ErrorKind::Format(what)).at_offset(start)),
        })
    }
}

impl ShardParser for LineParser {
    fn push(&mut self, chunk: Bytes) {
        if !chunk.is_empty() && !self.is_refused {
            self.chunks.push_back(chunk);
        }
    }

    fn finish(&mut self) {
        self.is_finished = true;
    }

    fn next(&mut self) -> Result<Parsed> {
        if self.is_refused {
            return Ok(Parsed::End);
        }
        loop {
            let sample = match self.chunks.pop_front() {
                None if !self.is_finished => return Ok(Parsed::NeedInput),
                None if self.length == 0 => return Ok(Parsed::End),
                // The last line has no line break.
                None => {
                    let line = std::mem::take(&mut self.begun).freeze();
                    self.end_line(line, 0)
                }
                Some(mut chunk) => match memchr::memchr(b'\n', &chunk) {
                    None => {
                        self.append(&chunk);
                        None
                    }
                    Some(end) => {
                        let part = chunk.split_to(end);
                        chunk.advance(1);
                        if !chunk.is_empty() {
                            self.chunks.push_front(chunk);
                        }
                        let line = if self.length == 0 {
                            self.length = part.len() as u64;
                            part
                        } else {
                            self.append(&part);
                            std::mem::take(&mut self.begun).freeze()
                        };
                        self.end_line(line, 1)
                    }
                },
            };
            if let Some(sample) = sample {
                return sample.map(Parsed::Sample);
            }
        }
    }

    fn place(&self) -> Option<SamplePlace> {
        let (start, length) = self.last;
        Some(SamplePlace::new(start, iter::once(start..start + length)))
    }

    fn is_complete(&self) -> bool {
        !self.is_refused
    }

    fn broken(&mut self, error: Error) -> Error {
        error.at_offset(self.start + self.length)
    }
}
