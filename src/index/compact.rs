//! An index in a compact form: some 15 bytes for each shard, beside its layout.
//!
//! ```text
//! 89 53 48 49 44 58 0d 0a   what it begins with
//! 01                        the version of the form
//! frames                    until as many shards have been read as the first one says
//! ```
//!
//! A frame is the length and the CRC-32C of its content, as 4 bytes each (little-endian), and the content.
//! The content of the first frame is the number of shards, that of the others is whole shards, one after the
//! other. All numbers are LEB128. Of a shard there are
//!
//! - a byte of flags: 1 for a size, 2 for a version, 4 for a layout, 8 for a selection;
//! - its URL, as the numbers of bytes that it shares with the beginning and the end of the one before in the
//!   frame, and what is between them; then the number of samples, as the difference (zigzag) from the one
//!   before in the frame;
//! - what the flags say: the size as the difference from the last one in the frame, the version in the manner
//!   of the URL, the parts of the [JSON document](super::Index) of the layout and of the selection, each list
//!   with its length.
//!
//! Texts that share their ends could be made to claim any amount of memory, so they may be no more than
//! [`MOST_EXPANDED`] times as long as the content of the frame up to there: a writer shares nothing where
//! they would be.

use super::ShardIndex;
use super::entry::{Entry, MAX_SHARDS};
use super::layout::LayoutDocument;
use super::selection::SelectionDocument;
use crate::error::{ErrorKind, Result};
use std::fmt::Write as _;

pub(super) const MAGIC: &[u8] = b"\x89SHIDX\r\n";

const VERSION: u8 = 1;

/// What is added to names of documents in this form.
pub(super) const SUFFIX: &str = ".shidx";

/// Size at which a frame is closed, in bytes.
const FRAME: usize = 64 << 10;

/// The longest frame that is read: the layout of one shard of some hundred million samples.
const MAX_FRAME: usize = 1 << 30;

const MOST_EXPANDED: usize = 64;

/// Most shards that room is made for at once, whatever the document claims.
const MAX_RESERVED: usize = 1 << 20;

const SIZE: u8 = 1;
const VERSIONED: u8 = 2;
const LAYOUT: u8 = 4;
const SELECTION: u8 = 8;

/// Writes shards, in pieces of the document.
pub(super) fn write(
    count: usize,
    shards: impl Iterator<Item = Entry>,
    mut out: impl FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    out(MAGIC)?;
    out(&[VERSION])?;
    let mut frame = Frame::default();
    frame.number(count as u64);
    frame.end(&mut out)?;
    for shard in shards {
        frame.shard(&shard);
        if frame.content.len() >= FRAME {
            frame.end(&mut out)?;
        }
    }
    if !frame.content.is_empty() {
        frame.end(&mut out)?;
    }
    Ok(())
}

/// What the shard before has said in the same frame.
#[derive(Default)]
struct Before {
    url: Vec<u8>,
    version: Vec<u8>,
    samples: u64,
    bytes: u64,
    /// The length of all texts that may be shared.
    expanded: usize,
}

#[derive(Default)]
struct Frame {
    content: Vec<u8>,
    before: Before,
}

impl Frame {
    fn end(&mut self, out: &mut impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let length = u32::try_from(self.content.len()).ok().filter(|length| *length as usize <= MAX_FRAME);
        let Some(length) = length else {
            let (size, limit) = (self.content.len() as u64, MAX_FRAME as u64);
            return Err(ErrorKind::TooLarge { what: "a shard in a compact index", size, limit }.into());
        };
        out(&length.to_le_bytes())?;
        out(&crc32c::crc32c(&self.content).to_le_bytes())?;
        out(&self.content)?;
        self.content.clear();
        self.before = Before::default();
        Ok(())
    }

    fn shard(&mut self, shard: &Entry) {
        let flags = [
            (SIZE, shard.filesize.is_some()),
            (VERSIONED, shard.version.is_some()),
            (LAYOUT, shard.layout.is_some()),
            (SELECTION, shard.select.is_some()),
        ];
        self.content.push(flags.iter().filter(|(_, is)| *is).map(|(flag, _)| flag).sum());
        let mut before = std::mem::take(&mut self.before);
        self.shared(&shard.url, &mut before.url, &mut before.expanded);
        self.difference(shard.nsamples, &mut before.samples);
        if let Some(bytes) = shard.filesize {
            self.difference(bytes, &mut before.bytes);
        }
        if let Some(version) = &shard.version {
            self.shared(version, &mut before.version, &mut before.expanded);
        }
        self.before = before;
        if let Some(layout) = &shard.layout {
            self.layout(layout);
        }
        if let Some(select) = &shard.select {
            self.text(&select.name);
            self.numbers(&select.runs);
        }
    }

