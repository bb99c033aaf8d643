//! Reads an index in its compact form.

use super::super::ShardIndex;
use super::super::layout::LayoutDocument;
use super::super::selection::SelectionDocument;
use super::super::shard_entry::{MAX_SHARDS, ShardEntry};
use super::{LAYOUT, MAGIC, MAX_EXPANSION, MAX_FRAME, Previous, SELECTION, SIZE, VERSION, VERSIONED};
use crate::error::{ErrorKind, Result};
use std::fmt::Write as _;

/// Largest number of shards for which memory is reserved in advance. The number of shards that a document
/// claims to have may be false.
const MAX_RESERVED: usize = 1 << 20;

/// Estimated memory of a shard's entry in bytes, without its texts and its layout.
const ENTRY_MEMORY: usize = 200;

/// Reads a document chunk by chunk.
pub(in crate::index) struct CompactReader {
    /// Bytes of an incomplete frame.
    pending: Vec<u8>,
    /// Whether the magic number and the version have been read.
    begun: bool,
    /// The number of shards, once the first frame has been read.
    count: Option<usize>,
    shards: Vec<ShardIndex>,
    memory: MemoryBudget,
}

/// Counts the memory of the shards in bytes, and limits it.
#[derive(Debug, Clone, Copy, Default)]
struct MemoryBudget {
    used: u64,
    limit: u64,
}

impl MemoryBudget {
    fn left(&self) -> u64 {
        self.limit.saturating_sub(self.used)
    }

    /// Counts the memory of `count` values of `each` bytes, before it is allocated.
    fn reserve(&mut self, count: usize, each: usize) -> FrameResult<()> {
        let used = self.used.saturating_add((count as u64).saturating_mul(each as u64));
        if used > self.limit {
            return Err("it takes far more memory than its stored size: load it uncompressed");
        }
        self.used = used;
        Ok(())
    }
}

impl CompactReader {
    /// A reader at the beginning of a document.
    pub(in crate::index) fn new() -> Self {
        CompactReader {
            pending: Vec::new(),
            begun: false,
            count: None,
            shards: Vec::new(),
            memory: MemoryBudget::default(),
        }
    }

    /// Reads the next chunk. The shards read so far may take up to `limit` bytes of memory. `resolve`
    /// replaces a shard's URL if it is relative to the document.
    pub(in crate::index) fn push(
        &mut self,
        bytes: &[u8],
        limit: u64,
        resolve: impl Fn(ShardIndex) -> ShardIndex,
    ) -> Result<()> {
        self.memory.limit = self.memory.limit.max(limit);
        self.pending.extend_from_slice(bytes);
        let pending = std::mem::take(&mut self.pending);
        let mut rest = &pending[..];
        if !self.begun {
            let Some((head, after)) = rest.split_at_checked(MAGIC.len() + 1) else {
                self.pending = pending;
                return Ok(());
            };
            match head.strip_prefix(MAGIC) {
                Some([VERSION]) => {}
                Some(version) => {
                    let what = format!(
                        "it is of version {version:?} of the compact form, and this release knows {VERSION}"
                    );
                    return Err(ErrorKind::Index(what).into());
                }
                None => return damaged("it does not begin like one"),
            }
            (self.begun, rest) = (true, after);
        }
        while let Some((length, after)) = rest.split_first_chunk::<4>() {
            let length = u32::from_le_bytes(*length) as usize;
            if length > MAX_FRAME || length as u64 > self.memory.left() {
                return damaged("a frame is too long");
            }
            let Some((sum, after)) = after.split_first_chunk::<4>() else { break };
            let Some((content, after)) = after.split_at_checked(length) else { break };
            if crc32c::crc32c(content) != u32::from_le_bytes(*sum) {
                return damaged("a checksum differs");
            }
            self.frame(content, &resolve).or_else(damaged)?;
            rest = after;
        }
        let left = rest.len();
        self.pending = pending;
        self.pending.drain(..self.pending.len() - left);
        Ok(())
    }

    /// Returns the shards. To be called after the last chunk.
    pub(in crate::index) fn finish(self) -> Result<Vec<ShardIndex>> {
        if !self.pending.is_empty() || self.count != Some(self.shards.len()) {
            return damaged("it ends too early");
        }
        Ok(self.shards)
    }

    fn frame(
        &mut self,
        content: &[u8],
        resolve: &impl Fn(ShardIndex) -> ShardIndex,
    ) -> std::result::Result<(), String> {
        let mut content = FrameReader { content, at: 0, memory: self.memory };
        let Some(count) = self.count else {
            let count = usize::try_from(content.number()?).unwrap_or(usize::MAX);
            if count > MAX_SHARDS {
                return Err("there are more than 10 million shards".into());
            }
            self.count = Some(count);
            self.shards.reserve_exact(count.min(MAX_RESERVED));
            if !content.is_empty() {
                return Err("the first frame has more than a number of shards".into());
            }
            return Ok(());
        };
        if content.is_empty() {
            return Err("an empty frame".into());
        }
        let mut previous = Previous::default();
        while !content.is_empty() {
            if self.shards.len() == count {
                return Err("more shards than the first frame says".into());
            }
            self.shards.push(resolve(content.shard(&mut previous)?.try_into()?));
        }
        self.memory = content.memory;
        Ok(())
    }
}

fn damaged<T>(what: impl std::fmt::Display) -> Result<T> {
    Err(ErrorKind::Index(format!("the compact index is damaged: {what}")).into())
}

/// Reads the content of a frame.
struct FrameReader<'a> {
    content: &'a [u8],
    at: usize,
    memory: MemoryBudget,
}

