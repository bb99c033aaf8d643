//! Writes an index in its compact form.

use super::super::layout::LayoutDocument;
use super::super::shard_entry::ShardEntry;
use super::{LAYOUT, MAGIC, MAX_EXPANSION, MAX_FRAME, Previous, SELECTION, SIZE, VERSION, VERSIONED};
use crate::error::{ErrorKind, Result, SizeLimit};

/// A frame is ended when it has at least this many bytes.
const MAX_OPEN_FRAME: usize = 64 << 10;

/// Writes the document: calls `out` with its bytes, piece by piece.
pub(in crate::index) fn write(
    count: usize,
    shards: impl Iterator<Item = ShardEntry>,
    mut out: impl FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    out(MAGIC)?;
    out(&[VERSION])?;
    let mut frame = FrameWriter::default();
    frame.number(count as u64);
    frame.end(&mut out)?;
    for shard in shards {
        frame.shard(&shard);
        if frame.content.len() >= MAX_OPEN_FRAME {
            frame.end(&mut out)?;
        }
    }
    if !frame.content.is_empty() {
        frame.end(&mut out)?;
    }
    Ok(())
}

#[derive(Default)]
struct FrameWriter {
    content: Vec<u8>,
    previous: Previous,
}

impl FrameWriter {
    /// Writes the frame, and begins the next one.
    fn end(&mut self, out: &mut impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let length = u32::try_from(self.content.len()).ok().filter(|length| *length as usize <= MAX_FRAME);
        let Some(length) = length else {
            let (size, limit) = (self.content.len() as u64, MAX_FRAME as u64);
            return Err(ErrorKind::TooLarge { what: SizeLimit::CompactShard, size, limit }.into());
        };
        out(&length.to_le_bytes())?;
        out(&crc32c::crc32c(&self.content).to_le_bytes())?;
        out(&self.content)?;
        self.content.clear();
        self.previous = Previous::default();
        Ok(())
    }

    fn shard(&mut self, shard: &ShardEntry) {
        let flags = [
            (SIZE, shard.filesize.is_some()),
            (VERSIONED, shard.version.is_some()),
            (LAYOUT, shard.layout.is_some()),
            (SELECTION, shard.select.is_some()),
        ];
        self.content.push(flags.iter().filter(|(_, is)| *is).map(|(flag, _)| flag).sum());
        let mut previous = std::mem::take(&mut self.previous);
        self.shared(&shard.url, &mut previous.url, &mut previous.expanded);
        self.difference(shard.nsamples, &mut previous.samples);
        if let Some(bytes) = shard.filesize {
            self.difference(bytes, &mut previous.bytes);
        }
        if let Some(version) = &shard.version {
            self.shared(version, &mut previous.version, &mut previous.expanded);
        }
        self.previous = previous;
        if let Some(layout) = &shard.layout {
            self.layout(layout);
        }
        if let Some(select) = &shard.select {
            self.text(&select.name);
            self.numbers(&select.runs);
        }
    }

    fn layout(&mut self, layout: &LayoutDocument) {
        let flags = [layout.seekable, layout.crc32c.is_some(), layout.block == 1];
        self.content.push(flags.iter().rev().fold(0, |bits, flag| bits << 1 | u8::from(*flag)));
        self.number(layout.fields.len() as u64);
        layout.fields.iter().for_each(|field| self.text(field));
        self.number(layout.shapes.len() as u64);
        layout.shapes.iter().for_each(|shape| self.numbers(shape));
        self.numbers(&layout.runs);
        self.numbers(&layout.sizes);
        if let Some(sums) = &layout.crc32c {
            let (sums, _) = sums.as_bytes().as_chunks::<8>();
            self.number(sums.len() as u64);
            let value = |sum: &[u8; 8]| u32::from_str_radix(std::str::from_utf8(sum).ok()?, 16).ok();
            sums.iter().for_each(|sum| self.content.extend(value(sum).unwrap_or_default().to_le_bytes()));
        }
    }

    fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.content.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.content.push(number as u8);
    }

    fn numbers(&mut self, numbers: &[u64]) {
        self.number(numbers.len() as u64);
        numbers.iter().for_each(|number| self.number(*number));
    }

    fn difference(&mut self, number: u64, previous: &mut u64) {
        let difference = number.wrapping_sub(*previous) as i64;
        self.number(((difference << 1) ^ (difference >> 63)) as u64);
        *previous = number;
    }

    fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.content.extend(text.as_bytes());
    }

    /// Writes a text, without the bytes that it shares with the beginning and the end of the previous text.
    fn shared(&mut self, text: &str, previous: &mut Vec<u8>, expanded: &mut usize) {
        let text = text.as_bytes();
        let is_same = |(a, b): &(&u8, &u8)| a == b;
        let start = text.iter().zip(previous.iter()).take_while(is_same).count();
        let (text_rest, previous_rest) = (&text[start..], &previous[start..]);
        let end = text_rest.iter().rev().zip(previous_rest.iter().rev()).take_while(is_same).count();
        *expanded += text.len();
        // The three numbers take at least one byte each.
        let max = (self.content.len() + 3 + text.len() - start - end).saturating_mul(MAX_EXPANSION);
        let (start, end) = if *expanded <= max { (start, end) } else { (0, 0) };
        self.number(start as u64);
        self.number(end as u64);
        let middle = &text[start..text.len() - end];
        self.number(middle.len() as u64);
        self.content.extend(middle);
        text.clone_into(previous);
    }
}