    fn layout(&mut self, layout: &LayoutDocument) {
        self.content.push(u8::from(layout.seekable) | u8::from(layout.crc32c.is_some()) << 1);
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

    fn difference(&mut self, number: u64, before: &mut u64) {
        let difference = number.wrapping_sub(*before) as i64;
        self.number(((difference << 1) ^ (difference >> 63)) as u64);
        *before = number;
    }

    fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.content.extend(text.as_bytes());
    }

    /// A text that may share its ends with the one before.
    fn shared(&mut self, text: &str, before: &mut Vec<u8>, expanded: &mut usize) {
        let text = text.as_bytes();
        let alike = |(a, b): &(&u8, &u8)| a == b;
        let start = text.iter().zip(before.iter()).take_while(alike).count();
        let rest = (&text[start..], &before[start..]);
        let end = rest.0.iter().rev().zip(rest.1.iter().rev()).take_while(alike).count();
        *expanded += text.len();
        // The three numbers take a byte at least.
        let most = (self.content.len() + 3 + text.len() - start - end).saturating_mul(MOST_EXPANDED);
        let (start, end) = if *expanded <= most { (start, end) } else { (0, 0) };
        self.number(start as u64);
        self.number(end as u64);
        let middle = &text[start..text.len() - end];
        self.number(middle.len() as u64);
        self.content.extend(middle);
        text.clone_into(before);
    }
}

/// Reads the document in pieces, as they come.
#[derive(Default)]
pub(super) struct Reader {
    /// What has come and is no whole frame yet.
    pending: Vec<u8>,
    begun: bool,
    /// How many shards there are to be.
    count: Option<usize>,
    shards: Vec<ShardIndex>,
}

impl Reader {
    /// Takes in more bytes. `resolve` says where a shard is that is named so.
    pub(super) fn push(&mut self, bytes: &[u8], resolve: impl Fn(ShardIndex) -> ShardIndex) -> Result<()> {
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
                None => return damaged("it does not begin as one"),
            }
            (self.begun, rest) = (true, after);
        }
        while let Some((length, after)) = rest.split_first_chunk::<4>() {
            let length = u32::from_le_bytes(*length) as usize;
            if length > MAX_FRAME {
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

    /// The shards, when all bytes have come.
    pub(super) fn finish(self) -> Result<Vec<ShardIndex>> {
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
        let mut content = Content { content, at: 0 };
        let Some(count) = self.count else {
            let count = usize::try_from(content.number()?).unwrap_or(usize::MAX);
            if count > MAX_SHARDS {
                return Err("there are more than 10 million shards".into());
            }
            self.count = Some(count);
            self.shards.reserve_exact(count.min(MAX_RESERVED));
            return content.is_empty().then_some(()).ok_or_else(|| "more than a number of shards".into());
        };
        if content.is_empty() {
            return Err("an empty frame".into());
        }
        let mut before = Before::default();
        while !content.is_empty() {
            if self.shards.len() == count {
                return Err("more shards than it says".into());
            }
            self.shards.push(resolve(content.shard(&mut before)?.try_into()?));
        }
        Ok(())
    }
}

fn damaged<T>(what: impl std::fmt::Display) -> Result<T> {
    Err(ErrorKind::Index(format!("the compact index is damaged: {what}")).into())
}

/// The content of a frame.
struct Content<'a> {
    content: &'a [u8],
    at: usize,
}

type Read<T> = std::result::Result<T, &'static str>;

impl<'a> Content<'a> {
    fn is_empty(&self) -> bool {
        self.at == self.content.len()
    }

    fn left(&self) -> usize {
        self.content.len() - self.at
    }

