//! `Ledger`: the record of skipped failures.

use crate::error::{Error, Location};
use crate::panic::catch;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::iter::Sum;
use std::sync::Arc;

/// Maximum number of skips that are kept in full for each stream: the first skips of the stream. The limit is
/// per stream and not per rank, so that the entries of all ranks together are the same for any number of
/// ranks.
pub(super) const MAX_ENTRIES: usize = 16;
/// Maximum length of a message and of each name in bytes.
const MAX_TEXT: usize = 300;
/// Maximum number of kinds of errors in a document.
const MAX_KINDS: usize = 200;

/// The record of skipped failures, and of slots of batches that were filled with other samples.
///
/// A loader that [skips failures](crate::loader::OnError) records each failure in a ledger;
/// [`State::ledger`](crate::State::ledger) returns it. The first 16 failures of each stream of each dataset
/// are kept in full. All failures are counted by [the name of their kind](crate::ErrorKind::name). Ledgers of
/// ranks that read different streams [add up](Ledger::merge) to the ledger of the job, which is the same for
/// any number of ranks.
///
/// `Display` shows the counts and the first entries, for a log at the end of an epoch; `{:#}` shows all
/// entries. A ledger can be serialized, and contains no secrets of URLs.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "LedgerDocument", into = "LedgerDocument")]
pub struct Ledger(Option<Arc<LedgerRecord>>);

#[derive(Clone, Default, PartialEq, Eq)]
struct LedgerRecord {
    /// The entries, sorted by dataset, epoch, stream and number. The entries are shared, because each skip
    /// clones the record to change its counts.
    entries: Arc<[Skip]>,
    kinds: BTreeMap<Cow<'static, str>, u64>,
    padded: u64,
    repeated: u64,
}

/// A sample, or the rest of a shard, that was skipped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Skip {
    /// The number of the dataset in the mix.
    #[serde(default, skip_serializing_if = "super::is_zero")]
    pub dataset: usize,
    /// The epoch of the dataset. For a sample that fills a slot at the end of an epoch, this is the epoch of
    /// the dataset's last pass.
    pub epoch: u64,
    /// The logical stream.
    pub stream: usize,
    /// Number of earlier skips in the same stream of the same dataset.
    pub number: u64,
    /// The shard, without secrets in its URL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard: Option<String>,
    /// The byte offset in the uncompressed shard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    /// The name of the tar member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<String>,
    /// The key of the sample.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The [name](crate::ErrorKind::name) of the error's kind.
    pub kind: String,
    /// The error and its causes, truncated to 300 bytes.
    pub message: String,
}

/// A [`Ledger`] as it is serialized.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LedgerDocument {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    entries: Vec<Skip>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    kinds: BTreeMap<String, u64>,
    #[serde(default, skip_serializing_if = "super::is_zero")]
    padded: u64,
    #[serde(default, skip_serializing_if = "super::is_zero")]
    repeated: u64,
}

impl Ledger {
    /// Whether nothing was skipped, padded or repeated.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Number of skipped failures. One failure may lose a single sample or all remaining samples of a shard.
    /// If a batch fails as a whole, one failure is counted for each of its samples.
    #[must_use]
    pub fn skipped(&self) -> u64 {
        self.by_kind().fold(0, |sum, (_, count)| sum.saturating_add(count))
    }

    /// Number of skipped failures, by the [name](crate::ErrorKind::name) of their kind.
    pub fn by_kind(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().flat_map(|record| &record.kinds).map(|(kind, count)| (&**kind, *count))
    }

    /// The first skips of each stream, sorted by dataset, epoch, stream and number. Later skips are only
    /// counted.
    #[must_use]
    pub fn entries(&self) -> &[Skip] {
        self.0.as_deref().map_or(&[], |record| &record.entries)
    }

    /// Number of slots that were filled with copies of other samples at the end of an epoch, because streams
    /// had fewer samples than the index says.
    #[must_use]
    pub fn padded(&self) -> u64 {
        self.0.as_deref().map_or(0, |record| record.padded)
    }

    /// Number of slots that were filled with samples from the beginning of the epoch, because streams had
    /// fewer samples than the index says.
    #[must_use]
    pub fn repeated(&self) -> u64 {
        self.0.as_deref().map_or(0, |record| record.repeated)
    }

    /// Returns a ledger that has the failures of both ledgers. The ranks of the two ledgers must have read
    /// different streams; the order of the ledgers does not matter.
    ///
    /// If several ranks read the same streams, [merge their states](crate::State::merge) instead, which
    /// counts each stream once.
    #[must_use]
    pub fn merge(self, other: Ledger) -> Ledger {
        [self, other].into_iter().sum()
    }

    pub(crate) fn skip(&mut self, dataset: usize, stream: usize, epoch: u64, error: &Error) {
        let number = self.skipped();
        self.change(|record| {
            if record.entries.len() < MAX_ENTRIES {
                let skip = Skip::new(SkipPosition { dataset, stream, epoch, number }, error);
                record.entries = record.entries.iter().cloned().chain([skip]).collect();
            }
            add(record.kinds.entry(error.kind().name().into()).or_default(), 1);
        });
    }

