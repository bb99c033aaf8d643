//! Finds out where the samples of one shard stand, and fetches as little of it as is worth while.
//!
//! A shard is read in windows, each of which is one request. Where bodies are small, windows follow one another and
//! double, as far as one request may go: their headers stand so close together that passing over what lies between would
//! take longer than receiving it. Where a body reaches far beyond its window, the next window begins behind it, and is
//! small.

use super::{LayoutBuilder, ShardIndex, checksum_of};
use crate::error::{Error, ErrorKind, Result};
use crate::store::{Body, ObjectVersion, Store};
use crate::tar::{Limits, Outline, Outlined, Parsed, SampleParser};
use bytes::Bytes;

/// The first window, and the first one behind a large body.
const SMALL: u64 = 64 << 10;
/// The largest window: what a [`Store`] asks for in one request, unless told otherwise.
const LARGE: u64 = 8 << 20;
/// A body that reaches further than this beyond the window is worth a new request: it would take about as long to
/// receive so many bytes.
const JUMP: u64 = 1 << 20;

/// Indexes the shard at `url`; with `checksums` it is read whole.
///
/// # Errors
/// Whatever reading the shard would meet: the first fault of any sample.
pub(super) fn scan(store: &Store, url: &str, limits: Limits, checksums: bool) -> Result<ShardIndex> {
    let outline = Outline::new(url).with_limits(limits);
    let parser = checksums.then(|| SampleParser::new(url).with_limits(limits));
    let mut machines = Machines { outline, parser };
    let mut windows = match Windows::open(store, url) {
        // A compressed shard has no ranges, and its samples no place in the object.
        Err(error) if matches!(error.kind(), ErrorKind::Unsupported(_)) => Windows::whole(store, url, true)?,
        Ok(_) if checksums => Windows::whole(store, url, false)?,
        windows => windows?,
    };
    let mut layout = LayoutBuilder::default();
    loop {
        match machines.outline.next()? {
            Outlined::NeedInput => windows.feed(&mut machines)?,
            Outlined::Sample(sample) => {
                layout.push_outline(&sample);
                if let Some(checksum) = machines.checksum()? {
                    layout.push_checksum(checksum);
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
    Ok(ShardIndex::new(url, bytes, object.version.as_deref(), layout.finish(seekable)))
}

/// What takes in the bytes: the outline, and for checksums the parser, to which the same bytes give the same
/// samples.
struct Machines {
    outline: Outline,
    parser: Option<SampleParser>,
}

impl Machines {
    fn push(&mut self, chunk: Bytes) {
        if let Some(parser) = &mut self.parser {
            parser.push(chunk.clone());
        }
        self.outline.push(chunk);
    }

    fn finish(&mut self) {
        if let Some(parser) = &mut self.parser {
            parser.finish();
        }
        self.outline.finish();
    }

    /// The checksum of the sample that the outline gave last, where checksums are wanted.
    fn checksum(&mut self) -> Result<Option<u32>> {
        Ok(match self.parser.as_mut().map(SampleParser::next).transpose()? {
            Some(Parsed::Sample(sample)) => Some(checksum_of(&sample)),
            _ => None,
        })
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
    fn feed(&mut self, machines: &mut Machines) -> Result<()> {
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
            // That several requests give the same object cannot be checked, or each one would give it from its
            // beginning: there is one more, for all the rest.
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
