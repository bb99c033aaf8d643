//! `ShardLayout`: the offsets and sizes of the samples of one archive and of their fields, in few bytes.
//!
//! Most samples of a shard have the same fields, in the same order, with headers of the same length. Such a
//! *shape* is stored once. Consecutive samples with the same shape are stored as one *run*. Only the sizes of
//! fields are stored for each sample; all offsets can be computed from shapes, runs and sizes. So a JSON
//! document is only a little longer than its list of sizes. The documentation of
//! [`Index::save`](super::Index::save) has the sizes of some documents.

mod document;

pub(super) use document::LayoutDocument;

use crate::tar::SampleOutline;
use std::collections::HashMap;
use std::fmt;
use std::ops::Range;

/// Size in bytes of a block of a tar archive. The content of a member is padded to whole blocks.
const BLOCK: u64 = 512;

#[derive(PartialEq, Eq)]
pub(crate) struct ShardLayout {
    fields: Vec<Box<str>>,
    shapes: Vec<SampleShape>,
    runs: Vec<ShapeRun>,
    /// The sizes of all fields of all samples, in the order of the archive.
    sizes: Vec<u64>,
    /// The offset of the first header of each sample.
    offsets: Vec<u64>,
    /// The checksum of each sample; empty if the checksums are unknown.
    checksums: Vec<u32>,
    /// The offset at which the last sample's last member ends, padding included.
    end: u64,
    /// The contents of members are padded to a multiple of this many bytes: 512 in tar archives, 1 in other
    /// formats.
    block: u64,
    /// Whether reading can start at the offset of any sample.
    seekable: bool,
}

/// The shape of a sample: its fields and the lengths of its headers. Many samples have the same shape.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct SampleShape {
    /// The number of bytes between the end of the previous sample and the first header.
    lead: u64,
    /// For each member, the number of its field, and the gap before its content: the number of bytes from the
    /// end of the previous member or, for the first member, from the sample's first header.
    members: Vec<(usize, u64)>,
}

/// Consecutive samples with the same shape.
#[derive(Debug, PartialEq, Eq)]
struct ShapeRun {
    shape: usize,
    /// The number of the run's first sample.
    sample: usize,
    /// The index in `sizes` of the first size of the run's first sample.
    size: usize,
}

impl ShardLayout {
    pub(super) fn samples(&self) -> u64 {
        self.offsets.len() as u64
    }

    pub(super) fn seekable(&self) -> bool {
        self.seekable
    }

    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// The range of bytes from the first header of the first sample to the first header of the sample after
    /// the last one, or to `end`, the size of the archive, if there is none.
    pub(super) fn range(&self, samples: Range<u64>, end: u64) -> Option<Range<u64>> {
        let at = |sample: u64| match usize::try_from(sample).ok()? {
            sample if sample == self.offsets.len() => Some(end),
            sample => self.offsets.get(sample).copied(),
        };
        (samples.start <= samples.end).then_some(at(samples.start)?..at(samples.end)?)
    }

    pub(super) fn size_of(&self, sample: u64) -> Option<u64> {
        let (_, sizes, _) = self.find(sample)?;
        Some(sizes.iter().fold(0, |sum, size| sum.saturating_add(*size)))
    }

    pub(super) fn members(&self, sample: u64) -> Option<impl Iterator<Item = (&str, Range<u64>)>> {
        let (shape, sizes, mut at) = self.find(sample)?;
        Some(shape.members.iter().zip(sizes).map(move |(&(field, gap), &size)| {
            // This cannot overflow: the offsets were checked when the layout was made.
            let offset = at.saturating_add(gap);
            at = padded(offset, size, self.block).unwrap_or(u64::MAX);
            (self.fields.get(field).map_or("", |name| name), offset..offset.saturating_add(size))
        }))
    }

    /// The offset of the first header of a sample.
    pub(super) fn offset_of(&self, sample: u64) -> Option<u64> {
        self.offsets.get(usize::try_from(sample).ok()?).copied()
    }

    /// Whether the checksum of every sample is known.
    pub(super) fn has_checksums(&self) -> bool {
        self.checksums.len() == self.offsets.len()
    }

    pub(super) fn checksum_of(&self, sample: u64) -> Option<u32> {
        self.checksums.get(usize::try_from(sample).ok()?).copied()
    }

    /// The names and sizes of the fields of a sample.
    pub(super) fn fields_of(&self, sample: u64) -> Option<impl ExactSizeIterator<Item = (&str, u64)>> {
        let (shape, sizes, _) = self.find(sample)?;
        let name = |field: usize| self.fields.get(field).map_or("", |name| &**name);
        Some(shape.members.iter().zip(sizes).map(move |(&(field, _), &size)| (name(field), size)))
    }

