//! The state of a job: a small document from which a loader resumes, on any number of ranks.

mod changes;
mod check;
mod cursor;
mod digest;
mod file;
mod header;
mod ledger;
mod merge;
mod stream_state;
mod zero;

pub use changes::{ChangeReport, Changes, DatasetChange, Outcome};
pub(crate) use cursor::{Cursor, OpenSlice, StageRecord};
pub use digest::Digest;
pub(crate) use digest::hash_texts;
pub(crate) use header::{DatasetHeader, EpochRange, JobHeader, ShardOrder, SideHeader};
pub use ledger::{Ledger, Skip};
pub(crate) use stream_state::StreamState;

use crate::error::{Error, ErrorKind, Result};
use crate::json::{self, ParsedAs};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use zero::is_zero;

/// Largest count that a state may have. No loader gets this far.
const MAX_COUNT: u64 = 1 << 48;

/// How far a loader's batches have been consumed.
///
/// A state counts the batches that were *taken*, not those that were prepared ahead;
/// [`Loader::restore`](crate::Loader::restore) returns the rest. It has a few numbers for each logical stream
/// and for each shard with samples in the shuffle buffer. It is cheap to take and to clone: every
/// [`Batch`](crate::adapters::Batch) carries one. Save it with the weights of the model:
/// [`save`](State::save) writes it to a file of its own and [`load`](State::load) reads that, `Display` and
/// serde write it as one JSON document within another checkpoint.
///
/// Each rank has the state of its own streams: save it in a file of the rank's own. With the same number of
/// ranks, each restores its own state. For another number, [merge](State::merge) the states, and restore the
/// merged state on all ranks.
///
/// ```
/// use shardstream::prelude::*;
///
/// let shards = "docs/data/digits-{000000..000003}.tar";
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
/// # Ok::<(), shardstream::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    header: Arc<JobHeader>,
    reached: Reached,
    /// Number of batches that were taken.
    batches: u64,
    end: RunEnd,
    /// Number of steps that a restore skips.
    skip: u64,
    /// Sorted by dataset and stream. States share those that have given nothing in between: each batch has a
    /// state, and a rank may have many streams.
    streams: Arc<[Arc<StreamState>]>,
}

/// Whether the run of a state's rank has ended, so that the rank takes no further step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum RunEnd {
    #[default]
    Open,
    /// Nothing is left for the rank.
    Ended,
    /// An error has ended the run: a network outage, for example.
    Failed,
}

/// The sequence numbers of the job that have been passed.
///
/// Ranks may have reached different numbers: if the lengths of streams are unknown, a rank leaves out batches
/// in which its own streams have nothing left, or skips gaps. The number of items taken of each stream says
/// which of its numbers have not been passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reached {
    /// The first number that not all ranks have passed.
    pub(crate) next_number: u64,
    /// The first number that the furthest rank has not passed; at least `next_number`.
    pub(crate) furthest: u64,
    /// Number of sequence numbers of a batch of all ranks. None if batches have several shapes, and so
    /// several sizes.
    pub(crate) step: Option<u64>,
}

impl Reached {
    /// The same, before sequence number `next_number`.
    pub(crate) fn at(self, next_number: u64) -> Self {
        Reached { next_number, furthest: self.furthest.max(next_number), ..self }
    }
}

/// A [`State`] as it is serialized.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StateDocument {
    shardstream_state: Version,
    #[serde(rename = "of")]
    header: Arc<JobHeader>,
    next_number: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    furthest: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    step: Option<u64>,
    batches: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    ended: bool,
    #[serde(default, skip_serializing_if = "is_zero")]
    failed: bool,
    #[serde(default, skip_serializing_if = "is_zero")]
    skip: u64,
    #[serde(rename = "at")]
    streams: Arc<[Arc<StreamState>]>,
}

/// The version of the document. It is the first key, so that another version is reported before unknown keys
/// are.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
struct Version;

