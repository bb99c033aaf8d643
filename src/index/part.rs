//! `DatasetPart`: a part of a dataset's samples, chosen by number or by key, without reading samples.

use super::keys::KeyIndex;
use super::{Index, ShardIndex};
use crate::error::{Error, ErrorKind, Result};
use std::fmt;
use std::iter;
use std::ops::Range;
use std::sync::Arc;

/// A part of the samples of a dataset, for [`DatasetBuilder::part`](crate::dataset::DatasetBuilder::part).
///
/// The parts `0.0..0.9` and `0.9..1.0`, if the same function makes both, have no sample in common, and
/// together they have all samples. The part `0.0..0.1` is contained in the part `0.0..0.2`.
#[derive(Clone)]
pub struct DatasetPart(PartBounds);

#[derive(Clone)]
enum PartBounds {
    Fraction(Range<f64>),
    Range(Range<u64>),
    Keys(KeyIndex, Range<f64>),
}

impl DatasetPart {
    /// The same fraction of each shard: `0.0..0.1` is the first tenth of each shard's samples. Only the bytes
    /// of these samples are read. The samples of a shard should be in random order.
    #[must_use]
    pub fn fraction(of_each_shard: Range<f64>) -> Self {
        DatasetPart(PartBounds::Fraction(of_each_shard))
    }

    /// The samples with these numbers, counted over all shards in the order of the list. Shards without such
    /// samples are not opened.
    #[must_use]
    pub fn range(samples: Range<u64>) -> Self {
        DatasetPart(PartBounds::Range(samples))
    }

    /// The samples whose keys have a hash in this part of the range of all hashes: `0.0..0.1` is about a
    /// tenth of the samples. Whether a sample is in the part depends on its key alone, so samples of
    /// different datasets that have the same key are in the same part. The chosen samples are scattered over
    /// all shards, so most bytes of the shards are read. `keys` must have all samples of the dataset. If
    /// `keys` was opened from a document, its whole table is read, a few MiB at a time.
    #[must_use]
    pub fn by_key(keys: KeyIndex, of_all_hashes: Range<f64>) -> Self {
        DatasetPart(PartBounds::Keys(keys, of_all_hashes))
    }

    /// Returns `index` reduced to this part of its samples.
    pub(crate) fn of(&self, index: &Index) -> Result<Index> {
        self.check(index)?;
        let name = |shard: &ShardIndex| -> Arc<str> {
            match shard.selection() {
                Some(selection) => format!("{selection}, {self:?}").into(),
                None => format!("{self:?}").into(),
            }
        };
        let by_key = match &self.0 {
            PartBounds::Keys(keys, part) => keys.numbers_between(part)?,
            _ => Vec::new(),
        };
        let mut before = 0u64;
        let part = |shard: &ShardIndex| {
            let count = shard.samples();
            let ranges = match &self.0 {
                PartBounds::Fraction(part) => {
                    let at = |bound: f64| ((bound * count as f64) as u64).min(count);
                    iter::once(at(part.start)..at(part.end)).collect()
                }
                PartBounds::Range(range) => {
                    let at = |bound: u64| bound.clamp(before, before.saturating_add(count)) - before;
                    iter::once(at(range.start)..at(range.end)).collect()
                }
                PartBounds::Keys(keys, _) => ranges(keys.numbers_in(shard, &by_key)?),
            };
            before = before.saturating_add(count);
            Ok(shard.narrowed(name(shard), &ranges))
        };
        index.iter().map(part).collect()
    }

    /// Checks the bounds.
    fn check(&self, index: &Index) -> Result<()> {
        let is_part = |part: &Range<f64>| 0.0 <= part.start && part.start < part.end && part.end <= 1.0;
        let fits = match &self.0 {
            PartBounds::Fraction(part) | PartBounds::Keys(_, part) => is_part(part),
            PartBounds::Range(range) => range.start < range.end && range.end <= index.samples(),
        };
        if fits {
            return Ok(());
        }
        let what = match &self.0 {
            PartBounds::Range(_) => format!("of {} samples", index.samples()),
            _ => "which is not within 0.0..1.0 or is empty".into(),
        };
        Err(Error::from(ErrorKind::Config(format!("the part of the dataset is {self:?}, {what}"))))
    }
}

/// Converts sorted numbers to ranges of consecutive numbers.
fn ranges(numbers: Vec<u64>) -> Vec<Range<u64>> {
    let runs = numbers.chunk_by(|one, next| one + 1 == *next);
    runs.filter_map(|run| Some(*run.first()?..run.last()? + 1)).collect()
}

impl fmt::Debug for DatasetPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            PartBounds::Fraction(part) => write!(f, "fraction {part:?}"),
            PartBounds::Range(range) => write!(f, "range {range:?}"),
            PartBounds::Keys(_, part) => write!(f, "by key {part:?}"),
        }
    }
}
