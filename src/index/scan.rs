//! Indexes one tar shard. Only the bytes that are needed for the index are fetched.
//!
//! A shard is read in windows of one request each. A window begins at the next byte that is needed. If the
//! bodies of members are small, receiving them takes less time than skipping them. Each window is then twice
//! as large as the previous one, up to `MAX_WINDOW`. If a body ends far after the end of its window, the next
//! window is small.

use super::sample_filter::SampleFilter;
use super::selection::SelectionBuilder;
use super::{LayoutBuilder, ShardIndex, checksum_of};
use crate::error::{Error, ErrorKind, FailureClass, Result};
use crate::store::{Body, ObjectVersion, Store};
use crate::tar::{Limits, Outline, Parsed, SampleParser};
use bytes::Bytes;
use std::collections::VecDeque;

/// Size in bytes of the first window, and of each window that follows a large body: see `MIN_GAP`.
const MIN_WINDOW: u64 = 64 << 10;
/// Size in bytes of the largest window: as large as the smallest requests that a [`Store`] sends by default.
const MAX_WINDOW: u64 = 8 << 20;
/// If a member's content ends more than this number of bytes after its window, the next window is small.
/// Receiving this many bytes takes about as long as a new request.
const MIN_GAP: u64 = 1 << 20;

/// What to compute for each sample, in addition to its offsets.
#[derive(Clone, Copy)]
pub(super) struct Wanted<'a> {
    /// The checksum of each sample.
    pub(super) checksums: bool,
    /// Whether each sample is selected.
    pub(super) filter: Option<&'a SampleFilter>,
    /// If this function is set and bodies are not needed, damaged samples are left out, and the function is
    /// called with the error of each damaged sample. Otherwise damage is an error of the scan.
    pub(super) on_damage: Option<&'a (dyn Fn(&Error) + Send + Sync)>,
}

impl Wanted<'_> {
    /// Whether the samples' bodies are needed.
    pub(super) fn is_whole(self) -> bool {
        self.checksums || self.filter.is_some()
    }

    /// Whether the sample with this error is left out because it is damaged. If so, calls `on_damage` with
    /// the error.
    pub(super) fn leaves_out(self, error: &Error) -> bool {
        let is_damage = error.kind().failure_class() == Some(FailureClass::Damage);
        // If bodies are needed, damaged samples are never left out: the outline and the parser of `Parsers`
        // must return the same samples.
        let Some(on_damage) = self.on_damage.filter(|_| is_damage && !self.is_whole()) else { return false };
        on_damage(error);
        true
    }
}

/// What was computed from the body of a sample.
#[derive(Debug, Clone, Copy)]
struct SampleNote {
    checksum: Option<u32>,
    is_selected: bool,
}