    fn bytes(&mut self, length: usize) -> Read<&'a [u8]> {
        let bytes = self
            .content
            .get(self.at..)
            .and_then(|rest| rest.get(..length))
            .ok_or("a frame ends too early")?;
        self.at += length;
        Ok(bytes)
    }

    fn byte(&mut self) -> Read<u8> {
        Ok(self.bytes(1)?[0])
    }

    fn number(&mut self) -> Read<u64> {
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

    /// The length of a list whose items take at least this many bytes.
    fn length(&mut self, each: usize) -> Read<usize> {
        let length = usize::try_from(self.number()?).unwrap_or(usize::MAX);
        if length > self.left() / each { Err("a list that is longer than its frame") } else { Ok(length) }
    }

    fn numbers(&mut self) -> Read<Vec<u64>> {
        (0..self.length(1)?).map(|_| self.number()).collect()
    }

    fn difference(&mut self, before: &mut u64) -> Read<u64> {
        let number = self.number()?;
        let difference = (number >> 1) ^ (number & 1).wrapping_neg();
        *before = before.wrapping_add(difference);
        Ok(*before)
    }

    fn text(&mut self) -> Read<&'a str> {
        let length = self.length(1)?;
        utf8(self.bytes(length)?)
    }

    fn shared(&mut self, before: &mut Vec<u8>, expanded: &mut usize) -> Read<Box<str>> {
        let [start, end] =
            [self.number()?, self.number()?].map(|shared| usize::try_from(shared).unwrap_or(usize::MAX));
        if start.checked_add(end).is_none_or(|shared| shared > before.len()) {
            return Err("a text shares more than there is");
        }
        let length = self.length(1)?;
        let middle = self.bytes(length)?;
        *expanded += start + length + end;
        if *expanded > self.at.saturating_mul(MOST_EXPANDED) {
            return Err("texts that are too long for their frame");
        }
        let mut text = Vec::with_capacity(start + length + end);
        text.extend_from_slice(&before[..start]);
        text.extend_from_slice(middle);
        text.extend_from_slice(&before[before.len() - end..]);
        *before = text;
        Ok(utf8(before)?.into())
    }

    fn shard(&mut self, before: &mut Before) -> Read<Entry> {
        let flags = self.byte()?;
        if flags > SIZE | VERSIONED | LAYOUT | SELECTION {
            return Err("a flag that is not known");
        }
        let has = |flag: u8| flags & flag != 0;
        let url = self.shared(&mut before.url, &mut before.expanded)?;
        let nsamples = self.difference(&mut before.samples)?;
        let filesize = has(SIZE).then(|| self.difference(&mut before.bytes)).transpose()?;
        let version =
            has(VERSIONED).then(|| self.shared(&mut before.version, &mut before.expanded)).transpose()?;
        let layout = has(LAYOUT).then(|| self.layout()).transpose()?;
        let select = has(SELECTION).then(|| self.selection()).transpose()?;
        Ok(Entry { url, nsamples, filesize, version, layout, select })
    }

    fn layout(&mut self) -> Read<LayoutDocument> {
        let flags = self.byte()?;
        if flags > 3 {
            return Err("a flag that is not known");
        }
        let fields = (0..self.length(1)?).map(|_| self.text().map(Into::into)).collect::<Read<_>>()?;
        let shapes = (0..self.length(1)?).map(|_| self.numbers()).collect::<Read<_>>()?;
        let (runs, sizes) = (self.numbers()?, self.numbers()?);
        let crc32c = (flags & 2 != 0).then(|| self.checksums()).transpose()?;
        Ok(LayoutDocument { seekable: flags & 1 != 0, fields, shapes, runs, sizes, crc32c })
    }

    fn checksums(&mut self) -> Read<Box<str>> {
        let length = self.length(4)?;
        let (sums, _) = self.bytes(4 * length)?.as_chunks::<4>();
        let mut text = String::with_capacity(8 * length);
        for sum in sums {
            // Writing to a text never fails.
            let _ = write!(text, "{:08x}", u32::from_le_bytes(*sum));
        }
        Ok(text.into())
    }

    fn selection(&mut self) -> Read<SelectionDocument> {
        Ok(SelectionDocument { name: self.text()?.into(), runs: self.numbers()? })
    }
}

fn utf8(bytes: &[u8]) -> Read<&str> {
    std::str::from_utf8(bytes).map_err(|_| "a text that is no UTF-8")
}

#[cfg(test)]
mod tests {
    use super::super::document::tests::ask_everything;
    use super::super::selection::SelectionBuilder;
    use super::super::{Index, LayoutBuilder};
    use super::*;
    use proptest::prelude::*;

    fn written(index: &Index) -> Vec<u8> {
        let mut bytes = Vec::new();
        let entries = index.iter().cloned().map(Entry::from);
        let out = |piece: &[u8]| {
            bytes.extend_from_slice(piece);
            Ok(())
        };
        write(index.len(), entries, out).unwrap();
        bytes
    }

