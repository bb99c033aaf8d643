//! Where a job is: a small document that a loader resumes from, on any number of ranks.

mod changed;
mod check;
mod digest;
mod header;
mod ledger;
mod merge;
mod stream;
mod zero;

pub use changed::{ChangeReport, Changes, DatasetChange, Outcome};
pub use digest::Digest;
pub(crate) use digest::hash_texts;
pub(crate) use header::{DatasetHeader, Header, Order, Run, SideHeader, WeightChange};
pub use ledger::{Ledger, Skip};
pub(crate) use stream::{Opened, Part, Saved, StreamState};

use crate::error::{Error, ErrorKind, Result};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use zero::is_zero;

/// No loader has counted as far as this.
const MOST: u64 = 1 << 48;

/// How far a loader's batches have been consumed.
///
/// It says what was *taken*, whatever was prepared ahead of that; [`Loader::restore`](crate::Loader::restore)
/// gives the rest. It is a few numbers for each logical stream and for each shard that has samples in its
/// shuffle buffer, and cheap to take and to clone: every [`Batch`](crate::adapters::Batch) carries one. Its
/// text is one JSON document, and so is what serde makes of it, to be saved with the weights of the model.
///
/// Each rank has the state of its own streams. With the same number of ranks each restores its own; for any
/// other number, [merge](State::merge) them first, and give all ranks the whole.
///
/// ```
/// use shardstream::State;
/// use shardstream::prelude::*;
///
/// # fn main() -> shardstream::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let pattern = format!("{}/train-%06d.tar", dir.path().display());
/// # let mut writer = ShardWriter::builder(&pattern).max_count(10).build()?;
/// # for i in 0..40 { writer.write(&Sample::new(format!("{i:06}")).with("cls", i))?; }
/// # writer.finish()?;
/// # let shards = pattern.replace("%06d", "{000000..000003}");
/// let dataset = Dataset::builder(shards).shuffle_shards(true).seed(42).build()?;
/// let loader = Loader::builder(dataset)
///     .shuffle(16)
///     .map(|sample| Ok(sample.key().to_owned()))
///     .batch(8)
///     .build()?;
///
/// let mut batches = loader.epoch(0);
/// let first: Vec<_> = batches.by_ref().take(2).collect::<Result<_, _>>()?;
/// let checkpoint = batches.state().to_string();
/// let rest: Vec<_> = batches.collect::<Result<_, _>>()?;
///
/// let state: State = checkpoint.parse()?;
/// assert_eq!((state.samples(), state.epoch()), (16, 0));
/// let again: Vec<_> = loader.restore(&state)?.collect::<Result<_, _>>()?;
/// assert_eq!(again, rest);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    header: Arc<Header>,
    reached: Reached,
    /// How many batches were taken.
    batches: u64,
    /// Whether nothing is left on the rank that it was taken on.
    ended: bool,
    /// How many steps to leave out when it is restored.
    skip: u64,
    /// By dataset and stream.
    streams: Arc<[StreamState]>,
}

/// Which slots of the job's sequence have been passed.
///
/// Ranks are not always at the same one: where the lengths of streams are not known, a rank leaves out
/// batches in which its own streams have nothing left, or reaches over the empty slots. Of each stream it is
/// known how many samples were taken, and with that which of its slots hold one that is yet to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reached {
    /// How many slots have been passed by all ranks.
    pub(crate) slots: u64,
    /// How many slots have been passed by the rank that has come furthest: no fewer.
    pub(crate) furthest: u64,
    /// How many slots a batch of all ranks has. A state of an earlier release does not say.
    pub(crate) step: Option<u64>,
}

impl Reached {
    /// The same further on.
    pub(crate) fn at(self, slots: u64) -> Self {
        Reached { slots, furthest: self.furthest.max(slots), ..self }
    }
}

/// The document.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    shardstream_state: Version,
    #[serde(rename = "of")]
    header: Arc<Header>,
    slots: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    furthest: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    step: Option<u64>,
    batches: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    ended: bool,
    #[serde(default, skip_serializing_if = "is_zero")]
    skip: u64,
    #[serde(rename = "at")]
    streams: Arc<[StreamState]>,
}

/// The version of the document. It comes first, so that one of another version is told before its other keys
/// are.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
struct Version;

/// What is written.
const VERSION: u32 = 1;

impl From<Version> for u32 {
    fn from(Version: Version) -> u32 {
        VERSION
    }
}

impl TryFrom<u32> for Version {
    type Error = String;

    fn try_from(version: u32) -> Result<Self, String> {
        match version {
            VERSION => Ok(Version),
            _ => Err(format!(
                "it is of version {version}, and this release knows version {VERSION}: use the release that \
                 wrote it"
            )),
        }
    }
}

impl State {
    pub(crate) fn new(
        header: Arc<Header>,
        reached: Reached,
        batches: u64,
        streams: Arc<[StreamState]>,
    ) -> Self {
        State { header, reached, batches, ended: false, skip: 0, streams }
    }

