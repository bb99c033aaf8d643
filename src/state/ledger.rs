//! A record of the samples that were skipped.

use crate::error::{Error, Location};
use crate::secret_url::redact_text;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::iter::Sum;
use std::sync::Arc;

/// How many skips of each stream are kept in full: its first ones. Those of all ranks are then the same,
/// whatever their number.
pub(super) const KEPT: usize = 16;
/// The most bytes of a message, and of each name.
const LONGEST: usize = 300;
/// The most kinds of errors that a document may have.
const MOST_KINDS: usize = 200;

/// The samples that were skipped, and the places of batches that were filled with other samples.
///
/// A loader that [skips failures](crate::loader::OnError) records each of them here;
/// [`State::ledger`](crate::State::ledger) returns the record. The first 16 of each stream of each dataset
/// are kept in full, and all are counted by [the name of their kind](crate::ErrorKind::name). Ledgers of
/// ranks that read different streams [add up](Ledger::merge) to the ledger of the job, which is the same on
/// any number of ranks.
///
/// `Display` shows the counts and the first entries, for a log at the end of an epoch; `{:#}` shows all
/// entries. Serde makes a document of it, which shows no secrets of URLs.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Document", into = "Document")]
pub struct Ledger(Option<Arc<Inner>>);

#[derive(Clone, Default, PartialEq, Eq)]
struct Inner {
    /// By dataset, epoch, stream and number. Apart from the counts, because clones are made of those at each
    /// skip.
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
    /// The number of the dataset among those that are mixed.
    #[serde(default, skip_serializing_if = "super::is_zero")]
    pub dataset: usize,
    /// The epoch of the dataset: of what fills places at the end, that of its last pass.
    pub epoch: u64,
    /// The logical stream.
    pub stream: usize,
    /// How many skips of the same stream of the same dataset were before.
    pub number: u64,
    /// The shard, without what may be secret in its URL.
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
    /// The error with its causes, cut after 300 bytes.
    pub message: String,
}

/// What serde makes of it.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
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

    /// How many failures were skipped. One of them may be the rest of a shard, with any number of samples.
    #[must_use]
    pub fn skipped(&self) -> u64 {
        self.by_kind().fold(0, |sum, (_, count)| sum.saturating_add(count))
    }

    /// How many failures of each kind were skipped, by the [names](crate::ErrorKind::name) of their kinds.
    pub fn by_kind(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().flat_map(|inner| &inner.kinds).map(|(kind, count)| (&**kind, *count))
    }

    /// The first skips of each stream, by dataset, epoch, stream and number.
    #[must_use]
    pub fn entries(&self) -> &[Skip] {
        self.0.as_deref().map_or(&[], |inner| &inner.entries)
    }

    /// How many places at the end of an epoch were filled with copies of another sample, because streams were
    /// shorter than their index says.
    #[must_use]
    pub fn padded(&self) -> u64 {
        self.0.as_deref().map_or(0, |inner| inner.padded)
    }

    /// How many places at the end of an epoch were filled with samples of its beginning, because streams were
    /// shorter than their index says.
    #[must_use]
    pub fn repeated(&self) -> u64 {
        self.0.as_deref().map_or(0, |inner| inner.repeated)
    }

    /// This and what was skipped by ranks that read other streams, in any order.
    ///
    /// Where several ranks read the same streams, [merge their states](crate::State::merge) instead: a state
    /// counts each stream once.
    #[must_use]
    pub fn merge(self, other: Ledger) -> Ledger {
        [self, other].into_iter().sum()
    }

    /// Records that this failure was skipped.
    pub(crate) fn skip(&mut self, dataset: usize, stream: usize, epoch: u64, error: &Error) {
        let number = self.skipped();
        self.change(|inner| {
            if inner.entries.len() < KEPT {
                let skip = Skip::new((dataset, stream, epoch, number), error);
                inner.entries = inner.entries.iter().cloned().chain([skip]).collect();
            }
            add(inner.kinds.entry(error.kind().name().into()).or_default(), 1);
        });
    }

    /// Records the number of places that were filled with copies of another sample.
    pub(crate) fn pad(&mut self, places: u64) {
        if places > 0 {
            self.change(|inner| add(&mut inner.padded, places));
        }
    }

    /// Records the number of places that were filled with samples of the beginning of the epoch.
    pub(crate) fn repeat(&mut self, places: u64) {
        if places > 0 {
            self.change(|inner| add(&mut inner.repeated, places));
        }
    }

    /// The same of a dataset that has another number by now.
    pub(super) fn of_dataset(mut self, dataset: usize) -> Ledger {
        if self.entries().iter().any(|skip| skip.dataset != dataset) {
            self.change(|inner| {
                inner.entries = inner.entries.iter().map(|skip| Skip { dataset, ..skip.clone() }).collect();
            });
        }
        self
    }

    fn change(&mut self, change: impl FnOnce(&mut Inner)) {
        change(Arc::make_mut(self.0.get_or_insert_default()));
    }

    /// Whether another rank that read the same has this ledger: messages may differ, since the caller's own
    /// errors may say anything.
    pub(super) fn is_twin(&self, other: &Ledger) -> bool {
        let alike = |(a, b): (&Skip, &Skip)| {
            Skip { message: String::new(), ..a.clone() } == Skip { message: String::new(), ..b.clone() }
        };
        let sums = |ledger: &Ledger| (ledger.padded(), ledger.repeated(), ledger.entries().len());
        sums(self) == sums(other)
            && self.by_kind().eq(other.by_kind())
            && self.entries().iter().zip(other.entries()).all(alike)
    }

    /// Of two twins, keeps the one whose messages come first in the alphabet, so that it does not depend on
    /// the order in which states are merged.
    pub(super) fn keep_least(&mut self, twin: &Ledger) {
        fn messages(ledger: &Ledger) -> impl Iterator<Item = &str> {
            ledger.entries().iter().map(|skip| skip.message.as_str())
        }
        if messages(twin).lt(messages(self)) {
            *self = twin.clone();
        }
    }

    /// Whether it can be the ledger of this stream, of which no more than `most` samples were read.
    pub(super) fn check_stream(&self, dataset: usize, stream: usize, most: u64) -> Result<(), &'static str> {
        let numbers = [self.skipped(), self.padded(), self.repeated()];
        if numbers.iter().any(|number| *number > most) {
            return Err("more was skipped than there can be samples");
        }
        let kept = (KEPT as u64).min(self.skipped());
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
        for inner in ledgers.filter_map(|ledger| ledger.0) {
            entries.extend(inner.entries.iter().cloned());
            sum.change(|sum| {
                for (kind, count) in &inner.kinds {
                    add(sum.kinds.entry(kind.clone()).or_default(), *count);
                }
                add(&mut sum.padded, inner.padded);
                add(&mut sum.repeated, inner.repeated);
            });
        }
        if !entries.is_empty() {
            entries.extend(sum.entries().iter().cloned());
            entries.sort_by(|a, b| a.place().cmp(&b.place()).then_with(|| a.message.cmp(&b.message)));
            sum.change(|sum| sum.entries = entries.into());
        }
        sum
    }
}