/// Indexes the shard at `url`. Reads it whole if [`Wanted`] needs bodies. Calls `keys` with the key of each
/// sample.
///
/// # Errors
/// The first error that reading the shard would return, and an error or panic of the filter.
pub(super) fn scan(
    store: &Store,
    url: &str,
    limits: Limits,
    wanted: Wanted<'_>,
    mut keys: Option<&mut dyn FnMut(&str)>,
) -> Result<ShardIndex> {
    let outline = Outline::new(url).with_limits(limits);
    let parser = wanted.is_whole().then(|| SampleParser::new(url).with_limits(limits));
    let mut parsers = Parsers { wanted, outline, parser, notes: VecDeque::new(), fault: None };
    let mut windows = match Windows::open(store, url) {
        // A compressed shard cannot be read in ranges, and its samples have no offsets in the object.
        Err(error) if matches!(error.kind(), ErrorKind::Unsupported(_)) => Windows::whole(store, url, true)?,
        Ok(_) if wanted.is_whole() => Windows::whole(store, url, false)?,
        windows => windows?,
    };
    let mut layout = LayoutBuilder::default();
    let mut selection = wanted.filter.map(|filter| SelectionBuilder::new(filter.name().clone()));
    let mut lost = LostSamples::new(wanted);
    loop {
        let outlined = match parsers.outline.next() {
            Err(error) if wanted.leaves_out(&error) => {
                lost.any = true;
                continue;
            }
            outlined => outlined?,
        };
        match outlined {
            Parsed::NeedInput => match windows.feed(&mut parsers) {
                Err(error) if wanted.leaves_out(&error) => {
                    lost.any = true;
                    break;
                }
                fed => fed?,
            },
            Parsed::Sample(sample) => {
                lost.before(sample.number, &mut layout);
                layout.push_outline(&sample);
                let note = parsers.note()?;
                let is_selected = note.is_none_or(|note| note.is_selected || selection.is_none());
                if let Some(keys) = keys.as_deref_mut().filter(|_| is_selected) {
                    keys(&sample.key);
                }
                if let Some(SampleNote { checksum, is_selected }) = note {
                    checksum.into_iter().for_each(|checksum| layout.push_checksum(checksum));
                    if let Some(selection) = &mut selection {
                        selection.push(is_selected);
                    }
                }
            }
            Parsed::End => break,
        }
    }
    lost.at_end(&mut layout);
    let selection = selection.or(lost.selection.filter(|_| lost.any));
    let outline = parsers.outline;
    let seekable = outline.seekable() && !windows.compressed;
    let object = windows.object.unwrap_or_default();
    // If the source did not report the size, the whole object was read, and its size is the number of bytes
    // that were read.
    let bytes = object.size.or((!windows.compressed).then_some(windows.at));
    let shard = ShardIndex::new(url, bytes, object.version.as_deref(), layout.finish(seekable));
    Ok(match selection {
        Some(selection) => shard.with_selection(selection.finish()),
        None => shard,
    })
}

/// Adds damaged samples to the layout as samples without members, so that the samples after them keep their
/// numbers in the archive.
pub(super) struct LostSamples {
    /// Whether samples were left out.
    pub(super) any: bool,
    /// Selects the undamaged samples; `None` if damaged samples may not be left out.
    pub(super) selection: Option<SelectionBuilder>,
}

impl LostSamples {
    pub(super) fn new(wanted: Wanted<'_>) -> Self {
        let selection = wanted.on_damage.map(|_| SelectionBuilder::new("undamaged".into()));
        LostSamples { any: false, selection }
    }

    /// Called before the sample with this number is added to the layout. Adds the damaged samples before it
    /// to the layout. In the selection, these damaged samples are not selected, and the sample itself is.
    pub(super) fn before(&mut self, number: u64, layout: &mut LayoutBuilder) {
        let Some(selection) = &mut self.selection else { return };
        while layout.samples() < number {
            layout.push_lost();
            selection.push(false);
        }
        selection.push(true);
    }

    /// Called at the end. If samples were left out, adds a sample without members after the last undamaged
    /// sample. Without this addition, the range of that sample would reach to the end of the shard.
    pub(super) fn at_end(&mut self, layout: &mut LayoutBuilder) {
        if let Some(selection) = self.selection.as_mut().filter(|_| self.any) {
            layout.push_lost();
            selection.push(false);
        }
    }
}

/// Parses the bytes of the shard. The outline finds the samples. If bodies are needed, a parser also reads
/// the same samples from the same bytes. The parser consumes each chunk immediately, so it holds at most one
/// sample.
struct Parsers<'a> {
    wanted: Wanted<'a>,
    outline: Outline,
    parser: Option<SampleParser>,
    /// Notes of the samples that the parser has returned but the outline has not returned yet.
    notes: VecDeque<SampleNote>,
    /// The error of the filter or of the parser. `note` returns it after the last note. If the parser fails,
    /// the outline returns the same error.
    fault: Option<Error>,
}

impl Parsers<'_> {
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
        let Wanted { checksums, filter, .. } = self.wanted;
        let fault = loop {
            match parser.next() {
                Ok(Parsed::Sample(sample)) => {
                    let is_selected = match filter.map_or(Ok(true), |filter| filter.selects(&sample)) {
                        Ok(is_selected) => is_selected,
                        Err(error) => break error,
                    };
                    let checksum = checksums.then(|| checksum_of(&sample));
                    self.notes.push_back(SampleNote { checksum, is_selected });
                }
                Ok(Parsed::NeedInput | Parsed::End) => return,
                Err(error) => break error,
            }
        };
        self.fault = Some(fault);
        self.parser = None;
    }

    /// The note of the sample that the outline returned last; `None` if no bodies are needed.
    fn note(&mut self) -> Result<Option<SampleNote>> {
        match (self.notes.pop_front(), self.fault.take()) {
            (None, Some(fault)) => Err(fault),
            (note, fault) => {
                self.fault = fault;
                Ok(note)
            }
        }
    }
}

