//! Finds out where the samples of one shard are, and fetches as little of it as is worth while.
//!
//! A shard is read in windows, each of which is one request. Where bodies are small, windows follow one
//! another and double, as far as one request may go: their headers are so close together that passing over
//! what lies between would take longer than receiving it. Where a body reaches far beyond its window, the
//! next window begins behind it, and is small.

use super::select::Filter;
use super::selection::SelectionBuilder;
use super::{LayoutBuilder, ShardIndex, checksum_of};
use crate::error::{Error, ErrorKind, Result};
use crate::store::{Body, ObjectVersion, Store};
use crate::tar::{Limits, Outline, Outlined, Parsed, SampleParser};
use bytes::Bytes;
use std::collections::VecDeque;

/// The first window, and the first one behind a large body.
const SMALL: u64 = 64 << 10;
/// The largest window: what a [`Store`] asks for in one request, unless told otherwise.
const LARGE: u64 = 8 << 20;
/// A body that reaches further than this beyond the window is worth a new request: it would take about as
/// long to receive that many bytes.
const JUMP: u64 = 1 << 20;

/// What is noted of each sample, beside where it is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted<'a> {
    /// Its checksum.
    pub(super) checksums: bool,
    /// Whether it is selected.
    pub(super) filter: Option<&'a Filter>,
}

impl Wanted<'_> {
    /// Whether the samples' bodies are read for it.
    fn is_whole(self) -> bool {
        self.checksums || self.filter.is_some()
    }
}

/// What was noted of a sample.
#[derive(Debug, Clone, Copy)]
struct Note {
    checksum: Option<u32>,
    is_selected: bool,
}

/// Indexes the shard at `url`; for [`Wanted`] bodies it is read whole. `keys` takes each key.
///
/// # Errors
/// Whatever reading the shard would meet: the first fault of any sample; and a panic of the filter.
pub(super) fn scan(
    store: &Store,
    url: &str,
    limits: Limits,
    wanted: Wanted<'_>,
    mut keys: Option<&mut dyn FnMut(&str)>,
) -> Result<ShardIndex> {
    let outline = Outline::new(url).with_limits(limits);
    let parser = wanted.is_whole().then(|| SampleParser::new(url).with_limits(limits));
    let mut machines = Machines { wanted, outline, parser, notes: VecDeque::new(), fault: None };
    let mut windows = match Windows::open(store, url) {
        // A compressed shard has no ranges, and its samples no place in the object.
        Err(error) if matches!(error.kind(), ErrorKind::Unsupported(_)) => Windows::whole(store, url, true)?,
        Ok(_) if wanted.is_whole() => Windows::whole(store, url, false)?,
        windows => windows?,
    };
    let mut layout = LayoutBuilder::default();
    let mut selection = wanted.filter.map(|filter| SelectionBuilder::new(filter.name().clone()));
    loop {
        match machines.outline.next()? {
            Outlined::NeedInput => windows.feed(&mut machines)?,
            Outlined::Sample(sample) => {
                layout.push_outline(&sample);
                let note = machines.note()?;
                let is_selected = note.is_none_or(|note| note.is_selected || selection.is_none());
                if let Some(keys) = keys.as_deref_mut().filter(|_| is_selected) {
                    keys(&sample.key);
                }
                if let Some(Note { checksum, is_selected }) = note {
                    checksum.into_iter().for_each(|checksum| layout.push_checksum(checksum));
                    if let Some(selection) = &mut selection {
                        selection.push(is_selected);
                    }
                }
            }
            Outlined::End => break,
        }
    }
    let outline = machines.outline;
    let seekable = outline.seekable() && !windows.compressed;
    let object = windows.object.unwrap_or_default();
    // Where the source does not say it, the size is what came, which was all of it.
    let bytes = object.size.or((!windows.compressed).then_some(windows.at));
    let shard = ShardIndex::new(url, bytes, object.version.as_deref(), layout.finish(seekable));
    Ok(match selection {
        Some(selection) => shard.with_selection(selection.finish()),
        None => shard,
    })
}

/// What takes in the bytes: the outline, and for what is noted of bodies the parser, to which the same bytes
/// give the same samples. The parser takes them in at once, so that it holds no more than one sample.
struct Machines<'a> {
    wanted: Wanted<'a>,
    outline: Outline,
    parser: Option<SampleParser>,
    /// Of samples that the parser has given, and the outline has not.
    notes: VecDeque<Note>,
    /// What the parser found wrong, which the outline finds too, or a panic of the filter.
    fault: Option<Error>,
}