fn add(count: &mut u64, more: u64) {
    *count = count.saturating_add(more);
}

impl Skip {
    fn new((dataset, stream, epoch, number): (usize, usize, u64, u64), error: &Error) -> Self {
        let mut message = error.kind().to_string();
        let mut cause = std::error::Error::source(error);
        while let Some(error) = cause {
            message = format!("{message}: {error}");
            cause = error.source();
        }
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
            message: line(&redact_text(&message)),
        }
    }

    /// What entries are ordered by.
    fn place(&self) -> (usize, u64, usize, u64) {
        (self.dataset, self.epoch, self.stream, self.number)
    }
}

/// One line of text, of no more than [`LONGEST`] bytes.
fn line(text: &str) -> String {
    const CUT: char = '…';
    let mut line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if line.len() > LONGEST {
        let mut end = LONGEST - CUT.len_utf8();
        while !line.is_char_boundary(end) {
            end -= 1;
        }
        line.truncate(end);
        line.push(CUT);
    }
    line
}

impl From<Ledger> for Document {
    fn from(ledger: Ledger) -> Self {
        let kinds = ledger.by_kind().map(|(kind, count)| (kind.to_owned(), count)).collect();
        let (padded, repeated) = (ledger.padded(), ledger.repeated());
        Document { entries: ledger.entries().to_vec(), kinds, padded, repeated }
    }
}

/// What no ledger can say is an error, so that whoever reads one need not fear a large or contradictory one.
impl TryFrom<Document> for Ledger {
    type Error = &'static str;

    fn try_from(document: Document) -> Result<Self, Self::Error> {
        let Document { entries, kinds, padded, repeated } = document;
        let is_line = |text: &String| line(text) == *text;
        let is_sound = |skip: &Skip| {
            let texts = [&skip.shard, &skip.member, &skip.key].into_iter().flatten();
            texts.chain([&skip.kind, &skip.message]).all(is_line)
        };
        if !entries.iter().all(is_sound) || !kinds.keys().all(is_line) || kinds.len() > MOST_KINDS {
            return Err("a ledger has texts or kinds that are too long or too many");
        }
        if !entries.is_sorted_by_key(Skip::place) {
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
        Ok(Ledger(Some(Arc::new(Inner { entries: entries.into(), kinds, padded, repeated }))))
    }
}

/// Entries that are shown unless all are asked for.
const SHOWN: usize = 8;

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
        for (places, what) in [(self.padded(), "padded"), (self.repeated(), "repeated")] {
            if places > 0 {
                write!(f, "; {places} places {what}")?;
            }
        }
        let shown = if f.alternate() { usize::MAX } else { SHOWN };
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

/// `epoch 0, stream 3: bad tar header checksum (shard s.tar, byte 512)`.
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