    /// The shape of a sample, the sizes of its fields, and its offset.
    fn find(&self, sample: u64) -> Option<(&SampleShape, &[u64], u64)> {
        let sample = usize::try_from(sample).ok()?;
        let offset = *self.offsets.get(sample)?;
        let run = self.runs.get(self.runs.partition_point(|run| run.sample <= sample).checked_sub(1)?)?;
        let shape = self.shapes.get(run.shape)?;
        let first = run.size + (sample - run.sample) * shape.members.len();
        Some((shape, self.sizes.get(first..first + shape.members.len())?, offset))
    }
}

/// The offset at which a member ends, padding included. The member's content has `size` bytes and begins at
/// `offset`.
fn padded(offset: u64, size: u64, block: u64) -> Option<u64> {
    offset.checked_add(size)?.checked_next_multiple_of(block)
}

impl fmt::Debug for ShardLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ShardLayout { fields, shapes, end, block, seekable, .. } = self;
        f.debug_struct("Layout")
            .field("samples", &self.samples())
            .field("fields", fields)
            .field("shapes", &shapes.len())
            .field("end", end)
            .field("block", block)
            .field("seekable", seekable)
            .field("checksums", &self.has_checksums())
            .finish_non_exhaustive()
    }
}

/// Builds a [`ShardLayout`] sample by sample.
#[derive(Debug)]
pub(crate) struct LayoutBuilder {
    layout: ShardLayout,
    fields: HashMap<Box<str>, usize>,
    shapes: HashMap<SampleShape, usize>,
}

impl Default for LayoutBuilder {
    /// A builder for a tar archive.
    fn default() -> Self {
        let layout = ShardLayout {
            fields: Vec::new(),
            shapes: Vec::new(),
            runs: Vec::new(),
            sizes: Vec::new(),
            offsets: Vec::new(),
            checksums: Vec::new(),
            end: 0,
            block: BLOCK,
            seekable: true,
        };
        LayoutBuilder { layout, fields: HashMap::new(), shapes: HashMap::new() }
    }
}

impl LayoutBuilder {
    /// A builder for a shard that is not a tar archive: contents are not padded.
    pub(super) fn unpadded() -> Self {
        let builder = LayoutBuilder::default();
        LayoutBuilder { layout: ShardLayout { block: 1, ..builder.layout }, ..builder }
    }