    /// The same, to be resumed `steps` steps later, without reading the samples of the steps between.
    ///
    /// A step is one batch on every rank. Calls add up. Skip steps of the [merged](State::merge) state, or as
    /// many of the state of each rank. What this state says of the past does not change;
    /// [`Loader::restore`](crate::Loader::restore) passes over the steps, and from then on
    /// [`Digest::skipped`] counts their samples. Since they are not read, one that would have failed counts
    /// as one that was taken. Where samples of an earlier shard of the epoch could not be read, a restore
    /// refuses to skip; those that the open shard has lost so far it cannot know of, and it passes over as
    /// many samples less. Of a dataset that is joined to others, a restore may end with the error of a key
    /// that a side lacks: then skip a few steps more or less.
    ///
    /// ```
    /// # use shardstream::State;
    /// # fn after_a_spike(checkpoint: &str) -> shardstream::Result<State> {
    /// // The loss was unstable: leave out the next 200 steps.
    /// Ok(checkpoint.parse::<State>()?.skip(200))
    /// # }
    /// ```
    #[must_use]
    pub fn skip(self, steps: u64) -> Self {
        State { skip: self.skip.saturating_add(steps).min(MOST), ..self }
    }

    /// How many steps to skip on restore.
    pub(crate) fn steps_to_skip(&self) -> u64 {
        self.skip
    }

    /// The same, with nothing left to come.
    pub(crate) fn ended(self) -> Self {
        State { ended: true, ..self }
    }

    /// Whether nothing was left on the rank that it was taken on.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended && self.skip == 0
    }

    pub(crate) fn header(&self) -> &Header {
        &self.header
    }

    /// How many slots have been passed by all ranks whose streams these are.
    pub(crate) fn slots(&self) -> u64 {
        self.reached.slots
    }

    /// How many slots have been passed by any of them.
    pub(crate) fn furthest(&self) -> u64 {
        self.reached.furthest
    }

    /// A number that is another one after every batch, and on every rank.
    pub(crate) fn place(&self) -> u64 {
        // Where the numbers are larger than that, some of them are the same, and nothing breaks.
        let stream = self.streams.first().map_or(0, |first| first.stream as u64);
        (self.slots() << 20) ^ stream
    }

    pub(crate) fn stream(&self, dataset: usize, stream: usize) -> Option<&StreamState> {
        let at = self.streams.binary_search_by_key(&(dataset, stream), |at| (at.dataset, at.stream));
        self.streams.get(at.ok()?)
    }

    /// The epoch that was asked for: the one that the batches are of, or the first one where they continue
    /// without end.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.header.run.epoch()
    }

    /// How many batches were taken on a rank, those before a restore among them: the number of the next one,
    /// from 0.
    #[must_use]
    pub fn batches(&self) -> u64 {
        self.batches
    }

    /// How many samples were taken, by the ranks whose streams these are.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.digest().samples()
    }

    /// What was taken, by the ranks whose streams these are.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.streams.iter().map(|stream| stream.digest.merge(stream.before)).sum()
    }

    /// What was skipped, by the ranks whose streams these are.
    #[must_use]
    pub fn ledger(&self) -> Ledger {
        self.streams.iter().map(|stream| stream.ledger.clone()).sum()
    }

    /// Whether these are the streams of all ranks.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        Some(self.streams.len()) == self.header.streams.checked_mul(self.header.datasets.len())
    }
}

/// The state can't be used, and this is why.
pub(crate) fn misfit(why: impl Into<String>) -> Error {
    ErrorKind::State(why.into()).into()
}

impl fmt::Display for State {
    /// One line of JSON; indented with `{:#}`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text =
            if f.alternate() { serde_json::to_string_pretty(self) } else { serde_json::to_string(self) };
        f.write_str(&text.map_err(|_| fmt::Error)?)
    }
}

impl FromStr for State {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        serde_json::from_str(text).map_err(|error| misfit(format!("it cannot be read: {error}")))
    }
}

impl Serialize for State {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let State { header, reached, batches, ended, skip, streams } = self.clone();
        let Reached { slots, furthest, step } = reached;
        let furthest = Some(furthest).filter(|furthest| *furthest > slots);
        let document = Document {
            shardstream_state: Version,
            header,
            slots,
            furthest,
            step,
            batches,
            ended,
            skip,
            streams,
        };
        document.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for State {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error;
        let Document {
            shardstream_state: Version,
            header,
            slots,
            furthest,
            step,
            batches,
            ended,
            skip,
            streams,
        } = Document::deserialize(deserializer)?;
        let reached = Reached { slots, furthest: furthest.unwrap_or(slots), step };
        let state = State { header, reached, batches, ended, skip, streams };
        state.check().map_err(D::Error::custom)?;
        Ok(state)
    }
}

/// Numbers of 64 bits as text, because many readers of JSON make floats of them.
mod hex {
    use serde::de::{Deserialize, Deserializer, Error};
    use serde::ser::Serializer;

    pub(super) fn serialize<S: Serializer>(number: &u64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{number:016x}"))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
        let text = String::deserialize(deserializer)?;
        u64::from_str_radix(&text, 16).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests;
