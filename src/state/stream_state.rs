//! The state of one stream.

use super::zero::is_zero;
use super::{Digest, Ledger};
use crate::error::Error;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// The state of one stream of one dataset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StreamState {
    /// The number of the dataset among those that are mixed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) dataset: usize,
    pub(crate) stream: usize,
    /// Number of passes that have ended.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) pass: u64,
    /// Number of samples that were taken in this pass.
    pub(crate) taken: u64,
    /// Number of samples of the pass, if its end has been reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) length: Option<u64>,
    /// The slices that still have samples in the shuffle buffer, and the one that is being read, in their
    /// order.
    #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
    pub(crate) open: Arc<[OpenSlice]>,
    /// The digest of all samples taken, in all passes.
    pub(crate) digest: Digest,
    /// The input of the next output, if some of its outputs were taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) part: Option<PartialInput>,
    /// Number of slots that were left empty because no item had their shape.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) empty: u64,
    /// The last pass that has returned an item, if a restore begins in an earlier one.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) given_pass: u64,
    /// Number of items that a stage with memory has returned since this state's sample. A restore makes them
    /// again from the samples that follow, and drops them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) again: u64,
    /// What a stage with memory has saved, if it saves anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) saved: Option<StageRecord>,
    /// Number of failures since the last item was taken or, with such a stage, since this state's sample. A
    /// restore does not report them again.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) skips: u64,
    /// The failures that were skipped, in all passes.
    #[serde(default, skip_serializing_if = "Ledger::is_empty")]
    pub(crate) ledger: Ledger,
    /// The digest of what the stream returned of datasets that were removed or restarted since. It is stored
    /// with the first dataset.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) before: Digest,
}

/// An input of a stream of which some outputs were taken, but not all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PartialInput {
    /// The number of the input among those of the pass, from 0.
    pub(crate) number: u64,
    /// Number of its outputs that were taken.
    pub(crate) given: u64,
}

/// What a stage with memory has saved: which inputs it needs, and numbers of its own.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StageRecord {
    /// Number of inputs that are read again before those that it needs.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) past: u64,
    /// Number of inputs that it needs.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) inputs: u64,
    /// Number of samples, inputs and failures in what is read again. These failures are not reported again.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) seen: u64,
    /// Number of items that the last input had returned.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) part: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) numbers: Vec<u64>,
}

impl StreamState {
    /// A stream before its first sample was taken.
    pub(crate) fn new(dataset: usize, stream: usize) -> Self {
        StreamState {
            dataset,
            stream,
            pass: 0,
            taken: 0,
            length: None,
            open: Arc::default(),
            digest: Digest::default(),
            part: None,
            empty: 0,
            given_pass: 0,
            again: 0,
            saved: None,
            skips: 0,
            ledger: Ledger::default(),
            before: Digest::default(),
        }
    }

    /// Number of slots of the stream that have been passed.
    pub(crate) fn places(&self) -> u64 {
        self.digest.places().saturating_add(self.before.places()).saturating_add(self.empty)
    }

    /// The same stream, of a dataset whose number has changed.
    pub(super) fn of_dataset(&self, dataset: usize) -> Self {
        StreamState { dataset, ledger: self.ledger.clone().of_dataset(dataset), ..self.clone() }
    }

    /// Records that a failure in this epoch of the dataset was skipped.
    pub(crate) fn skip(&mut self, epoch: u64, error: &Error) {
        // An item that waited for its slot may fail in a later epoch; entries are in the order of epochs.
        let epoch = self.ledger.entries().last().map_or(epoch, |last| epoch.max(last.epoch));
        self.ledger.skip(self.dataset, self.stream, epoch, error);
    }

    /// How the same stream differs in another state, if it does.
    pub(super) fn difference(&self, other: &StreamState) -> Option<String> {
        let StreamState {
            dataset: _,
            stream: _,
            pass,
            taken,
            length,
            open,
            digest,
            part,
            empty,
            given_pass,
            again,
            saved,
            skips,
            ledger,
            before,
        } = other;
        let differs = |what: &str, first: &dyn fmt::Display, second: &dyn fmt::Display| {
            Some(format!("{what} {first} in the first, and {second} in the second"))
        };
        if self.pass != *pass {
            return differs("the passes that have ended are", &self.pass, pass);
        }
        if self.taken != *taken {
            return differs("the samples of the pass that were taken are", &self.taken, taken);
        }
        for (first, second) in [(&self.digest, digest), (&self.before, before)] {
            if first != second {
                return differs("the digest of what was taken is", first, second);
            }
        }
        if self.length != *length {
            let shown = |length: Option<u64>| length.map_or("unknown".into(), |length| length.to_string());
            return differs("the length of the pass is", &shown(self.length), &shown(*length));
        }
        let again =
            (self.empty, self.given_pass, self.again, &self.saved) == (*empty, *given_pass, *again, saved);
        if self.part != *part || !again || self.skips != *skips || !self.ledger.is_twin(ledger) {
            return Some("other failures were skipped since, or other parts of a sample taken".into());
        }
        (self.open != *open).then(|| "the shards that are open, or their versions, are other ones".into())
    }
}

/// A slice that has been opened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OpenSlice {
    /// The number of the slice in its stream.
    pub(crate) slice: usize,
    /// Number of samples of the pass before it.
    pub(crate) start: u64,
    /// The size of the stored object in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) size: Option<u64>,
    /// The version of the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) version: Option<Arc<str>>,
}