impl Machines<'_> {
    fn push(&mut self, chunk: Bytes) {
        if let Some(parser) = &mut self.parser {
            parser.push(chunk.clone());
        }
        self.outline.push(chunk);
        self.parse();
    }

    fn finish(&mut self) {
        if let Some(parser) = &mut self.parser {
            parser.finish();
        }
        self.outline.finish();
        self.parse();
    }

    fn parse(&mut self) {
        let Some(parser) = &mut self.parser else { return };
        let Wanted { checksums, filter } = self.wanted;
        let fault = loop {
            match parser.next() {
                Ok(Parsed::Sample(sample)) => {
                    let is_selected = match filter.map_or(Ok(true), |filter| filter.selects(&sample)) {
                        Ok(is_selected) => is_selected,
                        Err(error) => break error,
                    };
                    let checksum = checksums.then(|| checksum_of(&sample));
                    self.notes.push_back(Note { checksum, is_selected });
                }
                Ok(Parsed::NeedInput | Parsed::End) => return,
                Err(error) => break error,
            }
        };
        self.fault = Some(fault);
        self.parser = None;
    }

    /// What was noted of the sample that the outline gave last, where anything is wanted.
    fn note(&mut self) -> Result<Option<Note>> {
        match (self.notes.pop_front(), self.fault.take()) {
            (None, Some(fault)) => Err(fault),
            (note, fault) => {
                self.fault = fault;
                Ok(note)
            }
        }
    }
}

/// Where the bytes come from.
struct Windows<'a> {
    store: &'a Store,
    url: &'a str,
    compressed: bool,
    body: Body,
    /// The offset of the next byte of the body, and that at which its window ends.
    at: u64,
    end: u64,
    /// The size of the window.
    size: u64,
    /// What the first window said of the object; the others must say the same.
    object: Option<ObjectVersion>,
}

impl<'a> Windows<'a> {
    fn open(store: &'a Store, url: &'a str) -> Result<Self> {
        let body = store.open_range(url, 0..SMALL)?;
        Ok(Windows { store, url, compressed: false, body, at: 0, end: SMALL, size: SMALL, object: None })
    }

    /// One window over all of the object, decompressed.
    fn whole(store: &'a Store, url: &'a str, compressed: bool) -> Result<Self> {
        let body = store.open(url)?;
        Ok(Windows { store, url, compressed, body, at: 0, end: u64::MAX, size: u64::MAX, object: None })
    }

    /// Gives the outline what it needs next.
    fn feed(&mut self, machines: &mut Machines<'_>) -> Result<()> {
        let outline = &mut machines.outline;
        if outline.wanted() >= self.end && !self.next(outline)? {
            machines.finish();
            return Ok(());
        }
        match self.body.next() {
            Some(chunk) => {
                let chunk = chunk.map_err(|error| outline.broken(error))?;
                self.check()?;
                self.at += chunk.len() as u64;
                machines.push(chunk);
            }
            None if self.at < self.end => machines.finish(),
            None => {}
        }
        Ok(())
    }

    /// Opens the next window. False where the object ends before it.
    fn next(&mut self, outline: &mut Outline) -> Result<bool> {
        let pinned = self.object.as_ref().filter(|object| object.version.is_some());
        let ranged = pinned.filter(|_| !self.body.object_cell().is_unranged());
        let Some(length) = ranged.and_then(|object| object.size) else {
            // That several requests give the same object cannot be checked, or each one would give it from
            // its beginning: there is one more, for all the rest.
            self.end = u64::MAX;
            self.body = self.store.open_range(self.url, self.at..self.end)?;
            return Ok(true);
        };
        let wanted = outline.wanted();
        self.size = match wanted > self.end.saturating_add(JUMP) {
            true => SMALL,
            false => (self.size * 2).min(LARGE),
        };
        self.at = wanted.min(length);
        self.end = self.at.saturating_add(self.size).min(length);
        outline.skip_to(self.at);
        if self.at < length {
            self.body = self.store.open_range(self.url, self.at..self.end)?;
        }
        Ok(self.at < length)
    }

    /// Checks that the body is still that of the object with which the reading began.
    fn check(&mut self) -> Result<()> {
        let now = self.body.object();
        match (&self.object, now) {
            (None, now) => self.object = now,
            (Some(before), Some(after)) if *before != after => {
                let shown = |object: &ObjectVersion| {
                    let version = object.version.as_deref().unwrap_or("none");
                    object.size.map_or_else(|| version.to_owned(), |size| format!("{version}, {size} bytes"))
                };
                let (before, after) = (shown(before), shown(&after));
                return Err(Error::from(ErrorKind::Changed { before, after }).in_shard(self.url));
            }
            _ => {}
        }
        Ok(())
    }
}