    /// Adds the next sample: the offset of its first header, and the name, offset and size of each field.
    pub(crate) fn push<'a>(&mut self, offset: u64, members: impl IntoIterator<Item = (&'a str, u64, u64)>) {
        let layout = &mut self.layout;
        let lead = offset.saturating_sub(layout.end);
        let mut shape = SampleShape { lead, members: Vec::new() };
        let size = layout.sizes.len();
        let mut at = offset;
        for (name, offset, size) in members {
            let field = match self.fields.get(name) {
                Some(&field) => field,
                None => {
                    layout.fields.push(name.into());
                    self.fields.insert(name.into(), layout.fields.len() - 1);
                    layout.fields.len() - 1
                }
            };
            shape.members.push((field, offset.saturating_sub(at)));
            layout.sizes.push(size);
            at = padded(offset, size, layout.block).unwrap_or(u64::MAX);
        }
        layout.end = at;
        let shape = *self.shapes.entry(shape).or_insert_with_key(|shape| {
            layout.shapes.push(shape.clone());
            layout.shapes.len() - 1
        });
        if layout.runs.last().is_none_or(|run| run.shape != shape) {
            layout.runs.push(ShapeRun { shape, sample: layout.offsets.len(), size });
        }
        layout.offsets.push(offset);
    }

    /// Adds the checksum of the last sample. Checksums are kept only if every sample has one.
    pub(crate) fn push_checksum(&mut self, checksum: u32) {
        self.layout.checksums.push(checksum);
    }

    pub(super) fn samples(&self) -> u64 {
        self.layout.samples()
    }

    /// Appends a damaged sample, as a sample without members.
    pub(super) fn push_lost(&mut self) {
        self.push(self.layout.end, []);
    }

    pub(super) fn push_outline(&mut self, sample: &SampleOutline) {
        let members =
            sample.fields.iter().map(|(name, field)| (&**name, field.start, field.end - field.start));
        self.push(sample.offset, members);
    }

    /// Returns the layout. `seekable` is true if reading can start at the offset of any sample.
    pub(crate) fn finish(self, seekable: bool) -> ShardLayout {
        let mut layout = ShardLayout { seekable, ..self.layout };
        if !layout.has_checksums() {
            layout.checksums.clear();
        }
        layout
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// For each sample, the blocks before its first header, and its members: the number of the field, the
    /// blocks before the content, and the size of the content in bytes.
    type Samples = Vec<(u64, Vec<(usize, u64, u64)>)>;

    fn samples() -> impl Strategy<Value = Samples> {
        let fields = prop::sample::subsequence(vec![0, 1, 2], 1..=3).prop_shuffle();
        let member = (1u64..4, 0u64..2000);
        let members = (fields, prop::collection::vec(member, 3)).prop_map(|(fields, members)| {
            fields.into_iter().zip(members).map(|(field, (gap, size))| (field, gap, size)).collect()
        });
        prop::collection::vec((0u64..3, members), 0..20)
    }

    /// The members of a sample: field, offset, size.
    type Placed = Vec<(&'static str, u64, u64)>;

    /// The layout, the members and the offsets of these samples. Sample i has the checksum 7 i.
    fn built(samples: &Samples) -> (ShardLayout, Vec<Placed>, Vec<u64>) {
        let mut builder = LayoutBuilder::default();
        let (mut at, mut members, mut offsets) = (0, Vec::new(), Vec::new());
        for (lead, fields) in samples {
            at += lead * BLOCK;
            offsets.push(at);
            let mut placed = Vec::new();
            for &(field, gap, size) in fields {
                let offset = at + gap * BLOCK;
                placed.push((["cls", "jpg", "txt"][field], offset, size));
                at = (offset + size).next_multiple_of(BLOCK);
            }
            builder.push(offsets[offsets.len() - 1], placed.iter().copied());
            builder.push_checksum(7 * (offsets.len() as u32 - 1));
            members.push(placed);
        }
        (builder.finish(true), members, offsets)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn a_layout_has_the_samples_that_were_pushed(samples in samples()) {
            let (layout, members, offsets) = built(&samples);
            prop_assert_eq!(layout.samples(), samples.len() as u64);
            for (number, expected) in members.iter().enumerate() {
                let found = layout.members(number as u64).unwrap();
                let found: Vec<_> = found.map(|(field, at)| (field, at.start, at.end - at.start)).collect();
                prop_assert_eq!(&found, expected);
                let size = expected.iter().map(|member| member.2).sum();
                prop_assert_eq!(layout.size_of(number as u64), Some(size));
                let fields: Vec<_> = layout.fields_of(number as u64).unwrap().collect();
                let names = expected.iter().map(|&(name, _, size)| (name, size));
                prop_assert_eq!(fields, names.collect::<Vec<_>>());
                prop_assert_eq!(layout.offset_of(number as u64), Some(offsets[number]));
                prop_assert_eq!(layout.checksum_of(number as u64), Some(number as u32 * 7));
            }
            let count = samples.len() as u64;
            prop_assert!(layout.members(count).is_none() && layout.size_of(count).is_none());
            prop_assert!(layout.has_checksums() && layout.checksum_of(count).is_none());
            for from in 0..=count + 1 {
                for to in 0..=count + 1 {
                    let at = |number: u64| offsets.get(number as usize).copied().unwrap_or(u64::MAX);
                    let expected = (from <= to && to <= count).then(|| at(from)..at(to));
                    prop_assert_eq!(layout.range(from..to, u64::MAX), expected);
                }
            }
        }

        #[test]
        fn a_document_reads_back_as_the_same_layout(
            samples in samples(),
            seekable in any::<bool>(),
            checksums in any::<bool>(),
        ) {
            let mut layout = ShardLayout { seekable, ..built(&samples).0 };
            if !checksums {
                layout.checksums.clear();
            }
            let text = serde_json::to_string(&LayoutDocument::from(&layout)).unwrap();
            let read: LayoutDocument = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(ShardLayout::try_from(read), Ok(layout));
        }

        #[test]
        fn any_document_is_read_without_a_panic(
            shapes in prop::collection::vec(
                prop::collection::vec(prop_oneof![0u64..4, any::<u64>()], 0..6),
                0..3,
            ),
            runs in prop::collection::vec(prop_oneof![0u64..4, any::<u64>()], 0..8),
            sizes in prop::collection::vec(prop_oneof![0u64..4, any::<u64>()], 0..8),
        ) {
            let fields = vec!["a".into(), "b".into()];
            let (seekable, block, crc32c) = (true, BLOCK, None);
            let document = LayoutDocument { seekable, block, fields, shapes, runs, sizes, crc32c };
            if let Ok(layout) = ShardLayout::try_from(document) {
                for sample in 0..layout.samples() {
                    prop_assert!(layout.members(sample).unwrap().all(|(_, at)| at.end <= layout.end()));
                    prop_assert!(layout.size_of(sample).is_some());
                }
            }
        }
    }

    #[test]
    fn samples_of_one_shape_take_only_their_sizes() {
        let samples = (0..1000).map(|i| (0, vec![(0, 1, 1), (1, 1, 1000 + i)])).collect();
        let mut layout = built(&samples).0;
        layout.checksums.clear();
        let text = serde_json::to_string(&LayoutDocument::from(&layout)).unwrap();
        assert!(text.starts_with(
            r#"{"fields":["cls","jpg"],"shapes":[[0,0,512,1,512]],"runs":[0,1000],"sizes":[1,1000,1,1001,"#
        ));
    }
}