/// Reads the object of a shard in windows.
struct Windows<'a> {
    store: &'a Store,
    url: &'a str,
    compressed: bool,
    /// The body of the current window.
    body: Body,
    /// The offset of the body's next byte.
    at: u64,
    /// The offset at which the current window ends.
    end: u64,
    size: u64,
    /// The size and version of the object in the first window. All windows must be of the same object.
    object: Option<ObjectVersion>,
}

impl<'a> Windows<'a> {
    fn open(store: &'a Store, url: &'a str) -> Result<Self> {
        let body = store.open_range(url, 0..MIN_WINDOW, &ObjectVersion::any())?;
        Ok(Windows {
            store,
            url,
            compressed: false,
            body,
            at: 0,
            end: MIN_WINDOW,
            size: MIN_WINDOW,
            object: None,
        })
    }

    /// One window over the whole object, decompressed.
    fn whole(store: &'a Store, url: &'a str, compressed: bool) -> Result<Self> {
        let body = store.open(url)?;
        Ok(Windows { store, url, compressed, body, at: 0, end: u64::MAX, size: u64::MAX, object: None })
    }

    /// Pushes the next bytes that the outline needs.
    fn feed(&mut self, parsers: &mut Parsers<'_>) -> Result<()> {
        let outline = &mut parsers.outline;
        if outline.wanted() >= self.end && !self.next(outline)? {
            parsers.finish();
            return Ok(());
        }
        match self.body.next() {
            Some(chunk) => {
                let chunk = chunk.map_err(|error| outline.broken(error))?;
                if !self.check()? {
                    return Ok(());
                }
                self.at += chunk.len() as u64;
                parsers.push(chunk);
            }
            None if self.at < self.end => parsers.finish(),
            None => {}
        }
        Ok(())
    }

    /// Opens the next window. Returns false if the object ends before it.
    fn next(&mut self, outline: &mut Outline) -> Result<bool> {
        let Some(object) = &self.object else { return Ok(false) };
        let Some(length) = object.size else { return Ok(false) };
        let wanted = outline.wanted();
        self.size = match wanted > self.end.saturating_add(MIN_GAP) {
            true => MIN_WINDOW,
            false => (self.size * 2).min(MAX_WINDOW),
        };
        self.at = wanted.min(length);
        self.end = self.at.saturating_add(self.size).min(length);
        outline.skip_to(self.at);
        if self.at < length {
            self.body = self.store.open_range(self.url, self.at..self.end, object)?;
        }
        Ok(self.at < length)
    }

    /// Checks that the current window is of the same object as the first window.
    ///
    /// Returns false if the whole object was requested again, in one window. That happens in two cases. In
    /// the first case, the object may be larger than the first window, and its size or a strong version is
    /// unknown, so it cannot be checked that several windows are of the same object. In the second case, the
    /// object is larger than the first window, and the server ignores ranges, so each window would transfer
    /// all bytes before it.
    fn check(&mut self) -> Result<bool> {
        let now = self.body.object().unwrap_or_default();
        let Some(before) = &self.object else {
            let may_have_more =
                now.size.is_some() && now.is_strong() && !self.body.object_cell().is_unranged();
            if !may_have_more && now.size.unwrap_or(u64::MAX) > self.end {
                self.end = u64::MAX;
                self.body = self.store.open_range(self.url, 0..self.end, &ObjectVersion::any())?;
                return Ok(false);
            }
            self.object = Some(now);
            return Ok(true);
        };
        // An object without a strong version is read in one response: there are no windows to compare.
        match !before.is_strong() || before.compare(&now).is_same() {
            true => Ok(true),
            false => Err(before.changed_to(&now).in_shard(self.url)),
        }
    }
}