/// The version that is written.
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
        header: Arc<JobHeader>,
        reached: Reached,
        batches: u64,
        streams: Arc<[Arc<StreamState>]>,
    ) -> Self {
        State { header, reached, batches, end: RunEnd::Open, skip: 0, streams }
    }

    /// The same state, resumed `steps` steps later, without reading the samples of these steps.
    ///
    /// A step is one batch on every rank: a restore returns what it would have returned, without its first
    /// `steps` batches. A rank that has fewer returns none. Calls add up. Skip steps of the
    /// [merged](State::merge) state, or the same number of the state of each rank. The counts of this state
    /// do not change: [`Loader::restore`](crate::Loader::restore) skips the steps, and from then on
    /// [`Digest::skipped`] counts their samples. Since they are not read, a sample that would have failed
    /// counts as taken. If samples of an earlier shard of the epoch could not be read, a restore refuses to
    /// skip. Samples that the open shard has lost so far are unknown, and that many samples fewer are
    /// skipped. If a dataset has sides, a restore may return the error of a missing key: then skip a few
    /// steps more or less.
    ///
    /// ```
    /// use shardstream::State;
    ///
    /// /// The loss was unstable: leaves out the next 200 steps.
    /// fn after_a_spike(checkpoint: &str) -> shardstream::Result<State> {
    ///     Ok(checkpoint.parse::<State>()?.skip(200))
    /// }
    /// ```
    #[must_use]
    pub fn skip(self, steps: u64) -> Self {
        State { skip: self.skip.saturating_add(steps).min(MAX_COUNT), ..self }
    }

    /// Number of steps that a restore skips.
    pub(crate) fn steps_to_skip(&self) -> u64 {
        self.skip
    }

    /// The same state, of a run that has ended like this.
    pub(crate) fn ended(self, end: RunEnd) -> Self {
        State { end, ..self }
    }

    /// Whether the run had ended when the state was taken.
    pub(crate) fn end(&self) -> RunEnd {
        if self.skip == 0 { self.end } else { RunEnd::Open }
    }

    pub(crate) fn header(&self) -> &JobHeader {
        &self.header
    }

    /// The first sequence number that not all ranks whose streams these are have passed.
    pub(crate) fn next_number(&self) -> u64 {
        self.reached.next_number
    }

    /// The first sequence number that the furthest of them has not passed.
    pub(crate) fn furthest(&self) -> u64 {
        self.reached.furthest
    }

    /// A number that differs after every batch, and between ranks.
    pub(crate) fn batch_key(&self) -> u64 {
        // With larger numbers some of these are equal, which breaks nothing.
        let stream = self.streams.first().map_or(0, |first| first.stream as u64);
        (self.next_number() << 20) ^ stream
    }

    pub(crate) fn stream(&self, dataset: usize, stream: usize) -> Option<&StreamState> {
        let at = self.streams.binary_search_by_key(&(dataset, stream), |at| (at.dataset, at.stream));
        self.streams.get(at.ok()?).map(Arc::as_ref)
    }

    /// The epoch of the batches, or the first epoch if they continue without end.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.header.run.epoch()
    }

    /// Whether the batches are those of all epochs from [`epoch`](State::epoch) on, without an end: see
    /// [`Loader::epochs`](crate::Loader::epochs).
    #[must_use]
    pub fn is_endless(&self) -> bool {
        matches!(self.header.run, EpochRange::EpochsFrom(_))
    }

    /// Number of batches that were taken on a rank, including those before a restore. This is the number of
    /// the next batch, from 0.
    #[must_use]
    pub fn batches(&self) -> u64 {
        self.batches
    }

    /// Number of samples that were taken, by the ranks whose streams these are.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.digest().samples()
    }

    /// The digest of the samples that were taken, by the ranks whose streams these are.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.streams.iter().map(|stream| stream.digest.merge(stream.before)).sum()
    }

    /// The failures that were skipped, by the ranks whose streams these are.
    #[must_use]
    pub fn ledger(&self) -> Ledger {
        self.streams.iter().map(|stream| stream.ledger.clone()).sum()
    }

    /// Whether this state has the streams of all ranks.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        Some(self.streams.len()) == self.header.streams.checked_mul(self.header.datasets.len())
    }
}

/// The error of a state that cannot be used.
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
        if text.trim().is_empty() {
            return Err(misfit(
                "it cannot be read: it is empty, as a file whose writing was interrupted; restore an earlier \
                 state, or delete the file to begin the job anew",
            ));
        }
        if let Some(size) = json::excess(text.as_bytes(), ParsedAs::Lists, json::limit_of(text.len() as u64))
        {
            return Err(misfit(format!("it cannot be read: it would take more than {size} bytes of memory")));
        }
        serde_json::from_str(text).map_err(|error| misfit(format!("it cannot be read: {error}")))
    }
}

impl Serialize for State {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let State { header, reached, batches, end, skip, streams } = self.clone();
        let Reached { next_number, furthest, step } = reached;
        let furthest = Some(furthest).filter(|furthest| *furthest > next_number);
        let document = StateDocument {
            shardstream_state: Version,
            header,
            next_number,
            furthest,
            step,
            batches,
            ended: end == RunEnd::Ended,
            failed: end == RunEnd::Failed,
            skip,
            streams,
        };
        document.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for State {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error;
        let StateDocument {
            shardstream_state: Version,
            header,
            next_number,
            furthest,
            step,
            batches,
            ended,
            failed,
            skip,
            streams,
        } = StateDocument::deserialize(deserializer)?;
        let reached = Reached { next_number, furthest: furthest.unwrap_or(next_number), step };
        let end = match (ended, failed) {
            (true, _) => RunEnd::Ended,
            (false, true) => RunEnd::Failed,
            (false, false) => RunEnd::Open,
        };
        let state = State { header, reached, batches, end, skip, streams };
        state.check().map_err(D::Error::custom)?;
        Ok(state)
    }
}

/// Numbers of 64 bits as hexadecimal text, because many JSON parsers turn numbers into floats.
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