    /// Records that `slots` slots were filled with copies of other samples.
    pub(crate) fn pad(&mut self, slots: u64) {
        if slots > 0 {
            self.change(|record| add(&mut record.padded, slots));
        }
    }

    /// Records that `slots` slots were filled with samples from the beginning of the epoch.
    pub(crate) fn repeat(&mut self, slots: u64) {
        if slots > 0 {
            self.change(|record| add(&mut record.repeated, slots));
        }
    }

    /// The same ledger, with `dataset` as the dataset number of all entries.
    pub(super) fn of_dataset(mut self, dataset: usize) -> Ledger {
        if self.entries().iter().any(|skip| skip.dataset != dataset) {
            self.change(|record| {
                record.entries = record.entries.iter().map(|skip| Skip { dataset, ..skip.clone() }).collect();
            });
        }
        self
    }

    fn change(&mut self, change: impl FnOnce(&mut LedgerRecord)) {
        change(Arc::make_mut(self.0.get_or_insert_default()));
    }

    /// Whether `other` can be the ledger of another rank that read the same samples. The messages may differ:
    /// a message of the caller's code may contain, for example, a duration.
    pub(super) fn is_twin(&self, other: &Ledger) -> bool {
        let is_same = |(a, b): (&Skip, &Skip)| {
            Skip { message: String::new(), ..a.clone() } == Skip { message: String::new(), ..b.clone() }
        };
        let sums = |ledger: &Ledger| (ledger.padded(), ledger.repeated(), ledger.entries().len());
        sums(self) == sums(other)
            && self.by_kind().eq(other.by_kind())
            && self.entries().iter().zip(other.entries()).all(is_same)
    }

    /// Replaces this ledger by `twin` if the messages of `twin` come first in alphabetical order, so that the
    /// result does not depend on the order in which states are merged.
    pub(super) fn keep_least(&mut self, twin: &Ledger) {
        fn messages(ledger: &Ledger) -> impl Iterator<Item = &str> {
            ledger.entries().iter().map(|skip| skip.message.as_str())
        }
        if messages(twin).lt(messages(self)) {
            *self = twin.clone();
        }
    }

    /// Checks that this can be the ledger of the given stream, of which at most `max` samples were read.
    pub(super) fn check_stream(&self, dataset: usize, stream: usize, max: u64) -> Result<(), &'static str> {
        let numbers = [self.skipped(), self.padded(), self.repeated()];
        if numbers.iter().any(|number| *number > max) {
            return Err("more was skipped than there can be samples");
        }
        let kept = (MAX_ENTRIES as u64).min(self.skipped());
        let mine = |(at, skip): (usize, &Skip)| {
            (skip.dataset, skip.stream, skip.number) == (dataset, stream, at as u64)
        };
        if self.entries().len() as u64 != kept || !self.entries().iter().enumerate().all(mine) {
            return Err("the entries of its ledger are not the first ones that were skipped");
        }
        Ok(())
    }
}

impl Sum for Ledger {
    fn sum<I: Iterator<Item = Ledger>>(ledgers: I) -> Ledger {
        let mut ledgers = ledgers.filter(|ledger| !ledger.is_empty());
        let Some(mut sum) = ledgers.next() else { return Ledger::default() };
        let mut entries = Vec::new();
        for record in ledgers.filter_map(|ledger| ledger.0) {
            entries.extend(record.entries.iter().cloned());
            sum.change(|sum| {
                for (kind, count) in &record.kinds {
                    add(sum.kinds.entry(kind.clone()).or_default(), *count);
                }
                add(&mut sum.padded, record.padded);
                add(&mut sum.repeated, record.repeated);
            });
        }
        if !entries.is_empty() {
            entries.extend(sum.entries().iter().cloned());
            entries.sort_by(|a, b| a.sort_key().cmp(&b.sort_key()).then_with(|| a.message.cmp(&b.message)));
            sum.change(|sum| sum.entries = entries.into());
        }
        sum
    }
}

fn add(count: &mut u64, more: u64) {
    *count = count.saturating_add(more);
}

/// The dataset, epoch, stream and number of a skip: see the fields of [`Skip`].
struct SkipPosition {
    dataset: usize,
    stream: usize,
    epoch: u64,
    number: u64,
}

impl Skip {
    fn new(position: SkipPosition, error: &Error) -> Self {
        let SkipPosition { dataset, stream, epoch, number } = position;
        // Formatting a cause may call the caller's code, which may panic.
        let message = catch(|| error.message()).unwrap_or_else(|panic| panic.to_string());
        let location: &Location = error.location();
        let owned = |text: Option<&str>| text.map(line);
        Skip {
            dataset,
            epoch,
            stream,
            number,
            shard: owned(location.shard()),
            offset: location.offset(),
            member: owned(location.member()),
            key: owned(location.key()),
            kind: error.kind().name().into(),
            message: line(&message),
        }
    }

