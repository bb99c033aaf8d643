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

/// Largest count that a state may have. No job consumes this many samples.
const MAX_COUNT: u64 = 1 << 48;

/// Records which batches of a loader a job has consumed.
///
/// A state counts consumed batches, not batches that were prepared in advance.
/// [`Loader::restore`](crate::Loader::restore) returns the batches after the consumed batches. A state has a
/// few numbers for each logical stream and for each shard with samples in the shuffle buffer. It is cheap to
/// make and to clone: every [`Batch`](crate::adapters::Batch) has one. Save the state together with the
/// weights of the model. [`save`](State::save) writes the state to a separate file, and [`load`](State::load)
/// reads such a file. `Display` and serde write a JSON document, which can be a part of another checkpoint.
///
/// Each rank has the state of its own streams and saves this state in its own file. To resume with the same
/// number of ranks, restore on each rank the state of this rank. To resume with another number of ranks,
/// [merge](State::merge) the states, and restore the merged state on all ranks.
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
    batches: u64,
    end: RunEnd,
    /// Number of steps that a restore skips.
    skip: u64,
    /// The streams, sorted by dataset and number. Consecutive states share streams that have not changed:
    /// each batch has a state, and a rank may have many streams.
    streams: Arc<[Arc<StreamState>]>,
}

/// Whether and how the run of a rank has ended. After its end, the rank takes no further step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum RunEnd {
    #[default]
    Open,
    /// No samples are left for the rank.
    Ended,
    /// An error has ended the run, such as a network outage.
    Failed,
}

/// Which sequence numbers of the job have been passed.
///
/// Ranks may have reached different numbers: if the lengths of streams are unknown, a rank leaves out batches
/// for which its streams have no samples left, or skips gaps. The number of items that were consumed from a
/// stream determines which sequence numbers of the stream have been passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reached {
    /// The first sequence number that not all ranks have passed.
    pub(crate) next_number: u64,
    /// The first sequence number that no rank has passed; at least `next_number`.
    pub(crate) furthest: u64,
    /// Number of sequence numbers in a step (one batch on every rank). `None` if batches have several shapes
    /// and therefore several sizes.
    pub(crate) step: Option<u64>,
}

impl Reached {
    /// The same values with `next_number` as the next sequence number.
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

/// The version of the document. It is the first key of the document. If a document has another version, the
/// error therefore names the version, and not an unknown key.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
struct Version;

/// The version of the documents that this crate writes.
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

    /// The same state with `steps` steps to skip: a restore resumes `steps` steps later than it would
    /// otherwise, and does not read the samples of the skipped steps.
    ///
    /// A step is one batch on every rank. A restore leaves out the first `steps` batches of each rank. A rank
    /// that has fewer batches left returns no batch. If this function is called several times, the steps add
    /// up. Skip steps of the [merged](State::merge) state, or the same number of steps of every rank's state.
    ///
    /// The counts of this state do not change. [`Loader::restore`](crate::Loader::restore) skips the steps,
    /// and from then on [`Digest::skipped`] includes their samples. Skipped samples are not read, so the
    /// restore cannot know which of these samples would have failed, and counts all of them.
    ///
    /// If samples of an earlier shard of the epoch could not be read, a restore refuses to skip. If
    /// unreadable samples are in the shard that a stream was reading, their number is unknown. The restore
    /// then skips one sample too few for each unreadable sample. If a side dataset is joined by key, a
    /// restore may return an error for a missing key. In this case, skip a few steps more, or a few steps
    /// fewer.
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

    /// The same state with `end` as the end of the run.
    pub(crate) fn ended(self, end: RunEnd) -> Self {
        State { end, ..self }
    }

    /// Whether and how the run had ended when the state was taken.
    pub(crate) fn end(&self) -> RunEnd {
        if self.skip == 0 { self.end } else { RunEnd::Open }
    }

    pub(crate) fn header(&self) -> &JobHeader {
        &self.header
    }

    /// The first sequence number that not all ranks of this state have passed.
    pub(crate) fn next_number(&self) -> u64 {
        self.reached.next_number
    }

    /// The first sequence number that no rank of this state has passed.
    pub(crate) fn furthest(&self) -> u64 {
        self.reached.furthest
    }

    /// A number that differs between batches and between ranks.
    pub(crate) fn batch_key(&self) -> u64 {
        // If a job has more than 2^20 streams or 2^44 sequence numbers, two batches may have the same key,
        // which does no harm.
        let stream = self.streams.first().map_or(0, |first| first.stream as u64);
        (self.next_number() << 20) ^ stream
    }

    pub(crate) fn stream(&self, dataset: usize, stream: usize) -> Option<&StreamState> {
        let at = self.streams.binary_search_by_key(&(dataset, stream), |at| (at.dataset, at.stream));
        self.streams.get(at.ok()?).map(Arc::as_ref)
    }

    /// The epoch of the batches; for an endless run, the first epoch.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.header.run.epoch()
    }

    /// Whether the run is endless: it has the batches of all epochs from [`epoch`](State::epoch) on. See
    /// [`Loader::epochs`](crate::Loader::epochs).
    #[must_use]
    pub fn is_endless(&self) -> bool {
        matches!(self.header.run, EpochRange::EpochsFrom(_))
    }

    /// Number of batches consumed on a rank, including the batches before a restore. It is also the number of
    /// the next batch, counted from 0.
    #[must_use]
    pub fn batches(&self) -> u64 {
        self.batches
    }

    /// Number of samples consumed by the ranks of this state: by all ranks if the state is merged, otherwise
    /// by one rank.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.digest().samples()
    }

    /// The digest of the samples consumed by the ranks of this state.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.streams.iter().map(|stream| stream.digest.merge(stream.before)).sum()
    }

    /// The failures skipped by the ranks of this state.
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

/// The error for a state that cannot be used.
pub(crate) fn misfit(why: impl Into<String>) -> Error {
    ErrorKind::State(why.into()).into()
}

impl fmt::Display for State {
    /// Writes JSON in one line, or indented with `{:#}`.
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
                "it cannot be read: it is empty, like a file whose writing was interrupted; restore an \
                 earlier state, or delete the file to begin the job anew",
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

/// Serializes numbers of 64 bits as hexadecimal text, because many JSON parsers convert numbers to floats.
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
