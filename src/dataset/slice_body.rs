//! Opens a slice: begins to fetch its bytes, and creates the parser that reads them.

use super::shard_set::ShardSet;
use super::slice_check::Extent;
use crate::error::Result;
use crate::formats::{FormatParser, ParserStart};
use crate::index::ShardIndex;
use crate::plan::Slice;
use crate::secret_url::SecretUrl;
use crate::store::{Body, ObjectVersion, ReadQueue};

/// Number of scattered slices to open ahead of the current one. The default budget has the same number of
/// connections.
const SCATTERED_AHEAD: usize = 64;

/// A slice to open, and what opening it needs.
pub(super) struct OpeningSlice<'a> {
    pub(super) shards: &'a ShardSet,
    pub(super) slice: &'a Slice,
    /// The URL of the slice's shard.
    pub(super) url: &'a SecretUrl,
    pub(super) queue: &'a ReadQueue,
    /// Whether the reader reads small slices that are scattered over the shards.
    pub(super) scattered: bool,
}

/// A slice whose bytes are being fetched.
pub(super) struct SliceBody {
    pub(super) body: Body,
    pub(super) parser: FormatParser,
    pub(super) extent: Extent,
    /// Number of following slices that should be open together with this one.
    pub(super) wanted_ahead: usize,
}

impl OpeningSlice<'_> {
    /// Begins to fetch the slice, and creates its parser from `start`.
    pub(super) fn open(&self, start: ParserStart) -> Result<SliceBody> {
        match self.shards.format.reads_ranges() {
            true => self.open_ranges(start),
            false => self.open_forward(start),
        }
    }

    /// Opens a slice of a format that is read from front to back. If the index has the slice's offset,
    /// reading starts at the slice's first byte, otherwise at the beginning of the shard.
    fn open_forward(&self, mut start: ParserStart) -> Result<SliceBody> {
        let (store, format, samples) = (&self.shards.store, &self.shards.format, &self.slice.samples);
        let (index, url) = (self.index(), self.url.expose_secret());
        let stored = index.map(ShardIndex::stored_samples);
        start.reach = index.filter(|_| stored == Some(samples.end)).and_then(ShardIndex::end);
        // A slice that is the whole shard is read without a range, so that the parser sees the end marker.
        let is_part = |index: &&ShardIndex| samples.start > 0 || samples.end < index.stored_samples();
        let piece = index.filter(is_part);
        let piece = piece.and_then(|index| Some((index, index.stored_range(samples.clone())?)));
        let (mut body, extent) = match piece {
            None => (store.open_in(self.queue, url)?, Extent::Shard(samples.start)),
            Some((index, range)) => {
                (start.sample, start.offset) = (samples.start, range.start);
                start.is_cut = samples.end < index.stored_samples();
                (store.open_range_in(self.queue, url, range)?, Extent::Slice)
            }
        };
        self.settings(extent).apply(&mut body);
        let wanted_ahead = self.wanted_ahead(body.begin(), extent);
        Ok(SliceBody { body, parser: format.parser(self.url, &start), extent, wanted_ahead })
    }

    /// Opens a slice of a format whose parser requests ranges. The parser returns only the samples of the
    /// slice.
    fn open_ranges(&self, mut start: ParserStart) -> Result<SliceBody> {
        let (samples, extent) = (&self.slice.samples, Extent::Slice);
        start.size = self.index().and_then(ShardIndex::bytes);
        start.sample = samples.start;
        start.is_cut = self.index().is_some_and(|index| samples.end < index.stored_samples());
        // The parser of a shard's last slice reads to the end of the shard. So it notices if the shard has
        // more samples than the index says.
        start.end = if start.is_cut { samples.end } else { u64::MAX };
        let parser = self.shards.format.parser(self.url, &start);
        let (url, settings) = (self.url.expose_secret(), self.settings(extent));
        let prepare = move |body: &mut Body| settings.apply(body);
        let store = &self.shards.store;
        let (body, behind) = store.open_ranges_in(self.queue, url, &start.ranges, prepare)?;
        Ok(SliceBody { body, parser, extent, wanted_ahead: self.wanted_ahead(behind, extent) })
    }

    fn index(&self) -> Option<&ShardIndex> {
        self.shards.indexed(self.slice.shard)
    }

    fn settings(&self, extent: Extent) -> BodySettings {
        BodySettings {
            known: self.index().map(|index| index.object_at(self.url.expose_secret())),
            is_repeated: self.shards.is_repeated,
            is_scattered: self.is_scattered(extent),
        }
    }

    fn is_scattered(&self, extent: Extent) -> bool {
        self.scattered && extent == Extent::Slice
    }

    /// Number of slices after this one to open in advance. `behind` is the number that the body's source
    /// recommends.
    fn wanted_ahead(&self, behind: usize, extent: Extent) -> usize {
        match behind {
            0 => 0,
            _ if self.is_scattered(extent) => SCATTERED_AHEAD,
            behind => behind,
        }
    }
}

/// The settings of a body, which are applied before it begins to fetch.
struct BodySettings {
    /// The version of the shard in the index. A cache that has this version does not request the shard's
    /// current version.
    known: Option<ObjectVersion>,
    is_repeated: bool,
    is_scattered: bool,
}

impl BodySettings {
    fn apply(&self, body: &mut Body) {
        if let Some(known) = &self.known {
            body.set_known_version(known.clone());
        }
        if self.is_repeated {
            body.set_repeated();
        }
        if self.is_scattered {
            body.set_scattered();
        }
    }
}