type FrameResult<T> = std::result::Result<T, &'static str>;

impl<'a> FrameReader<'a> {
    fn is_empty(&self) -> bool {
        self.at == self.content.len()
    }

    fn left(&self) -> usize {
        self.content.len() - self.at
    }

    fn bytes(&mut self, length: usize) -> FrameResult<&'a [u8]> {
        let bytes = self
            .content
            .get(self.at..)
            .and_then(|rest| rest.get(..length))
            .ok_or("a frame ends too early")?;
        self.at += length;
        Ok(bytes)
    }

    fn byte(&mut self) -> FrameResult<u8> {
        Ok(self.bytes(1)?[0])
    }

    fn number(&mut self) -> FrameResult<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let part = u64::from(byte & 0x7f);
            if part << shift >> shift != part {
                break;
            }
            number |= part << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err("a number of more than 64 bits")
    }

    /// Reads the length of a list. Each item of the list takes at least `each` bytes.
    fn length(&mut self, each: usize) -> FrameResult<usize> {
        let length = usize::try_from(self.number()?).unwrap_or(usize::MAX);
        if length > self.left() / each { Err("a list that is longer than its frame") } else { Ok(length) }
    }

    fn numbers(&mut self) -> FrameResult<Vec<u64>> {
        let length = self.length(1)?;
        // Each number takes 8 bytes in this list, and 8 bytes in the layout that is made from the document.
        self.memory.reserve(length, 16)?;
        (0..length).map(|_| self.number()).collect()
    }

    fn difference(&mut self, previous: &mut u64) -> FrameResult<u64> {
        let number = self.number()?;
        let difference = (number >> 1) ^ (number & 1).wrapping_neg();
        *previous = previous.wrapping_add(difference);
        Ok(*previous)
    }

    fn text(&mut self) -> FrameResult<&'a str> {
        let length = self.length(1)?;
        utf8(self.bytes(length)?)
    }

    fn shared(&mut self, previous: &mut Vec<u8>, expanded: &mut usize) -> FrameResult<Box<str>> {
        let [start, end] =
            [self.number()?, self.number()?].map(|shared| usize::try_from(shared).unwrap_or(usize::MAX));
        if start.checked_add(end).is_none_or(|shared| shared > previous.len()) {
            return Err("a text shares more bytes than the previous text has");
        }
        let length = self.length(1)?;
        let middle = self.bytes(length)?;
        *expanded += start + length + end;
        if *expanded > self.at.saturating_mul(MAX_EXPANSION) {
            return Err("texts that are too long for their frame");
        }
        self.memory.reserve(start + length + end, 1)?;
        let mut text = Vec::with_capacity(start + length + end);
        text.extend_from_slice(&previous[..start]);
        text.extend_from_slice(middle);
        text.extend_from_slice(&previous[previous.len() - end..]);
        *previous = text;
        Ok(utf8(previous)?.into())
    }

    fn shard(&mut self, previous: &mut Previous) -> FrameResult<ShardEntry> {
        let flags = self.byte()?;
        if flags > SIZE | VERSIONED | LAYOUT | SELECTION {
            return Err("an unknown flag");
        }
        let has = |flag: u8| flags & flag != 0;
        self.memory.reserve(1, ENTRY_MEMORY)?;
        let url = self.shared(&mut previous.url, &mut previous.expanded)?;
        let nsamples = self.difference(&mut previous.samples)?;
        let filesize = has(SIZE).then(|| self.difference(&mut previous.bytes)).transpose()?;
        let version =
            has(VERSIONED).then(|| self.shared(&mut previous.version, &mut previous.expanded)).transpose()?;
        let layout = has(LAYOUT).then(|| self.layout()).transpose()?;
        let select = has(SELECTION).then(|| self.selection()).transpose()?;
        Ok(ShardEntry { url, nsamples, filesize, version, layout, select })
    }

    fn layout(&mut self) -> FrameResult<LayoutDocument> {
        let flags = self.byte()?;
        if flags > 7 {
            return Err("an unknown flag");
        }
        let fields = self.length(1)?;
        self.memory.reserve(fields, 48)?;
        let fields = (0..fields).map(|_| self.text().map(Into::into)).collect::<FrameResult<_>>()?;
        let shapes = self.length(1)?;
        self.memory.reserve(shapes, 96)?;
        let shapes = (0..shapes).map(|_| self.numbers()).collect::<FrameResult<_>>()?;
        let (runs, sizes) = (self.numbers()?, self.numbers()?);
        let crc32c = (flags & 2 != 0).then(|| self.checksums()).transpose()?;
        let block = if flags & 4 != 0 { 1 } else { 512 };
        Ok(LayoutDocument { seekable: flags & 1 != 0, block, fields, shapes, runs, sizes, crc32c })
    }

    fn checksums(&mut self) -> FrameResult<Box<str>> {
        let length = self.length(4)?;
        let (sums, _) = self.bytes(4 * length)?.as_chunks::<4>();
        let mut text = String::with_capacity(8 * length);
        for sum in sums {
            // Writing to a string never fails.
            let _ = write!(text, "{:08x}", u32::from_le_bytes(*sum));
        }
        Ok(text.into())
    }

    fn selection(&mut self) -> FrameResult<SelectionDocument> {
        Ok(SelectionDocument { name: self.text()?.into(), runs: self.numbers()? })
    }
}

fn utf8(bytes: &[u8]) -> FrameResult<&str> {
    std::str::from_utf8(bytes).map_err(|_| "a text that is not UTF-8")
}