    fn sort_key(&self) -> (usize, u64, usize, u64) {
        (self.dataset, self.epoch, self.stream, self.number)
    }
}

/// Converts a text to one line of at most [`MAX_TEXT`] bytes.
fn line(text: &str) -> String {
    const CUT: char = '…';
    let mut line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if line.len() > MAX_TEXT {
        let mut end = MAX_TEXT - CUT.len_utf8();
        while !line.is_char_boundary(end) {
            end -= 1;
        }
        line.truncate(end);
        line.push(CUT);
    }
    line
}

impl From<Ledger> for LedgerDocument {
    fn from(ledger: Ledger) -> Self {
        let kinds = ledger.by_kind().map(|(kind, count)| (kind.to_owned(), count)).collect();
        let (padded, repeated) = (ledger.padded(), ledger.repeated());
        LedgerDocument { entries: ledger.entries().to_vec(), kinds, padded, repeated }
    }
}

/// Refuses a ledger that is too large or contradicts itself.
impl TryFrom<LedgerDocument> for Ledger {
    type Error = &'static str;

    fn try_from(document: LedgerDocument) -> Result<Self, Self::Error> {
        let LedgerDocument { entries, kinds, padded, repeated } = document;
        let is_line = |text: &String| line(text) == *text;
        let has_lines = |skip: &Skip| {
            let texts = [&skip.shard, &skip.member, &skip.key].into_iter().flatten();
            texts.chain([&skip.kind, &skip.message]).all(is_line)
        };
        if !entries.iter().all(has_lines) || !kinds.keys().all(is_line) || kinds.len() > MAX_KINDS {
            return Err("a ledger has texts or kinds that are too long or too many");
        }
        if !entries.is_sorted_by_key(Skip::sort_key) {
            return Err("the entries of a ledger are out of order");
        }
        let mut left = kinds.clone();
        let counted = |skip: &Skip| match left.get_mut(&skip.kind) {
            Some(count) if *count > 0 => {
                *count -= 1;
                true
            }
            _ => false,
        };
        if kinds.values().any(|count| *count == 0) || !entries.iter().all(counted) {
            return Err("the counts of a ledger are not those of its entries");
        }
        if kinds.is_empty() && padded == 0 && repeated == 0 {
            return Ok(Ledger::default());
        }
        let kinds = kinds.into_iter().map(|(kind, count)| (kind.into(), count)).collect();
        Ok(Ledger(Some(Arc::new(LedgerRecord { entries: entries.into(), kinds, padded, repeated }))))
    }
}

/// Number of entries that `Display` shows.
const MAX_SHOWN: usize = 8;

impl fmt::Display for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.skipped() {
            0 => f.write_str("nothing was skipped")?,
            skipped => write!(f, "{skipped} skipped")?,
        }
        let mut separator = ": ";
        for (kind, count) in self.by_kind() {
            write!(f, "{separator}{count} {kind}")?;
            separator = ", ";
        }
        for (slots, what) in [(self.padded(), "padded"), (self.repeated(), "repeated")] {
            match slots {
                0 => {}
                1 => write!(f, "; 1 slot {what}")?,
                _ => write!(f, "; {slots} slots {what}")?,
            }
        }
        let shown = if f.alternate() { usize::MAX } else { MAX_SHOWN };
        for skip in self.entries().iter().take(shown) {
            write!(f, "\n  {skip}")?;
        }
        match self.skipped().saturating_sub(self.entries().len().min(shown) as u64) {
            0 => Ok(()),
            _ if self.entries().is_empty() => Ok(()),
            more => write!(f, "\n  and {more} more"),
        }
    }
}

impl fmt::Debug for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ledger")
            .field("kinds", &self.by_kind().collect::<BTreeMap<_, _>>())
            .field("padded", &self.padded())
            .field("repeated", &self.repeated())
            .field("entries", &self.entries())
            .finish()
    }
}

/// Writes a skip like this: `epoch 0, stream 3: bad tar header checksum (shard s.tar, byte 512)`.
impl fmt::Display for Skip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.dataset > 0 {
            write!(f, "dataset {}, ", self.dataset)?;
        }
        write!(f, "epoch {}, stream {}: {}", self.epoch, self.stream, self.message)?;
        let offset = self.offset.map(|offset| offset.to_string());
        let parts =
            [("shard", &self.shard), ("byte", &offset), ("member", &self.member), ("sample", &self.key)];
        let mut separator = " (";
        for (name, value) in parts.iter().filter_map(|(name, value)| Some((name, value.as_ref()?))) {
            write!(f, "{separator}{name} {value}")?;
            separator = ", ";
        }
        f.write_str(if separator == ", " { ")" } else { "" })
    }
}

#[cfg(test)]
mod tests;