    /// A document of these frames, with the checksums that they should have.
    fn document(frames: &[&[u8]]) -> Vec<u8> {
        let mut bytes = [MAGIC, &[VERSION]].concat();
        for content in frames {
            bytes.extend((content.len() as u32).to_le_bytes());
            bytes.extend(crc32c::crc32c(content).to_le_bytes());
            bytes.extend_from_slice(content);
        }
        bytes
    }

    /// The contents of the frames of a document.
    fn frames(mut bytes: &[u8]) -> Vec<Vec<u8>> {
        bytes = &bytes[MAGIC.len() + 1..];
        let mut frames = Vec::new();
        while let Some((length, rest)) = bytes.split_first_chunk::<4>() {
            let (content, rest) = rest[4..].split_at(u32::from_le_bytes(*length) as usize);
            frames.push(content.to_vec());
            bytes = rest;
        }
        frames
    }

    fn said(bytes: &[u8]) -> String {
        let error = Index::from_compact(bytes, "").unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Index(_)), "{error}");
        error.to_string()
    }

    #[derive(Debug, Clone)]
    struct Made {
        name: String,
        version: Option<String>,
        /// The sizes of the fields of each sample, with its checksum and whether it is selected.
        samples: Vec<(Vec<u64>, u32, bool)>,
        known: [bool; 4],
    }

    fn made() -> impl Strategy<Value = Made> {
        let sample = (prop::collection::vec(0u64..2000, 1..4), any::<u32>(), any::<bool>());
        let version = prop::option::of("[0-9.é]{0,20}");
        ("[ab/]{0,9}", version, prop::collection::vec(sample, 0..6), any::<[bool; 4]>())
            .prop_map(|(name, version, samples, known)| Made { name, version, samples, known })
    }

    fn index(made: &[Made]) -> Index {
        let shard = |(number, made): (usize, &Made)| {
            let [layout, checksums, selected, size] = made.known;
            let mut builder = LayoutBuilder::default();
            let mut at = 0;
            for (sizes, sum, _) in &made.samples {
                let begin = at;
                let members = ["a", "bb", "c"].into_iter().zip(sizes).map(|(name, &size)| {
                    let offset = at + 512;
                    at = (offset + size).next_multiple_of(512);
                    (name, offset, size)
                });
                let members: Vec<_> = members.collect();
                builder.push(begin, members);
                if checksums {
                    builder.push_checksum(*sum);
                }
            }
            let url = format!("gs://b/{}{number}.tar", made.name);
            let shard = ShardIndex::new(url, Some(at + 1024), made.version.as_deref(), builder.finish(true));
            let mut selection = SelectionBuilder::new("f".into());
            made.samples.iter().for_each(|(_, _, is_selected)| selection.push(*is_selected));
            let shard = if selected { shard.with_selection(selection.finish()) } else { shard };
            let shard = if layout { shard } else { shard.counts() };
            if layout || size { shard } else { ShardIndex { bytes: None, ..shard } }
        };
        made.iter().enumerate().map(shard).collect()
    }

    proptest! {
        #[test]
        fn json_and_the_compact_form_say_the_same(shards in prop::collection::vec(made(), 0..12), cut in 1usize..50) {
            let index = index(&shards);
            let bytes = written(&index);
            prop_assert_eq!(&Index::from_compact(&bytes, "").unwrap(), &index);
            let json: Vec<String> = index.iter().map(|shard| serde_json::to_string(shard).unwrap()).collect();
            let json = format!(r#"{{"wids_version":1,"shardlist":[{}]}}"#, json.join(","));
            prop_assert_eq!(written(&Index::from_json(json.as_bytes(), "").unwrap()), bytes.clone());
            // However it comes.
            let mut reader = Reader::default();
            bytes.chunks(cut).try_for_each(|piece| reader.push(piece, |shard| shard)).unwrap();
            prop_assert_eq!(reader.finish().unwrap().into_iter().collect::<Index>(), index);
        }

        #[test]
        fn any_damage_is_found(
            shards in prop::collection::vec(made(), 1..5), at in any::<prop::sample::Index>(), bit in 0u8..8,
        ) {
            let mut bytes = written(&index(&shards));
            let at = at.index(bytes.len());
            said(&bytes[..at]);
            bytes[at] ^= 1 << bit;
            said(&bytes);
        }

        #[test]
        fn what_anybody_writes_is_an_error_or_sound(
            shards in prop::collection::vec(made(), 1..5),
            damage in prop::collection::vec((any::<prop::sample::Index>(), 0u8..3, any::<u8>()), 1..4),
        ) {
            let mut frames = frames(&written(&index(&shards)));
            for (at, how, byte) in damage {
                let content = &mut frames[1];
                if content.is_empty() {
                    break;
                }
                let at = at.index(content.len());
                match how {
                    0 => drop(content.remove(at)),
                    1 => content.insert(at, byte),
                    _ => content[at] = byte,
                }
            }
            let frames: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
            if let Ok(index) = Index::from_compact(&document(&frames), "") {
                ask_everything(&index);
            }
        }
    }

    #[test]
    fn what_no_writer_writes_is_refused() {
        let shard = b"\0\0\0\x01a\0";
        assert_eq!(Index::from_compact(&document(&[b"\x01", shard]), "d").unwrap().shards()[0], "d/a");
        for (bytes, expected) in [
            (b"".to_vec(), "ends too early"),
            (b"{\"wids_version\":1}".to_vec(), "does not begin"),
            ([MAGIC, &[2]].concat(), "version [2]"),
            (document(&[]), "ends too early"),
            (document(&[b"\x02", shard]), "ends too early"),
            (document(&[b"\0", shard]), "more shards"),
            (document(&[b"\x01\x01", shard]), "a number of shards"),
            (document(&[b"\xff\xff\xff\x7f"]), "10 million"),
            (document(&[b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02"]), "64 bits"),
            (document(&[b"\x01", b""]), "empty frame"),
            (document(&[b"\x01", b"\x10\0\0\x01a\0"]), "a flag"),
            (document(&[b"\x01", b"\0\x01\0\x01a\0"]), "shares more"),
            (document(&[b"\x01", b"\0\0\0\x09a\0"]), "longer than its frame"),
            (document(&[b"\x01", b"\0\0\0\x01\xff\0"]), "UTF-8"),
            (document(&[b"\x01", b"\0\0\0\0\0"]), "URL is empty"),
            ([&document(&[b"\x01"])[..], &[0xff; 8]].concat(), "too long"),
        ] {
            let said = said(&bytes);
            assert!(said.contains(expected), "{said} for {expected}");
        }
        // Two entries of one shard that disagree.
        assert!(said(&document(&[b"\x02", b"\0\0\0\x01a\x02\0\x01\0\0\x02"])).contains("disagree"));
    }

    /// A text of a thousand bytes that each of a thousand shards repeats in five.
    #[test]
    fn texts_cannot_be_made_to_fill_memory() {
        let mut content = b"\0\0\0\xe8\x07".to_vec();
        content.extend([b'a'; 1000]);
        content.push(0);
        for _ in 0..1000 {
            content.extend(b"\0\xe8\x07\0\0\0");
        }
        assert!(said(&document(&[b"\xe9\x07", &content])).contains("too long for their frame"));
        // A writer never comes so far.
        let long = "x".repeat(5000);
        let shards = |number: usize| {
            ShardIndex::new(format!("{long}{number}"), Some(0), None, LayoutBuilder::default().finish(true))
                .counts()
        };
        let index: Index = (0..500).map(shards).collect();
        let bytes = written(&index);
        assert_eq!(Index::from_compact(&bytes, "").unwrap(), index);
        assert!(bytes.len() < 500 * 5000 / 30, "{} bytes", bytes.len());
    }

    #[test]
    fn a_shard_takes_few_bytes() {
        const SHARDS: usize = 20_000;
        let shard = |number: usize| {
            let url = format!("gs://bucket/datasets/train/shard-{number:07}-of-1000000.tar");
            let version = (1_764_000_000_000_000 + 37 * number as u64).to_string();
            let layout = LayoutBuilder::default().finish(true);
            let shard = ShardIndex::new(url, Some(0), Some(&version), layout).counts();
            ShardIndex { samples: 1000, bytes: Some(1_000_000 + number as u64 % 100), ..shard }
        };
        let index: Index = (0..SHARDS).map(shard).collect();
        let bytes = written(&index);
        assert!(bytes.len() < 18 * SHARDS, "{} bytes", bytes.len());
        assert!(frames(&bytes).len() > 3);
        assert_eq!(Index::from_compact(&bytes, "").unwrap(), index);
    }
}
